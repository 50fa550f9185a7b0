"""Render the result of a benchmark as a Markdown page.

python benchmarks/peers/report.py OUT.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from peers.measures import BEST_PEER, COMPARED, PRECISIONS, PROPENSITY_SCORED, compute_ratios, list_failures, summarize

NOTES = """\
- *train*: from matrices in memory to a model in memory, label clustering included. *read* is what came before, into the
  form the system takes: omikuji's text file, by the first of the two calls that its `train_on_data` consists of (the
  second is the training), and scipy files for the others. napkinXC writes its model while it trains.
- *start*: import and warm-up. Ours loads its compiled code by training on 1,000 documents; LibMultiLabel, which has
  compiled parts too, does the same. Compilation, once per installation, is not in it.
- Prediction is from the saved model, loaded again, k = 5, in another process. *batch*: the whole test set; the first
  time does not count, then the median of up to five within five seconds. omikuji's package takes one document a call,
  so that its batch is one thread or several calling it, whichever is faster; its weights are made dense before, as its
  command line does it. The others predict as they are set. *one by one*: 500 calls with one document each, one thread
  where it can be set, after 20 that do not count. Input is in the form each system takes before the clock starts.
- *training MB*: the most that was resident during training, and in brackets when it began; *prediction MB*: the most
  from the loading of the model on. Data and libraries are included.
- Medians over the repeats, but means for P and PSP (in %). Each repeat has its own seed; omikuji has none.
- LibMultiLabel's k-means is mended where distinct labels are fewer than clusters, which makes it break off."""


def render_markdown(result: dict[str, Any]) -> str:
    said = result["about"]
    lines = [
        "# Linear methods beside their peers",
        "",
        f"`{said['command']}`",
        "",
        f"{said['date']}, {said['processor']}, {said['threads']} of {said['cores']} cores, {said['memory_gib']} GiB, "
        f"{said['system']}; xmtc at {said['commit']}.",
        *describe_load(result),
        "",
        *list_versions(result),
        "",
        NOTES,
    ]
    for data, sizes in result["data"].items():
        counts = ", ".join(f"{sizes[name]:,} {name[2:].replace('_', ' ')}" for name in sizes)
        lines += ["", f"## {data}", "", f"{counts}.", ""]
        lines += [*render_measures(result, data), "", *render_ratios(result, data)]
    return "\n".join(lines) + "\n"


def describe_load(result: dict[str, Any]) -> list[str]:
    """Return a sentence about other load of the machine, without which times cannot be judged."""
    others = [run["others"] for run in result["runs"] if run.get("others") is not None]
    if not others:
        return []
    return [f"Other processes took {np.mean(others):.2f} cores on the mean of the runs, {max(others):.2f} at the most."]


def list_versions(result: dict[str, Any]) -> list[str]:
    found = {}
    for run in result["runs"]:
        if "versions" in run:
            words = ", ".join(f"{package} {version}" for package, version in run["versions"].items())
            found[result["rows"][run["row"]]["system"]] = words
    return [f"- {words}" for words in found.values()]


def render_measures(result: dict[str, Any], data: str) -> list[str]:
    columns = ("train s", "read s", "start s", "batch ms/doc", "one by one ms p50 / p99", "P@1/3/5", "PSP@1/3/5",
               "model MB", "training MB", "prediction MB")  # fmt: skip
    lines = [f"| system | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    found = summarize(result).get(data, {})
    for row in result["rows"]:
        reasons = list_failures(result, data, row)
        if row not in found:
            lines.append(f"| {row} | failed: {reasons[0] if reasons else 'not run'} |" + " |" * (len(columns) - 1))
        else:
            note = f" (a repeat failed: {reasons[0]})" if reasons else ""
            lines.append(f"| {row}{note} | {' | '.join(measure_cells(found[row]))} |")
    return lines


def measure_cells(values: dict[str, float]) -> list[str]:
    return [
        f"{values['train_s']:.2f}",
        f"{values['read_s']:.2f}",
        f"{values['start_s']:.1f}",
        f"{values['batch_ms']:.4f}",
        f"{values['single_p50_ms']:.3f} / {values['single_p99_ms']:.3f}",
        " / ".join(f"{values[name]:.2f}" for name in PRECISIONS),
        " / ".join(f"{values[name]:.2f}" for name in PROPENSITY_SCORED),
        f"{values['model_mb']:.1f}",
        f"{values['train_mb']:.0f} ({values['before_train_mb']:.0f})",
        f"{values['predict_mb']:.0f}",
    ]


def render_ratios(result: dict[str, Any], data: str) -> list[str]:
    entries = [entry for entry in compute_ratios(result) if entry["data"] == data]
    if not entries:
        return ["Without a peer and one of ours there is nothing to compare."]
    lines = [
        "Theirs over ours, of medians, with the least and the most of the repeats: above 1, ours is better. P: ours",
        "less theirs. First against the same method, then in every measure against the best of all peers.",
    ]
    for is_best in (False, True):
        columns = ["ours", *([] if is_best else ["against"]), *COMPARED.values(), *([] if is_best else ["P@1/3/5"])]
        lines += ["", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        for entry in entries:
            if (entry["against"] == BEST_PEER) == is_best:
                lines.append(f"| {' | '.join(format_ratio_cells(entry, is_best))} |")
    return lines


def format_ratio_cells(entry: dict[str, Any], is_best: bool) -> list[str]:
    cells = []
    for name in COMPARED:
        value = entry[name]
        cell = f"**{value['ratio']:.2f}**"
        if len(value["each"]) > 1:
            cell += f" ({min(value['each']):.2f}–{max(value['each']):.2f})"
        cells.append(f"{cell} {value['peer']}" if is_best else cell)
    if is_best:
        return [entry["row"], *cells]
    differences = " / ".join(f"{value:+.2f}" for value in entry["difference"].values())
    return [entry["row"], entry["against"], *cells, differences]


if __name__ == "__main__":
    print(render_markdown(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
