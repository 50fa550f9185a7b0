"""The models that are served, and how a new one takes the place of an old one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xmtc.base.folders import Stamp, stamp_of
from xmtc.base.regular_files import is_regular, read_regular
from xmtc.base.run import Run
from xmtc.errors import XmtcError
from xmtc.features import COLUMNS
from xmtc.server import log
from xmtc.server.batching import Batcher, Question
from xmtc.server.settings import Settings
from xmtc.tagger import Tag, Tagger

if TYPE_CHECKING:
    from xmtc.server.metrics import Metrics

APART = 4  # of a name that does not hold what is searched for
PROBABILITIES = "probabilities"  # what about.json says that calibrated scores are
REPORT = "report.html"  # in the folder of a model
MAX_REPORT_BYTES = 2**28


@dataclass(frozen=True)
class Opened:
    """A model that has been looked through and can answer."""

    tagger: Tagger
    run: Run
    stamp: Stamp

    @classmethod
    def load(cls, folder: str, run: Run) -> Opened:
        """Open and check a model, and have it answer once, so that no client waits for that."""
        stamp = stamp_of(folder)
        opened = cls(Tagger.load(folder, verify=True), run, stamp)
        if not opened.reads_texts:
            raise XmtcError(f"{folder} was trained on features without words; only models of texts can be served.")
        opened.answer([opened.known_text()], Question(k=1))
        return opened

    @property
    def reads_texts(self) -> bool:
        return all(view.made_from != COLUMNS for view in self.tagger.views.values())

    def known_text(self) -> str:
        view = next(iter(self.tagger.views.values()))
        return " ".join(view.term(number) for number in range(min(view.size, 10)))

    def answer(self, texts: list[str], question: Question) -> list[list[Tag]]:
        return self.tagger.tags(
            texts,
            min(question.k, len(self.tagger.labels)),
            question.threshold,
            self.run,
            language=question.language,
            allow=question.allow,
            deny=question.deny,
            decide=question.decide,
        )

    @property
    def languages(self) -> list[str]:
        concepts = self.tagger.concepts
        return [] if concepts is None else [language for language in concepts.vocabulary.languages if language]

    @cached_property
    def names(self) -> list[tuple[str, ...]]:
        """Of each label, all that it is called, itself first; for a search."""
        tagger = self.tagger
        found: list[tuple[str, ...]] = [(label,) for label in tagger.labels.words()]
        if tagger.concepts is None:
            return found
        vocabulary, concepts = tagger.concepts.vocabulary, tagger.concepts.concepts.tolist()
        called = [[name.text for name in vocabulary.names(concept)] if concept >= 0 else [] for concept in concepts]
        return [tuple(dict.fromkeys((*label, *names))) for label, names in zip(found, called, strict=True)]

    def search(self, search: str, language: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
        """Labels that are called so, then those that begin so, then those that hold it."""
        wanted, best = search.casefold().strip(), []
        for number, names in enumerate(self.names):
            distance = min(distance_between(wanted, name.casefold()) for name in names)
            if distance < APART:
                best.append((distance, number))
        found = []
        for _, number in nsmallest(limit, best):
            label = self.tagger.labels[number]
            name = self.tagger.name(label, language) or label
            others = [each for each in self.names[number] if each != name and wanted in each.casefold()]
            found.append({"label": label, "name": name, "others": others})
        return found


def distance_between(wanted: str, name: str) -> int:
    if wanted not in name:
        return APART
    return 0 if name == wanted else 1 if name.startswith(wanted) else 2 if f" {wanted}" in name else 3


@dataclass
class Served:
    """A model under its name. What is asked while another is opened is answered by the old one."""

    name: str
    folder: str
    opened: Opened
    batcher: Batcher = field(init=False)
    refused: Stamp = ()  # of a folder that was looked at and cannot be taken

    def answer(self, texts: list[str], question: Question) -> list[list[Tag]]:
        return self.opened.answer(texts, question)

    @property
    def tagger(self) -> Tagger:
        return self.opened.tagger

    def report(self, settings: Settings) -> Path | None:
        """Return the path of the report that the operator has named, or of the one in the folder of the model, which
        must be no link: a folder that somebody else wrote may lead anywhere."""
        files = [Path(os.path.realpath(file)) for name, file in settings.reports if name == self.name]
        return next((file for file in [*files, Path(self.folder, REPORT)] if is_regular(file)), None)

    def read_report(self, settings: Settings) -> bytes | None:
        file = self.report(settings)
        try:
            return None if file is None else read_regular(file.parent, file.name, MAX_REPORT_BYTES)
        except OSError:  # it is gone, or was exchanged for a link
            return None

    def about(self, settings: Settings) -> dict[str, Any]:
        return {
            "name": self.name,
            "method": self.tagger.about["method"],
            "n_labels": len(self.tagger.labels),
            "languages": self.opened.languages,
            "decision": None if self.tagger.decision is None else {"goal": self.tagger.decision.goal},
            "calibrated": self.tagger.about.get("scores", {}).get("are") == PROBABILITIES,
            "report": self.report(settings) is not None,
            "explains": self.opened.reads_texts,
        }


class Models:
    """All of them, by name."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.run = Run(threads=settings.threads, device=settings.device)
        self.served: dict[str, Served] = {}
        self.watching: asyncio.Task[None] | None = None
        self.renewing: asyncio.Task[None] | None = None
        self.loading = asyncio.Lock()

    def __iter__(self) -> Iterator[Served]:
        return iter(self.served.values())

    def open(self) -> None:
        for name, folder in self.settings.models:
            self.served[name] = Served(name, folder, Opened.load(folder, self.run))

    def start(self) -> None:
        """In the event loop that serves."""
        for served in self:
            observe = self.metrics.batches(served.name)
            served.batcher = Batcher(served.answer, self.settings.limits.queue, observe)
            served.batcher.start()
        if self.settings.watch:
            self.watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        if self.watching is not None:
            self.watching.cancel()
        for served in self:
            await served.batcher.stop()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.settings.watch)
            await self.renew()

    async def renew(self, anyway: bool = False) -> None:
        """Take over every folder that has changed; `anyway` also one that was refused before."""
        async with self.loading:
            for served in self:
                stamp = stamp_of(served.folder)
                is_new = stamp != served.opened.stamp and (anyway or stamp != served.refused)
                if is_new and (anyway or await self._is_written(served, stamp)):
                    await self._take_over(served, stamp)

    async def _is_written(self, served: Served, stamp: Stamp) -> bool:
        """Whether nobody writes to it any more: it stays as it is for a moment."""
        await asyncio.sleep(min(self.settings.watch, 0.5))
        return stamp_of(served.folder) == stamp

    async def _take_over(self, served: Served, stamp: Stamp) -> None:
        try:
            opened = await asyncio.to_thread(Opened.load, served.folder, self.run)
        except Exception as error:  # whatever is wrong with it, the old one serves on
            served.refused = stamp
            said = str(error) if isinstance(error, XmtcError) else type(error).__name__
            self.metrics.reloads.labels(served.name, "refused").inc()
            log.event("model refused", model=served.name, message=said)
        else:
            served.opened, served.refused = opened, ()
            self.metrics.reloads.labels(served.name, "taken").inc()
            log.event("model taken over", model=served.name, about=repr(opened.tagger))


def in_json(value: Any) -> bytes:
    """ASCII, which no label name can break."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
