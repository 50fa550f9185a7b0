"""Exact search of label trees: always the most probable node next, until the k best labels are certain (after
napkinXC). A child is never more probable than its parent, so what is taken from the heap is the best there is left."""

from __future__ import annotations

import numpy as np

from xmtc.compiled import kernel
from xmtc.methods.label_tree.search import score_at_node
from xmtc.predictions import NO_LABEL


@kernel
def push(keys, items, size, key, item):
    """Add to a heap whose largest key comes first."""
    i = size
    while i > 0 and keys[(i - 1) // 2] < key:
        keys[i], items[i] = keys[(i - 1) // 2], items[(i - 1) // 2]
        i = (i - 1) // 2
    keys[i], items[i] = key, item


@kernel
def drop_first(keys, items, size):
    """Take the first of `size` entries away and put the heap in order again."""
    key, item, i = keys[size - 1], items[size - 1], 0
    while 2 * i + 1 < size - 1:
        child = 2 * i + 1
        if child + 1 < size - 1 and keys[child + 1] > keys[child]:
            child += 1
        if keys[child] <= key:
            break
        keys[i], items[i] = keys[child], items[child]
        i = child
    keys[i], items[i] = key, item


@kernel
def best_first_search(
    indptr, indices, data, start, stop, link, n_features,
    children, labels, bias, scale, rows, features, firsts, starts, child, weight, found_labels, found_logs,
):  # fmt: skip
    """The most probable labels of each document start:stop, best first, as many as found_labels has columns."""
    n_nodes, k, widest = len(children) - 1, found_labels.shape[1], 0
    for node in range(n_nodes):
        widest = max(widest, children[node + 1] - children[node])
    table, pairs = np.zeros(n_features, np.int32), np.zeros((n_features, 2), np.float32)
    out = np.empty((1, widest), np.float32)
    keys, items, document = (
        np.empty(len(bias) + 1, np.float32),
        np.empty(len(bias) + 1, np.int64),
        np.empty(1, np.int64),
    )
    for doc in range(start, stop):
        document[0], n_found, size = doc, 0, 1
        keys[0], items[0] = 0, -1  # the root, as if it were the child of something
        while size > 0 and n_found < k:
            log, slot = keys[0], items[0]
            drop_first(keys, items, size)
            size -= 1
            if slot + 1 >= n_nodes:
                found_labels[doc - start, n_found], found_logs[doc - start, n_found] = labels[slot + 1 - n_nodes], log
                n_found += 1
                continue
            node = slot + 1
            score_at_node(
                node, document, indptr, indices, data, link,
                children, bias, scale, rows, features, firsts, starts, child, weight, table, pairs, out,
            )  # fmt: skip
            for c in range(children[node + 1] - children[node]):
                push(keys, items, size, log + out[0, c], children[node] + c)
                size += 1
        found_labels[doc - start, n_found:] = NO_LABEL
