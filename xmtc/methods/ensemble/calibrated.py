"""A model whose scores are calibrated: what it gives 0.7 is right in 7 of 10 cases. Zadrozny, Elkan: Transforming
Classifier Scores into Accurate Multiclass Probability Estimates (KDD 2002).

Learnt from documents that it was not trained on, by isotonic regression: the curve that fits best among those that
never fall, so that the order of labels stays. Of several models it is the score of all together that is calibrated:
each may be right about itself, and eq. 9 still says 0.9 where 0.6 are right, because they do not err alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.evaluation import Judged, parse_metric
from xmtc.methods.ensemble.merging import merged
from xmtc.methods.ensemble.model import DEPTH, Combination
from xmtc.storage.form import array

CERTAIN = 0.9999  # never quite, so that others can still add to it
JUDGED_BY = parse_metric("nDCG@5")
OWN = 1e-3  # the share of the score itself: where the curve is level, it tells labels apart, unless very close


@dataclass(frozen=True, kw_only=True)
class Calibrated(Model):
    """The labels of a model, with the probabilities that its scores have turned out to mean."""

    model: Model
    scores: np.ndarray = array(np.float64)  # where the curve bends, ascending
    probabilities: np.ndarray = array(np.float64)  # and how high it is there

    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        return on_curve(self.model.predict(data, k, run), self.scores, self.probabilities)

    def explain(self, document: Dataset, label: int) -> Explanation:
        return self.model.explain(document, label)

    def unbounded(self) -> Calibrated:
        wider = self.model.to_exhaustive()
        return self if wider is self.model else replace(self, model=wider)

    def max_lengths(self) -> dict[str, int]:
        return self.model.max_lengths()

    def check(self) -> None:
        curve = np.array([self.scores, self.probabilities])
        if not curve.size or not np.isfinite(curve).all() or (np.diff(curve) < 0).any() or curve[1, 0] < 0:
            raise ValueError("its calibration is no curve that rises")
        if self.model.n_labels != self.n_labels or self.model.views != self.views:
            raise ValueError("its model is not for the same labels and views")
        self.model.check()


def raw(model: Model) -> Model:
    """A model with the scores that its method gives, without a curve, if it has one."""
    return model.model if isinstance(model, Calibrated) else model


def calibrated(model: Model, held_out: Dataset, depth: int, run: Run = Run()) -> Calibrated:
    """By what the model says of documents that it has not learnt from."""
    assert held_out.Y is not None
    return by_answers(model, model.predict(held_out.keep_views(model.views), min(depth, model.n_labels), run), held_out.Y)


def calibrated_together(together: Combination, held_out: Dataset, run: Run = Run()) -> Calibrated:
    """A combination whose score is calibrated; of calibrated models, if these rank better together."""
    Y, depth = held_out.Y, min(DEPTH, together.n_labels)
    assert Y is not None
    found = [model.predict(held_out.keep_views(model.views), depth, run) for model in together.models]
    if calibration_ranks_better(found, Y, together.rule):
        pairs = zip(together.models, found, strict=True)
        together = replace(together, models=tuple(by_answers(model, answers, Y) for model, answers in pairs))
        found = [on_curve(answers, *curve(answers, Y)) for answers in found]
    return by_answers(together, merged(found, together.rule, together.n_labels, depth), Y)


def calibration_ranks_better(found: list[Predictions], Y: csr_array, rule: str) -> bool:
    """Whether models rank better together by what their scores mean, by more than two standard errors. Each half of
    the documents is judged with curves that the other half has drawn."""
    half = np.arange(Y.shape[0]) % 2 == 0
    gains = [judged_gains(found, Y, rule, learnt) for learnt in (half, ~half)] if len(half) > 1 else []
    gain = np.concatenate([*gains, np.zeros(1)])
    return bool(gain.mean() > 2 * gain.std() / np.sqrt(len(gain)))


def judged_gains(found: list[Predictions], Y: csr_array, rule: str, learnt: np.ndarray) -> np.ndarray:
    """(documents not learnt from,) how much better calibrated models rank each of them together."""
    curves = [curve(of_documents(answers, learnt), Y[learnt]) for answers in found]
    plain = [of_documents(answers, ~learnt) for answers in found]
    level = [on_curve(answers, *its_curve) for answers, its_curve in zip(plain, curves, strict=True)]
    before, after = (merged(answers, rule, Y.shape[1], JUDGED_BY.n_predictions) for answers in (plain, level))
    return np.subtract(*(JUDGED_BY.per_document(Judged(answers, Y[~learnt])) for answers in (after, before)))


def of_documents(found: Predictions, which: np.ndarray) -> Predictions:
    return Predictions.from_valid_arrays(found.labels[which], found.scores[which])


def by_answers(model: Model, found: Predictions, Y: csr_array) -> Calibrated:
    """A model with the curve of its answers to held-out documents."""
    return with_curve(model, *curve(found, Y))


def with_curve(model: Model, scores: np.ndarray, probabilities: np.ndarray) -> Calibrated:
    return Calibrated(
        n_labels=model.n_labels,
        views=model.views,
        model=model,
        scores=scores,
        probabilities=probabilities,
    )


def curve(found: Predictions, Y: csr_array, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """How often scores are right: where the curve bends, and how high it is there. `weights` are of the documents."""
    from sklearn.isotonic import IsotonicRegression  # not needed where a model is only used

    right, answered = Judged(found, Y).hits, (found.labels != NO_LABEL) & np.isfinite(found.scores)
    if not answered.any():
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])  # nothing is known: scores stay what they are
    each = None if weights is None else np.broadcast_to(weights[:, None], answered.shape)[answered]
    fitted = IsotonicRegression(y_min=0, y_max=CERTAIN, out_of_bounds="clip").fit(
        found.scores[answered], right[answered], each
    )
    return fitted.X_thresholds_.astype(np.float64), fitted.y_thresholds_.astype(np.float64)


def on_curve(found: Predictions, scores: np.ndarray, probabilities: np.ndarray) -> Predictions:
    height = (1 - OWN) * np.interp(found.scores, scores, probabilities) + OWN * np.clip(found.scores, 0, 1)
    return Predictions.from_valid_arrays(found.labels, np.where(found.labels == NO_LABEL, 0, height).astype(np.float32))
