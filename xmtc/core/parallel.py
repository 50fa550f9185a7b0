"""Ordered maps over a stream of items: sequentially or on threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def iterate_until_failure(items: Iterable[Item], failures: list[Exception]) -> Iterator[Item]:
    """Yield the items up to the first exception, which is appended to `failures`.

    A caller that works on several items at a time raises it after the results of the items before."""
    try:
        yield from items
    except Exception as error:
        failures.append(error)


def map_sequentially(
    work: Callable[[Item], Result], items: Iterable[Item], size: Callable[[Item], float]
) -> Iterator[tuple[Result, float]]:
    """Yield the result and the size of each item."""
    return ((work(item), size(item)) for item in items)


def map_on_threads(
    n_threads: int,
    max_pending: int,
    work: Callable[[Item], Result],
    items: Iterable[Item],
    size: Callable[[Item], float],
) -> Iterator[tuple[Result, float]]:
    """Yield the result and the size of each item in order, with at most `max_pending` items submitted ahead."""
    if n_threads == 1:
        yield from map_sequentially(work, items, size)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        pending: deque[tuple[Future[Result], float]] = deque()
        try:
            for item in items:
                pending.append((pool.submit(work, item), size(item)))
                if len(pending) > max_pending:
                    future, item_size = pending.popleft()
                    yield future.result(), item_size
            while pending:
                future, item_size = pending.popleft()
                yield future.result(), item_size
        finally:
            for future, _ in pending:
                future.cancel()
