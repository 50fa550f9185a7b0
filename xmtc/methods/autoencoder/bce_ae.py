"""BCE-AE: Rank-AE with binary cross-entropy in place of the ranking loss. The baseline of Wang et al. (NAACL 2019),
section 3.3, there to tell what the ranking loss does for noisy labels. `rank_ae` with `loss=bce` and the same
`balance` is the same: cross-entropy is a sum over labels, and weighs more."""

from __future__ import annotations

from dataclasses import dataclass

from xmtc.core.hyperparameters import param
from xmtc.methods.autoencoder.rank_ae import BCE, LOSSES, RankAE


@dataclass(frozen=True)
class BCEAE(RankAE):
    """Rank-AE with binary cross-entropy (the baseline of Wang et al., NAACL 2019)."""

    balance: float = param(
        0.05,
        "weight of that loss (λ) beside the distance of F(x) and E(y)",
        low=0.0,
        high=1e6,
        search=(1e-3, 1.0),
        log=True,
    )
    loss: str = param(BCE, "loss of labels decoded from labels, D(E(y)): ranking, or bce", choices=LOSSES)
