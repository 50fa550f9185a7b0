"""The compiled search of label trees: best chunk first, for many documents at a time.

Every document takes its most probable chunks, turn by turn, until none of those that still wait can hold one of its k
best labels: nothing is more probable than what it lies under. Documents that have taken the same chunk are scored one
after the other, while its weights are near the processor.
"""

from __future__ import annotations

import numpy as np

from xmtc.base.predictions import NO_LABEL
from xmtc.compiled import fast_kernel, kernel
from xmtc.linear.tree import EMPTY

SQUARED_HINGE, LOGISTIC = 0, 1
NOTHING = np.uint32(EMPTY)
NEVER = np.float32(-3e38)
ROUNDING = np.float32(1e-4)
MANY = 64  # documents that are worth an effort to share chunks


@kernel
def log_probability(margin, link):
    """log P(slot | above): −max(0, 1 − margin)² after a squared hinge, log σ(margin) after a logistic loss."""
    if link == SQUARED_HINGE:
        loss = max(np.float32(0), np.float32(1) - margin)
        return -loss * loss
    return -np.log1p(np.exp(-margin)) if margin > 0 else margin - np.log1p(np.exp(margin))


@kernel
def least_margin(log, link):
    """A margin, or a little less, under which log_probability is under log."""
    if log >= 0:
        return np.float32(1) if link == SQUARED_HINGE else np.float32(80)
    if link == SQUARED_HINGE:
        return np.float32(1) - np.sqrt(-log) - ROUNDING
    return (log if log < -15 else -np.log(np.expm1(-log))) - ROUNDING


@kernel
def home(feature, n_homes):
    """Where a feature is looked for first: spread evenly over the homes (Fibonacci hashing)."""
    spread = np.uint64(np.uint32(feature * np.uint32(2654435769)))
    return np.int64((spread * np.uint64(n_homes)) >> np.uint64(32))


@fast_kernel
def margins(indices, data, n, table, n_homes, entries, bias, scale, out):
    """out[:n] = the margins of a chunk's slots for the document with these features."""
    out[:n] = 0
    for k in range(len(indices)):
        feature = np.uint32(indices[k])
        place = home(feature, n_homes)
        while table[place, 0] != feature and table[place, 0] != NOTHING:
            place += 1
        if table[place, 0] == NOTHING:
            continue
        begin, end = np.int64(table[place, 1]), np.int64(table[place + 1, 1])
        if end - begin == n:
            for slot in range(n):
                out[slot] += data[k] * entries[begin + slot]
        else:
            for entry in range(begin, end, 2):
                out[entries[entry]] += data[k] * entries[entry + 1]
    for slot in range(n):
        out[slot] = bias[slot] + scale * out[slot]


@kernel
def comes_before(log, item, other_log, other_item):
    return log > other_log or (log == other_log and item < other_item)


@kernel
def insert(log, item, logs, items, n):
    """Put an item among the n of a list that descends, whose last drops out if it is full; the new n. Equal ones rank
    by number, so that it does not matter which came first."""
    place = n
    if n == len(logs):
        if not comes_before(log, item, logs[n - 1], items[n - 1]):
            return n
        place = n - 1
    while place > 0 and comes_before(log, item, logs[place - 1], items[place - 1]):
        logs[place], items[place] = logs[place - 1], items[place - 1]
        place -= 1
    logs[place], items[place] = log, item
    return min(n + 1, len(logs))


@kernel
def follow_slots(out, n, log, link, above, leads, logs, items, waiting):
    """The chunks that a chunk's slots lead to join those that wait; the new number of them. out: margins, then logs."""
    for slot in range(n):
        over = log if above[slot] < 0 else out[above[slot]]
        out[slot] = over + log_probability(out[slot], link)
        if leads[slot] < -1:
            waiting = insert(out[slot], -1 - leads[slot], logs, items, waiting)
    return waiting


@kernel
def collect_labels(out, n, log, link, leads, label_logs, logs, items, found):
    """The labels that a chunk's slots lead to join the best; the new number of them."""
    least, weighted = NEVER, len(label_logs) > 0
    for slot in range(n):
        if out[slot] < least:
            continue
        score = log + log_probability(out[slot], link)
        if weighted:
            score += label_logs[leads[slot]]
        found = insert(score, leads[slot], logs, items, found)
        if found == len(logs) and not weighted:
            least = least_margin(logs[found - 1] - log, link)
    return found


