"""Label names as training documents.

Each name of a label becomes a short training document of that label. From it, a linear method learns the words of the
name, and with a vocabulary also labels that no training document has. The weight of these documents is selected by a
trial: one Parabel tree is trained on a sample of the documents without names and with names of two weights, and
names are used only if the nDCG@5 of held-out documents is significantly higher. In the trial, a label of held-out
documents only is known by name only if the vocabulary lists it, as a label of new documents would be."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

from xmtc.analyzer_selection import SampleFeatures, count_terms, select_known_terms
from xmtc.core.dataset import Bag, Dataset, Tokens
from xmtc.core.hyperparameters import ParameterSet, param
from xmtc.core.method import LabelName, Method
from xmtc.core.run import Run
from xmtc.data.batch import DocumentBatch
from xmtc.data.document import Document
from xmtc.data.label_collector import LabelCollector
from xmtc.evaluation import evaluate_per_document
from xmtc.features.tfidf import Tfidf
from xmtc.features.view import TEXTS, FittedView, View
from xmtc.features.views import fit_view
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.text.analyzers import AUTO, WORDS
from xmtc.text.languages import detect_text_language
from xmtc.vocabulary import NO_CONCEPT
from xmtc.vocabulary.label_names import expand_name, list_label_names, load_vocabulary

MAX_NAME_WEIGHT = 1e6
NEVER, ALWAYS = "never", "always"  # values of name_documents, beside AUTO
MIN_TRIAL_DOCUMENTS = 500  # a smaller sample gives no reliable comparison
MAX_TRIAL_DOCUMENTS, MAX_TRIAL_WORDS = 5000, 1_000_000
HELD_OUT_SHARE, MAX_HELD_OUT_DOCUMENTS = 0.2, 2000
# Lengths of the features of a name, where a document has 1, and weights to try. A name is a few words among many in a
# long document, so that the small weights that a name of length 1 needs do not find it (docs/results/accuracy.md).
TRIAL_WEIGHTS = {1.0: 1.0, 0.3: 3.0}
DEFAULT_LENGTH, DEFAULT_WEIGHT = 0.3, 3.0
UNSEEN_FACTOR = 3.0  # of the weight of a short name, if its label has no documents
MIN_NDCG_GAIN = 0.002  # minimum gain in nDCG@5 over training without names
MIN_GAIN_STANDARD_ERRORS = 2.0  # minimum gain, in standard errors of the gain
WORD_PATTERN = re.compile(r"[^\W\d_]{3}")  # a label with three letters in a row may be its own name
URI_PATTERN = re.compile(r"<?(\w+://|urn:)")
MIN_WORD_LABEL_SHARE = 0.5


@dataclass(frozen=True)
class NameTraining(ParameterSet):
    """Parameters of label names as training documents, for linear methods on texts."""

    title: ClassVar[str] = "Label names"

    name_documents: str = param(
        AUTO,
        "Training on label names: auto (if held-out documents show a gain), always or never.",
        choices=(AUTO, ALWAYS, NEVER),
    )
    name_weight: float = param(
        0.0,
        "Weight of the names of a label as training documents, divided by the square root of their number; 0 selects "
        "it on held-out documents.",
        low=0.0,
        high=MAX_NAME_WEIGHT,
    )
    name_length: float = param(
        0.0,
        "Length of the features of a name, where a document has 1; 0 selects it on held-out documents.",
        low=0.0,
        high=1.0,
    )
    vocabulary: str = param(
        "",
        "Vocabulary with the names of labels: folder of `xmtc vocab import`, SKOS file or table; if empty, labels are "
        "their own names if they are words.",
    )
    name_language: str = param(
        AUTO,
        "Language of the vocabulary's names, for example en; auto: the language of the texts, where a concept has "
        "names in it; if empty, names in all languages are used.",
    )
    max_unseen_labels: int = param(
        50_000,
        "Maximum number of labels that only the vocabulary has; with more of them, all are left out.",
        low=0,
    )

    def list_candidates(self) -> list[NameScale]:
        """Return the weights and lengths to choose from: one without a vocabulary, where they make no difference."""
        if not self.vocabulary:
            return [NameScale(self.name_weight or DEFAULT_WEIGHT, self.name_length or DEFAULT_LENGTH)]
        return [
            NameScale(self.name_weight or TRIAL_WEIGHTS.get(length, DEFAULT_WEIGHT), length)
            for length in ([self.name_length] if self.name_length else TRIAL_WEIGHTS)
        ]


class NameScale(NamedTuple):
    """Weight and length of names as training documents."""

    weight: float
    length: float

    @property
    def unseen_weight(self) -> float:
        """Weight for a label without documents."""
        return self.weight * UNSEEN_FACTOR if self.length < 1 else self.weight

    def __str__(self) -> str:
        return f"weight {self.weight:g} and length {self.length:g}"


NO_NAMES = NameScale(0.0, 0.0)


def has_name_training(method: Method, content: str = TEXTS) -> bool:
    """Return True if a method, or some members of a combination, can train on label names as documents."""
    return content == TEXTS and method.has_name_documents


@dataclass(frozen=True)
class NameChoice:
    """Selected weight of the names, and the reason for it."""

    scale: NameScale  # weight 0 without names
    reason: str
    n_names: int = 0
    n_unseen_labels: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the entry `chosen_names` of about.json."""
        counts = {"names": self.n_names, "unseen_labels": self.n_unseen_labels} if self.is_used else {}
        return {**self.scale._asdict(), **counts, "because": self.reason}

    @property
    def is_used(self) -> bool:
        return self.scale.weight > 0

    def __str__(self) -> str:
        if not self.is_used:
            return f"Label names are not training documents: {self.reason}."
        unseen = f" ({self.n_unseen_labels:,} labels have no document)" if self.n_unseen_labels else ""
        return f"{self.n_names:,} label names{unseen} are training documents of {self.scale}: {self.reason}."


