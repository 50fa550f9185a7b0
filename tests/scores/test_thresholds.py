"""Threshold tuning and label selection."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.evaluation import to_ranked_results
from xmtc.scores import MAX_DECISION_DEPTH, LabelSelector, ThresholdGoal, parse_goal, select_labels, tune_thresholds
from xmtc.scores.threshold_tuning import (
    compute_average_label,
    compute_goal,
    compute_half_f1,
    compute_mean_f1,
    fit_scale,
    fit_shared_threshold,
    sort_predictions,
)
from xmtc.scores.thresholds import select_by_expected_f1


def predictions(rows: list[list[tuple[int, float]]], k: int = 4) -> Predictions:
    labels, scores = np.full((len(rows), k), NO_LABEL, np.int32), np.zeros((len(rows), k), np.float32)
    for row, tags in enumerate(rows):
        for place, (label, score) in enumerate(tags):
            labels[row, place], scores[row, place] = label, score
    return Predictions(labels, scores)


def make_planted_results(n_docs: int = 300, n_labels: int = 20, seed: int = 0):
    """Return results whose scores are probabilities, and true labels drawn from them; label 0 scores too low."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.4, 2.0, (n_docs, n_labels))
    Y = csr_array((rng.random(p.shape) < p).astype(np.int8))
    scores = p.copy()
    scores[:, 0] = p[:, 0] / 4
    order = np.argsort(-scores, axis=1)
    return to_ranked_results(
        Predictions(order.astype(np.int32), np.take_along_axis(scores, order, 1).astype(np.float32)), Y
    ), Y


def labels_of(result: Predictions) -> list[list[int]]:
    return [[int(label) for label in row if label != NO_LABEL] for row in result.labels]


def at(*thresholds: float, by: str = "all") -> LabelSelector:
    return LabelSelector("f1", by, np.array(thresholds, np.float32))


# Label selection


def test_labels_that_reach_their_threshold_are_selected_best_first():
    result = predictions([[(3, 0.9), (1, 0.6), (0, 0.3)], [(1, 0.4)], []])
    assert labels_of(at(0.5)(result)) == [[3, 1], [], []]
    assigned = at(0.2, 0.7, 0.5, 0.5, by="label")(result)
    assert labels_of(assigned) == [[3, 0], [], []]
    assert assigned.scores[0, :3].tolist() == pytest.approx([0.9, 0.3, 0.0])


def test_selected_labels_move_to_the_front():
    result = predictions([[(2, 0.9), (1, 0.8), (0, 0.7)]], k=3)
    assert select_labels(result, np.array([[False, True, True]])).labels.tolist() == [[1, 0, NO_LABEL]]


def test_selection_is_limited_to_the_depth():
    result = predictions([[(3, 0.9), (1, 0.8), (0, 0.7)]])
    assert labels_of(LabelSelector("f1", "all", np.array([0.5], np.float32), depth=2)(result)) == [[3, 1]]


def test_expected_f1_matches_a_worked_example():
    # p = 0.9, 0.5, 0.1: 1.8 / 2.5 = 0.72, 2.8 / 3.5 = 0.8, 3.0 / 4.5 = 0.67; p = 0.2 alone: 0.4 / 1.2
    result = predictions([[(0, 0.9), (1, 0.5), (2, 0.1)], [(5, 0.2)], []])
    assert select_by_expected_f1(result).sum(axis=1).tolist() == [2, 1, 0]
    # a third of it, p = 0.3, 0.167, 0.033: 0.6 / 1.5 = 0.4, 0.933 / 2.5 = 0.37
    assert select_by_expected_f1(result, 1 / 3).sum(axis=1).tolist() == [1, 1, 0]
    assert labels_of(at(by="document")(result)) == [[0, 1], [5], []]


def test_expected_f1_is_better_than_one_threshold_where_scores_are_probabilities():
    rng = np.random.default_rng(1)
    many = rng.random((600, 1)) < 0.5  # half of the documents have likely labels, half unlikely ones
    p = np.where(many, rng.beta(6, 2, (600, 8)), rng.beta(1, 6, (600, 8)))
    order = np.argsort(-p, axis=1)
    Y = (rng.random(p.shape) < p).astype(np.int8)
    result = Predictions(order.astype(np.int32), np.take_along_axis(p, order, 1).astype(np.float32))
    has_labels = Y.any(axis=1)  # like the labels of a corpus
    result, Y = Predictions(result.labels[has_labels], result.scores[has_labels]), Y[has_labels]
    results = to_ranked_results(result, csr_array(Y))
    best = max(compute_mean_f1(ThresholdGoal("f1"), results, threshold) for threshold in np.linspace(0.01, 0.99, 99))
    assert compute_goal(ThresholdGoal("f1"), at(by="document"), results) > best
    assert fit_scale(results) == pytest.approx(1, rel=0.6)
    low = to_ranked_results(Predictions(result.labels, result.scores / 5), csr_array(Y))  # scores five times too low
    assert fit_scale(low) == pytest.approx(5 * fit_scale(results), rel=0.3)
    learnt = tune_thresholds(low, ThresholdGoal("f1"), 8)
    assert learnt.decision.by == "document"
    assert learnt.half_split_scores.keys() == {"all", "document", "label"}
    assert compute_goal(ThresholdGoal("f1"), learnt.decision, low) > best


