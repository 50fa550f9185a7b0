"""Propensities: probabilities that a true label was recorded. Annotators miss rare labels most often.

Jain, Prabhu, Varma 2016, "Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing
Label Applications", section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

from xmtc.core.hyperparameters import ParameterSet, Presets, param


@dataclass(frozen=True)
class Propensity(ParameterSet):
    """Sigmoid model of label propensities; A and B are fitted once per kind of data."""

    A: float = param(0.55, "Exponent of the label frequency.", low=0.0, high=10.0)
    B: float = param(1.5, "Constant added to every label frequency.", low=1e-6, high=1e6)

    def inverse(self, frequencies: np.ndarray, n_train: int) -> np.ndarray:
        """Return 1 + C (n_l + B)^-A with C = (ln N - 1)(B + 1)^A, for labels of n_l of the N training documents.

        C is at least 0: with fewer than three documents the formula would give propensities above 1.
        """
        C = max(log(n_train) - 1, 0.0) * (self.B + 1) ** self.A
        return 1 + C * (np.asarray(frequencies, dtype=np.float64) + self.B) ** -self.A


# Values of the papers and of the XMC repository: "amazon" is Amazon-670K and Amazon-3M, "wikipedia" is WikiLSHTC and
# Wiki-500K; all other data sets, including AmazonCat-13K and Wiki10-31K, have the default.
PROPENSITIES = {
    "default": Propensity(),
    "amazon": Propensity(A=0.6, B=2.6),
    "wikipedia": Propensity(A=0.5, B=0.4),
}
# for methods that train with propensities
PROPENSITY_PRESETS: Presets = {
    name: {"A": model.A, "B": model.B} for name, model in PROPENSITIES.items() if name != "default"
}
