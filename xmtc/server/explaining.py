"""Explanations as programs read them: words, their weights, and their positions in the text."""

from __future__ import annotations

from typing import Any

from xmtc.explain.highlights import Highlight

MAX_EXPLAINED_WORDS = 100  # of an explanation
MAX_WORD_SPANS = 1000  # of a word
MAX_EXPLAINED_CHARACTERS = 100_000  # of a text; one takes 0.1 s, for which its model answers nobody else


def locate_words(found: Highlight) -> list[dict[str, Any]]:
    """Return the words that have a weight, the strongest first. A word that occurs several times has the weight of all
    its occurrences; a word that has a weight only as part of a longer term has the weight of the term."""
    in_all = {word.casefold(): weight for word, weight in found.words}
    words: dict[str, dict[str, Any]] = {}
    begin = 0
    for piece in found.pieces:
        end = begin + len(piece.text)
        if piece.weight:
            key = piece.text.casefold()
            word = words.setdefault(key, {"word": piece.text, "weight": in_all.get(key, piece.weight), "spans": []})
            if len(word["spans"]) < MAX_WORD_SPANS:
                word["spans"].append([begin, end])
        begin = end
    return sorted(words.values(), key=lambda word: -abs(word["weight"]))[:MAX_EXPLAINED_WORDS]
