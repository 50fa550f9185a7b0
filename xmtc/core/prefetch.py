"""What a thread of its own does beside the others: items that are made ahead, and work that is done behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class Ahead(Generic[Item]):
    """The same items; making them begins at once, and so many at most wait to be asked for. After `close` no more are
    made."""

    def __init__(self, items: Iterable[Item], most: int) -> None:
        self.items, self.end = iter(items), object()
        self.pool = ThreadPoolExecutor(1)
        self.waiting: deque[Future[Any]] = deque()
        for _ in range(most):
            self._make_one()

    def _make_one(self) -> None:
        self.waiting.append(self.pool.submit(next, self.items, self.end))

    def __iter__(self) -> Iterator[Item]:
        while (item := self.waiting.popleft().result()) is not self.end:
            self._make_one()
            yield item

    def close(self) -> None:
        """Waits for the item that is being made, so that nothing is left open."""
        self.pool.shutdown(cancel_futures=True)
        self.items = iter(())


class Behind(Generic[Item]):
    """Work on items, one after the other; whoever hands them over goes on, until so many wait."""

    def __init__(self, work: Callable[[Item], object], most: int) -> None:
        self.work, self.most = work, most
        self.pool = ThreadPoolExecutor(1)
        self.waiting: deque[Future[Any]] = deque()

    def __call__(self, item: Item) -> None:
        if len(self.waiting) == self.most:
            self.waiting.popleft().result()
        self.waiting.append(self.pool.submit(self.work, item))

    def finish(self) -> None:
        """Wait until nothing waits."""
        while self.waiting:
            self.waiting.popleft().result()

    def close(self) -> None:
        self.finish()
        self.pool.shutdown()
