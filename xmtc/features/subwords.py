"""Texts as sequences of subwords, as a pretrained encoder reads them: with its own tokenizer, of which the model folder
keeps the JSON that the library `tokenizers` writes and reads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xmtc.base.dataset import Tokens
from xmtc.base.params import Recipe, param
from xmtc.base.run import Run
from xmtc.encoders.catalogue import CONFIG, TOKENIZER, find_encoder, not_found, readable
from xmtc.features.words import nothing_to_learn_from
from xmtc.text.spans import Place
from xmtc.text.tokenizer import batches

NO_LIMIT = 2**31 - 1
# Encoders that number the places of subwords from behind that of padding, which they leave out.
AFTER_PADDING = (
    "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod", "camembert", "mpnet", "longformer",
    "luke", "data2vec-text", "ibert", "esm",
)  # fmt: skip


@dataclass(frozen=True)
class Subwords(Recipe):
    """How texts become sequences of the subwords of a pretrained encoder."""

    encoder: str = param(
        "xlnet-base-cased", "pretrained encoder: a folder, a name of `xmtc encoders`, or one of the Hugging Face hub"
    )
    max_subwords: int = param(
        512, "read this many subwords of a text, its marks included, or as many as the encoder can", low=3
    )

    def fit_transform(self, texts: Iterable[str], run: Run = Run()) -> tuple[SubwordReader, Tokens]:
        """The encoder's numbers of the texts' subwords; the Tokens say where the encoder is."""
        source = find_encoder(self.encoder, run)
        with readable(source):
            check_kind(config_in(source))
            tokenizer = np.frombuffer(tokenizer_of(source).encode(), np.uint8)
            reader = SubwordReader(tokenizer, min(self.max_subwords, places_in(source)))
            reader.check()
        tokens = reader.transform(texts, run)
        if tokens.n_docs and (tokens.lengths <= len(reader.transform([""]).ids)).all():
            raise nothing_to_learn_from(tokens.n_docs)
        return reader, replace(tokens, encoder=source)


@dataclass(frozen=True)
class SubwordReader:
    """The subwords of a pretrained encoder."""

    json: NDArray[np.uint8]  # the tokenizer, as `tokenizers` writes it
    max_subwords: int
    n_features: ClassVar[int] = 0
    n_words: ClassVar[int] = 0

    @cached_property
    def n_subwords(self) -> int:
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=0) + 1

    def word(self, number: int) -> str:
        """What a number of Tokens stands for."""
        return self._tokenizer.id_to_token(int(number)) or "(unknown)"

    def transform(self, texts: Iterable[str], run: Run = Run()) -> Tokens:
        """The subwords of texts, between the marks that the encoder expects; without these, a text of none is 0."""
        tokenizer = self._tokenizer

        def read(batch: list[str]) -> tuple[np.ndarray, list[int]]:
            found = [encoding.ids or [0] for encoding in tokenizer.encode_batch([whole(text) for text in batch])]
            return np.array([number for ids in found for number in ids], np.int32), [len(ids) for ids in found]

        parts = list(run.map(read, batches(texts), "reading texts", size=len))
        lengths = [length for _, part in parts for length in part]
        ids = np.concatenate([np.zeros(0, np.int32), *(part for part, _ in parts)])
        return Tokens(ids, np.cumsum([0, *lengths], dtype=np.int64), self.n_subwords)

    def places(self, text: str) -> tuple[list[Place], np.ndarray]:
        """The words of a text as far as it is read, and which of them each subword is part of; -1 for marks."""
        encoding = self._tokenizer.encode(whole(text))
        places: list[Place] = []
        which, word_ids = np.full(max(1, len(encoding.ids)), -1), encoding.word_ids
        for word, group in groupby(range(len(word_ids)), key=word_ids.__getitem__):
            subwords = list(group)
            begin, end = encoding.offsets[subwords[0]][0], encoding.offsets[subwords[-1]][1]
            found = text[begin:end].strip()  # to some encoders the space before a word is part of it
            if word is not None and found:
                begin = text.index(found, begin)
                which[subwords] = len(places)
                places.append(Place(begin, begin + len(found), found))
        return places, which

    def check(self) -> None:
        marks = self._tokenizer.encode("").ids
        if self.max_subwords <= len(marks):  # with fewer than its marks, `tokenizers` reads all of a text
            raise ValueError(f"it reads {self.max_subwords} subwords of a text, of which {len(marks)} are marks")
        if max(marks, default=0) >= self.n_subwords:
            raise ValueError(f"its tokenizer has a mark {max(marks)} beyond its {self.n_subwords} subwords")

    @cached_property
    def _tokenizer(self) -> Any:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # texts are shared out among the run's threads
        from tokenizers import Tokenizer

        if not 0 < self.max_subwords < 2**31:
            raise ValueError(f"it reads {self.max_subwords} subwords of a text")
        try:
            tokenizer = Tokenizer.from_str(self.json.tobytes().decode())
            tokenizer.no_padding()
            tokenizer.enable_truncation(self.max_subwords)
        except Exception as error:  # what `tokenizers` raises has no other name
            raise ValueError(f"its tokenizer cannot be read ({error})") from None
        return tokenizer


def tokenizer_of(source: str) -> str:
    """The JSON of an encoder's tokenizer; of a folder without one, or of the hub, as transformers makes it."""
    with readable(source):
        if (Path(source) / TOKENIZER).is_file():
            return read_text(source, TOKENIZER)
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(source, trust_remote_code=False).backend_tokenizer.to_str()


