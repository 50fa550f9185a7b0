"""Training of a Tagger from documents.

A Pipeline is the recipe of a Tagger: a method, the views that the method reads, training on label names, and the
calibration of its scores."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
from itertools import chain, compress, islice
from typing import Any

import numpy as np

import xmtc
from xmtc import features
from xmtc.analyzer_selection import AnalyzerChoice, TextSample, TextSpool, count_and_sample, select_analyzer
from xmtc.core.array_validation import NUMERIC_KINDS, as_document_weights
from xmtc.core.dataset import Bag, Dataset, LabelNames, Tokens
from xmtc.core.hyperparameters import resolve_value
from xmtc.core.method import LabelName, Method
from xmtc.core.progress import print_to_stderr
from xmtc.core.registry import find_package
from xmtc.core.run import Run, check_run
from xmtc.core.training_store import TrainingStore, renumber_columns
from xmtc.data.batch import DocumentBatch, Texts
from xmtc.data.corpus import Corpus
from xmtc.data.document import Document
from xmtc.data.identity import IdentityCollector
from xmtc.data.label_collector import LabelCollector
from xmtc.errors import XmtcError
from xmtc.features import FEATURES, TEXTS, FittedViews, View, Views
from xmtc.features.columns import FittedColumns
from xmtc.features.dense import FittedDense
from xmtc.features.names import FittedNames, Names
from xmtc.features.subwords import FittedSubwords
from xmtc.features.tfidf import Tfidf
from xmtc.features.unknown_words import measure_unknown_words
from xmtc.methods import check_savable
from xmtc.methods.ensemble.auto import Auto
from xmtc.methods.ensemble.calibrated_model import widen_views
from xmtc.methods.ensemble.model import remap_labels
from xmtc.name_documents import (
    MIN_TRIAL_DOCUMENTS,
    NEVER,
    NO_NAMES,
    NameCatalogue,
    NameChoice,
    NamePlan,
    NameTraining,
    build_catalogue,
    choose_name_weight,
    describe_small_sample,
    fit_view_with_names,
    has_word_labels,
    join_names,
    limit_sample,
    sample_documents,
)
from xmtc.parameters import (
    Parameters,
    as_json_value,
    as_unparsed,
    build_calibration,
    build_method,
    build_name_training,
    build_views,
    collect_method_fields,
    collect_set_fields,
    collect_view_presets,
    parameters_as_json,
)
from xmtc.scores import calibration
from xmtc.scores.calibration import Calibration
from xmtc.scores.drift import MAX_REFERENCE_DOCUMENTS, DriftReference
from xmtc.tagger import Tagger
from xmtc.text.analyzers import AUTO
from xmtc.text.languages import detect_text_language
from xmtc.text.string_index import StringIndex
from xmtc.training_plan import TrainingPlan, make_training_plan

MAX_KEPT_BYTES = 200 * 2**20  # training data that a model keeps unless it is told to
DEFAULT_CALIBRATION, NO_CALIBRATION = Calibration(), Calibration(calibrate=False)
FIRST_DOCUMENTS = 1000  # whose labels show whether labels are words


@dataclass(frozen=True)
class Pipeline:
    """Method, views, calibration and label names of a training."""

    method: Method
    views: Views
    calibration: Calibration = DEFAULT_CALIBRATION
    names: NameTraining | None = None  # None if names are no training documents
    plan: TrainingPlan | None = None  # that method `auto` made

    @classmethod
    def from_parameters(
        cls, method: Method | str, content: str = TEXTS, parameters: Parameters | None = None
    ) -> Pipeline:
        """Build a pipeline from a method or its name.

        Parameters
        ----------
        method : Method or str
            Method object, or its name in the registry.
        content : {"texts", "features"}
            Content of the corpus.
        parameters : dict, optional
            Hyper-parameters of the method, of its views, of label names and of the calibration.
        """
        method, remaining = build_method(method, parameters or {})
        calibration, remaining = build_calibration(remaining)
        names, remaining = build_name_training(method, content, remaining)
        return cls(method, build_views(method, content, remaining), calibration, names)

    def with_parameters(self, values: Parameters) -> Pipeline:
        """Return a copy with some parameters replaced."""
        method, remaining = build_method(self.method, values)
        presets, content = collect_view_presets(method), next(iter(self.views.values())).input_kind
        views = {}
        for required in method.required_views:
            name = features.resolve_view(required, content, type(method).__name__)
            kind = features.get_view_kind(name)
            view = self.views.get(name) or next(v for n, v in self.views.items() if features.get_view_kind(n) == kind)
            own = as_unparsed(method.own_view_parameters.get(required, {}))
            views[name] = view.replace(**select_own_parameters(view, remaining | own)).fill_unset(presets)
        calibration = self.calibration.replace(**select_own_parameters(self.calibration, remaining))
        names = self.names and self.names.replace(**select_own_parameters(self.names, remaining))
        return Pipeline(method, views, calibration, names)

    @property
    def parameters(self) -> dict[str, tuple[Field, Any]]:
        """Fields and values of all parameters, by parameter name."""
        parameters = collect_method_fields(self.method)
        for recipe in (*self.views.values(), *([self.names] if self.names else []), self.calibration):
            parameters |= collect_set_fields(recipe)
        return parameters

    def fit(
        self,
        documents: Iterable[Document],
        valid: Iterable[Document] | None = None,
        run: Run = Run(),
        *,
        classes: Sequence[str] | None = None,
        weights: np.ndarray | None = None,
        keep_training: bool | None = False,
    ) -> Tagger:
        """Train a Tagger.

        Parameters
        ----------
        documents : iterable of Document
            Labelled training documents, which may be a stream.
        valid : iterable of Document, optional
            Validation documents for early stopping and calibration.
        run : Run
            Threads, device, progress output and checkpoint.
        classes : sequence of str, optional
            All labels in the order of the model's label ids; by default the sorted labels of the documents.
        weights : ndarray of shape (n_docs,), optional
            Document weights. Documents of weight 0 are left out, together with labels that no other document has and
            that `classes` does not have.
        keep_training : bool or None, default=False
            Whether the Tagger keeps ids, features and labels of the documents, for updates; None keeps them up to
            MAX_KEPT_BYTES.

        Returns
        -------
        Tagger
        """
        check_run(run)
        run, history = run.record_history()
        read_options = documents.read_options if isinstance(documents, Corpus) else {}
        if isinstance(self.method, Auto):
            documents = list(peek_first_document(documents)[1])
            tagger = self.with_plan(documents, run).fit(
                documents, valid, run, classes=classes, weights=weights, keep_training=keep_training
            )
            return replace(tagger, history=tuple(history), about=tagger.about | add_reading(read_options))
        documents, weights = drop_zero_weights(documents, weights)
        with self._load_method_in_background(documents, run):
            prepared = self.prepare(documents, run, classes, keep_training is not False)
        if weights is not None:
            prepared = prepared.with_document_weights(weights)
        valid_data = None if valid is None else prepared.build_labelled_dataset(valid, run)
        store = prepared.store(keep_training, run)
        tagger = prepared.train(self.method, valid_data, run, self.calibration, keep_views=store is not None)
        tagger = replace(tagger, training=store)
        plan = {"plan": self.plan.as_json()} if self.plan else {}
        return replace(tagger, history=tuple(history), about=tagger.about | add_reading(read_options) | plan)

    def with_plan(self, documents: Iterable[Document], run: Run = Run()) -> Pipeline:
        """Return the pipeline that method `auto` plans for documents; that of another method is returned unchanged."""
        if not isinstance(self.method, Auto):
            return self
        (view,) = self.views.values()
        own = view.explicit_values | self.calibration.explicit_values
        naming = {}
        if self.names is not None:
            own |= self.names.explicit_values
            naming = {"vocabulary": self.names.vocabulary, "name_language": self.names.name_language}
        has_vocabulary = bool(naming.get("vocabulary"))
        plan = make_training_plan(self.method, view, list(documents), run, naming if has_vocabulary else None)
        parameters = own | as_unparsed(plan.parameters)
        plan = plan.with_parameters(own)
        logging.getLogger("xmtc").info("Plan: xmtc train %s; %s.", plan.arguments, plan.reason)
        return replace(Pipeline.from_parameters(plan.method, view.input_kind, parameters), plan=plan)

    def refuse_auto(self, command: str) -> None:
        """Raise XmtcError for method `auto`, which has no method of its own to train repeatedly."""
        if isinstance(self.method, Auto):
            raise XmtcError(
                f"auto plans another method for each training, so {command} needs a method; give the one of the plan "
                "that `xmtc recommend --plan` prints."
            )

    @contextmanager
    def _load_method_in_background(self, documents: Iterable[Document], run: Run) -> Iterator[None]:
        """Load the method's compiled code in a thread while the corpus is read. Nothing waits for the thread: a call of
        code that is not loaded yet loads it."""
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
        self,
        documents: Iterable[Document],
        run: Run = Run(),
        classes: Sequence[str] | None = None,
        should_identify: bool = False,
    ) -> TrainingData:
        """Fit the views on labelled documents and return the method's training data."""
        check_savable(self.method)
        collector = LabelCollector(run)
        documents, can_use_names = self._make_repeatable_for_names(documents)
        documents, names, language = self._collect_label_names(documents, classes)
        stream = collector.collect(self._read_in_batches(documents, run))
        sample = TextSample(MAX_REFERENCE_DOCUMENTS) if self.calibration.calibrate else None
        stream = stream if sample is None else sample.collect_documents(stream)
        identities = IdentityCollector() if should_identify else None
        stream = stream if identities is None else identities.collect(stream)
        plan_names = partial(self._plan_names, classes=classes, run=run) if can_use_names else None
        fitted, data, choices, plan = self._fit_views(
            stream, documents, collector, [name.text for name in names], language, run, plan_names
        )
        if not collector.id_by_label:
            raise XmtcError(f"None of the {data.n_docs} training documents has a label; check the labels field.")
        known = collector.id_by_label.keys() | {name.label for name in names}
        labels = sorted(known) if classes is None else [label for label in classes if label in known]
        label_index = StringIndex.from_strings(labels)
        prepared = TrainingData(
            views=self.views,
            fitted_views=fitted,
            labels=label_index,
            classes=label_index if classes is None else StringIndex.from_strings(classes),
            data=data,
            fingerprint=collector.fingerprint(),
            analyzer_choices=choices,
            names=self.names,
            identities=identities,
            sample=sample,
        )
        if plan is None and plan_names:  # without a choice of the analyzer, labels are known after the views
            Y = collector.to_matrix(labels)
            views = {name: prepared.set_analyzer(name, view) for name, view in self.views.items()}
            plan = plan_names(collector, views["tfidf"], lambda: sample_documents(documents, np.diff(Y.indptr) > 0))
            if plan and plan.choice.is_used:
                fitted, data = self._fit_views_with_names(views, documents, plan, run, names, language)
        if plan and plan.choice.is_used:
            prepared = replace(prepared, name_choice=plan.choice)
            prepared = prepared.join_names(fitted, data, collector, plan.catalogue, classes, known)
        else:
            prepared = replace(prepared, data=replace(data, Y=collector.to_matrix(labels)))
            prepared = replace(prepared, name_choice=plan and plan.choice)
        if plan:
            logging.getLogger("xmtc").info(str(prepared.name_choice))
        names_of_labels = build_label_names(names, fitted, prepared.labels.words(), run)
        return replace(prepared, data=replace(prepared.data, names=names_of_labels))

    def _make_repeatable_for_names(self, documents: Iterable[Document]) -> tuple[Iterable[Document], bool]:
        """Return the documents, and whether they can be read again, which label names as training documents need.

        A stream of documents is held in memory if its first labels are words."""
        if self.names is None or self.names.name_documents == NEVER or "tfidf" not in self.views:
            return documents, False
        if is_repeatable(documents):
            return documents, True
        documents = iter(documents)
        first = list(islice(documents, FIRST_DOCUMENTS))
        if self.names.vocabulary or has_word_labels({label for document in first for label in document.labels}):
            return [*first, *documents], True
        return chain(first, documents), False

    def _plan_names(
        self,
        collector: LabelCollector,
        view: View,
        draw_sample: Callable[[], list[Document]],
        classes: Sequence[str] | None,
        run: Run,
    ) -> NamePlan | None:
        """Return whether label names are further documents, as held-out documents say; None without label names."""
        if not (self.names and (self.names.vocabulary or has_word_labels(collector.id_by_label))):
            return None
        assert isinstance(view, Tfidf)
        sample = draw_sample()
        if self.names.name_documents == AUTO and len(sample) < MIN_TRIAL_DOCUMENTS:
            return NamePlan(NameCatalogue([], ()), NameChoice(NO_NAMES, describe_small_sample(len(sample))))
        texts = (document.text for document in sample)
        known_classes = None if classes is None else set(classes)
        catalogue = build_catalogue(self.names, sorted(collector.id_by_label), texts, known_classes)
        return NamePlan(catalogue, choose_name_weight(self.names, catalogue, view, sample, run))

    def _fit_views_with_names(
        self,
        views: Mapping[str, View],
        documents: Iterable[Document],
        plan: NamePlan,
        run: Run,
        names: Sequence[LabelName] = (),
        language: str | None = None,
    ) -> tuple[FittedViews, Dataset]:
        """Fit views on the documents and, after them, the names of labels.

        `names` are those that a member matches, and `language` is that of the texts."""
        fitted, parts = {}, {}
        for name, view in views.items():
            stream = self._read_in_batches(documents, run)
            view = view.with_language(language) if isinstance(view, Names) else view
            fitted[name], parts[name] = fit_view_with_names(view, stream, plan.catalogue.names, run, names)
        return fitted, Dataset(parts)

    def _fit_views(
        self,
        stream: Iterable[Document | DocumentBatch],
        source: Iterable[Document],
        collector: LabelCollector,
        names: list[str],
        language: str | None,
        run: Run,
        plan_names: Callable[..., NamePlan | None] | None = None,
    ) -> tuple[FittedViews, Dataset, dict[str, AnalyzerChoice], NamePlan | None]:
        """Fit all views on the stream of a source; the labels of the documents are in the collector when the first view
        has read them. Return also the selected analyzers, by view, and the plan for label names if one was made.

        `language` is that of the texts, for views that compare them with label names. If the analyzer of the only view
        is selected, label names are planned with the same sample, and the view is fitted once, with the names."""
        documents = features.as_repeatable(stream, len(self.views))
        fitted: FittedViews = {}
        data: dict[str, Bag | Tokens] = {}
        choices: dict[str, AnalyzerChoice] = {}
        plan = None
        for name, view in self.views.items():
            if isinstance(view, Tfidf) and view.analyzer == AUTO:
                contents = features.extract_contents(documents, view.input_kind)
                spool = None if is_repeatable(source) else TextSpool(run.workdir)
                counts, sample = count_and_sample(view, spool.collect(contents) if spool else contents, run)
                choices[name] = choice = select_analyzer(view, counts, sample, collector, run)
                logging.getLogger("xmtc").info("analyzer=%s: %s.", choice.analyzer, choice.reason)
                if plan_names and len(self.views) == 1:
                    plan = plan_names(
                        collector, view.replace(analyzer=choice.analyzer), partial(draw_documents, sample, collector)
                    )
                    if plan and plan.choice.is_used:
                        counts.batches.clear()
                        views = {name: view.replace(analyzer=choice.analyzer)}
                        return *self._fit_views_with_names(views, source, plan, run), choices, plan

                def read_again(view: View = view, spool: TextSpool | None = spool) -> Iterable[str | Texts]:
                    return spool or features.extract_contents(self._read_in_batches(source, run), view.input_kind)

                terms, bag = view.fit_counted(counts, read_again(), choice.analyzer, run)
                if view.dense:
                    terms, bag = view.join_vectors(terms, bag, read_again(), run)
                fitted[name], data[name] = terms, bag
            else:
                view = view.with_language(language) if isinstance(view, Names) else view
                fitted[name], data[name] = features.fit_view(view, documents, run, names)
                if isinstance(columns := fitted[name], FittedColumns):
                    logging.getLogger("xmtc").info("The features of each document were %s.", columns.describe_scaling())
        return fitted, Dataset(data), choices, plan

    def _read_in_batches(self, documents: Iterable[Document], run: Run) -> Iterable[Document | DocumentBatch]:
        """Return a corpus as batches, which all threads read, if the view supports them; else the documents."""
        if isinstance(documents, Corpus) and features.is_batchable(self.views):
            return documents.iter_batches(run)
        return peek_first_document(documents)[1]

    def _collect_label_names(
        self, documents: Iterable[Document], classes: Sequence[str] | None
    ) -> tuple[Iterable[Document], list[LabelName], str | None]:
        """Return the documents, the label names for a method that reads them, and the language of the texts.

        Such a method needs all labels before the first text is read, so the documents are held in memory. Names of
        labels outside `classes` are dropped."""
        if not self.method.has_label_name_input:
            return documents, [], None
        documents = list(peek_first_document(documents)[1])
        language = detect_text_language(document.text for document in documents)
        logging.getLogger("xmtc").info("The texts are in %s.", (language or "an unknown language").capitalize())
        if classes is None:
            labels = sorted({label for document in documents for label in document.labels})
            return documents, list(self.method.list_label_names(labels, language)), language
        names, known = self.method.list_label_names(classes, language), set(classes)
        return documents, [name for name in names if name.label in known], language


