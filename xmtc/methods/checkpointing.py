"""Claims of checkpoint directories, which stop one training from resuming another's pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xmtc.core.dataset import Dataset
    from xmtc.core.method import Method
    from xmtc.core.run import Run


def claim_checkpoint(run: Run, method: Method, *datasets: Dataset, prefix: str = "") -> None:
    """Record method and data in the checkpoint directory; raise an error if it belongs to another training."""
    if run.checkpoint.folder:  # fingerprints read all data, so compute them only if they are needed
        fingerprints = " ".join(data.fingerprint() for data in datasets)
        run.checkpoint.claim(f"{prefix}{method} {fingerprints}")
