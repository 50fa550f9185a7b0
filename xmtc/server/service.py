"""State shared by all routes: models, limits, threads and child processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request

from xmtc.core.child_process import GIB, MIB, ChildPool, ChildTaskError, TaskLimits
from xmtc.server import messages
from xmtc.server.batching import PredictQuery
from xmtc.server.desk import Desk
from xmtc.server.files import PRELOADED_MODULES
from xmtc.server.metrics import Metrics
from xmtc.server.models import ModelPool, ServedModel
from xmtc.server.request_errors import RequestError, busy_error, unknown_model_error
from xmtc.server.request_memory import ACCOUNT_KEY, MemoryBudget, RequestMemory
from xmtc.server.settings import MAX_ANSWER_LABELS, Settings
from xmtc.vocabulary.label_filters import FILE_ENTRY

N_THREADS = 2  # for searches, and likewise for files
MAX_SEARCHES, MAX_FILES = 32, 8  # running or queued
MAX_FILE_MEMORY_BYTES, MAX_FILE_OUTPUT_BYTES = GIB, 64 * MIB  # of a child process that reads or writes a file
BODY_MEMORY_FACTOR, FILE_MEMORY_FACTOR = 8, 4  # memory for all bodies, in maximum request and file output sizes
FILE_NICENESS = 10  # parsing a file has a lower priority than predicting


class Service:
    """State shared by all routes."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.memory = MemoryBudget(
            max(BODY_MEMORY_FACTOR * settings.limits.body, FILE_MEMORY_FACTOR * MAX_FILE_OUTPUT_BYTES)
        )
        self.models = ModelPool(settings, self.metrics)
        self.desk = None if settings.desk is None else Desk(settings.desk)
        self.threads = ThreadPoolExecutor(N_THREADS, "searches")
        self.n_searches = 0
        self.file_threads = ThreadPoolExecutor(N_THREADS, "files")  # each thread waits for a child process
        self.file_turns = asyncio.Semaphore(N_THREADS)
        self.n_files = 0
        self.children = ChildPool(PRELOADED_MODULES, idle_seconds=0, max_idle=N_THREADS, niceness=FILE_NICENESS)

    def find_model(self, name: str, request: Request, n_texts: int | None = None) -> ServedModel:
        """Return a model, and record it for the request log. Raise RequestError if it is unknown or damaged."""
        served = self.models.by_name.get(name)
        if served is None:
            raise unknown_model_error(name, self.models.by_name)
        served.model  # noqa: B018  # raises RequestError if the model is damaged
        request.scope["xmtc"] = {"model": name} | ({} if n_texts is None else {"texts": n_texts})
        return served

    async def run_in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a short function in a thread."""
        if self.n_searches >= MAX_SEARCHES:
            raise busy_error("Too many searches are queued; retry in a moment.")
        self.n_searches += 1
        future = self.threads.submit(function, *arguments)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release_search))
        return await asyncio.wrap_future(future)

    def _release_search(self) -> None:
        self.n_searches -= 1

    async def run_in_child(self, http_request: Request, task: str, request: Any, content: Callable[[], bytes]) -> bytes:
        """Run a task of xmtc/server/files.py in a child process, which is killed if the request ends first.

        Memory for the largest output is reserved before the task starts.
        """
        if self.n_files >= MAX_FILES:
            raise busy_error("Too many files are queued; retry in a moment.")
        self.n_files += 1
        account: RequestMemory = http_request.scope[ACCOUNT_KEY]
        try:
            await self.file_turns.acquire()
            try:
                account.reserve_answer(MAX_FILE_OUTPUT_BYTES)
            except RequestError:
                self.file_turns.release()
                raise
        except BaseException:
            self.n_files -= 1
            raise
        limits = TaskLimits(MAX_FILE_MEMORY_BYTES, self.settings.limits.seconds, MAX_FILE_OUTPUT_BYTES)
        job = self.children.create_task(task, request, lambda: (content(),), limits)
        future = self.file_threads.submit(lambda: list(job.run()))
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release_file))
        try:
            (value,) = await asyncio.wrap_future(future)
        except ChildTaskError as error:
            raise RequestError(422, f"The file cannot be processed: {error}.") from None
        except asyncio.CancelledError:
            job.kill()
            raise
        if isinstance(value, bytes):
            account.shrink_answer(len(value))
            return value
        status, message = value
        raise RequestError(status, message)

    def _release_file(self) -> None:
        self.n_files -= 1
        self.file_turns.release()

    def start(self) -> None:
        """Start a child process before the first file arrives."""
        self.children.warm_up()

    def stop(self) -> None:
        """Stop threads and child processes."""
        for threads in (self.threads, self.file_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        self.children.close()
        if self.desk is not None:
            self.desk.close()

    def build_query(self, body: messages.PredictRequest) -> PredictQuery:
        if body.k > self.settings.limits.k:
            raise RequestError(422, f"Found k={body.k}, expected {self.settings.limits.k:,} labels at most.")
        check_filter_entries((*body.allow, *body.deny))
        return PredictQuery(body.k, body.threshold or 0.0, body.language, tuple(body.allow), tuple(body.deny))

    def check_answer(self, n_texts: int, k: int) -> None:
        """Raise RequestError if the response would be too large."""
        if n_texts * k > MAX_ANSWER_LABELS:
            raise RequestError(
                413,
                f"Found {n_texts:,} texts with {k:,} labels each, expected {MAX_ANSWER_LABELS:,} labels in all at "
                f"most; send fewer texts, or ask for fewer labels.",
            )

    def check_texts(self, texts: list[str]) -> list[str]:
        """Return the texts. Raise RequestError if they are too many or too long."""
        limits = self.settings.limits
        if len(texts) > limits.texts:
            raise RequestError(
                413, f"Found {len(texts):,} texts, expected {limits.texts:,} at most; send them in parts."
            )
        longest = max(map(len, texts), default=0)
        if longest > limits.text:
            raise RequestError(
                413, f"Found a text of {longest:,} characters, expected {limits.text:,} at most; shorten it."
            )
        return texts


def check_filter_entries(entries: Iterable[str]) -> None:
    """Raise RequestError if an entry of a filter names a file of the server."""
    if any(entry.strip().startswith(f"{FILE_ENTRY}:") for entry in entries):
        raise RequestError(422, f"`{FILE_ENTRY}:` entries are not allowed in requests; send the labels themselves.")
