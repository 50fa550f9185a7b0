"""Comparison of trained models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np

from xmtc.analysis.compare.comparison import Candidate, Comparison, Cost, compare_candidates
from xmtc.analysis.compare.ground_truth import GroundTruth
from xmtc.analysis.compare.saved_predictions import SavedPredictions
from xmtc.analysis.report.build import format_label
from xmtc.analysis.result_files import measure_folder_mb
from xmtc.core.history import select_stages
from xmtc.data.document import Document
from xmtc.evaluation import parse_metric
from xmtc.evaluation.metric_values import compute_overlap
from xmtc.tagger import Tagger

SUMMARY_METRICS = ("P@1", "P@3", "P@5", "nDCG@5")
OVERLAP_DEPTHS = (1, 2, 3, 4, 5)


def compare_models(
    folders: Sequence[str],
    taggers: Sequence[Tagger],
    predictions: Sequence[SavedPredictions],
    documents: Sequence[Document],
    data: str,
) -> Comparison:
    """Compare models by their predictions for labelled documents."""
    names = make_unique_names(folders)
    candidates = [
        Candidate(name, (partial(get_predictions, predictions, index),), read_training_cost(tagger, folder))
        for index, (name, tagger, folder) in enumerate(zip(names, taggers, folders, strict=True))
    ]
    about = {"Models": "; ".join(f"{name}: {tagger!r}" for name, tagger in zip(names, taggers, strict=True))}
    truth = GroundTruth.from_documents(documents, [each.trained for each in predictions])
    return compare_candidates(candidates, truth, data, about, format_label_name=make_label_formatter(taggers))


def get_predictions(predictions: Sequence[SavedPredictions], index: int) -> SavedPredictions:
    return predictions[index]


def summarise_models(
    predictions: Sequence[SavedPredictions], documents: Sequence[Document]
) -> tuple[list[dict[str, float]], dict[str, float]]:
    """Return the metrics of each model and the overlap of their first labels, as a mean over pairs of models."""
    truth = GroundTruth.from_documents(documents, [each.trained for each in predictions])
    renumbered = [truth.renumber_predictions(each)[0] for each in predictions]
    results = [truth.match_predictions(each) for each in renumbered]
    metrics = [{name: parse_metric(name).compute(result) for name in SUMMARY_METRICS} for result in results]
    pairs = list(combinations(renumbered, 2))
    overlap = {f"top{k}": float(np.mean([compute_overlap(*pair, k) for pair in pairs])) for k in OVERLAP_DEPTHS}
    return metrics, overlap


def make_unique_names(folders: Sequence[str]) -> list[str]:
    """Return the folders as names; a repeated one gets a number."""
    names = [folder.rstrip("/") or folder for folder in folders]
    counts = [names[: position + 1].count(name) for position, name in enumerate(names)]
    return [name if n == 1 else f"{name} ({n})" for name, n in zip(names, counts, strict=True)]


def read_training_cost(tagger: Tagger, folder: str) -> Cost:
    """Return the costs in the model's history: the stages of training, without program start and saving."""
    stages = select_stages(tagger.history)
    peaks = [stage["memory"] for stage in stages if stage.get("memory")]
    return Cost(
        train_s=round(sum(stage["seconds"] for stage in stages), 1) if stages else None,
        peak_mb=round(max(peaks) / 1e6) if peaks else None,
        model_mb=measure_folder_mb(Path(folder)),
    )


def make_label_formatter(taggers: Sequence[Tagger]) -> Callable[[str], str]:
    """Return a function that formats labels with the names of the first vocabulary among the models."""
    tagger = next((tagger for tagger in taggers if tagger.concepts is not None), None)
    if tagger is None:
        return str

    def format_name(label: str) -> str:
        label_id = tagger.labels.find(label)
        return label if label_id < 0 else format_label(tagger, label_id, None)

    return format_name
