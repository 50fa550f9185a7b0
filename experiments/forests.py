"""Compare accuracy and cost of FastXML, PfastreXML and Parabel through the command. Wall and processor seconds are
stored, because the machine may be shared.

python experiments/forests.py --data cve-libraries delicious --out forests.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import CORPORA

METHODS = {"parabel": [], "fastxml": [], "pfastrexml": []}
RAW = ["-p", "unit_length=false"]  # zeros and ones, as published by its authors


def measure(words: list[str]) -> tuple[str, dict[str, float]]:
    """Return the output of a command, wall and processor seconds, and peak memory."""
    begin = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "xmtc", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    took = {"seconds": time.monotonic() - begin, "cpu": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1e3}
    return output, {name: round(value, 1) for name, value in took.items()}


def read_stages(log: Path) -> dict[str, float]:
    """Return wall seconds of every stage."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return {event["title"]: round(event["seconds"], 2) for event in events if event["event"] == "stage"}


def make_row(folder: Path, method: str, more: list[str], place: Path) -> dict:
    end = ".txt.gz" if (folder / "train.txt.gz").exists() else ".jsonl.gz"
    model, train_log, test_log = place / "model", place / "train.jsonl", place / "test.jsonl"
    common = ["--quiet", "--log-json"]
    given = ["train", str(folder / f"train{end}"), "-m", method, *more, "-o", str(model)]
    _, train = measure([*given, *common, str(train_log)])
    output, test = measure(["evaluate", str(model), str(folder / f"test{end}"), *common, str(test_log)])
    scores = {name: float(value) for name, value in re.findall(r"(\S+@\d)\s+([\d.]+)", output)}
    size = round((model / "arrays.safetensors").stat().st_size / 1e6, 1)
    costs = {"training": train | read_stages(train_log), "evaluation": test | read_stages(test_log), "model_mb": size}
    return {"data": folder.name, "method": method, "parameters": more[1::2], **scores, **costs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpora", type=Path, default=CORPORA)
    args = parser.parse_args()
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    for name in args.data:
        settings = ([], RAW) if name == "delicious" else ([],)
        for method, more in ((method, more) for method in args.methods for more in settings):
            with tempfile.TemporaryDirectory() as place:
                rows.append(make_row(args.corpora / name, method, more, Path(place)))
            print(json.dumps(rows[-1]), flush=True)
            args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
