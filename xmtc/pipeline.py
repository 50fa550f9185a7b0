"""From documents to a Tagger. A Pipeline is the recipe of one: a method, the recipes of the views that it reads, and
how scores are to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import Field, dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np

import xmtc
from xmtc import features
from xmtc.analyzer_selection import AnalyzerChoice, select_analyzer
from xmtc.core.dataset import Dataset, LabelNames
from xmtc.core.method import LabelName, Method
from xmtc.core.registry import find_package
from xmtc.core.run import Run
from xmtc.data.batch import DocumentBatch
from xmtc.data.corpus import Corpus
from xmtc.data.document import Document
from xmtc.data.label_collector import LabelCollector
from xmtc.errors import XmtcError
from xmtc.features import FEATURES, TEXTS, FittedViews, View, Views
from xmtc.features.names import FittedNames
from xmtc.features.tfidf import Tfidf
from xmtc.features.word_counts import WordCounts
from xmtc.methods import check_savable
from xmtc.methods.ensemble.model import remap_labels
from xmtc.parameters import (
    Parameters,
    as_json_value,
    build_calibration,
    build_method,
    build_views,
    collect_method_fields,
    collect_set_fields,
    collect_view_presets,
    parameters_as_json,
)
from xmtc.scores import calibration
from xmtc.scores.calibration import Calibration
from xmtc.tagger import Tagger
from xmtc.text.string_index import StringIndex

DEFAULT_CALIBRATION, NO_CALIBRATION = Calibration(), Calibration(calibrate=False)


@dataclass(frozen=True)
class Pipeline:
    """All that a training needs beside documents."""

    method: Method
    views: Views
    calibration: Calibration = DEFAULT_CALIBRATION

    @classmethod
    def from_parameters(
        cls, method: Method | str, content: str = TEXTS, parameters: Parameters | None = None
    ) -> Pipeline:
        """A method, by its name or as it is, and its views of a corpus of texts or of features; parameters are those of
        the method, of the views and of the scores."""
        built, rest = build_method(method, parameters or {})
        scores, rest = build_calibration(rest)
        return cls(built, build_views(built, content, rest), scores)

    def with_parameters(self, values: Parameters) -> Pipeline:
        """The same with other values of some parameters."""
        method, rest = build_method(self.method, values)
        preset = collect_view_presets(method)
        views = {
            name: view.replace(**select_own_parameters(view, rest)).fill_unset(preset)
            for name, view in self.views.items()
        }
        return Pipeline(method, views, self.calibration.replace(**select_own_parameters(self.calibration, rest)))

    @property
    def parameters(self) -> dict[str, tuple[Field, Any]]:
        """Every parameter by the name that it is set by, and its value."""
        found = collect_method_fields(self.method)
        for recipe in (*self.views.values(), self.calibration):
            found |= collect_set_fields(recipe)
        return found

    def fit(
        self,
        documents: Iterable[Document],
        valid: Iterable[Document] | None = None,
        run: Run = Run(),
        *,
        classes: Sequence[str] | None = None,
        weights: np.ndarray | None = None,
    ) -> Tagger:
        """A Tagger from labelled documents, which may be a stream; `valid` only decides when to stop, or what scores
        mean. `classes` are all labels in the order that they are to have, `weights` how much each document counts."""
        run, history = run.record_history()
        reading = documents.read_options if isinstance(documents, Corpus) else {}
        with self._load_method_in_background(documents, run):
            prepared = self.prepare(documents, run, classes)
        if weights is not None:
            prepared = replace(prepared, data=replace(prepared.data, weights=weights))
        checked = None if valid is None else prepared.build_labelled_dataset(valid, run)
        trained = prepared.train(self.method, checked, run, self.calibration)
        trained = replace(trained, history=tuple(history))
        return replace(trained, about=trained.about | {"reading": reading}) if reading else trained

    @contextmanager
    def _load_method_in_background(self, documents: Iterable[Document], run: Run) -> Iterator[None]:
        """A thread of its own loads the method's compiled code while files are read. Nobody waits for it: whoever calls
        what is not loaded yet loads it himself."""
        if not isinstance(documents, Corpus) or run.n_threads == 1:
            yield
            return
        pool = ThreadPoolExecutor(1)
        pool.submit(self.method.load_kernels)
        try:
            yield
        finally:
            pool.shutdown(wait=False)

    def prepare(
        self, documents: Iterable[Document], run: Run = Run(), classes: Sequence[str] | None = None
    ) -> TrainingData:
        """Learn the views from labelled documents: what comes before the method's turn."""
        check_savable(self.method)
        collector = LabelCollector(run)
        chosen: list[AnalyzerChoice] = []

        def ask(view: Tfidf, counted: WordCounts) -> str:
            chosen[:] = [
                select_analyzer(view, counted, lambda: collector.to_matrix(sorted(collector.id_by_label)), run)
            ]
            return chosen[0].analyzer

        held, names = self._collect_label_names(documents, classes)
        stream = self._read_in_batches(held, run)
        fitted, data = features.fit(self.views, collector.collect(stream), run, ask, [name.text for name in names])
        if not collector.id_by_label:
            raise XmtcError(f"None of the {data.n_docs} training documents has a label; check the labels field.")
        known = collector.id_by_label.keys() | {name.label for name in names}
        found = sorted(known) if classes is None else [c for c in classes if c in known]
        labels = StringIndex.from_strings(found)
        data = replace(data, Y=collector.to_matrix(found), names=build_label_names(names, fitted, found))
        every = labels if classes is None else StringIndex.from_strings(classes)
        digest = collector.fingerprint()
        return TrainingData(self.views, fitted, labels, every, data, digest, chosen[0] if chosen else None)

    def _read_in_batches(self, documents: Iterable[Document], run: Run) -> Iterable[Document | DocumentBatch]:
        """A corpus in batches, which all threads read, where the view takes them."""
        if isinstance(documents, Corpus) and features.is_batchable(self.views):
            return documents.iter_batches(run)
        return peek_first_document(documents)[1]

    def _collect_label_names(
        self, documents: Iterable[Document], classes: Sequence[str] | None
    ) -> tuple[Iterable[Document], list[LabelName]]:
        """The documents, and what labels are called. A method that asks for it needs all labels before the first text
        is read, so that the documents are held; of labels that are announced, no others can be given."""
        if not self.method.has_label_name_input:
            return documents, []
        held = list(peek_first_document(documents)[1])
        labels = sorted({label for document in held for label in document.labels}) if classes is None else classes
        names = self.method.list_label_names(labels)
        return held, list(names) if classes is None else [name for name in names if name.label in set(classes)]