@dataclass(frozen=True)
class NameCatalogue:
    """Names of the labels of the documents, and of further labels of the vocabulary."""

    names: list[LabelName]
    listed: Collection[str]  # labels that are known without documents, because the vocabulary lists them
    n_left_out: int = 0  # further labels of the vocabulary, more than `max_unseen_labels`

    def select_known(self, labels: Collection[str]) -> list[LabelName]:
        """Return the names that are known if only these labels have documents."""
        return [name for name in self.names if name.label in labels or name.label in self.listed]


class NamePlan(NamedTuple):
    """Label names, and whether and how they are training documents."""

    catalogue: NameCatalogue
    choice: NameChoice


def has_word_labels(labels: Collection[str]) -> bool:
    """Return True if most labels look like words instead of ids."""
    n_words = sum(bool(WORD_PATTERN.search(label)) and not URI_PATTERN.match(label) for label in labels)
    return n_words > MIN_WORD_LABEL_SHARE * len(labels)


def build_catalogue(
    options: NameTraining, labels: Sequence[str], texts: Iterable[str], classes: Collection[str] | None
) -> NameCatalogue:
    """Return the names of the documents' labels, and of all other concepts unless there are too many.

    `texts` show the language of the documents. Labels outside `classes` are left out."""
    if not options.vocabulary:
        return NameCatalogue([name for label in labels for name in expand_name(label, label)], ())
    vocabulary = load_vocabulary(options.vocabulary)
    language = detect_text_language(texts) if options.name_language == AUTO else None
    names = list(list_label_names(vocabulary, labels, options.name_language, language))
    if classes is not None:
        names = [name for name in names if name.label in classes]
    with_documents = set(labels)
    unseen = {name.label for name in names} - with_documents
    if len(unseen) > options.max_unseen_labels:
        return NameCatalogue([name for name in names if name.label in with_documents], (), len(unseen))
    concepts = zip(labels, vocabulary.match(labels).tolist(), strict=True)
    return NameCatalogue(names, unseen | {label for label, concept in concepts if concept != NO_CONCEPT})


def choose_name_weight(
    options: NameTraining, catalogue: NameCatalogue, view: Tfidf, sample: Sequence[Document], run: Run
) -> NameChoice:
    """Choose the weight of the names by a trial on a sample of the documents, in random order."""
    choice = choose_by_trial(options, catalogue, view, sample, run)
    if not catalogue.n_left_out or not choice.is_used:
        return choice
    left_out = f"the vocabulary has {catalogue.n_left_out:,} further labels, more than max_unseen_labels"
    return replace(choice, reason=f"{choice.reason}; {left_out}={options.max_unseen_labels}")


