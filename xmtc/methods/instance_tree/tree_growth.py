"""Compiled growth of a tree over documents (FastXML, section 4).

A node's documents are assigned to two sides so that the label ranking of each side has a high nDCG for its documents. A
sparse linear classifier learns the sides, and its predictions divide the documents.

One thread grows a tree with its own random generator, so the result does not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np

from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.linear.coordinate_descent import next_random_state
from xmtc.linear.l1_logistic import bound_gradients, solve_l1_logistic

MIN_GAIN = 1e-6  # growth of the mean nDCG below which the assignment stops; the authors' value
MAX_ROUNDS = 100
EPS, MAX_STEPS, MAX_SWEEPS = 0.01, 10, 10  # options of a node's classifier; the authors' values
INITIAL_ENTRIES = 1 << 14  # initial capacity for a tree's features and labels
LEAF = -1


@kernel
def sort_by_key_descending(keys, items, n):
    """Sort the first n items in place by descending key, then by number; Shell sort, fast on nearly sorted input."""
    gap = 1
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            item, at = items[i], i
            while at >= gap:
                other = items[at - gap]
                if keys[other] > keys[item] or (keys[other] == keys[item] and other < item):
                    break
                items[at] = other
                at -= gap
            items[at] = item
        gap //= 3


@kernel
def list_labels(docs, indptr, labels, sums, distinct):
    """List the distinct labels of some documents and return their number; `sums` is a work array of zeros."""
    n = np.int64(0)
    for doc in docs:
        for i in range(indptr[doc], indptr[doc + 1]):
            if sums[labels[i]] == 0:
                sums[labels[i]] = 1
                distinct[n] = labels[i]
                n += 1
    for i in range(n):
        sums[distinct[i]] = 0
    return n


@kernel
def partition_by_ndcg(docs, indptr, labels, gains, discounts, signs, rankings, sums, balance):
    """Alternate between ranking the labels of each side and moving documents to the better side (algorithm 2).

    `signs` has the sides δ, +1 and −1, random at first. The gain of a label in a document is its weight divided by the
    ideal DCG of the document. `rankings` (r⁻ and r⁺) and `sums` have a row for each side. `sums` and `balance` are work
    arrays of zeros. Returns the number of documents on side +1.
    """
    n_found, n_positive, last_ndcg = list_labels(docs, indptr, labels, balance, rankings[0]), np.int64(0), -1.0
    for i in range(n_found):
        rankings[1, i] = rankings[0, i]
    for _ in range(MAX_ROUNDS):
        for position in range(len(docs)):
            side = 1 if signs[position] > 0 else 0
            for i in range(indptr[docs[position]], indptr[docs[position] + 1]):
                sums[side, labels[i]] += gains[i]
        ndcg = 0.0
        for side in range(2):
            ranking = rankings[side]
            sort_by_key_descending(sums[side], ranking, n_found)
            for rank in range(n_found):
                label = ranking[rank]
                balance[label] += discounts[rank] if side else -discounts[rank]
                ndcg += discounts[rank] * sums[side, label] / len(docs)
                sums[side, label] = 0
        n_positive = assign_sides(docs, indptr, labels, gains, balance, signs)
        for i in range(n_found):
            balance[rankings[0, i]] = 0
        if ndcg - last_ndcg < MIN_GAIN:
            break
        last_ndcg = ndcg
    return n_positive


@kernel
def assign_sides(docs, indptr, labels, gains, balance, signs):
    """Move each document to the side with the higher nDCG, leave it on a tie, and return the number on side +1.

    `balance` is the discount of each label in r⁺ minus that in r⁻.
    """
    n_positive = np.int64(0)
    for position in range(len(docs)):
        gain = 0.0
        for i in range(indptr[docs[position]], indptr[docs[position] + 1]):
            gain += gains[i] * balance[labels[i]]
        if gain != 0:
            signs[position] = 1 if gain > 0 else -1
        n_positive += signs[position] > 0
    return n_positive


@kernel
def build_columns(indptr, indices, data, docs, place, columns, n_columns, starts, rows, values):
    """Write the documents in column order, with a last column of ones for the bias.

    `place` has the number of entries of each column in `columns`, is 0 for columns to leave out, and is reset to zeros.
    """
    starts[0] = 0
    for j in range(n_columns):
        starts[j + 1] = starts[j] + place[columns[j]]
        place[columns[j]] = starts[j] + 1  # position of its next entry + 1, because 0 means that it is left out
    for position in range(len(docs)):
        for i in range(indptr[docs[position]], indptr[docs[position] + 1]):
            at = place[indices[i]] - 1
            if at >= 0:
                rows[at], values[at] = position, data[i]
                place[indices[i]] += 1
    for j in range(n_columns):
        place[columns[j]] = 0
    starts[n_columns + 1] = starts[n_columns] + len(docs)
    for position in range(len(docs)):
        at = starts[n_columns] + position
        rows[at], values[at] = position, 1


@kernel
def list_useful_columns(indptr, indices, data, docs, signs, costs, against, in_favour, place, columns):
    """List the columns whose weight may be non-zero, count their entries in `place`, and return both numbers.

    `against` and `in_favour` are work arrays of zeros.
    """
    n_seen, n, n_entries = bound_gradients(indptr, indices, data, docs, signs, costs, against, in_favour, columns), 0, 0
    for number in range(n_seen):
        column = columns[number]
        if max(against[column], in_favour[column]) > 1:
            columns[n] = column
            place[column] = 1
            n += 1
        against[column], in_favour[column] = 0, 0
    for doc in docs:
        for i in range(indptr[doc], indptr[doc + 1]):
            if place[indices[i]]:
                place[indices[i]] += 1
                n_entries += 1
    for number in range(n):
        place[columns[number]] -= 1
    return n, n_entries


@kernel
def split_node(X, Y, docs, C, discounts, state, work):
    """Reorder the documents of a node in place, those on side +1 first.

    Returns their number, which is 0 or all if there is no split, the columns and weights of the classifier with the
    bias last, and the new random state.
    """
    indptr, indices, data = X
    against, in_favour, place, columns, rankings, sums, balance = work
    n, n_features = len(docs), len(place) - 1
    signs, costs = np.empty(n, np.int8), np.empty(n)
    for position in range(n):
        state = next_random_state(state)
        signs[position] = 1 if state & np.uint64(1 << 32) else -1
    n_positive = partition_by_ndcg(docs, *Y, discounts, signs, rankings, sums, balance)
    used, w = columns[:0], costs[:0]
    if n_positive == 0 or n_positive == n:
        return n_positive, used, w, state

    for position in range(n):  # both sides have the same total weight, so the classifier does not ignore the smaller
        costs[position] = C * n / (n_positive if signs[position] > 0 else n - n_positive)
    n_columns, n_entries = list_useful_columns(
        indptr, indices, data, docs, signs, costs, against, in_favour, place, columns
    )
    starts = np.empty(n_columns + 2, np.int64)
    rows, values = np.empty(n_entries + n, np.int32), np.empty(n_entries + n, np.float32)
    build_columns(indptr, indices, data, docs, place, columns, n_columns, starts, rows, values)
    columns[n_columns] = n_features
    used, w, margins = columns[: n_columns + 1], np.zeros(n_columns + 1), np.zeros(n)
    state = solve_l1_logistic(starts, rows, values, signs, costs, EPS, MAX_STEPS, MAX_SWEEPS, state, w, margins)
    return reorder_by_margin(docs, compute_float32_margins(starts, rows, values, w, n)), used, w, state


@fast_kernel
def compute_float32_margins(starts, rows, values, w, n_rows):
    """Return the margins in float32, as prediction computes them, so that borderline documents take the same side."""
    margins = np.zeros(n_rows, np.float32)
    for j in range(len(w)):
        weight = np.float32(w[j])
        if weight != 0:
            for i in range(starts[j], starts[j + 1]):
                margins[rows[i]] += weight * values[i]
    return margins


@kernel
def reorder_by_margin(docs, margins):
    """Move documents with a margin of at least 0 to the front, keep the order otherwise, and return their number."""
    n, rest = 0, np.empty(len(docs), docs.dtype)
    for position in range(len(docs)):
        if margins[position] >= 0:
            docs[n] = docs[position]
            n += 1
        else:
            rest[position - n] = docs[position]
    for position in range(n, len(docs)):
        docs[position] = rest[position - n]
    return n


@kernel
def select_leaf_labels(docs, indptr, labels, weights, max_labels, selected, shares):
    """Write the labels of a leaf's documents with the largest shares, in ascending order, and return their number.

    The share of a label is its weight times the fraction of the documents that have it. `shares` is zero before, and
    has the shares of the selected labels after.
    """
    n_found = list_labels(docs, indptr, labels, shares, selected)
    for doc in docs:
        for i in range(indptr[doc], indptr[doc + 1]):
            shares[labels[i]] += weights[labels[i]] / len(docs)
    sort_by_key_descending(shares, selected, n_found)
    for i in range(max_labels, n_found):
        shares[selected[i]] = 0
    n = min(max_labels, n_found)
    for i in range(1, n):  # insertion sort, fast for the few labels of a leaf
        label, at = selected[i], i
        while at > 0 and selected[at - 1] > label:
            selected[at] = selected[at - 1]
            at -= 1
        selected[at] = label
    return n


@kernel
def enlarge_array(array, size):
    """Return the array if it has `size` entries, else a copy with twice that size."""
    if size <= len(array):
        return array
    enlarged = np.empty(2 * size, array.dtype)
    for i in range(len(array)):
        enlarged[i] = array[i]
    return enlarged


@kernel
def grow_tree(X, Y, discounts, leaf_weights, n_features, C, max_leaf, max_leaf_labels, state):
    """Return the arrays TREE_ARRAYS of one tree, with its nodes in preorder."""
    n_docs, n_labels = len(X[0]) - 1, len(discounts)
    docs = np.arange(n_docs)
    by_column = np.zeros((2, n_features + 1))
    place, columns = np.zeros(n_features + 1, np.int64), np.empty(n_features + 1, np.int32)
    rankings, by_label = np.empty((2, n_labels), np.int32), np.zeros((3, n_labels))
    leaf_labels, shares = rankings[0], by_label[0]
    work = by_column[0], by_column[1], place, columns, rankings, by_label[:2], by_label[2]

    negative, sizes = np.empty(2 * n_docs, np.int32), np.empty(2 * n_docs, np.int32)
    ends = np.zeros(2 * n_docs + 1, np.int64)
    items, values = np.empty(INITIAL_ENTRIES, np.int32), np.empty(INITIAL_ENTRIES, np.float32)
    # stack of nodes to grow: begin and end of its documents, and its parent if it is a negative child (else LEAF)
    stack = np.empty((n_docs + 1, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, n_docs, LEAF
    n_stacked, node = 1, 0
    while n_stacked:
        n_stacked -= 1
        begin, end, parent = stack[n_stacked]
        if parent != LEAF:
            negative[parent] = node
        node_docs, size = docs[begin:end], ends[node]
        n_positive = np.int64(0)
        if end - begin > max_leaf:
            n_positive, used, w, state = split_node(X, Y, node_docs, C, discounts, state, work)
        if 0 < n_positive < end - begin:
            items, values = enlarge_array(items, size + len(w)), enlarge_array(values, size + len(w))
            for j in range(len(w)):
                if np.float32(w[j]) != 0:
                    items[size], values[size] = used[j], w[j]
                    size += 1
            stack[n_stacked, 0], stack[n_stacked, 1], stack[n_stacked, 2] = begin + n_positive, end, node
            stack[n_stacked + 1, 0], stack[n_stacked + 1, 1] = begin, begin + n_positive
            stack[n_stacked + 1, 2] = LEAF
            n_stacked += 2
        else:
            negative[node] = LEAF
            n_kept = select_leaf_labels(node_docs, Y[0], Y[1], leaf_weights, max_leaf_labels, leaf_labels, shares)
            items, values = enlarge_array(items, size + n_kept), enlarge_array(values, size + n_kept)
            for i in range(n_kept):
                items[size], values[size] = leaf_labels[i], shares[leaf_labels[i]]
                shares[leaf_labels[i]] = 0
                size += 1
        sizes[node], ends[node + 1] = end - begin, size
        node += 1
    entries = items[:size].copy(), values[:size].copy()
    return negative[:node].copy(), sizes[:node].copy(), ends[: node + 1].copy(), *entries
