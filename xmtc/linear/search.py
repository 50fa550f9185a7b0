"""The compiled search of label trees: best chunk first, for many documents at a time.

Every document takes its most probable chunks, turn by turn, until none of those that still wait can hold one of its k
best labels: nothing is more probable than what it lies under. Documents that have taken the same chunk are scored one
after the other, while its weights are near the processor.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.numba_support import fast_kernel, kernel, prefetch_element
from xmtc.core.predictions import NO_LABEL
from xmtc.linear.tree import EMPTY_FEATURE, LinearTree

SQUARED_HINGE, LOGISTIC, CUBED_HINGE = 0, 1, 2
MIN_LOG_PROBABILITY = np.float32(-3e38)
ROUNDING_MARGIN = np.float32(1e-4)
MIN_SHARING_DOCUMENTS = 64  # documents that are worth an effort to share chunks
MAX_CHUNKS_PER_DOCUMENT = 8  # chunks per document that is in search of one, above which documents hardly ever meet
TABLE_PREFETCH_FEATURES, ROW_PREFETCH_FEATURES, RING_MASK = (
    16,
    8,
    15,
)  # features that are looked for, and rows that are added, after being fetched
CACHE_LINE_ENTRIES, MAX_PREFETCH_ENTRIES = (
    32,
    128,
)  # entries that memory hands over together, and of a row, ahead: the rest comes by itself
N_WAITING, N_FOUND, N_LEAVES_LEFT = 0, 1, 2  # what is counted of a document


@kernel
def log_probability(margin, link):
    """log P(slot | above): log σ(margin), or what the margin lacks of 1, to the power of 2 or 3, taken away."""
    if link != LOGISTIC:
        lacking = max(np.float32(0), np.float32(1) - margin)
        return -lacking * lacking if link == SQUARED_HINGE else -lacking * lacking * lacking
    return -np.log1p(np.exp(-margin)) if margin > 0 else margin - np.log1p(np.exp(margin))


@kernel
def min_margin(log, link):
    """A margin, or a little less, under which log_probability is under log."""
    if log >= 0:
        return np.float32(80) if link == LOGISTIC else np.float32(1)
    if link == SQUARED_HINGE:
        return np.float32(1) - np.sqrt(-log) - ROUNDING_MARGIN
    if link == CUBED_HINGE:
        return np.float32(1) - np.cbrt(-log) - ROUNDING_MARGIN
    return (log if log < -15 else -np.log(np.expm1(-log))) - ROUNDING_MARGIN


@kernel
def hash_feature(feature, n_homes):
    """Where a feature is looked for first: spread evenly over the homes (Fibonacci hashing)."""
    spread = np.uint64(np.uint32(feature * np.uint32(2654435769)))
    return np.int64((spread * np.uint64(n_homes)) >> np.uint64(32))


@fast_kernel
def add_scaled_row(value, row, out):
    for slot in range(len(row)):
        out[slot] += value * row[slot]


@fast_kernel
def add_four_rows(x, a, y, b, z, c, u, d, n, entries, out):
    """Rows of all n slots, which begin at a, b, c and d: a margin is read and written once for four weights."""
    a, b, c, d = entries[a : a + n], entries[b : b + n], entries[c : c + n], entries[d : d + n]
    for slot in range(n):
        out[slot] = (((out[slot] + x * a[slot]) + y * b[slot]) + z * c[slot]) + u * d[slot]


@kernel
def find_row(feature, table, n_homes):
    """Where a feature's row of entries begins and ends; nothing lies between where the chunk does not have it."""
    cell = hash_feature(feature, n_homes)
    while table[cell, 0] != feature and table[cell, 0] != EMPTY_FEATURE:
        cell += 1
    if table[cell, 0] == EMPTY_FEATURE:
        return np.int64(0), np.int64(0)
    return np.int64(table[cell, 1]), np.int64(table[cell + 1, 1])