# Tuning


@pytest.mark.parametrize("goal", ["micro-f1", "macro-f1", "f1"])
def test_shared_threshold_is_optimal(goal):
    results, _ = make_planted_results()
    threshold = fit_shared_threshold(results, parse_goal(goal))

    def goal_at(threshold: float) -> float:
        return compute_goal(parse_goal(goal), at(threshold), results)

    others = np.unique(results.predictions.scores)[::7]
    assert goal_at(threshold) >= max(goal_at(other) for other in others) - (0 if goal == "micro-f1" else 0.01)
    assert goal_at(threshold) > goal_at(0.5)


def test_precision_recall_and_number_of_labels_are_reached():
    results, _ = make_planted_results()
    for expected in (0.5, 0.8):
        assigned = results.predictions.scores >= fit_shared_threshold(results, ThresholdGoal("precision", expected))
        assert results.hits[assigned].mean() >= expected
        assert assigned.any()
        assigned = results.predictions.scores >= fit_shared_threshold(results, ThresholdGoal("recall", expected))
        assert (results.hits & assigned).sum() / results.n_true.sum() == pytest.approx(expected, abs=0.01)
    assigned = results.predictions.scores >= fit_shared_threshold(results, ThresholdGoal("tags", 3))
    assert assigned.sum() / results.n_docs == pytest.approx(3, abs=0.01)


def small():
    """Return results with label 0 true for three documents and ranked first for four, label 1 true for one and ranked
    second for two."""
    result = predictions([[(0, 0.9), (1, 0.6)], [(0, 0.8), (1, 0.2)], [(0, 0.7)], [(0, 0.4)]], k=2)
    return to_ranked_results(result, csr_array(np.array([[1, 0], [1, 1], [0, 0], [1, 0]])))


def test_threshold_of_the_average_label_matches_a_worked_example():
    results = small()
    # scores .9 .8 .7 .6 .4 .2; labels 0 0 0 1 0 1; correct yes yes no no yes yes; four labels are true
    micro = compute_average_label(results, ThresholdGoal("micro-f1"), *sort_predictions(results))
    assert micro.n_correct.tolist() == pytest.approx([1 / 4, 2 / 4, 2 / 4, 2 / 4, 3 / 4, 4 / 4])
    assert micro.n_assigned.tolist() == pytest.approx([1 / 4, 2 / 4, 3 / 4, 4 / 4, 5 / 4, 6 / 4])
    # macro average: predictions of label 0 weigh a third, those of label 1 one; there are two labels
    macro = compute_average_label(results, ThresholdGoal("macro-f1"), *sort_predictions(results))
    assert macro.n_correct.tolist() == pytest.approx([1 / 6, 2 / 6, 2 / 6, 2 / 6, 3 / 6, 6 / 6])
    assert macro.n_assigned.tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6, 6 / 6, 7 / 6, 10 / 6])
    # at 0.4, five labels are predicted and three of them are correct: F1 is 6 / 9
    _, scores, right = sort_predictions(results)
    assert compute_half_f1(results, scores, right, 0.4) == pytest.approx(3 / 9)


def test_thresholds_of_labels_match_a_worked_example():
    # label 0 alone: at .9 2/4, at .8 4/5, at .7 4/6, at .4 6/7; label 1 alone: at .6 0, at .2 2/3
    own = tune_thresholds(small(), ThresholdGoal("macro-f1"), 3, "label", smoothing_counts=(0.0,)).decision.thresholds
    shared = fit_shared_threshold(small(), ThresholdGoal("macro-f1"))
    assert own.tolist() == pytest.approx([0.4, 0.2, shared])
    # with very much smoothing, the threshold is the best one for the average label
    all_alike = tune_thresholds(
        small(), ThresholdGoal("micro-f1"), 3, "label", smoothing_counts=(1e9,)
    ).decision.thresholds
    assert all_alike.tolist() == pytest.approx([fit_shared_threshold(small(), ThresholdGoal("micro-f1"))] * 3)


