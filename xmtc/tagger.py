"""A Tagger is a trained pipeline, whole by construction: text features, label names, and a Model between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

import xmtc
from xmtc import metrics, store
from xmtc.data.collect import LabelCollector
from xmtc.data.dataset import Dataset
from xmtc.data.document import Document
from xmtc.data.given import Given, GivenFeatures, needs_features, needs_text
from xmtc.errors import XmtcError
from xmtc.method import Method, Model
from xmtc.methods import method_name
from xmtc.predictions import NO_LABEL, Predictions
from xmtc.run import Run
from xmtc.text.tfidf import Tfidf, Vectorizer
from xmtc.text.vocabulary import Vocabulary


class Tag(NamedTuple):
    """A label and how sure the model is of it."""

    label: str
    score: float


@dataclass(frozen=True)
class Tagger:
    features: Vectorizer | GivenFeatures
    labels: Vocabulary  # label names by number, in alphabetical order
    frequencies: np.ndarray  # (n_labels,) int64, training documents of each label
    model: Model
    about: dict[str, Any]  # method, parameters, where from: what about.json says
    unchecked: Path | None = None  # the folder it was loaded from, until its numbers have been looked at

    def tags(self, texts: Iterable[str], k: int = 5, threshold: float = 0.0, run: Run = Run()) -> list[list[Tag]]:
        """The best k labels of each text that score at least the threshold, best first."""
        return self.named(self.rank(as_documents(texts), k, run).above(threshold))

    def rank(self, documents: Iterable[Document], k: int = 5, run: Run = Run()) -> Predictions:
        """Label numbers and scores of documents; see `tags` for names."""
        if k < 1:
            raise XmtcError(f"k={k} asks for no labels; expected at least 1.")
        return self.model.predict(Dataset(self.read(documents, run)), k, run)

    def named(self, predictions: Predictions) -> list[list[Tag]]:
        """Label names and scores, document by document."""
        rows = zip(predictions.labels.tolist(), predictions.scores.tolist(), strict=True)
        return [[Tag(self.labels[i], score) for i, score in zip(*row, strict=True) if i != NO_LABEL] for row in rows]

    def read(self, documents: Iterable[Document], run: Run = Run()) -> csr_array:
        """The features of documents."""
        self._check()
        return read(self.features, documents, run)

    def _check(self) -> None:
        """Look once at all numbers of a loaded model, which compiled code will trust. Not when it is opened, so that
        this stays quick."""
        if self.unchecked is not None:
            try:
                for part in (self.features, self.labels, self.model):
                    part.check()
            except store.MISFITS as error:
                raise store.damaged(self.unchecked, str(error)) from None
            object.__setattr__(self, "unchecked", None)

    def evaluate(
        self,
        documents: Iterable[Document],
        names: Sequence[str] = metrics.DEFAULT,
        propensity: metrics.Propensity = metrics.Propensity(),
        run: Run = Run(),
    ) -> dict[str, float]:
        """Metrics by their published names, as fractions. Labels that training never saw count as missed."""
        return self.measure(*self.rank_labelled(documents, metrics.max_k(names), run), names, propensity)

    def rank_labelled(
        self, documents: Iterable[Document], k: int = 5, run: Run = Run()
    ) -> tuple[Predictions, csr_array]:
        """Predictions, and the true labels beside them; those that training never saw have the last columns."""
        collector = LabelCollector()
        predictions = self.rank(collector.watch(documents), k, run)
        return predictions, collector.matrix(self.labels.words())

    def measure(
        self,
        predictions: Predictions,
        Y: csr_array,
        names: Sequence[str] = metrics.DEFAULT,
        propensity: metrics.Propensity = metrics.Propensity(),
    ) -> dict[str, float]:
        """Metrics of predictions that `rank_labelled` gave."""
        return metrics.evaluate(predictions, Y, names, self.frequencies, propensity, self.about["n_docs"])

    def explain(self, text: str, label: str, n: int = 20) -> list[tuple[str, float]]:
        """The words that speak most for a label, and what each adds to its score."""
        if not isinstance(text, str):
            raise XmtcError(f"Found a {type(text).__name__} to explain, expected one text; explain one at a time.")
        self._check()
        if not isinstance(self.features, Vectorizer):
            raise XmtcError("This model was trained on features without words, so it has none to explain with.")
        number = self.labels.find(*encoded(label))[0]
        if number == NO_LABEL:
            raise XmtcError(f"The model has no label {label!r}; it knows {len(self.labels)} others.")
        explanation = self.model.explain(Dataset(self.read(as_documents([text]))), int(number))
        pairs = zip(explanation.features[:n], explanation.weights[:n], strict=True)
        return [(self.features.vocabulary[feature], float(weight)) for feature, weight in pairs]

    def save(self, folder: str | Path) -> None:
        """Write the model folder; a model that stands there is replaced, anything else is left alone."""
        parts = {"features": self.features, "labels": self.labels, "frequencies": self.frequencies, "model": self.model}
        store.save(folder, self.about, parts)

    @classmethod
    def load(cls, folder: str | Path, verify: bool = False) -> Tagger:
        """Open a model folder. Arrays stay on disk until they are used; `verify` reads and checks every byte."""
        about, parts = store.load(folder, verify)
        try:
            check_whole(about, parts)
        except (ValueError, TypeError) as error:
            raise store.damaged(Path(folder), str(error)) from None
        said = {name: value for name, value in about.items() if name not in ("format", "files", "parts")}
        return cls(**parts, about=said, unchecked=Path(folder))


def train(
    documents: Iterable[Document],
    method: Method,
    features: Tfidf | Given | None = None,
    valid: Iterable[Document] | None = None,
    run: Run = Run(),
    n_features: int | None = None,
) -> Tagger:
    """A Tagger from labelled documents, which may be a stream: texts pass through and are not kept. n_features is the
    width of documents that hold features, where it is known: it may be more than occur in them."""
    collector = LabelCollector()
    stream = collector.watch(documents)
    first = next(stream, None)
    if first is None:
        raise XmtcError("The training corpus holds no documents; give it at least two with labels.")
    features = features or (Tfidf() if first.features is None else Given())
    stream = chain([first], stream)
    fitted: Vectorizer | GivenFeatures
    if isinstance(features, Tfidf):
        fitted, X = features.fit_transform(texts_of(stream), run)
    else:
        fitted, X = features.fit_transform(with_features(stream), n_features)
    labels = Vocabulary.of(sorted(collector.numbers))
    if not len(labels):
        raise XmtcError(f"None of the {X.shape[0]} training documents has a label; check the labels field.")
    Y = collector.matrix(labels.words())
    model = method.fit(Dataset(X, Y), None if valid is None else labelled(valid, fitted, labels, run), run)
    frequencies = np.bincount(Y.indices, minlength=len(labels)).astype(np.int64)
    return Tagger(fitted, labels, frequencies, model, describe(method, features, X, collector))


def read(features: Vectorizer | GivenFeatures, documents: Iterable[Document], run: Run) -> csr_array:
    if isinstance(features, Vectorizer):
        return features.transform(texts_of(documents), run)
    return features.transform(with_features(documents))


def labelled(
    documents: Iterable[Document], features: Vectorizer | GivenFeatures, labels: Vocabulary, run: Run
) -> Dataset:
    """Documents beside their labels, in the columns that training gave them."""
    collector = LabelCollector()
    X = read(features, collector.watch(documents), run)
    return Dataset(X, collector.matrix(labels.words())[:, : len(labels)])


def describe(method: Method, features: Tfidf | Given, X: csr_array, collector: LabelCollector) -> dict[str, Any]:
    """What about.json says of a training. Nothing that differs between two runs on the same data."""
    return {
        "xmtc": xmtc.__version__,
        "method": method_name(method),
        "parameters": asdict(method),
        "features": {"kind": type(features).__name__.lower(), **asdict(features)},
        "n_docs": X.shape[0],
        "n_features": X.shape[1],
        "n_labels": len(collector.numbers),
        "data": f"blake2b:{collector.fingerprint.hexdigest()}",
    }


def check_whole(about: dict[str, Any], parts: dict[str, Any]) -> None:
    """Refuse parts that are no tagger together; of the arrays, only the sizes are looked at."""
    said: dict[str, Any] = {"method": str, "parameters": dict, "features": dict, "n_docs": int}
    kinds: dict[str, Any] = {
        "features": (Vectorizer, GivenFeatures),
        "labels": Vocabulary,
        "frequencies": np.ndarray,
        "model": Model,
    }
    if parts.keys() != kinds.keys():
        raise ValueError(f"it holds {', '.join(parts) or 'nothing'} instead of {', '.join(kinds)}")
    for wanted, found in ((said, about), (kinds, parts)):
        for name, kind in wanted.items():
            if not isinstance(found.get(name), kind):
                raise ValueError(f"its {name} is missing or of another kind")
    n_labels, n_features = len(parts["labels"]), parts["features"].n_features
    frequencies, model = parts["frequencies"], parts["model"]
    if (n_labels, n_features) != (model.n_labels, model.n_features):
        raise ValueError(f"{n_labels} labels and {n_features} features are not those of its model")
    if about["n_docs"] < 1 or frequencies.shape != (n_labels,) or frequencies.dtype != np.int64:
        raise ValueError(f"it does not say how often its {n_labels} labels occurred")


def as_documents(texts: Iterable[str]) -> Iterator[Document]:
    if isinstance(texts, str):
        raise XmtcError("Found one text where a list of texts was expected; put it in a list: [text].")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise XmtcError(f"Text {number} is a {type(text).__name__}; expected a string.")
        yield Document(str(number), text, [])


def texts_of(documents: Iterable[Document]) -> Iterator[str]:
    for document in documents:
        if document.features is not None:
            raise needs_text(document)
        yield document.text


def with_features(documents: Iterable[Document]) -> Iterator[Document]:
    for document in documents:
        if document.features is None:
            raise needs_features(document)
        yield document


def encoded(word: str) -> tuple[np.ndarray, np.ndarray]:
    text = np.frombuffer(word.encode("utf-8", "replace"), np.uint8)
    return text, np.array([0, len(text)])
