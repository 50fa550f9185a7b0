"""Tokenizers of other people, opened with care. The library `tokenizers` trusts what it reads: a damaged part makes it
panic, which no `except Exception` catches, or abort for want of memory, which nothing catches.

So a tokenizer is looked at first: its parts must be of kinds that are known here, its numbers of a size that can be
meant, and a map of characters must lead nowhere outside of itself. What cannot be looked at, such as regular
expressions, is tried once in a process of its own; that it went well is remembered in the user's cache, by checksum."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import numpy as np

from xmtc.core.child_process import CHILD_POOL, GIB, ChildTaskError, TaskLimits
from xmtc.errors import XmtcError
from xmtc.features.encoders.catalogue import ENCODER_PACKAGES, TOKENIZER, first_sentence, is_failure
from xmtc.storage.cache import get_cache_folder

MODEL_TYPES = ("BPE", "Unigram", "WordLevel", "WordPiece")
PART_TYPES = {
    "normalizer": (
        "BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend",
        "Replace", "Sequence", "Strip", "StripAccents",
    ),
    "pre_tokenizer": (
        "BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "FixedLength", "Metaspace", "Punctuation",
        "Sequence", "Split", "UnicodeScripts", "Whitespace", "WhitespaceSplit",
    ),
    "post_processor": ("BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"),
    "decoder": (
        "BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Replace", "Sequence", "Strip",
        "WordPiece",
    ),
}  # fmt: skip
SEQUENCE_FIELDS = {  # where a sequence of parts has them
    "normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors",
    "decoder": "decoders",
}  # fmt: skip
CHARSMAP = "precompiled_charsmap"
MAX_NUMBER = 2**31  # of subwords, lengths and whatever else is counted
MAX_PART_DEPTH = 20
LEAF_BIT, OFFSET_BIT, LABEL_MASK, VALUE_MASK = (
    1 << 8,
    1 << 9,
    1 << 31 | 0xFF,
    (1 << 31) - 1,
)  # bits of a unit of a double array
MAX_GROWTH = 100  # times that all replacements of a normalizer together may lengthen a text
TRIAL_SECONDS = 120.0
TRIAL_MEMORY_BYTES = 4 * GIB  # and 50 times the size of the tokenizer
TRIAL_TEXTS = [
    "", " ", "a", "The quick brown fox, 42 times!", "\tline\r\nline\u2028", "Stra\u00dfe \u00c5ngstr\u00f6m e\u0301",
    "\u6570\u5b57 \u304b\u306a \ud55c\uae00", "\U0001f469\u200d\U0001f4bb \u200b\ufeff", "ab " * 2000, "x" * 3000,
    "".join(map(chr, range(1, 0x3000))), "".join(map(chr, range(0xf900, 0x10000))),
]  # fmt: skip


def load_tokenizer(content: bytes) -> Any:
    """A tokenizer of `tokenizers`, from its JSON; ValueError with a phrase where it is none, or would do harm."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # texts are shared out among the run's threads
    from tokenizers import Tokenizer

    check_tokenizer(content)
    check_in_child_process(content)
    with catch_panics():
        tokenizer = Tokenizer.from_str(content.decode())
        tokenizer.no_padding()
        return tokenizer


@contextmanager
def catch_panics() -> Iterator[None]:
    """What `tokenizers` raises becomes a ValueError: its exceptions have no name of their own."""
    try:
        yield
    except BaseException as error:
        if not is_failure(error):
            raise
        raise ValueError(f"its tokenizer fails ({first_sentence(error)})") from None


@contextmanager
def reraise_encoding_errors() -> Iterator[None]:
    """The same of a tokenizer that has been looked at and tried, and fails at a text all the same."""
    try:
        with catch_panics():
            yield
    except ValueError as error:
        raise XmtcError(f"A text cannot be cut into subwords: {error}; train with another encoder.") from None


def check_tokenizer(content: bytes) -> None:
    """Refuse, with a phrase, what `tokenizers` must not see."""
    try:
        said = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its tokenizer is no JSON ({first_sentence(error)})") from None
    if not isinstance(said, dict) or not isinstance(said.get("model"), dict):
        raise ValueError("its tokenizer has no model of subwords")
    kind = said["model"].get("type")
    if kind is not None and kind not in MODEL_TYPES:  # files of old versions do not say
        raise ValueError(f"its tokenizer has a model of an unknown kind, {kind!r}")
    for place in PART_TYPES:
        check_part(said.get(place), place)
    if compute_growth(said.get("normalizer")) > MAX_GROWTH:
        raise ValueError("its tokenizer makes texts many times as long")
    check_magnitudes({name: value for name, value in said.items() if name != "model"})
    check_magnitudes({name: value for name, value in said["model"].items() if name not in ("vocab", "merges")})


