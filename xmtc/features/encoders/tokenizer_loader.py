"""Safe loading of untrusted tokenizers.

The library `tokenizers` trusts its input: a damaged tokenizer causes a panic, which is not an Exception, or an abort
for lack of memory. So a tokenizer is validated first: its parts must have known types, its numbers plausible sizes, and
a map of characters must not point outside itself. Parts that cannot be validated, such as regular expressions, are
tried once in a child process; successes are stored in the user's cache by checksum."""

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
SEQUENCE_FIELDS = {  # field with the elements of a sequence
    "normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors",
    "decoder": "decoders",
}  # fmt: skip
CHARSMAP = "precompiled_charsmap"
MAX_NUMBER = 2**31  # limit of all sizes and counts
MAX_PART_DEPTH = 20
LEAF_BIT, OFFSET_BIT = 1 << 8, 1 << 9  # bits of a unit of a double-array trie
LABEL_MASK, VALUE_MASK = 1 << 31 | 0xFF, (1 << 31) - 1
MAX_GROWTH = 100  # maximum factor by which a normalizer may lengthen a text
TRIAL_SECONDS = 120.0
TRIAL_MEMORY_BYTES = 4 * GIB  # plus 50 times the size of the tokenizer
TRIAL_TEXTS = [
    "", " ", "a", "The quick brown fox, 42 times!", "\tline\r\nline\u2028", "Stra\u00dfe \u00c5ngstr\u00f6m e\u0301",
    "\u6570\u5b57 \u304b\u306a \ud55c\uae00", "\U0001f469\u200d\U0001f4bb \u200b\ufeff", "ab " * 2000, "x" * 3000,
    "".join(map(chr, range(1, 0x3000))), "".join(map(chr, range(0xf900, 0x10000))),
]  # fmt: skip


