"""All names found in one pass over a text. Aho, Corasick: Efficient String Matching: An Aid to Bibliographic Search
(CACM 1975), with words in the place of letters.

A node of the trie stands for the beginning of some names. Nodes are numbered by their depth, so that links lead to
smaller numbers; children are found in one hash table of (node, word), because a node may have any of a million words
after it."""

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
EMPTY_SLOT = -1  # an empty slot of the hash table
MIN_TABLE_SLOTS = 16  # slots
MAX_LABELS_PER_NAME = 100  # labels; a name that more of them have says nothing, and would be found for all of them


class NameMatches(NamedTuple):
    """Labels whose names occur in documents; each (document, label) once, documents in their order."""

    docs: np.ndarray  # (n,) int32
    labels: np.ndarray  # (n,) int32
    counts: np.ndarray  # (n,) int32, how often one of the label's names occurs
    covered: np.ndarray  # (n,) int32, how many of these are within a longer name of any label
    first: np.ndarray  # (n,) int32, words before the first of them
    lengths: np.ndarray  # (n,) int32, words of the longest of its names that occurs
    shared: np.ndarray  # (n,) int32, labels that have the same name; of several names, the fewest
    preferred: np.ndarray  # (n,) int32, 1 if its preferred name occurs

    def at(self, index: np.ndarray) -> NameMatches:
        return NameMatches(*(part[index] for part in self))


@dataclass(frozen=True)
class AhoCorasickAutomaton(Form):
    keys: np.ndarray = array(np.int64)  # a power of two long; node << 32 | word, or FREE
    children: np.ndarray = array(np.int32)  # of each key
    fail: np.ndarray = array(np.int32)  # (n_nodes,) the longest end of what a node stands for that is a node itself
    ends: np.ndarray = array(np.int32)  # (n_nodes,) the longest one that is a name, the node itself included; or ROOT
    depths: np.ndarray = array(np.int32)  # (n_nodes,) words of what it stands for
    offsets: np.ndarray = array(np.int64)  # (n_nodes + 1,) the labels that are called so: offsets[i]:offsets[i + 1]
    labels: np.ndarray = array(np.int32)
    preferred: np.ndarray = array(np.bool_)  # whether it is the preferred name of that label

    @classmethod
    def from_names(cls, names: LabelNames) -> AhoCorasickAutomaton:
        tokens = names.tokens
        begins, lengths = tokens.offsets[:-1], tokens.lengths
        lengths = np.where(tokens.ids[begins] == UNKNOWN_ID, 0, lengths)  # a name without a word
        n_most = int(lengths.sum()) + 1
        keys = np.full(max(MIN_TABLE_SLOTS, 1 << (2 * n_most - 1).bit_length()), EMPTY_SLOT, np.int64)
        children = np.zeros(len(keys), np.int32)
        parents, words, depths = (np.zeros(n_most, np.int32) for _ in range(3))
        nodes = np.zeros(len(lengths), np.int32)
        n = build_trie(tokens.ids, begins, lengths, keys, children, parents, words, depths, nodes)
        if 4 * n <= len(keys):  # names share beginnings: a smaller table will do
            keys, children = shrink_table(keys, children, n)
        offsets, labels, preferred = list_node_labels(nodes, names, n)
        fail, ends = np.zeros(n, np.int32), np.zeros(n, np.int32)
        build_failure_links(keys, children, parents, words, np.diff(offsets) > 0, fail, ends)
        return cls(keys, children, fail, ends, depths[:n].copy(), offsets, labels, preferred)

    def find_longest_names(self, tokens: Tokens) -> tuple[np.ndarray, int]:
        """(n_tokens,) int32, the node of the longest name that ends at each token, ROOT where none does; and how many
        times a label is called by a name, at the most."""
        found = np.empty(len(tokens.ids), np.int32)
        n_hits = search_longest_names(
            self.keys, self.children, self.fail, self.ends, self.offsets, tokens.ids, tokens.offsets, found
        )
        return found, n_hits

    def find_matches(self, tokens: Tokens, n_labels: int) -> NameMatches:
        longest, n_hits = self.find_longest_names(tokens)
        parts = [np.zeros(n_hits, np.int32) for _ in NameMatches._fields]
        places = np.full(n_labels, EMPTY_SLOT, np.int64)
        names = self.ends, self.fail, self.depths, self.offsets, self.labels, self.preferred
        n = collect_matches(*names, longest, tokens.offsets, places, *parts)
        return NameMatches(*(part[:n].copy() for part in parts))

    def mark_name_tokens(self, tokens: Tokens, label: int) -> np.ndarray:
        """(n_tokens,) bool, the tokens of a document that are part of a name of a label."""
        longest, _ = self.find_longest_names(tokens)
        found = np.zeros(len(longest), bool)
        for position, node in enumerate(longest.tolist()):
            while node != ROOT:
                if label in self.labels[self.offsets[node] : self.offsets[node + 1]]:
                    found[position - self.depths[node] + 1 : position + 1] = True
                node = int(self.ends[self.fail[node]])
        return found

    def check_sizes(self, n_labels: int) -> None:
        """Refuse what a walk would not come to an end in, or leave."""
        n = len(self.fail)
        numbers = np.arange(n)
        if not n or len(self.ends) != n or len(self.depths) != n or len(self.offsets) != n + 1:
            raise ValueError("its names have no whole tree")
        if (self.fail < 0).any() or (self.fail[1:] >= numbers[1:]).any() or self.fail[ROOT] != ROOT:
            raise ValueError("its links lead in a circle")
        if (self.ends < 0).any() or (self.ends > numbers).any():
            raise ValueError("its links lead to no name")
        if len(self.keys).bit_count() != 1 or len(self.children) != len(self.keys) or (self.keys != EMPTY_SLOT).all():
            raise ValueError("its table of words has no free slot")
        if self.children.min() < 0 or self.children.max() >= n:
            raise ValueError("its table of words points beyond the names")
        depths = self.depths
        parents = self.keys[self.keys != EMPTY_SLOT] >> 32
        if depths[ROOT] != 0 or (parents >= n).any() or (parents < 0).any():
            raise ValueError("its names are of no known length")
        if (depths[self.children[self.keys != EMPTY_SLOT]] != depths[parents] + 1).any():
            raise ValueError("its names are longer than their beginnings by more than a word")
        if depths.min() < 0 or (depths[self.fail] > depths).any() or (depths[self.ends] > depths).any():
            raise ValueError("its links lead to longer names")
        self._check_entries(n_labels)

    def _check_entries(self, n_labels: int) -> None:
        if not is_offset_array(self.offsets, len(self.fail), len(self.labels)):
            raise ValueError("its names are not those of its labels")
        if len(self.preferred) != len(self.labels):
            raise ValueError("it does not say of all names whether they are preferred")
        if self.labels.min(initial=0) < 0 or self.labels.max(initial=-1) >= n_labels:
            raise ValueError("it has names of labels that are not there")


