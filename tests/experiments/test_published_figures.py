"""Published figures and counts of experiments against the text of the papers, where `../shared/papers` is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from experiments.datasets import load_catalogue
from experiments.rows import TABLES_FOLDER, list_tables, load_experiment

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


def test_counts_of_data_sets_are_those_of_the_papers():
    for entry in load_catalogue().values():
        for counts in entry.published:
            for start, pattern in FILES.items():
                if counts["source"].startswith(start):
                    text = "".join(path.read_text(encoding="utf-8") for path in PAPERS.glob(pattern))
                    values = [value for name, value in counts.items() if name != "source"]
                    printed = [f"{value:,}" if isinstance(value, int) else f"{value:g}" for value in values]
                    missing = [number for number in printed if not re.search(rf"(?<![\d,.]){number}", text)]
                    assert not missing, entry.name


SIZES = {"height": r"\bH = (\d+)", "arity": r"\bK = (\d+)", "candidates": r"\bC = (\d+)"}


@pytest.mark.parametrize("table", ["attention-tables2-3", "attention-table4"])
def test_rows_train_the_tree_that_their_figures_are_of(table):
    """The papers print H, K and C beside the figures; the rows have them in their names."""
    for row in load_experiment(TABLES_FOLDER / f"{table}.toml").rows:
        printed = {name: int(found[1]) for name, form in SIZES.items() if (found := re.search(form, row.name))}
        assert "height" in printed
        assert printed.items() <= row.settings["params"].items(), row.name


def test_rows_have_the_clusters_of_figures_4_and_5():
    rows = load_experiment(TABLES_FOLDER / "aplc-figures4-5.toml").rows
    text = " ".join((PAPERS / "003_506df5928f743148.txt").read_text(encoding="utf-8").split())
    clusters = [row.settings["params"] for row in rows if row.name.startswith("clusters=")]
    assert {params["clusters"] for params in clusters} == set(range(1, 7))
    assert not any("proportions" in params for params in clusters)  # equal shares
    shares = {tuple(row.settings["params"].get("proportions", ())) for row in rows} - {()}
    assert shares == {tuple(map(float, found.split(","))) for found in re.findall(r"\(([\d., ]{13,16})\)", text)}
