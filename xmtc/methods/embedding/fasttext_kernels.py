"""Compiled stochastic gradient descent of fastText, sequential because the order of documents changes the result.

A document is a row of a sparse matrix X with the share of each of its words and n-grams, so the mean of their vectors
is h = Σ x V, and a word that occurs five times is looked up once. Inner loops run over contiguous components or labels,
which the compiler vectorises without reordering a sum.
"""

from __future__ import annotations

import numpy as np

from xmtc.core.numba_support import fast_kernel

PARTIAL_SUMS = 16  # number of partial sums of the gradient, for vector instructions
MAX_ABS_SCORE = np.float32(30)  # scores are clipped to this before the sigmoid
DIVERGED_LOSS = -1.0  # returned instead of a loss if the training diverged
MAX_SQUARED_NORM = 1e12  # squared norm of a document's vector above which the training diverged
MIN_PROBABILITY = 1e-7  # probabilities are clipped to this before the logarithm


@fast_kernel
def compute_mean_vector(indptr, indices, values, doc, vectors, h):
    """Write h = Σ x V of a document, and return its squared norm."""
    for j in range(len(h)):
        h[j] = 0
    for i in range(indptr[doc], indptr[doc + 1]):
        row, x = indices[i], values[i]
        for j in range(len(h)):
            h[j] += x * vectors[row, j]
    square = np.float32(0)
    for j in range(len(h)):
        square += h[j] * h[j]
    return square


@fast_kernel
def update_vectors(indptr, indices, values, doc, gradient, vectors):
    """Add x · gradient to the vector of every word and n-gram of a document."""
    for i in range(indptr[doc], indptr[doc + 1]):
        row, x = indices[i], values[i]
        for j in range(len(gradient)):
            vectors[row, j] += x * gradient[j]


@fast_kernel
def compute_scores(h, outputs, scores):
    """Write the scores h · W of all labels or nodes."""
    for label in range(len(scores)):
        scores[label] = 0
    for j in range(len(h)):
        x = h[j]
        for label in range(len(scores)):
            scores[label] += x * outputs[j, label]


@fast_kernel
def sigmoid(score):
    """Return 1 / (1 + exp(−score)) of a clipped score, which is never 0 or 1."""
    return np.float32(1) / (np.float32(1) + np.exp(-min(max(score, -MAX_ABS_SCORE), MAX_ABS_SCORE)))


@fast_kernel
def apply_sigmoid(scores):
    for label in range(len(scores)):
        scores[label] = sigmoid(scores[label])


@fast_kernel
def apply_softmax(scores):
    largest = scores[0]
    for label in range(len(scores)):
        largest = max(largest, scores[label])
    total = np.float32(0)
    for label in range(len(scores)):
        scores[label] = np.exp(scores[label] - largest)
        total += scores[label]
    factor = np.float32(1) / max(total, np.float32(MIN_PROBABILITY))  # the total is at least 1 unless scores are nan
    for label in range(len(scores)):
        scores[label] *= factor


@fast_kernel
def compute_one_vs_all_loss(scores, positives):
    """Return −Σ log p over positive labels − Σ log(1 − p) over the others.

    Logarithms are slow, so factors are multiplied before one logarithm is taken.
    """
    loss, product = 0.0, 1.0
    for label in range(len(scores)):
        product *= max(1.0 - scores[label], MIN_PROBABILITY)
        if product < 1e-200:
            loss -= np.log(product)
            product = 1.0
    loss -= np.log(product)
    for label in positives:
        p = scores[label]
        loss += np.log(max(1.0 - p, MIN_PROBABILITY)) - np.log(max(p, MIN_PROBABILITY))
    return loss


@fast_kernel
def update_outputs(h, errors, outputs, lanes, gradient):
    """Write gradient = W · errors and add h · errors to W, shape (dimension, n), n a multiple of PARTIAL_SUMS."""
    for j in range(len(h)):
        x = h[j]
        for lane in range(PARTIAL_SUMS):
            lanes[lane] = 0
        for first in range(0, len(errors), PARTIAL_SUMS):
            for lane in range(PARTIAL_SUMS):
                error, w = errors[first + lane], outputs[j, first + lane]
                lanes[lane] += error * w
                outputs[j, first + lane] = w + error * x
        total = np.float32(0)
        for lane in range(PARTIAL_SUMS):
            total += lanes[lane]
        gradient[j] = total


