"""What the page says of the machine, and of who else worked on it."""

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


def about(args: argparse.Namespace) -> dict[str, Any]:
    """Where, when and how. Without --peers, --work and --corpora: they say where things lie, not what is measured."""
    given = ["--data", *args.data, *(["--systems", *args.systems] if args.systems else [])]
    given += ["--repeats", str(args.repeats), "--threads", *map(str, args.threads)]
    return {
        "command": shlex.join(["python", "benchmarks/linear.py", *given]),
        "date": date.today().isoformat(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "commit": commit(),
        "threads": ", ".join(map(str, args.threads)),
        "repeats": args.repeats,
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changes = git("status", "--short", ".", "../linear.py", "../../xmtc")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changes else "")


class Clock:
    """Counts the cores that other processes keep busy from its making on."""

    def __init__(self) -> None:
        self.start = self.now()

    def others(self) -> float | None:
        """Cores on average, as far as the system tells."""
        start, end = self.start, self.now()
        if start is None or end is None or end[0] == start[0]:
            return None
        return round(max(0.0, (end[1] - start[1]) / (end[0] - start[0])), 3)

    @staticmethod
    def now() -> tuple[float, float] | None:
        """Seconds passed, and processor seconds of everybody but us and the processes we started."""
        try:
            first = Path("/proc/stat").read_text().partition("\n")[0]
        except OSError:
            return None
        user, nice, system, _idle, _waiting, *interrupts = (int(word) for word in first.split()[1:8])
        ours = sum(os.times()[:4])
        return time.monotonic(), (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK") - ours
