"""Tokenizers with a SentencePiece character map, valid and damaged."""

from __future__ import annotations

import base64

import numpy as np

LEAF = 1 << 8


def charsmap(value: int = 0, base: int = 1, leaf: int = 2, texts: bytes = b"b\0") -> bytes:
    """Return the smallest character map: the letter a becomes b.

    From the first unit of its double array, the byte of a leads from `base` to a unit with its label, and from there to
    a leaf. The value of the leaf is the offset of the replacement.
    """
    units = np.zeros(256, "<u4")
    here = 1 ^ ord("a")
    units[0] = base << 10
    units[here] = ord("a") | LEAF | (here ^ leaf) << 10
    units[2] = 1 << 31 | value
    return units.nbytes.to_bytes(4, "little") + units.tobytes() + texts


def make_normalizer(content: bytes) -> dict[str, str]:
    """Return a normalizer as it is stored in the JSON of a tokenizer."""
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}
