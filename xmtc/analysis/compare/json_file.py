"""Comparisons as JSON, and back, so that what was run apart can be looked at together."""

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

JSON_PREFIX = '{\n "made by": "xmtc compare"'  # how such a file begins


def as_json(comparisons: Sequence[Comparison]) -> str:
    """Every figure as a fraction or a count; null where there is no value."""
    ranked = build_ranking(comparisons)
    found = {
        "made by": "xmtc compare",
        "comparisons": [asdict(each) for each in comparisons],
        "ranking": None if ranked is None else asdict(ranked),
    }
    return json.dumps(replace_nan(found), ensure_ascii=False, indent=1) + "\n"


def is_comparison_file(path: str) -> bool:
    """Whether a file is a comparison of ours."""
    if not Path(path).is_file():
        return False
    with open(path, "rb") as stream:
        return stream.read(len(JSON_PREFIX)) == JSON_PREFIX.encode()


def load_comparisons(path: str) -> list[Comparison]:
    try:
        held = json.loads(Path(path).read_text(encoding="utf-8"))
        return [parse_comparison(each) for each in held["comparisons"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise XmtcError(
            f"{path} is damaged ({type(error).__name__}: {error}); expected what `xmtc compare -o FILE.json` writes."
        ) from None


def parse_comparison(held: dict[str, Any]) -> Comparison:
    entries = [parse_entry(each) for each in held["entries"]]
    shown = [Disagreement(**each) for each in held.get("disagreements", [])]
    return Comparison(**held | {"entries": entries, "disagreements": shown})


def parse_entry(held: dict[str, Any]) -> ComparisonEntry:
    intervals = {
        key: {name: ConfidenceInterval(**restore_nan(each)) for name, each in held.get(key, {}).items()}
        for key in ("metrics", "behind")
    }
    groups = [BandCurves(**restore_nan(each, keep=("most",))) for each in held.get("groups", [])]
    return ComparisonEntry(**held | intervals | {"groups": groups, "cost": Cost(**held.get("cost", {}))})


def restore_nan(held: dict[str, Any], keep: Sequence[str] = ()) -> dict[str, Any]:
    """With nan again where JSON has null."""
    return {name: float("nan") if value is None and name not in keep else value for name, value in held.items()}


def join_comparisons(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Those of one corpus as one. Of a method that both have, the later counts. Differences to the best are of
    documents that only each of them had, and are left out."""
    found: dict[str, Comparison] = {}
    for each in comparisons:
        if each.data not in found:
            found[each.data] = each
            continue
        before = found[each.data]
        if before.n_docs != each.n_docs:
            raise XmtcError(
                f"Two comparisons are called {each.data}, on {before.n_docs} and on {each.n_docs} documents; join only "
                "those on the same documents, or give one another name in its file."
            )
        entries = {one.name: replace(one, behind={}) for one in (*before.entries, *each.entries)}
        names = before.overlap.keys() | each.overlap.keys()
        shared = {name: before.overlap.get(name, {}) | each.overlap.get(name, {}) for name in sorted(names)}
        found[each.data] = replace(before, entries=list(entries.values()), overlap=shared)
    return list(found.values())
