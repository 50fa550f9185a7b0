"""Supervisor that starts the worker processes, replaces dead ones and logs the cause."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections import deque
from pathlib import Path
from typing import Any

from prometheus_client.multiprocess import mark_process_dead
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from xmtc.server import log
from xmtc.server.settings import METRICS_FOLDER_VARIABLE

EARLY_DEATH_SECONDS = 10.0  # a worker that lives shorter is replaced with a delay
MAX_DEAD_WORKERS = 20  # dead workers whose counts remain in /metrics
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.5, 8.0  # each consecutive early death doubles the delay


class Worker(Process):
    """Worker process whose health check never blocks the supervisor."""

    started = 0.0  # monotonic time of the start
    ping_time: float | None = None  # monotonic time of the unanswered ping

    def start(self) -> None:
        self.started = time.monotonic()
        super().start()

    def is_alive(self, timeout: float = 5) -> bool:
        """Return False if the process has ended, or has not answered a ping for `timeout` seconds.

        uvicorn's own check blocks if the process dies while it waits for the answer.
        """
        if not self.process.is_alive():
            return False
        now = time.monotonic()
        try:
            while self.parent_conn.poll():
                self.parent_conn.recv()
                self.ping_time = None
            if self.ping_time is None:
                self.parent_conn.send(b"ping")
                self.ping_time = now
        except (OSError, EOFError, pickle.UnpicklingError):
            return False
        return now - self.ping_time < timeout


class WorkerSupervisor(Multiprocess):
    """Worker processes that share one socket."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.replacement_times: dict[int, float] = {}  # by position in `processes`
        self.n_early_deaths = 0  # consecutive
        self.dead_pids: deque[int] = deque()  # whose metrics are kept

    def init_processes(self) -> None:
        self.processes += [self.start_worker() for _ in range(self.processes_num)]

    def start_worker(self) -> Worker:
        worker = Worker(self.config, self.sockets)
        worker.start()
        return worker

    def keep_subprocess_alive(self) -> None:
        """Replace every worker that is dead or does not respond."""
        for position, worker in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if position not in self.replacement_times:
                if worker.is_alive(timeout=self.config.timeout_worker_healthcheck):
                    continue
                self.replacement_times[position] = time.monotonic() + self.remove_worker(worker)
            if time.monotonic() >= self.replacement_times[position]:
                del self.replacement_times[position]
                self.processes[position] = self.start_worker()

    def remove_worker(self, worker: Process) -> float:
        """Kill a worker and log the cause; return the delay in seconds before it is replaced."""
        is_hanging = worker.process.is_alive()
        worker.kill()
        worker.join()
        if worker.pid is not None:
            self.discard_old_metrics(worker.pid)
        seconds = time.monotonic() - getattr(worker, "started", 0.0)
        self.n_early_deaths = self.n_early_deaths + 1 if seconds < EARLY_DEATH_SECONDS else 0
        delay = 0.0
        if self.n_early_deaths > 1:
            delay = min(FIRST_DELAY_SECONDS * 2 ** min(self.n_early_deaths - 2, 10), MAX_DELAY_SECONDS)
        cause = "hangs" if is_hanging else describe_exit(worker.exitcode)
        log.write_event("worker died", pid=worker.pid, cause=cause, seconds=round(seconds, 1), replaced_in=delay)
        return delay

    def discard_old_metrics(self, pid: int) -> None:
        """Delete the metrics files of all but the last MAX_DEAD_WORKERS dead workers, because /metrics reads them."""
        mark_process_dead(pid)  # removes its gauge of running requests
        self.dead_pids.append(pid)
        if len(self.dead_pids) > MAX_DEAD_WORKERS:
            for file in Path(os.environ[METRICS_FOLDER_VARIABLE]).glob(f"*_{self.dead_pids.popleft()}.db"):
                file.unlink(missing_ok=True)

    def terminate_all(self) -> None:
        for position in sorted(self.replacement_times, reverse=True):
            del self.processes[position]  # already dead, with closed pipes
        super().terminate_all()

    def handle_hup(self) -> None:
        """Make every worker reload changed models."""
        for position, worker in enumerate(self.processes):
            if worker.pid is not None and position not in self.replacement_times and worker.process.is_alive():
                os.kill(worker.pid, signal.SIGHUP)

    def handle_ttin(self) -> None:
        """Add a worker."""
        self.processes_num += 1
        self.processes.append(self.start_worker())

    def handle_ttou(self) -> None:
        """Remove a worker, but not the last one."""
        if self.processes_num > 1:
            self.replacement_times.pop(len(self.processes) - 1, None)
            super().handle_ttou()


def describe_exit(code: int | None) -> str:
    """Return the name of the signal or the exit status for an exit code of multiprocessing."""
    if code is not None and code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exit status {code}"