@fast_kernel
def compute_margins(indices, data, table, n_homes, entries, bias, scale, held, out):
    """Write the margins of a chunk's slots for the document with these features. A place of the table is fetched AHEAD
    features before it is looked at, and a row LATER features before it is added: what is read lies scattered, and most
    of the time would go by in waiting for it. Rows with all slots are held until there are four."""
    n, n_held, n_words, places = len(bias), 0, len(indices), table.reshape(-1)
    a, b, c = np.int64(0), np.int64(0), np.int64(0)
    x, y, z = np.float32(0), np.float32(0), np.float32(0)
    for slot in range(n):
        out[slot] = 0
    for k in range(min(TABLE_PREFETCH_FEATURES, n_words)):
        prefetch_element(places, 2 * hash_feature(np.uint32(indices[k]), n_homes))
    for k in range(n_words + ROW_PREFETCH_FEATURES):
        if k + TABLE_PREFETCH_FEATURES < n_words:
            prefetch_element(places, 2 * hash_feature(np.uint32(indices[k + TABLE_PREFETCH_FEATURES]), n_homes))
        if k < n_words:
            begin, end = find_row(np.uint32(indices[k]), table, n_homes)
            held[k & RING_MASK, 0], held[k & RING_MASK, 1] = begin, end
            for entry in range(begin, min(end, begin + MAX_PREFETCH_ENTRIES), CACHE_LINE_ENTRIES):
                prefetch_element(entries, entry)
        if k < ROW_PREFETCH_FEATURES:
            continue
        begin, end, value = (
            held[(k - ROW_PREFETCH_FEATURES) & RING_MASK, 0],
            held[(k - ROW_PREFETCH_FEATURES) & RING_MASK, 1],
            data[k - ROW_PREFETCH_FEATURES],
        )
        if end - begin != n:
            for entry in range(begin, end, 2):
                out[np.uint16(entries[entry])] += value * entries[entry + 1]
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
    """Put an item among the n of a list that descends, whose last drops out if it is full; the new n. Equal ones rank
    by number, so that it does not matter which came first."""
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
def queue_chunks(out, log, link, above, leads, logs, items, n_waiting):
    """The chunks that a chunk's slots lead to join those that wait; the new number of them. out: margins, then logs."""
    for slot in range(len(leads)):
        over = log if above[slot] < 0 else out[above[slot]]
        out[slot] = over + log_probability(out[slot], link)
        lead = np.int64(leads[slot])
        if lead < -1:
            n_waiting = insert_ranked(out[slot], -1 - lead, logs, items, n_waiting)
    return n_waiting


@kernel
def collect_labels(out, log, link, leads, label_logs, logs, items, n_found):
    """The labels that a chunk's slots lead to join the best; the new number of them."""
    least, weighted = MIN_LOG_PROBABILITY, len(label_logs) > 0
    for slot in range(len(leads)):
        if out[slot] < least:
            continue
        label = np.int64(leads[slot])
        score = log + log_probability(out[slot], link)
        if weighted:
            score += label_logs[label]
        n_found = insert_ranked(score, label, logs, items, n_found)
        if n_found == len(logs) and not weighted:
            least = min_margin(logs[n_found - 1] - log, link)
    return n_found


@kernel
def take_chunks(doc, at_once, least, slots, leads, counts, logs, items, taken, taken_logs, n_taken):
    """The best chunk that waits for a document, or up to at_once if they are leaves, unless under `least`, are
    taken; the new number of them. (A leaf does not change what waits: several at once are the same as in turn.)"""
    n = 0
    while n < min(at_once, counts[doc, N_WAITING]) and logs[doc, n] >= least:
        chunk = items[doc, n]
        if leads[slots[chunk]] >= 0:  # a leaf
            if counts[doc, N_LEAVES_LEFT] == 0:
                break
            counts[doc, N_LEAVES_LEFT] -= 1
        elif n > 0:
            break
        else:
            at_once = 1
        taken[n_taken + n, 0], taken[n_taken + n, 1], taken_logs[n_taken + n] = chunk, doc, logs[doc, n]
        n += 1
    counts[doc, N_WAITING] -= n
    for i in range(counts[doc, N_WAITING]):
        logs[doc, i], items[doc, i] = logs[doc, i + n], items[doc, i + n]
    return n_taken + n


@kernel
def sort_by_chunk(taken, n_taken, n_chunks, after, order):
    """Write the order in which documents meet at chunks, if there are enough of them to meet; else as they come."""
    if n_chunks > MAX_CHUNKS_PER_DOCUMENT * n_taken:
        for i in range(n_taken):
            order[i] = i
        return
    for chunk in range(n_chunks + 1):
        after[chunk] = 0
    for i in range(n_taken):
        after[taken[i, 0] + 1] += 1
    for chunk in range(n_chunks):
        after[chunk + 1] += after[chunk]
    for i in range(n_taken):
        order[after[taken[i, 0]]] = i
        after[taken[i, 0]] += 1


