"""What the addresses of a service share: the models, the limits, and threads for what is no model's work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request

from xmtc.server import messages
from xmtc.server.batching import Question
from xmtc.server.metrics import Metrics
from xmtc.server.models import Models, Served
from xmtc.server.refusals import Refused, busy, unknown_model
from xmtc.server.settings import MAX_ANSWER_LABELS, Settings
from xmtc.vocab.filters import FILE

IN_THREADS, WAITING_FOR_THREADS = 2, 32  # files and searches at a time, and that may wait


class Service:
    """What the addresses share."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.models = Models(settings, self.metrics)
        self.threads = ThreadPoolExecutor(IN_THREADS, "files")
        self.n_in_threads = 0

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
        """Work beside the models. One that takes too long is left alone: its asker does not wait any more."""
        if self.n_in_threads >= WAITING_FOR_THREADS:
            raise busy("Too many files wait here; send it again in a moment.")
        self.n_in_threads += 1
        future = self.threads.submit(work, *arguments)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._left_thread))
        return await asyncio.wrap_future(future)

    def _left_thread(self) -> None:
        self.n_in_threads -= 1

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
