"""State that all routes of a service share: models, limits, threads and child processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request

from xmtc.core.child_process import GIB, MIB, ChildTaskError, ChildPool, TaskLimits
from xmtc.server import messages
from xmtc.server.batching import Question
from xmtc.server.files import PRELOAD
from xmtc.server.memory import ACCOUNT, Account, Memory
from xmtc.server.metrics import Metrics
from xmtc.server.models import Models, Served
from xmtc.server.refusals import Refused, busy, unknown_model
from xmtc.server.settings import MAX_ANSWER_LABELS, Settings
from xmtc.vocabulary.label_filters import FILE

IN_THREADS, MAX_SEARCHES, MAX_FILES = 2, 32, 8  # at a time in threads; searches and files that may run or wait
FILE_MEMORY, FILE_OUTPUT = GIB, 64 * MIB  # bytes that reading an uploaded file may take, and may give
ALL_BODIES = 8  # times the largest request, or 4 times the largest output of a file: memory for requests and answers
FILE_NICENESS = 10  # parsing a file gives way to answers


class Service:
    """State that all routes share."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.memory = Memory(max(ALL_BODIES * settings.limits.body, 4 * FILE_OUTPUT))
        self.models = Models(settings, self.metrics)
        self.threads = ThreadPoolExecutor(IN_THREADS, "searches")
        self.n_in_threads = 0
        self.file_threads = ThreadPoolExecutor(IN_THREADS, "files")  # each waits for a child process
        self.file_turns = asyncio.Semaphore(IN_THREADS)
        self.n_files = 0
        self.children = ChildPool(PRELOAD, idle_seconds=0, max_idle=IN_THREADS, niceness=FILE_NICENESS)

    def on_start(self) -> None:
        """Do nothing; a process of its own sets another function, which is called when all models are open."""

    def served(self, name: str, request: Request, n_texts: int | None = None) -> Served:
        found = self.models.served.get(name)
        if found is None:
            raise unknown_model(name, self.models.served)
        found.opened  # noqa: B018  # raises Refused if the model is damaged
        request.scope["xmtc"] = {"model": name} | ({} if n_texts is None else {"texts": n_texts})
        return found

    async def in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run short work in a thread."""
        if self.n_in_threads >= MAX_SEARCHES:
            raise busy("Too many searches wait here; send it again in a moment.")
        self.n_in_threads += 1
        future = self.threads.submit(work, *arguments)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._left_thread))
        return await asyncio.wrap_future(future)

    def _left_thread(self) -> None:
        self.n_in_threads -= 1

    async def in_child(self, asked: Request, task: str, request: Any, content: Callable[[], bytes]) -> bytes:
        """Run a task of xmtc/server/files.py in a child process, which is killed when the request ends before it.

        Room for the largest output is reserved before the task begins."""
        if self.n_files >= MAX_FILES:
            raise busy("Too many files wait here; send it again in a moment.")
        self.n_files += 1
        account: Account = asked.scope[ACCOUNT]
        try:
            await self.file_turns.acquire()
            try:
                account.reserve_answer(FILE_OUTPUT)
            except Refused:
                self.file_turns.release()
                raise
        except BaseException:
            self.n_files -= 1
            raise
        limits = TaskLimits(FILE_MEMORY, self.settings.limits.seconds, FILE_OUTPUT)
        job = self.children.create_task(task, request, lambda: (content(),), limits)
        future = self.file_threads.submit(lambda: list(job.run()))
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._left_child))
        try:
            (value,) = await asyncio.wrap_future(future)
        except ChildTaskError as problem:
            raise Refused(422, f"The file cannot be used: {problem}.") from None
        except asyncio.CancelledError:
            job.kill()
            raise
        if isinstance(value, bytes):
            account.shrink_answer(len(value))
            return value
        status, message = value
        raise Refused(status, message)

    def _left_child(self) -> None:
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

    def question(self, asked: messages.Asked) -> Question:
        if asked.k > self.settings.limits.k:
            raise Refused(422, f"k={asked.k} is more than {self.settings.limits.k:,} labels, the most here.")
        if any(entry.strip().startswith(f"{FILE}:") for entry in (*asked.allow, *asked.deny)):
            raise Refused(422, "Files of this machine cannot be named from outside; send the labels themselves.")
        return Question(
            asked.k, asked.threshold or 0.0, asked.decide, asked.language, tuple(asked.allow), tuple(asked.deny)
        )

    def check_answer(self, n_texts: int, k: int) -> None:
        """Raise Refused if an answer would be too large."""
        if n_texts * k > MAX_ANSWER_LABELS:
            raise Refused(
                413,
                f"Found {n_texts:,} texts with {k:,} labels each, expected {MAX_ANSWER_LABELS:,} labels in all at "
                f"most; send fewer texts, or ask for fewer labels.",
            )

    def check_texts(self, texts: list[str]) -> list[str]:
        limits = self.settings.limits
        if len(texts) > limits.texts:
            raise Refused(413, f"Found {len(texts):,} texts, expected {limits.texts:,} at most; send them in parts.")
        longest = max(map(len, texts), default=0)
        if longest > limits.text:
            raise Refused(413, f"Found a text of {longest:,} characters, expected {limits.text:,} at most; shorten it.")
        return texts
