"""Model card: README.md of a shared model, with its metadata, metrics and the command that trained it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from xmtc.core.hyperparameters import format_cli_value
from xmtc.core.method import Method
from xmtc.features import TEXTS
from xmtc.parameters import MEMBER_VIEWS, parameters_from_about
from xmtc.tagger import Tagger

CARD_METRICS = ("P@1", "P@3", "P@5", "nDCG@5")  # also in the metadata, which the hub's page shows

PATH_PARAMETERS = ("vocabulary", "vectors", "encoder", "sentence_encoder", "dense", "stop_words")


def render_model_card(
    tagger: Tagger,
    repository: str,
    *,
    report: Mapping[str, Any] | None = None,
    license: str | None = None,
    intended_use: str = "",
) -> str:
    """Return the model card of a tagger.

    Parameters
    ----------
    tagger : Tagger
        Model to describe.
    repository : str
        Repository that the card is for, `hf:user/name`.
    report : mapping, optional
        Content of a JSON file of `xmtc report`, whose metrics are shown.
    license : str, optional
        Identifier of the licence, such as cc-by-4.0.
    intended_use : str, optional
        Paragraph on what the model is for, and what it is not for.
    """
    from jinja2 import Environment, PackageLoader

    environment = Environment(loader=PackageLoader("xmtc.hub", ""), keep_trailing_newline=True)
    return environment.get_template("card.md.j2").render(
        metadata=build_metadata(tagger, repository, report, license),
        name=repository.rpartition("/")[2],
        repository=repository,
        about=tagger.about,
        reads_texts=any(view.input_kind == TEXTS for view in tagger.views.values()),
        report=report,
        scores=describe_scores(tagger),
        parameters=list_parameters(tagger),
        intended_use=intended_use,
    )


def build_metadata(tagger: Tagger, repository: str, report: Mapping[str, Any] | None, license: str | None) -> str:
    """Return the metadata of the card in YAML."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type="text-classification",
            dataset_type="private",
            dataset_name=str(report["title"]),
            metric_type=metric,
            metric_value=report["metrics"][metric]["mean"],
        )
        for metric in CARD_METRICS
        if report is not None and metric in report["metrics"]
    ]
    card = ModelCardData(
        library_name="xmtc",
        pipeline_tag="text-classification",
        tags=["extreme-multi-label-classification", tagger.about["method"]],
        license=license,
        model_name=repository.rpartition("/")[2] if report else None,
        eval_results=results or None,
    )
    return card.to_yaml().strip()


def describe_scores(tagger: Tagger) -> str:
    scores = tagger.about.get("scores", {"are": "raw", "because": "not calibrated"})
    if scores["are"] == "probabilities":
        return f"Scores are probabilities: {scores['because']}."
    return f"Scores are not probabilities ({scores['because']}); only their order has a meaning."


def list_parameters(tagger: Tagger) -> list[str]:
    """Return the parameters that differ from their defaults, as they are typed on the command line, without folders."""
    parameters = parameters_from_about(tagger.about)
    return [f"{name}={format_cli_value(hide_folders(name, value))}" for name, value in parameters.items()]


def hide_folders(name: str, value: Any) -> Any:
    """Return the value of a parameter with the base name of each path, also in members and their view parameters."""
    if isinstance(value, tuple):
        return tuple(hide_folders(name, item) for item in value)
    if isinstance(value, Method):
        return value.replace(**{key: hide_folders(key, own) for key, own in value.explicit_values.items()})
    if name == MEMBER_VIEWS:
        key, equals, text = value.partition("=")
        return f"{key}{equals}{hide_folders(key.rpartition('.')[2], text)}"
    if name in PATH_PARAMETERS and isinstance(value, str):
        return "+".join(re.split(r"[/\\]", source.rstrip("/\\"))[-1] for source in value.split("+"))
    return value
