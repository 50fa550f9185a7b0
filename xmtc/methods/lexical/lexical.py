"""Lexical: labels whose names occur in the text.

Paper: follows Maui (Medelyan: Human-competitive automatic topic indexing, 2009) and MLLM, its reimplementation in
Annif.

Idea: find the label names that occur in a text, and estimate the probability of each matched label from features of the
match. One feature compares how often the label was correct when its name occurred in training with how often that was
expected. To learn the weights for labels without training documents as well, the statistics of labels come from
cross-fitting: each fifth of the training documents uses statistics of the other four, where labels that occur only in
this fifth are unseen.

Differs from Maui and MLLM as follows. All names are found in one pass (Aho, Corasick, 1975) over words without plural
s, instead of sets of stems, so the words of a name must be adjacent. Logistic regression replaces bagged trees, so
scores are probabilities. Differs from all other methods of this package in that labels are known by name, so it also
predicts labels without training documents.
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
from xmtc.text.analyzers import AUTO
from xmtc.text.languages import LANGUAGE_CODES
from xmtc.vocabulary import NO_CONCEPT, Vocabulary, import_files
from xmtc.vocabulary.vocabulary import PREFERRED


@dataclass(frozen=True)
class Lexical(Method):
    """Labels whose names occur in the text, including labels without training documents (after Maui and MLLM).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import Lexical
    >>> texts = ["the cat purrs", "a dog barks", "my cat meows", "our dog growls"]
    >>> classifier = Classifier(Lexical()).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["a dog"])
    [['dog']]
    """

    required_views: ClassVar[tuple[str, ...]] = ("names",)
    has_label_name_input: ClassVar[bool] = True
    quick_parameters: ClassVar[dict[str, Any]] = {}

    vocabulary: str = param(
        "",
        "Vocabulary with the names of labels: folder of `xmtc vocab import`, SKOS file or table; if empty, labels are "
        "their own names.",
    )
    name_language: str = param(
        AUTO,
        "Language of the vocabulary's names to match, for example en; auto: the language of the texts, where a concept "
        "has names in it; if empty, names in all languages are used.",
    )

    def list_label_names(self, labels: Sequence[str], language: str | None = None) -> Iterable[LabelName]:
        """Yield the names of labels and of all other concepts that are not deprecated.

        A label that is not in the vocabulary is its own name. `language` is that of the texts, such as finnish.
        """
        if not self.vocabulary:
            return (name for label in labels for name in expand_name(label, label))
        is_file = Path(self.vocabulary).is_file()
        vocabulary = import_files([self.vocabulary]) if is_file else Vocabulary.load(self.vocabulary)
        if self.name_language != AUTO:
            vocabulary.check_language(self.name_language or None)
            return iterate_names(vocabulary, labels, self.name_language or None)
        code = LANGUAGE_CODES.get(language or "")
        is_known = code is not None and vocabulary.has_language(code)
        return iterate_names(vocabulary, labels, code if is_known else None, should_fall_back=True)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> LexicalModel:
        if data.names is None or data.names.tokens is None:
            raise XmtcError(
                "The data set has no names of labels, which lexical needs; train from texts: "
                "Classifier('lexical').fit(texts, labels)."
            )
        (view,) = data.views
        with run.stage("matching names", 1) as progress:
            automaton = AhoCorasickAutomaton.from_names(data.names)
            matches = automaton.find_matches(data.tokens(view), data.n_labels)
            progress.advance()
        return LexicalModel(
            n_labels=data.n_labels,
            views=data.sizes,
            automaton=automaton,
            evidence=fit_match_classifier(matches, data.tokens(view).lengths, data.Y),
        )


def iterate_names(
    vocabulary: Vocabulary, labels: Sequence[str], language: str | None, should_fall_back: bool = False
) -> Iterable[LabelName]:
    """Yield the names of labels and of all other concepts in a language; with should_fall_back, those of a concept
    without names in it in all languages."""
    concepts = vocabulary.match(labels).tolist()
    for label, concept in zip(labels, concepts, strict=True):
        if concept == NO_CONCEPT:
            yield from expand_name(label, label)
        else:
            yield from iterate_concept_names(vocabulary, concept, label, language, should_fall_back)
    matched = set(concepts)
    for concept in range(len(vocabulary)):
        if concept not in matched and not vocabulary.deprecated[concept]:
            yield from iterate_concept_names(vocabulary, concept, vocabulary.uri(concept), language, should_fall_back)


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
