"""Lexical: labels whose names occur in a text. In the spirit of Maui (Medelyan, 2009) and of Annif's MLLM, its
reimplementation: names are matched, and what a match is worth is learnt from a few of its features.

Differs from these in: all names are found in one pass (Aho, Corasick, 1975) over words without their plural's s, not
over sets of stems, so that the words of a name must stand together; logistic regression instead of bagged trees, so
that a score is a probability. Differs from all other methods here in: labels are known by their names, not only by
their documents, so that it gives labels that no training document has.

A label is worth what its names have been: of a label with training documents, how often its names occurred and how
often it was then right; of one without, what others without documents were. To learn the latter, each fifth of the
training documents is judged by what the other four know: there, labels that have a document in this fifth only are
unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import LabelName, Method
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.methods.lexical.automaton import AhoCorasickAutomaton
from xmtc.methods.lexical.match_classifier import fit_match_classifier
from xmtc.methods.lexical.model import LexicalModel
from xmtc.vocabulary import NO_CONCEPT, Vocabulary, import_files
from xmtc.vocabulary.vocabulary import PREFERRED


@dataclass(frozen=True)
class Lexical(Method):
    """Labels whose names occur in the text, those without a training document too (as Maui and MLLM)."""

    required_views: ClassVar[tuple[str, ...]] = ("names",)
    has_label_name_input: ClassVar[bool] = True
    quick_parameters: ClassVar[dict[str, Any]] = {}

    vocabulary: str = param(
        "", "names of labels: folder of `xmtc vocab import`, SKOS file or table; empty: labels are called as they are"
    )
    name_language: str = param("", "look for the names in this language of the vocabulary only, such as en; empty: all")

    def list_label_names(self, labels: Sequence[str]) -> Iterable[LabelName]:
        """Of labels that the vocabulary does not have, the labels themselves are the names. Concepts that are no
        labels of the training documents become labels, unless they are deprecated."""
        if not self.vocabulary:
            return (name for label in labels for name in expand_name(label, label))
        is_file = Path(self.vocabulary).is_file()
        vocabulary = import_files([self.vocabulary]) if is_file else Vocabulary.load(self.vocabulary)
        vocabulary.check_language(self.name_language or None)
        return iterate_names(vocabulary, labels, self.name_language or None)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> LexicalModel:
        if data.names is None:
            raise XmtcError("Found no names of labels; train from texts: Classifier('lexical').fit(texts, labels).")
        (view,) = data.views
        with run.stage("matching names", 1) as progress:
            automaton = AhoCorasickAutomaton.from_names(data.names)
            candidates = automaton.find_matches(data.tokens(view), data.n_labels)
            progress.advance()
        return LexicalModel(
            n_labels=data.n_labels,
            views=data.sizes,
            automaton=automaton,
            evidence=fit_match_classifier(candidates, data.tokens(view).lengths, data.Y),
        )


def iterate_names(vocabulary: Vocabulary, labels: Sequence[str], language: str | None) -> Iterable[LabelName]:
    concepts = vocabulary.match(labels).tolist()
    for label, concept in zip(labels, concepts, strict=True):
        yield from (
            expand_name(label, label)
            if concept == NO_CONCEPT
            else iterate_concept_names(vocabulary, concept, label, language)
        )
    taken = set(concepts)
    for concept in range(len(vocabulary)):
        if concept not in taken and not vocabulary.deprecated[concept]:
            yield from iterate_concept_names(vocabulary, concept, vocabulary.uri(concept), language)


def iterate_concept_names(
    vocabulary: Vocabulary, concept: int, label: str, language: str | None
) -> Iterable[LabelName]:
    for name in vocabulary.names(concept, language):
        yield from expand_name(label, name.text, name.kind == PREFERRED)


def expand_name(label: str, text: str, is_preferred: bool = True) -> Iterable[LabelName]:
    """A name, and what stands before the remark in brackets that tells it from others: Mercury (planet)."""
    yield LabelName(label, text, is_preferred)
    bare, bracket, _ = text.partition(" (")
    if bracket and bare and text.endswith(")"):
        yield LabelName(label, bare, False)
