"""Dynamic batching of the texts of concurrent requests.

Each model has a thread that takes all queued texts when it is idle: the more clients, the larger the batches, and no
request waits for a batch to fill. A single small request is answered in the event loop, because waking the thread would
take longer."""

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

MAX_BATCH_TEXTS, MAX_BATCH_CHARACTERS = 256, 4_000_000
MAX_SMALL_REQUEST_TEXTS = 32  # requests up to this size may use the reserve of the queue
MAX_INLINE_SECONDS = 0.003  # estimated time up to which a request is answered in the event loop
FIXED_COST_CHARACTERS = 2000  # fixed cost of an answer, as a number of characters that take as long


class PredictQuery(NamedTuple):
    """Parameters of a prediction. Texts with equal parameters are answered in one batch."""

    k: int = 5
    threshold: float | Literal["tuned"] = 0.0
    language: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    is_document: bool = True  # False for names, which are not compared with the documents of the training


AnswerFunction = Callable[[list[str], PredictQuery], list[Any]]


@dataclass(eq=False)
class QueuedRequest:
    """One request: texts with a query, or another task with the model."""

    future: asyncio.Future[Any]
    texts: Sequence[str]
    query: PredictQuery | None = None
    answer: AnswerFunction | None = None  # bound at the time of the request: no answer mixes two models
    task: Callable[[], Any] | None = None  # instead of a query
    result: Any = None
    n_answered: int = 0  # texts answered so far
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        is_answered = self.n_answered >= len(self.texts)
        return is_answered or self.error is not None or self.future.cancelled()


class BatchPart(NamedTuple):
    """The texts of a request that fit into a batch; the remaining texts are queued again."""

    request: QueuedRequest
    texts: list[str]


@dataclass
class Batcher:
    """Queue and thread of one model; to be used from one event loop."""

    answer: AnswerFunction  # for texts with the same query
    max_waiting_texts: int
    observe: Callable[[int], None] = lambda n_texts: None  # called with the size of every batch
    max_batch_texts: int = MAX_BATCH_TEXTS
    n_queries: int = 0  # running calls of predict; changed only in the event loop
    n_waiting_texts: int = 0  # texts in the queue or in the thread; changed only in the event loop
    seconds_per_character: deque[float] = field(default_factory=lambda: deque(maxlen=16))  # of requests with one text
    queue: SimpleQueue[QueuedRequest | None] = field(default_factory=SimpleQueue)
    thread: Thread | None = None

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = Thread(target=self._process_queue, name="batches", daemon=True)
        self.thread.start()

    async def stop(self) -> None:
        """Stop the thread when all queued requests are answered."""
        self.queue.put(None)
        if self.thread is not None:
            await asyncio.to_thread(self.thread.join)

    async def predict(self, texts: Sequence[str], query: PredictQuery) -> list[Any]:
        answer = self.answer
        self.n_queries += 1
        try:
            await asyncio.sleep(0)  # lets simultaneous requests increment n_queries first
            if self.n_queries == 1 and not self.n_waiting_texts and self._is_quick(texts, query):
                return self._answer_timed(answer, list(texts), query)
            return await self._enqueue(QueuedRequest(self.loop.create_future(), texts, query, answer))
        finally:
            self.n_queries -= 1

    def _is_quick(self, texts: Sequence[str], query: PredictQuery) -> bool:
        """Return True if earlier answers predict that the event loop can answer at once. Filters may be slow."""
        if query.allow or query.deny:
            return False
        length = len(texts) * FIXED_COST_CHARACTERS + sum(map(len, texts))
        return bool(self.seconds_per_character) and length * min(self.seconds_per_character) < MAX_INLINE_SECONDS

    def _answer_timed(self, answer: AnswerFunction, texts: list[str], query: PredictQuery) -> list[Any]:
        start = time.perf_counter()
        results = answer(texts, query)
        if len(texts) == 1:
            self.seconds_per_character.append((time.perf_counter() - start) / (FIXED_COST_CHARACTERS + len(texts[0])))
        self.observe(len(texts))
        return results

    async def run_task(self, task: Callable[[], Any]) -> Any:
        """Run another task with the model in its thread."""
        return await self._enqueue(QueuedRequest(self.loop.create_future(), [""], task=task))

    async def _enqueue(self, request: QueuedRequest) -> Any:
        # Small requests may exceed the limit by a tenth, so that large requests do not shut them out.
        reserve = self.max_waiting_texts // 10 if len(request.texts) <= MAX_SMALL_REQUEST_TEXTS else 0
        if self.n_waiting_texts and self.n_waiting_texts + len(request.texts) > self.max_waiting_texts + reserve:
            raise busy_error("Too many texts are queued for this model; retry in a moment.")
        self.n_waiting_texts += len(request.texts)
        self.queue.put(request)
        return await request.future

    def _process_queue(self) -> None:
        is_open = True
        while is_open or not self.queue.empty():
            batch, is_open = self._next_batch(is_open)
            answer_batch([part for part in batch if not part.request.future.cancelled()], self._answer_timed)
            done = []
            for part in batch:
                if part.request.is_done:  # evaluated once, because the client may cancel at any moment
                    done.append(part.request)
                else:
                    self.queue.put(part.request)
            if done:
                self.loop.call_soon_threadsafe(self._deliver, done)

    def _next_batch(self, is_open: bool) -> tuple[list[BatchPart], bool]:
        """Wait for a request; return the queued requests up to the batch size, and False if the queue was closed."""
        batch: list[BatchPart] = []
        n_texts = n_characters = 0
        try:
            while n_texts < self.max_batch_texts and n_characters < MAX_BATCH_CHARACTERS:
                request = self.queue.get() if is_open and not batch else self.queue.get_nowait()
                if request is None:
                    return batch, False
                texts = take_texts(
                    request.texts,
                    request.n_answered,
                    self.max_batch_texts - n_texts,
                    MAX_BATCH_CHARACTERS - n_characters,
                )
                batch.append(BatchPart(request, texts))
                n_texts += len(texts)
                n_characters += sum(map(len, texts))
        except Empty:
            pass
        return batch, is_open

    def _deliver(self, requests: list[QueuedRequest]) -> None:
        for request in requests:
            self.n_waiting_texts -= len(request.texts)
            if request.future.done():
                continue
            if request.error is not None:
                request.future.set_exception(request.error)
            else:
                request.future.set_result(request.result)


