"""Combination of trained models into one.

Each model keeps its views; equal views are stored and computed once. Labels are matched by name; a model never predicts
a label that it does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import xmtc
from xmtc.core.history import add_name_prefix
from xmtc.core.hyperparameters import format_cli_value
from xmtc.core.method import Model
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.features import FittedViews, number_view
from xmtc.methods.ensemble.calibrated_model import calibrate_combination, strip_calibration
from xmtc.methods.ensemble.combination_rules import NOISY_OR
from xmtc.methods.ensemble.members import name_members
from xmtc.methods.ensemble.model import CombinedModel, RemappedModel
from xmtc.pipeline import build_labelled_dataset
from xmtc.scores.calibration import describe_calibration
from xmtc.storage.form import is_equal
from xmtc.tagger import Tagger
from xmtc.text.string_index import StringIndex


def combine(
    taggers: Sequence[Tagger], rule: str = NOISY_OR, valid: Sequence[Document] | None = None, run: Run = Run()
) -> Tagger:
    """Combine taggers into one.

    Parameters
    ----------
    taggers
        At least two taggers, which may have different methods, views and labels.
    rule
        "noisy-or" or "mean".
    valid
        Labelled documents that no tagger was trained on, for calibration; without them scores are raw.
    run
        Threads, device and progress.

    Returns
    -------
    Tagger
        Combined tagger, with the first vocabulary among the taggers and the label filters of all.

    Raises
    ------
    XmtcError
        If there are fewer than two taggers, or some read texts and others features.
    """
    if len(taggers) < 2:
        raise XmtcError(f"Found {len(taggers)} models to combine, expected at least two.")
    contents = {view.input_kind for tagger in taggers for view in tagger.views.values()}
    if len(contents) > 1:
        raise XmtcError("Some models read texts and others features; combine models of one kind.")
    run, new_history = run.record_history()
    labels = StringIndex.from_strings(sorted({name for tagger in taggers for name in tagger.labels.words()}))
    views: FittedViews = {}
    models = []
    for tagger in taggers:
        names = {name: choose_view_name(views, name, view) for name, view in tagger.views.items()}
        views |= {names[name]: view for name, view in tagger.views.items()}
        models.append(adapt_model(tagger, names, labels))

    sizes = {name: view.size for name, view in views.items()}
    combined_model = CombinedModel(n_labels=len(labels), views=sizes, rule=rule, models=tuple(models))
    held_out = None if valid is None else build_labelled_dataset(views, labels, valid, run)
    model = combined_model if held_out is None else calibrate_combination(combined_model, held_out, run)
    about = describe_combination(taggers, rule, None if held_out is None else held_out.n_docs, sizes, len(labels))
    before = [entry for i, tagger in enumerate(taggers) for entry in add_name_prefix(tagger.history, f"member-{i}")]
    history = (*before, *new_history)
    combined = Tagger(views, labels, merge_frequencies(taggers, labels), model, about, history=history)
    return attach_vocabulary_and_filter(combined, taggers)


def attach_vocabulary_and_filter(combined: Tagger, taggers: Sequence[Tagger]) -> Tagger:
    """Attach the first vocabulary among the taggers, and deny every label that one of them denies."""
    for tagger in taggers:
        if tagger.concepts is not None:
            combined = combined.with_vocabulary(tagger.concepts.vocabulary, tagger.concepts.language)
            break
    denied = {
        label
        for tagger in taggers
        if tagger.allowed is not None
        for label, is_allowed in zip(tagger.labels.words(), tagger.allowed, strict=True)
        if not is_allowed
    }
    return combined.with_filter(deny=sorted(denied)) if denied else combined


def choose_view_name(views: FittedViews, name: str, view: Any) -> str:
    """Return the name of an equal view, or an unused name: tfidf, tfidf-2, tfidf-3."""
    number = 1
    while (candidate := number_view(name, number)) in views and not is_equal(views[candidate], view):
        number += 1
    return candidate


def adapt_model(tagger: Tagger, names: dict[str, str], labels: StringIndex) -> Model:
    """Return a tagger's model without calibration, mapped to the combined views and labels if these differ."""
    model = strip_calibration(tagger.model)
    if all(name == new_name for name, new_name in names.items()) and is_equal(tagger.labels, labels):
        return model
    return RemappedModel(
        n_labels=len(labels),
        views={names[name]: size for name, size in model.views.items()},
        model=model,
        names=names,
        numbers=labels.find_packed(tagger.labels.text, tagger.labels.ends),
    )


