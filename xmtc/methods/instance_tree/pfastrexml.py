"""PfastreXML: FastXML with propensity-weighted labels and a re-ranking for rare labels.

Paper: Jain, Prabhu, Varma: Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing
Label Applications (KDD 2016).

Idea: splits optimise the propensity-scored nDCG, in which a label l counts 1/p_l, so rare labels have more weight
(PfastXML). The final score P^α B^(1−α) combines the score P of the forest with a tail classifier
B = 1 / (1 + exp(γ/2 ‖x − μ_l‖²)), which is high near the centroid μ_l of the label's documents.

Differs from the authors' code where FastXML does, and by default in two points that `preset=authors` sets: splits
maximise the nDCG instead of the DCG, and leaves store label frequencies without inverse propensities. The authors'
code appends a feature 1 to the documents before it scales them to unit length, and has γ in place of γ/2. The two
cancel each other out where documents had unit length before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import Presets, param
from xmtc.core.run import Run
from xmtc.core.sparse import normalise_rows
from xmtc.labels.propensity import PROPENSITY_PRESETS, Propensity
from xmtc.methods.instance_tree.base import InstanceTrees
from xmtc.methods.instance_tree.model import MAX_GAMMA, RerankedForestModel

OBJECTIVES = NDCG, DCG = "ndcg", "dcg"
AUTHORS: dict[str, Any] = {"objective": DCG, "weighted_leaves": True}
PRESETS: Presets = {
    "authors": AUTHORS,
    **PROPENSITY_PRESETS,
    **{f"{name}-authors": values | AUTHORS for name, values in PROPENSITY_PRESETS.items()},
}


@dataclass(frozen=True)
class PfastreXML(InstanceTrees):
    """FastXML with inverse propensities and a classifier for rare labels (Jain, Prabhu, Varma, KDD 2016).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import PfastreXML
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier(PfastreXML(n_trees=10)).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    presets: ClassVar[Presets] = PRESETS

    preset: str = param(
        "", "Propensity model of a kind of data, settings of the authors' code, or both.", choices=("", *PRESETS)
    )
    objective: str = param(
        NDCG, "Measure that splits maximise: nDCG as in the paper, or DCG as in the authors' code.", choices=OBJECTIVES
    )
    weighted_leaves: bool = param(False, "Inverse propensities as weights of the labels in the leaves.")
    A: float = param(Propensity.A, "Parameter A of the propensity model, the weight of frequency.", low=0.0, high=10.0)
    B: float = param(Propensity.B, "Parameter B of the propensity model, added to every frequency.", low=1e-6, high=1e6)
    alpha: float = param(
        0.8, "Weight α of the trees against the tail classifier.", low=0.0, high=1.0, search=(0.5, 1.0)
    )
    gamma: float = param(
        30.0,
        "Parameter γ of the tail classifier, the decay of its score with the distance from the centroid.",
        low=0.0,
        high=MAX_GAMMA,
        search=(3, 100),
        log=True,
    )

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> RerankedForestModel:
        assert data.Y is not None
        frequencies = np.bincount(data.Y.indices, minlength=data.n_labels)
        inverse = Propensity(A=self.A, B=self.B).inverse(frequencies, data.n_docs)
        weights = inverse / inverse[frequencies > 0].max(initial=1)
        leaf_weights = weights if self.weighted_leaves else np.ones(data.n_labels)
        forest = self.grow_forest(data, weights, leaf_weights, is_normalised=self.objective == NDCG, run=run)
        centroids = csr_array(compute_label_centroids(data, frequencies).T)
        return RerankedForestModel(
            n_labels=data.n_labels,
            views=data.sizes,
            forest=forest,
            alpha=self.alpha,
            gamma=self.gamma,
            starts=centroids.indptr.astype(np.int64),
            labels=centroids.indices.astype(np.int32),
            centres=centroids.data,
            squares=np.bincount(centroids.indices, centroids.data**2, data.n_labels).astype(np.float32),
        )


def compute_label_centroids(data: Dataset, frequencies: np.ndarray) -> csr_array:
    """Return the mean μ_l of the unit-length documents of each label, shape (n_labels, n_features)."""
    sums = csr_array(csc_array(data.Y).T @ normalise_rows(data.X))
    sums.data /= np.repeat(np.maximum(frequencies, 1), np.diff(sums.indptr)).astype(np.float32)
    return sums
