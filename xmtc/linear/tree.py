"""The trained form of a label tree: chunks of classifiers that are scored together."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from xmtc.core.array_validation import is_offset_array
from xmtc.core.numba_support import kernel
from xmtc.storage.form import Form, array

SAME_CHUNK = -1  # a slot that leads to nothing but other slots of its chunk
EMPTY_FEATURE_CODE = 0xFFFFFFFF  # a place of a chunk's table without a feature
EMPTY_FEATURE = np.uint32(EMPTY_FEATURE_CODE)


@dataclass(frozen=True)
class LinearTree(Form):
    """A slot is one classifier: P(slot | the slot above it). The slots of a chunk are scored together: all labels under
    one leaf, or all the nodes of one or several levels below a node. A chunk's weights lie together, feature by
    feature, in a hash table: a feature is looked for from its home on, place after place, until an empty one. Its row
    of entries ends where the next place's begins, and holds the weights of all n slots, or, where only few have
    one, pairs (slot, weight). Weights are 16-bit numbers times the chunk's scale."""

    slots: np.ndarray = array(np.int64)  # (n_chunks + 1,), chunk c has slots[c]:slots[c + 1]; chunk 0 is the root's
    above: np.ndarray = array(np.int32)  # (n_slots,), the slot above, numbered within the chunk; HERE: the chunk
    leads: np.ndarray = array(np.int32)  # (n_slots,), to label i: i; to chunk c: −1 − c; or HERE
    bias: np.ndarray = array(np.float32)  # (n_slots,)
    scale: np.ndarray = array(np.float32)  # (n_chunks,)
    homes: np.ndarray = array(np.int64)  # (n_chunks,), places that are homes; what finds its home taken comes after
    places: np.ndarray = array(np.int64)  # (n_chunks + 1,), chunk c has places[c]:places[c + 1] of the table
    table: np.ndarray = array(np.uint32, ndim=2)  # (n_places, 2), a feature or EMPTY, and its row's begin
    firsts: np.ndarray = array(np.int64)  # (n_chunks + 1,), chunk c has entries firsts[c]:firsts[c + 1]
    entries: np.ndarray = array(np.int16)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def largest_chunk_slots(self) -> int:
        """Slots of the largest chunk."""
        return int(np.diff(self.slots).max())

    @property
    def n_chunks(self) -> int:
        return len(self.scale)

    def find_path(self, label: int) -> list[tuple[int, int]]:
        """The (chunk, slot) pairs from the label up to the root."""
        slot, steps = int(np.flatnonzero(self.leads == label)[0]), []
        while True:
            chunk = int(np.searchsorted(self.slots, slot, side="right")) - 1
            steps.append((chunk, slot))
            if self.above[slot] != SAME_CHUNK:
                slot = int(self.slots[chunk] + self.above[slot])
            elif chunk == 0:
                return steps
            else:
                slot = int(np.flatnonzero(self.leads == -1 - chunk)[0])

    def slot_weights(self, chunk: int, slot: int) -> tuple[np.ndarray, np.ndarray]:
        """The features and weights of one slot's classifier."""
        table = self.table[self.places[chunk] : self.places[chunk + 1]].astype(np.int64)
        entries = self.entries[self.firsts[chunk] : self.firsts[chunk + 1]]
        n, number = self.slots[chunk + 1] - self.slots[chunk], slot - self.slots[chunk]
        lengths = np.diff(table[:, 1])
        full, paired = np.flatnonzero(lengths == n), np.flatnonzero((lengths > 0) & (lengths < n))
        owner = np.repeat(paired, lengths[paired] // 2)
        first = np.repeat(table[paired, 1] - np.cumsum(lengths[paired]) + lengths[paired], lengths[paired] // 2)
        pairs = first + 2 * np.arange(len(owner))
        mine = entries[pairs] == number
        features = np.concatenate([table[full, 0], table[owner[mine], 0]])
        weights = np.concatenate([entries[table[full, 1] + number], entries[pairs[mine] + 1]])
        return features, (weights * self.scale[chunk]).astype(np.float32)

    def check_sizes(self, n_labels: int, n_features: int) -> None:
        """Refuse arrays that would lead a search out of its memory, or round in circles."""
        rows = self.slots, self.homes, self.places, self.table, self.firsts, self.entries
        if not (self._has_valid_shapes() and self._has_valid_slots(n_labels) and has_valid_rows(*rows, n_features)):
            raise ValueError("the arrays of a label tree do not fit together")

    def _has_valid_shapes(self) -> bool:
        return (
            all(array.ndim == (2 if array is self.table else 1) for array in self.arrays)
            and self.n_chunks >= 1
            and is_offset_array(self.slots, self.n_chunks, len(self.bias))
            and is_offset_array(self.places, self.n_chunks, len(self.table))
            and is_offset_array(self.firsts, self.n_chunks, len(self.entries))
            and len(self.above) == len(self.leads) == len(self.bias)
            and len(self.homes) == self.n_chunks
            and self.table.shape[1] == 2
        )

    def _has_valid_slots(self, n_labels: int) -> bool:
        sizes = np.diff(self.slots)
        chunk = np.repeat(np.arange(self.n_chunks), sizes)
        number = np.arange(len(self.bias)) - self.slots[chunk]
        target = -1 - self.leads.astype(np.int64)
        if sizes.min() < 1:
            return False
        holds_labels = (self.leads[self.slots[:-1]] >= 0)[chunk]
        return bool(
            ((self.leads >= 0) == holds_labels).all()
            and (self.above[holds_labels] == SAME_CHUNK).all()
            and ((self.above >= SAME_CHUNK) & (self.above < number)).all()
            and np.array_equal(np.sort(self.leads[self.leads >= 0]), np.arange(n_labels))
            and np.array_equal(np.sort(target[target > 0]), np.arange(1, self.n_chunks))
            and (target[target > 0] > chunk[target > 0]).all()
        )


@kernel
def has_valid_rows(slots, homes, places, table, firsts, entries, n_features):
    """Whether a search finds the rows of every chunk inside of its own entries, and in pairs only slots of the chunk.
    Row by row, because what NumPy would need beside the arrays is several times as large as they are."""
    for chunk in range(len(homes)):
        n, size = slots[chunk + 1] - slots[chunk], firsts[chunk + 1] - firsts[chunk]
        begin, last = places[chunk], places[chunk + 1] - 1
        if last < begin or not 1 <= homes[chunk] <= last - begin + 1:
            return False
        if table[begin, 1] != 0 or table[last, 0] != EMPTY_FEATURE or table[last, 1] != size:
            return False
        for place in range(begin, last):
            feature, start, end = table[place, 0], np.int64(table[place, 1]), np.int64(table[place + 1, 1])
            if not start <= end <= min(start + n, size):
                return False
            if feature >= n_features and not (feature == EMPTY_FEATURE and start == end):
                return False
            if end - start < n and not has_valid_pairs(entries, firsts[chunk] + start, firsts[chunk] + end, n):
                return False
    return True


@kernel
def has_valid_pairs(entries, begin, end, n):
    """Whether begin:end are pairs (slot, weight) of a chunk with n slots."""
    for entry in range(begin, end, 2):
        if not 0 <= entries[entry] < n:
            return False
    return (end - begin) % 2 == 0
