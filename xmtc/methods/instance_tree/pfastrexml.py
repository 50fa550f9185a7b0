"""PfastreXML: FastXML with labels weighted by inverse propensity, and a classifier for rare labels that re-ranks. Jain,
Prabhu, Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing Label
Applications (KDD 2016).

Differs from the authors' code in: what FastXML differs in. Differs from FastXML in: rare labels count more where
documents are parted (PfastXML), and a label ranks higher the nearer the document is to the centre of the label's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import Presets, param
from xmtc.core.run import Run
from xmtc.core.sparse import normalise_rows
from xmtc.labels.propensity import PROPENSITIES, Propensity
from xmtc.methods.instance_tree.base import InstanceTrees
from xmtc.methods.instance_tree.model import MAX_GAMMA, RerankedForestModel

PRESETS = {name: {"A": given.A, "B": given.B} for name, given in PROPENSITIES.items() if name != "default"}


@dataclass(frozen=True)
class PfastreXML(InstanceTrees):
    """FastXML with inverse propensities and a classifier for rare labels (Jain, Prabhu, Varma, KDD 2016)."""

    presets: ClassVar[Presets] = PRESETS

    preset: str = param("", "propensities of a kind of data; A and B that are given win", choices=("", *PRESETS))
    A: float = param(Propensity.A, "propensity: how much a label's frequency counts", low=0.0, high=10.0)
    B: float = param(Propensity.B, "propensity: what is added to every frequency", low=1e-6, high=1e6)
    alpha: float = param(0.8, "weight of the trees against the labels' centres", low=0.0, high=1.0, search=(0.5, 1.0))
    gamma: float = param(
        30.0,
        "how fast a label fades with the distance from its centre",
        low=0.0,
        high=MAX_GAMMA,
        search=(3, 100),
        log=True,
    )

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> RerankedForestModel:
        assert data.Y is not None
        frequencies = np.bincount(data.Y.indices, minlength=data.n_labels)
        inverse = Propensity(A=self.A, B=self.B).inverse(frequencies, data.n_docs)
        forest = self.grow_forest(data, inverse / inverse[frequencies > 0].max(initial=1), run)
        centres = csr_array(compute_label_centroids(data, frequencies).T)
        return RerankedForestModel(
            n_labels=data.n_labels,
            views=data.sizes,
            forest=forest,
            alpha=self.alpha,
            gamma=self.gamma,
            starts=centres.indptr.astype(np.int64),
            labels=centres.indices.astype(np.int32),
            centres=centres.data,
            squares=np.bincount(centres.indices, centres.data**2, data.n_labels).astype(np.float32),
        )


def compute_label_centroids(data: Dataset, frequencies: np.ndarray) -> csr_array:
    """(n_labels, n_features) float32: the mean of the documents of each label, made of length 1 before."""
    sums = csr_array(csc_array(data.Y).T @ normalise_rows(data.X))
    sums.data /= np.repeat(np.maximum(frequencies, 1), np.diff(sums.indptr)).astype(np.float32)
    return sums
