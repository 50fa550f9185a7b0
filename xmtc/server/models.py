"""The models that are served, and the replacement of a model by a new one."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import nsmallest
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.features import COLUMNS
from xmtc.server import log
from xmtc.server.batching import Batcher, Question
from xmtc.server.refusals import busy
from xmtc.server.settings import Settings
from xmtc.storage.folder import ABOUT_FILE, Stamp, read_stamp
from xmtc.storage.regular_files import is_regular, read_regular
from xmtc.tagger import Tag, Tagger

if TYPE_CHECKING:
    from xmtc.server.metrics import Metrics

UNUSUAL_TEXT = "é e" + "\u0301" * 40  # for which tables of Unicode are made, so that no client waits for them
APART = 4  # distance of a name that does not contain the search
SEARCH_SECONDS = 10
SETTLING_SECONDS = 0.2  # after which a folder that is being replaced has changed
PROBABILITIES = "probabilities"  # what about.json says that calibrated scores are
REPORT = "report.html"  # in the folder of a model
MAX_REPORT_BYTES = 2**26  # kept in memory, once for all who read it


@dataclass(frozen=True)
class Opened:
    """A model that has been checked and can answer. All facts about it are in memory: its folder may change."""

    tagger: Tagger
    run: Run
    stamp: Stamp
    changed: float = 0.0  # time at which about.json was written
    facts: dict[str, Any] = field(default_factory=dict)  # for the list of models

    @classmethod
    def load(cls, folder: str, run: Run) -> Opened:
        """Open and check a model, and have it answer once, so that no client waits for that.

        Raises
        ------
        XmtcError
            If anything is wrong with the folder.
        """
        try:
            stamp, changed = read_stamp(folder), changed_at(folder)
            opened = cls(Tagger.load(folder, verify=True), run, stamp, changed)
            if not opened.reads_texts:
                raise XmtcError(f"{folder} was trained on features without words; only models of texts can be served.")
            opened.answer([opened.known_text(), UNUSUAL_TEXT], Question(k=1))
            return replace(opened, facts=opened.described())
        except (XmtcError, MemoryError):
            raise
        except Exception as error:
            cause = type(error).__name__
            raise XmtcError(f"{folder} is damaged and cannot be served ({cause}); train the model again.") from error

    def described(self) -> dict[str, Any]:
        tagger = self.tagger
        scores = tagger.about.get("scores")
        if not isinstance(tagger.about.get("method"), str) or not isinstance(scores, dict | None):
            raise TypeError("about.json")
        return {
            "method": tagger.about["method"],
            "n_labels": len(tagger.labels),
            "languages": self.languages,
            "decision": None if tagger.decision is None else {"goal": tagger.decision.goal},
            "calibrated": (scores or {}).get("are") == PROBABILITIES,
            "explains": self.reads_texts,
        }

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
        """All names of each label, the label itself first; for a search."""
        tagger = self.tagger
        found: list[tuple[str, ...]] = [(label,) for label in tagger.labels.words()]
        if tagger.concepts is None:
            return found
        vocabulary, concepts = tagger.concepts.vocabulary, tagger.concepts.concepts.tolist()
        called = [[name.text for name in vocabulary.names(concept)] if concept >= 0 else [] for concept in concepts]
        return [tuple(dict.fromkeys((*label, *names))) for label, names in zip(found, called, strict=True)]

    def search(self, search: str, language: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
        """Return labels with this name, then those whose names begin with it, then those whose names contain it.

        A search that takes longer than SEARCH_SECONDS is given up, so that its thread is free for others.
        """
        wanted, best, end = search.casefold().strip(), [], time.monotonic() + SEARCH_SECONDS
        for number, names in enumerate(self.names):
            if number % 4096 == 0 and time.monotonic() > end:
                raise XmtcError(f"The search took longer than {SEARCH_SECONDS} seconds; search for fewer labels later.")
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


def changed_at(folder: str) -> float:
    try:
        return Path(folder, ABOUT_FILE).stat().st_mtime
    except OSError:
        return 0.0


@dataclass
class Served:
    """A model under its name. While a new folder is opened, the old model answers."""

    name: str
    folder: str
    found: Opened | None  # None: the folder is damaged, which happens to workers that start later than the service
    batcher: Batcher = field(init=False)
    refused: Stamp | None = None  # of a folder that was damaged
    page: tuple[object, bytes] | None = None  # the report, and what tells whether its file has changed
    reading: Lock = field(default_factory=Lock, repr=False)

    @property
    def opened(self) -> Opened:
        if self.found is None:
            raise busy(f"The model {self.name} is damaged; the log of the service has the reason.")
        return self.found

    @property
    def tagger(self) -> Tagger:
        return self.opened.tagger

    def answer(self, texts: list[str], question: Question) -> list[list[Tag]]:
        return self.opened.answer(texts, question)

    def take(self, opened: Opened) -> None:
        """Answer with a new model from now on."""
        self.found, self.refused = opened, None
        self.batcher.answer = opened.answer  # requests in the queue keep the old one

    def report(self, settings: Settings) -> Path | None:
        """Return the path of the report that the operator has named, or of the one in the folder of the model, which
        must be no link: a folder that somebody else wrote may lead anywhere."""
        files = [Path(os.path.realpath(file)) for name, file in settings.reports if name == self.name]
        return next((file for file in [*files, Path(self.folder, REPORT)] if is_regular(file)), None)

    def read_report(self, settings: Settings) -> bytes | None:
        """Return the report, the same bytes to all until its file changes. Called from several threads."""
        file = self.report(settings)
        with self.reading:
            try:
                if file is None:
                    return None
                state = file.lstat()
                version = (file, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
                if self.page is None or self.page[0] != version:
                    self.page = (version, read_regular(file.parent, file.name, MAX_REPORT_BYTES))
                return self.page[1]
            except OSError:  # it is gone, or was exchanged for a link
                return None

    def about(self, settings: Settings) -> dict[str, Any]:
        return {"name": self.name, **self.opened.facts, "report": self.report(settings) is not None}


class Models:
    """The models of a service, by name."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.run = Run(threads=settings.threads, device=settings.device)
        self.served: dict[str, Served] = {}
        self.watching: asyncio.Task[None] | None = None
        self.renewing: asyncio.Task[None] | None = None
        self.loading = asyncio.Lock()

    def __iter__(self) -> Iterator[Served]:
        """Iterate over the models that can answer."""
        return (served for served in self.served.values() if served.found is not None)

    @property
    def damaged(self) -> list[str]:
        return [name for name, served in self.served.items() if served.found is None]

    def open(self) -> None:
        """Open all models. Raise XmtcError if one of them is damaged."""
        for name, folder in self.settings.models:
            self.served[name] = Served(name, folder, Opened.load(folder, self.run))

    def open_all_that_are_whole(self) -> None:
        """Open the models in a worker of a service that runs: one damaged folder does not stop the others."""
        for name, folder in self.settings.models:
            self.served[name] = served = Served(name, folder, None)
            while served.found is None:
                stamp = read_stamp(folder)
                try:
                    served.found = Opened.load(folder, self.run)
                except XmtcError as error:
                    time.sleep(SETTLING_SECONDS)
                    if read_stamp(folder) == stamp:  # otherwise the folder was being replaced
                        served.refused = stamp
                        self._log_refused(name, error)
                        break

    def start(self) -> None:
        """Start the threads of the models, in the event loop that serves."""
        for served in self.served.values():
            observe = self.metrics.batches(served.name)
            answer = served.answer if served.found is None else served.found.answer
            served.batcher = Batcher(answer, self.settings.limits.queue, observe)
            served.batcher.start()
        if self.settings.watch or self.damaged:
            self.watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        if self.watching is not None:
            self.watching.cancel()
        for served in self.served.values():
            await served.batcher.stop()

    async def _watch(self) -> None:
        """Look for new folders: with `--watch` always, otherwise as long as a model is damaged."""
        while self.settings.watch or self.damaged:
            await asyncio.sleep(self.settings.watch or 1.0)
            await self.renew()

    async def renew(self, anyway: bool = False) -> None:
        """Open every folder that has changed; `anyway` also one that was refused before."""
        async with self.loading:
            for served in self.served.values():
                if not anyway and not self.settings.watch and served.found is not None:
                    continue
                stamp = read_stamp(served.folder)
                is_new = served.found is None or stamp != served.found.stamp
                if is_new and (anyway or (stamp != served.refused and await self._is_written(served, stamp))):
                    await self._take_over(served, stamp)

    async def _is_written(self, served: Served, stamp: Stamp) -> bool:
        """Return True if the folder is not being written: it does not change for a moment."""
        await asyncio.sleep(min(self.settings.watch or 0.5, 0.5))
        return read_stamp(served.folder) == stamp

    async def _take_over(self, served: Served, stamp: Stamp) -> None:
        try:
            opened = await asyncio.to_thread(Opened.load, served.folder, self.run)
        except Exception as error:  # whatever is wrong with the folder, the old model goes on
            served.refused = stamp
            self._log_refused(served.name, error)
        else:
            served.take(opened)
            self.metrics.reloads.labels(served.name, "taken").inc()
            log.event("model taken over", model=served.name, about=repr(opened.tagger))

    def _log_refused(self, name: str, error: Exception) -> None:
        message = str(error) if isinstance(error, XmtcError) else type(error).__name__
        self.metrics.reloads.labels(name, "refused").inc()
        log.event("model refused", model=name, message=message)


def in_json(value: Any) -> bytes:
    """Return ASCII, which no name of a label can break."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