def list_node_labels(nodes: np.ndarray, names: LabelNames, n_nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which labels each node is a name of, each once, and whether it is their preferred one."""
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
    """The same table with fewer free slots."""
    fewer = np.full(max(MIN_TABLE_SLOTS, 1 << (2 * n_nodes - 1).bit_length()), EMPTY_SLOT, np.int64)
    moved = np.zeros(len(fewer), np.int32)
    taken = keys != EMPTY_SLOT
    insert_keys(keys[taken], children[taken], fewer, moved)
    return fewer, moved


@kernel
def find_slot(keys, key):
    """Where a key stands in the table, or the free slot where it would."""
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
def insert_keys(keys, children, table, moved):
    for i in range(len(keys)):
        slot = find_slot(table, keys[i])
        table[slot], moved[slot] = keys[i], children[i]


@kernel
def build_trie(ids, begins, lengths, keys, children, parents, words, depths, nodes):
    """Make a node of every beginning of a name, the shortest ones first; returns how many there are. `nodes` begins as
    the ROOT of all names and ends as the node of each."""
    n, depth, is_left = np.int64(1), np.int64(0), True
    while is_left:
        is_left = False
        for i in range(len(nodes)):
            if lengths[i] > depth:
                is_left = True
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
    """Where a word leads: to a child of the node, or of the longest end of it that has such a child."""
    while True:
        slot = find_slot(keys, encode_key(node, word))
        if keys[slot] != EMPTY_SLOT:
            return children[slot]
        if node == ROOT:
            return np.int32(ROOT)
        node = fail[node]


@kernel
def build_failure_links(keys, children, parents, words, is_name, fail, ends):
    """The links of every node, those of smaller depth first, which are all that they need."""
    for node in range(1, len(fail)):
        if parents[node] != ROOT:
            fail[node] = find_next_node(keys, children, fail, fail[parents[node]], words[node])
        ends[node] = node if is_name[node] else ends[fail[node]]


@kernel
def search_longest_names(keys, children, fail, ends, offsets, ids, doc_offsets, longest):
    """`Automaton.longest`, written into its last argument; returns the number of hits."""
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
    """Write the candidates into the last eight arguments; returns how many there are. Documents are read backwards, so
    that it is known how far to the left longer names reach that end further on. places[label] is where the label was
    written last: for this document, if not before its first."""
    n = np.int64(0)
    for doc in range(len(doc_offsets) - 1):
        begin, reach, start = doc_offsets[doc], doc_offsets[doc + 1], n
        for i in range(doc_offsets[doc + 1] - 1, begin - 1, -1):
            name = longest[i]
            left = i + 1 - depths[name]  # where the longest name that ends here begins
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
