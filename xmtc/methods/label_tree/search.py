"""The compiled search of label trees: many documents at a time, level by level, node by node.

All documents that stand at a node are scored together: the node's feature rows are spread out in a table once, and
every document finds its features there with one look-up each (after PECOS's chunk multiplication). Where only a few
documents stand at a node, spreading would cost more than it saves, and they search the sorted rows instead.
"""

from __future__ import annotations

import numpy as np

from xmtc.compiled import kernel
from xmtc.predictions import NO_LABEL

SQUARED_HINGE, LOGISTIC = 0, 1
SEARCH_STEPS = 8  # what finding a feature in sorted rows costs, in look-ups


@kernel
def log_probability(margin, link):
    """log P(child | parent): −max(0, 1 − margin)² after a squared hinge, log σ(margin) after a logistic loss."""
    if link == SQUARED_HINGE:
        loss = max(np.float32(0), np.float32(1) - margin)
        return -loss * loss
    return -np.log1p(np.exp(-margin)) if margin > 0 else margin - np.log1p(np.exp(margin))


@kernel
def add_row(row, value, starts, child, weight, first_entry, sums):
    for entry in range(first_entry + starts[row], first_entry + starts[row + 1]):
        sums[child[entry]] += value * weight[entry]


@kernel
def score_at_node(
    node, documents, indptr, indices, data, link,
    children, bias, scale, rows, features, firsts, starts, child, weight, table, pairs, out,
):  # fmt: skip
    """out[i, :n] = log P(child | node) of the node's n children for the i-th of the documents."""
    n, n_entries = children[node + 1] - children[node], 0
    for doc in documents:
        n_entries += indptr[doc + 1] - indptr[doc]
    place = rows[node], rows[node + 1], rows[node] + node, firsts[node]
    if n_entries * SEARCH_STEPS <= 2 * (rows[node + 1] - rows[node]):
        sum_by_search(documents, indptr, indices, data, n, place, features, starts, child, weight, out)
    elif n == 2:
        sum_by_pairs(documents, indptr, indices, data, place, features, starts, child, weight, pairs, out)
    else:
        sum_by_table(documents, indptr, indices, data, n, place, features, starts, child, weight, table, out)
    for i in range(len(documents)):
        for c in range(n):
            out[i, c] = log_probability(bias[children[node] + c] + scale[node] * out[i, c], link)


@kernel
def sum_by_search(documents, indptr, indices, data, n, place, features, starts, child, weight, out):
    """Σ x·w for every child, each feature searched for in the node's sorted rows."""
    begin, end, first_start, first_entry = place
    for i in range(len(documents)):
        low = begin
        out[i, :n] = 0
        for k in range(indptr[documents[i]], indptr[documents[i] + 1]):
            low += np.searchsorted(features[low:end], indices[k])  # both lists ascend
            if low < end and features[low] == indices[k]:
                add_row(first_start + low - begin, data[k], starts, child, weight, first_entry, out[i])


@kernel
def sum_by_table(documents, indptr, indices, data, n, place, features, starts, child, weight, table, out):
    """Σ x·w for every child, each feature's row looked up in a table that is empty before and after."""
    begin, end, first_start, first_entry = place
    for row in range(begin, end):
        table[features[row]] = row - begin + 1
    for i in range(len(documents)):
        out[i, :n] = 0
        for k in range(indptr[documents[i]], indptr[documents[i] + 1]):
            row = table[indices[k]]
            if row > 0:
                add_row(first_start + row - 1, data[k], starts, child, weight, first_entry, out[i])
    for row in range(begin, end):
        table[features[row]] = 0


@kernel
def sum_by_pairs(documents, indptr, indices, data, place, features, starts, child, weight, pairs, out):
    """As sum_by_table for two children, with the weights themselves in the table: nothing to follow or to decide."""
    begin, end, first_start, first_entry = place
    for row in range(begin, end):
        for entry in range(starts[first_start + row - begin], starts[first_start + row - begin + 1]):
            pairs[features[row], child[first_entry + entry]] = weight[first_entry + entry]
    for i in range(len(documents)):
        left, right = np.float32(0), np.float32(0)
        for k in range(indptr[documents[i]], indptr[documents[i] + 1]):
            left += data[k] * pairs[indices[k], 0]
            right += data[k] * pairs[indices[k], 1]
        out[i, 0], out[i, 1] = left, right
    for row in range(begin, end):
        pairs[features[row], 0] = pairs[features[row], 1] = 0