def choose_by_trial(
    options: NameTraining, catalogue: NameCatalogue, view: Tfidf, sample: Sequence[Document], run: Run
) -> NameChoice:
    """Choose the weight of the names without a remark on labels that are left out."""
    candidates, is_forced = options.list_candidates(), options.name_documents == ALWAYS
    if len(candidates) == 1 and is_forced:
        return NameChoice(candidates[0], "set by name_documents, name_weight and name_length")
    if len(sample) < MIN_TRIAL_DOCUMENTS:
        reason = describe_small_sample(len(sample))
        default = NameScale(options.name_weight or DEFAULT_WEIGHT, options.name_length or DEFAULT_LENGTH)
        return NameChoice(default if is_forced else NO_NAMES, reason)
    with run.stage("trying label names"):
        trial = NameTrial.from_documents(sample, catalogue, view, run.for_trial())
        scores = {scale: trial.score(scale) for scale in candidates}
        baseline = trial.score(NO_NAMES)
    best = max(scores, key=lambda scale: scores[scale].mean())
    means = ", ".join(f"{100 * score.mean():.1f} with {scale}" for scale, score in scores.items())
    reason = f"nDCG@5 of {len(baseline):,} held-out documents is {100 * baseline.mean():.1f} without names, {means}"
    return NameChoice(best if is_forced or is_better(scores[best], baseline) else NO_NAMES, reason)


def describe_small_sample(n_docs: int) -> str:
    return f"{n_docs:,} labelled documents are too few for a trial; {MIN_TRIAL_DOCUMENTS:,} are needed"


def is_better(score: np.ndarray, baseline: np.ndarray) -> bool:
    gain = score - baseline
    return bool(gain.mean() > max(MIN_NDCG_GAIN, MIN_GAIN_STANDARD_ERRORS * gain.std() / len(gain) ** 0.5))


def sample_documents(documents: Iterable[Document], is_labelled: np.ndarray) -> list[Document]:
    """Return labelled documents in random order, at most as many as a trial uses."""
    rows = np.random.default_rng(0).permutation(np.flatnonzero(is_labelled))[:MAX_TRIAL_DOCUMENTS]
    place = {row: i for i, row in enumerate(rows.tolist())}
    drawn = [(place[row], document) for row, document in enumerate(documents) if row in place]
    sample = [document for _, document in sorted(drawn, key=lambda pair: pair[0])]
    return limit_sample(sample)


def limit_sample(sample: Sequence[Document]) -> list[Document]:
    """Return the first documents, at most as many words as a trial uses."""
    n_words = np.cumsum([1 + document.text.count(" ") for document in sample])
    limit = min(MAX_TRIAL_DOCUMENTS, max(MIN_TRIAL_DOCUMENTS, int(np.searchsorted(n_words, MAX_TRIAL_WORDS))))
    return list(sample[:limit])


@dataclass(frozen=True)
class NameTrial:
    """Training sample, held-out sample and the names that are known without the held-out documents."""

    train: Sequence[Document]
    held_out: Sequence[Document]
    names: list[LabelName]
    view: Tfidf
    run: Run
    bag: Bag = field(repr=False)  # training documents, held-out documents, names

    @classmethod
    def from_documents(cls, sample: Sequence[Document], catalogue: NameCatalogue, view: Tfidf, run: Run) -> NameTrial:
        n_held_out = min(MAX_HELD_OUT_DOCUMENTS, int(HELD_OUT_SHARE * len(sample)))
        train, held_out = sample[n_held_out:], sample[:n_held_out]
        names = catalogue.select_known({label for document in train for label in document.labels})
        texts = [document.text for document in (*train, *held_out)]
        repeated = [name.text for name in names] * min(2, view.min_df)  # as in fit_view_with_names
        bag = SampleFeatures(view, texts + repeated, run).transform(WORDS if view.analyzer == AUTO else view.analyzer)
        return cls(train, held_out, names, view, run, bag.select_rows(slice(0, len(texts) + len(names))))

    def score(self, scale: NameScale) -> np.ndarray:
        """Return the nDCG@5 of each held-out document after training with names; NO_NAMES trains without."""
        n_train, n_docs = len(self.train), len(self.train) + len(self.held_out)
        train, held_out = self.bag.select_rows(slice(0, n_train)), self.bag.select_rows(slice(n_train, n_docs))
        names, frequencies, collector = [], count_terms(train), LabelCollector()
        if scale.weight:
            names, name_rows = self.names, np.arange(n_docs, self.bag.n_docs)
            frequencies = frequencies + self.view.min_df * count_terms(self.bag.select_rows(name_rows))
            train = self.bag.select_rows(np.append(np.arange(n_train), name_rows))
        train, held_out = select_known_terms((train, held_out), frequencies, self.view)
        for _ in collector.collect(self.train):
            pass
        is_known = np.diff(train.matrix.indptr) > 0
        labels, data = join_names(Dataset({"tfidf": train}), is_known, collector, names, scale)
        model = Parabel(n_trees=1).fit(data, run=self.run)
        predictions = model.predict(Dataset({"tfidf": held_out}), 5, self.run)
        collector = LabelCollector()
        for _ in collector.collect(self.held_out):
            pass
        truth = collector.to_matrix(labels)  # labels that the model does not know have the last columns
        return evaluate_per_document(predictions, truth, "nDCG@5")["nDCG@5"]


