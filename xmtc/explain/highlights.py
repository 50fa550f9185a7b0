"""Highlights: a text split into pieces, each with its weight for a label, and their HTML."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate
from typing import NamedTuple

from xmtc.core.method import Explanation
from xmtc.explain.word_weights import WordWeight, sum_by_word, weigh_words
from xmtc.features import FittedView


class WeightedText(NamedTuple):
    """Word, or text between two words, with its weight."""

    text: str
    weight: float  # negative if it is evidence against the label; 0 between words


class Member(NamedTuple):
    """Member of a combination with its share of the score."""

    name: str
    share: float


@dataclass(frozen=True)
class Highlight:
    """Text with the weight of each word for a label."""

    label: str
    score: float | None  # None if the label is not among the predicted ones
    pieces: list[WeightedText]  # joined, they are the text
    words: list[tuple[str, float]]  # total weight of each word, the strongest first
    pages: tuple[int, ...] = ()  # start of each page in the text, if the document has pages
    name: str | None = None  # name of the label in the vocabulary
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)  # strongest part of a piece, by number of the piece
    bias: float | None = None  # the weights and the bias sum to the explained margin, log probability or logit
    members: tuple[Member, ...] = ()  # members of a combination that found the label

    @property
    def title(self) -> str:
        """The label, with its name if it has one."""
        return self.label if self.name is None else f"{self.name} ({self.label})"

    def list_page_numbers(self) -> list[int]:
        """Return the page on which each piece begins, from 1."""
        begins = accumulate((len(piece.text) for piece in self.pieces[:-1]), initial=0)
        return [bisect_right(self.pages, begin) for begin in begins]

    def top_words_by_page(self, n: int = 3) -> dict[int, list[WeightedText]]:
        """Return the n strongest words of each page with any, by page number."""
        words_by_page: dict[int, dict[str, WeightedText]] = {}
        for page, piece in zip(self.list_page_numbers() if self.pages else (), self.pieces, strict=False):
            if piece.weight:
                words = words_by_page.setdefault(page, {})
                words[piece.text] = max(words.get(piece.text, piece), piece, key=lambda word: abs(word.weight))
        return {
            page: sorted(words.values(), key=lambda word: -abs(word.weight))[:n]
            for page, words in words_by_page.items()
        }

    def relative_weights(self) -> list[float]:
        """Return the weight of each piece divided by the largest absolute weight, between −1 and 1."""
        strongest = max((abs(piece.weight) for piece in self.pieces), default=0.0) or 1.0
        return [piece.weight / strongest for piece in self.pieces]

    def __repr__(self) -> str:
        score = "" if self.score is None else f" {self.score:.3f}"
        strongest = ", ".join(f"{word} {weight:+.3g}" for word, weight in self.words[:3])
        return f"Highlight({self.label!r}{score}: {strongest})"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return render_fragment(self)


def highlight(
    text: str,
    label: str,
    score: float | None,
    views: Mapping[str, FittedView],
    explanation: Explanation,
    n: int = 20,
    member_names: Sequence[str] = (),
) -> Highlight:
    """Return the explanation of a label as a highlighted text; `words` are the n strongest."""
    weighted = weigh_words(text, views, explanation)
    pieces, parts = split_text(text, weighted)
    words = sorted(sum_by_word(weighted), key=lambda pair: -abs(pair[1]))[:n]
    members = tuple(
        Member(member_names[number] if number < len(member_names) else f"member {number + 1}", share)
        for number, share, _ in explanation.members
    )
    return Highlight(label, score, pieces, words, parts=parts, bias=explanation.bias, members=members)


def split_text(text: str, words: Iterable[WordWeight]) -> tuple[list[WeightedText], dict[int, tuple[int, int]]]:
    """Split the text before and after each word. Return the pieces and the strongest part of some of them."""
    pieces: list[WeightedText] = []
    parts, position = {}, 0
    for word in words:
        if word.begin > position:
            pieces.append(WeightedText(text[position : word.begin], 0.0))
        if word.end > word.begin:
            if word.part is not None:
                parts[len(pieces)] = word.part[0] - word.begin, word.part[1] - word.begin
            pieces.append(WeightedText(text[word.begin : word.end], word.weight))
        position = word.end
    if position < len(text):
        pieces.append(WeightedText(text[position:], 0.0))
    return pieces, parts


GENERATOR_TAG = '<meta name="generator" content="xmtc explain">'  # identifies pages that may be overwritten
MIN_VISIBLE_WEIGHT = 0.02  # relative weight below which a background is not visible
# Control characters that HTML cannot represent, to be replaced.
INVALID_HTML_CHARACTERS = {code: 0xFFFD for code in range(32) if chr(code) not in "\t\n\f\r"}

LIGHT_COLOURS = """--paper: #fff; --ink: 26 26 26; --soft: #5c5c5c; --line: #ddd;
  --for: 255 140 26; --against: 90 160 255"""

MARKED_TEXT_CSS = """
h2 span, p { color: var(--soft); font-size: .9rem; font-weight: normal }
p { margin: .4rem 0; break-after: avoid }
.text { white-space: pre-wrap; unicode-bidi: plaintext; margin: .8rem 0 }
mark { color: rgb(var(--ink)); background: rgb(var(--for) / var(--w)); border-radius: .2em; padding: .05em 0;
  box-decoration-break: clone; -webkit-box-decoration-break: clone;
  print-color-adjust: exact; -webkit-print-color-adjust: exact }
