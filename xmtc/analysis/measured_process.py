"""One command of xmtc in a process of its own: what it printed, the seconds and the memory that it took, and, where it
did not work out, a sentence that says how."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xmtc

SOURCE_ROOT = Path(xmtc.__file__).resolve().parents[1]  # a checkout, or where packages are installed
PACKAGE_FOLDER_NAMES = ("site-packages", "dist-packages")
POLL_SECONDS = 0.02  # seconds between two looks at a process
GRACE_SECONDS = 10.0  # seconds that one has to put things away before it is killed
KILL_SIGNAL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has the one
MAX_ERROR_LINES = 3  # of its complaints are told


@dataclass(frozen=True)
class MeasuredCommand:
    """What came of a command."""

    arguments: tuple[str, ...]  # after `xmtc`
    status: int  # it ended with; negative: the signal
    output: str
    error_output: str  # the last lines that it said on standard error
    seconds: float  # by the clock
    cpu_seconds: float | None  # of all its threads; None where the system does not tell, on Windows
    peak_mb: float | None  # of memory; None likewise
    stop_reason: str = ""  # why we ended it, if we did

    @property
    def failure_message(self) -> str:
        """How it failed, in a sentence without a full stop; nothing where it went well."""
        if self.stop_reason:
            return f"xmtc {self.arguments[0]} was ended {self.stop_reason}"
        if self.status < 0:
            why = ", perhaps for want of memory" if -self.status == KILL_SIGNAL else ""
            return f"xmtc {self.arguments[0]} was ended by the signal {-self.status}{why}"
        if self.status:
            return f"xmtc {self.arguments[0]} ended with status {self.status}: {self.error_output}"
        return ""


def run_measured(
    arguments: Sequence[str],
    log_path: Path,
    limit_seconds: float | None = None,
    stop_event: threading.Event | None = None,
) -> MeasuredCommand:
    """Run `xmtc WORDS` with this Python and this xmtc. What it prints is kept in LOG.out, what it complains of in LOG.
    After `limit` seconds, or once `stop` is set, it is ended, with all that it started; also where we are."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    command, begin = [sys.executable, "-m", "xmtc", *arguments], time.perf_counter()
    with Path(f"{log_path}.out").open("wb") as out, log_path.open("wb") as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=make_environment(), start_new_session=True
        )
        try:
            usage, peak, ended = wait_for_process(process, begin, limit_seconds, stop_event)
        finally:
            if process.returncode is None:  # we are being stopped
                terminate_process(process)
    seconds = time.perf_counter() - begin
    said = Path(f"{log_path}.out").read_text(encoding="utf-8", errors="replace")
    complaint = " ".join(log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-MAX_ERROR_LINES:])
    cpu = None if usage is None else round(usage.ru_utime + usage.ru_stime, 1)
    status = process.returncode or 0
    return MeasuredCommand(
        tuple(arguments), status, said, complaint, round(seconds, 1), cpu, peak, ended if status else ""
    )


def make_environment() -> dict[str, str]:
    """In which the same xmtc is found, whatever the current folder holds."""
    paths = [str(SOURCE_ROOT)] if SOURCE_ROOT.name not in PACKAGE_FOLDER_NAMES else []
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}


def wait_for_process(
    process: subprocess.Popen[bytes], begin: float, limit: float | None, stop: threading.Event | None
) -> tuple[Any, float | None, str]:
    """Wait for a process, and end it where it must: what it used, its peak of memory in MB, and why it was ended."""
    ended, seen, deadline = "", 0.0, begin + (threading.TIMEOUT_MAX if limit is None else limit)
    while True:
        usage = poll_process(process)
        if process.returncode is not None:
            return usage, compute_peak_mb(usage, seen), ended
        seen = max(seen, read_resident_peak_mb(process.pid))
        is_late = time.perf_counter() >= deadline
        if is_late and ended:
            signal_process_group(process, KILL_SIGNAL)
        elif is_late or (not ended and stop is not None and stop.is_set()):
            ended = f"after {limit:g} s" if is_late else "with all others"
            deadline = time.perf_counter() + GRACE_SECONDS
            signal_process_group(process, signal.SIGTERM)
        time.sleep(POLL_SECONDS)


def poll_process(process: subprocess.Popen[bytes]) -> Any:
    """Sets the return code of a process that has ended, and gives what it used, where the system tells."""
    if not hasattr(os, "wait4"):  # Windows
        process.poll()
        return None
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if pid:
        process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def terminate_process(process: subprocess.Popen[bytes]) -> None:
    """Politely, so that it puts away what is half done; then not."""
    deadline = time.perf_counter() + GRACE_SECONDS
    signal_process_group(process, signal.SIGTERM)
    while process.returncode is None:
        poll_process(process)
        if time.perf_counter() >= deadline:
            signal_process_group(process, KILL_SIGNAL)
        time.sleep(POLL_SECONDS)


def signal_process_group(process: subprocess.Popen[bytes], what: signal.Signals) -> None:
    """Send a signal to a process and all that it started."""
    if process.returncode is not None:
        return
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, what)
    else:
        process.terminate()


def compute_peak_mb(usage: Any, seen: float) -> float | None:
    """Of memory. A new process begins as a copy of ours, and the system counts that in: where we are the larger, what
    was seen of it while it ran."""
    if usage is None:
        return None
    told, ours = (each / (1024 if sys.platform != "darwin" else 2**20) for each in (usage.ru_maxrss, read_own_peak()))
    return round(told if told > ours or not seen else seen)


def read_own_peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def read_resident_peak_mb(pid: int) -> float:
    """Linux tells the most memory that a process has had so far; 0 where nobody does."""
    try:
        with open(f"/proc/{pid}/status", "rb") as lines:
            return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(b"VmHWM")), 0.0)
    except OSError:
        return 0.0
