"""Measure time and memory of writing predictions of `xmtc predict`: python benchmarks/answers.py N_DOCS"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from xmtc.output import OUTPUT_FORMATS, Prediction, PredictionTable, open_prediction_writer
from xmtc.tagger import Tag

BATCH = 4096


def write(format: str, n_docs: int) -> None:
    tags = [Tag(f"http://example.org/subject/{rank}", 0.9 / (rank + 1)) for rank in range(5)]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with open_prediction_writer(
            f"{folder}/answers.{format}", format, PredictionTable(kept_fields=("title",))
        ) as add:
            for begin in range(0, n_docs, BATCH):
                numbers = range(begin, min(begin + BATCH, n_docs))
                add(Prediction(str(number), tags, (f"The title of document {number}",)) for number in numbers)
        seconds = time.perf_counter() - start
        size = Path(folder, f"answers.{format}").stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{format:8} {n_docs * len(tags):10,} labels {seconds:7.1f} s {size / 2**20:7.1f} MiB {peak:7.0f} MiB of memory"
    )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write(sys.argv[2], int(sys.argv[1]))
    else:
        for format in OUTPUT_FORMATS:
            subprocess.run([sys.executable, __file__, sys.argv[1], format], check=True)
