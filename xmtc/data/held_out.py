"""Documents that no model learns from: they decide when a training ends, or what its scores mean."""

from __future__ import annotations

import numpy as np

from xmtc.base.dataset import Dataset
from xmtc.errors import XmtcError

SHARE, MOST = 0.05, 4000  # documents held out where nothing else is said: one in 20, at most 4,000


def split(
    data: Dataset, valid: Dataset | None, seed: int, share: float = SHARE, most: int = MOST
) -> tuple[Dataset, Dataset]:
    """Hold documents out of training, unless such are given."""
    assert data.Y is not None
    if valid is not None:
        if valid.Y is None or not valid.Y.nnz:
            raise XmtcError(
                "No validation document has a label that training documents have, so that nothing can be told from "
                "them; check their labels field, or leave them out."
            )
        return data, valid
    labelled = np.flatnonzero(np.diff(data.Y.indptr))
    if len(labelled) < 2:
        raise XmtcError(
            f"Found {len(labelled)} documents with labels; expected two, of which one is held out of training."
        )
    order = np.random.default_rng(seed).permutation(labelled)
    held_out = np.sort(order[: min(most, max(1, int(len(labelled) * share)))])
    return data.rows(np.setdiff1d(np.arange(data.n_docs), held_out)), data.rows(held_out)
