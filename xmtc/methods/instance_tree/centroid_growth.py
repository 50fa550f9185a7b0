"""Compiled growth and search of CRAFTML's trees.

Rows of the projected features and labels are lists of buckets and values in which a bucket may repeat; their scale is
one over their length. One thread grows a tree with its own random generator, so the result does not depend on the
number of threads. Growth and search send a document to a child with the same sums, in the same order.
"""

from __future__ import annotations

import numpy as np

from xmtc.core.numba_support import kernel
from xmtc.linear.coordinate_descent import next_random_state
from xmtc.linear.search import add_ranked
from xmtc.methods.instance_tree.tree_growth import INITIAL_ENTRIES, enlarge_array, select_leaf_labels

N_ROUNDS = 5  # rounds of k-means; the authors' value
SAME_SIMILARITY = 1 - 1e-4  # documents as similar as this to a centre do not become one


@kernel
def draw_uniform(state):
    """Return a random number in [0, 1) from the upper 53 bits of a state."""
    return np.float64(state >> np.uint64(11)) / 9007199254740992.0


@kernel
def draw_sample(docs, n, state):
    """Move n random documents to the front, and return the new random state."""
    for i in range(n):
        state = next_random_state(state)
        other = i + np.int64(draw_uniform(state) * (len(docs) - i))
        docs[i], docs[other] = docs[other], docs[i]
    return state


@kernel
def draw_weighted(weights, state):
    """Return a random position with a probability proportional to its weight, which may not be all 0."""
    rest, last = draw_uniform(state) * weights.sum(), 0
    for i in range(len(weights)):
        if weights[i] > 0:
            last = i
            rest -= weights[i]
            if rest < 0:
                break
    return last


@kernel
def add_row(indptr, buckets, values, row, factor, column, sums):
    """Add a row times a factor to a column of `sums`."""
    for i in range(indptr[row], indptr[row + 1]):
        sums[buckets[i], column] += factor * values[i]


@kernel
def clear_rows(indptr, buckets, rows, sums):
    """Set `sums` to zero in all buckets of some rows."""
    for row in rows:
        for i in range(indptr[row], indptr[row + 1]):
            sums[buckets[i]] = 0


@kernel
def assign_rows(indptr, buckets, values, rows, sums, n_clusters, similarities, cluster):
    """Write the column of `sums` with the largest product with each row, the first among equals, into `cluster`.

    The products with that column remain in `similarities` of the last row.
    """
    for position in range(len(rows)):
        for c in range(n_clusters):
            similarities[c] = 0
        for i in range(indptr[rows[position]], indptr[rows[position] + 1]):
            for c in range(n_clusters):
                similarities[c] += values[i] * sums[buckets[i], c]
        best = 0
        for c in range(1, n_clusters):
            if similarities[c] > similarities[best]:
                best = c
        cluster[position] = best


@kernel
def normalise_columns(indptr, buckets, rows, n_clusters, sums, seen):
    """Scale each column of `sums` to length 1; `seen` is False before and after."""
    squares = np.zeros(n_clusters)
    for row in rows:
        for i in range(indptr[row], indptr[row + 1]):
            if not seen[buckets[i]]:
                seen[buckets[i]] = True
                for c in range(n_clusters):
                    squares[c] += np.float64(sums[buckets[i], c]) ** 2
    for row in rows:
        for i in range(indptr[row], indptr[row + 1]):
            if seen[buckets[i]]:
                seen[buckets[i]] = False
                for c in range(n_clusters):
                    if squares[c] > 0:
                        sums[buckets[i], c] /= np.sqrt(squares[c])