def take_texts(texts: Sequence[str], start: int, max_texts: int, max_characters: int) -> list[str]:
    """Return the texts from index `start` that fit both limits."""
    end = start
    while end < len(texts) and end - start < max_texts and max_characters > 0:
        max_characters -= len(texts[end])
        end += 1
    return list(texts[start:end])


TimedAnswerFunction = Callable[[AnswerFunction, list[str], PredictQuery], list[Any]]


def answer_batch(batch: Sequence[BatchPart], answer: TimedAnswerFunction) -> None:
    """Answer equal queries of the same model in one call, and run other tasks one by one."""
    groups: dict[tuple[Any, Any], list[BatchPart]] = {}
    for part in batch:
        if part.request.task is not None:
            execute_queued_task(part.request, part.request.task)
        else:
            groups.setdefault((part.request.answer, part.request.query), []).append(part)
    for group in groups.values():
        answer_group(group, answer)


def answer_group(group: list[BatchPart], answer: TimedAnswerFunction) -> None:
    first = group[0].request
    assert first.answer is not None
    assert first.query is not None
    try:
        answers = iter(answer(first.answer, [text for part in group for text in part.texts], first.query))
        for request, texts in group:
            request.result = [*(request.result or ()), *(next(answers) for _ in texts)]
            request.n_answered += len(texts)
    except XmtcError as error:  # caused by the query
        for request, _ in group:
            request.error = error
    except Exception as error:  # caused by one text: the other requests are answered one by one
        if len(group) == 1:
            first.error = error
        else:
            for part in group:
                answer_group([part], answer)


def execute_queued_task(request: QueuedRequest, task: Callable[[], Any]) -> None:
    try:
        request.result, request.n_answered = task(), 1
    except Exception as error:  # raised again where the client waits
        request.error = error