def load_tokenizer(content: bytes) -> Any:
    """Return the tokenizer of a JSON document; raise a ValueError if it is invalid or unsafe."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the threads of the run are used instead
    from tokenizers import Tokenizer

    check_tokenizer(content)
    check_in_child_process(content)
    with catch_panics():
        tokenizer = Tokenizer.from_str(content.decode())
        tokenizer.no_padding()
        return tokenizer


@contextmanager
def catch_panics() -> Iterator[None]:
    """Convert errors and panics of `tokenizers` to a ValueError."""
    try:
        yield
    except BaseException as error:
        if not is_failure(error):
            raise
        raise ValueError(f"its tokenizer fails ({first_sentence(error)})") from None


@contextmanager
def reraise_encoding_errors() -> Iterator[None]:
    """Convert errors and panics of `tokenizers` for a text to an XmtcError."""
    try:
        with catch_panics():
            yield
    except ValueError as error:
        raise XmtcError(f"A text cannot be split into subwords: {error}; train with another encoder.") from None


def check_tokenizer(content: bytes) -> None:
    """Raise a ValueError if the JSON of a tokenizer is invalid or unsafe."""
    try:
        description = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its tokenizer is not valid JSON ({first_sentence(error)})") from None
    if not isinstance(description, dict) or not isinstance(description.get("model"), dict):
        raise ValueError("its tokenizer has no model of subwords")
    kind = description["model"].get("type")
    if kind is not None and kind not in MODEL_TYPES:  # old files have no type
        raise ValueError(f"its tokenizer has a model of an unknown type, {kind!r}")
    for place in PART_TYPES:
        check_part(description.get(place), place)
    if compute_growth(description.get("normalizer")) > MAX_GROWTH:
        raise ValueError(f"its tokenizer may lengthen texts by a factor above {MAX_GROWTH}")
    check_magnitudes({name: value for name, value in description.items() if name != "model"})
    check_magnitudes({name: value for name, value in description["model"].items() if name not in ("vocab", "merges")})


def check_part(part: Any, place: str, depth: int = 0) -> None:
    if part is None:
        return
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in PART_TYPES[place] or depth > MAX_PART_DEPTH:
        raise ValueError(f"its tokenizer has a {place} of an unknown type, {kind!r}")
    if kind == "Precompiled":
        check_charsmap(part.get(CHARSMAP))
    inner = part.get(SEQUENCE_FIELDS[place]) if kind == "Sequence" else []
    if not isinstance(inner, list):
        raise ValueError(f"its tokenizer has a {place} that is not a sequence")
    for element in inner:
        check_part(element, place, depth + 1)


def compute_growth(normalizer: Any) -> float:
    """Return the maximum factor by which the replacements of a normalizer lengthen a text."""
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
    """Raise a ValueError for implausible numbers, for which `tokenizers` would allocate memory."""
    if isinstance(value, (dict, list)):
        for element in value.values() if isinstance(value, dict) else value:
            check_magnitudes(element)
    elif isinstance(value, (int, float)) and not abs(value) < MAX_NUMBER:  # also rejects NaN
        raise ValueError(f"its tokenizer has a number out of range, {value}")


def check_charsmap(encoded: Any) -> None:
    """Raise a ValueError if SentencePiece's map of characters is damaged.

    It has the size of a double-array trie, the array, and the texts to which its values point. A search must not leave
    the array, and a value must be the beginning of a character of the texts."""
    try:
        content = base64.b64decode(encoded, validate=True)
        size = int.from_bytes(content[:4], "little")
        units, texts = np.frombuffer(content[4 : 4 + size], "<u4").astype(np.int64), content[4 + size :]
        texts.decode()
        is_valid = 4 * len(units) == size > 0 and is_valid_double_array(units, np.frombuffer(texts, np.uint8))
    except (ValueError, TypeError, binascii.Error):
        is_valid = False
    if not is_valid:
        raise ValueError("the map of characters of its tokenizer is damaged")


def is_valid_double_array(units: np.ndarray, texts: np.ndarray) -> bool:
    """Return True if no search leaves the array. A byte leads from a unit's base to the unit with this label."""
    places, label = np.arange(len(units)), units & LABEL_MASK
    base = places ^ (units >> 10 << ((units & OFFSET_BIT) >> 6))
    above = np.where((label >= 1) & (label <= 0xFF), places ^ (label & 0xFF), -1)  # base from which the unit is reached
    reached, is_base = places == 0, np.zeros(len(units) + 1, bool)
    while True:
        if ((base[reached] | 0xFF) >= len(units)).any():
            return False
        is_base[base[reached]] = True
        newly_reached = reached | is_base[np.where(above < len(units), above, -1)]
        if (newly_reached == reached).all():
            break
        reached = newly_reached
    is_leaf = reached & (units & LEAF_BIT != 0) & (places > 0)
    values = units[base[is_leaf]] & VALUE_MASK
    return bool((values < len(texts)).all() and (texts[values] & 0xC0 != 0x80).all())


def check_in_child_process(
    content: bytes, memory_bytes: int = TRIAL_MEMORY_BYTES, seconds: float = TRIAL_SECONDS
) -> None:
    """Encode texts with the tokenizer in a child process, and raise a ValueError if that fails. Known tokenizers and
    those that passed before are skipped."""
    name = hashlib.sha256(content).hexdigest()
    marker = get_cache_folder("tokenizers") / name
    if any(package.files[TOKENIZER] == name for package in ENCODER_PACKAGES.values()) or marker.exists():
        return
    limits = TaskLimits(memory_bytes + 50 * len(content), seconds)
    try:
        deque(CHILD_POOL.run(f"{__name__}:encode_trial_texts", None, content, limits), maxlen=0)
    except ChildTaskError as error:
        raise ValueError(f"its tokenizer fails in a child process: {error}") from None
    with suppress(OSError):  # without the marker, the trial is repeated
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def encode_trial_texts(request: None, content: IO[bytes]) -> Iterator[int]:
    """Encode texts of many scripts with a tokenizer. Runs in a child process."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(content.read().decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    for text in TRIAL_TEXTS:
        tokenizer.encode(text)
    yield len(tokenizer.encode_batch(TRIAL_TEXTS))
