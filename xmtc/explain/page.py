"""Explanations as one page that needs nothing else: the whole text for each label, every word on a background as strong
as its weight."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from xmtc.explain.pieces import Highlight

GENERATOR = '<meta name="generator" content="xmtc explain">'  # by which a page of ours is known
FAINTEST = 0.02  # of the strongest weight: what is weaker would not be seen
UNSHOWABLE = {code: 0xFFFD for code in range(32) if chr(code) not in "\t\n\f\r"}  # HTML has no way to write them

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --soft: #5c5c5c; --line: #ddd;
  --for: 255 140 26; --against: 90 160 255 }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181c; --ink: #eee; --soft: #a8a8a8; --line: #3a3d44; --for: 178 74 0; --against: 28 92 190 }
}
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 1.05rem/1.7 system-ui, sans-serif }
section + section { margin-top: 2.5rem; border-top: 1px solid var(--line) }
h1 { font-size: 1.4rem; margin: 1.2rem 0 0 }
h1 span, .key, figcaption { color: var(--soft); font-size: .9rem; font-weight: normal }
.text { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext; margin: .8rem 0 }
mark { color: inherit; background: rgb(var(--for) / var(--w)); border-radius: .2em; padding: .05em 0;
  print-color-adjust: exact; -webkit-print-color-adjust: exact }
mark.against { background: rgb(var(--against) / var(--w)) }
ol { display: flex; flex-wrap: wrap; gap: .3rem .6rem; margin: .4rem 0; padding: 0; list-style: none; font-size: .9rem }
ol mark { padding: .1em .4em }
""".strip()


def page(highlights: Sequence[Highlight]) -> str:
    """A page with a section for each label."""
    title = ", ".join(f"{h.label} ({score_of(h)})" for h in highlights)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="und">',
            "<head>",
            '<meta charset="utf-8">',
            GENERATOR,
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escaped(title)}</title>",
            f"<style>\n{STYLE}\n</style>",
            "</head>",
            "<body>",
            *(section(each) for each in highlights),
            "</body>",
            "</html>",
            "",
        ]
    )


def section(highlight: Highlight) -> str:
    text = "".join(
        marked(piece.text, strength, piece.weight)
        for piece, strength in zip(highlight.pieces, highlight.strengths(), strict=True)
    )
    return "\n".join(
        [
            "<section>",
            f'<h1 dir="auto">{escaped(highlight.label)} <span>{score_of(highlight)}</span></h1>',
            f'<div class="text" dir="auto">{text}</div>',
            f'<p class="key">{key(highlight)}</p>',
            f"<ol>{strongest_words(highlight)}</ol>",
            "</section>",
        ]
    )


def score_of(highlight: Highlight) -> str:
    return "no score" if highlight.score is None else f"{highlight.score:.3f}"


def key(highlight: Highlight) -> str:
    """What the backgrounds mean."""
    weights = [piece.weight for piece in highlight.pieces]
    if not any(weights):
        return "No word of this text weighs anything for the label."
    parts = ["The stronger a word’s background, the more it weighs."]
    if min(weights) < 0:
        parts.append('Words <mark class="against" style="--w:.6">like this</mark> speak against the label.')
    return " ".join([*parts, "The strongest:"] if highlight.words else parts)


def strongest_words(highlight: Highlight) -> str:
    strongest = max((abs(weight) for _, weight in highlight.words), default=0.0) or 1.0
    return "".join(
        f"<li>{marked(word, weight / strongest, weight)} {weight:.3g}</li>" for word, weight in highlight.words
    )


def marked(text: str, strength: float, weight: float) -> str:
    """A piece of text on its background; the weight itself shows when it is pointed at."""
    if abs(strength) < FAINTEST:
        return escaped(text)
    against = ' class="against"' if strength < 0 else ""
    return f'<mark{against} style="--w:{abs(strength):.2f}" title="{weight:.3g}">{escaped(text)}</mark>'


def escaped(text: str) -> str:
    """Text for a page; a bare carriage return would be read as a new line."""
    return escape(text.translate(UNSHOWABLE)).replace("\r", "&#13;")
