"""From scores to tags."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from xmtc.base.predictions import NO_LABEL, Predictions
from xmtc.decisions import Decision, Goal, by_expected_f1, f1_by, kept, learn, one_threshold, parse_goal
from xmtc.errors import XmtcError
from xmtc.evaluation import judge


def predictions(rows: list[list[tuple[int, float]]], k: int = 4) -> Predictions:
    labels, scores = np.full((len(rows), k), NO_LABEL, np.int32), np.zeros((len(rows), k), np.float32)
    for row, tags in enumerate(rows):
        for place, (label, score) in enumerate(tags):
            labels[row, place], scores[row, place] = label, score
    return Predictions(labels, scores)


def planted(n_docs: int = 300, n_labels: int = 20, seed: int = 0):
    """Answers whose scores are probabilities, and the truth drawn by them; label 0 is always told too low."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.4, 2.0, (n_docs, n_labels))
    Y = csr_array((rng.random(p.shape) < p).astype(np.int8))
    told = p.copy()
    told[:, 0] = p[:, 0] / 4
    order = np.argsort(-told, axis=1)
    return judge(Predictions(order.astype(np.int32), np.take_along_axis(told, order, 1).astype(np.float32)), Y), Y


def tags_of(found: Predictions) -> list[list[int]]:
    return [[int(label) for label in row if label != NO_LABEL] for row in found.labels]


def test_labels_that_reach_their_threshold_are_given_best_first():
    found = predictions([[(3, 0.9), (1, 0.6), (0, 0.3)], [(1, 0.4)], []])
    assert tags_of(Decision(Goal("f1"), np.array([0.5], np.float32))(found)) == [[3, 1], [], []]
    own = np.array([0.2, 0.7, 0.5, 0.5], np.float32)
    given = Decision(Goal("f1"), own)(found)
    assert tags_of(given) == [[3, 0], [], []]
    assert given.scores[0, :3].tolist() == pytest.approx([0.9, 0.3, 0.0])


def test_what_is_given_moves_to_the_front():
    found = predictions([[(2, 0.9), (1, 0.8), (0, 0.7)]], k=3)
    assert kept(found, np.array([[False, True, True]])).labels.tolist() == [[1, 0, NO_LABEL]]


def test_expected_f1_by_hand():
    # p = 0.9, 0.5, 0.1: 1.8 / 2.5 = 0.72, 2.8 / 3.5 = 0.8, 3.0 / 4.5 = 0.67; p = 0.2 alone: 0.4 / 1.2
    found = predictions([[(0, 0.9), (1, 0.5), (2, 0.1)], [(5, 0.2)], []])
    assert by_expected_f1(found).sum(axis=1).tolist() == [2, 1, 0]


def test_expected_f1_is_better_than_one_threshold_where_scores_are_probabilities():
    rng = np.random.default_rng(1)
    many = rng.random((600, 1)) < 0.5  # documents with many likely labels, and documents with many unlikely ones
    p = np.where(many, rng.beta(6, 2, (600, 8)), rng.beta(1, 6, (600, 8)))
    order = np.argsort(-p, axis=1)
    found = Predictions(order.astype(np.int32), np.take_along_axis(p, order, 1).astype(np.float32))
    Y = (rng.random(p.shape) < p).astype(np.int8)
    has_labels = Y.any(axis=1)  # as those of a corpus have
    found, Y = Predictions(found.labels[has_labels], found.scores[has_labels]), Y[has_labels]
    judged = judge(found, csr_array(Y))
    best = max(f1_by(Goal("f1"), judged, threshold) for threshold in np.linspace(0.01, 0.99, 99))
    given = judge(Decision(Goal("f1"), np.zeros(0, np.float32))(found), judged.Y)
    assert f1_by(Goal("f1"), given, 0.0) > best


