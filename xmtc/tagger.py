"""A Tagger is a trained pipeline, whole by construction: text features, label names, and a Model between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from scipy.sparse import csr_array

import xmtc
from xmtc import store
from xmtc.base.dataset import Dataset
from xmtc.base.method import Method, Model
from xmtc.base.predictions import NO_LABEL, Predictions
from xmtc.base.run import Run
from xmtc.data.collect import LabelCollector
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.evaluation import DEFAULT, Propensity, evaluate, max_k
from xmtc.explain.pieces import Highlight, TextFeatures, highlight, weights_of_words
from xmtc.features import Features, FittedFeatures, fit, kind_for, kinds_for, read
from xmtc.features.columns import GivenFeatures
from xmtc.features.subwords import check_places
from xmtc.methods import method_name
from xmtc.text.vocabulary import Vocabulary

SIZES = "n_features", "n_words", "n_subwords"  # of what is read, each 0 where it is not
LOOK_FURTHER = 1000  # labels among which the score of a named one is looked for
MANY_NAMES = 50_000  # labels, from which on a look for near names takes seconds


class Tag(NamedTuple):
    """A label and how sure the model is of it."""

    label: str
    score: float


@dataclass(frozen=True)
class Tagger:
    features: FittedFeatures
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
        return self.model.predict(self.read(documents, run), k, run)

    def named(self, predictions: Predictions) -> list[list[Tag]]:
        """Label names and scores, document by document."""
        rows = zip(predictions.labels.tolist(), predictions.scores.tolist(), strict=True)
        return [[Tag(self.labels[i], score) for i, score in zip(*row, strict=True) if i != NO_LABEL] for row in rows]

    def read(self, documents: Iterable[Document], run: Run = Run()) -> Dataset:
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
                check_places(self.features, self.model)
            except store.MISFITS as error:
                raise store.damaged(self.unchecked, str(error)) from None
            object.__setattr__(self, "unchecked", None)

    def evaluate(
        self,
        documents: Iterable[Document],
        names: Sequence[str] = DEFAULT,
        propensity: Propensity = Propensity(),
        run: Run = Run(),
    ) -> dict[str, float]:
        """Metrics by their published names, as fractions. Labels that training never saw count as missed."""
        return self.measure(*self.rank_labelled(documents, max_k(names), run), names, propensity)

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
        names: Sequence[str] = DEFAULT,
        propensity: Propensity = Propensity(),
    ) -> dict[str, float]:
        """Metrics of predictions that `rank_labelled` gave."""
        return evaluate(predictions, Y, names, self.frequencies, propensity, self.about["n_docs"])

    def explain(self, text: str, label: str, n: int = 20) -> list[tuple[str, float]]:
        """The words that speak most for a label, and what each adds to its score."""
        features, document = self._to_explain(text)
        return weights_of_words(text, features, self.model.explain(document, self._number(label)))[:n]

    def highlight(self, text: str, *labels: str, k: int = 3, n: int = 20) -> list[Highlight]:
        """The whole text with each word's weight, for each label, or for the best k where none is named; with it the n
        words that weigh most, for the label or against it."""
        features, document = self._to_explain(text)
        numbers = [self._number(label) for label in labels]
        best = self.model.predict(document, k)
        if not labels:
            numbers = [number for number in best.labels[0].tolist() if number != NO_LABEL]
        elif not set(numbers) <= set(best.labels[0].tolist()):
            best = self.model.predict(document, LOOK_FURTHER)  # only now: it may take longer
        scores = dict(zip(best.labels[0].tolist(), best.scores[0].tolist(), strict=True))
        return [
            highlight(text, self.labels[i], scores.get(i), features, self.model.explain(document, i), n)
            for i in numbers
        ]

    def _to_explain(self, text: str) -> tuple[TextFeatures, Dataset]:
        """What finds the words of one text, and what it makes of them."""
        if not isinstance(text, str):
            raise XmtcError(f"Found a {type(text).__name__} to explain, expected one text; explain one at a time.")
        self._check()
        if isinstance(self.features, GivenFeatures):
            raise XmtcError("This model was trained on features without words, so it has none to explain with.")
        return self.features, self.read(as_documents([text]))

    def _number(self, label: str) -> int:
        number = int(self.labels.find(*encoded(label))[0])
        if number == NO_LABEL:
            near = near_names(label, self.labels.words())
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it knows {len(self.labels)} others."
            raise XmtcError(f"The model has no label {label!r}; {hint}")
        return number

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


@dataclass(frozen=True)
class Material:
    """Labelled documents made into what methods read, for one training or several."""

    features: Features
    fitted: FittedFeatures
    labels: Vocabulary
    data: Dataset
    collector: LabelCollector

    def train(self, method: Method, valid: Dataset | None, run: Run) -> Tagger:
        check_reads(method, self.features)
        model = method.fit(self.data, valid, run)
        assert self.data.Y is not None
        frequencies = np.bincount(self.data.Y.indices, minlength=len(self.labels)).astype(np.int64)
        about = describe(method, self.features, self.data, self.collector)
        return Tagger(self.fitted, self.labels, frequencies, model, about)


def train(
    documents: Iterable[Document],
    method: Method,
    features: Features | None = None,
    valid: Iterable[Document] | None = None,
    run: Run = Run(),
    n_features: int | None = None,
) -> Tagger:
    """A Tagger from labelled documents, which may be a stream: texts pass through and are not kept. Features are those
    that the method reads, with their defaults, if left out. n_features is the width of documents that hold features,
    where it is known: it may be more than occur in them."""
    material = prepare(documents, method, features, run, n_features)
    checked = None if valid is None else labelled(valid, material.fitted, material.labels, run)
    return material.train(method, checked, run)


def prepare(
    documents: Iterable[Document],
    method: Method,
    features: Features | None = None,
    run: Run = Run(),
    n_features: int | None = None,
) -> Material:
    """What `train` does before the method's turn comes."""
    collector = LabelCollector()
    stream = collector.watch(documents)
    first = next(stream, None)
    if first is None:
        raise XmtcError("The training corpus holds no documents; give it at least two with labels.")
    kind = kind_for(method, holds_features=first.features is not None)
    features = kind() if features is None else features
    check_reads(method, features)
    fitted, data = fit(features, chain([first], stream), run, n_features)
    labels = Vocabulary.of(sorted(collector.numbers))
    if not len(labels):
        raise XmtcError(f"None of the {data.n_docs} training documents has a label; check the labels field.")
    return Material(features, fitted, labels, replace(data, Y=collector.matrix(labels.words())), collector)


