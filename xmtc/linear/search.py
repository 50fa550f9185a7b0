"""Compiled best-first beam search of label trees, for many documents at a time.

In each round every document takes its most probable queued chunks, until no queued chunk can contain one of its k best
labels: a label is at most as probable as the chunk above it. Documents that take the same chunk are scored one after
the other, while its weights are in the cache.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import fast_kernel, kernel, prefetch_element
from xmtc.core.predictions import NO_LABEL
from xmtc.linear.tree import EMPTY_FEATURE, MAX_BYTE_SLOTS, LinearTree, read_slot

SQUARED_HINGE, LOGISTIC, CUBED_HINGE = 0, 1, 2
MIN_LOG_PROBABILITY = np.float32(-3e38)
ROUNDING_MARGIN = np.float32(1e-4)
MIN_SHARING_DOCUMENTS = 64  # documents of a batch from which sharing chunks pays
MAX_CHUNKS_PER_DOCUMENT = 8  # chunks of the tree per taken chunk, above which documents hardly ever share one
TABLE_PREFETCH_FEATURES = 16  # features by which table cells are prefetched ahead
ROW_PREFETCH_FEATURES = 8  # features by which rows of entries are prefetched ahead
RING_MASK = 15  # prefetched rows are in a ring buffer of RING_MASK + 1 places
CACHE_LINE_ENTRIES = 32  # int16 entries of a cache line
MAX_PREFETCH_ENTRIES = 128  # entries of a row to prefetch; the hardware prefetches the rest
N_WAITING, N_FOUND, N_LEAVES_LEFT = 0, 1, 2  # columns of the counts of a document
MAX_INSERTION_LABELS = (
    128  # longer lists of the best labels are heaps: an insertion would take time linear in their length
)


@kernel
def log_probability(margin, link):
    """Return log P(slot | slot above): log σ(margin), or −max(0, 1 − margin) to the power of 2 or 3."""
    if link != LOGISTIC:
        hinge = max(np.float32(0), np.float32(1) - margin)
        return -hinge * hinge if link == SQUARED_HINGE else -hinge * hinge * hinge
    return -np.log1p(np.exp(-margin)) if margin > 0 else margin - np.log1p(np.exp(margin))


@kernel
def min_margin(log, link):
    """Return a lower bound of the margins with log_probability(margin) >= log (its inverse, less a rounding margin)."""
    if log >= 0:
        return np.float32(80) if link == LOGISTIC else np.float32(1)
    if link == SQUARED_HINGE:
        return np.float32(1) - np.sqrt(-log) - ROUNDING_MARGIN
    if link == CUBED_HINGE:
        return np.float32(1) - (-log) ** np.float32(1 / 3) - ROUNDING_MARGIN  # np.cbrt takes longer to load
    return (log if log < -15 else -np.log(np.expm1(-log))) - ROUNDING_MARGIN


@kernel
def hash_feature(feature, n_buckets):
    """Return the bucket of a feature (Fibonacci hashing)."""
    spread = np.uint64(np.uint32(feature * np.uint32(2654435769)))
    return np.int64((spread * np.uint64(n_buckets)) >> np.uint64(32))


@fast_kernel
def add_scaled_row(value, row, out):
    for slot in range(len(row)):
        out[slot] += value * row[slot]


@fast_kernel
def add_four_rows(x, a, y, b, z, c, u, d, n, entries, out):
    """Add four dense rows, which begin at the entries a, b, c and d; each margin is loaded and stored once."""
    a, b, c, d = entries[a : a + n], entries[b : b + n], entries[c : c + n], entries[d : d + n]
    for slot in range(n):
        out[slot] = (((out[slot] + x * a[slot]) + y * b[slot]) + z * c[slot]) + u * d[slot]


@fast_kernel
def add_pairs(value, entries, begin, end, n, out):
    """Add a row of (slot, weight) pairs; the compiler keeps the branch of the type of the entries."""
    if entries.itemsize == 2:
        for entry in range(begin, end, 2):
            out[np.uint16(entries[entry])] += value * entries[entry + 1]
    elif n <= MAX_BYTE_SLOTS:
        for entry in range(begin, end, 2):
            out[np.uint8(entries[entry])] += value * entries[entry + 1]
    else:
        for entry in range(begin, end, 3):
            out[read_slot(entries, entry, 3)] += value * entries[entry + 2]


@kernel
def find_row(feature, table, n_buckets):
    """Return the start and end of a feature's entries; (0, 0) if the chunk does not have the feature."""
    cell = hash_feature(feature, n_buckets)
    while table[cell, 0] != feature and table[cell, 0] != EMPTY_FEATURE:
        cell += 1
    if table[cell, 0] == EMPTY_FEATURE:
        return np.int64(0), np.int64(0)
    return np.int64(table[cell, 1]), np.int64(table[cell + 1, 1])


