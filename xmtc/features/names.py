"""View of texts as sequences of the words of label names, for methods that search texts for these names.

Unlike `Words`, its vocabulary comes from the names, which may have words that no training document has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from xmtc.core.dataset import Tokens
from xmtc.core.hyperparameters import param
from xmtc.core.run import Run
from xmtc.data.batch import concatenate_bytes
from xmtc.features.view import View
from xmtc.features.words import FittedWords
from xmtc.text.analyzers import AUTO
from xmtc.text.stemming import choose_stemming, get_stemmer
from xmtc.text.string_index import StringIndex
from xmtc.text.tokenizer import Tokenizer, WordSequences, batch_texts

UNLIMITED_WORDS = 2**31  # more words than any text has


@dataclass(frozen=True)
class Names(View):
    """Sequences of the words of label names."""

    title: ClassVar[str] = "Words of label names"
    unit: ClassVar[str] = "words of names"
    is_fitted_on_label_names: ClassVar[bool] = True
    has_batch_support: ClassVar[bool] = True

    look_within: int = param(
        1000, "Number of words at the beginning of a text that are searched.", low=1, search=(100, 3000), log=True
    )
    stemming: str = param(
        AUTO,
        "Stemming of words: none, plural (removes a final s), a language of Snowball such as english, or auto (that of "
        "the texts' language; plural for English).",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        get_stemmer(self.stemming)

    def with_language(self, language: str | None) -> Names:
        """Return the view with the stemming for texts in a language, if it is not set."""
        return self.replace(stemming=choose_stemming(language)) if self.stemming == AUTO else self

    def fit(self, contents: Iterable[str], run: Run = Run(), names: Sequence[str] = ()) -> tuple[FittedNames, Tokens]:
        """Learn the vocabulary from label names and return the texts' tokens."""
        fitted = FittedNames(
            tokenizer=Tokenizer(min_chars=1),
            vocabulary=StringIndex.from_strings([]),
            max_tokens=self.look_within,
            stemming=self.stemming,
        ).with_names(names)
        return fitted, fitted.transform(contents, run)


@dataclass(frozen=True, kw_only=True)
class FittedNames(FittedWords):
    """Ids of the stems of label names; all other words are unknown."""

    stemming: str

    def tokenize(self, batch: Collection[str]) -> WordSequences:
        part = super().tokenize(batch)
        text, ends = concatenate_bytes([stem.encode("utf-8", "replace") for stem in list_stems(part, self.stemming)])
        return replace(part, text=text, ends=ends)

    def with_names(self, names: Sequence[str]) -> FittedNames:
        """Return the view with the stems of further names; earlier stems keep their ids."""
        stems = dict.fromkeys(self.vocabulary.words())
        for batch in batch_texts(names):
            stems |= dict.fromkeys(list_stems(self.tokenizer.index_words(batch, UNLIMITED_WORDS), self.stemming))
        return replace(self, vocabulary=StringIndex.from_strings(stems))

    def transform_names(self, names: Iterable[str], run: Run = Run()) -> Tokens:
        """Return the tokens of names, without a length limit."""
        return replace(self, max_tokens=UNLIMITED_WORDS).transform(names, run)

    def check(self) -> None:
        super().check()
        get_stemmer(self.stemming)


def list_stems(part: WordSequences, stemming: str) -> list[str]:
    """Return the stem of each distinct word of a batch."""
    return list(map(get_stemmer(stemming), StringIndex(part.text, part.ends, np.empty(0, np.int32)).words()))
