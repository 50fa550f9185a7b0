"""Tuning of the thresholds of a tagger on labelled documents, as in `xmtc thresholds`.

Example: `tune_tagger_thresholds(tagger, documents, "micro-f1").tagger.save("model")`
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.evaluation import EVALUATION_DEPTH, to_ranked_results
from xmtc.evaluation.assignment_metrics import AssignmentMetrics, compute_assignment_metrics, count_by_document
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.methods.ensemble.calibrated_model import select_prediction_rows
from xmtc.scores import MAX_DECISION_DEPTH, LabelSelector, ThresholdGoal, parse_goal, tune_thresholds
from xmtc.scores.quality import LabelledSelection, QualityPromise, fit_quality_gate
from xmtc.tagger import Tagger

CROSS_VALIDATION_FOLDS = 5
SPLIT_SEED = 0  # of the halves that tune the thresholds and test the gate


@dataclass(frozen=True)
class TunedTagger:
    """Tagger with tuned thresholds, and their cross-validated metrics."""

    tagger: Tagger  # with the thresholds
    decision: LabelSelector
    metrics: AssignmentMetrics  # of each document with thresholds that were tuned on the other folds
    half_split_scores: dict[str, float]  # goal by scope in two-fold validation
    predictions: Predictions
    true_labels: csr_array


def tune_tagger_thresholds(
    tagger: Tagger,
    documents: Iterable[Document],
    goal: str = "f1",
    by: str | None = None,
    run: Run = Run(),
    *,
    always: bool = False,
    promise: QualityPromise | None = None,
) -> TunedTagger:
    """Tune the thresholds of a tagger on labelled documents that it was not trained on.

    Parameters
    ----------
    tagger : Tagger
        Tagger to tune; it is not changed.
    documents : iterable of Document
        Labelled documents.
    goal : str
        Goal of the tuning: f1 (averaged over documents), micro-f1, macro-f1, precision=0.9, recall=0.8 or tags=5
        (labels per document).
    by : str, optional
        Scope: "all" for one threshold, "label" for one per label, "document" for a number of labels per document. By
        default the best in two-fold validation.
    run : Run
        Threads, device and progress.
    always : bool
        True to predict also for texts without any known word.
    promise : QualityPromise, optional
        Mean metric of documents that are published without a person. Thresholds are then tuned on a random half of the
        documents, and the gate is tested on the other half.

    Returns
    -------
    TunedTagger
        Tagger with the thresholds, and their metrics.

    Raises
    ------
    XmtcError
        If the goal or the scope is not valid, no document has a label of the tagger, or documents are too few for a
        gate.
    """
    parse_goal(goal)  # raises before any work
    labelled = tagger.transform_labelled(documents, run)
    if not (labelled.Y.indices < len(tagger.labels)).any():
        raise XmtcError("No document has a label that the model knows; pass documents with labels of the model.")
    if promise is None:
        return tune_on_data(tagger, labelled.data, labelled.Y, goal, by, run, always)
    order = np.random.default_rng(SPLIT_SEED).permutation(labelled.Y.shape[0])
    tuning_rows, test_rows = order[: len(order) // 2], order[len(order) // 2 :]
    tuned = tune_on_data(tagger, labelled.data.select_rows(tuning_rows), labelled.Y[tuning_rows], goal, by, run, always)
    depth = tuned.decision.depth
    ranked = tagger.predict(labelled.data.select_rows(test_rows), depth, run, always=always)
    testing = LabelledSelection(ranked, tuned.decision(ranked), labelled.Y[test_rows])
    ranked = tuned.predictions.keep_best(depth)
    fitting = LabelledSelection(ranked, tuned.decision(ranked), tuned.true_labels)
    decision = replace(tuned.decision, gate=(fit_quality_gate(fitting, testing, promise),))
    tuned_tagger = tagger.with_decision(decision, documents=tuned.true_labels.shape[0])
    assert tuned_tagger.decision is not None
    return replace(tuned, tagger=tuned_tagger, decision=tuned_tagger.decision)


def tune_on_data(
    tagger: Tagger, data: Dataset, true_labels: csr_array, goal: str, by: str | None, run: Run, always: bool
) -> TunedTagger:
    """Tune the thresholds of a tagger on documents in its views."""
    parsed_goal, n_labels = parse_goal(goal), len(tagger.labels)
    for depth in (EVALUATION_DEPTH, MAX_DECISION_DEPTH):
        predictions = tagger.predict(data, min(depth, n_labels), run, always=always)
        tuned = tune_thresholds(to_ranked_results(predictions, true_labels), parsed_goal, n_labels, by)
        selected = RankedResults(tuned.decision(predictions), true_labels)
        max_selected = int(count_by_document(selected)[1].max())
        if 2 * max_selected <= depth or depth >= n_labels:  # a deeper ranking would not select more labels
            break
    decision = replace(tuned.decision, most=max(1, max_selected))
    tuned_tagger = tagger.with_decision(decision, documents=true_labels.shape[0])
    assert tuned_tagger.decision is not None
    metrics = cross_validate_thresholds(predictions, true_labels, parsed_goal, n_labels, by)
    return TunedTagger(tuned_tagger, tuned_tagger.decision, metrics, tuned.half_split_scores, predictions, true_labels)


def cross_validate_thresholds(
    predictions: Predictions, true_labels: csr_array, goal: ThresholdGoal, n_labels: int, by: str | None = None
) -> AssignmentMetrics:
    """Return the metrics of all documents, each with thresholds that were tuned on the other folds.

    The scope and the smoothing are selected within each fold, too. A single document has no other fold.
    """
    n_docs = true_labels.shape[0]
    folds = np.random.default_rng(0).permutation(n_docs) % min(CROSS_VALIDATION_FOLDS, n_docs)
    labels, scores = np.full_like(predictions.labels, NO_LABEL), np.zeros_like(predictions.scores)
    for fold in range(int(folds.max()) + 1):
        is_test = folds == fold
        is_training = ~is_test if n_docs > 1 else is_test
        training = to_ranked_results(select_prediction_rows(predictions, is_training), true_labels[is_training])
        decision = tune_thresholds(training, goal, n_labels, by).decision
        selected = decision(select_prediction_rows(predictions, is_test))
        labels[is_test], scores[is_test] = selected.labels, selected.scores
    return compute_assignment_metrics(RankedResults(Predictions.from_valid_arrays(labels, scores), true_labels))
