"""How a tree over documents grows (FastXML, section 4): a node's documents are parted so that each side's ranking of
labels suits its documents best, a sparse linear classifier learns which document goes where, and its word counts.

A tree is grown by one thread, in one compiled loop, from random numbers of its own: the number of threads changes
nothing."""

from __future__ import annotations

import numpy as np

from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.linear.l1_logistic import bound_gradients, solve_l1_logistic

MIN_GAIN = 1e-6  # stop when the mean nDCG grows by less: the authors' value
MAX_ROUNDS = 100
EPS, MAX_STEPS, MAX_SWEEPS = 0.01, 10, 10  # of a node's classifier: the authors' values
INITIAL_ENTRIES = 1 << 14  # entries of a tree to begin with
LEAF = -1


@kernel
def next_random(state):
    """A xorshift generator."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


@kernel
def sort_by_key_descending(keys, items, n):
    """Shell's sort of the first n items: the largest key first, equal ones by number."""
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
def list_labels(docs, indptr, labels, sums, found):
    """List the labels of some documents; return how many. `sums` begin as zeros, and are left so."""
    n = np.int64(0)
    for doc in docs:
        for i in range(indptr[doc], indptr[doc + 1]):
            if sums[labels[i]] == 0:
                sums[labels[i]] = 1
                found[n] = labels[i]
                n += 1
    for i in range(n):
        sums[found[i]] = 0
    return n


@kernel
def partition_by_ndcg(docs, indptr, labels, gains, discounts, signs, rankings, sums, leaning):
    """Give each document the side whose ranking of labels has the higher nDCG for it, then rank the labels of each side
    anew, and so on (FastXML, algorithm 2). `signs` hold the sides, +1 and −1, random at first. The gain of a label in a
    document is its weight divided by the best DCG that the document allows. `rankings` and `sums` have a row for each
    side; `sums` and `leaning` begin as zeros and are left so. Returns the number of documents on the side +1."""
    n_found, n_positive, last = list_labels(docs, indptr, labels, leaning, rankings[0]), np.int64(0), -1.0
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
            sort_by_key_descending(sums[side], ranking, n_found)  # which is quick, once it is nearly in order
            for rank in range(n_found):
                label = ranking[rank]
                leaning[label] += discounts[rank] if side else -discounts[rank]
                ndcg += discounts[rank] * sums[side, label] / len(docs)
                sums[side, label] = 0
        n_positive = assign_sides(docs, indptr, labels, gains, leaning, signs)
        for i in range(n_found):
            leaning[rankings[0, i]] = 0
        if ndcg - last < MIN_GAIN:
            break
        last = ndcg
    return n_positive


@kernel
def assign_sides(docs, indptr, labels, gains, leaning, signs):
    """Put each document on the side to which its labels lean, if they lean at all; return how many are on +1."""
    n_positive = np.int64(0)
    for position in range(len(docs)):
        gain = 0.0
        for i in range(indptr[docs[position]], indptr[docs[position] + 1]):
            gain += gains[i] * leaning[labels[i]]
        if gain != 0:
            signs[position] = 1 if gain > 0 else -1
        n_positive += signs[position] > 0
    return n_positive


@kernel
def build_columns(indptr, indices, data, docs, place, columns, n_columns, starts, rows, values):
    """The documents column by column, and a last column of ones, the bias. `place` holds for each of the columns how
    many entries it has, and is left as zeros; other columns are left out."""
    starts[0] = 0
    for j in range(n_columns):
        starts[j + 1] = starts[j] + place[columns[j]]
        place[columns[j]] = starts[j] + 1  # one more than where its next entry goes, because 0 means left out
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
    """List the columns whose weight may be other than 0, count their entries in `place`, and return how many columns
    and entries there are. Everything else begins as zeros and is left so."""
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
def split_node(X, Y, docs, C, discounts, state, room):
    """Divide the documents of a node in place, those on the side +1 first. Returns how many they are, 0 or all if no
    division was found, the columns and weights of the classifier, the bias last, and the new random state."""
    indptr, indices, data = X
    against, in_favour, place, columns, rankings, sums, leaning = room
    n, n_features = len(docs), len(place) - 1
    signs, costs = np.empty(n, np.int8), np.empty(n)
    for position in range(n):
        state = next_random(state)
        signs[position] = 1 if state & np.uint64(1 << 32) else -1
    n_positive = partition_by_ndcg(docs, *Y, discounts, signs, rankings, sums, leaning)
    used, w = columns[:0], costs[:0]
    if n_positive == 0 or n_positive == n:
        return n_positive, used, w, state

    for position in range(n):  # both sides weigh the same, so that the classifier is not all for the larger one
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
    """The margins as a walk down the tree will have them, in float32: a document may lie on the very border."""
    margins = np.zeros(n_rows, np.float32)
    for j in range(len(w)):
        weight = np.float32(w[j])
        if weight != 0:
            for i in range(starts[j], starts[j + 1]):
                margins[rows[i]] += weight * values[i]
    return margins


