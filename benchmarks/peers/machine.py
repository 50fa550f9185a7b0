"""Description of the machine, and load by other processes."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import time
from datetime import date
from pathlib import Path
from typing import Any


def describe_run(args: argparse.Namespace) -> dict[str, Any]:
    """Return place, time and settings, without --peers, --work and --corpora, which are local paths."""
    given = ["--data", *args.data, *(["--systems", *args.systems] if args.systems else [])]
    given += ["--repeats", str(args.repeats), "--threads", *map(str, args.threads)]
    return {
        "command": shlex.join(["python", "benchmarks/linear.py", *given]),
        "date": date.today().isoformat(),
        "processor": read_processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "commit": read_commit(),
        "threads": ", ".join(map(str, args.threads)),
        "repeats": args.repeats,
    }


def read_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def read_commit() -> str:
    def run_git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changes = run_git("status", "--short", ".", "../linear.py", "../../xmtc")
    return run_git("rev-parse", "--short", "HEAD") + (" with changes" if changes else "")


class LoadMonitor:
    """Measure the CPU cores that other processes use, from its creation on."""

    def __init__(self) -> None:
        self.start = self.read_clock()

    def mean_other_cores(self) -> float | None:
        """Return the mean number of cores, if the system reports it."""
        start, end = self.start, self.read_clock()
        if start is None or end is None or end[0] == start[0]:
            return None
        return round(max(0.0, (end[1] - start[1]) / (end[0] - start[0])), 3)

    @staticmethod
    def read_clock() -> tuple[float, float] | None:
        """Return elapsed seconds, and processor seconds of all processes except this one and its children."""
        try:
            first = Path("/proc/stat").read_text().partition("\n")[0]
        except OSError:
            return None
        user, nice, system, _idle, _waiting, *interrupts = (int(word) for word in first.split()[1:8])
        ours = sum(os.times()[:4])
        return time.monotonic(), (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK") - ours