@pytest.mark.parametrize("goal", ["micro-f1", "macro-f1", "f1"])
def test_no_other_threshold_serves_the_goal_better(goal):
    judged, _ = planted()
    found = one_threshold(judged, parse_goal(goal))

    def serves(threshold: float) -> float:
        if goal != "micro-f1":
            return f1_by(parse_goal(goal), judged, threshold)
        given = judged.predictions.scores >= threshold
        return 2 * (given & judged.hits).sum() / (given.sum() + judged.n_true.sum())

    others = np.unique(judged.predictions.scores)[::7]
    assert serves(found) >= max(serves(other) for other in others) - (0 if goal == "micro-f1" else 0.01)
    assert serves(found) > serves(0.5)


def test_precision_recall_and_numbers_of_tags_are_kept():
    judged, _ = planted()
    for wanted in (0.5, 0.8):
        given = judged.predictions.scores >= one_threshold(judged, Goal("precision", wanted))
        assert judged.hits[given].mean() >= wanted
        assert given.any()
        given = judged.predictions.scores >= one_threshold(judged, Goal("recall", wanted))
        assert (judged.hits & given).sum() / judged.n_true.sum() == pytest.approx(wanted, abs=0.01)
    given = judged.predictions.scores >= one_threshold(judged, Goal("tags", 3))
    assert given.sum() / judged.n_docs == pytest.approx(3, abs=0.01)


def test_a_label_with_scores_of_its_own_gets_a_threshold_of_its_own():
    judged, _ = planted(2000)
    shared, own = (learn(judged, Goal("macro-f1"), 20, per_label=each).thresholds for each in (False, True))
    assert own[0] < shared[0] / 2
    assert np.abs(own[1:] - shared[0]).max() < 0.15
    fresh, Y = planted(2000, seed=5)

    def macro(thresholds: np.ndarray) -> float:
        given = Decision(Goal("macro-f1"), thresholds)(fresh.predictions)
        return f1_by(Goal("macro-f1"), judge(given, Y), 0.0)

    assert macro(own) > macro(shared) + 0.005


def test_smoothing_keeps_rare_labels_from_overfitting():
    learnt, _ = planted(30, n_labels=200)
    fresh, Y = planted(2000, n_labels=200, seed=9)

    def macro(more: float) -> float:
        decision = learn(learnt, Goal("macro-f1"), 200, per_label=True, more=more)
        return f1_by(Goal("macro-f1"), judge(decision(fresh.predictions), Y), 0.0)

    assert macro(10.0) > macro(1e-6) + 0.01


def test_labels_in_no_answer_keep_the_threshold_of_all():
    found = predictions([[(0, 0.9), (1, 0.4)], [(0, 0.8), (1, 0.3)]])
    judged = judge(found, csr_array(np.array([[1, 0, 0, 0, 1], [1, 0, 0, 0, 0]])))
    decision = learn(judged, Goal("micro-f1"), 7, per_label=True)
    assert decision.thresholds.shape == (7,)
    assert decision.thresholds[2:].tolist() == pytest.approx([0.8] * 5)


def test_without_a_right_answer_one_half_is_the_threshold():
    judged = judge(predictions([[(0, 0.3)]]), csr_array(np.array([[0, 1, 0, 0]])))
    for goal in ("micro-f1", "f1", "precision=0.9", "tags=2"):
        assert learn(judged, parse_goal(goal), 4).thresholds.tolist() == [0.5]


def test_goals_by_name():
    assert parse_goal("Micro-F1") == Goal("micro-f1")
    assert str(parse_goal("precision=0.90")) == "precision=0.9"
    assert parse_goal("tags=5") == Goal("tags", 5.0)
    for wrong in ("f2", "precision", "f1=0.5", "precision=1.5", "tags=0", "tags=no", "recall=-1", "tags=inf"):
        with pytest.raises(XmtcError, match="is no goal of a decision"):
            parse_goal(wrong)
    judged, _ = planted(20)
    with pytest.raises(XmtcError, match="not for tags=2"):
        learn(judged, parse_goal("tags=2"), 20, per_label=True)