@kernel
def choose_centres(indptr, buckets, values, scales, rows, max_clusters, state, sums, weights, similarities):
    """Write up to max_clusters rows into the columns of `sums`, which is zero, by k-means++ with 1 − cosine.

    Returns the number of centres, which is smaller if all other rows equal one of them, and the random state.
    """
    n = 0
    for position in range(len(rows)):
        weights[position] = 1.0 if scales[rows[position]] > 0 else 0.0
    while n < max_clusters and weights[: len(rows)].max() > 0:
        state = next_random_state(state)
        row = rows[draw_weighted(weights[: len(rows)], state)]
        add_row(indptr, buckets, values, row, scales[row], n, sums)
        for position in range(len(rows)):
            similarity, row = np.float32(0), rows[position]
            for i in range(indptr[row], indptr[row + 1]):
                similarity += values[i] * sums[buckets[i], n]
            similarity *= scales[row]
            weights[position] = min(weights[position], 1 - similarity if similarity < SAME_SIMILARITY else 0.0)
        n += 1
    return n, state


@kernel
def cluster_labels(labels, rows, max_clusters, state, sums, seen, weights, similarities, cluster):
    """Divide some documents into clusters by spherical k-means over their projected labels.

    Returns the number of clusters and the random state. `sums` is zero before and after.
    """
    indptr, buckets, values, scales = labels
    n, state = choose_centres(indptr, buckets, values, scales, rows, max_clusters, state, sums, weights, similarities)
    for _ in range(N_ROUNDS):
        assign_rows(indptr, buckets, values, rows, sums, n, similarities, cluster)
        clear_rows(indptr, buckets, rows, sums)
        for position in range(len(rows)):
            add_row(indptr, buckets, values, rows[position], scales[rows[position]], cluster[position], sums)
        normalise_columns(indptr, buckets, rows, n, sums, seen)
    if n > 1:
        assign_rows(indptr, buckets, values, rows, sums, n, similarities, cluster)
    clear_rows(indptr, buckets, rows, sums)
    return n, state


@kernel
def prune_centroids(indptr, buckets, rows, n_clusters, sums, seen, top_values, top_buckets, ends):
    """Keep the largest entries of each column of `sums`, scaled to length 1, as `top_buckets` and `top_values`.

    Column c has the entries :ends[c] of row c. `sums` has only these entries afterwards.
    """
    for c in range(n_clusters):
        ends[c] = 0
    for row in rows:
        for i in range(indptr[row], indptr[row + 1]):
            bucket = np.int64(buckets[i])
            if not seen[bucket]:
                seen[bucket] = True
                for c in range(n_clusters):
                    size = abs(sums[bucket, c])
                    if size > 0:
                        ends[c] = add_ranked(size, bucket, top_values[c], top_buckets[c], ends[c])
    for c in range(n_clusters):
        square = 0.0
        for i in range(ends[c]):
            square += np.float64(top_values[c, i]) ** 2
        for i in range(ends[c]):
            top_values[c, i] = sums[top_buckets[c, i], c] / np.sqrt(square)
    for row in rows:
        for i in range(indptr[row], indptr[row + 1]):
            if seen[buckets[i]]:
                seen[buckets[i]] = False
                sums[buckets[i]] = 0
    for c in range(n_clusters):
        for i in range(ends[c]):
            sums[top_buckets[c, i], c] = top_values[c, i]


@kernel
def sort_by_child(docs, cluster, n_clusters, bounds, sorted_docs):
    """Sort documents by cluster, keeping their order otherwise; cluster c has the documents bounds[c]:bounds[c + 1]."""
    for c in range(n_clusters + 1):
        bounds[c] = 0
    for position in range(len(docs)):
        bounds[cluster[position] + 1] += 1
    for c in range(n_clusters):
        bounds[c + 1] += bounds[c]
    for position in range(len(docs)):
        sorted_docs[bounds[cluster[position]]] = docs[position]
        bounds[cluster[position]] += 1
    for c in range(n_clusters, 0, -1):
        bounds[c] = bounds[c - 1]
    bounds[0] = 0
    for position in range(len(docs)):
        docs[position] = sorted_docs[position]


