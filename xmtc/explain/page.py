"""Explanations as one page that needs nothing else: the whole text for each label, every word on a background as strong
as its weight."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from xmtc.explain.pieces import Highlight

GENERATOR = '<meta name="generator" content="xmtc explain">'  # by which a page of ours is known
FAINTEST = 0.02  # of the strongest weight: what is weaker would not be seen
UNSHOWABLE = {code: 0xFFFD for code in range(32) if chr(code) not in "\t\n\f\r"}  # HTML has no way to write them

LIGHT = """--paper: #fff; --ink: 26 26 26; --soft: #5c5c5c; --line: #ddd;
  --for: 255 140 26; --against: 90 160 255"""

MARKED_TEXT = """
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

STYLE = f"""
:root {{ color-scheme: light dark; {LIGHT} }}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ --paper: #16181c; --ink: 238 238 238; --soft: #a8a8a8; --line: #3a3d44; --for: 178 74 0;
    --against: 28 92 190 }}
}}
body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem; background: var(--paper); color: rgb(var(--ink));
  font: 1.05rem/1.7 system-ui, sans-serif; overflow-wrap: anywhere; forced-color-adjust: none }}
section {{ margin-top: 1.5rem; border-top: 1px solid var(--line) }}
h1, h2 {{ break-after: avoid; margin: 1.2rem 0 0; font-size: 1.4rem; line-height: 1.3 }}
h1 {{ font-size: 1.05rem }}
{MARKED_TEXT}
""".strip()

# Within somebody's page: its rules reach no further, and its paper is light whatever theirs is, so that it can be read.
FRAGMENT_STYLE = f"""
.xmtc-highlight {{ {LIGHT};
max-width: 46rem; padding: .1rem 1rem; background: var(--paper); color: rgb(var(--ink)); overflow-wrap: anywhere;
h2 {{ margin: .6rem 0 0; font-size: 1.2rem }}
{MARKED_TEXT}
}}
""".strip()

NOTHING = "<p>No word of this text weighs anything for the label.</p>"


def page(highlights: Sequence[Highlight]) -> str:
    """A page with a section for each label."""
    title = ", ".join(each.name or each.label for each in highlights) or "No labels"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            GENERATOR,
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escaped(title)}</title>",
            f"<style>\n{STYLE}\n</style>",
            "</head>",
            "<body>",
            "<main>",
            "<h1>Which words speak for a label</h1>",
            f"<p>{key(highlights)}</p>",
            *(section(each) for each in highlights),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def fragment(highlight: Highlight) -> str:
    """One label's section by itself, for a notebook."""
    return f'<div class="xmtc-highlight">\n<style>\n{FRAGMENT_STYLE}\n</style>\n{section(highlight)}\n</div>'


def key(highlights: Sequence[Highlight]) -> str:
    """What the backgrounds mean."""
    if not highlights:
        return "The model finds no label for this text: as a rule, it knows no word of it."
    strong = "The stronger a word’s background, the more it weighs"
    if not any(piece.weight < 0 for each in highlights for piece in each.pieces):
        return f"{strong} for the label."
    example = '<mark class="against" style="--w:.5">underlined like this</mark>'
    return f"{strong}; words {example} speak against the label."


def section(highlight: Highlight) -> str:
    """The label, the text and its strongest words; lang="" since nobody has said what language they are in."""
    text = "".join(
        marked(piece.text, strength, piece.weight) if abs(strength) >= FAINTEST else escaped(piece.text)
        for piece, strength in zip(highlight.pieces, highlight.strengths(), strict=True)
    )
    score = f'<span lang="en" dir="ltr">{score_of(highlight)}</span>'
    return "\n".join(
        [
            "<section>",
            f'<h2 lang="" dir="auto">{escaped(highlight.title)} {score}</h2>',
            f'<div class="text" lang="" dir="auto">{text}</div>',
            strongest_words(highlight) if any(piece.weight for piece in highlight.pieces) else NOTHING,
            *strongest_by_page(highlight),
            "</section>",
        ]
    )


def score_of(highlight: Highlight) -> str:
    return "not among the labels that the model finds" if highlight.score is None else f"score {highlight.score:.3f}"


def strongest_words(highlight: Highlight) -> str:
    """The words with their weights, each on a background as strong as its share of the first one's."""
    if not highlight.words:
        return ""
    strongest = abs(highlight.words[0][1]) or 1.0
    words = (
        f'<li><bdi lang="">{marked(word, weight / strongest, weight)}</bdi> {number(weight)}</li>'
        for word, weight in highlight.words
    )
    return f'<p>The strongest words, each with all its occurrences:</p>\n<ol role="list">{"".join(words)}</ol>'


def strongest_by_page(highlight: Highlight) -> list[str]:
    """A line for each page of a document that has pages."""
    return [
        f'<p>Page {page}: <bdi lang="">{escaped(", ".join(piece.text for piece in pieces))}</bdi></p>'
        for page, pieces in highlight.by_page().items()
    ]


def marked(text: str, strength: float, weight: float) -> str:
    """A piece of text on its background; the weight itself shows when it is pointed at."""
    against = ' class="against"' if strength < 0 else ""
    return f'<mark{against} style="--w:{abs(strength):.2f}" title="{number(weight)}">{escaped(text)}</mark>'


def number(weight: float) -> str:
    """With a minus sign, which is read aloud, and not a hyphen, which is not."""
    return f"{weight:.3g}".replace("-", "−")


def escaped(text: str) -> str:
    """Text for a page; a bare carriage return would be read as a new line."""
    return escape(text.translate(UNSHOWABLE)).replace("\r", "&#13;")