@kernel
def reorder_by_margin(docs, margins):
    """Put the documents with a margin of 0 or more first, all else in order; return how many they are."""
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
def select_leaf_labels(docs, indptr, labels, max_labels, found, sums):
    """The mean of the documents' labels, left in `sums`; list the `most` best in `found`, in the order of their
    numbers, and return how many. All sums but these are zeros before and after."""
    n_found = list_labels(docs, indptr, labels, sums, found)
    for doc in docs:
        for i in range(indptr[doc], indptr[doc + 1]):
            sums[labels[i]] += 1 / len(docs)
    sort_by_key_descending(sums, found, n_found)
    for i in range(max_labels, n_found):
        sums[found[i]] = 0
    n = min(max_labels, n_found)
    for i in range(1, n):  # an insertion sort, which is quick for the few labels of a leaf
        label, at = found[i], i
        while at > 0 and found[at - 1] > label:
            found[at] = found[at - 1]
            at -= 1
        found[at] = label
    return n


@kernel
def enlarge_array(array, size):
    """With room for `size` entries and as many more."""
    if size <= len(array):
        return array
    wider = np.empty(2 * size, array.dtype)
    for i in range(len(array)):
        wider[i] = array[i]
    return wider


@kernel
def grow_tree(X, Y, discounts, n_features, C, max_leaf, max_leaf_labels, state):
    """The arrays of one tree, as in Forest, its nodes in preorder."""
    n_docs, n_labels = len(X[0]) - 1, len(discounts)
    docs = np.arange(n_docs)
    by_column = np.zeros((2, n_features + 1))
    place, columns = np.zeros(n_features + 1, np.int64), np.empty(n_features + 1, np.int32)
    rankings, by_label = np.empty((2, n_labels), np.int32), np.zeros((3, n_labels))
    found, sums = rankings[0], by_label[0]
    room = by_column[0], by_column[1], place, columns, rankings, by_label[:2], by_label[2]

    negative, sizes = np.empty(2 * n_docs, np.int32), np.empty(2 * n_docs, np.int32)
    ends = np.zeros(2 * n_docs + 1, np.int64)
    items, values = np.empty(INITIAL_ENTRIES, np.int32), np.empty(INITIAL_ENTRIES, np.float32)
    waiting = np.empty((n_docs + 1, 3), np.int64)  # begin and end of a node's documents, and whose negative child it is
    waiting[0, 0], waiting[0, 1], waiting[0, 2] = 0, n_docs, LEAF
    n_waiting, node = 1, 0
    while n_waiting:
        n_waiting -= 1
        begin, end, parent = waiting[n_waiting]
        if parent != LEAF:
            negative[parent] = node
        here, size = docs[begin:end], ends[node]
        n_first = np.int64(0)
        if end - begin > max_leaf:
            n_first, used, w, state = split_node(X, Y, here, C, discounts, state, room)
        if 0 < n_first < end - begin:
            items, values = enlarge_array(items, size + len(w)), enlarge_array(values, size + len(w))
            for j in range(len(w)):
                if np.float32(w[j]) != 0:
                    items[size], values[size] = used[j], w[j]
                    size += 1
            waiting[n_waiting, 0], waiting[n_waiting, 1], waiting[n_waiting, 2] = begin + n_first, end, node
            waiting[n_waiting + 1, 0], waiting[n_waiting + 1, 1] = begin, begin + n_first
            waiting[n_waiting + 1, 2] = LEAF
            n_waiting += 2
        else:
            negative[node] = LEAF
            n_kept = select_leaf_labels(here, Y[0], Y[1], max_leaf_labels, found, sums)
            items, values = enlarge_array(items, size + n_kept), enlarge_array(values, size + n_kept)
            for i in range(n_kept):
                items[size], values[size] = found[i], sums[found[i]]
                sums[found[i]] = 0
                size += 1
        sizes[node], ends[node + 1] = end - begin, size
        node += 1
    entries = items[:size].copy(), values[:size].copy()
    return negative[:node].copy(), sizes[:node].copy(), ends[: node + 1].copy(), *entries
