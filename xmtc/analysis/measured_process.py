"""Commands in child processes: their output, run time, peak memory and reason of failure."""

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
from typing import IO, Any

import xmtc

SOURCE_ROOT = Path(xmtc.__file__).resolve().parents[1]  # the checkout, or site-packages of an installed xmtc
PACKAGE_FOLDER_NAMES = ("site-packages", "dist-packages")
POLL_SECONDS = 0.02
GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL
KILL_SIGNAL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has no SIGKILL
MAX_ERROR_LINES = 3  # lines of standard error in a failure message


@dataclass(frozen=True)
class MeasuredCommand:
    """Result of a command that ran in a child process."""

    arguments: tuple[str, ...]  # after `python -m MODULE`
    status: int  # exit status; negative: the signal that ended it
    output: str  # standard output
    error_output: str  # last lines of standard error
    seconds: float  # wall-clock time
    cpu_seconds: float | None  # of all threads; None on Windows
    peak_mb: float | None  # peak resident memory; None on Windows
    stop_reason: str = ""  # why this process terminated the child; empty if it did not
    is_timeout: bool = False

    @property
    def failure_message(self) -> str:
        """Reason of the failure, without a full stop; empty after success."""
        return self.describe_failure(f"xmtc {self.arguments[0]}") if self.status else ""

    def describe_failure(self, name: str) -> str:
        """Return the reason why the command called `name` failed."""
        if self.stop_reason:
            return f"{name} was ended {self.stop_reason}"
        if self.status < 0:
            hint = " (possibly out of memory)" if -self.status == KILL_SIGNAL else ""
            return f"{name} was ended by signal {-self.status}{hint}"
        return f"{name} ended with status {self.status}: {self.error_output}"


def run_measured(
    arguments: Sequence[str],
    log_path: Path,
    limit_seconds: float | None = None,
    stop_event: threading.Event | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> MeasuredCommand:
    """Run `xmtc ARGUMENTS` with this interpreter and this copy of xmtc, and measure it."""
    return run_measured_module("xmtc", arguments, log_path, limit_seconds, stop_event, grace_seconds=grace_seconds)


def run_measured_module(
    module: str,
    arguments: Sequence[str],
    log_path: Path,
    limit_seconds: float | None = None,
    stop_event: threading.Event | None = None,
    standard_input: bytes = b"",
    grace_seconds: float = GRACE_SECONDS,
) -> MeasuredCommand:
    """Run `python -m MODULE ARGUMENTS` in a child process and measure it.

    Standard error is written to `log_path`, standard output to `log_path` with ".out" appended. The child and its own
    children are terminated after `limit_seconds`, when `stop_event` is set, and when this process is interrupted; they
    are killed if they still run `grace_seconds` later.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    output_path = Path(f"{log_path}.out")
    start = time.perf_counter()
    with output_path.open("wb") as output, log_path.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            env=make_environment(),
            start_new_session=True,
        )
        try:
            assert process.stdin is not None
            send_input(process.stdin, standard_input)
            usage, peak_mb, stop_reason = wait_for_process(process, start, limit_seconds, stop_event, grace_seconds)
        finally:
            if process.returncode is None:  # this process was interrupted
                terminate_process(process, grace_seconds)
    status = process.returncode or 0
    return MeasuredCommand(
        tuple(arguments),
        status,
        output=output_path.read_text(encoding="utf-8", errors="replace"),
        error_output=read_last_lines(log_path),
        seconds=round(time.perf_counter() - start, 1),
        cpu_seconds=None if usage is None else round(usage.ru_utime + usage.ru_stime, 1),
        peak_mb=peak_mb,
        stop_reason=stop_reason if status else "",
        is_timeout=bool(status) and stop_reason.startswith("after"),
    )


def send_input(stream: IO[bytes], content: bytes) -> None:
    with suppress(BrokenPipeError), stream:
        stream.write(content)


def read_last_lines(path: Path) -> str:
    return " ".join(path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-MAX_ERROR_LINES:])


def make_environment() -> dict[str, str]:
    """Return an environment in which the child imports this copy of xmtc, whatever its working directory contains."""
    paths = [str(SOURCE_ROOT)] if SOURCE_ROOT.name not in PACKAGE_FOLDER_NAMES else []
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}


def wait_for_process(
    process: subprocess.Popen[bytes], start: float, limit: float | None, stop: threading.Event | None, grace: float
) -> tuple[Any, float | None, str]:
    """Wait for a process and terminate it if needed; return its resource usage, peak memory in MB and stop reason."""
    stop_reason, peak_mb = "", 0.0
    deadline = start + (threading.TIMEOUT_MAX if limit is None else limit)
    while True:
        usage = poll_process(process)
        if process.returncode is not None:
            return usage, compute_peak_mb(usage, peak_mb), stop_reason
        peak_mb = max(peak_mb, read_resident_peak_mb(process.pid))
        is_late = time.perf_counter() >= deadline
        if is_late and stop_reason:
            signal_process_group(process, KILL_SIGNAL)
        elif is_late or (not stop_reason and stop is not None and stop.is_set()):
            stop_reason = f"after {limit:g} s" if is_late else "with the other processes"
            deadline = time.perf_counter() + grace
            signal_process_group(process, signal.SIGTERM)
        time.sleep(POLL_SECONDS)


def poll_process(process: subprocess.Popen[bytes]) -> Any:
    """Set the return code of a process that has ended and return its resource usage, if the system reports it."""
    if not hasattr(os, "wait4"):  # Windows
        process.poll()
        return None
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if pid:
        process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def terminate_process(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    """Send SIGTERM, wait for the grace period, then send SIGKILL."""
    deadline = time.perf_counter() + grace_seconds
    signal_process_group(process, signal.SIGTERM)
    while process.returncode is None:
        poll_process(process)
        if time.perf_counter() >= deadline:
            signal_process_group(process, KILL_SIGNAL)
        time.sleep(POLL_SECONDS)


def signal_process_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process and all its children."""
    if process.returncode is not None:
        return
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
    else:
        process.terminate()


def compute_peak_mb(usage: Any, polled_peak_mb: float) -> float | None:
    """Return the peak memory of a child in MB.

    A child starts as a copy of this process, and the system counts that memory. If this process is the larger one, the
    peak that was polled while the child ran is used instead.
    """
    if usage is None:
        return None
    units_per_mb = 2**20 if sys.platform == "darwin" else 1024
    reported_mb, own_mb = usage.ru_maxrss / units_per_mb, read_own_peak() / units_per_mb
    return round(reported_mb if reported_mb > own_mb or not polled_peak_mb else polled_peak_mb)


def read_own_peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def read_resident_peak_mb(pid: int) -> float:
    """Return the peak resident memory of a process so far, from /proc; 0 where there is no /proc."""
    try:
        with open(f"/proc/{pid}/status", "rb") as lines:
            return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(b"VmHWM")), 0.0)
    except OSError:
        return 0.0
