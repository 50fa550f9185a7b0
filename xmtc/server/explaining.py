"""Explanations as a program wants them: words, what they weigh, and where they stand."""

from __future__ import annotations

from typing import Any

from xmtc.explain.pieces import Highlight

MOST_WORDS = 100  # of an explanation


def placed_words(found: Highlight) -> list[dict[str, Any]]:
    """The words that weigh anything, the strongest first. A word that stands in the text several times weighs what it
    does in all; one that weighs only as part of a term of several words, what the term does."""
    in_all = {word.casefold(): weight for word, weight in found.words}
    words: dict[str, dict[str, Any]] = {}
    begin = 0
    for piece in found.pieces:
        end = begin + len(piece.text)
        if piece.weight:
            key = piece.text.casefold()
            word = words.setdefault(key, {"word": piece.text, "weight": in_all.get(key, piece.weight), "spans": []})
            word["spans"].append([begin, end])
        begin = end
    return sorted(words.values(), key=lambda word: -abs(word["weight"]))[:MOST_WORDS]
