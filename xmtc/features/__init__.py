"""Documents made into what a method reads: tf-idf or features that the corpus brings along (X), where word vectors of
its columns start from (vectors), sequences of words (tokens), of subwords (subwords), or several of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scipy.sparse import csr_array

from xmtc.base.dataset import Dataset, Tokens
from xmtc.base.method import Method
from xmtc.base.run import Run
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.features.both import BagAndSequences, BagAndWords, BagVectorsAndWords, TfidfAndVectors
from xmtc.features.columns import Given, GivenFeatures, needs_features, needs_text
from xmtc.features.subwords import SubwordReader, Subwords
from xmtc.features.tfidf import Tfidf, Vectorizer
from xmtc.features.with_subwords import (
    BagVectorsWordsAndSubwords,
    BagWordsAndSubwords,
    TfidfAndSubwords,
    VectorsAndSubwords,
    WithSubwords,
    WordsAndSubwords,
)
from xmtc.features.words import Sequencer, Words

Features = Tfidf | Given | Words | BagAndWords | Subwords  # and what is derived from them
FittedFeatures = Vectorizer | GivenFeatures | Sequencer | BagAndSequences | SubwordReader | WithSubwords

PARTS = "X", "vectors", "tokens", "subwords"
# The recipes for each thing that methods read, the one for texts first; and what people call them.
KINDS: dict[tuple[str, ...], list[type[Features]]] = {
    ("X",): [Tfidf, Given],
    ("X", "vectors"): [TfidfAndVectors, Given],
    ("tokens",): [Words],
    ("X", "tokens"): [BagAndWords],
    ("X", "vectors", "tokens"): [BagVectorsAndWords],
    ("subwords",): [Subwords],
    ("X", "subwords"): [TfidfAndSubwords],
    ("X", "vectors", "subwords"): [VectorsAndSubwords],
    ("tokens", "subwords"): [WordsAndSubwords],
    ("X", "tokens", "subwords"): [BagWordsAndSubwords],
    ("X", "vectors", "tokens", "subwords"): [BagVectorsWordsAndSubwords],
    # of a method that holds others, before it is known which: all that there is to set
    (): [BagWordsAndSubwords, Given],
}
TITLES = {
    Tfidf: "Text features",
    Given: "Features that a corpus brings along",
    Words: "Sequences of words",
    BagAndWords: "Text features and sequences of words",
    Subwords: "Sequences of subwords",
    BagWordsAndSubwords: "Text features and sequences of words and subwords",
}


def kinds_for(method: Method | type[Method]) -> list[type[Features]]:
    """The recipes of features that a method can be trained on; what one that holds others reads, only an instance
    knows."""
    return KINDS[tuple(part for part in PARTS if part in method.reads)]


def kind_for(method: Method, holds_features: bool) -> type[Features]:
    """The recipe of features for a method on a corpus of texts, or of features."""
    from_texts, *from_features = kinds_for(method)
    if not holds_features:
        return from_texts
    if not from_features:
        name = type(method).__name__
        raise XmtcError(f"{name} reads words, but the corpus holds features; give it texts, or choose a linear method.")
    return from_features[0]


def fit(
    features: Features, documents: Iterable[Document], run: Run, n_features: int | None = None
) -> tuple[FittedFeatures, Dataset]:
    """Learn features from documents, and make them of the same documents. n_features is the width of documents that
    hold features, where it is known."""
    fitted: FittedFeatures
    if isinstance(features, Given):
        fitted, made = features.fit_transform(with_features(documents), n_features)
    else:
        fitted, made = features.fit_transform(texts_of(documents), run)
    return fitted, as_dataset(fitted, made)


def read(fitted: FittedFeatures, documents: Iterable[Document], run: Run) -> Dataset:
    """The features of documents."""
    if isinstance(fitted, GivenFeatures):
        return as_dataset(fitted, fitted.transform(with_features(documents)))
    return as_dataset(fitted, fitted.transform(texts_of(documents), run))


def as_dataset(fitted: FittedFeatures, made: csr_array | Tokens | Dataset) -> Dataset:
    if isinstance(made, Tokens):
        return Dataset.of_subwords(made) if isinstance(fitted, SubwordReader) else Dataset.of_tokens(made)
    return made if isinstance(made, Dataset) else Dataset(made)


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