@kernel
def split_documents(features, labels, docs, max_clusters, max_sample, state, feature_work, label_work, node_work):
    """Reorder the documents of a node by child, and return the number of children and the random state.

    Writes the centroids (see `prune_centroids`) and the bounds of the children. Children may have no documents.
    """
    indptr, buckets, values, scales = features
    sums, seen, top_values, top_buckets, ends = feature_work
    weights, similarities, cluster, bounds, sorted_docs = node_work
    if len(docs) > max_sample:
        state = draw_sample(docs, max_sample, state)
    rows = docs[: min(len(docs), max_sample)]
    n, state = cluster_labels(labels, rows, max_clusters, state, *label_work, weights, similarities, cluster)
    if n < 2:
        return np.int64(1), state
    for position in range(len(rows)):
        add_row(indptr, buckets, values, rows[position], scales[rows[position]], cluster[position], sums)
    prune_centroids(indptr, buckets, rows, n, sums, seen, top_values, top_buckets, ends)
    assign_rows(indptr, buckets, values, docs, sums, n, similarities, cluster)
    clear_rows(indptr, buckets, rows, sums)
    sort_by_child(docs, cluster[: len(docs)], n, bounds, sorted_docs)
    return n, state


@kernel
def count_filled(bounds, n):
    """Return the number of clusters with documents."""
    n_filled = np.int64(0)
    for c in range(n):
        n_filled += bounds[c + 1] > bounds[c]
    return n_filled


@kernel
def allocate_split_arrays(n_docs, n_feature_buckets, n_label_buckets, max_clusters, max_features):
    """Return the working arrays of `split_documents` for features, labels and documents."""
    feature_work = (
        np.zeros((n_feature_buckets, max_clusters), np.float32),
        np.zeros(n_feature_buckets, np.bool_),
        np.empty((max_clusters, max_features), np.float32),
        np.empty((max_clusters, max_features), np.int32),
        np.empty(max_clusters, np.int64),
    )
    label_work = np.zeros((n_label_buckets, max_clusters), np.float32), np.zeros(n_label_buckets, np.bool_)
    similarities, bounds = np.empty(max_clusters, np.float32), np.empty(max_clusters + 1, np.int64)
    node_work = np.empty(n_docs), similarities, np.empty(n_docs, np.int64), bounds, np.empty(n_docs, np.int64)
    return feature_work, label_work, node_work


@kernel
def append_entries(items, values, n, new_items, new_values):
    """Write new entries behind the first n, and return the arrays, enlarged if they are full."""
    items, values = enlarge_array(items, n + len(new_items)), enlarge_array(values, n + len(new_items))
    for i in range(len(new_items)):
        items[n + i], values[n + i] = new_items[i], new_values[i]
    return items, values


@kernel
def grow_centroid_tree(features, labels, Y, sizes, limits, state):
    """Return the arrays TREE_ARRAYS of one tree, with its nodes in breadth-first order."""
    n_feature_buckets, n_label_buckets, n_labels = sizes
    max_clusters, max_leaf, max_leaf_labels, max_sample, max_features = limits
    n_docs = len(Y[0]) - 1
    docs = np.arange(n_docs)
    feature_work, label_work, node_work = allocate_split_arrays(
        n_docs, n_feature_buckets, n_label_buckets, max_clusters, max_features
    )
    bounds = node_work[3]
    leaf_labels, shares, label_weights = np.empty(n_labels, np.int32), np.zeros(n_labels), np.ones(n_labels)

    n_children, node_begins = np.zeros(2 * n_docs, np.int32), np.empty(2 * n_docs + 1, np.int64)
    node_sizes = np.empty(2 * n_docs, np.int32)
    centroid_ends, leaf_ends = np.zeros(2 * n_docs + 1, np.int64), np.zeros(2 * n_docs + 1, np.int64)
    buckets, weights = np.empty(INITIAL_ENTRIES, np.int32), np.empty(INITIAL_ENTRIES, np.float32)
    items, values = np.empty(INITIAL_ENTRIES, np.int32), np.empty(INITIAL_ENTRIES, np.float32)
    node_begins[0], node_sizes[0] = 0, n_docs
    node, n_nodes, n_weights, n_values = 0, 1, np.int64(0), np.int64(0)
    while node < n_nodes:
        node_docs = docs[node_begins[node] : node_begins[node] + node_sizes[node]]
        n = np.int64(1)
        if len(node_docs) > max_leaf:
            n, state = split_documents(
                features, labels, node_docs, max_clusters, max_sample, state, feature_work, label_work, node_work
            )
        n_filled = count_filled(bounds, n) if n > 1 else n
        if n_filled > 1:
            n_children[node] = n_filled
            for c in range(n):
                if bounds[c + 1] > bounds[c]:
                    node_begins[n_nodes] = node_begins[node] + bounds[c]
                    node_sizes[n_nodes] = bounds[c + 1] - bounds[c]
                    n_kept = feature_work[4][c]
                    buckets, weights = append_entries(
                        buckets, weights, n_weights, feature_work[3][c, :n_kept], feature_work[2][c, :n_kept]
                    )
                    n_weights += n_kept
                    centroid_ends[n_nodes + 1] = n_weights
                    n_nodes += 1
        else:
            n_kept = select_leaf_labels(node_docs, Y[0], Y[1], label_weights, max_leaf_labels, leaf_labels, shares)
            kept = leaf_labels[:n_kept]
            items, values = append_entries(items, values, n_values, kept, shares[kept])
            shares[kept] = 0
            n_values += n_kept
        leaf_ends[node + 1] = n_values
        node += 1
    centroids = centroid_ends[: n_nodes + 1].copy(), buckets[:n_weights].copy(), weights[:n_weights].copy()
    leaves = leaf_ends[: n_nodes + 1].copy(), items[:n_values].copy(), values[:n_values].copy()
    return n_children[:n_nodes].copy(), node_sizes[:n_nodes].copy(), *centroids, *leaves


