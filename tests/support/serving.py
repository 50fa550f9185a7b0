"""Models and service processes for the tests of the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

from planted import N_LABELS, make_planted_corpus, planted_label

TEXTS = make_planted_corpus(40, seed=1)[0]


def make_model(folder: Path, seed: int = 0, named: bool = False, keep_training: bool = False) -> Path:
    """Train a model and save it; `named` adds a vocabulary and tuned thresholds."""
    from xmtc import Classifier, Run
    from xmtc.vocabulary import import_files

    classifier = Classifier("parabel", max_leaf=10, n_trees=2).fit(
        *make_planted_corpus(300, seed=seed), run=Run(threads=1), keep_training=keep_training
    )
    if named:
        lines = ["uri\tnotation\tlabel_en\taltlabel_en\tlabel_fi"]
        lines += [f"http://x.org/{planted_label(i)}\tN{i}\tname {i}\tother {i}\tnimi {i}" for i in range(N_LABELS)]
        table = folder.with_suffix(".tsv")
        table.write_text("\n".join(lines) + "\n")
        classifier.attach(import_files([str(table)]), "en").tune_thresholds(
            *make_planted_corpus(200, seed=7), run=Run(threads=1)
        )
    classifier.save(folder)
    return folder


class ServiceProcess:
    """Process of `xmtc serve`, its port and its log lines."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process, self.lines = process, []
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stderr:
            self.lines.append(line)
            if '"serving"' in line:
                self.port = json.loads(line)["port"]
                self.ready.set()
        self.ready.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def events(self, name: str) -> list[dict]:
        events = [json.loads(line) for line in list(self.lines)]
        return [event for event in events if event["event"] == name]


@contextmanager
def running(*words):
    """Run `xmtc serve` in a process group of its own on a free port; yield a ServiceProcess."""
    command = [sys.executable, "-m", "xmtc", "serve", *map(str, words), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=without_token(), start_new_session=True)
    service = ServiceProcess(process)
    try:
        assert service.ready.wait(60), "the service did not start"
        assert process.poll() is None, service.lines
        yield service
    finally:
        end_process(process)
        service.reader.join(5)
        if not service.reader.is_alive():  # closing a pipe that a thread reads never returns
            process.stderr.close()


def end_process(process: subprocess.Popen) -> None:
    """Terminate a service; kill it with its workers, which may hold its pipes, if it does not end."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()


def without_token() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "XMTC_TOKEN"}
