"""Measure time and memory of building the tf-idf matrix of a corpus larger than memory, with and without a work folder,
each in its own process; the numbers are compared.

python benchmarks/large_corpus.py FOLDER 100000 1000000      makes the files there (0.2 kB a document) and reads them

A document has 15 words and one to five labels; words are drawn by Zipf's law from ever more, labels from 100,000. The
same seed makes the same corpus.
"""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

WORDS_PER_TEXT, N_LABELS, MOST_LABELS, AT_A_TIME = 15, 100_000, 5, 100_000


def main(folder: Path, sizes: list[int]) -> None:
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "numba", "pyarrow"))
    print(f"python {platform.python_version()}, {versions}")
    for n_docs in sizes:
        path = folder / f"{n_docs}.jsonl"
        if not path.exists():
            write(path, n_docs)
        for workdir in ("", str(folder / "work")):
            done = subprocess.run([sys.executable, __file__, "measure", path, workdir], capture_output=True, text=True)
            print(f"{n_docs:>12,} {'with' if workdir else 'without'} --workdir: {done.stdout}{done.stderr}", end="")


def write(path: Path, n_docs: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    with path.open("w") as file:
        for first in range(0, n_docs, AT_A_TIME):
            n = min(AT_A_TIME, n_docs - first)
            words = rng.zipf(1.2, (n, WORDS_PER_TEXT)) % 10**9
            labels = rng.integers(N_LABELS, size=(n, MOST_LABELS))
            n_labels = rng.integers(1, MOST_LABELS + 1, size=n)
            for at, (ours, names, n_names) in enumerate(zip(words.tolist(), labels.tolist(), n_labels, strict=True)):
                text = " ".join([f"w{word:x}" for word in ours])
                named = ", ".join(dict.fromkeys(f'"label {name}"' for name in names[:n_names]))
                file.write(f'{{"id": "{first + at}", "text": "{text}", "labels": [{named}]}}\n')


def measure(path: str, workdir: str) -> None:
    """Return seconds, memory and a fingerprint. Reading the finished matrix is not measured."""
    from xmtc.core.run import Run
    from xmtc.data.corpus import open_corpus
    from xmtc.pipeline import Pipeline

    pipeline = Pipeline.from_parameters("parabel", parameters={"analyzer": "words"})
    begin = time.perf_counter()
    prepared = pipeline.prepare(open_corpus(path), Run(workdir=workdir or None))
    seconds, made = time.perf_counter() - begin, read_peak_mb()
    X = prepared.data.X
    print(
        f"{seconds:.1f} s, {read_cpu_seconds():.1f} s of CPU, peak {made:,.0f} MiB; "
        f"{X.nnz:,} numbers, {X.shape[1]:,} columns, "
        f"fingerprint {prepared.data.fingerprint()}, then {read_peak_mb():,.0f} MiB"
    )


def read_peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def read_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        measure(*sys.argv[2:])
    else:
        main(Path(sys.argv[1]), [int(size) for size in sys.argv[2:]])