@fast_kernel
def compute_margins(indices, data, table, n_buckets, entries, bias, scale, ring, out):
    """Write the margins of a chunk's slots for a document to `out`.

    Memory access is random, so that most of the time would be spent waiting for it: a table cell is prefetched
    TABLE_PREFETCH_FEATURES before it is read, and a row ROW_PREFETCH_FEATURES before it is added. `ring` holds the
    prefetched rows. Dense rows are added four at a time.
    """
    n, n_held, n_features = len(bias), 0, len(indices)
    a, b, c = np.int64(0), np.int64(0), np.int64(0)
    x, y, z = np.float32(0), np.float32(0), np.float32(0)
    for slot in range(n):
        out[slot] = 0
    for k in range(min(TABLE_PREFETCH_FEATURES, n_features)):
        prefetch_element(table, 2 * hash_feature(np.uint32(indices[k]), n_buckets))
    for k in range(n_features + ROW_PREFETCH_FEATURES):
        if k + TABLE_PREFETCH_FEATURES < n_features:
            prefetch_element(table, 2 * hash_feature(np.uint32(indices[k + TABLE_PREFETCH_FEATURES]), n_buckets))
        if k < n_features:
            begin, end = find_row(np.uint32(indices[k]), table, n_buckets)
            ring[k & RING_MASK, 0], ring[k & RING_MASK, 1] = begin, end
            for entry in range(begin, min(end, begin + MAX_PREFETCH_ENTRIES), CACHE_LINE_ENTRIES):
                prefetch_element(entries, entry)
        if k < ROW_PREFETCH_FEATURES:
            continue
        at = (k - ROW_PREFETCH_FEATURES) & RING_MASK
        begin, end, value = ring[at, 0], ring[at, 1], data[k - ROW_PREFETCH_FEATURES]
        if end - begin != n:
            add_pairs(value, entries, begin, end, n, out)
        elif n_held == 0:
            a, x, n_held = begin, value, 1
        elif n_held == 1:
            b, y, n_held = begin, value, 2
        elif n_held == 2:
            c, z, n_held = begin, value, 3
        else:
            add_four_rows(x, a, y, b, z, c, value, begin, n, entries, out)
            n_held = 0
    if n_held > 0:
        add_scaled_row(x, entries[a : a + n], out)
    if n_held > 1:
        add_scaled_row(y, entries[b : b + n], out)
    if n_held > 2:
        add_scaled_row(z, entries[c : c + n], out)
    for slot in range(n):
        out[slot] = bias[slot] + scale * out[slot]


@kernel
def is_ranked_before(log, item, other_log, other_item):
    return log > other_log or (log == other_log and item < other_item)


@kernel
def insert_ranked(log, item, logs, items, n):
    """Insert an item into a descending list of n items and return the new n; a full list drops its last item. Ties
    rank by item number, so that the order of insertion does not matter."""
    at = n
    if n == len(logs):
        if not is_ranked_before(log, item, logs[n - 1], items[n - 1]):
            return n
        at = n - 1
    while at > 0 and is_ranked_before(log, item, logs[at - 1], items[at - 1]):
        logs[at], items[at] = logs[at - 1], items[at - 1]
        at -= 1
    logs[at], items[at] = log, item
    return min(n + 1, len(logs))