def check_reads(method: Method, features: Features) -> None:
    if type(features) not in kinds_for(method):
        name, wanted = type(method).__name__, " or ".join(kind.__name__ for kind in kinds_for(method))
        raise XmtcError(f"{name} does not read {type(features).__name__}; give it {wanted}.")


def labelled(documents: Iterable[Document], features: FittedFeatures, labels: Vocabulary, run: Run) -> Dataset:
    """Documents beside their labels, in the columns that training gave them."""
    collector = LabelCollector()
    data = read(features, collector.watch(documents), run)
    return replace(data, Y=collector.matrix(labels.words())[:, : len(labels)])


def describe(method: Method, features: Features, data: Dataset, collector: LabelCollector) -> dict[str, Any]:
    """What about.json says of a training. Nothing that differs between two runs on the same data."""
    return {
        "xmtc": xmtc.__version__,
        "method": method_name(method),
        "parameters": asdict(method),
        "features": {"kind": type(features).__name__.lower(), **asdict(features)},
        "n_docs": data.n_docs,
        **({"n_features": data.n_features} if "X" in method.reads else {}),
        **({"n_words": data.n_words} if "tokens" in method.reads else {}),
        **({"n_subwords": data.n_subwords} if "subwords" in method.reads else {}),
        "n_labels": len(collector.numbers),
        "data": f"blake2b:{collector.fingerprint.hexdigest()}",
    }


def check_whole(about: dict[str, Any], parts: dict[str, Any]) -> None:
    """Refuse parts that are no tagger together; of the arrays, only the sizes are looked at."""
    said: dict[str, Any] = {"method": str, "parameters": dict, "features": dict, "n_docs": int}
    kinds: dict[str, Any] = {
        "features": get_args(FittedFeatures),
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
    features, frequencies, model = parts["features"], parts["frequencies"], parts["model"]
    n_labels, sizes = len(parts["labels"]), [getattr(features, size, 0) for size in SIZES]
    if [n_labels, *sizes] != [model.n_labels, *(getattr(model, size, 0) for size in SIZES)]:
        counted = f"{n_labels} labels, {sizes[0]} features and {sizes[1] or sizes[2]} words"
        raise ValueError(f"{counted} are not those of its model")
    if about["n_docs"] < 1 or frequencies.shape != (n_labels,) or frequencies.dtype != np.int64:
        raise ValueError(f"it does not say how often its {n_labels} labels occurred")


def as_documents(texts: Iterable[str]) -> Iterator[Document]:
    if isinstance(texts, str):
        raise XmtcError("Found one text where a list of texts was expected; put it in a list: [text].")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise XmtcError(f"Text {number} is a {type(text).__name__}; expected a string.")
        yield Document(str(number), text, [])


def near_names(label: str, names: list[str]) -> list[str]:
    """Up to three labels that a wrong one may stand for; of very many, only those that begin alike."""
    if len(names) > MANY_NAMES:
        names = [name for name in names if name[:1].lower() == label[:1].lower()]
    return get_close_matches(label, names)


def encoded(word: str) -> tuple[np.ndarray, np.ndarray]:
    text = np.frombuffer(word.encode("utf-8", "replace"), np.uint8)
    return text, np.array([0, len(text)])
