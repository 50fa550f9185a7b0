"""Compare `xmtc recommend` with the best method within the limit, on the corpora beside the checkout.

python experiments/recommend.py [CORPUS ...]      recommend on each, and store the output in results/recommend.json
python experiments/recommend.py --table           print it beside the measured figures of results/rivals.json

`xmtc recommend` does not read test documents. Test metrics and training times of the methods are those of
results/rivals.json, which has the commands. The best method within the limit has the best nDCG@5 there among the
methods whose training took at most the budget, without networks, which were trained on a GPU.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from xmtc.analysis.measured_process import run_measured
from xmtc.analysis.result_files import describe_environment, load_results, save_result

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
KEPT = ROOT / "experiments" / "results" / "recommend.json"
RIVALS = ROOT / "experiments" / "results" / "rivals.json"
CORPORA = ("cve-libraries", "delicious", "imdb-meka", "eurlex57k", "tibkat-gnd-en", "yso-finna-en")
METRIC = "nDCG@5"
NETWORKS = ("attention_xml", "xml_rnn", "xml_cnn", "bow_cnn", "aplc_xlnet", "rank_ae", "bce_ae", "c2ae")


def ask(name: str, budget: str, data: Path, machine: str | None) -> None:
    """Run a recommendation and store its output."""
    words = ["recommend", str(data / name / "train.jsonl.gz"), "--time-limit", budget, "--json", "--quiet"]
    found = run_measured(words, ROOT / "build" / "recommend" / name)
    if found.failure_message:
        print(f"{name}: {found.failure_message}")
        return
    said = json.loads(found.output)
    shown = " ".join(["xmtc", "recommend", f"../shared/data/{name}/train.jsonl.gz", "--time-limit", budget, "--json"])
    said["recommended"]["command"] = said["recommended"]["command"].replace(str(data), "../shared/data")
    save_result(KEPT, name, {"command": shown, "s": found.seconds, **describe_environment(machine), **said})


def load_measurements(name: str) -> dict[str, tuple[float, float]]:
    """Return test nDCG@5 and training seconds by method, without networks."""
    found = {}
    for result in load_results(RIVALS).values():
        command = result["command"][0]
        method = re.search(r" -m (\w+)", command)
        if not method or method[1] in NETWORKS or f"/{name}/" not in command:
            continue
        if METRIC in result.get("figures", {}):
            found[method[1]] = (result["figures"][METRIC], result["train_s"])
    return found


def make_table_row(name: str, said: dict[str, Any]) -> list[str]:
    """Return a row of the table."""
    chosen, known = said["recommended"], load_measurements(name)
    fits = {method: value for method, (value, seconds) in known.items() if seconds <= said["budget_s"]}
    best = max(fits, key=lambda method: fits[method], default="")
    expected = f"{100 * chosen['metrics'][METRIC]:.2f}"
    reached = f"{known[chosen['name']][0]:.2f}" if chosen["name"] in known else "–"
    behind = f"{fits[best] - known[chosen['name']][0]:.2f}" if best and chosen["name"] in known else "–"
    told = f"{best} {fits[best]:.2f}" if best else "–"
    return [name, chosen["name"], expected, reached, told, behind, f"{chosen['seconds']:.0f}", f"{said['s']:.0f}"]


def render_table() -> str:
    heads = [
        "corpus",
        "recommended",
        "expected",
        "reached",
        "best within the limit",
        "difference",
        "expected s",
        "search s",
    ]
    kept = load_results(KEPT)
    rows = [heads, ["---"] * len(heads), *(make_table_row(name, kept[name]) for name in CORPORA if name in kept)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", metavar="CORPUS", help="folders of the data, all six where none is named")
    parser.add_argument("--table", action="store_true", help="print what is kept; run nothing")
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds the corpora's folders")
    parser.add_argument("--machine", help="what the results say of the machine")
    args = parser.parse_args()
    if not args.table:
        for name in args.corpora or CORPORA:
            ask(name, args.budget, args.data, args.machine)
    print(render_table())


if __name__ == "__main__":
    main()
