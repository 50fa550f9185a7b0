"""Nearest-neighbour search for documents: by labels, for training, and by embeddings, for prediction.

Both searches are exact; embeddings can also be searched approximately with an index of the library usearch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.core.run import Run
from xmtc.core.sparse import normalise_rows
from xmtc.errors import as_missing_extra
from xmtc.linear.search import insert_ranked

NO_NEIGHBOUR = -1  # fills rows with fewer neighbours
MAX_DOCUMENTS_PER_LABEL = 5000  # documents of a frequent label that each of them is compared with
BLOCK_DOCUMENTS = 1024  # documents that a thread compares at a time
TILE_EMBEDDINGS = 512  # embeddings that fit the processor's cache while all queries are compared with them


def find_label_neighbours(Y: csr_array, n: int, run: Run) -> np.ndarray:
    """Return the n documents whose label vectors have the largest cosine with each document's, best first.

    The document itself is excluded. A row with fewer neighbours ends with NO_NEIGHBOUR.
    """
    unit_rows = normalise_rows(Y)
    unit_columns, n = csc_array(unit_rows), min(n, max(Y.shape[0] - 1, 1))
    rows = unit_rows.indptr, unit_rows.indices, unit_rows.data
    columns = unit_columns.indptr, unit_columns.indices, unit_columns.data
    blocks = range(0, Y.shape[0], BLOCK_DOCUMENTS)

    def search(begin: int) -> np.ndarray:
        neighbours = np.full((min(BLOCK_DOCUMENTS, Y.shape[0] - begin), n), NO_NEIGHBOUR, np.int32)
        work = np.zeros(Y.shape[0], np.float32), np.empty(Y.shape[0], np.int32), np.empty(n, np.float32)
        search_label_neighbours(begin, *rows, *columns, *work, neighbours)
        return neighbours

    return np.vstack(list(run.map(search, blocks, "comparing labels", total=len(blocks))))


@kernel
def search_label_neighbours(
    first, indptr, indices, data, holder_ends, holders, holder_data, similarity, seen, similarities, found
):
    """Write the label neighbours of the documents from `first` on into `found`; `similarity` is zero.

    Ties are frequent. They are broken in favour of the documents that follow the document itself, so that every
    document is a neighbour of another.
    """
    n_docs = len(similarity)
    for i in range(len(found)):
        doc = first + i
        n_seen, n_found = np.int64(0), np.int64(0)
        for own in range(indptr[doc], indptr[doc + 1]):
            begin, end = holder_ends[indices[own]], holder_ends[indices[own] + 1]
            size = end - begin
            at = begin + np.searchsorted(holders[begin:end], doc, side="right")
            for step in range(min(size, MAX_DOCUMENTS_PER_LABEL)):
                where = begin + (at - begin + step) % size
                other = holders[where]
                if other != doc:
                    if similarity[other] == 0:
                        seen[n_seen] = other
                        n_seen += 1
                    similarity[other] += data[own] * holder_data[where]
        for s in range(n_seen):
            other = np.int64(seen[s])
            n_found = insert_ranked(similarity[other], (other - doc) % n_docs, similarities, found[i], n_found)
            similarity[other] = 0
        for s in range(n_found):
            found[i, s] = (found[i, s] + doc) % n_docs


def search_exact(
    queries: np.ndarray, columns: np.ndarray, lengths: np.ndarray, members: slice, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k members with the largest cosine for each query, best first, and the cosines.

    Members are a slice of the columns of a matrix of shape (dimension, n_docs). Queries have unit length. Sums are
    added in an order that does not depend on the batch, so results are reproducible.
    """
    n, size = len(queries), members.stop - members.start
    nearest, cosines = np.empty((n, min(k, size)), np.int32), np.empty((n, min(k, size)), np.float32)
    work = (
        np.zeros(n, np.int64),
        np.empty(TILE_EMBEDDINGS, np.float32),
        np.empty((len(columns), TILE_EMBEDDINGS), np.float32),
    )
    scan_tiles(queries, columns, lengths, members.start, members.stop, *work, nearest, cosines)
    return nearest, cosines


@fast_kernel
def scan_tiles(queries, columns, lengths, first, last, counts, products, tile, nearest, cosines):
    """Write the results of `search_exact` into `nearest` and `cosines`.

    A tile of columns is unpacked once and compared with all queries while it is in the processor's cache.
    """
    dimension, k = len(columns), nearest.shape[1]
    for begin in range(first, last, TILE_EMBEDDINGS):
        size = min(TILE_EMBEDDINGS, last - begin)
        for d in range(dimension):
            packed, row = columns[d], tile[d]
            for j in range(size):
                row[j] = packed[begin + j]
        for q in range(len(queries)):
            multiply_tile(queries[q], tile, size, products)
            for j in range(size):
                cosine = products[j] / lengths[begin + j]
                if counts[q] < k or cosine > cosines[q, k - 1]:
                    counts[q] = insert_ranked(cosine, begin + j, cosines[q], nearest[q], counts[q])


@fast_kernel
def multiply_tile(query, tile, size, products):
    """Write the products of a query with the columns of a tile, four rows at a time to save memory accesses."""
    n_unrolled = len(query) - len(query) % 4
    for j in range(size):
        products[j] = 0
    for d in range(0, n_unrolled, 4):
        row, second, third, fourth = tile[d], tile[d + 1], tile[d + 2], tile[d + 3]
        a, b, c, e = query[d], query[d + 1], query[d + 2], query[d + 3]
        for j in range(size):
            products[j] += a * row[j] + b * second[j] + c * third[j] + e * fourth[j]
    for d in range(n_unrolled, len(query)):
        row, a = tile[d], query[d]
        for j in range(size):
            products[j] += a * row[j]


def check_usearch_installed() -> None:
    """Raise MissingExtra if the library usearch is not installed."""
    try:
        import usearch.index  # noqa: F401
    except ImportError as error:
        raise as_missing_extra("search=approximate", error) from None


def build_index(columns: np.ndarray, members: slice, edges: int, ef: int = 0) -> Any:
    """Return a graph index of some columns of a matrix; `ef` candidates are kept in a search, or usearch's default.

    One thread builds it, so that it is reproducible. It is never saved, because loading an index file is not safe.
    """
    from usearch.index import Index

    expansion: dict[str, Any] = {"expansion_add": ef, "expansion_search": ef} if ef else {}
    index = Index(ndim=len(columns), metric="cos", dtype="f32", connectivity=edges, **expansion)
    vectors = np.ascontiguousarray(columns[:, members].T, np.float32)
    index.add(np.arange(members.start, members.stop), vectors, threads=1)
    return index


def search_approximate(queries: np.ndarray, index: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return approximate results of `search_exact` from an index; missing neighbours are NO_NEIGHBOUR."""
    at_least_two = np.vstack([queries, queries[-1:]])  # usearch returns another shape for a single query
    matches = index.search(at_least_two, min(k, len(index)), threads=1)
    is_found = np.arange(matches.keys.shape[1]) < matches.counts[:, None]
    nearest = np.where(is_found, matches.keys.astype(np.int64), NO_NEIGHBOUR).astype(np.int32)
    return nearest[:-1], 1 - np.where(is_found, matches.distances, 1)[:-1].astype(np.float32)
