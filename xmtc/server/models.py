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
from xmtc.features import FEATURES
from xmtc.server import log
from xmtc.server.batching import Batcher, PredictQuery
from xmtc.server.request_errors import busy_error
from xmtc.server.settings import Settings
from xmtc.storage.folder import ABOUT_FILE, Stamp, read_stamp
from xmtc.storage.regular_files import is_regular, read_regular
from xmtc.tagger import Tag, Tagger

if TYPE_CHECKING:
    from xmtc.server.metrics import Metrics

WARM_UP_TEXT = "é e" + "\u0301" * 40  # for which tables of Unicode are made, so that no client waits for them
NO_MATCH_DISTANCE = 4  # distance of a name that does not contain the search
MAX_SEARCH_SECONDS = 10
SETTLING_SECONDS = 0.2  # after which a folder that is being replaced has changed
PROBABILITIES = "probabilities"  # what about.json says that calibrated scores are
REPORT_FILE = "report.html"  # in the folder of a model
MAX_REPORT_BYTES = 2**26  # kept in memory, once for all who read it


@dataclass(frozen=True)
class LoadedModel:
    """A model that has been checked and can answer. All facts about it are in memory: its folder may change."""

    tagger: Tagger
    run: Run
    stamp: Stamp
    modification_time: float = 0.0  # time at which about.json was written
    facts: dict[str, Any] = field(default_factory=dict)  # for the list of models

    @classmethod
    def load(cls, folder: str, run: Run) -> LoadedModel:
        """Open and check a model, and have it answer once, so that no client waits for that.

        Raises
        ------
        XmtcError
            If anything is wrong with the folder.
        """
        try:
            stamp, changed = read_stamp(folder), get_modification_time(folder)
            opened = cls(Tagger.load(folder, verify=True), run, stamp, changed)
            if not opened.is_text_model:
                raise XmtcError(f"{folder} was trained on features without words; only models of texts can be served.")
            opened.predict_labels([opened.build_known_text(), WARM_UP_TEXT], PredictQuery(k=1))
            return replace(opened, facts=opened.describe())
        except (XmtcError, MemoryError):
            raise
        except Exception as error:
            cause = type(error).__name__
            raise XmtcError(f"{folder} is damaged and cannot be served ({cause}); train the model again.") from error

    def describe(self) -> dict[str, Any]:
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
            "explains": self.is_text_model,
        }

    @property
    def is_text_model(self) -> bool:
        return all(view.input_kind != FEATURES for view in self.tagger.views.values())

    def build_known_text(self) -> str:
        view = next(iter(self.tagger.views.values()))
        return " ".join(view.term(number) for number in range(min(view.size, 10)))

    def predict_labels(self, texts: list[str], question: PredictQuery) -> list[list[Tag]]:
        return self.tagger.predict_labels(
            texts,
            min(question.k, len(self.tagger.labels)),
            question.threshold,
            self.run,
            language=question.language,
            allow=question.allow,
            deny=question.deny,
        )

    @property
    def languages(self) -> list[str]:
        concepts = self.tagger.concepts
        return [] if concepts is None else [language for language in concepts.vocabulary.languages if language]

    @cached_property
    def label_names(self) -> list[tuple[str, ...]]:
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
        wanted, best, end = search.casefold().strip(), [], time.monotonic() + MAX_SEARCH_SECONDS
        for number, names in enumerate(self.label_names):
            if number % 4096 == 0 and time.monotonic() > end:
                raise XmtcError(
                    f"The search took longer than {MAX_SEARCH_SECONDS} seconds; search for fewer labels later."
                )
            distance = min(compute_match_distance(wanted, name.casefold()) for name in names)
            if distance < NO_MATCH_DISTANCE:
                best.append((distance, number))
        found = []
        for _, number in nsmallest(limit, best):
            label = self.tagger.labels[number]
            name = self.tagger.label_name(label, language) or label
            others = [each for each in self.label_names[number] if each != name and wanted in each.casefold()]
            found.append({"label": label, "name": name, "others": others})
        return found


def compute_match_distance(wanted: str, name: str) -> int:
    if wanted not in name:
        return NO_MATCH_DISTANCE
    return 0 if name == wanted else 1 if name.startswith(wanted) else 2 if f" {wanted}" in name else 3


def get_modification_time(folder: str) -> float:
    try:
        return Path(folder, ABOUT_FILE).stat().st_mtime
    except OSError:
        return 0.0


