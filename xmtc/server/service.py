"""State that all routes of a service share: models, limits, threads and child processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request

from xmtc.core.child_process import GIB, MIB, ChildPool, ChildTaskError, TaskLimits
from xmtc.server import messages
from xmtc.server.batching import PredictQuery
from xmtc.server.files import PRELOADED_MODULES
from xmtc.server.metrics import Metrics
from xmtc.server.models import ModelPool, ServedModel
from xmtc.server.request_errors import RequestError, busy_error, unknown_model_error
from xmtc.server.request_memory import ACCOUNT_KEY, MemoryBudget, RequestMemory
from xmtc.server.settings import MAX_ANSWER_LABELS, Settings
from xmtc.vocabulary.label_filters import FILE_ENTRY

N_THREADS, MAX_SEARCHES, MAX_FILES = 2, 32, 8  # at a time in threads; searches and files that may run or wait
MAX_FILE_MEMORY_BYTES, MAX_FILE_OUTPUT_BYTES = (
    GIB,
    64 * MIB,
)  # bytes that reading an uploaded file may take, and may give
BODY_MEMORY_FACTOR = (
    8  # times the largest request, or 4 times the largest output of a file: memory for requests and answers
)
FILE_NICENESS = 10  # parsing a file gives way to answers


class Service:
    """State that all routes share."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.memory = MemoryBudget(max(BODY_MEMORY_FACTOR * settings.limits.body, 4 * MAX_FILE_OUTPUT_BYTES))
        self.models = ModelPool(settings, self.metrics)
        self.threads = ThreadPoolExecutor(N_THREADS, "searches")
        self.n_searches = 0
        self.file_threads = ThreadPoolExecutor(N_THREADS, "files")  # each waits for a child process
        self.file_turns = asyncio.Semaphore(N_THREADS)
        self.n_files = 0
        self.children = ChildPool(PRELOADED_MODULES, idle_seconds=0, max_idle=N_THREADS, niceness=FILE_NICENESS)

    def on_start(self) -> None:
        """Do nothing; a process of its own sets another function, which is called when all models are open."""

    def find_model(self, name: str, request: Request, n_texts: int | None = None) -> ServedModel:
        found = self.models.by_name.get(name)
        if found is None:
            raise unknown_model_error(name, self.models.by_name)
        found.model  # noqa: B018  # raises Refused if the model is damaged
        request.scope["xmtc"] = {"model": name} | ({} if n_texts is None else {"texts": n_texts})
        return found

    async def run_in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run short work in a thread."""
        if self.n_searches >= MAX_SEARCHES:
            raise busy_error("Too many searches wait here; send it again in a moment.")
        self.n_searches += 1
        future = self.threads.submit(work, *arguments)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release_search))
        return await asyncio.wrap_future(future)

    def _release_search(self) -> None:
        self.n_searches -= 1

    async def run_in_child(self, http_request: Request, task: str, request: Any, content: Callable[[], bytes]) -> bytes:
        """Run a task of xmtc/server/files.py in a child process, which is killed when the request ends before it.

        Room for the largest output is reserved before the task begins."""
        if self.n_files >= MAX_FILES:
            raise busy_error("Too many files wait here; send it again in a moment.")
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
        except ChildTaskError as problem:
            raise RequestError(422, f"The file cannot be used: {problem}.") from None
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
        """Start a child process ahead of the first file."""
        self.children.warm_up()

    def stop(self) -> None:
        """End threads and child processes."""
        for threads in (self.threads, self.file_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        self.children.close()

    def build_query(self, asked: messages.PredictRequest) -> PredictQuery:
        if asked.k > self.settings.limits.k:
            raise RequestError(422, f"k={asked.k} is more than {self.settings.limits.k:,} labels, the most here.")
        if any(entry.strip().startswith(f"{FILE_ENTRY}:") for entry in (*asked.allow, *asked.deny)):
            raise RequestError(422, "Files of this machine cannot be named from outside; send the labels themselves.")
        return PredictQuery(asked.k, asked.threshold or 0.0, asked.language, tuple(asked.allow), tuple(asked.deny))

    def check_answer(self, n_texts: int, k: int) -> None:
        """Raise Refused if an answer would be too large."""
        if n_texts * k > MAX_ANSWER_LABELS:
            raise RequestError(
                413,
                f"Found {n_texts:,} texts with {k:,} labels each, expected {MAX_ANSWER_LABELS:,} labels in all at "
                f"most; send fewer texts, or ask for fewer labels.",
            )

    def check_texts(self, texts: list[str]) -> list[str]:
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