def fit_view_with_names(
    view: View,
    documents: Iterable[Document | DocumentBatch],
    names: Sequence[LabelName],
    run: Run,
    matched_names: Sequence[LabelName] = (),
) -> tuple[FittedView, Bag | Tokens]:
    """Fit a view on documents and names, and return it with the features of the documents and, after them, the names.

    `matched_names` are for a view of the words of names. Names are read `min_df` times, so that all of their words
    become terms: on cve-libraries, words that only one name has find half of the unseen labels that are found
    (docs/results/accuracy.md)."""
    name_documents = [Document("", name.text, []) for name in names]
    stream = chain(documents, name_documents * getattr(view, "min_df", 1))
    fitted, data = fit_view(view, stream, run, [name.text for name in matched_names])
    n_repeated = len(names) * (getattr(view, "min_df", 1) - 1)
    return fitted, data.select_rows(slice(0, data.n_docs - n_repeated)) if n_repeated > 0 else data


def join_names(
    data: Dataset,
    is_known: np.ndarray,
    collector: LabelCollector,
    names: Sequence[LabelName],
    scale: NameScale,
    classes: Sequence[str] | None = None,
    further_labels: Collection[str] = (),
) -> tuple[list[str], Dataset]:
    """Return the labels and the training data of documents and, after them, names of labels.

    Parameters
    ----------
    data
        Views of the documents and of the names.
    is_known
        Rows with a known word; other names are dropped.
    collector
        Labels of the documents.
    names, scale
        Names, and their weight and length. The weight of a label is divided by the square root of its number of names,
        and a label without documents has `unseen_weight`.
    classes
        Order of the labels; by default they are sorted.
    further_labels
        Labels that are known without a document or a name with a known word.
    """
    n_docs = data.n_docs - len(names)
    kept = n_docs + np.flatnonzero(is_known[n_docs:])
    names = [names[row - n_docs] for row in kept.tolist()]
    known_labels = {*collector.id_by_label, *(name.label for name in names), *further_labels}
    labels = sorted(known_labels) if classes is None else [label for label in classes if label in known_labels]
    Y = collector.to_matrix(labels)
    if not names:
        return labels, replace(data.select_rows(slice(0, n_docs)), Y=Y)
    columns = {label: column for column, label in enumerate(labels)}
    name_columns = np.array([columns[name.label] for name in names])
    name_Y = csr_array(
        (np.ones(len(names), np.float32), (np.arange(len(names)), name_columns)), (len(names), Y.shape[1])
    )
    is_name = np.arange(n_docs + len(names)) >= n_docs
    data = data if n_docs + len(names) == data.n_docs else data.select_rows(np.append(np.arange(n_docs), kept))
    has_documents = np.bincount(Y.indices, minlength=Y.shape[1]) > 0
    label_weights = np.where(has_documents, scale.weight, scale.unseen_weight)
    name_weights = (label_weights / np.sqrt(np.maximum(np.bincount(name_columns, minlength=Y.shape[1]), 1)))[
        name_columns
    ]
    return labels, replace(
        data,
        views={name: scale_names(view, n_docs, scale.length) for name, view in data.views.items()},
        Y=csr_array(vstack([Y, name_Y], format="csr")),
        weights=np.append(np.ones(n_docs), name_weights).astype(np.float32),
        is_name=is_name,
    )


def scale_names(view: Bag | Tokens, n_docs: int, length: float) -> Bag | Tokens:
    """Return a view in which the rows after the documents are multiplied by a length."""
    if isinstance(view, Tokens):
        return view
    matrix = view.matrix
    data = matrix.data.copy()
    data[matrix.indptr[n_docs] :] *= np.float32(length)
    return view.copy_with(matrix=csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape))
