"""C2AE: a canonical-correlated autoencoder of labels.

Yeh, Wu, Ko, Wang: Learning Deep Latent Space for Multi-Label Classification (AAAI 2017).

F_x maps features to the latent space with two hidden layers; F_e and F_d map labels to the latent space and back with
one hidden layer each; activations are leaky ReLU. Training minimises Φ + α Γ.

Φ is the distance of F_x(X) and F_e(Y), with the constraint of canonical correlation analysis F_x F_xᵀ = F_e F_eᵀ = I
as a penalty: ‖F_x − F_e‖² + λ (‖F_x F_xᵀ − I‖² + ‖F_e F_eᵀ − I‖²), here over the documents of a batch, with columns
divided by the square root of the batch size.

Γ is the mean over documents of 1 / (|Y¹| |Y⁰|) Σ_p Σ_n exp(−(y_p − y_n)). It factorises into
(Σ_n exp y_n) (Σ_p exp −y_p), so it takes O(L) time, not O(|Y¹| |Y⁰|).

Differences from the paper:

- Training uses Adam with a cosine schedule.
- `most_latent` bounds the size of the latent space, which is 0.8 L.
- Gradients are clipped relative to recent norms: the exponential is unbounded, and one batch could undo an epoch.
- The epoch with the best nDCG@5 on held-out documents is kept; the paper selects α and λ in this way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.methods.autoencoder.base import LabelAutoencoder
from xmtc.methods.autoencoder.model import LAYERS, AutoencoderDesign
from xmtc.methods.autoencoder.network import Objective
from xmtc.nn.output_losses import ExponentialPairLoss
from xmtc.nn.training import HELD_OUT_HELP


@dataclass(frozen=True)
class C2AE(LabelAutoencoder):
    """Canonical-correlated autoencoder of labels (Yeh et al., AAAI 2017).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import C2AE
    >>> texts, labels = ["cats purr softly", "dogs bark loudly"] * 30, [["cat"], ["dog"]] * 30
    >>> method = C2AE(**C2AE.quick_parameters)
    >>> Classifier(method, calibrate=False).fit(texts, labels).predict(["dogs bark"], k=1)
    [['dog']]
    """

    quick_parameters: ClassVar[dict[str, Any]] = {"layer": 256, "batch": 32, "epochs": 25, "rate": 0.003}

    has_gradient_clipping: ClassVar[bool] = True

    held_out: float = param(0.1, HELD_OUT_HELP, low=0.0, high=0.9)
    alpha: float = param(
        2.0, "Weight of the reconstruction loss (α).", low=1e-6, high=1e6, search=(0.1, 10.0), log=True
    )
    orthogonality: float = param(
        0.5, "Weight of the orthogonality constraint (λ).", low=0.0, high=1e6, search=(1e-3, 1.0), log=True
    )
    latent: float = param(0.8, "Size of the latent space per label.", low=1e-6, high=1e6)
    most_latent: int = param(512, "Maximum size of the latent space.", low=1)
    layer: int = param(512, "Width of the hidden layers.", low=1)

    def build_design(self, data: Dataset, vectors: np.ndarray | None) -> AutoencoderDesign:
        return AutoencoderDesign(
            input=LAYERS,
            n_inputs=data.bag.size,
            n_labels=data.n_labels,
            hidden=max(1, min(self.most_latent, round(self.latent * data.n_labels))),
            layer=self.layer,
        )

    def build_objective(self, data: Dataset) -> Objective:
        distance = partial(canonical_correlation_loss, orthogonality=self.orthogonality)
        pairs = ExponentialPairLoss(data.n_labels)
        return Objective(
            distance=distance,
            distance_weight=1.0,
            reconstruction=pairs,
            balance=self.alpha,
            prediction=pairs,
        )


def canonical_correlation_loss(x_h: Tensor, y_h: Tensor, orthogonality: float) -> Tensor:
    """Return Φ."""
    distance = (x_h - y_h).square().sum() / len(x_h)
    return distance + orthogonality * (orthogonality_penalty(x_h) + orthogonality_penalty(y_h))


def orthogonality_penalty(h: Tensor) -> Tensor:
    """Return ‖hᵀh / n − I‖² = ‖hhᵀ / n‖² − 2 tr(hhᵀ) / n + d, from the smaller of the two products."""
    n, d = h.shape
    products = (h @ h.T if n < d else h.T @ h) / n
    return products.square().sum() - 2 * products.diagonal().sum() + d