def test_label_with_other_scores_gets_another_threshold():
    results, _ = make_planted_results(2000)
    shared, own = (tune_thresholds(results, ThresholdGoal("macro-f1"), 20, by).decision for by in ("all", "label"))
    assert own.thresholds[0] < shared.thresholds[0] / 2
    assert np.abs(own.thresholds[1:] - shared.thresholds[0]).max() < 0.15
    fresh, _ = make_planted_results(2000, seed=5)
    for goal in ("macro-f1", "micro-f1", "f1"):
        shared, own = (tune_thresholds(results, ThresholdGoal(goal), 20, by).decision for by in ("all", "label"))
        assert compute_goal(ThresholdGoal(goal), own, fresh) > compute_goal(ThresholdGoal(goal), shared, fresh)
    assert tune_thresholds(results, ThresholdGoal("macro-f1"), 20).decision.by == "label"


def test_smoothing_keeps_rare_labels_from_overfitting():
    learnt, _ = make_planted_results(30, n_labels=200)
    fresh, _ = make_planted_results(2000, n_labels=200, seed=9)
    smoothed, own = (
        tune_thresholds(learnt, ThresholdGoal("macro-f1"), 200, "label", smoothing_counts=more).decision
        for more in ((30.0,), (1e-6,))
    )
    assert (
        compute_goal(ThresholdGoal("macro-f1"), smoothed, fresh)
        > compute_goal(ThresholdGoal("macro-f1"), own, fresh) + 0.01
    )


def test_smoothing_is_selected_by_validation():
    learnt, _ = make_planted_results(60, n_labels=200)
    fresh, _ = make_planted_results(2000, n_labels=200, seed=9)
    chosen = tune_thresholds(learnt, ThresholdGoal("macro-f1"), 200, "label", smoothing_counts=(1e-6, 100.0)).decision
    unsmoothed = tune_thresholds(learnt, ThresholdGoal("macro-f1"), 200, "label", smoothing_counts=(1e-6,)).decision
    assert not np.array_equal(chosen.thresholds, unsmoothed.thresholds)
    assert compute_goal(ThresholdGoal("macro-f1"), chosen, fresh) > compute_goal(
        ThresholdGoal("macro-f1"), unsmoothed, fresh
    )


def test_labels_without_predictions_get_the_shared_threshold():
    result = predictions([[(0, 0.9), (1, 0.4)], [(0, 0.8), (1, 0.3)]])
    results = to_ranked_results(result, csr_array(np.array([[1, 0, 0, 0, 1], [1, 0, 0, 0, 0]])))
    decision = tune_thresholds(results, ThresholdGoal("micro-f1"), 7, "label").decision
    assert decision.thresholds.shape == (7,)
    assert decision.thresholds[2:].tolist() == pytest.approx([0.8] * 5)


def test_threshold_without_correct_predictions_is_one_half():
    results = to_ranked_results(predictions([[(0, 0.3)]]), csr_array(np.array([[0, 1, 0, 0]])))
    for goal in ("micro-f1", "f1", "precision=0.9", "tags=2"):
        assert tune_thresholds(results, parse_goal(goal), 4, "all").decision.thresholds.tolist() == [0.5]


def test_documents_without_predictions():
    results = to_ranked_results(predictions([[], []]), csr_array(np.array([[0, 1, 0, 0], [1, 0, 0, 0]])))
    for goal in ("f1", "micro-f1", "macro-f1", "precision=0.9"):
        assert labels_of(tune_thresholds(results, parse_goal(goal), 4).decision(results.predictions)) == [[], []]


def test_goals_are_parsed():
    assert parse_goal("Micro-F1") == ThresholdGoal("micro-f1")
    assert str(parse_goal("precision=0.90")) == "precision=0.9"
    assert parse_goal("tags=5") == ThresholdGoal("tags", 5.0)
    wrong = ["f2", "precision", "f1=0.5", "precision=1.5", "tags=0", "tags=no", "recall=-1", "tags=inf"]
    for text in [*wrong, f"tags={MAX_DECISION_DEPTH + 1}", ""]:
        with pytest.raises(XmtcError, match="is not a goal for thresholds"):
            parse_goal(text)
    results, _ = make_planted_results(20)
    with pytest.raises(XmtcError, match="Thresholds by label are not possible for tags=2; expected all"):
        tune_thresholds(results, parse_goal("tags=2"), 20, "label")
    with pytest.raises(XmtcError, match="Thresholds by document are not possible for micro-f1; expected all or label"):
        tune_thresholds(results, parse_goal("micro-f1"), 20, "document")
    with pytest.raises(XmtcError, match="'luck' is not a scope of thresholds; expected all or document or label"):
        tune_thresholds(results, parse_goal("f1"), 20, "luck")
