"""BCE-AE: Rank-AE with binary cross-entropy instead of the ranking loss.

The baseline of Wang et al. (NAACL 2019), section 3.3, which shows the effect of the ranking loss on noisy labels. It
equals `rank_ae` with `loss=bce` and the same `balance`; the default balance is smaller, because cross-entropy is a sum
over labels.
"""

from __future__ import annotations

from dataclasses import dataclass

from xmtc.core.hyperparameters import param
from xmtc.methods.autoencoder.rank_ae import BCE, LOSSES, RankAE


@dataclass(frozen=True)
class BCEAE(RankAE):
    """Rank-AE with binary cross-entropy (the baseline of Wang et al., NAACL 2019).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import BCEAE
    >>> texts, labels = ["cats purr softly", "dogs bark loudly"] * 30, [["cat"], ["dog"]] * 30
    >>> method = BCEAE(**BCEAE.quick_parameters)
    >>> Classifier(method, calibrate=False).fit(texts, labels).predict(["dogs bark"], k=1)
    [['dog']]
    """

    balance: float = param(
        0.05,
        "Weight of the reconstruction loss (λ).",
        low=0.0,
        high=1e6,
        search=(1e-3, 1.0),
        log=True,
    )
    loss: str = param(BCE, "Reconstruction loss of D(E(y)).", choices=LOSSES)
