"""Model with merged labels: the probability of a merged label is that of the union of its former labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.methods.ensemble.combination_rules import NOISY_OR, combine_predictions
from xmtc.storage.form import array

MAX_EXTRA_LABELS = 1000  # labels predicted beyond k; former labels with lower ranks count as 0


@dataclass(frozen=True, kw_only=True)
class MergedLabelModel(Model):
    """Model whose labels were merged, renumbered or dropped after training.

    P(merged) = 1 − Π (1 − P(former)), the probability of the union of independent labels.
    """

    model: Model
    targets: np.ndarray = array(np.int32)  # (model.n_labels,), the label that each label became; NO_LABEL if dropped

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        k, n_former = min(k, self.n_labels), self.model.n_labels
        n_extra = min(n_former - len(np.unique(self.targets[self.targets != NO_LABEL])), MAX_EXTRA_LABELS)
        former = self.model.predict(data, min(k + n_extra, n_former), run)
        labels = np.append(self.targets, np.int32(NO_LABEL))[former.labels]
        merged = Predictions.from_valid_arrays(labels, former.scores)
        return combine_predictions([merged], NOISY_OR, self.n_labels, k)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the explanation of the former label with the highest score."""
        former = np.flatnonzero(self.targets == label).tolist()
        if not former:
            view = next(iter(self.views))
            return Explanation(view, np.zeros(0, np.int32), np.zeros(0, np.float32))
        if len(former) > 1:
            best = self.model.predict(document, min(MAX_EXTRA_LABELS, self.model.n_labels), Run(threads=1)).labels[0]
            former = [number for number in best.tolist() if number in former] or former
        return self.model.explain(document, former[0])

    def to_exhaustive(self) -> MergedLabelModel:
        exhaustive = self.model.to_exhaustive()
        return self if exhaustive is self.model else replace(self, model=exhaustive)

    def max_lengths(self) -> dict[str, int]:
        return self.model.max_lengths()

    def check(self) -> None:
        if self.model.views != self.views or len(self.targets) != self.model.n_labels:
            raise ValueError("views or targets differ from those of the model inside")
        if self.targets.min(initial=NO_LABEL) < NO_LABEL or self.targets.max(initial=NO_LABEL) >= self.n_labels:
            raise ValueError(f"targets is out of range; expected numbers below {self.n_labels}")
        self.model.check()
