"""A decision for a tagger, learnt from labelled documents: what `xmtc thresholds` does.

`tune_tagger_thresholds(tagger, documents, "micro-f1").tagger.save("model")`"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from scipy.sparse import csr_array

from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.evaluation import EVALUATION_DEPTH, to_ranked_results
from xmtc.evaluation.assignment_metrics import AssignmentMetrics, compute_assignment_metrics, count_by_document
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.scores import MAX_DECISION_DEPTH, LabelSelector, parse_goal, tune_thresholds
from xmtc.tagger import Tagger


@dataclass(frozen=True)
class TunedTagger:
    tagger: Tagger  # with the decision
    decision: LabelSelector
    metrics: AssignmentMetrics  # on the documents that it was learnt from
    half_split_scores: dict[
        str, float
    ]  # by what a decision could be made, and the goal that one half reaches by the other's
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
) -> TunedTagger:
    """From documents that the tagger was not trained on, for a goal: f1 (of documents), micro-f1, macro-f1,
    precision=0.9, recall=0.8 or tags=5; by one threshold for all labels, one for each label, or a number of labels for
    each document, and if nothing is said by what serves best on halves of the documents. See xmtc.scores."""
    wanted, n_labels = parse_goal(goal), len(tagger.labels)
    data, truth, _ = tagger.transform_labelled(documents, run)
    if not (truth.shape[0] and (truth.indices < n_labels).any()):
        raise XmtcError("No document has a label that the model knows, so there is nothing to learn a decision from.")
    for depth in (EVALUATION_DEPTH, MAX_DECISION_DEPTH):
        found = tagger.predict(data, min(depth, n_labels), run, always=always)
        learnt = tune_thresholds(to_ranked_results(found, truth), wanted, n_labels, by)
        given = RankedResults(learnt.decision(found), truth)
        most = int(count_by_document(given)[1].max())
        if 2 * most <= depth or depth >= n_labels:  # far from the end of what it looked at
            break
    decision = replace(learnt.decision, most=max(1, most))
    made = tagger.with_decision(decision, documents=truth.shape[0])
    assert made.decision is not None
    return TunedTagger(made, made.decision, compute_assignment_metrics(given), learnt.half_split_scores, found, truth)