mark.against { background: rgb(var(--against) / var(--w)); text-underline-offset: .2em;
  text-decoration: underline dotted rgb(var(--ink) / calc(.3 + .7 * var(--w))) }
ol { display: flex; flex-wrap: wrap; gap: .3rem .8rem; margin: .4rem 0; padding: 0; list-style: none; font-size: .9rem }
li { break-inside: avoid }
li mark { padding: .1em .4em }
""".strip()

PAGE_CSS = f"""
:root {{ color-scheme: light dark; {LIGHT_COLOURS} }}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ --paper: #16181c; --ink: 238 238 238; --soft: #a8a8a8; --line: #3a3d44; --for: 178 74 0;
    --against: 28 92 190 }}
}}
body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem; background: var(--paper); color: rgb(var(--ink));
  font: 1.05rem/1.7 system-ui, sans-serif; overflow-wrap: anywhere; forced-color-adjust: none }}
section {{ margin-top: 1.5rem; border-top: 1px solid var(--line) }}
h1, h2 {{ break-after: avoid; margin: 1.2rem 0 0; font-size: 1.4rem; line-height: 1.3 }}
h1 {{ font-size: 1.05rem }}
{MARKED_TEXT_CSS}
""".strip()

# In a page of others, such as a notebook: the rules are nested, and the background is light in a dark page, too.
FRAGMENT_CSS = f"""
.xmtc-highlight {{ {LIGHT_COLOURS};
max-width: 46rem; padding: .1rem 1rem; background: var(--paper); color: rgb(var(--ink)); overflow-wrap: anywhere;
h2 {{ margin: .6rem 0 0; font-size: 1.2rem }}
{MARKED_TEXT_CSS}
}}
""".strip()

NO_WEIGHTS_HTML = "<p>No word of this text has a weight for the label.</p>"


def render_page(highlights: Sequence[Highlight]) -> str:
    """Return an HTML page with a section for each label."""
    title = ", ".join(highlight.name or highlight.label for highlight in highlights) or "No labels"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            GENERATOR_TAG,
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape_text(title)}</title>",
            f"<style>\n{PAGE_CSS}\n</style>",
            "</head>",
            "<body>",
            "<main>",
            "<h1>Word weights by label</h1>",
            f"<p>{render_legend(highlights)}</p>",
            *(render_section(highlight) for highlight in highlights),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def render_fragment(highlight: Highlight) -> str:
    """Return the section of one label with its style, for a notebook."""
    return f'<div class="xmtc-highlight">\n<style>\n{FRAGMENT_CSS}\n</style>\n{render_section(highlight)}\n</div>'


def render_legend(highlights: Sequence[Highlight]) -> str:
    """Return the HTML that explains the backgrounds."""
    if not highlights:
        return "The model predicts no label for this text, usually because it knows none of its words."
    intensity = "The stronger a word’s background, the larger its weight"
    if not any(piece.weight < 0 for highlight in highlights for piece in highlight.pieces):
        return f"{intensity} for the label."
    example = '<mark class="against" style="--w:.5">underlined like this</mark>'
    return f"{intensity}; words {example} are evidence against the label."


def render_section(highlight: Highlight) -> str:
    """Return the HTML of a label, the text and its strongest words; lang="" because their language is unknown."""
    text = "".join(
        render_mark(piece.text, strength, piece.weight, highlight.parts.get(number))
        if abs(strength) >= MIN_VISIBLE_WEIGHT
        else escape_text(piece.text)
        for number, (piece, strength) in enumerate(zip(highlight.pieces, highlight.relative_weights(), strict=True))
    )
    score = f'<span lang="en" dir="ltr">{format_score(highlight)}</span>'
    return "\n".join(
        [
            "<section>",
            f'<h2 lang="" dir="auto">{escape_text(highlight.title)} {score}</h2>',
            f'<div class="text" lang="" dir="auto">{text}</div>',
            render_top_words(highlight) if any(piece.weight for piece in highlight.pieces) else NO_WEIGHTS_HTML,
            *(f"<p>{escape_text(note)}</p>" for note in list_notes(highlight)),
            *render_top_words_by_page(highlight),
            "</section>",
        ]
    )


def list_notes(highlight: Highlight) -> list[str]:
    """Return sentences about the members and the bias of an explanation."""
    notes = []
    if highlight.members:
        shares = ", ".join(f"{member.name} {100 * member.share:.0f}%" for member in highlight.members)
        reason = "Members that found the label" if highlight.score is not None else "Members"
        notes.append(f"{reason}, with their shares of the score: {shares}.")
    if highlight.bias is not None:
        notes.append(f"Base, without any word: {format_weight(highlight.bias)}.")
    return notes


def format_score(highlight: Highlight) -> str:
    return "not among the predicted labels" if highlight.score is None else f"score {highlight.score:.3f}"


def render_top_words(highlight: Highlight) -> str:
    """Return the list of the strongest words; backgrounds are relative to the first word."""
    if not highlight.words:
        return ""
    strongest = abs(highlight.words[0][1]) or 1.0
    words = (
        f'<li><bdi lang="">{render_mark(word, weight / strongest, weight)}</bdi> {format_weight(weight)}</li>'
        for word, weight in highlight.words
    )
    return f'<p>The strongest words, each with all its occurrences:</p>\n<ol role="list">{"".join(words)}</ol>'


def render_top_words_by_page(highlight: Highlight) -> list[str]:
    """Return a line for each page of a document with pages."""
    return [
        f'<p>Page {page}: <bdi lang="">{escape_text(", ".join(piece.text for piece in pieces))}</bdi></p>'
        for page, pieces in highlight.top_words_by_page().items()
    ]


def render_mark(text: str, strength: float, weight: float, part: tuple[int, int] | None = None) -> str:
    """Return a text on its background, its strongest part bold; a tooltip shows the weight."""
    against = ' class="against"' if strength < 0 else ""
    content = escape_text(text)
    if part is not None:
        before, strongest, after = text[: part[0]], text[part[0] : part[1]], text[part[1] :]
        content = f"{escape_text(before)}<b>{escape_text(strongest)}</b>{escape_text(after)}"
    return f'<mark{against} style="--w:{abs(strength):.2f}" title="{format_weight(weight)}">{content}</mark>'


def format_weight(weight: float) -> str:
    """Return the weight with a minus sign, which screen readers read, unlike a hyphen."""
    return f"{weight:.3g}".replace("-", "−")


def escape_text(text: str) -> str:
    """Escape text for HTML. Carriage returns become character references, because a parser reads them as newlines."""
    return escape(text.translate(INVALID_HTML_CHARACTERS)).replace("\r", "&#13;")
