"""JSON files of comparisons, which can be loaded and joined."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from xmtc.analysis.compare.comparison import BandCurves, Comparison, ComparisonEntry, Cost, Disagreement
from xmtc.analysis.compare.ranking import build_ranking
from xmtc.analysis.report.files import replace_nan
from xmtc.errors import XmtcError
from xmtc.evaluation.significance import ConfidenceInterval

JSON_PREFIX = '{\n "made by": "xmtc compare"'


def as_json(comparisons: Sequence[Comparison]) -> str:
    """Return all statistics as fractions or counts; null where there is no value."""
    ranking = build_ranking(comparisons)
    content = {
        "made by": "xmtc compare",
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "ranking": None if ranking is None else asdict(ranking),
    }
    return json.dumps(replace_nan(content), ensure_ascii=False, indent=1) + "\n"


def is_comparison_file(path: str) -> bool:
    """Return True if a file was written by `xmtc compare -o FILE.json`."""
    if not Path(path).is_file():
        return False
    with open(path, "rb") as stream:
        return stream.read(len(JSON_PREFIX)) == JSON_PREFIX.encode()


def load_comparisons(path: str) -> list[Comparison]:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return [parse_comparison(comparison) for comparison in content["comparisons"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise XmtcError(
            f"{path} is damaged ({type(error).__name__}: {error}); expected a file of `xmtc compare -o FILE.json`."
        ) from None


def parse_comparison(content: dict[str, Any]) -> Comparison:
    entries = [parse_entry(entry) for entry in content["entries"]]
    disagreements = [Disagreement(**each) for each in content.get("disagreements", [])]
    return Comparison(**content | {"entries": entries, "disagreements": disagreements})


def parse_entry(content: dict[str, Any]) -> ComparisonEntry:
    intervals = {
        key: {name: ConfidenceInterval(**restore_nan(each)) for name, each in content.get(key, {}).items()}
        for key in ("metrics", "behind")
    }
    groups = [BandCurves(**restore_nan(each, keep=("most",))) for each in content.get("groups", [])]
    return ComparisonEntry(**content | intervals | {"groups": groups, "cost": Cost(**content.get("cost", {}))})


def restore_nan(content: dict[str, Any], keep: Sequence[str] = ()) -> dict[str, Any]:
    """Replace None by nan, except for the keys in `keep`."""
    return {name: float("nan") if value is None and name not in keep else value for name, value in content.items()}


def join_comparisons(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Join the comparisons of each corpus. A method in both has the later result.

    Differences from the best are omitted, because they need the predictions of both.
    """
    joined: dict[str, Comparison] = {}
    for comparison in comparisons:
        name = comparison.data
        if name not in joined:
            joined[name] = comparison
            continue
        before = joined[name]
        if before.n_docs != comparison.n_docs:
            raise XmtcError(
                f"Two comparisons are called {name}, on {before.n_docs} and on {comparison.n_docs} documents; join "
                "only those on the same documents, or change the name in one file."
            )
        entries = {entry.name: replace(entry, behind={}) for entry in (*before.entries, *comparison.entries)}
        methods = sorted(before.overlap.keys() | comparison.overlap.keys())
        overlap = {method: before.overlap.get(method, {}) | comparison.overlap.get(method, {}) for method in methods}
        joined[name] = replace(before, entries=list(entries.values()), overlap=overlap)
    return list(joined.values())
