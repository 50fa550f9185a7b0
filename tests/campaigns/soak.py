"""Train, save, load, predict and explain repeatedly in one process: memory and open files must not grow.

    python tests/campaigns/soak.py --minutes 60 --seed 0

The first rounds fill caches and are not counted. A finding is memory that has grown by more than ROOM since then, a
file or a thread more than there was, or a leftover in the folder."""

from __future__ import annotations

import gc
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from planted import make_planted_corpus

from xmtc import Classifier, Run, Tagger
from xmtc.methods import method_class

WARM_UP = 5  # number of rounds
ROOM = 64 << 20  # bytes: allocators keep freed memory
LINEAR = ("parabel", "bonsai", "plt", "dismec")
NEURAL = ("xml_rnn", "rank_ae") if find_spec("torch") else ()


@dataclass(frozen=True)
class ProcessResources:
    """Resources of a process."""

    memory: int  # bytes
    files: int
    threads: int

    @classmethod
    def now(cls) -> ProcessResources:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(pages * 4096, len(list(Path("/proc/self/fd").iterdir())), threading.active_count())


def run_round(number: int, seed: int, folder: Path) -> None:
    """Run one round: from the training of a model to an explanation by the loaded model."""
    rng = np.random.default_rng((seed, number))
    names = LINEAR + NEURAL
    name = names[number % len(names)]
    texts, tags = make_planted_corpus(int(rng.integers(60, 160)), seed=int(rng.integers(1000)))
    parameters = method_class(name).quick_parameters | ({"epochs": 1} if name in NEURAL else {})
    Classifier(name, **parameters).fit(texts, tags, run=Run(checkpoint=folder / "parts")).save(folder / "model")
    tagger = Tagger.load(folder / "model", verify=True)
    (first, *_) = tagger.predict_labels(texts, k=3)
    tagger.explain(texts[0], first[0].label)


def run_campaign(seed: int, minutes: float, only: int | None = None) -> tuple[int, list[str]]:
    if only is not None:
        with tempfile.TemporaryDirectory() as name:
            run_round(only, seed, Path(name))
        return 1, []
    stop_at, number, before, findings = time.monotonic() + 60 * minutes, 0, None, list[str]()
    with tempfile.TemporaryDirectory() as name:
        while number <= 2 * WARM_UP or time.monotonic() < stop_at:
            with tempfile.TemporaryDirectory(dir=name) as parts:
                run_round(number, seed, Path(parts))
            number += 1
            if number == WARM_UP * len(LINEAR + NEURAL):
                before = ProcessResources.now()
        after, left = ProcessResources.now(), sorted(path.name for path in Path(name).iterdir())
    if before is not None:
        print(f"{before} after the first rounds, {after} after {number}")
        if after.memory > before.memory + ROOM:
            findings.append(f"memory grew from {before.memory >> 20} to {after.memory >> 20} MiB")
        if after.files > before.files or after.threads > before.threads:
            findings.append(f"files or threads stay open: {before}, then {after}")
    return number, findings + [f"{path} is left" for path in left]


if __name__ == "__main__":
    import cases  # in this folder

    cases.run_counted(run_campaign, __doc__)
