"""Trained models beside each other."""

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
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.evaluation import EVALUATION_DEPTH, parse_metric
from xmtc.evaluation.metric_values import compute_overlap
from xmtc.tagger import Tagger

SUMMARY_METRICS = ("P@1", "P@3", "P@5", "nDCG@5")
OVERLAP_DEPTHS = (1, 2, 3, 4, 5)


def compare_models(folders: Sequence[str], documents: Sequence[Document], data: str, run: Run = Run()) -> Comparison:
    """The models of these folders on labelled documents."""
    taggers = [Tagger.load(folder) for folder in folders]
    answers = [SavedPredictions.from_tagger(tagger, documents, EVALUATION_DEPTH, run) for tagger in taggers]
    truth = GroundTruth.from_documents(documents, [each.trained for each in answers])
    candidates = [
        Candidate(name, (partial(return_predictions, found),), read_training_cost(tagger, folder))
        for name, found, tagger, folder in zip(make_unique_names(folders), answers, taggers, folders, strict=True)
    ]
    about = {
        "Models": "; ".join(
            f"{name}: {tagger!r}" for name, tagger in zip(make_unique_names(folders), taggers, strict=True)
        )
    }
    return compare_candidates(candidates, truth, data, about, format_label_name=make_label_formatter(taggers))


def return_predictions(answers: SavedPredictions) -> SavedPredictions:
    return answers


def summarise_models(
    taggers: Sequence[Tagger], documents: Sequence[Document], run: Run = Run()
) -> tuple[list[dict[str, float]], dict[str, float]]:
    """Metrics of each model, and the overlap of their first labels, of more than two as a mean over pairs."""
    answers = [SavedPredictions.from_tagger(tagger, documents, max(OVERLAP_DEPTHS), run) for tagger in taggers]
    truth = GroundTruth.from_documents(documents, [each.trained for each in answers])
    found = [truth.renumber_predictions(each)[0] for each in answers]
    measured = [
        {name: parse_metric(name).compute(truth.match_predictions(each)) for name in SUMMARY_METRICS} for each in found
    ]
    pairs = list(combinations(found, 2))
    return measured, {f"top{k}": float(np.mean([compute_overlap(*pair, k) for pair in pairs])) for k in OVERLAP_DEPTHS}


def make_unique_names(folders: Sequence[str]) -> list[str]:
    """What models are called: as they were named; one that was named twice has a number."""
    names = [folder.rstrip("/") or folder for folder in folders]
    counts = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return [name if n == 1 else f"{name} ({n})" for name, n in zip(names, counts, strict=True)]


def read_training_cost(tagger: Tagger, folder: str) -> Cost:
    """What the folder tells of the training: its stages, without the start of the program and the saving."""
    told = select_stages(tagger.history)
    peaks = [each["memory"] for each in told if each.get("memory")]
    return Cost(
        train_s=round(sum(each["seconds"] for each in told), 1) if told else None,
        peak_mb=round(max(peaks) / 1e6) if peaks else None,
        model_mb=measure_folder_mb(Path(folder)),
    )


def make_label_formatter(taggers: Sequence[Tagger]) -> Callable[[str], str]:
    """What a label is called, where one of the models has a vocabulary."""
    known = next((tagger for tagger in taggers if tagger.concepts is not None), None)
    if known is None:
        return str

    def name(label: str) -> str:
        number = known.labels.find(label)
        return label if number < 0 else format_label(known, number, None)

    return name
