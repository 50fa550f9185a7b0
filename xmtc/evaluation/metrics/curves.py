"""Areas under the curves of single labels, by label frequency, as in Table 6 of the AttentionXML paper: AUC, AUPR.

For each label all test documents are ranked by the label's score; a group's value is the mean over its labels.
Documents whose DEPTH best predictions do not hold the label tie below all that do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xmtc.core.predictions import NO_LABEL
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import MetricParameter, register_metric

FREQUENCY_GROUPS = ("frequent", "medium", "rare")
MIN_OCCURRENCES = 5  # of a label in the test set to have a curve


def parse_group(text: str) -> str | None:
    return text.lower() if text.lower() in FREQUENCY_GROUPS else None


GROUP_PARAMETER = MetricParameter("|".join(FREQUENCY_GROUPS), example="rare", parse=parse_group)


@register_metric("AUC", parameter=GROUP_PARAMETER)
def auc(judged: RankedResults, group: str) -> float:
    """Mean area under the ROC curve of the labels of a frequency group."""
    means, _ = judged.compute_once(compute_group_means)
    return means[FREQUENCY_GROUPS.index(group)]


@register_metric("AUPR", parameter=GROUP_PARAMETER)
def aupr(judged: RankedResults, group: str) -> float:
    """Mean average precision of the labels of a frequency group."""
    _, means = judged.compute_once(compute_group_means)
    return means[FREQUENCY_GROUPS.index(group)]


def compute_group_means(judged: RankedResults) -> tuple[list[float], list[float]]:
    """The mean AUC and the mean AUPR of each frequency group; nan for a group without labels."""
    has_curve = (judged.frequencies >= MIN_OCCURRENCES) & (judged.frequencies < judged.n_docs)
    labels = np.flatnonzero(has_curve)
    if len(labels) == 0:
        return [np.nan] * 3, [np.nan] * 3

    group = assign_frequency_groups(judged.frequencies[labels])
    members = [group == number for number in range(3)]

    auc_of, aupr_of = compute_label_curves(judged, labels)
    return (
        [auc_of[mask].mean() if mask.any() else np.nan for mask in members],
        [aupr_of[mask].mean() if mask.any() else np.nan for mask in members],
    )


def assign_frequency_groups(frequencies: np.ndarray) -> np.ndarray:
    """(n,) group of each label, 0 the most frequent, so that the three groups' total occurrences differ least. Labels
    of equal frequency stay together, as the thresholds of AttentionXML's Table 6 keep them."""
    values, step, size = np.unique(-frequencies, return_inverse=True, return_counts=True)
    mass = np.cumsum(-values * size, dtype=np.float64)  # of the most frequent labels down to each frequency

    # For every end of the first group, the end of the second that halves the rest best.
    half_of_rest = (mass + mass[-1]) / 2
    second = np.searchsorted(mass, half_of_rest)
    before = np.maximum(second - 1, 0)
    second = np.where(half_of_rest - mass[before] <= mass[second] - half_of_rest, before, second)

    unevenness = mass**2 + (mass[second] - mass) ** 2 + (mass[-1] - mass[second]) ** 2
    first = int(np.argmin(unevenness))
    return (step > first).astype(np.int64) + (step > second[first])


def compute_label_curves(judged: RankedResults, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) twice: AUC and average precision of each label over all documents, ties exact as in scikit-learn."""
    ranked = rank_documents_by_label(judged, labels)
    is_last = (ranked.label[1:] != ranked.label[:-1]) | (ranked.score[1:] != ranked.score[:-1])
    ends = np.append(np.flatnonzero(is_last), len(ranked.label) - 1)  # a curve has one point per run of equal scores
    label = ranked.label[ends]

    n_right = judged.frequencies[labels].astype(np.float64)
    n_wrong = judged.n_docs - n_right

    # Sums run through all labels; what belongs to the labels before is taken off.
    all_right, all_wrong = np.cumsum(ranked.n_correct)[ends], np.cumsum(ranked.n_incorrect)[ends]
    right_so_far = all_right - (np.cumsum(n_right) - n_right)[label]
    wrong_so_far = all_wrong - (np.cumsum(n_wrong) - n_wrong)[label]
    new_right, new_wrong = np.diff(all_right, prepend=0), np.diff(all_wrong, prepend=0)

    area = np.bincount(label, new_wrong * (right_so_far - new_right / 2))
    steps = np.bincount(label, new_right * right_so_far / (right_so_far + wrong_so_far))
    return area / (n_right * n_wrong), steps / n_right


class RankedDocuments(NamedTuple):
    """Scored documents of several labels, label by label, best first. One entry may stand for many documents."""

    label: np.ndarray  # position among the labels that have a curve
    score: np.ndarray
    n_correct: np.ndarray  # how many documents with this score have the label
    n_incorrect: np.ndarray  # how many do not


def rank_documents_by_label(judged: RankedResults, labels: np.ndarray) -> RankedDocuments:
    """Every document for each label. Those for which the label was not predicted are one entry, below all others."""
    position = np.full(judged.n_labels, -1)
    position[labels] = np.arange(len(labels))

    predicted = judged.predictions.labels
    is_counted = (predicted != NO_LABEL) & (position[predicted] >= 0)
    label, hit = position[predicted[is_counted]], judged.hits[is_counted]

    n_predicted = np.bincount(label, minlength=len(labels))
    n_found = np.bincount(label[hit], minlength=len(labels))
    right_left = judged.frequencies[labels] - n_found
    wrong_left = judged.n_docs - n_predicted - right_left

    documents = RankedDocuments(
        label=np.append(label, np.arange(len(labels))),
        score=np.append(judged.predictions.scores[is_counted], np.full(len(labels), -np.inf, dtype=np.float32)),
        n_correct=np.append(hit, right_left),
        n_incorrect=np.append(~hit, wrong_left),
    )
    order = np.lexsort((-documents.score, documents.label))
    return RankedDocuments(*(values[order] for values in documents))
