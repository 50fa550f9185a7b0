"""Slots of a trained label tree as one sparse matrix, and their reassembly after some of them were trained again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import kernel
from xmtc.core.predictions import NO_LABEL
from xmtc.core.sparse import narrow_indptr
from xmtc.labels.tree import as_binary
from xmtc.linear.packing import Chunk, ChunkPacker, PackedWeights, group_by_feature
from xmtc.linear.tree import SAME_CHUNK, LinearTree

ROOT = -1  # parent of the slots below the root
NEW_SLOT = -1  # origin of a slot that the tree did not have


@dataclass(frozen=True)
class TreeSlots:
    """Classifiers of a label tree, chunk by chunk."""

    chunks: np.ndarray  # (n_slots,), ascending
    parents: np.ndarray  # (n_slots,), slot above, or ROOT
    labels: np.ndarray  # (n_slots,), label of a slot, or NO_LABEL for an inner slot
    origins: np.ndarray  # (n_slots,), slot of the tree before, or NEW_SLOT

    @classmethod
    def from_tree(cls, tree: LinearTree) -> TreeSlots:
        chunks = np.repeat(np.arange(tree.n_chunks), np.diff(tree.slots))
        owners = np.full(tree.n_chunks, ROOT, np.int64)
        leads = tree.leads.astype(np.int64)
        is_owner = leads < SAME_CHUNK
        owners[-1 - leads[is_owner]] = np.flatnonzero(is_owner)
        parents = np.where(tree.above == SAME_CHUNK, owners[chunks], tree.slots[chunks] + tree.above)
        return cls(chunks, parents, np.where(leads >= 0, leads, NO_LABEL), np.arange(len(leads)))

    @property
    def n_slots(self) -> int:
        return len(self.chunks)

    def with_labels(self, targets: np.ndarray, new_labels: np.ndarray, new_chunks: np.ndarray) -> TreeSlots:
        """Return the slots with renumbered labels, without removed ones, and with new labels at the end of chunks."""
        is_label = self.labels != NO_LABEL
        labels = np.where(is_label, targets[self.labels], NO_LABEL)
        kept = np.flatnonzero(~is_label | (labels != NO_LABEL))
        chunks = np.concatenate([self.chunks[kept], new_chunks])
        order = np.argsort(chunks, kind="stable")
        numbers = np.full(self.n_slots + 1, ROOT, np.int64)  # new number of each slot; the last entry is for ROOT
        origins = np.concatenate([kept, np.full(len(new_labels), NEW_SLOT)])[order]
        numbers[origins[origins != NEW_SLOT]] = np.flatnonzero(origins != NEW_SLOT)
        parent_of_chunk = np.full(int(chunks.max()) + 1, ROOT, np.int64)
        parent_of_chunk[self.chunks] = self.parents  # of leaves, whose slots have one parent
        parents = np.concatenate([self.parents[kept], parent_of_chunk[new_chunks]])[order]
        return TreeSlots(chunks[order], numbers[parents], np.concatenate([labels[kept], new_labels])[order], origins)

    def memberships(self, Y: csr_array) -> csr_array:
        """Return, for documents with labels Y, which slots they belong to, shape (n_docs, n_slots)."""
        slots = np.flatnonzero(self.labels != NO_LABEL)
        ones, shape = np.ones(len(slots), np.float32), (Y.shape[1], self.n_slots)
        level = as_binary(csr_array(Y @ csr_array((ones, (self.labels[slots], slots)), shape=shape)))
        total = level
        while level.nnz:
            inner = level.tocoo()
            parents = self.parents[inner.coords[1]]
            rows, parents = inner.coords[0][parents != ROOT], parents[parents != ROOT]
            level = as_binary(csr_array((np.ones(len(rows), np.float32), (rows, parents)), shape=level.shape))
            total = csr_array(total + level)
        return as_binary(total)

    def scored(self, members: csr_array) -> csr_array:
        """Return which slots are scored for each document: those whose parent it belongs to, and those below the root
        if it belongs to any."""
        numbers = np.flatnonzero(self.parents != ROOT)
        shape = self.n_slots, self.n_slots
        below = csr_array((np.ones(len(numbers), np.float32), (self.parents[numbers], numbers)), shape=shape)
        top = np.flatnonzero(self.parents == ROOT)
        rows = np.flatnonzero(np.diff(members.indptr))
        cells = np.repeat(rows, len(top)), np.tile(top, len(rows))
        roots = csr_array((np.ones(len(cells[0]), np.float32), cells), shape=members.shape)
        return as_binary(csr_array(members @ below + roots))


def unpack_weights(tree: LinearTree, n_features: int, columns: np.ndarray) -> csr_array:
    """Return the weights of all slots, shape (n_slots, n_features), with the new number of each feature."""
    starts = tree.table[:, 1].astype(np.int64)
    lengths = np.append(np.diff(starts), 0)
    lengths[tree.places[1:] - 1] = 0  # the last cell of a chunk has no row
    cells = np.flatnonzero(lengths)
    cells = cells[np.argsort(columns[tree.table[cells, 0]], kind="stable")]  # by feature, then by chunk
    lengths, chunks = lengths[cells], np.searchsorted(tree.places, cells, side="right") - 1
    is_dense = lengths == np.diff(tree.slots)[chunks]
    begins, slots = tree.firsts[chunks] + starts[cells], tree.slots[chunks]
    features, scales = columns[tree.table[cells, 0]].astype(np.int32), tree.scale[chunks]
    counts = np.zeros(len(tree.bias), np.int64)
    count_entries(tree.entries, begins, lengths, is_dense, slots, counts)
    ends = np.concatenate([[0], np.cumsum(counts)])
    indices, values = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.float32)
    copy_entries(tree.entries, begins, lengths, is_dense, slots, features, scales, ends[:-1].copy(), indices, values)
    return csr_array((values, indices, narrow_indptr(ends)), shape=(len(tree.bias), n_features))


@kernel
def count_entries(entries, begins, lengths, is_dense, slots, counts):
    """Add the number of nonzero weights of each slot to `counts`."""
    for row in range(len(begins)):
        begin, slot = begins[row], slots[row]
        if is_dense[row]:
            for i in range(lengths[row]):
                counts[slot + i] += entries[begin + i] != 0
        else:
            for i in range(0, lengths[row], 2):
                counts[slot + entries[begin + i]] += entries[begin + i + 1] != 0


@kernel
def copy_entries(entries, begins, lengths, is_dense, slots, features, scales, cursors, indices, values):
    """Write the features and values of nonzero weights of each slot, from its cursor on."""
    for row in range(len(begins)):
        begin, step = begins[row], 1 if is_dense[row] else 2
        for i in range(0, lengths[row], step):
            slot = slots[row] + (i if step == 1 else np.int64(entries[begin + i]))
            weight = entries[begin + i + step - 1]
            if weight != 0:
                indices[cursors[slot]] = features[row]
                values[cursors[slot]] = weight * scales[row]
                cursors[slot] += 1


def replace_weights(
    tree: LinearTree,
    slots: TreeSlots,
    weights: csr_array,
    bias: np.ndarray,
    is_trained: np.ndarray,
    has_same_features: bool,
) -> LinearTree:
    """Return a tree with new weights of some slots; chunks without a change are copied.

    Parameters
    ----------
    tree : LinearTree
        Tree before.
    slots : TreeSlots
        Slots of the new tree.
    weights : csr_array of shape (n_slots, n_features)
        Weights of the new slots; only those of changed chunks are read.
    bias : ndarray of shape (n_slots,)
        Biases of the new slots.
    is_trained : ndarray of bool, shape (n_slots,)
        Whether the weights of a slot have changed.
    has_same_features : bool
        Whether the features have the numbers of before.
    """
    packer, ends = ChunkPacker(), np.searchsorted(slots.chunks, np.arange(tree.n_chunks + 1))
    for chunk in range(tree.n_chunks):
        own = slice(int(ends[chunk]), int(ends[chunk + 1]))
        before = slice(int(tree.slots[chunk]), int(tree.slots[chunk + 1]))
        labels = slots.labels[own]
        if labels[0] != NO_LABEL:
            above, leads = np.full(len(labels), SAME_CHUNK), labels
        else:
            above, leads = tree.above[before], tree.leads[before]
        is_same = np.array_equal(slots.origins[own], np.arange(before.start, before.stop))
        if has_same_features and is_same and not is_trained[own].any():
            packed = PackedWeights(
                tree.bias[before],
                tree.scale[chunk],
                int(tree.homes[chunk]),
                tree.table[tree.places[chunk] : tree.places[chunk + 1]],
                tree.entries[tree.firsts[chunk] : tree.firsts[chunk + 1]],
            )
            packer.add(Chunk(packed, above, leads))
        else:
            rows = weights[own].tocoo()
            grouped = group_by_feature(rows.coords[1], rows.coords[0], rows.data, bias[own])
            packer.add(Chunk(grouped, above, leads))
    return packer.to_tree()
