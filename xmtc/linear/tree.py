"""Trained label tree in its searchable form: chunks of classifiers that are scored together."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from xmtc.core.array_validation import is_offset_array
from xmtc.core.numba_support import kernel
from xmtc.storage.form import Form, array

SAME_CHUNK = -1  # in `above`: the slot is at the top of its chunk; in `leads`: to other slots of its chunk only
EMPTY_FEATURE_CODE = 0xFFFFFFFF  # cell of a chunk's table without a feature
EMPTY_FEATURE = np.uint32(EMPTY_FEATURE_CODE)
MAX_BYTE_SLOTS = 256  # slots of a chunk whose numbers fit into a byte


@kernel
def get_pair_length(entry_bytes, n_slots):
    """Return the entries of a (slot, weight) pair: two, or with entries of one byte and many slots, two for the slot
    (low byte first) and one for the weight."""
    return 3 if entry_bytes == 1 and n_slots > MAX_BYTE_SLOTS else 2


@dataclass(frozen=True)
class LinearTree(Form):
    """Trained label tree as flat arrays.

    A slot is one classifier: P(slot | slot above it). The slots of a chunk are scored together: all labels of a leaf,
    or all nodes of one or several levels below a node. The weights of a chunk are stored by feature in a hash table
    with linear probing: a feature is in its bucket or in a later cell before the next empty one. Its row of entries
    ends where that of the next cell begins. It holds the weights of all n slots, or (slot, weight) pairs if few slots
    have one (see `get_pair_length`). Weights are integers of 16 or 8 bits times the scale of the chunk.
    """

    slots: np.ndarray = array(np.int64)  # (n_chunks + 1,), chunk c has slots[c]:slots[c + 1]; chunk 0 is the root
    above: np.ndarray = array(np.int32)  # (n_slots,), slot above, numbered within the chunk; or SAME_CHUNK
    leads: np.ndarray = array(np.int32)  # (n_slots,), i: to label i; −1 − c: to chunk c; or SAME_CHUNK
    bias: np.ndarray = array(np.float32)  # (n_slots,)
    scale: np.ndarray = array(np.float32)  # (n_chunks,)
    homes: np.ndarray = array(np.int64)  # (n_chunks,), number of buckets
    places: np.ndarray = array(np.int64)  # (n_chunks + 1,), chunk c has the cells places[c]:places[c + 1] of the table
    table: np.ndarray = array(np.uint32, ndim=2)  # (n_cells, 2), feature or EMPTY_FEATURE, and start of its row
    firsts: np.ndarray = array(np.int64)  # (n_chunks + 1,), chunk c has entries firsts[c]:firsts[c + 1]
    entries: np.ndarray = array(np.int16, np.int8)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def largest_chunk_slots(self) -> int:
        """Number of slots of the largest chunk."""
        return int(np.diff(self.slots).max())

    @property
    def n_chunks(self) -> int:
        return len(self.scale)

    def find_path(self, label: int) -> list[tuple[int, int]]:
        """Return the (chunk, slot) pairs from the label up to the root."""
        slot, path = int(np.flatnonzero(self.leads == label)[0]), []
        while True:
            chunk = int(np.searchsorted(self.slots, slot, side="right")) - 1
            path.append((chunk, slot))
            if self.above[slot] != SAME_CHUNK:
                slot = int(self.slots[chunk] + self.above[slot])
            elif chunk == 0:
                return path
            else:
                slot = int(np.flatnonzero(self.leads == -1 - chunk)[0])

    def slot_weights(self, chunk: int, slot: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the features and weights of one slot."""
        table = self.table[self.places[chunk] : self.places[chunk + 1]].astype(np.int64)
        entries = self.entries[self.firsts[chunk] : self.firsts[chunk + 1]]
        n, number = self.slots[chunk + 1] - self.slots[chunk], slot - self.slots[chunk]
        lengths = np.diff(table[:, 1])
        dense, paired = np.flatnonzero(lengths == n), np.flatnonzero((lengths > 0) & (lengths < n))
        pair_length = get_pair_length.py_func(entries.itemsize, n)
        n_pairs = lengths[paired] // pair_length
        cells = np.repeat(paired, n_pairs)  # cell of each pair
        first = np.repeat(table[paired, 1] - np.cumsum(lengths[paired]) + lengths[paired], n_pairs)
        pairs = first + pair_length * np.arange(len(cells))
        unsigned = entries.view(np.uint16 if entries.itemsize == 2 else np.uint8)
        slots = unsigned[pairs].astype(np.int64)
        if pair_length == 3:
            slots += unsigned[pairs + 1].astype(np.int64) << 8
        is_of_slot = slots == number
        features = np.concatenate([table[dense, 0], table[cells[is_of_slot], 0]])
        weights = np.concatenate([entries[table[dense, 1] + number], entries[pairs[is_of_slot] + pair_length - 1]])
        return features, (weights * self.scale[chunk]).astype(np.float32)

    def check_sizes(self, n_labels: int, n_features: int) -> None:
        """Raise ValueError if a search could read outside the arrays or never end."""
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
    """Return True if every row of a chunk is inside its entries and its pairs name slots of the chunk. A loop, because
    NumPy would need temporary arrays of several times the size."""
    for chunk in range(len(homes)):
        n, size = slots[chunk + 1] - slots[chunk], firsts[chunk + 1] - firsts[chunk]
        begin, last = places[chunk], places[chunk + 1] - 1
        if last < begin or not 1 <= homes[chunk] <= last - begin + 1:
            return False
        if table[begin, 1] != 0 or table[last, 0] != EMPTY_FEATURE or table[last, 1] != size:
            return False
        for cell in range(begin, last):
            feature, start, end = table[cell, 0], np.int64(table[cell, 1]), np.int64(table[cell + 1, 1])
            if not start <= end <= min(start + n, size):
                return False
            if feature >= n_features and not (feature == EMPTY_FEATURE and start == end):
                return False
            if end - start < n and not has_valid_pairs(entries, firsts[chunk] + start, firsts[chunk] + end, n):
                return False
    return True


@kernel
def has_valid_pairs(entries, begin, end, n):
    """Return True if begin:end are (slot, weight) pairs of a chunk with n slots."""
    length = get_pair_length(entries.itemsize, n)
    if (end - begin) % length:
        return False
    for entry in range(begin, end, length):  # noqa: SIM110 (kernels have no generators)
        if read_slot(entries, entry, length) >= n:
            return False
    return True


@kernel
def read_slot(entries, entry, pair_length):
    """Return the slot of the pair that begins at an entry."""
    if entries.itemsize == 2:
        return np.int64(np.uint16(entries[entry]))
    low = np.int64(np.uint8(entries[entry]))
    return low if pair_length == 2 else low | np.int64(np.uint8(entries[entry + 1])) << 8
