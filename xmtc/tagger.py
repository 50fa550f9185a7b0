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
from xmtc.methods import METHODS, method_class
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
        return read(self.features, documents, run)

    def evaluate(
        self,
        documents: Iterable[Document],
        names: Sequence[str] = metrics.DEFAULT,
        propensity: metrics.Propensity = metrics.Propensity(),
        run: Run = Run(),
    ) -> dict[str, float]:
        """Metrics by their published names, as fractions. Labels that training never saw count as missed."""
        collector = LabelCollector()
        predictions = self.rank(collector.watch(documents), metrics.max_k(names), run)
        Y = collector.matrix(self.labels.words())
        n_train = self.about["n_docs"]
        return metrics.evaluate(predictions, Y, names, self.frequencies, propensity, n_train)

    def explain(self, text: str, label: str, n: int = 20) -> list[tuple[str, float]]:
        """The words that speak most for a label, and what each adds to its score."""
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
        if set(parts) != {"features", "labels", "frequencies", "model"}:
            raise XmtcError(f"{folder} is damaged: it holds {', '.join(parts)} instead of a tagger; train it again.")
        return cls(about={k: v for k, v in about.items() if k not in ("format", "files", "parts")}, **parts)


def train(
    documents: Iterable[Document],
    method: Method,
    features: Tfidf | Given | None = None,
    valid: Iterable[Document] | None = None,
    run: Run = Run(),
) -> Tagger:
    """A Tagger from labelled documents, which may be a stream: texts pass through and are not kept."""
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
        fitted, X = features.fit_transform(with_features(stream))
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
    name = next(n for n in METHODS if method_class(n) is type(method))
    return {
        "xmtc": xmtc.__version__,
        "method": name,
        "parameters": asdict(method),
        "features": {"kind": type(features).__name__.lower(), **asdict(features)},
        "n_docs": X.shape[0],
        "n_features": X.shape[1],
        "n_labels": len(collector.numbers),
        "data": f"blake2b:{collector.fingerprint.hexdigest()}",
    }


def as_documents(texts: Iterable[str]) -> Iterator[Document]:
    for number, text in enumerate(texts):
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