@kernel
def find_centroid_leaves(projected, root, nodes, centroids, leaves):
    """Write the leaf of each document in one tree; `centroids` is a work array of zeros.

    Documents of a node are sent to its children together, so that centroids are unpacked once.
    """
    indptr, buckets, values = projected
    starts, n_children, centroid_ends, centroid_buckets, weights = nodes
    n_docs, max_clusters = len(leaves), centroids.shape[1]
    docs, sorted_docs = np.arange(n_docs), np.empty(n_docs, np.int64)
    cluster, bounds = np.empty(n_docs, np.int64), np.empty(max_clusters + 1, np.int64)
    similarities = np.empty(max_clusters, np.float32)
    stack = np.empty((n_docs + 1, 3), np.int64)  # node, begin and end of its documents, which do not overlap
    stack[0, 0], stack[0, 1], stack[0, 2] = root, 0, n_docs
    n_stacked = 1 if n_docs else 0
    while n_stacked:
        n_stacked -= 1
        node, begin, end = stack[n_stacked]
        n = np.int64(n_children[node])
        if n == 0:
            for position in range(begin, end):
                leaves[docs[position]] = node
            continue
        first, entries = centroid_ends[starts[node]], centroid_ends[starts[node] + n]
        for c in range(n):
            for i in range(centroid_ends[starts[node] + c], centroid_ends[starts[node] + c + 1]):
                centroids[centroid_buckets[i], c] = weights[i]
        assign_rows(indptr, buckets, values, docs[begin:end], centroids, n, similarities, cluster)
        for i in range(first, entries):
            centroids[centroid_buckets[i]] = 0
        sort_by_child(docs[begin:end], cluster[: end - begin], n, bounds, sorted_docs)
        for c in range(n):
            if bounds[c + 1] > bounds[c]:
                stack[n_stacked, 0], stack[n_stacked, 1] = starts[node] + c, begin + bounds[c]
                stack[n_stacked, 2] = begin + bounds[c + 1]
                n_stacked += 1


@kernel
def compute_node_shares(label, starts, n_children, sizes, ends, items, values, shares):
    """Write the share of documents with a label at every node of one tree, computed from what its leaves store."""
    for node in range(len(shares) - 1, -1, -1):
        if n_children[node]:
            n_with_label, n_docs = 0.0, 0.0
            for child in range(starts[node], starts[node] + n_children[node]):
                n_with_label += shares[child] * sizes[child]
                n_docs += sizes[child]
            shares[node] = n_with_label / n_docs
        else:
            place = ends[node] + np.searchsorted(items[ends[node] : ends[node + 1]], label)
            shares[node] = values[place] if place < ends[node + 1] and items[place] == label else 0.0
