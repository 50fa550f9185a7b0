"""View of texts as sequences of the subwords of a pretrained encoder.

The model folder has the encoder's tokenizer in the JSON format of the library `tokenizers`."""

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
from xmtc.features.encoders import tokenizer_loader
from xmtc.features.encoders.catalogue import find_encoder, reraise_encoder_errors
from xmtc.features.encoders.configuration import (
    check_is_encoder,
    check_vocabulary_size,
    read_config,
    read_max_positions,
    read_tokenizer_json,
)
from xmtc.features.view import FittedView, View, empty_corpus_error, mark_documents_with
from xmtc.storage.form import array
from xmtc.text.tokenizer import batch_texts
from xmtc.text.word_spans import Span

SPACE_MARKERS = (" ", "\u2581", "\u0120")  # tokens for the space before a word in different tokenizers


@dataclass(frozen=True)
class Subwords(View):
    """Sequences of the subwords of a pretrained encoder."""

    title: ClassVar[str] = "Sequences of subwords"
    unit: ClassVar[str] = "subwords"

    encoder: str = param(
        "xlnet-base-cased",
        "Pretrained encoder: a folder, a name that `xmtc pretrained list` lists, or a name of the Hugging Face Hub.",
    )
    max_subwords: int = param(
        512, "Maximum number of subwords of a text, including special tokens; at most the encoder's limit.", low=3
    )

    def fit(self, contents: Iterable[str], run: Run = Run()) -> tuple[FittedSubwords, Tokens]:
        """Return the encoder's subwords of the texts; `Tokens.encoder` is the encoder's folder or name."""
        source = find_encoder(self.encoder, run)
        with reraise_encoder_errors(source):
            config = read_config(source)
            check_is_encoder(config)
            tokenizer = np.frombuffer(read_tokenizer_json(source).encode(), np.uint8)
            fitted = FittedSubwords(json=tokenizer, max_subwords=min(self.max_subwords, read_max_positions(source)))
            fitted.check()
            check_vocabulary_size(fitted.size, config)

        tokens = fitted.transform(contents, run)
        if tokens.n_docs and (tokens.lengths <= len(fitted.transform([""]).ids)).all():
            raise empty_corpus_error(tokens.n_docs)
        return fitted, replace(tokens, encoder=source)


@dataclass(frozen=True, kw_only=True)
class FittedSubwords(FittedView):
    """Tokenizer of a pretrained encoder."""

    json: np.ndarray = array(np.uint8)  # JSON of the tokenizer
    max_subwords: int

    @cached_property
    def size(self) -> int:
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=0) + 1

    @property
    def max_length(self) -> int:
        return self.max_subwords

    def term(self, number: int) -> str:
        return self._tokenizer.id_to_token(int(number)) or "(unknown)"

    def transform(self, contents: Iterable[str], run: Run = Run()) -> Tokens:
        """Return the subwords of texts with the encoder's special tokens; a text without subwords is id 0."""
        tokenizer = self._tokenizer

        def read(batch: Collection[str]) -> tuple[np.ndarray, list[int]]:
            with tokenizer_loader.reraise_encoding_errors():
                encodings = tokenizer.encode_batch([replace_surrogates(text) for text in batch])
            ids_by_text = [encoding.ids or [0] for encoding in encodings]
            ids = np.array([number for text_ids in ids_by_text for number in text_ids], np.int32)
            return ids, [len(text_ids) for text_ids in ids_by_text]

        parts = list(run.map(read, batch_texts(contents), "reading texts", size=len))
        lengths = [length for _, part in parts for length in part]
        ids = np.concatenate([np.zeros(0, np.int32), *(part for part, _ in parts)])
        return Tokens(ids, np.cumsum([0, *lengths], dtype=np.int64), self.size)

    def mark_known_documents(self, features: Bag | Tokens) -> np.ndarray:
        """Return which documents have a subword other than special tokens, unknown tokens and spaces."""
        assert isinstance(features, Tokens)
        return mark_documents_with(features, ~np.isin(features.ids, self._non_word_ids))

    @cached_property
    def _non_word_ids(self) -> list[int]:
        """Ids of special tokens, unknown tokens and spaces."""
        tokenizer, model = self._tokenizer, loads(self.json.tobytes())["model"]
        names = [model.get("unk_token"), *SPACE_MARKERS]
        named = [tokenizer.token_to_id(name) for name in names if isinstance(name, str)]
        special = self.transform([""]).ids.tolist()
        return [number for number in (*special, *named, model.get("unk_id")) if number is not None]

    def spans(self, text: str) -> list[Span]:
        """Return the words of a text, up to the length limit, each with its subwords."""
        tokenizer = self._tokenizer
        with tokenizer_loader.reraise_encoding_errors():
            encoding = tokenizer.encode(replace_surrogates(text))
        spans: list[Span] = []
        for word, group in groupby(range(len(encoding.ids)), key=encoding.word_ids.__getitem__):
            subwords = tuple(group)
            begin, end = encoding.offsets[subwords[0]][0], encoding.offsets[subwords[-1]][1]
            word_text = text[begin:end].strip()  # in some tokenizers a word includes the space before it
            if word is not None and word_text:  # special tokens have no word
                begin = text.index(word_text, begin)
                stop = begin + len(word_text)
                offsets = (encoding.offsets[number] for number in subwords)
                parts = tuple((max(first, begin), min(last, stop)) for first, last in offsets)
                spans.append(Span(begin, stop, word_text, subwords, parts=parts))
        return spans

    def check(self) -> None:
        tokenizer = self._tokenizer
        with tokenizer_loader.catch_panics():
            special = tokenizer.encode("").ids
        if self.max_subwords <= len(special):  # `tokenizers` would not truncate texts
            raise ValueError(
                f"its maximum number of subwords, {self.max_subwords}, is not above its {len(special)} special tokens"
            )
        if max(special, default=0) >= self.size:
            raise ValueError(f"its tokenizer has a special token {max(special)} beyond its {self.size} subwords")

    @cached_property
    def _tokenizer(self) -> Any:
        if not 0 < self.max_subwords < 2**31:
            raise ValueError(f"its maximum number of subwords, {self.max_subwords}, is out of range")
        tokenizer = tokenizer_loader.load_tokenizer(self.json.tobytes())
        with tokenizer_loader.catch_panics():
            tokenizer.enable_truncation(self.max_subwords)
        return tokenizer


def replace_surrogates(text: str) -> str:
    """Replace unpaired surrogates, which cannot be encoded, with question marks."""
    return text.encode(errors="replace").decode()