@kernel
def sift_down(logs, items, at, n):
    """Move an item of a heap with the last-ranked item at its root down to its place."""
    log, item = logs[at], items[at]
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and is_ranked_before(logs[child], items[child], logs[child + 1], items[child + 1]):
            child += 1
        if not is_ranked_before(log, item, logs[child], items[child]):
            break
        logs[at], items[at] = logs[child], items[child]
        at = child
    logs[at], items[at] = log, item


@kernel
def add_ranked(log, item, logs, items, n):
    """Add an item to the best items and return their new number; `sort_ranked` brings them into order.

    A list of more than MAX_INSERTION_LABELS is a heap as soon as it is full, with the last-ranked item at its root."""
    size = len(logs)
    if size <= MAX_INSERTION_LABELS:
        return insert_ranked(log, item, logs, items, n)
    if n < size:
        logs[n], items[n] = log, item
        if n + 1 == size:
            for at in range(size // 2 - 1, -1, -1):
                sift_down(logs, items, at, size)
        return n + 1
    if is_ranked_before(log, item, logs[0], items[0]):
        logs[0], items[0] = log, item
        sift_down(logs, items, 0, size)
    return n


@kernel
def sort_ranked(logs, items, n):
    """Sort what `add_ranked` collected, best first."""
    if len(logs) <= MAX_INSERTION_LABELS:
        return
    if n < len(logs):  # not a heap yet
        for at in range(n // 2 - 1, -1, -1):
            sift_down(logs, items, at, n)
    for last in range(n - 1, 0, -1):
        logs[0], logs[last] = logs[last], logs[0]
        items[0], items[last] = items[last], items[0]
        sift_down(logs, items, 0, last)


@kernel
def find_last_ranked(k):
    """Return the place of the last-ranked item in a full list of `add_ranked` with k places."""
    return k - 1 if k <= MAX_INSERTION_LABELS else 0


@kernel
def queue_chunks(out, log, link, above, leads, logs, items, n_waiting):
    """Queue the chunks that the slots of a chunk lead to and return the length of the queue. `out` holds margins, which
    become log probabilities."""
    for slot in range(len(leads)):
        parent_log = log if above[slot] < 0 else out[above[slot]]
        out[slot] = parent_log + log_probability(out[slot], link)
        lead = np.int64(leads[slot])
        if lead < -1:
            n_waiting = insert_ranked(out[slot], -1 - lead, logs, items, n_waiting)
    return n_waiting


@kernel
def collect_labels(out, log, link, leads, label_logs, logs, items, n_found):
    """Insert the labels of a leaf into the best labels and return their number."""
    lowest_margin, is_weighted = MIN_LOG_PROBABILITY, len(label_logs) > 0
    for slot in range(len(leads)):
        if out[slot] < lowest_margin:
            continue
        label = np.int64(leads[slot])
        score = log + log_probability(out[slot], link)
        if is_weighted:
            score += label_logs[label]
        n_found = add_ranked(score, label, logs, items, n_found)
        if n_found == len(logs) and not is_weighted:
            lowest_margin = min_margin(logs[find_last_ranked(n_found)] - log, link)
    return n_found


@kernel
def take_chunks(doc, max_leaves, min_log, slots, leads, counts, logs, items, taken, taken_logs, n_taken):
    """Take the best queued chunk of a document, or up to max_leaves leaves, if not below min_log; return the new number
    of taken chunks. Leaves add nothing to the queue, so that taking several does not change the result."""
    n = 0
    while n < min(max_leaves, counts[doc, N_WAITING]) and logs[doc, n] >= min_log:
        chunk = items[doc, n]
        if leads[slots[chunk]] >= 0:  # a leaf
            if counts[doc, N_LEAVES_LEFT] == 0:
                break
            counts[doc, N_LEAVES_LEFT] -= 1
        elif n > 0:
            break
        else:
            max_leaves = 1
        taken[n_taken + n, 0], taken[n_taken + n, 1], taken_logs[n_taken + n] = chunk, doc, logs[doc, n]
        n += 1
    counts[doc, N_WAITING] -= n
    for i in range(counts[doc, N_WAITING]):
        logs[doc, i], items[doc, i] = logs[doc, i + n], items[doc, i + n]
    return n_taken + n


@kernel
def sort_by_chunk(taken, n_taken, n_chunks, chunk_ends, order):
    """Write the order of the taken chunks by chunk number (counting sort), or as they are if few are shared."""
    if n_chunks > MAX_CHUNKS_PER_DOCUMENT * n_taken:
        for i in range(n_taken):
            order[i] = i
        return
    for chunk in range(n_chunks + 1):
        chunk_ends[chunk] = 0
    for i in range(n_taken):
        chunk_ends[taken[i, 0] + 1] += 1
    for chunk in range(n_chunks):
        chunk_ends[chunk + 1] += chunk_ends[chunk]
    for i in range(n_taken):
        order[chunk_ends[taken[i, 0]]] = i
        chunk_ends[taken[i, 0]] += 1


@kernel
def search_tree(rows, start, link, beam, label_logs, max_label_log, tree, best_labels, best_logs, workspace):
    """Search a tree for len(best_labels) documents from `start`; see `search`."""
    indptr, indices, data = rows
    slots, above, leads, bias, scale, bucket_counts, cells, table, firsts, entries = tree
    items, logs, counts, taken, taken_logs, chunk_ends, order, ring, out = workspace
    n_docs, k = best_labels.shape
    last = find_last_ranked(k)
    for doc in range(n_docs):
        items[doc, 0], logs[doc, 0] = 0, 0
        counts[doc, N_WAITING], counts[doc, N_FOUND], counts[doc, N_LEAVES_LEFT] = 1, 0, beam
    max_leaves, n_rounds, n_taken = np.int64(1), np.int64(0), np.int64(1)
    while n_taken:
        n_taken = np.int64(0)
        for doc in range(n_docs):
            min_log = best_logs[doc, last] - max_label_log if counts[doc, N_FOUND] >= k else MIN_LOG_PROBABILITY
            n_taken = take_chunks(
                doc, max_leaves, min_log, slots, leads, counts, logs, items, taken, taken_logs, n_taken
            )
        sort_by_chunk(taken, n_taken, len(scale), chunk_ends, order)
        for number in range(n_taken):
            i = order[number]
            chunk, doc, log = taken[i, 0], taken[i, 1], taken_logs[i]
            features = slice(indptr[start + doc], indptr[start + doc + 1])
            chunk_slots = slice(slots[chunk], slots[chunk + 1])
            chunk_table = table[cells[chunk] : cells[chunk + 1]]
            chunk_entries = entries[firsts[chunk] : firsts[chunk + 1]]
            weights = chunk_table, bucket_counts[chunk], chunk_entries, bias[chunk_slots], scale[chunk]
            compute_margins(indices[features], data[features], *weights, ring, out)
            if leads[slots[chunk]] >= 0:
                best = best_logs[doc], best_labels[doc], counts[doc, N_FOUND]
                counts[doc, N_FOUND] = collect_labels(out, log, link, leads[chunk_slots], label_logs, *best)
            else:
                queue = logs[doc], items[doc], counts[doc, N_WAITING]
                counts[doc, N_WAITING] = queue_chunks(out, log, link, above[chunk_slots], leads[chunk_slots], *queue)
        n_rounds += 1
        if n_rounds > 1 and n_docs >= MIN_SHARING_DOCUMENTS:
            max_leaves = min(2 * max_leaves, beam)  # with more leaves per round, documents share more chunks
    for doc in range(n_docs):
        sort_ranked(best_logs[doc], best_labels[doc], counts[doc, N_FOUND])
        for i in range(counts[doc, N_FOUND], k):
            best_labels[doc, i] = NO_LABEL


def search(
    X: csr_array, docs: slice, tree: LinearTree, link: int, beam: int, k: int, label_logs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k best labels of some documents and their log probabilities (plus `label_logs`, if any), best first.

    At most `beam` chunks are queued and at most `beam` leaves are scored per document.
    """
    n_docs = docs.stop - docs.start
    n_taken = n_docs * beam if n_docs >= MIN_SHARING_DOCUMENTS else n_docs
    workspace = (
        np.empty((n_docs, beam), np.int32),  # queued chunks of each document
        np.empty((n_docs, beam), np.float32),  # log probabilities of the queued chunks
        np.empty((n_docs, 3), np.int64),  # queued chunks, labels found, leaves left to score
        np.empty((n_taken, 2), np.int64),  # (chunk, document) pairs taken in one round
        np.empty(n_taken, np.float32),  # log probabilities of the taken chunks
        np.empty(tree.n_chunks + 1, np.int64),  # chunk_ends of sort_by_chunk
        np.empty(n_taken, np.int64),  # order of the taken chunks
        np.empty((RING_MASK + 1, 2), np.int64),  # start and end of prefetched rows
        np.empty(tree.largest_chunk_slots, np.float32),  # margins of a chunk
    )
    labels, logs = np.empty((n_docs, k), np.int32), np.empty((n_docs, k), np.float32)
    max_label_log = label_logs.max() if len(label_logs) else np.float32(0)
    rows = X.indptr, X.indices, X.data
    search_tree(rows, docs.start, link, beam, label_logs, max_label_log, tree.arrays, labels, logs, workspace)
    return labels, logs


def rank_by_mean(labels: np.ndarray, logs: np.ndarray, n_labels: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k best labels of each document by the mean of exp(logs) over several rankings; ties rank by number.

    Parameters
    ----------
    labels, logs
        Labels of each ranking, best first, and their logarithms, shape (n_docs, n_rankings, width).
    n_labels
        Number of labels.
    k
        Number of labels to return.
    """
    n_docs, n_rankings, width = labels.shape
    labels, logs = np.ascontiguousarray(labels), np.ascontiguousarray(logs)  # the kernel is compiled for one layout
    top, scores = np.full((n_docs, k), NO_LABEL, np.int32), np.zeros((n_docs, k), np.float32)
    work = np.zeros(n_labels, np.float32), np.empty(n_rankings * width, np.int32)
    write_mean_ranking(labels, logs, *work, top, scores)
    return top, scores


@kernel
def write_mean_ranking(labels, logs, total, seen, top, scores):
    """Write the result of `rank_by_mean` to the last two arguments. `total` is zero before and after each document.

    A single ranking keeps its order: different logarithms may have the same exponential."""
    n_rankings, width = labels.shape[1:]
    for doc in range(len(labels)):
        n, n_top = np.int64(0), np.int64(0)
        for ranking in range(n_rankings):
            for i in range(width):
                label = labels[doc, ranking, i]
                if label != NO_LABEL:
                    if total[label] == 0:
                        seen[n] = label
                        n += 1
                    total[label] += np.exp(logs[doc, ranking, i]) + np.float32(1e-30)  # not 0: each is listed once
        for i in range(n):
            label = np.int64(seen[i])
            score = np.float32(total[label] / n_rankings)
            if n_rankings > 1:
                n_top = add_ranked(score, label, scores[doc], top[doc], n_top)
            elif i < top.shape[1]:
                top[doc, i], scores[doc, i] = label, score
            total[label] = 0
        if n_rankings > 1:
            sort_ranked(scores[doc], top[doc], n_top)
