"""Compute average ranks of the methods of rivals.toml over corpora and metrics from stored results: prints the tables
of docs/results/accuracy.md, and draws docs/images/ranks.svg and ranks-texts.svg.

python experiments/ranks.py                 both groups of corpora, with their pictures
python experiments/ranks.py CORPUS ...      over these; draws nothing"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from xmtc.analysis.compare.comparison import Comparison, ComparisonEntry, Cost
from xmtc.analysis.compare.plots import plot_critical_differences
from xmtc.analysis.compare.ranking import MethodRanking, build_ranking
from xmtc.analysis.compare.tables import build_ranking_tables
from xmtc.evaluation.significance import ConfidenceInterval

HERE = Path(__file__).parent
GROUPS = {  # by name of the picture
    "ranks": ("cve-libraries", "delicious", "imdb-meka", "eurlex57k", "tibkat-gnd-en"),
    "ranks-texts": ("cve-libraries", "eurlex57k", "tibkat-gnd-en", "yso-finna-en"),  # corpora of texts, for networks
}
COLOURS = "svg { --ink: #222; --soft: #666; --line: #bbb; --mark: #0b63a5; font-family: sans-serif; background: #fff }"


def make_comparison(corpus: str, results: dict[str, dict]) -> Comparison:
    """Return the results of all methods on one corpus. Stored results have no confidence interval."""
    entries = []
    for name, result in results.items():
        if name.endswith(f", {corpus}"):
            figures = {
                each: ConfidenceInterval(*[value / 100] * 3) for each, value in result.get("figures", {}).items()
            }
            cost = Cost(train_cpu_s=result.get("train_cpu_s"))
            entries.append(
                ComparisonEntry(name.removesuffix(f", {corpus}"), figures, cost=cost, failed=result.get("failed", ""))
            )
    return Comparison(corpus, 0, 0, 0, entries)


def as_picture(figure: str) -> str:
    """Return the drawing with its own colours."""
    found = re.search(r"<svg.*</svg>", figure, re.DOTALL)
    assert found is not None
    head = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    return found.group().replace("<svg ", head, 1).replace(">", f"><style>{COLOURS}</style>", 1) + "\n"


def print_tables(corpora: Sequence[str], results: dict[str, dict]) -> MethodRanking:
    """Print the tables of a group of corpora."""
    comparisons = [make_comparison(corpus, results) for corpus in corpora]
    found = build_ranking(comparisons)
    if found is None:
        raise SystemExit("No two methods were run on all of these corpora.")
    for table in build_ranking_tables(found, comparisons):
        print(f"\n### {table.title}\n\n{table.note}\n")
        for row in [table.columns, ["---"] * len(table.columns), *table.rows]:
            print(f"| {' | '.join(map(str, row))} |")
    return found


def main() -> None:
    results = json.loads((HERE / "results" / "rivals.json").read_text())
    if len(sys.argv) > 1:
        print_tables(sys.argv[1:], results)
        return
    for picture, corpora in GROUPS.items():
        print(f"\n## {', '.join(corpora)}")
        drawn = as_picture(plot_critical_differences(print_tables(corpora, results)))
        (HERE.parent / "docs" / "images" / f"{picture}.svg").write_text(drawn)


if __name__ == "__main__":
    main()
