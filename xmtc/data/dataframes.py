"""Arrays, tensors and data frames of any library. pandas, polars and PyTorch are never imported: their objects are
known by what they can do."""

from __future__ import annotations

from typing import Any

import numpy as np

from xmtc.errors import XmtcError

UNORDERED_TYPES = (dict, set, frozenset)  # which say not whose each of their members is


def is_frame(X: Any) -> bool:
    """Whether X is a data frame, of pandas or of polars."""
    return hasattr(X, "columns") and hasattr(X, "to_numpy")


def as_array(values: Any) -> np.ndarray | None:
    """The array that something is or says it is, such as a tensor or a column of a data frame; None for a list."""
    if hasattr(values, "detach"):  # a tensor, perhaps on a GPU and part of a graph
        values = values.detach().cpu()
    if np.ma.is_masked(values):  # an array without its mask would hold what it hides
        raise XmtcError("Found an array with masked values; fill them, as in X.filled(0), or drop those documents.")
    if isinstance(values, np.ndarray) or hasattr(values, "__array__"):
        return np.asarray(values)
    return None
