"""How far two models give the same answers."""

from __future__ import annotations

import numpy as np

from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.errors import XmtcError
from xmtc.text.term_index import StringIndex


def compute_overlap(one: Predictions, other: Predictions, k: int) -> float:
    """The share of the best k labels of one that are among the best k of the other, as a mean over documents (You et
    al., AttentionXML, first version, Table 4). As in P@k, a missing prediction is one that is not shared."""
    if one.n_docs != other.n_docs or one.n_docs == 0:
        raise XmtcError(f"Overlap needs answers to the same documents; got {one.n_docs} and {other.n_docs} of them.")
    ours, theirs = one.labels[:, :k], other.labels[:, :k]
    shared = sum(np.count_nonzero((ours == label[:, None]) & (ours != NO_LABEL)) for label in theirs.T)
    return shared / (one.n_docs * k)


def renumber_labels(predictions: Predictions, labels: StringIndex, wanted: StringIndex) -> Predictions:
    """Predictions with the numbers that other labels have for the same names; NO_LABEL for a name they do not have."""
    numbers = np.append(
        wanted.find_packed(labels.text, labels.ends), NO_LABEL
    )  # the last for NO_LABEL itself, which is -1
    return Predictions.from_valid_arrays(numbers[predictions.labels].astype(np.int32), predictions.scores)