@dataclass
class ServedModel:
    """A model under its name. While a new folder is opened, the old model answers."""

    name: str
    folder: str
    model_or_none: (
        LoadedModel | None
    )  # None: the folder is damaged, which happens to workers that start later than the service
    batcher: Batcher = field(init=False)
    refused_stamp: Stamp | None = None  # of a folder that was damaged
    cached_report: tuple[object, bytes] | None = None  # the report, and what tells whether its file has changed
    report_lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def model(self) -> LoadedModel:
        if self.model_or_none is None:
            raise busy_error(f"The model {self.name} is damaged; the log of the service has the reason.")
        return self.model_or_none

    @property
    def tagger(self) -> Tagger:
        return self.model.tagger

    def predict_labels(self, texts: list[str], question: PredictQuery) -> list[list[Tag]]:
        return self.model.predict_labels(texts, question)

    def replace_model(self, opened: LoadedModel) -> None:
        """Answer with a new model from now on."""
        self.model_or_none, self.refused_stamp = opened, None
        self.batcher.answer = opened.predict_labels  # requests in the queue keep the old one

    def find_report(self, settings: Settings) -> Path | None:
        """Return the path of the report that the operator has named, or of the one in the folder of the model, which
        must be no link: a folder that somebody else wrote may lead anywhere."""
        files = [Path(os.path.realpath(file)) for name, file in settings.reports if name == self.name]
        return next((file for file in [*files, Path(self.folder, REPORT_FILE)] if is_regular(file)), None)

    def read_report(self, settings: Settings) -> bytes | None:
        """Return the report, the same bytes to all until its file changes. Called from several threads."""
        file = self.find_report(settings)
        with self.report_lock:
            try:
                if file is None:
                    return None
                state = file.lstat()
                version = (file, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
                if self.cached_report is None or self.cached_report[0] != version:
                    self.cached_report = (version, read_regular(file.parent, file.name, MAX_REPORT_BYTES))
                return self.cached_report[1]
            except OSError:  # it is gone, or was exchanged for a link
                return None

    def describe(self, settings: Settings) -> dict[str, Any]:
        return {"name": self.name, **self.model.facts, "report": self.find_report(settings) is not None}


class ModelPool:
    """The models of a service, by name."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.run = Run(threads=settings.threads, device=settings.device)
        self.by_name: dict[str, ServedModel] = {}
        self.watch_task: asyncio.Task[None] | None = None
        self.reload_task: asyncio.Task[None] | None = None
        self.reload_lock = asyncio.Lock()

    def __iter__(self) -> Iterator[ServedModel]:
        """Iterate over the models that can answer."""
        return (served for served in self.by_name.values() if served.model_or_none is not None)

    @property
    def damaged_names(self) -> list[str]:
        return [name for name, served in self.by_name.items() if served.model_or_none is None]

    def open_all(self) -> None:
        """Open all models. Raise XmtcError if one of them is damaged."""
        for name, folder in self.settings.models:
            self.by_name[name] = ServedModel(name, folder, LoadedModel.load(folder, self.run))

    def open_undamaged(self) -> None:
        """Open the models in a worker of a service that runs: one damaged folder does not stop the others."""
        for name, folder in self.settings.models:
            self.by_name[name] = served = ServedModel(name, folder, None)
            while served.model_or_none is None:
                stamp = read_stamp(folder)
                try:
                    served.model_or_none = LoadedModel.load(folder, self.run)
                except XmtcError as error:
                    time.sleep(SETTLING_SECONDS)
                    if read_stamp(folder) == stamp:  # otherwise the folder was being replaced
                        served.refused_stamp = stamp
                        self._log_failed_reload(name, error)
                        break

    def start(self) -> None:
        """Start the threads of the models, in the event loop that serves."""
        for served in self.by_name.values():
            observe = self.metrics.batch_observer(served.name)
            answer = served.predict_labels if served.model_or_none is None else served.model_or_none.predict_labels
            served.batcher = Batcher(answer, self.settings.limits.queue, observe)
            served.batcher.start()
        if self.settings.watch_seconds or self.damaged_names:
            self.watch_task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        if self.watch_task is not None:
            self.watch_task.cancel()
        for served in self.by_name.values():
            await served.batcher.stop()

    async def _watch(self) -> None:
        """Look for new folders: with `--watch` always, otherwise as long as a model is damaged."""
        while self.settings.watch_seconds or self.damaged_names:
            await asyncio.sleep(self.settings.watch_seconds or 1.0)
            await self.reload_changed()

    async def reload_changed(self, force: bool = False) -> None:
        """Open every folder that has changed; `anyway` also one that was refused before."""
        async with self.reload_lock:
            for served in self.by_name.values():
                if not force and not self.settings.watch_seconds and served.model_or_none is not None:
                    continue
                stamp = read_stamp(served.folder)
                is_new = served.model_or_none is None or stamp != served.model_or_none.stamp
                if is_new and (force or (stamp != served.refused_stamp and await self._is_settled(served, stamp))):
                    await self._reload(served, stamp)

    async def _is_settled(self, served: ServedModel, stamp: Stamp) -> bool:
        """Return True if the folder is not being written: it does not change for a moment."""
        await asyncio.sleep(min(self.settings.watch_seconds or 0.5, 0.5))
        return read_stamp(served.folder) == stamp

    async def _reload(self, served: ServedModel, stamp: Stamp) -> None:
        try:
            opened = await asyncio.to_thread(LoadedModel.load, served.folder, self.run)
        except Exception as error:  # whatever is wrong with the folder, the old model goes on
            served.refused_stamp = stamp
            self._log_failed_reload(served.name, error)
        else:
            served.replace_model(opened)
            self.metrics.reloads.labels(served.name, "taken").inc()
            log.write_event("model taken over", model=served.name, about=repr(opened.tagger))

    def _log_failed_reload(self, name: str, error: Exception) -> None:
        message = str(error) if isinstance(error, XmtcError) else type(error).__name__
        self.metrics.reloads.labels(name, "refused").inc()
        log.write_event("model refused", model=name, message=message)


def encode_json(value: Any) -> bytes:
    """Return ASCII, which no name of a label can break."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