@fast_kernel
def train_dense_output(
    indptr, indices, values, docs, rates, starts, labels, is_softmax, vectors, outputs, n_labels, scores, work
):
    """Train with losses that score every label (softmax, ova); return the sum of the losses, or DIVERGED_LOSS.

    The labels of docs[i] are labels[starts[i]:starts[i + 1]]; softmax has a single label per document.
    """
    h, gradient, lanes = work
    loss = 0.0
    for i in range(len(docs)):
        positives = labels[starts[i] : starts[i + 1]]
        if compute_mean_vector(indptr, indices, values, docs[i], vectors, h) > MAX_SQUARED_NORM:
            return DIVERGED_LOSS
        compute_scores(h, outputs, scores)
        if is_softmax:
            apply_softmax(scores[:n_labels])
            loss -= np.log(max(scores[positives[0]], MIN_PROBABILITY))
        else:
            apply_sigmoid(scores[:n_labels])
            loss += compute_one_vs_all_loss(scores[:n_labels], positives)
        rate = rates[i]
        for label in range(n_labels):
            scores[label] *= -rate
        for label in range(n_labels, len(scores)):  # padding
            scores[label] = 0
        for label in positives:
            scores[label] += rate
        update_outputs(h, scores, outputs, lanes, gradient)
        update_vectors(indptr, indices, values, docs[i], gradient, vectors)
    return loss


@fast_kernel
def multiply_vectors(h, w, lanes):
    """Return h · w, added up in PARTIAL_SUMS partial sums."""
    for lane in range(PARTIAL_SUMS):
        lanes[lane] = 0
    whole = len(h) - len(h) % PARTIAL_SUMS
    for first in range(0, whole, PARTIAL_SUMS):
        for lane in range(PARTIAL_SUMS):
            lanes[lane] += h[first + lane] * w[first + lane]
    total = np.float32(0)
    for lane in range(PARTIAL_SUMS):
        total += lanes[lane]
    for j in range(whole, len(h)):
        total += h[j] * w[j]
    return total


@fast_kernel
def update_output_row(h, w, is_positive, rate, decay, lanes, gradient):
    """Take a step of logistic regression on one output vector, add its part to the gradient, and return its loss."""
    p = sigmoid(multiply_vectors(h, w, lanes))
    error = rate * (np.float32(is_positive) - p)
    for j in range(len(h)):
        gradient[j] += error * w[j]
        w[j] = decay * w[j] + error * h[j]
    return -np.log(max(p if is_positive else np.float32(1) - p, MIN_PROBABILITY))


@fast_kernel
def train_selected_rows(indptr, indices, values, docs, rates, starts, rows, codes, vectors, outputs, work):
    """Train with losses that score some outputs (hs, ns); return the sum of the losses, or DIVERGED_LOSS.

    The outputs of docs[i] are rows[starts[i]:starts[i + 1]], with the targets in `codes`. `outputs` has the shape
    (n, dimension).
    """
    h, gradient, lanes = work
    loss = 0.0
    for i in range(len(docs)):
        if compute_mean_vector(indptr, indices, values, docs[i], vectors, h) > MAX_SQUARED_NORM:
            return DIVERGED_LOSS
        for j in range(len(h)):
            gradient[j] = 0
        for at in range(starts[i], starts[i + 1]):
            w = outputs[rows[at]]
            loss += update_output_row(h, w, codes[at] == 1, rates[i], np.float32(1), lanes, gradient)
        update_vectors(indptr, indices, values, docs[i], gradient, vectors)
    return loss


@fast_kernel
def compute_output_probabilities(indptr, indices, values, begin, vectors, outputs, is_softmax, h, scores):
    """Write the probabilities of all labels, or of the second child at all nodes, for documents from `begin` on."""
    for row in range(len(scores)):
        compute_mean_vector(indptr, indices, values, begin + row, vectors, h)
        compute_scores(h, outputs, scores[row])
        if is_softmax:
            apply_softmax(scores[row])
        else:
            apply_sigmoid(scores[row])


@fast_kernel
def multiply_tree_probabilities(nodes, children, label_probabilities, probabilities):
    """Write P(label) = Π P(child | node) along the path from the root, which is the last node.

    Node n has the index n_labels + n in the work array `probabilities`.
    """
    n_labels = len(children) + 1
    for row in range(len(nodes)):
        probabilities[2 * n_labels - 2] = 1.0
        for node in range(n_labels - 2, -1, -1):
            p = nodes[row, node]
            probabilities[children[node, 0]] = probabilities[n_labels + node] * (1.0 - p)
            probabilities[children[node, 1]] = probabilities[n_labels + node] * p
        for label in range(n_labels):
            label_probabilities[row, label] = probabilities[label]


@fast_kernel
def select_top_labels(scores, labels, best):
    """Write the labels with the highest scores of each row and their scores; ties are broken by label number."""
    k = labels.shape[1]
    for row in range(len(scores)):
        n = 0
        for label in range(scores.shape[1]):
            score = scores[row, label]
            if n == k and score <= best[row, k - 1]:
                continue
            at = n if n < k else k - 1
            while at > 0 and best[row, at - 1] < score:
                best[row, at], labels[row, at] = best[row, at - 1], labels[row, at - 1]
                at -= 1
            best[row, at], labels[row, at] = score, label
            n = min(n + 1, k)
