"""Texts as sequences of subwords, as a pretrained encoder reads them: with its own tokenizer, of which the model folder
keeps the JSON that the library `tokenizers` writes and reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from json import loads
from typing import Any, ClassVar

import numpy as np

from xmtc.core.dataset import Bag, Tokens
from xmtc.core.hyperparameters import param
from xmtc.core.run import Run
from xmtc.features.encoders import tokenizer_loader as tokenizing
from xmtc.features.encoders.catalogue import find_encoder, reraise_encoder_errors
from xmtc.features.encoders.configuration import check_is_encoder, read_config, read_max_positions, read_tokenizer_json
from xmtc.features.view import FittedView, View, empty_corpus_error, mark_documents_with
from xmtc.storage.form import array
from xmtc.text.tokenizer import batch_texts
from xmtc.text.word_spans import Span

SPACE_MARKERS = (
    " ",
    "\u2581",
    "\u0120",
)  # how tokenizers write the space before a word, of which it may be all that they know


@dataclass(frozen=True)
class Subwords(View):
    """How texts become sequences of the subwords of a pretrained encoder."""

    title: ClassVar[str] = "Sequences of subwords"
    unit: ClassVar[str] = "subwords"

    encoder: str = param(
        "xlnet-base-cased", "pretrained encoder: a folder, a name of `xmtc encoders`, or one of the Hugging Face hub"
    )
    max_subwords: int = param(
        512, "read this many subwords of a text, special tokens included, or as many as the encoder can", low=3
    )

    def fit(self, contents: Iterable[str], run: Run = Run()) -> tuple[FittedSubwords, Tokens]:
        """The encoder's ids of the texts' subwords; the Tokens say where the encoder is."""
        source = find_encoder(self.encoder, run)
        with reraise_encoder_errors(source):
            check_is_encoder(read_config(source))
            tokenizer = np.frombuffer(read_tokenizer_json(source).encode(), np.uint8)
            fitted = FittedSubwords(json=tokenizer, max_subwords=min(self.max_subwords, read_max_positions(source)))
            fitted.check()

        tokens = fitted.transform(contents, run)
        if tokens.n_docs and (tokens.lengths <= len(fitted.transform([""]).ids)).all():
            raise empty_corpus_error(tokens.n_docs)
        return fitted, replace(tokens, encoder=source)


@dataclass(frozen=True, kw_only=True)
class FittedSubwords(FittedView):
    """The subwords of a pretrained encoder."""

    has_word_terms: ClassVar[bool] = False

    json: np.ndarray = array(np.uint8)  # the tokenizer, as `tokenizers` writes it
    max_subwords: int

    @cached_property
    def size(self) -> int:  # computed once: the vocabulary is large
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=0) + 1

    @property
    def max_length(self) -> int:
        return self.max_subwords

    def term(self, number: int) -> str:
        return self._tokenizer.id_to_token(int(number)) or "(unknown)"

    def transform(self, contents: Iterable[str], run: Run = Run()) -> Tokens:
        """The subwords of texts, among the special tokens that the encoder expects; a text without any is id 0."""
        tokenizer = self._tokenizer

        def read(batch: Collection[str]) -> tuple[np.ndarray, list[int]]:
            with tokenizing.reraise_encoding_errors():
                encodings = tokenizer.encode_batch([replace_surrogates(text) for text in batch])
            found = [encoding.ids or [0] for encoding in encodings]
            return np.array([number for ids in found for number in ids], np.int32), [len(ids) for ids in found]

        parts = list(run.map(read, batch_texts(contents), "reading texts", size=len))
        lengths = [length for _, part in parts for length in part]
        ids = np.concatenate([np.zeros(0, np.int32), *(part for part, _ in parts)])
        return Tokens(ids, np.cumsum([0, *lengths], dtype=np.int64), self.size)

    def mark_known_documents(self, shown: Bag | Tokens) -> np.ndarray:
        """Subwords that stand for letters: neither special tokens, nor unknown ones, nor spaces alone."""
        assert isinstance(shown, Tokens)
        return mark_documents_with(shown, ~np.isin(shown.ids, self._non_word_ids))

    @cached_property
    def _non_word_ids(self) -> list[int]:
        """The ids that stand for no part of a word."""
        tokenizer, model = self._tokenizer, loads(self.json.tobytes())["model"]
        names = [model.get("unk_token"), *SPACE_MARKERS]
        found = [tokenizer.token_to_id(name) for name in names if isinstance(name, str)]
        special = self.transform([""]).ids.tolist()
        return [number for number in (*special, *found, model.get("unk_id")) if number is not None]

    def spans(self, text: str) -> list[Span]:
        """A word belongs to all of its subwords, as far as the text is read."""
        tokenizer = self._tokenizer
        with tokenizing.reraise_encoding_errors():
            encoding = tokenizer.encode(replace_surrogates(text))
        spans: list[Span] = []
        for word, group in groupby(range(len(encoding.ids)), key=encoding.word_ids.__getitem__):
            subwords = tuple(group)
            begin, end = encoding.offsets[subwords[0]][0], encoding.offsets[subwords[-1]][1]
            found = text[begin:end].strip()  # to some encoders the space before a word is part of it
            if word is not None and found:  # special tokens are of no word
                begin = text.index(found, begin)
                spans.append(Span(begin, begin + len(found), found, subwords))
        return spans

    def check(self) -> None:
        tokenizer = self._tokenizer
        with tokenizing.catch_panics():
            special = tokenizer.encode("").ids
        if self.max_subwords <= len(special):  # with fewer than its special tokens, `tokenizers` reads all of a text
            raise ValueError(f"it reads {self.max_subwords} subwords of a text, of which {len(special)} are special")
        if max(special, default=0) >= self.size:
            raise ValueError(f"its tokenizer has a special token {max(special)} beyond its {self.size} subwords")

    @cached_property
    def _tokenizer(self) -> Any:
        if not 0 < self.max_subwords < 2**31:
            raise ValueError(f"it reads {self.max_subwords} subwords of a text")
        tokenizer = tokenizing.load_tokenizer(self.json.tobytes())
        with tokenizing.catch_panics():
            tokenizer.enable_truncation(self.max_subwords)
        return tokenizer


def replace_surrogates(text: str) -> str:
    """Half of a surrogate pair becomes a question mark: it has no bytes."""
    return text.encode(errors="replace").decode()
