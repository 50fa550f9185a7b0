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
from xmtc.vocabulary.label_names import expand_name, list_label_names, load_vocabulary


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
        return list_label_names(load_vocabulary(self.vocabulary), labels, self.name_language, language)

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
