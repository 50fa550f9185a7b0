"""Review desk of a service: its store, the search over concepts, and estimates of the documents in the queue."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import SpawnProcess
from threading import Lock
from typing import Any

from xmtc.review.concept_search import ConceptSearch
from xmtc.review.estimates import RULE_VERSION, estimate_values
from xmtc.review.store import Person, ReviewStore
from xmtc.review.updating import UpdateTask, start_update_process
from xmtc.server import log
from xmtc.server.models import LoadedModel, ServedModel
from xmtc.server.request_errors import RequestError, busy_error

N_THREADS = 2
MAX_CALLS = 64  # running or queued
ESTIMATE_BATCH = 16  # documents, so that requests wait only briefly for the thread of the model


class Desk:
    """Review desk, shared by all routes of a worker."""

    def __init__(self, path: str) -> None:
        self.store = ReviewStore(path, must_exist=True)
        self.threads = ThreadPoolExecutor(N_THREADS, "desk")
        self.n_calls = 0
        self.searches: dict[str, tuple[LoadedModel, ConceptSearch]] = {}
        self.search_lock = Lock()
        self.estimate_tasks: dict[str, asyncio.Task[None]] = {}
        self.processes: list[SpawnProcess] = []  # running updates

    def find_person(self, token: str) -> Person | None:
        try:
            return self.store.find_person(token)
        except sqlite3.Error:
            raise busy_error("The desk cannot be read; retry in a moment.") from None

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function that uses the store in a thread."""
        if self.n_calls >= MAX_CALLS:
            raise busy_error("Too many requests to the desk are queued; retry in a moment.")
        self.n_calls += 1
        future = self.threads.submit(function, *arguments)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release))
        try:
            return await asyncio.wrap_future(future)
        except sqlite3.Error as error:
            log.write_event("desk failed", **log.describe_exception(error))
            raise busy_error("The desk cannot be read or written; retry in a moment.") from None

    def _release(self) -> None:
        self.n_calls -= 1

    def get_search(self, served: ServedModel) -> ConceptSearch:
        """Return the search over the concepts of a model, built once per model; it takes seconds for a large one."""
        model = served.model
        with self.search_lock:
            if served.name not in self.searches or self.searches[served.name][0] is not model:
                self.searches[served.name] = model, ConceptSearch(model.tagger)
            return self.searches[served.name][1]

    def schedule_estimates(self, served: ServedModel) -> None:
        """Estimate documents of the queue in the background until all have the values of the served model."""
        task = self.estimate_tasks.get(served.name)
        if task is None or task.done():
            self.estimate_tasks[served.name] = asyncio.create_task(self._estimate(served))

    async def _estimate(self, served: ServedModel) -> None:
        try:
            while await self._estimate_batch(served):
                await asyncio.sleep(0)
        except RequestError:  # busy: the next request goes on
            return
        except Exception as error:
            log.write_event("estimates failed", model=served.name, **log.describe_exception(error))

    async def _estimate_batch(self, served: ServedModel) -> bool:
        model = served.model
        version = f"{model.facts['version']}/{RULE_VERSION}"
        documents = await self.run(self.store.list_stale, served.name, version, ESTIMATE_BATCH)
        if not documents:
            return False
        texts = [document.text for document in documents]
        values = await served.batcher.run_task(lambda: estimate_values(model.tagger, texts, model.run))
        rows = [
            (document.number, value.uncertainty, value.disagreement, value.rare)
            for document, value in zip(documents, values, strict=True)
        ]
        await self.run(self.store.save_estimates, version, rows)
        return True

    def start_update(self, served: ServedModel, person: Person) -> int:
        """Start an update in a child process and return its number."""
        number = self.store.start_update(served.name, person.name)
        run = served.model.run
        task = UpdateTask(str(self.store.path), served.name, served.folder, number, run.threads, run.device)
        self.processes = [process for process in self.processes if process.is_alive()]
        self.processes.append(start_update_process(task))
        return number

    def close(self) -> None:
        """Stop updates, estimates and threads."""
        for task in self.estimate_tasks.values():
            task.cancel()
        for process in self.processes:
            if process.is_alive():
                process.terminate()
            process.join()
        self.threads.shutdown(cancel_futures=True)
        self.store.close()
