"""Names of labels: those of their concepts in a vocabulary, or the labels themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from xmtc.core.method import LabelName
from xmtc.text.analyzers import AUTO
from xmtc.text.languages import LANGUAGE_CODES
from xmtc.vocabulary.importer import import_files
from xmtc.vocabulary.vocabulary import NO_CONCEPT, PREFERRED, Vocabulary


def load_vocabulary(path: str) -> Vocabulary:
    """Open a vocabulary folder, or import a SKOS file or a table."""
    return import_files([path]) if Path(path).is_file() else Vocabulary.load(path)


def list_label_names(
    vocabulary: Vocabulary, labels: Sequence[str], name_language: str = AUTO, text_language: str | None = None
) -> Iterable[LabelName]:
    """Return the names of labels and of all other concepts that are not deprecated.

    Parameters
    ----------
    vocabulary
        Vocabulary of the labels. A label that it does not have is its own name.
    labels
        Labels of the documents.
    name_language
        Language of the names; empty for all languages; auto for that of the texts, where a concept has names in it.
    text_language
        Language of the texts, such as finnish, if it is recognised.
    """
    if name_language != AUTO:
        vocabulary.check_language(name_language or None)
        return iterate_names(vocabulary, labels, name_language or None)
    return iterate_names(vocabulary, labels, find_language_code(vocabulary, text_language), should_fall_back=True)


def find_language_code(vocabulary: Vocabulary, text_language: str | None) -> str | None:
    """Return the code of a language such as finnish if the vocabulary has names in it, otherwise None."""
    code = LANGUAGE_CODES.get(text_language or "")
    return code if code is not None and vocabulary.has_language(code) else None


def iterate_names(
    vocabulary: Vocabulary, labels: Sequence[str], language: str | None, should_fall_back: bool = False
) -> Iterable[LabelName]:
    """Yield the names of labels and of all other concepts in a language; with should_fall_back, those of a concept
    without names in it in all languages."""
    concepts = vocabulary.match(labels).tolist()
    yield from iterate_names_of_labels(vocabulary, labels, concepts, language, should_fall_back)
    matched = set(concepts)
    for concept in range(len(vocabulary)):
        if concept not in matched and not vocabulary.deprecated[concept]:
            yield from iterate_concept_names(vocabulary, concept, vocabulary.uri(concept), language, should_fall_back)


def iterate_names_of_labels(
    vocabulary: Vocabulary, labels: Sequence[str], concepts: Sequence[int], language: str | None, should_fall_back: bool
) -> Iterable[LabelName]:
    """Yield the names of labels, whose concepts are given; a label without a concept is its own name."""
    for label, concept in zip(labels, concepts, strict=True):
        if concept == NO_CONCEPT:
            yield from expand_name(label, label)
        else:
            yield from iterate_concept_names(vocabulary, concept, label, language, should_fall_back)


def iterate_concept_names(
    vocabulary: Vocabulary, concept: int, label: str, language: str | None, should_fall_back: bool
) -> Iterable[LabelName]:
    names = vocabulary.names(concept, language)
    if should_fall_back and not names:
        names = vocabulary.names(concept)
    for name in names:
        yield from expand_name(label, name.text, name.kind == PREFERRED)


def expand_name(label: str, text: str, is_preferred: bool = True) -> Iterable[LabelName]:
    """Yield a name, and its form without a qualifier in brackets: Mercury for "Mercury (planet)"."""
    yield LabelName(label, text, is_preferred)
    unqualified, bracket, _ = text.partition(" (")
    if bracket and unqualified and text.endswith(")"):
        yield LabelName(label, unqualified, False)
