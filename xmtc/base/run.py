"""What may differ between machines without changing the answer: threads, device, progress, where to resume."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Protocol, TypeVar

from xmtc.base.checkpoint import Checkpoint
from xmtc.base.threads import available_threads

Item = TypeVar("Item")
Result = TypeVar("Result")


class Progress(Protocol):
    """Shows how far a long piece of work has come."""

    def advance(self, steps: float = 1) -> None: ...

    def tell(self, news: str) -> None: ...


class Silence:
    """The Progress that shows nothing."""

    def advance(self, steps: float = 1) -> None:
        return None

    def tell(self, news: str) -> None:
        return None


ShowProgress = Callable[..., AbstractContextManager[Progress]]  # (title, total) → what is told of the progress


def silent(title: str, total: float | None = None) -> AbstractContextManager[Progress]:
    return nullcontext(Silence())


@dataclass(frozen=True)
class Run:
    """Where and how to work; never what to compute."""

    threads: int = 0  # at most; 0: as many as there are when the work begins, see `n_threads`
    progress: ShowProgress = silent
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    device: str = "auto"  # of networks: cpu, cuda, cuda:1 ...; auto takes a GPU if there is one

    @property
    def n_threads(self) -> int:
        """Threads to work with. Not found before they are needed: a Run() may stand in a signature."""
        return max(1, self.threads or available_threads())

    def quiet(self) -> Run:
        """The same without progress, for work within work that shows its own."""
        return replace(self, progress=silent)

    def map(
        self,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        title: str,
        size: Callable[[Item], float] = lambda item: 1,
        total: float | None = None,
    ) -> Iterator[Result]:
        """`work` on every item by all threads; answers come in the order of the items, which may be a stream: only a
        few are ever held. The work must release the GIL, as compiled kernels do."""
        stream = iter(items)
        first = list(islice(stream, 2))
        if len(first) < 2:  # one document to tag: starting threads would cost more
            yield from (work(item) for item in first)
            return
        n_threads = self.n_threads
        with self.progress(title, total) as progress, ThreadPoolExecutor(n_threads) as pool:
            waiting: list[tuple[Future[Result], float]] = []
            try:
                for item in chain(first, stream):
                    waiting.append((pool.submit(work, item), size(item)))
                    if len(waiting) > 2 * n_threads:
                        yield finish(waiting.pop(0), progress)
                while waiting:
                    yield finish(waiting.pop(0), progress)
            finally:
                for future, _ in waiting:
                    future.cancel()


def finish(job: tuple[Future[Result], float], progress: Progress) -> Result:
    future, steps = job
    result = future.result()
    progress.advance(steps)
    return result