@kernel
def take(doc, at_once, least, is_leaf, leaves_left, logs, items, n_waiting, taken, taken_logs, n_taken):
    """The best chunk that waits for a document, or up to at_once if they are leaves, unless under `least`, are
    taken; the new number of them. (A leaf does not change what waits: several at once are the same as in turn.)"""
    n = 0
    while n < min(at_once, n_waiting[doc]) and logs[doc, n] >= least:
        if is_leaf[items[doc, n]]:
            if leaves_left[doc] == 0:
                break
            leaves_left[doc] -= 1
        elif n > 0:
            break
        else:
            at_once = 1
        taken[n_taken + n, 0], taken[n_taken + n, 1], taken_logs[n_taken + n] = items[doc, n], doc, logs[doc, n]
        n += 1
    n_waiting[doc] -= n
    for place in range(n_waiting[doc]):
        logs[doc, place], items[doc, place] = logs[doc, place + n], items[doc, place + n]
    return n_taken + n


@kernel
def search(
    indptr, indices, data, start, stop, link, beam, label_logs,
    slots, above, leads, bias, scale, homes, places, table, firsts, entries, best_labels, best_logs,
):  # fmt: skip
    """The best labels of the documents start:stop and their log probabilities (plus label_logs, where given), best
    first, as many as best_labels has columns. At most `beam` chunks wait, and at most `beam` leaves are scored."""
    k = best_labels.shape[1]
    n_docs, is_leaf = stop - start, leads[slots[:-1]] >= 0
    lift = label_logs.max() if len(label_logs) else np.float32(0)
    items, logs = np.zeros((n_docs, beam), np.int64), np.zeros((n_docs, beam), np.float32)
    n_waiting, n_found = np.ones(n_docs, np.int64), np.zeros(n_docs, np.int64)
    leaves_left = np.full(n_docs, beam)
    out, at_once, turn = np.empty(np.diff(slots).max(), np.float32), 1, 0
    taken, taken_logs, n_taken = np.empty((n_docs, 2), np.int64), np.empty(n_docs, np.float32), 1
    while n_taken:
        n_taken = 0
        for doc in range(n_docs):
            least = best_logs[doc, k - 1] - lift if n_found[doc] >= k else NEVER
            n_taken = take(
                doc, at_once, least, is_leaf, leaves_left, logs, items, n_waiting, taken, taken_logs, n_taken
            )
        for i in np.argsort(taken[:n_taken, 0]):
            chunk, doc, log = taken[i, 0], taken[i, 1], taken_logs[i]
            words, here = slice(indptr[start + doc], indptr[start + doc + 1]), slice(slots[chunk], slots[chunk + 1])
            n = slots[chunk + 1] - slots[chunk]
            margins(
                indices[words], data[words], n, table[places[chunk] : places[chunk + 1]], homes[chunk],
                entries[firsts[chunk] : firsts[chunk + 1]], bias[here], scale[chunk], out,
            )  # fmt: skip
            if is_leaf[chunk]:
                found = best_logs[doc], best_labels[doc], n_found[doc]
                n_found[doc] = collect_labels(out, n, log, link, leads[here], label_logs, *found)
            else:
                waiting = logs[doc], items[doc], n_waiting[doc]
                n_waiting[doc] = follow_slots(out, n, log, link, above[here], leads[here], *waiting)
        turn += 1
        if turn > 1 and n_docs >= MANY:  # take more at once, and the next turn's documents share more chunks
            at_once = min(2 * at_once, beam)
            taken, taken_logs = np.empty((n_docs * at_once, 2), np.int64), np.empty(n_docs * at_once, np.float32)
    for doc in range(n_docs):
        best_labels[doc, n_found[doc] :] = NO_LABEL


@kernel
def rank(labels, logs, n_labels, k, n_trees):
    """The k best labels of each document by the mean over the trees of exp(logs); equal ones rank by label number."""
    n_docs = len(labels)
    top, scores = np.full((n_docs, k), NO_LABEL, np.int32), np.zeros((n_docs, k), np.float32)
    total, seen = np.zeros(n_labels, np.float32), np.empty(labels.shape[1], np.int32)
    for doc in range(n_docs):
        n, n_top = 0, 0
        for i in range(labels.shape[1]):
            label = labels[doc, i]
            if label != NO_LABEL:
                if total[label] == 0:
                    seen[n] = label
                    n += 1
                total[label] += np.exp(logs[doc, i]) + np.float32(1e-30)  # never 0, so that none is seen twice
        for label in seen[:n]:
            score = total[label] / n_trees
            total[label] = 0
            n_top = insert(score, label, scores[doc], top[doc], n_top)
    return top, scores