@kernel
def search_tree(rows, start, link, beam, label_logs, lift, tree, best_labels, best_logs, room):
    """`search` of one tree for the documents from `start` on, as many as best_labels has rows."""
    indptr, indices, data = rows
    slots, above, leads, bias, scale, homes, cells, table, firsts, entries = tree
    items, logs, counts, taken, taken_logs, after, order, held, out = room
    n_docs, k = best_labels.shape
    for doc in range(n_docs):
        items[doc, 0], logs[doc, 0] = 0, 0
        counts[doc, N_WAITING], counts[doc, N_FOUND], counts[doc, N_LEAVES_LEFT] = 1, 0, beam
    at_once, turn, n_taken = np.int64(1), np.int64(0), np.int64(1)
    while n_taken:
        n_taken = np.int64(0)
        for doc in range(n_docs):
            least = best_logs[doc, k - 1] - lift if counts[doc, N_FOUND] >= k else MIN_LOG_PROBABILITY
            n_taken = take_chunks(doc, at_once, least, slots, leads, counts, logs, items, taken, taken_logs, n_taken)
        sort_by_chunk(taken, n_taken, len(scale), after, order)
        for number in range(n_taken):
            i = order[number]
            chunk, doc, log = taken[i, 0], taken[i, 1], taken_logs[i]
            words, here = slice(indptr[start + doc], indptr[start + doc + 1]), slice(slots[chunk], slots[chunk + 1])
            own_table = table[cells[chunk] : cells[chunk + 1]]
            own_entries = entries[firsts[chunk] : firsts[chunk + 1]]
            weights = own_table, homes[chunk], own_entries, bias[here], scale[chunk]
            compute_margins(indices[words], data[words], *weights, held, out)
            if leads[slots[chunk]] >= 0:
                best = best_logs[doc], best_labels[doc], counts[doc, N_FOUND]
                counts[doc, N_FOUND] = collect_labels(out, log, link, leads[here], label_logs, *best)
            else:
                waiting = logs[doc], items[doc], counts[doc, N_WAITING]
                counts[doc, N_WAITING] = queue_chunks(out, log, link, above[here], leads[here], *waiting)
        turn += 1
        if (
            turn > 1 and n_docs >= MIN_SHARING_DOCUMENTS
        ):  # take more at once, and the next turn's documents share more chunks
            at_once = min(2 * at_once, beam)
    for doc in range(n_docs):
        for i in range(counts[doc, N_FOUND], k):
            best_labels[doc, i] = NO_LABEL


def search(
    X: csr_array, docs: slice, tree: LinearTree, link: int, beam: int, k: int, label_logs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The k best labels of some documents and their log probabilities (plus label_logs, if there are any), best first.
    At most `beam` chunks wait, and at most `beam` leaves are scored."""
    n_docs = docs.stop - docs.start
    n_taken = n_docs * beam if n_docs >= MIN_SHARING_DOCUMENTS else n_docs
    room = (
        np.empty((n_docs, beam), np.int32),  # the chunks that wait for each document,
        np.empty((n_docs, beam), np.float32),  # and their log probabilities
        np.empty((n_docs, 3), np.int64),  # how many chunks wait, how many labels are found, how many leaves are left
        np.empty((n_taken, 2), np.int64),  # the chunks that are taken in one turn, and by which document,
        np.empty(n_taken, np.float32),  # and their log probabilities
        np.empty(tree.n_chunks + 1, np.int64),
        np.empty(n_taken, np.int64),
        np.empty((RING_MASK + 1, 2), np.int64),  # where rows of entries begin and end that are being fetched
        np.empty(tree.largest_chunk_slots, np.float32),  # a chunk's margins
    )
    labels, logs = np.empty((n_docs, k), np.int32), np.empty((n_docs, k), np.float32)
    lift = label_logs.max() if len(label_logs) else np.float32(0)
    rows = X.indptr, X.indices, X.data
    search_tree(rows, docs.start, link, beam, label_logs, lift, tree.arrays, labels, logs, room)
    return labels, logs


def rank_by_mean(
    labels: np.ndarray, logs: np.ndarray, n_labels: int, k: int, n_trees: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k best labels of each document by the mean over the trees of exp(logs); equal ones rank by label number."""
    n_docs, width = labels.shape
    top, scores = np.full((n_docs, k), NO_LABEL, np.int32), np.zeros((n_docs, k), np.float32)
    write_mean_ranking(labels, logs, n_trees, np.zeros(n_labels, np.float32), np.empty(width, np.int32), top, scores)
    return top, scores


@kernel
def write_mean_ranking(labels, logs, n_trees, total, seen, top, scores):
    """`rank`, written into its last two arguments. `total` begins as zeros, and is left so by every document."""
    for doc in range(len(labels)):
        n, n_top = np.int64(0), np.int64(0)
        for i in range(labels.shape[1]):
            label = labels[doc, i]
            if label != NO_LABEL:
                if total[label] == 0:
                    seen[n] = label
                    n += 1
                total[label] += np.exp(logs[doc, i]) + np.float32(1e-30)  # never 0, so that none is seen twice
        for i in range(n):
            label = np.int64(seen[i])
            n_top = insert_ranked(total[label] / n_trees, label, scores[doc], top[doc], n_top)
            total[label] = 0
