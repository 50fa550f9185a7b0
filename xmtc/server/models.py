"""Models of the service: loading, reloading, label search."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from heapq import nsmallest
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.features import FEATURES
from xmtc.scores import LabelSelector
from xmtc.server import log
from xmtc.server.batching import Batcher, PredictQuery
from xmtc.server.drift import DriftMonitor
from xmtc.server.request_errors import busy_error
from xmtc.server.settings import Settings
from xmtc.storage.folder import ABOUT_FILE, Stamp, read_stamp
from xmtc.storage.regular_files import is_regular, read_regular
from xmtc.tagger import Tag, Tagger

if TYPE_CHECKING:
    from xmtc.server.metrics import Metrics

WARM_UP_TEXT = "é e" + "\u0301" * 40  # builds the Unicode tables before the first request
NO_MATCH_DISTANCE = 4  # of a name that does not contain the search text
MAX_SEARCH_SECONDS = 10
SETTLING_SECONDS = 0.2  # a folder that is being replaced changes within this time
PROBABILITIES = "probabilities"  # scores.are in about.json of a calibrated model
REPORT_FILE = "report.html"  # in the model folder
MAX_REPORT_BYTES = 2**26  # one copy is kept in memory


class RatedTags(list[Tag]):
    """Tags of a text, and their quality by the gate of the model."""

    def __init__(self, tags: Iterable[Tag], quality: dict[str, Any]) -> None:
        super().__init__(tags)
        self.quality = quality


@dataclass(frozen=True)
class LoadedModel:
    """Verified model, ready to predict. Its description is in memory, because its folder may change."""

    tagger: Tagger
    run: Run
    stamp: Stamp
    modification_time: float = 0.0  # of about.json
    facts: dict[str, Any] = field(default_factory=dict)  # entry in the list of models
    monitor: DriftMonitor | None = None  # of the texts of requests, if the model has a reference

    @classmethod
    def load(cls, folder: str, run: Run) -> LoadedModel:
        """Load and verify a model, and predict once as a warm-up.

        Raises
        ------
        XmtcError
            If the folder is damaged or the model does not classify texts.
        """
        try:
            stamp, modification_time = read_stamp(folder), get_modification_time(folder)
            model = cls(Tagger.load(folder, verify=True), run, stamp, modification_time)
            if not model.is_text_model:
                raise XmtcError(f"{folder} was trained on feature vectors; only models of texts can be served.")
            model.predict_labels([model.build_known_text(), WARM_UP_TEXT], PredictQuery(k=1))
            return replace(model, facts=model.describe())
        except (XmtcError, MemoryError):
            raise
        except Exception as error:
            cause = type(error).__name__
            raise XmtcError(f"{folder} is damaged and cannot be served ({cause}); train the model again.") from error

    def with_monitor(self, metrics: Metrics, name: str) -> LoadedModel:
        """Return a copy that observes the drift of its texts, if it has a reference."""
        if self.tagger.reference is None:
            return self
        return replace(self, monitor=DriftMonitor(self.tagger, self.run, metrics.drift_observer(name)))

    def describe(self) -> dict[str, Any]:
        """Return the entry of the model in the list of models, without its name."""
        tagger = self.tagger
        scores = tagger.about.get("scores")
        if not isinstance(tagger.about.get("method"), str) or not isinstance(scores, dict | None):
            raise TypeError("about.json")
        return {
            "method": tagger.about["method"],
            "n_labels": len(tagger.labels),
            "languages": self.languages,
            "decision": None if tagger.decision is None else describe_decision(tagger.decision),
            "calibrated": (scores or {}).get("are") == PROBABILITIES,
            "explains": self.is_text_model,
            "version": sha256(repr(self.stamp).encode()).hexdigest()[:16],
        }

    @property
    def is_text_model(self) -> bool:
        return all(view.input_kind != FEATURES for view in self.tagger.views.values())

    def build_known_text(self) -> str:
        """Return a text of the first words in the vocabulary, for the warm-up."""
        view = next(iter(self.tagger.views.values()))
        return " ".join(view.term(number) for number in range(min(view.size, 10)))

    def predict_labels(self, texts: list[str], query: PredictQuery) -> list[list[Tag]]:
        if self.monitor is not None and query.is_document:
            self.monitor.sample(texts)
        if query.threshold == "tuned" and self.tagger.has_gate:
            return self._predict_with_quality(texts, query)
        return self.tagger.predict_labels(
            texts,
            min(query.k, len(self.tagger.labels)),
            query.threshold,
            self.run,
            language=query.language,
            allow=query.allow,
            deny=query.deny,
        )

    def _predict_with_quality(self, texts: list[str], query: PredictQuery) -> list[list[Tag]]:
        allowed = self.tagger.build_label_mask(query.allow, query.deny)
        predictions, quality = self.tagger.predict_with_quality(texts, self.run, allowed=allowed)
        tags = self.tagger.to_tags(predictions, query.language)
        return [RatedTags(row, quality.describe(number)) for number, row in enumerate(tags)]

    @property
    def languages(self) -> list[str]:
        concepts = self.tagger.concepts
        return [] if concepts is None else [language for language in concepts.vocabulary.languages if language]

    @cached_property
    def label_names(self) -> list[tuple[str, ...]]:
        """Names of each label, the label itself first."""
        tagger = self.tagger
        labels: list[str] = list(tagger.labels.words())
        if tagger.concepts is None:
            return [(label,) for label in labels]
        vocabulary, concepts = tagger.concepts.vocabulary, tagger.concepts.concepts.tolist()
        names_of = [[name.text for name in vocabulary.names(concept)] if concept >= 0 else [] for concept in concepts]
        return [tuple(dict.fromkeys((label, *names))) for label, names in zip(labels, names_of, strict=True)]

    def search(
        self, search: str, language: str | None = None, limit: int = 20, max_seconds: float = MAX_SEARCH_SECONDS
    ) -> list[dict[str, Any]]:
        """Return the labels whose names equal, start with or contain a text, in this order.

        Raise XmtcError after `max_seconds`, so that slow searches do not block the thread for others.
        """
        search, matches, deadline = search.casefold().strip(), [], time.monotonic() + max_seconds
        for number, names in enumerate(self.label_names):
            if number % 4096 == 0 and time.monotonic() > deadline:
                raise XmtcError(f"The search took longer than {max_seconds:g} seconds; retry later.")
            distance = min(compute_match_distance(search, name.casefold()) for name in names)
            if distance < NO_MATCH_DISTANCE:
                matches.append((distance, number))
        results = []
        for _, number in nsmallest(limit, matches):
            label = self.tagger.labels[number]
            name = self.tagger.label_name(label, language) or label
            others = [other for other in self.label_names[number] if other != name and search in other.casefold()]
            results.append({"label": label, "name": name, "others": others})
        return results


def describe_decision(decision: LabelSelector) -> dict[str, Any]:
    gate = {"gate": decision.gate[0].describe()} if decision.gate else {}
    return {"goal": decision.goal, **gate}


def compute_match_distance(search: str, name: str) -> int:
    if search not in name:
        return NO_MATCH_DISTANCE
    return 0 if name == search else 1 if name.startswith(search) else 2 if f" {search}" in name else 3


def get_modification_time(folder: str) -> float:
    try:
        return Path(folder, ABOUT_FILE).stat().st_mtime
    except OSError:
        return 0.0


class FileVersion(NamedTuple):
    """Path and state of a file; it differs after any change."""

    file: Path
    number: int
    size: int
    modified_ns: int
    changed_ns: int


def get_file_version(file: Path) -> FileVersion | None:
    """Return the version of a file, or None if it was deleted."""
    try:
        state = file.lstat()
    except OSError:
        return None
    return FileVersion(file, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


@dataclass
class ServedModel:
    """Name, folder and batcher of a model. The old model answers until a new one is loaded."""

    name: str
    folder: str
    model_or_none: LoadedModel | None  # None: the folder was damaged when a later worker started
    batcher: Batcher = field(init=False)
    refused_stamp: Stamp | None = None  # of the damaged folder that was refused last
    cached_report: tuple[FileVersion | None, bytes] | None = None  # version of the file, and its content
    report_lock: Lock = field(default_factory=Lock, repr=False)
    old_reports: frozenset[FileVersion] = frozenset()  # reports that describe a replaced model

    @property
    def model(self) -> LoadedModel:
        """Return the model. Raise RequestError if it is damaged."""
        if self.model_or_none is None:
            raise busy_error(f"The model {self.name} is damaged; see the log of the service.")
        return self.model_or_none

    def predict_labels(self, texts: list[str], query: PredictQuery) -> list[list[Tag]]:
        return self.model.predict_labels(texts, query)

    def replace_model(self, model: LoadedModel, settings: Settings) -> None:
        """Take a new model. Reports that are older than the model are hidden until they are written again."""
        versions = map(get_file_version, self._list_reports(settings))
        self.old_reports = frozenset(
            version for version in versions if version and version.modified_ns < model.modification_time * 1e9
        )
        self.model_or_none, self.refused_stamp = model, None
        self.batcher.answer = model.predict_labels  # queued requests keep the old model

    def find_report(self, settings: Settings) -> Path | None:
        """Return the path of the report given by `--report`, or of the one in the model folder, or None.

        A symbolic link in the model folder is ignored, because it may lead anywhere.
        """
        files = self._list_reports(settings)
        return next((file for file in files if get_file_version(file) not in self.old_reports), None)

    def _list_reports(self, settings: Settings) -> list[Path]:
        files = [Path(os.path.realpath(file)) for name, file in settings.reports if name == self.name]
        return [file for file in [*files, Path(self.folder, REPORT_FILE)] if is_regular(file)]

    def read_report(self, settings: Settings) -> bytes | None:
        """Return the report, cached until its file changes. Thread-safe."""
        file = self.find_report(settings)
        with self.report_lock:
            try:
                if file is None:
                    return None
                version = get_file_version(file)
                if self.cached_report is None or self.cached_report[0] != version:
                    self.cached_report = (version, read_regular(file.parent, file.name, MAX_REPORT_BYTES))
                return self.cached_report[1]
            except OSError:  # deleted, or replaced by a link
                return None

    def describe(self, settings: Settings) -> dict[str, Any]:
        return {"name": self.name, **self.model.facts, "report": self.find_report(settings) is not None}


class ModelPool:
    """Models of a service by name."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.run = Run(threads=settings.threads, device=settings.device)
        self.by_name: dict[str, ServedModel] = {}
        self.watch_task: asyncio.Task[None] | None = None
        self.reload_task: asyncio.Task[None] | None = None
        self.reload_lock = asyncio.Lock()

    def __iter__(self) -> Iterator[ServedModel]:
        """Iterate over the models that are not damaged."""
        return (served for served in self.by_name.values() if served.model_or_none is not None)

    @property
    def damaged_names(self) -> list[str]:
        return [name for name, served in self.by_name.items() if served.model_or_none is None]

    def open_all(self) -> None:
        """Load all models. Raise XmtcError if one of them is damaged."""
        for name, folder in self.settings.models:
            self.by_name[name] = ServedModel(name, folder, self._load(name, folder))

    def _load(self, name: str, folder: str) -> LoadedModel:
        return LoadedModel.load(folder, self.run).with_monitor(self.metrics, name)

    def open_undamaged(self) -> None:
        """Load the models in a worker of a running service; damaged models do not stop the others."""
        for name, folder in self.settings.models:
            self.by_name[name] = served = ServedModel(name, folder, None)
            while served.model_or_none is None:
                stamp = read_stamp(folder)
                try:
                    served.model_or_none = self._load(name, folder)
                except XmtcError as error:
                    time.sleep(SETTLING_SECONDS)
                    if read_stamp(folder) == stamp:  # otherwise the folder was being replaced
                        served.refused_stamp = stamp
                        self._log_failed_reload(name, error)
                        break

    def start(self) -> None:
        """Start the threads of the models and the watch task; call it in the event loop."""
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
        """Reload changed folders: with `--watch` always, otherwise while a model is damaged."""
        while self.settings.watch_seconds or self.damaged_names:
            await asyncio.sleep(self.settings.watch_seconds or 1.0)
            await self.reload_changed()

    async def reload_changed(self, force: bool = False) -> None:
        """Reload every changed model; with `force` also a folder that was refused before."""
        async with self.reload_lock:
            for served in self.by_name.values():
                if not force and not self.settings.watch_seconds and served.model_or_none is not None:
                    continue
                stamp = read_stamp(served.folder)
                is_new = served.model_or_none is None or stamp != served.model_or_none.stamp
                if is_new and (force or (stamp != served.refused_stamp and await self._is_settled(served, stamp))):
                    await self._reload(served, stamp)

    async def _is_settled(self, served: ServedModel, stamp: Stamp) -> bool:
        """Return True if the folder does not change for a moment, so that nobody is writing it."""
        await asyncio.sleep(min(self.settings.watch_seconds or 0.5, 0.5))
        return read_stamp(served.folder) == stamp

    async def _reload(self, served: ServedModel, stamp: Stamp) -> None:
        try:
            model = await asyncio.to_thread(self._load, served.name, served.folder)
        except Exception as error:  # the old model continues to answer
            served.refused_stamp = stamp
            self._log_failed_reload(served.name, error)
        else:
            served.replace_model(model, self.settings)
            self.metrics.reloads.labels(served.name, "taken").inc()
            log.write_event("model reloaded", model=served.name, about=repr(model.tagger))

    def _log_failed_reload(self, name: str, error: Exception) -> None:
        message = str(error) if isinstance(error, XmtcError) else type(error).__name__
        self.metrics.reloads.labels(name, "refused").inc()
        log.write_event("model refused", model=name, message=message)