@kernel
def best_children(nodes, logs, scores, children, beam, next_nodes, next_logs):
    """Of one document: the `beam` best children of its nodes, best first."""
    found = 0
    for b in range(len(nodes)):
        node = nodes[b]
        if node < 0:
            break
        for c in range(children[node + 1] - children[node]):
            log = logs[b] + scores[b, c]
            if found == beam and log <= next_logs[beam - 1]:
                continue
            place = min(found, beam - 1)
            while place > 0 and next_logs[place - 1] < log:
                next_logs[place], next_nodes[place] = next_logs[place - 1], next_nodes[place - 1]
                place -= 1
            next_logs[place], next_nodes[place] = log, children[node] + c + 1
            found = min(found + 1, beam)
    next_nodes[found:] = -1


@kernel
def beam_search(
    indptr, indices, data, start, stop, beam, link, n_features,
    children, labels, bias, scale, rows, features, firsts, starts, child, weight, found_labels, found_logs,
):  # fmt: skip
    """The labels under the `beam` best leaves of each document start:stop and their log probabilities, into
    found_labels and found_logs, (n_docs, beam * widest)."""
    n_docs, n_nodes = stop - start, len(children) - 1
    widest = found_labels.shape[1] // beam
    table, pairs = np.zeros(n_features, np.int32), np.zeros((n_features, 2), np.float32)
    nodes, logs = np.full((n_docs, beam), -1, np.int64), np.zeros((n_docs, beam), np.float32)
    next_nodes, next_logs = nodes.copy(), logs.copy()
    nodes[:, 0] = 0
    scores = np.empty((n_docs * beam, widest), np.float32)
    out = np.empty((n_docs, widest), np.float32)
    low, high = 0, 1  # the nodes of the level at hand
    while True:
        places, ends = by_node(nodes, low, high)
        for node in range(low, high):
            here = places[ends[node - low] : ends[node - low + 1]]
            if len(here) == 0:
                continue
            score_at_node(
                node, start + here // beam, indptr, indices, data, link,
                children, bias, scale, rows, features, firsts, starts, child, weight, table, pairs, out,
            )  # fmt: skip
            for i in range(len(here)):
                scores[here[i]] = out[i]
        if children[low] + 1 >= n_nodes:
            break
        for doc in range(n_docs):
            block = scores[doc * beam : (doc + 1) * beam]
            best_children(nodes[doc], logs[doc], block, children, beam, next_nodes[doc], next_logs[doc])
        nodes, next_nodes, logs, next_logs = next_nodes, nodes, next_logs, logs
        low, high = children[low] + 1, children[high] + 1
    for doc in range(n_docs):
        n = 0
        for b in range(beam):
            node = nodes[doc, b]
            if node < 0:
                break
            for c in range(children[node + 1] - children[node]):
                found_labels[doc, n] = labels[children[node] + c + 1 - n_nodes]
                found_logs[doc, n] = logs[doc, b] + scores[doc * beam + b, c]
                n += 1
        found_labels[doc, n:] = NO_LABEL


@kernel
def by_node(nodes, low, high):
    """The places (document * beam + b) of a level's nodes, those of one node together, and where each node's end."""
    flat = nodes.ravel()
    ends = np.zeros(high - low + 1, np.int64)
    for node in flat:
        if node >= 0:
            ends[node - low + 1] += 1
    ends = np.cumsum(ends)
    filled, places = ends[:-1].copy(), np.empty(ends[-1], np.int64)
    for place in range(len(flat)):
        if flat[place] >= 0:
            places[filled[flat[place] - low]] = place
            filled[flat[place] - low] += 1
    return places, ends


@kernel
def rank(labels, logs, n_labels, k, n_trees, label_weights):
    """The k best labels of each document by the mean over the trees of their probabilities (times the label's weight,
    where weights are given); equal ones rank by label number."""
    n_docs = len(labels)
    top, scores = np.full((n_docs, k), NO_LABEL, np.int32), np.zeros((n_docs, k), np.float32)
    total, seen = np.zeros(n_labels, np.float32), np.empty(labels.shape[1], np.int32)
    for doc in range(n_docs):
        n = 0
        for i in range(labels.shape[1]):
            label = labels[doc, i]
            if label != NO_LABEL:
                if total[label] == 0:
                    seen[n] = label
                    n += 1
                total[label] += np.exp(logs[doc, i]) + np.float32(1e-30)  # never 0, so that none is seen twice
        for label in seen[:n]:
            score = min(total[label] / n_trees, np.float32(1))
            if len(label_weights):
                score *= label_weights[label]
            total[label] = 0
            place = k - 1
            if not better(score, label, scores[doc, place], top[doc, place]):
                continue
            while place > 0 and better(score, label, scores[doc, place - 1], top[doc, place - 1]):
                scores[doc, place], top[doc, place] = scores[doc, place - 1], top[doc, place - 1]
                place -= 1
            scores[doc, place], top[doc, place] = score, label
    return top, scores


@kernel
def better(score, label, other_score, other_label):
    return other_label == NO_LABEL or score > other_score or (score == other_score and label < other_label)
