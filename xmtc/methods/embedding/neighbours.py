"""The nearest neighbours of documents: by their labels, to learn from; by their embeddings, to answer with. Both are
found exactly; the second also approximately, by an index of the library `usearch`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array

from xmtc.core.numba_support import fast_kernel, kernel
from xmtc.core.run import Run
from xmtc.core.sparse import normalise_rows
from xmtc.errors import as_missing_extra
from xmtc.linear.search import insert_ranked

NO_NEIGHBOUR = -1  # where fewer neighbours were found
MAX_DOCUMENTS_PER_LABEL = 5000  # documents of a label that each of them is compared with, at most
BLOCK_DOCUMENTS = 1024  # compared by one thread at a time
TILE_EMBEDDINGS = 512  # embeddings that meet all queries while they are near the processor


def find_label_neighbours(Y: csr_array, n: int, run: Run) -> np.ndarray:
    """(n_docs, n) int32: the documents whose sets of labels have the largest cosine with each document's, best first,
    itself left out; NOBODY where fewer share a label with it."""
    unit = normalise_rows(Y)
    holders, n = csc_array(unit), min(n, max(Y.shape[0] - 1, 1))
    parts = range(0, Y.shape[0], BLOCK_DOCUMENTS)

    def near(begin: int) -> np.ndarray:
        found = np.full((min(BLOCK_DOCUMENTS, Y.shape[0] - begin), n), NO_NEIGHBOUR, np.int32)
        rows, columns = (unit.indptr, unit.indices, unit.data), (holders.indptr, holders.indices, holders.data)
        room = np.zeros(Y.shape[0], np.float32), np.empty(Y.shape[0], np.int32)
        search_label_neighbours(begin, *rows, *columns, *room, np.empty(n, np.float32), found)
        return found

    return np.vstack(list(run.map(near, parts, "comparing labels", total=len(parts))))


@kernel
def search_label_neighbours(
    first, indptr, indices, data, holder_ends, holders, holder_data, similarity, seen, similarities, found
):
    """`label_neighbours` of the documents from `first` on. Of those that are equally near, which are many, the next
    after the document itself come first: so every document is somebody's neighbour. `similarity` begins as zeros."""
    n_docs = len(similarity)
    for i in range(len(found)):
        doc = first + i
        n_seen, n_found = np.int64(0), np.int64(0)
        for own in range(indptr[doc], indptr[doc + 1]):
            begin, end = holder_ends[indices[own]], holder_ends[indices[own] + 1]
            size = end - begin
            at = find_next_document(holders, begin, end, doc)
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


@kernel
def find_next_document(holders, begin, end, doc):
    """The first place of holders[begin:end], which ascend, that is after the document."""
    while begin < end:
        middle = (begin + end) // 2
        if holders[middle] > doc:
            end = middle
        else:
            begin = middle + 1
    return begin


def search_exact(
    queries: np.ndarray, columns: np.ndarray, lengths: np.ndarray, members: slice, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k members whose cosine with each query is largest, best first, and the cosines. Members are columns of a
    matrix, dimension × documents, and queries rows of length 1: sums are added up in one order whatever the batch."""
    n, size = len(queries), members.stop - members.start
    found, cosines = np.empty((n, min(k, size)), np.int32), np.empty((n, min(k, size)), np.float32)
    room = (
        np.zeros(n, np.int64),
        np.empty(TILE_EMBEDDINGS, np.float32),
        np.empty((len(columns), TILE_EMBEDDINGS), np.float32),
    )
    scan_tiles(queries, columns, lengths, members.start, members.stop, *room, found, cosines)
    return found, cosines


@fast_kernel
def scan_tiles(queries, columns, lengths, first, last, counts, room, tile, found, cosines):
    """`nearest`, written into its last two arguments. A tile of columns is unpacked once and meets all queries while it
    is near the processor."""
    dimension, k = len(columns), found.shape[1]
    for begin in range(first, last, TILE_EMBEDDINGS):
        size = min(TILE_EMBEDDINGS, last - begin)
        for d in range(dimension):
            packed, row = columns[d], tile[d]
            for j in range(size):
                row[j] = packed[begin + j]
        for q in range(len(queries)):
            multiply_tile(queries[q], tile, size, room)
            for j in range(size):
                cosine = room[j] / lengths[begin + j]
                if counts[q] < k or cosine > cosines[q, k - 1]:
                    counts[q] = insert_ranked(cosine, begin + j, cosines[q], found[q], counts[q])


@fast_kernel
def multiply_tile(query, tile, size, room):
    """Of a query with the columns of a tile: four rows at a time, so that sums are fetched a fourth as often."""
    whole = len(query) - len(query) % 4
    for j in range(size):
        room[j] = 0
    for d in range(0, whole, 4):
        row, second, third, fourth = tile[d], tile[d + 1], tile[d + 2], tile[d + 3]
        a, b, c, e = query[d], query[d + 1], query[d + 2], query[d + 3]
        for j in range(size):
            room[j] += a * row[j] + b * second[j] + c * third[j] + e * fourth[j]
    for d in range(whole, len(query)):
        row, a = tile[d], query[d]
        for j in range(size):
            room[j] += a * row[j]


def check_usearch_installed() -> None:
    """Say, before a training, that the approximate search needs a library."""
    try:
        import usearch.index  # noqa: F401
    except ImportError as error:
        raise as_missing_extra("search=approximate", error) from None


def build_index(columns: np.ndarray, members: slice, edges: int) -> Any:
    """A graph of some columns of a matrix, in which neighbours are found without a look at all of them. Made by one
    thread, it is the same every time; and made anew by every process, because a file of it would have to be trusted."""
    from usearch.index import Index

    index = Index(ndim=len(columns), metric="cos", dtype="f32", connectivity=edges)
    vectors = np.ascontiguousarray(columns[:, members].T, np.float32)
    index.add(np.arange(members.start, members.stop), vectors, threads=1)
    return index


def search_approximate(queries: np.ndarray, index: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """`nearest`, as far as an index finds them."""
    twice = np.vstack([queries, queries[-1:]])  # of one query alone, the library's answer has another shape
    matches = index.search(twice, min(k, len(index)), threads=1)
    is_found = np.arange(matches.keys.shape[1]) < matches.counts[:, None]
    found = np.where(is_found, matches.keys.astype(np.int64), NO_NEIGHBOUR).astype(np.int32)
    return found[:-1], 1 - np.where(is_found, matches.distances, 1)[:-1].astype(np.float32)
