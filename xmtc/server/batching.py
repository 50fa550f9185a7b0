"""Joins what many clients ask at once. A thread for each model takes whatever waits when it is free: the more come, the
larger the batches, and nobody waits for others to come. Who comes alone, with a question that is quickly answered, is
answered on the spot: to wake a thread would take longer. A network, which one thread at a time may ask, is asked so."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from xmtc.errors import XmtcError
from xmtc.server.refusals import busy

MOST_TEXTS, MOST_CHARACTERS = 256, 4_000_000  # of a batch
ON_THE_SPOT = 0.003  # seconds for which the event loop may be held
BESIDE = 2000  # characters that a text would have to have to take as long as what an answer takes in any case


class Question(NamedTuple):
    """What is wanted of texts. Only what is asked alike is answered together."""

    k: int = 5
    threshold: float = 0.0
    decide: bool = False
    language: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(eq=False)
class Job:
    future: asyncio.Future[Any]
    texts: Sequence[str]
    question: Question | None = None
    work: Callable[[], Any] | None = None  # instead of a question
    answer: Any = None
    error: Exception | None = None


Answer = Callable[[list[str], Question], list[Any]]


@dataclass
class Batcher:
    """Must be used from one event loop; the work is done in its thread."""

    answer: Answer  # of texts that are asked about alike
    most_waiting: int
    observe: Callable[[int], None] = lambda n_texts: None  # told the size of every batch
    n_asking: int = 0  # questions; counted in the event loop
    n_waiting: int = 0  # texts in the queue or in its thread's work; counted in the event loop
    paces: deque[float] = field(default_factory=lambda: deque(maxlen=16))  # seconds for a character, of single texts
    queue: SimpleQueue[Job | None] = field(default_factory=SimpleQueue)
    thread: Thread | None = None

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = Thread(target=self._work, name="batches", daemon=True)
        self.thread.start()

    async def stop(self) -> None:
        """After what waits has been answered."""
        self.queue.put(None)
        if self.thread is not None:
            await asyncio.to_thread(self.thread.join)

    async def ask(self, texts: Sequence[str], question: Question) -> list[Any]:
        self.n_asking += 1
        try:
            await asyncio.sleep(0)  # now those are counted, too, who came at the same moment
            if self.n_asking == 1 and not self.n_waiting and self._is_quick(texts):
                return self._timed(list(texts), question)
            return await self._queued(Job(self.loop.create_future(), texts, question))
        finally:
            self.n_asking -= 1

    def _is_quick(self, texts: Sequence[str]) -> bool:
        """Whether an answer can be had on the spot; the first ones tell how long they take."""
        length = len(texts) * BESIDE + sum(map(len, texts))
        return bool(self.paces) and length * min(self.paces) < ON_THE_SPOT

    def _timed(self, texts: list[str], question: Question) -> list[Any]:
        begin = time.perf_counter()
        found = self.answer(texts, question)
        if len(texts) == 1:
            self.paces.append((time.perf_counter() - begin) / (BESIDE + len(texts[0])))
        self.observe(len(texts))
        return found

    async def run(self, work: Callable[[], Any]) -> Any:
        """Other work with the model, in its turn."""
        return await self._queued(Job(self.loop.create_future(), [""], work=work))

    async def _queued(self, job: Job) -> Any:
        if self.n_waiting and self.n_waiting + len(job.texts) > self.most_waiting:
            raise busy("Too many texts wait for this model; ask again in a moment.")
        self.n_waiting += len(job.texts)
        self.queue.put(job)
        return await job.future

    def _work(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._next_batch()
            asked = [job for job in batch if not job.future.cancelled()]  # else by clients that left
            answer_all(asked, self._timed)
            if batch:
                self.loop.call_soon_threadsafe(self._deliver, batch)

    def _next_batch(self) -> tuple[list[Job], bool]:
        """What waits, up to a size, and whether there will be more; the first is waited for."""
        batch: list[Job] = []
        n_texts = n_characters = 0
        try:
            while n_texts < MOST_TEXTS and n_characters < MOST_CHARACTERS:
                job = self.queue.get_nowait() if batch else self.queue.get()
                if job is None:
                    return batch, False
                batch.append(job)
                n_texts += len(job.texts)
                n_characters += sum(map(len, job.texts))
        except Empty:
            pass
        return batch, True

    def _deliver(self, batch: list[Job]) -> None:
        for job in batch:
            self.n_waiting -= len(job.texts)
            if job.future.done():
                continue
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.answer)


def answer_all(jobs: Sequence[Job], answer: Answer) -> None:
    """Questions that are alike are answered together; other work by itself."""
    alike: dict[Question, list[Job]] = {}
    for job in jobs:
        if job.question is None:
            try_to(job, job.work)
        else:
            alike.setdefault(job.question, []).append(job)
    for question, group in alike.items():
        answer_together(group, question, answer)


def answer_together(group: list[Job], question: Question, answer: Answer) -> None:
    if len(group) == 1:
        try_to(group[0], lambda: answer(list(group[0].texts), question))
        return
    try:
        answers = iter(answer([text for job in group for text in job.texts], question))
        for job in group:
            job.answer = [next(answers) for _ in job.texts]
    except XmtcError as error:  # about the question
        for job in group:
            job.error = error
    except Exception:  # about one of the texts: the others' askers are not to suffer
        for job in group:
            answer_together([job], question, answer)


def try_to(job: Job, work: Callable[[], Any] | None) -> None:
    try:
        job.answer = None if work is None else work()
    except Exception as error:  # it is the asker's to hear of
        job.error = error