def merge_frequencies(taggers: Sequence[Tagger], labels: StringIndex) -> np.ndarray:
    """Return the largest training frequency of each label among the taggers."""
    frequencies = np.zeros(len(labels), np.int64)
    for tagger in taggers:
        label_ids = labels.find_packed(tagger.labels.text, tagger.labels.ends)
        frequencies[label_ids] = np.maximum(frequencies[label_ids], tagger.frequencies)
    return frequencies


def describe_combination(
    taggers: Sequence[Tagger], rule: str, n_valid: int | None, sizes: dict[str, int], n_labels: int
) -> dict[str, Any]:
    """Return the description of a `consensus` of the same methods."""
    abouts = [tagger.about for tagger in taggers]
    views = describe_views(abouts)
    own_views = describe_member_views(name_members([about["method"] for about in abouts]), abouts)
    members = [{"method": about["method"], "parameters": about["parameters"]} for about in abouts]
    readings = [about.get("reading", {}) for about in abouts]
    packages = {about.get("package", "xmtc") for about in abouts} - {"xmtc"}
    choices = {
        key: about[key] for about in reversed(abouts) for key in ("chosen", "names", "chosen_names") if key in about
    }
    return {
        "xmtc": xmtc.__version__,
        "method": "consensus",
        "parameters": {
            "members": members,
            "rule": rule,
            "calibrated": n_valid is not None,
            "member_views": own_views,
        },
        "package": next(iter(sorted(packages)), "xmtc"),
        "views": views,
        "sizes": sizes,
        "n_docs": max(about["n_docs"] for about in abouts),
        "n_labels": n_labels,
        "data": " ".join(dict.fromkeys(about["data"] for about in abouts)),
        "scores": describe_combined_scores(n_valid),
        **({"reading": readings[0]} if readings[0] and readings == readings[:1] * len(readings) else {}),
        **choices,  # of the first member that has them
    }


def describe_views(abouts: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the parameters of the views of all models; those of the same kind with other parameters are numbered."""
    views: dict[str, dict[str, Any]] = {}
    for about in abouts:
        for kind, parameters in about["views"].items():
            number = 1
            while views.setdefault(number_view(kind, number), parameters) != parameters:
                number += 1
    return views


def describe_member_views(names: Sequence[str], abouts: Sequence[dict[str, Any]]) -> list[str]:
    """Return the view parameters of each model that differ from those of the first model with such a view, as text."""
    first: dict[str, dict[str, Any]] = {}
    texts = []
    for name, about in zip(names, abouts, strict=True):
        if about["parameters"].get("member_views"):
            continue  # a combination whose members have views of their own
        for kind, parameters in about["views"].items():
            shared = first.setdefault(kind, parameters)
            changed = {key: value for key, value in parameters.items() if shared.get(key) != value}
            texts += [f"{name}.{key}={format_json_value(value)}" for key, value in changed.items()]
    return sorted(texts)


def format_json_value(value: Any) -> str:
    return format_cli_value(tuple(value) if isinstance(value, list) else value)


def describe_combined_scores(n_valid: int | None) -> dict[str, Any]:
    """Return the kind of the combined scores, and the reason."""
    if n_valid is None:
        return {"are": "raw", "because": "not calibrated; give validation documents with --valid"}
    return {"are": "probabilities", "documents": n_valid, "because": describe_calibration(n_valid, "validation ")}