def check_part(part: Any, place: str, depth: int = 0) -> None:
    if part is None:
        return
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in PART_TYPES[place] or depth > MAX_PART_DEPTH:
        raise ValueError(f"its tokenizer has a {place} of an unknown kind, {kind!r}")
    if kind == "Precompiled":
        check_charsmap(part.get(CHARSMAP))
    inner = part.get(SEQUENCE_FIELDS[place]) if kind == "Sequence" else []
    if not isinstance(inner, list):
        raise ValueError(f"its tokenizer has a {place} that is no sequence")
    for each in inner:
        check_part(each, place, depth + 1)


def compute_growth(normalizer: Any) -> float:
    """Return how many times as long the replacements of a normalizer can make a text."""
    if normalizer is None:
        return 1.0
    if normalizer["type"] == "Sequence":
        return math.prod(map(compute_growth, normalizer.get("normalizers", [])))
    if normalizer["type"] != "Replace":
        return 1.0
    pattern, content = normalizer.get("pattern"), normalizer.get("content")
    literal = pattern.get("String", "") if isinstance(pattern, dict) else ""
    return max(1.0, len(str(content)) / max(len(str(literal)), 1))


def check_magnitudes(value: Any) -> None:
    """Lengths and counts beyond all measure would be made room for."""
    if isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            check_magnitudes(each)
    elif isinstance(value, (int, float)) and not abs(value) < MAX_NUMBER:  # nan, too
        raise ValueError(f"its tokenizer has a number that cannot be meant, {value}")


def check_charsmap(encoded: Any) -> None:
    """SentencePiece's map of characters: the size of a double array, the array, and the texts that its values point
    into. A search must neither leave the array nor point outside of the texts, or into the middle of a character."""
    try:
        content = base64.b64decode(encoded, validate=True)
        size = int.from_bytes(content[:4], "little")
        units, texts = np.frombuffer(content[4 : 4 + size], "<u4").astype(np.int64), content[4 + size :]
        texts.decode()
        fits = 4 * len(units) == size > 0 and is_valid_double_array(units, np.frombuffer(texts, np.uint8))
    except (ValueError, TypeError, binascii.Error):
        fits = False
    if not fits:
        raise ValueError("the map of characters of its tokenizer is damaged")


def is_valid_double_array(units: np.ndarray, texts: np.ndarray) -> bool:
    """From the first unit on, each byte of a text leads from a unit's base to another unit, if that bears its label."""
    places, label = np.arange(len(units)), units & LABEL_MASK
    base = places ^ (units >> 10 << ((units & OFFSET_BIT) >> 6))
    above = np.where((label >= 1) & (label <= 0xFF), places ^ (label & 0xFF), -1)  # the base that leads here
    reached, is_base = places == 0, np.zeros(len(units) + 1, bool)
    while True:
        if ((base[reached] | 0xFF) >= len(units)).any():
            return False
        is_base[base[reached]] = True
        found = reached | is_base[np.where(above < len(units), above, -1)]
        if (found == reached).all():
            break
        reached = found
    is_leaf = reached & (units & LEAF_BIT != 0) & (places > 0)
    values = units[base[is_leaf]] & VALUE_MASK
    return bool((values < len(texts)).all() and (texts[values] & 0xC0 != 0x80).all())


def check_in_child_process(content: bytes) -> None:
    """Let a child process read texts with the tokenizer, unless it has done so before or the tokenizer is one that xmtc
    knows. Raise ValueError if that fails."""
    name = hashlib.sha256(content).hexdigest()
    kept = get_cache_folder("tokenizers") / name
    if any(package.files[TOKENIZER] == name for package in ENCODER_PACKAGES.values()) or kept.exists():
        return
    limits = TaskLimits(TRIAL_MEMORY_BYTES + 50 * len(content), TRIAL_SECONDS)
    try:
        deque(CHILD_POOL.run(f"{__name__}:encode_trial_texts", None, content, limits), maxlen=0)
    except ChildTaskError as problem:
        raise ValueError(f"its tokenizer fails in a process of its own: {problem}") from None
    with suppress(OSError):  # it will be tried again
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.touch()


def encode_trial_texts(request: None, content: IO[bytes]) -> Iterator[int]:
    """Read texts of many kinds with a tokenizer: a task of a child process."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(content.read().decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    for text in TRIAL_TEXTS:
        tokenizer.encode(text)
    yield len(tokenizer.encode_batch(TRIAL_TEXTS))
