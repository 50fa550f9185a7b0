"""What a thread of its own does beside the others: items that are made ahead, and work that is done behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class PrefetchIterator(Generic[Item]):
    """The same items; making them begins at once, and so many at most wait to be asked for. After `close` no more are
    made."""

    def __init__(self, items: Iterable[Item], max_pending: int) -> None:
        self.items, self.end = iter(items), object()
        self.pool = ThreadPoolExecutor(1)
        self.pending: deque[Future[Any]] = deque()
        for _ in range(max_pending):
            self._submit_next()

    def _submit_next(self) -> None:
        self.pending.append(self.pool.submit(next, self.items, self.end))

    def __iter__(self) -> Iterator[Item]:
        while (item := self.pending.popleft().result()) is not self.end:
            self._submit_next()
            yield item

    def close(self) -> None:
        """Waits for the item that is being made, so that nothing is left open."""
        self.pool.shutdown(cancel_futures=True)
        self.items = iter(())


class BackgroundWorker(Generic[Item]):
    """Work on items, one after the other; whoever hands them over goes on, until so many wait."""

    def __init__(self, work: Callable[[Item], object], max_pending: int) -> None:
        self.work, self.max_pending = work, max_pending
        self.pool = ThreadPoolExecutor(1)
        self.pending: deque[Future[Any]] = deque()

    def __call__(self, item: Item) -> None:
        if len(self.pending) == self.max_pending:
            self.pending.popleft().result()
        self.pending.append(self.pool.submit(self.work, item))

    def finish(self) -> None:
        """Wait until nothing waits."""
        while self.pending:
            self.pending.popleft().result()

    def close(self) -> None:
        self.finish()
        self.pool.shutdown()