def build_label_names(names: list[LabelName], fitted: FittedViews, labels: list[str]) -> LabelNames | None:
    """The names of labels in the view that was learnt from them; None where no method reads them."""
    views = [view for view in fitted.values() if isinstance(view, FittedNames)]
    if not views:
        return None
    numbers = {label: number for number, label in enumerate(labels)}
    return LabelNames(
        tokens=views[0].transform_names(name.text for name in names),
        labels=np.array([numbers[name.label] for name in names], np.int32),
        preferred=np.array([name.is_preferred for name in names], np.bool_),
    )


@dataclass(frozen=True)
class TrainingData:
    """Labelled documents in the views that a method reads, for one training or several."""

    views: Views
    fitted_views: FittedViews
    labels: StringIndex  # those that occur, which a method learns, and those that it knows by their names
    classes: StringIndex  # these and those that were only announced, which the model can never name
    data: Dataset
    fingerprint: str  # of the documents
    analyzer_choice: AnalyzerChoice | None = None  # the analyzer, where that was left open

    def train(
        self,
        method: Method,
        valid: Dataset | None = None,
        run: Run = Run(),
        calibration_options: Calibration = NO_CALIBRATION,
    ) -> Tagger:
        run, history = run.record_history()
        try:
            fitted = calibration.fit_calibrated(method, self.data, valid, run, calibration_options.calibrate)
        finally:
            run.checkpoint.release()
        assert self.data.Y is not None
        numbers = self.classes.find_packed(self.labels.text, self.labels.ends)
        frequencies = np.zeros(len(self.classes), np.int64)
        frequencies[numbers] = np.bincount(self.data.Y.indices, minlength=len(self.labels))
        model = fitted.model
        if len(self.classes) > len(self.labels):
            model = remap_labels(model, numbers, len(self.classes))
        about = self.describe_training(method) | parameters_as_json(calibration_options) | {"scores": fitted.as_json()}
        return Tagger(
            self.fitted_views, self.classes, frequencies, fitted.apply_to(model), about, history=tuple(history)
        )

    def build_labelled_dataset(self, documents: Iterable[Document], run: Run = Run()) -> Dataset:
        """Other documents beside their labels."""
        return build_labelled_dataset(self.fitted_views, self.labels, documents, run)

    def describe_training(self, method: Method) -> dict[str, Any]:
        """What about.json says of a training. Nothing that differs between two runs on the same data."""
        return {
            "xmtc": xmtc.__version__,
            **as_json_value(method),
            "package": find_package(type(method)),
            "views": {name: parameters_as_json(view) for name, view in self.views.items()},
            "sizes": self.data.sizes,
            "n_docs": self.data.n_docs,
            "n_labels": len(self.classes),
            "data": f"blake2b:{self.fingerprint}",
            **({"chosen": self.analyzer_choice.as_json()} if self.analyzer_choice else {}),
        }


def build_labelled_dataset(
    views: FittedViews, labels: StringIndex, documents: Iterable[Document], run: Run = Run()
) -> Dataset:
    """Documents in views that were learnt, and their labels in the columns that training gave them. One without labels
    does not tell that answers are wrong, and is left out; one with others than these does. Where none has any, all
    stay, for whoever counts them."""
    collector = LabelCollector()
    data = features.transform(views, collector.collect(documents), run)
    Y = collector.to_matrix(labels.words())
    found, tell = replace(data, Y=Y[:, : len(labels)]), np.flatnonzero(np.diff(Y.indptr))
    return found.select_rows(tell) if 0 < len(tell) < data.n_docs else found


def train(
    documents: Iterable[Document],
    method: Method | str = "parabel",
    valid: Iterable[Document] | None = None,
    run: Run = Run(),
    **parameters: Any,
) -> Tagger:
    """A Tagger from labelled documents, which may be a stream. Parameters are those of the method and of its views."""
    if isinstance(documents, Corpus):
        content = FEATURES if documents.has_features else TEXTS
    else:
        first, documents = peek_first_document(documents)
        content = TEXTS if first.features is None else FEATURES
    return Pipeline.from_parameters(method, content, parameters).fit(documents, valid, run)


def peek_first_document(documents: Iterable[Document]) -> tuple[Document, Iterator[Document]]:
    """The first document, which tells what a corpus holds, and all of them."""
    stream = iter(documents)
    first = next(stream, None)
    if first is None:
        raise XmtcError("The training corpus holds no documents; give it at least two with labels.")
    return first, chain([first], stream)


def select_own_parameters(recipe: View | Calibration, values: Parameters) -> dict[str, Any]:
    """Those of the values that are a recipe's."""
    return {field.name: values[field.name] for field in fields(recipe) if field.name in values}
