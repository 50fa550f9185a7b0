"""Aho-Corasick automaton over words, which finds all label names in one pass over a text.

Paper: Aho, Corasick: Efficient String Matching: An Aid to Bibliographic Search (CACM 1975), with words instead of
characters.

A node of the trie is a prefix of some names. Nodes are numbered by depth, so that failure links lead to smaller
numbers. One hash table of (node, word) has the children, because a node may be followed by any of a million words.
pyahocorasick takes 69 times and ahocorasick-rs 2.7 times as long to search 5,000 abstracts for the names of YSO
(single thread, without the statistics), and neither saves an automaton that can be memory-mapped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xmtc.core.array_validation import is_offset_array
from xmtc.core.dataset import LabelNames, Tokens
from xmtc.core.numba_support import kernel
from xmtc.features.words import UNKNOWN_ID
from xmtc.storage.form import Form, array

ROOT = 0
EMPTY_SLOT = -1
MIN_TABLE_SLOTS = 16
MAX_LABELS_PER_NAME = 100  # a name of more labels is ignored, because it does not tell them apart


class NameMatches(NamedTuple):
    """Labels whose names occur in documents: one entry per (document, label), in the order of the documents."""

    docs: np.ndarray  # (n,) int32
    labels: np.ndarray  # (n,) int32
    counts: np.ndarray  # (n,) int32, number of occurrences of the label's names
    covered: np.ndarray  # (n,) int32, number of these inside a longer name of any label
    first: np.ndarray  # (n,) int32, number of words before the first occurrence
    lengths: np.ndarray  # (n,) int32, number of words of the longest name that occurs
    shared: np.ndarray  # (n,) int32, number of labels with the same name; the minimum over the names that occur
    preferred: np.ndarray  # (n,) int32, 1 if the preferred name occurs


@dataclass(frozen=True)
class AhoCorasickAutomaton(Form):
    """Trie of label names with failure links."""

    keys: np.ndarray = array(np.int64)  # hash table, its size is a power of two; node << 32 | word, or EMPTY_SLOT
    children: np.ndarray = array(np.int32)  # child node of each key
    fail: np.ndarray = array(np.int32)  # (n_nodes,) failure link: node of the longest proper suffix that is in the trie
    ends: np.ndarray = array(np.int32)  # (n_nodes,) longest suffix that is a name, or the node itself; ROOT if none
    depths: np.ndarray = array(np.int32)  # (n_nodes,) number of words of the prefix
    offsets: np.ndarray = array(np.int64)  # (n_nodes + 1,) node i is a name of labels[offsets[i]:offsets[i + 1]]
    labels: np.ndarray = array(np.int32)
    preferred: np.ndarray = array(np.bool_)  # whether it is the preferred name of the label

    @classmethod
    def from_names(cls, names: LabelNames) -> AhoCorasickAutomaton:
        """Build the automaton of label names."""
        tokens = names.tokens
        assert tokens is not None
        begins, lengths = tokens.offsets[:-1], tokens.lengths
        lengths = np.where(tokens.ids[begins] == UNKNOWN_ID, 0, lengths)  # a name without a word
        max_nodes = int(lengths.sum()) + 1
        keys = np.full(max(MIN_TABLE_SLOTS, 1 << (2 * max_nodes - 1).bit_length()), EMPTY_SLOT, np.int64)
        children = np.zeros(len(keys), np.int32)
        parents, words, depths = (np.zeros(max_nodes, np.int32) for _ in range(3))
        nodes = np.zeros(len(lengths), np.int32)
        n = build_trie(tokens.ids, begins, lengths, keys, children, parents, words, depths, nodes)
        if 4 * n <= len(keys):  # names share prefixes, so a smaller table is enough
            keys, children = shrink_table(keys, children, n)
        offsets, labels, preferred = list_node_labels(nodes, names, n)
        fail, ends = np.zeros(n, np.int32), np.zeros(n, np.int32)
        build_failure_links(keys, children, parents, words, np.diff(offsets) > 0, fail, ends)
        return cls(keys, children, fail, ends, depths[:n].copy(), offsets, labels, preferred)

    def find_longest_names(self, tokens: Tokens) -> tuple[np.ndarray, int]:
        """Return the node of the longest name that ends at each token, or ROOT, and the number of label occurrences."""
        longest = np.empty(len(tokens.ids), np.int32)
        n_hits = search_longest_names(
            self.keys, self.children, self.fail, self.ends, self.offsets, tokens.ids, tokens.offsets, longest
        )
        return longest, n_hits

    def find_matches(self, tokens: Tokens, n_labels: int) -> NameMatches:
        """Return the labels whose names occur in each document, with statistics of the occurrences."""
        longest, n_hits = self.find_longest_names(tokens)
        parts = [np.zeros(n_hits, np.int32) for _ in NameMatches._fields]
        places = np.full(n_labels, EMPTY_SLOT, np.int64)
        names = self.ends, self.fail, self.depths, self.offsets, self.labels, self.preferred
        n = collect_matches(*names, longest, tokens.offsets, places, *parts)
        return NameMatches(*(part[:n].copy() for part in parts))

    def mark_name_tokens(self, tokens: Tokens, label: int) -> np.ndarray:
        """Return a mask of the tokens that are part of a name of a label, shape (n_tokens,)."""
        longest, _ = self.find_longest_names(tokens)
        is_in_name = np.zeros(len(longest), bool)
        for position, node in enumerate(longest.tolist()):
            while node != ROOT:
                if label in self.labels[self.offsets[node] : self.offsets[node + 1]]:
                    is_in_name[position - self.depths[node] + 1 : position + 1] = True
                node = int(self.ends[self.fail[node]])
        return is_in_name

    def check_sizes(self, n_labels: int) -> None:
        """Raise an error if a search would read out of bounds or not terminate."""
        n = len(self.fail)
        numbers = np.arange(n)
        if not n or len(self.ends) != n or len(self.depths) != n or len(self.offsets) != n + 1:
            raise ValueError("fail, ends, depths and offsets of the names do not have the same number of nodes")
        if (self.fail < 0).any() or (self.fail[1:] >= numbers[1:]).any() or self.fail[ROOT] != ROOT:
            raise ValueError("fail has a link that does not lead to an earlier node")
        if (self.ends < 0).any() or (self.ends > numbers).any():
            raise ValueError("ends has a link to a later node")
        if len(self.keys).bit_count() != 1 or len(self.children) != len(self.keys):
            raise ValueError("keys and children do not have the same length, a power of two")
        if (self.keys != EMPTY_SLOT).all():
            raise ValueError("keys has no empty slot")
        if self.children.min() < 0 or self.children.max() >= n:
            raise ValueError("children has a node that does not exist")
        depths = self.depths
        parents = self.keys[self.keys != EMPTY_SLOT] >> 32
        if depths[ROOT] != 0 or (parents >= n).any() or (parents < 0).any():
            raise ValueError("keys has a node that does not exist, or the depth of the root is not 0")
        if (depths[self.children[self.keys != EMPTY_SLOT]] != depths[parents] + 1).any():
            raise ValueError("depths of a child is not that of its parent + 1")
        if depths.min() < 0 or (depths[self.fail] > depths).any() or (depths[self.ends] > depths).any():
            raise ValueError("fail or ends has a link to a deeper node")
        self._check_entries(n_labels)

    def _check_entries(self, n_labels: int) -> None:
        if not is_offset_array(self.offsets, len(self.fail), len(self.labels)):
            raise ValueError("offsets does not ascend from 0 to the number of labels")
        if len(self.preferred) != len(self.labels):
            raise ValueError("preferred and labels do not have the same length")
        if self.labels.min(initial=0) < 0 or self.labels.max(initial=-1) >= n_labels:
            raise ValueError(f"labels of the names are out of range; expected numbers below {n_labels}")


def list_node_labels(nodes: np.ndarray, names: LabelNames, n_nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return offsets, the labels that each node names, and whether the name is the preferred one."""
    order = np.lexsort((~names.preferred, names.labels, nodes))
    order = order[nodes[order] != ROOT]
    owners, labels = nodes[order], names.labels[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (owners[1:] != owners[:-1]) | (labels[1:] != labels[:-1])
    counts = np.bincount(owners[is_first], minlength=n_nodes)
    kept = is_first & (counts[owners] <= MAX_LABELS_PER_NAME)
    offsets = np.concatenate([[0], np.cumsum(np.where(counts <= MAX_LABELS_PER_NAME, counts, 0))]).astype(np.int64)
    return offsets, labels[kept].astype(np.int32), names.preferred[order][kept]


def shrink_table(keys: np.ndarray, children: np.ndarray, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a copy of the hash table with fewer empty slots."""
    new_keys = np.full(max(MIN_TABLE_SLOTS, 1 << (2 * n_nodes - 1).bit_length()), EMPTY_SLOT, np.int64)
    new_children = np.zeros(len(new_keys), np.int32)
    is_used = keys != EMPTY_SLOT
    insert_keys(keys[is_used], children[is_used], new_keys, new_children)
    return new_keys, new_children


@kernel
def find_slot(keys, key):
    """Return the slot of a key in the hash table, or the empty slot where it belongs."""
    mask = np.uint64(len(keys) - 1)
    h = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = (h >> np.uint64(29)) & mask
    while keys[slot] != EMPTY_SLOT and keys[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def encode_key(node, word):
    return np.int64(node) << np.int64(32) | np.int64(word)


@kernel
def insert_keys(keys, children, new_keys, new_children):
    for i in range(len(keys)):
        slot = find_slot(new_keys, keys[i])
        new_keys[slot], new_children[slot] = keys[i], children[i]


@kernel
def build_trie(ids, begins, lengths, keys, children, parents, words, depths, nodes):
    """Add a node for every prefix of a name, by ascending depth, and return the number of nodes.

    `nodes` has ROOT for every name before, and the node of the name after.
    """
    n, depth, has_more_words = np.int64(1), np.int64(0), True
    while has_more_words:
        has_more_words = False
        for i in range(len(nodes)):
            if lengths[i] > depth:
                has_more_words = True
                word = ids[begins[i] + depth]
                key = encode_key(nodes[i], word)
                slot = find_slot(keys, key)
                if keys[slot] == EMPTY_SLOT:
                    keys[slot], children[slot] = key, n
                    parents[n], words[n], depths[n] = nodes[i], word, depth + 1
                    n += 1
                nodes[i] = children[slot]
        depth += 1
    return n


@kernel
def find_next_node(keys, children, fail, node, word):
    """Return the node after reading a word: the child of the node, or of its longest suffix that has such a child."""
    while True:
        slot = find_slot(keys, encode_key(node, word))
        if keys[slot] != EMPTY_SLOT:
            return children[slot]
        if node == ROOT:
            return np.int32(ROOT)
        node = fail[node]


@kernel
def build_failure_links(keys, children, parents, words, is_name, fail, ends):
    """Write the links of every node in the order of depth, because links depend on those of smaller depth."""
    for node in range(1, len(fail)):
        if parents[node] != ROOT:
            fail[node] = find_next_node(keys, children, fail, fail[parents[node]], words[node])
        ends[node] = node if is_name[node] else ends[fail[node]]


@kernel
def search_longest_names(keys, children, fail, ends, offsets, ids, doc_offsets, longest):
    """Write the longest name that ends at each token, and return the number of label occurrences."""
    n_hits = np.int64(0)
    for doc in range(len(doc_offsets) - 1):
        node = np.int32(ROOT)
        for i in range(doc_offsets[doc], doc_offsets[doc + 1]):
            node = np.int32(ROOT) if ids[i] == UNKNOWN_ID else find_next_node(keys, children, fail, node, ids[i])
            longest[i] = ends[node]
            name = ends[node]
            while name != ROOT:
                n_hits += offsets[name + 1] - offsets[name]
                name = ends[fail[name]]
    return n_hits


@kernel
def collect_matches(
    ends, fail, depths, offsets, labels, is_preferred, longest, doc_offsets, places,
    docs, found, counts, covered, first, lengths, shared, preferred,
):  # fmt: skip
    """Write the matches into the last eight arguments and return their number.

    Documents are read backwards, so that `reach`, the leftmost start of the names that end later, is known.
    places[label] is the last entry of the label; it belongs to this document if it is not before `start`.
    """
    n = np.int64(0)
    for doc in range(len(doc_offsets) - 1):
        begin, reach, start = doc_offsets[doc], doc_offsets[doc + 1], n
        for i in range(doc_offsets[doc + 1] - 1, begin - 1, -1):
            name = longest[i]
            left = i + 1 - depths[name]  # start of the longest name that ends here
            while name != ROOT:
                is_covered = reach <= i + 1 - depths[name] or left < i + 1 - depths[name]
                for j in range(offsets[name], offsets[name + 1]):
                    label = labels[j]
                    at = places[label]
                    if at < start:
                        at, n = n, n + 1
                        places[label], docs[at], found[at] = at, doc, label
                        first[at], shared[at] = i - begin, offsets[name + 1] - offsets[name]
                    counts[at] += 1
                    covered[at] += is_covered
                    first[at] = min(first[at], i + 1 - depths[name] - begin)
                    lengths[at] = max(lengths[at], depths[name])
                    shared[at] = min(shared[at], offsets[name + 1] - offsets[name])
                    preferred[at] |= is_preferred[j]
                name = ends[fail[name]]
            reach = min(reach, left)
    return n