def add_reading(read_options: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of about.json for the options with which the corpus was read, if there are any."""
    return {"reading": read_options} if read_options else {}


def draw_documents(sample: TextSample, collector: LabelCollector) -> list[Document]:
    """Return the labelled documents of a sample, at most as many as a trial of label names uses."""
    labels = sorted(collector.id_by_label)
    return limit_sample(sample.draw_documents(collector.to_matrix(labels), labels))


def is_repeatable(documents: Iterable[Document]) -> bool:
    """Return True if documents can be read twice."""
    return isinstance(documents, Sequence) or (isinstance(documents, Corpus) and not documents.is_pipe)


def build_label_names(
    names: list[LabelName], fitted: FittedViews, labels: list[str], run: Run = Run()
) -> LabelNames | None:
    """Return the label names in the views that represent them; None without such a view."""
    texts = [name.text for name in names]
    tokens = next((view.transform_names(texts) for view in fitted.values() if isinstance(view, FittedNames)), None)
    vectors = next((view.transform(texts, run) for view in fitted.values() if isinstance(view, FittedDense)), None)
    subword_view = next((view for view in fitted.values() if isinstance(view, FittedSubwords)), None)
    subwords = subword_view.transform(texts, run) if subword_view and names else None
    if tokens is None and vectors is None and subwords is None:
        return None
    id_by_label = {label: number for number, label in enumerate(labels)}
    return LabelNames(
        tokens=tokens,
        labels=np.array([id_by_label[name.label] for name in names], np.int32),
        preferred=np.array([name.is_preferred for name in names], np.bool_),
        vectors=vectors,
        subwords=subwords,
    )


@dataclass(frozen=True)
class TrainingData:
    """Labelled documents in the views of a method, for one or several trainings."""

    views: Views
    fitted_views: FittedViews
    labels: StringIndex  # labels that the method learns: they occur in the documents, or the method knows their names
    classes: StringIndex  # these and the remaining given classes, which the model never predicts
    data: Dataset
    fingerprint: str  # of the documents
    analyzer_choices: Mapping[str, AnalyzerChoice] = field(default_factory=dict)  # for views with analyzer=auto
    names: NameTraining | None = None
    name_choice: NameChoice | None = None  # if label names may be training documents; those are the last rows of data
    identities: IdentityCollector | None = None  # of the documents
    sample: TextSample | None = None  # of the documents, to measure unknown words

    @property
    def n_docs(self) -> int:
        """Number of documents, without names of labels."""
        return self.data.n_docs if self.data.is_name is None else int((~self.data.is_name).sum())

    def with_document_weights(self, weights: np.ndarray) -> TrainingData:
        """Return a copy with weights of the documents; names of labels keep theirs."""
        weights = as_document_weights(weights, self.n_docs)
        if self.data.weights is not None:
            weights = np.append(weights, self.data.weights[self.n_docs :])
        return replace(self, data=replace(self.data, weights=weights))

    def set_analyzer(self, name: str, view: View) -> View:
        """Return the view of this name with the selected analyzer, if it was to be selected."""
        choice = self.analyzer_choices.get(name)
        return view.replace(analyzer=choice.analyzer) if choice else view

    def join_names(
        self,
        fitted: FittedViews,
        data: Dataset,
        collector: LabelCollector,
        catalogue: NameCatalogue,
        classes: Sequence[str] | None,
        matched_labels: Collection[str],
    ) -> TrainingData:
        """Return a copy whose data are the documents and, after them, the names of labels.

        Labels whose names a member matches are known, too."""
        assert self.name_choice is not None
        is_known = features.mark_known_documents(fitted, data)
        scale = self.name_choice.scale
        labels, data = join_names(data, is_known, collector, catalogue.names, scale, classes, matched_labels)
        index = StringIndex.from_strings(labels)
        n_names = 0 if data.is_name is None else int(data.is_name.sum())
        n_unseen = len(labels) - len(collector.id_by_label.keys() & set(labels))
        return replace(
            self,
            fitted_views=fitted,
            labels=index,
            classes=index if classes is None else self.classes,
            data=data,
            name_choice=replace(self.name_choice, n_names=n_names, n_unseen_labels=n_unseen),
        )

    def store(self, keep: bool | None, run: Run = Run()) -> TrainingStore | None:
        """Return the documents for later updates; None if they are not kept."""
        if keep is False or self.identities is None:
            return None
        assert self.data.Y is not None
        Y = renumber_columns(self.data.Y, self.class_ids, len(self.classes))
        names = self.data.names and self.data.names.with_labels(self.class_ids)
        data = self.data.copy_with(Y=Y, names=names)
        training = TrainingStore.from_dataset(data, self.identities.ids, self.identities.hashes)
        is_kept, size = keep or training.n_bytes <= MAX_KEPT_BYTES, training.n_bytes / 2**20
        if run.progress:
            how = "keeps" if is_kept else "does not keep"
            print_to_stderr(f"The model {how} ids, features and labels of its documents for updates ({size:.1f} MiB).")
        return training if is_kept else None

    @property
    def class_ids(self) -> np.ndarray:
        """Number among the classes of each label that the method learns."""
        return self.classes.find_packed(self.labels.text, self.labels.ends)

    def train(
        self,
        method: Method,
        valid: Dataset | None = None,
        run: Run = Run(),
        calibration_options: Calibration = NO_CALIBRATION,
        keep_views: bool = False,
    ) -> Tagger:
        """Train a method on these documents and return its Tagger; with `keep_views`, also with views that updates need
        and the model does not read."""
        run, history = run.record_history()
        try:
            fitted = calibration.fit_calibrated(method, self.data, valid, run, calibration_options.calibrate)
        finally:
            run.checkpoint.release()
        class_ids = self.class_ids
        frequencies = np.zeros(len(self.classes), np.int64)
        frequencies[class_ids] = np.bincount(self.data.document_labels.indices, minlength=len(self.labels))
        model = fitted.model
        if len(self.classes) > len(self.labels):
            model = remap_labels(model, class_ids, len(self.classes))
        model = fitted.apply_to(model)
        if keep_views:
            model = widen_views(model, self.data.sizes)
        sizes = {name: size for name, size in self.data.sizes.items() if name in model.views}
        about = (
            self.describe_training(method)
            | {"sizes": sizes}
            | parameters_as_json(calibration_options)
            | {"scores": fitted.as_json()}
        )
        views = {name: view for name, view in self.fitted_views.items() if name in model.views}
        reference = self.complete_reference(fitted.reference, views, run)
        return Tagger(views, self.classes, frequencies, model, about, history=tuple(history), reference=reference)

    def complete_reference(
        self, reference: DriftReference | None, views: FittedViews, run: Run
    ) -> DriftReference | None:
        """Return the reference with the numbers of the classes and the unknown words of documents."""
        if reference is None:
            return None
        if len(self.classes) > len(self.labels):
            reference = reference.with_labels(self.class_ids)
        texts = [] if self.sample is None else self.sample.draw()[1]
        unknown = measure_unknown_words(views, texts, run, self.data)
        return reference if unknown is None else replace(reference, unknown=unknown.astype(np.float32))

    def build_labelled_dataset(self, documents: Iterable[Document], run: Run = Run()) -> Dataset:
        """Return other documents in the fitted views, with their labels."""
        return build_labelled_dataset(self.fitted_views, self.labels, documents, run)

    def describe_training(self, method: Method) -> dict[str, Any]:
        """Return the content of about.json, which is equal for two runs on the same data."""
        first_choice = next(iter(self.analyzer_choices.values()), None)
        return {
            "xmtc": xmtc.__version__,
            **as_json_value(method),
            "package": find_package(type(method)),
            "views": {name: parameters_as_json(view) for name, view in self.views.items()},
            "sizes": self.data.sizes,
            "n_docs": self.n_docs,
            "n_labels": len(self.classes),
            "data": f"blake2b:{self.fingerprint}",
            **({"chosen": first_choice.as_json()} if first_choice else {}),
            **({"names": parameters_as_json(self.names)} if self.names else {}),
            **({"chosen_names": self.name_choice.as_json()} if self.name_choice else {}),
        }


def drop_zero_weights(
    documents: Iterable[Document], weights: np.ndarray | None
) -> tuple[Iterable[Document], np.ndarray | None]:
    """Return the documents with positive weights, and these; other documents would still shape views and labels."""
    if weights is None or weights.ndim != 1 or weights.dtype.kind not in NUMERIC_KINDS or weights.all():
        return documents, weights  # a Dataset refuses wrong weights
    documents = list(documents)
    weights = as_document_weights(weights, len(documents))
    return list(compress(documents, weights)), weights[weights > 0]


def build_labelled_dataset(
    views: FittedViews, labels: StringIndex, documents: Iterable[Document], run: Run = Run()
) -> Dataset:
    """Return documents in fitted views, with their labels in the columns of training.

    Documents without labels are dropped, because they do not show which predictions are wrong. Documents whose labels
    are all unknown are kept. If no document has labels, all are kept."""
    collector = LabelCollector()
    data = features.transform(views, collector.collect(documents), run)
    Y = collector.to_matrix(labels.words())
    labelled = np.flatnonzero(np.diff(Y.indptr))
    data = replace(data, Y=Y[:, : len(labels)])
    return data.select_rows(labelled) if 0 < len(labelled) < data.n_docs else data


def train(
    documents: Iterable[Document],
    method: Method | str = "parabel",
    valid: Iterable[Document] | None = None,
    run: Run = Run(),
    *,
    keep_training: bool | None = False,
    **parameters: Any,
) -> Tagger:
    """Train a Tagger from labelled documents.

    Parameters
    ----------
    documents : Corpus or iterable of Document
        Training documents, which may be a stream.
    method : Method or str
        Method object, or its name in the registry.
    valid : Corpus or iterable of Document, optional
        Validation documents for early stopping and calibration.
    run : Run
        Threads, device, progress output and checkpoint.
    keep_training : bool or None, default=False
        Whether the Tagger keeps ids, features and labels of the documents, for updates; None keeps them up to
        MAX_KEPT_BYTES.
    **parameters
        Hyper-parameters of the method, of its views and of the calibration.

    Returns
    -------
    Tagger

    Raises
    ------
    XmtcError
        If there are no documents, no labels or no words, or if a parameter is invalid.

    Examples
    --------
    >>> from xmtc import Document, train
    >>> documents = [Document(str(i), text, [label]) for i, (text, label) in enumerate(
    ...     [("cats purr", "cats"), ("dogs bark", "dogs")] * 10)]
    >>> tagger = train(documents, "parabel", calibrate=False)
    >>> tagger.predict_labels(["a cat: cats purr"], 1)[0][0].label
    'cats'
    """
    if isinstance(documents, Corpus):
        content = FEATURES if documents.has_features else TEXTS
    else:
        first, documents = peek_first_document(documents)
        content = TEXTS if first.features is None else FEATURES
    pipeline = Pipeline.from_parameters(method, content, parameters)
    return pipeline.fit(documents, valid, run, keep_training=keep_training)


def peek_first_document(documents: Iterable[Document]) -> tuple[Document, Iterator[Document]]:
    """Return the first document, and an iterator over all of them."""
    stream = iter(documents)
    first = next(stream, None)
    if first is None:
        raise XmtcError("The training corpus holds no documents; give at least two with labels.")
    return first, chain([first], stream)


def select_own_parameters(recipe: View | Calibration | NameTraining, values: Parameters) -> dict[str, Any]:
    """Return the values whose names are fields of a view or of the calibration."""
    own = [field for field in fields(recipe) if field.name in values]
    return {field.name: resolve_value(type(recipe).__name__, field, values[field.name]) for field in own}
