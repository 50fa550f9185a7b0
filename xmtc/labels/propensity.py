"""How likely a true label is to have been recorded: rare labels are the ones annotators overlook.

Jain, Prabhu, Varma 2016, "Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing
Label Applications", section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

from xmtc.core.hyperparameters import ParameterSet, param


@dataclass(frozen=True)
class Propensity(ParameterSet):
    """The sigmoid model of label propensities with its two constants, fitted once per kind of data."""

    A: float = param(0.55, "how much a label's frequency counts", low=0.0, high=10.0)
    B: float = param(1.5, "what is added to every frequency", low=1e-6, high=1e6)

    def inverse(self, frequencies: np.ndarray, n_train: int) -> np.ndarray:
        """1 + C (n_l + B)^-A with C = (ln N - 1)(B + 1)^A, for labels that n_l of the N training documents carry.

        C is held at 0 or more: with fewer than three documents the formula would give propensities above 1.
        """
        C = max(log(n_train) - 1, 0.0) * (self.B + 1) ** self.A
        return 1 + C * (np.asarray(frequencies, dtype=np.float64) + self.B) ** -self.A


# As the papers and the XMC repository set them: "amazon" is Amazon-670K and Amazon-3M, "wikipedia" is WikiLSHTC and
# Wiki-500K; every other data set, AmazonCat-13K and Wiki10-31K among them, takes the default.
PROPENSITIES = {
    "default": Propensity(),
    "amazon": Propensity(A=0.6, B=2.6),
    "wikipedia": Propensity(A=0.5, B=0.4),
}
