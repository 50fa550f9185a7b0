"""Published figures of experiments/*.toml against the tables in the text of the papers, where `../shared/papers` is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from experiments.rows import list_tables, load_experiment

PAPERS = Path(__file__).parents[3] / "shared" / "papers"
if not PAPERS.is_dir():
    pytest.skip("the papers are not here", allow_module_level=True)

FILES = {"AttentionXML": "00[01]_*", "first version": "001_*", "Rank-AE": "002_*", "APLC-XLNet": "003_*"}  # by source
OTHER_SOURCES = ("Kim-CNN", "quoted from memory", "section 5")  # no table of these papers
NUMBER = re.compile(r"\d+\.\d+|\d+(?=%)|(?<!\S)-(?!\S)")  # a dash is an empty cell
# A table of the papers has all of these of a method beside each other, or one below the other.
GROUPS = [
    ("P@1", "P@3", "P@5"),
    ("P@1", "nDCG@3", "nDCG@5"),
    ("AUC@frequent", "AUC@medium", "AUC@rare"),
    ("AUPR@frequent", "AUPR@medium", "AUPR@rare"),
    ("top1", "top2", "top3", "top4", "top5"),
]
WHOLE_LINE = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")  # in the appendix of AttentionXML


def iterate_runs(text: str) -> Iterator[tuple[float, ...]]:
    """Yield the numbers of each line and, of successive lines with as many numbers, those of each column."""
    lines: list[tuple[float, ...]] = []
    for found in [*map(NUMBER.findall, text.splitlines()), []]:
        numbers = tuple(-1.0 if cell == "-" else float(cell) for cell in found)
        if lines and len(numbers) != len(lines[0]):
            yield from zip(*lines, strict=True)
            lines = []
        if numbers:
            yield numbers
            lines.append(numbers)


@cache
def read_runs(pattern: str) -> list[tuple[float, ...]]:
    return [run for path in sorted(PAPERS.glob(pattern)) for run in iterate_runs(path.read_text(encoding="utf-8"))]


def is_printed(values: Sequence[float], pattern: str) -> bool:
    n = len(values)
    return any(tuple(values) == run[i : i + n] for run in read_runs(pattern) for i in range(len(run) - n + 1))


@pytest.mark.parametrize("path", list_tables(), ids=lambda path: path.stem)
def test_published_figures_are_those_of_the_papers(path):
    for row in load_experiment(path).rows:
        published, source = row.settings.get("published", {}), row.settings.get("source", "")
        if not published or any(other in source for other in OTHER_SOURCES):
            continue
        (pattern,) = [pattern for start, pattern in FILES.items() if source.startswith(start)]
        whole = [published[name] for name in WHOLE_LINE if name in published]
        if is_printed(whole, pattern):
            published = {name: value for name, value in published.items() if name not in WHOLE_LINE}
        for group in GROUPS:
            if values := [published[name] for name in group if name in published]:
                assert is_printed(values, pattern), (row.name, values)
        assert published.keys() <= {name for group in GROUPS for name in group}, row.name


def test_a_wrong_figure_is_found():
    assert is_printed([69.26, 62.72, 57.63], FILES["Rank-AE"])
    assert not is_printed([69.26, 62.72, 57.62], FILES["Rank-AE"])
    assert not is_printed([69.26, 57.63, 62.72], FILES["Rank-AE"])