def places_in(source: str) -> int:
    """How many subwords an encoder can tell the places of."""
    said = config_in(source)
    places, padding = said.get("max_position_embeddings"), said.get("pad_token_id")
    if not isinstance(places, int) or places < 1:
        return NO_LIMIT
    return places - (padding or 0) - 1 if said.get("model_type") in AFTER_PADDING else places


def check_places(features: Any, model: Any) -> None:
    """Refuse features that read more subwords of a text than an encoder has places for."""
    most, longest = getattr(getattr(features, "reader", features), "max_subwords", 0), getattr(model, "longest", None)
    if longest is not None and most > longest:
        raise ValueError(f"it reads {most} subwords of a text, but its encoder has places for {longest}")


def config_in(source: str) -> dict[str, Any]:
    """What an encoder says of itself; of the hub, as transformers completes it."""
    if Path(source).is_dir():
        return read_json(source, CONFIG)
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(source, trust_remote_code=False).to_dict()


def read_json(source: str, name: str) -> dict[str, Any]:
    """A file of an encoder's folder."""
    try:
        said = json.loads(read_text(source, name))
        if not isinstance(said, dict):
            raise ValueError("it is no object")
        return said
    except (ValueError, RecursionError) as error:
        raise not_found(source, f"{name}: {error}") from None


def read_text(source: str, name: str) -> str:
    try:
        return (Path(source) / name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise not_found(source, f"{name}: {error}") from None


def check_kind(said: dict[str, Any]) -> None:
    """Refuse what is no encoder, by its configuration. Those that learnt from masked words read a text both ways, and
    so does XLNet."""
    from transformers.models.auto import modeling_auto as known

    kind, both_ways = str(said.get("model_type")), (*known.MODEL_FOR_MASKED_LM_MAPPING_NAMES, "xlnet")
    if kind in known.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES or said.get("is_encoder_decoder"):
        raise ValueError(f"{kind} is an encoder with a decoder, expected one without, such as BERT, MPNet or XLNet")
    if said.get("is_decoder") or kind not in both_ways:
        kind += " as a decoder" if said.get("is_decoder") else ""
        own = ", and needs code of its own, which is never run" if "auto_map" in said else ""
        raise ValueError(f"{kind} does not read a text both ways, as BERT, MPNet and XLNet do{own}")


def whole(text: str) -> str:
    """Half of a surrogate pair becomes a question mark: it has no bytes."""
    return text.encode(errors="replace").decode()
