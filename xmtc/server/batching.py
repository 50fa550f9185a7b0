"""Batching of the texts of many clients. Each model has a thread that takes whatever waits when it is free: the more
clients ask, the larger the batches, and no client waits for a batch to fill. A single client with a question that is
quickly answered is answered in the event loop, because waking a thread would take longer."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Literal, NamedTuple

from xmtc.errors import XmtcError
from xmtc.server.request_errors import busy_error

MAX_BATCH_TEXTS, MAX_BATCH_CHARACTERS = 256, 4_000_000  # of a batch
MAX_SMALL_REQUEST_TEXTS = 32  # of a request that may use the reserve of the queue
MAX_INLINE_SECONDS = 0.003  # seconds for which the event loop may be held
FIXED_COST_CHARACTERS = 2000  # characters of a text that take as long as the fixed cost of an answer


class PredictQuery(NamedTuple):
    """What is asked about texts. Texts with equal questions are answered in one batch."""

    k: int = 5
    threshold: float | Literal["tuned"] = 0.0
    language: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


AnswerFunction = Callable[[list[str], PredictQuery], list[Any]]


@dataclass(eq=False)
class QueuedRequest:
    """One request: texts and a question about them, or other work with the model."""

    future: asyncio.Future[Any]
    texts: Sequence[str]
    query: PredictQuery | None = None
    answer: AnswerFunction | None = None  # of the model at the time of the request, so that no answer mixes two models
    task: Callable[[], Any] | None = None  # instead of a question
    result: Any = None
    n_answered: int = 0  # texts
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        is_answered = self.n_answered >= len(self.texts)
        return is_answered or self.error is not None or self.future.cancelled()


class BatchPart(NamedTuple):
    """The part of a job that fits into a batch; the rest of the job waits for its next turn."""

    request: QueuedRequest
    texts: list[str]


@dataclass
class Batcher:
    """Queue and thread of one model. It must be used from one event loop."""

    answer: AnswerFunction  # of texts with the same question
    max_waiting_texts: int
    observe: Callable[[int], None] = lambda n_texts: None  # called with the size of every batch
    n_queries: int = 0  # questions; counted in the event loop
    n_waiting_texts: int = 0  # texts in the queue or in the thread; counted in the event loop
    seconds_per_character: deque[float] = field(
        default_factory=lambda: deque(maxlen=16)
    )  # seconds for a character, of single texts
    queue: SimpleQueue[QueuedRequest | None] = field(default_factory=SimpleQueue)
    thread: Thread | None = None

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = Thread(target=self._process_queue, name="batches", daemon=True)
        self.thread.start()

    async def stop(self) -> None:
        """Stop the thread after everything in the queue has been answered."""
        self.queue.put(None)
        if self.thread is not None:
            await asyncio.to_thread(self.thread.join)

    async def predict(self, texts: Sequence[str], question: PredictQuery) -> list[Any]:
        answer = self.answer
        self.n_queries += 1
        try:
            await asyncio.sleep(0)  # now all requests that came at the same moment are counted
            if self.n_queries == 1 and not self.n_waiting_texts and self._is_quick(texts, question):
                return self._answer_timed(answer, list(texts), question)
            return await self._enqueue(QueuedRequest(self.loop.create_future(), texts, question, answer))
        finally:
            self.n_queries -= 1

    def _is_quick(self, texts: Sequence[str], question: PredictQuery) -> bool:
        """Return True if the event loop can answer at once, judging by the first answers. Filters can take long."""
        if question.allow or question.deny:
            return False
        length = len(texts) * FIXED_COST_CHARACTERS + sum(map(len, texts))
        return bool(self.seconds_per_character) and length * min(self.seconds_per_character) < MAX_INLINE_SECONDS

    def _answer_timed(self, answer: AnswerFunction, texts: list[str], question: PredictQuery) -> list[Any]:
        begin = time.perf_counter()
        found = answer(texts, question)
        if len(texts) == 1:
            self.seconds_per_character.append((time.perf_counter() - begin) / (FIXED_COST_CHARACTERS + len(texts[0])))
        self.observe(len(texts))
        return found

    async def run_task(self, work: Callable[[], Any]) -> Any:
        """Do other work with the model in its thread."""
        return await self._enqueue(QueuedRequest(self.loop.create_future(), [""], task=work))

    async def _enqueue(self, job: QueuedRequest) -> Any:
        reserve = (
            self.max_waiting_texts // 10 if len(job.texts) <= MAX_SMALL_REQUEST_TEXTS else 0
        )  # large requests do not shut out others
        if self.n_waiting_texts and self.n_waiting_texts + len(job.texts) > self.max_waiting_texts + reserve:
            raise busy_error("Too many texts wait for this model; ask again in a moment.")
        self.n_waiting_texts += len(job.texts)
        self.queue.put(job)
        return await job.future

    def _process_queue(self) -> None:
        is_open = True
        while is_open or not self.queue.empty():
            batch, is_open = self._next_batch(is_open)
            answer_batch([piece for piece in batch if not piece.request.future.cancelled()], self._answer_timed)
            done = []
            for piece in batch:
                if piece.request.is_done:  # looked at once, because a job may be cancelled at any moment
                    done.append(piece.request)
                else:
                    self.queue.put(piece.request)
            if done:
                self.loop.call_soon_threadsafe(self._deliver, done)

    def _next_batch(self, is_open: bool) -> tuple[list[BatchPart], bool]:
        """Return what waits, up to the size of a batch, and whether more may come. Wait for the first job."""
        batch: list[BatchPart] = []
        n_texts = n_characters = 0
        try:
            while n_texts < MAX_BATCH_TEXTS and n_characters < MAX_BATCH_CHARACTERS:
                job = self.queue.get() if is_open and not batch else self.queue.get_nowait()
                if job is None:
                    return batch, False
                texts = take_texts(
                    job.texts, job.n_answered, MAX_BATCH_TEXTS - n_texts, MAX_BATCH_CHARACTERS - n_characters
                )
                batch.append(BatchPart(job, texts))
                n_texts += len(texts)
                n_characters += sum(map(len, texts))
        except Empty:
            pass
        return batch, is_open

    def _deliver(self, jobs: list[QueuedRequest]) -> None:
        for job in jobs:
            self.n_waiting_texts -= len(job.texts)
            if job.future.done():
                continue
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)


def take_texts(texts: Sequence[str], start: int, max_texts: int, max_characters: int) -> list[str]:
    """Return the texts from `begin` on that keep within both limits, but at least one."""
    end = start
    while end < len(texts) and end - start < max_texts and max_characters > 0:
        max_characters -= len(texts[end])
        end += 1
    return list(texts[start:end])


TimedAnswerFunction = Callable[[AnswerFunction, list[str], PredictQuery], list[Any]]


def answer_batch(batch: Sequence[BatchPart], answer: TimedAnswerFunction) -> None:
    """Answer equal questions to the same model together, and do other work by itself."""
    alike: dict[tuple[Any, Any], list[BatchPart]] = {}
    for piece in batch:
        if piece.request.task is not None:
            execute_queued_task(piece.request, piece.request.task)
        else:
            alike.setdefault((piece.request.answer, piece.request.query), []).append(piece)
    for group in alike.values():
        answer_group(group, answer)


def answer_group(group: list[BatchPart], answer: TimedAnswerFunction) -> None:
    first = group[0].request
    assert first.answer is not None
    assert first.query is not None
    try:
        answers = iter(answer(first.answer, [text for piece in group for text in piece.texts], first.query))
        for job, texts in group:
            job.result = [*(job.result or ()), *(next(answers) for _ in texts)]
            job.n_answered += len(texts)
    except XmtcError as error:  # about the question
        for job, _ in group:
            job.error = error
    except Exception as error:  # about one of the texts: the other requests are answered
        if len(group) == 1:
            first.error = error
        else:
            for piece in group:
                answer_group([piece], answer)


def execute_queued_task(job: QueuedRequest, work: Callable[[], Any]) -> None:
    try:
        job.result, job.n_answered = work(), 1
    except Exception as error:  # is answered to the client
        job.error = error
