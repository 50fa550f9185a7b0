"""Areas under the curves of single labels by label frequency (Table 6 of the AttentionXML paper): AUC, AUPR.

For each label all test documents are ranked by the label's score; the value of a group is the mean over its labels.
Documents without the label among their EVALUATION_DEPTH best predictions tie below all others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xmtc.core.predictions import NO_LABEL
from xmtc.evaluation.ranked_results import RankedResults
from xmtc.evaluation.registry import MetricParameter, register_metric

FREQUENCY_GROUPS = ("frequent", "medium", "rare")
MIN_OCCURRENCES = 5  # minimum test documents of a label with a curve


def parse_group(text: str) -> str | None:
    return text.lower() if text.lower() in FREQUENCY_GROUPS else None


GROUP_PARAMETER = MetricParameter("|".join(FREQUENCY_GROUPS), example="rare", parse=parse_group)


@register_metric("AUC", parameter=GROUP_PARAMETER)
def auc(results: RankedResults, group: str) -> float:
    """Mean area under the ROC curve of the labels of a frequency group."""
    means, _ = results.compute_once(compute_group_means)
    return means[FREQUENCY_GROUPS.index(group)]


@register_metric("AUPR", parameter=GROUP_PARAMETER)
def aupr(results: RankedResults, group: str) -> float:
    """Mean average precision of the labels of a frequency group."""
    _, means = results.compute_once(compute_group_means)
    return means[FREQUENCY_GROUPS.index(group)]


def compute_group_means(results: RankedResults) -> tuple[list[float], list[float]]:
    """Return the mean AUC and the mean AUPR of each frequency group; nan for a group without labels."""
    has_curve = (results.frequencies >= MIN_OCCURRENCES) & (results.frequencies < results.n_docs)
    labels = np.flatnonzero(has_curve)
    if len(labels) == 0:
        return [np.nan] * 3, [np.nan] * 3

    group = assign_frequency_groups(results.frequencies[labels])
    members = [group == number for number in range(3)]

    auc_of, aupr_of = compute_label_curves(results, labels)
    return (
        [auc_of[mask].mean() if mask.any() else np.nan for mask in members],
        [aupr_of[mask].mean() if mask.any() else np.nan for mask in members],
    )


def assign_frequency_groups(frequencies: np.ndarray) -> np.ndarray:
    """Return the group of each label, 0 for the most frequent, so that the total occurrences of the three groups are as
    equal as possible. Labels of equal frequency are in one group, as in AttentionXML's Table 6."""
    values, step, size = np.unique(-frequencies, return_inverse=True, return_counts=True)
    mass = np.cumsum(-values * size, dtype=np.float64)  # occurrences of the labels with at least each frequency

    # For every end of the first group, the end of the second group that halves the rest best.
    half_of_rest = (mass + mass[-1]) / 2
    second = np.searchsorted(mass, half_of_rest)
    before = np.maximum(second - 1, 0)
    second = np.where(half_of_rest - mass[before] <= mass[second] - half_of_rest, before, second)

    unevenness = mass**2 + (mass[second] - mass) ** 2 + (mass[-1] - mass[second]) ** 2
    first = int(np.argmin(unevenness))
    return (step > first).astype(np.int64) + (step > second[first])


def compute_label_curves(results: RankedResults, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return AUC and average precision of each label over all documents; ties count as in scikit-learn."""
    ranked = rank_documents_by_label(results, labels)
    is_last = (ranked.label[1:] != ranked.label[:-1]) | (ranked.score[1:] != ranked.score[:-1])
    ends = np.append(np.flatnonzero(is_last), len(ranked.label) - 1)  # a curve has one point per distinct score
    label = ranked.label[ends]

    n_positives = results.frequencies[labels].astype(np.float64)
    n_negatives = results.n_docs - n_positives

    # The cumulative sums run over all labels; the totals of the labels before are subtracted.
    cumulative_correct, cumulative_incorrect = np.cumsum(ranked.n_correct)[ends], np.cumsum(ranked.n_incorrect)[ends]
    true_positives = cumulative_correct - (np.cumsum(n_positives) - n_positives)[label]
    false_positives = cumulative_incorrect - (np.cumsum(n_negatives) - n_negatives)[label]
    new_correct, new_incorrect = np.diff(cumulative_correct, prepend=0), np.diff(cumulative_incorrect, prepend=0)

    area = np.bincount(label, new_incorrect * (true_positives - new_correct / 2))
    steps = np.bincount(label, new_correct * true_positives / (true_positives + false_positives))
    return area / (n_positives * n_negatives), steps / n_positives


class RankedDocuments(NamedTuple):
    """Scored documents label by label, best first. An entry may represent many documents with one score."""

    label: np.ndarray  # position among the labels with a curve
    score: np.ndarray
    n_correct: np.ndarray  # documents of this entry with the label
    n_incorrect: np.ndarray  # documents of this entry without the label


def rank_documents_by_label(results: RankedResults, labels: np.ndarray) -> RankedDocuments:
    """Rank every document for each label. Documents without a prediction of the label are one entry, below all
    others."""
    position = np.full(results.n_labels, -1)
    position[labels] = np.arange(len(labels))

    predicted = results.predictions.labels
    is_counted = (predicted != NO_LABEL) & (position[predicted] >= 0)
    label, hit = position[predicted[is_counted]], results.hits[is_counted]

    n_predicted = np.bincount(label, minlength=len(labels))
    n_found = np.bincount(label[hit], minlength=len(labels))
    missed = results.frequencies[labels] - n_found
    rejected = results.n_docs - n_predicted - missed

    documents = RankedDocuments(
        label=np.append(label, np.arange(len(labels))),
        score=np.append(results.predictions.scores[is_counted], np.full(len(labels), -np.inf, dtype=np.float32)),
        n_correct=np.append(hit, missed),
        n_incorrect=np.append(~hit, rejected),
    )
    order = np.lexsort((-documents.score, documents.label))
    return RankedDocuments(*(values[order] for values in documents))
