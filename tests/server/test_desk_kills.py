"""Decisions under load while workers and the whole service are killed: none lost, none twice.

DESK_DECISIONS=10000 stores more of them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from serving import TEXTS, make_model, running

from xmtc.review.store import ReviewStore

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
N_DECISIONS = int(os.environ.get("DESK_DECISIONS", "300"))
N_CLIENTS, N_KILLS = 4, 3  # kills of workers before each kill of the service


class LoadClients:
    """Threads that send decisions, and send them again with the same key until they are acknowledged."""

    def __init__(self, tokens, numbers, n_decisions):
        self.tokens, self.numbers, self.n_decisions = tokens, numbers, n_decisions
        self.url, self.acknowledged, self.n_retries = "", [], 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._send_all, args=(i,), daemon=True) for i in range(N_CLIENTS)]

    def _send_all(self, client):
        for i in range(client, self.n_decisions, N_CLIENTS):
            path = f"/v1/desk/m/documents/{self.numbers[i % len(self.numbers)]}/decision"
            body = json.dumps({"key": f"key-{i}", "accepted": [f"label-{i}"]}).encode()
            headers = {"Authorization": f"Bearer {self.tokens[client % len(self.tokens)]}"}
            headers["Content-Type"] = "application/json"
            while not self._send(path, body, headers):
                self.n_retries += 1
                time.sleep(0.05)
            with self.lock:
                self.acknowledged.append(f"key-{i}")

    def _send(self, path, body, headers):
        with (
            suppress(HTTPError, URLError, OSError, ValueError),
            urlopen(Request(self.url + path, body, headers), timeout=20) as response,
        ):
            return response.status == 200
        return False


def wait_for_workers(pid):
    """Return the process ids of the workers; after early deaths the supervisor replaces them with a delay."""
    for _ in range(600):
        found = subprocess.run(["pgrep", "-P", str(pid), "-f", "spawn_main"], capture_output=True, text=True)
        if found.stdout:
            return [int(line) for line in found.stdout.split()]
        time.sleep(0.1)
    raise AssertionError("no worker is started")


def wait_for_more(clients, n_decisions):
    """Wait for further acknowledged decisions, so that a new worker has the time to start."""
    target = min(N_DECISIONS, len(clients.acknowledged) + n_decisions)
    for _ in range(1200):
        if len(clients.acknowledged) >= target:
            return
        time.sleep(0.1)
    raise AssertionError("no decision is acknowledged")


def test_no_decision_is_lost_or_stored_twice(tmp_path):
    chosen = random.Random(0)
    folder, path = make_model(tmp_path / "m"), tmp_path / "desk.sqlite"
    with closing(ReviewStore(path)) as store:
        tokens = [store.add_person(name) for name in ("ann", "ben")]
        numbers = store.add_documents("m", [(f"d{i}", text) for i, text in enumerate(TEXTS)])
    clients, n_rounds = LoadClients(tokens, numbers, N_DECISIONS), 2
    for round in range(n_rounds):
        with running(folder, "--desk", path, "--workers", "2", "--quiet") as service:
            clients.url = service.url
            if round == 0:
                for thread in clients.threads:
                    thread.start()
            for _ in range(N_KILLS):
                wait_for_more(clients, N_DECISIONS // ((N_KILLS + 1) * (n_rounds + 1)))
                time.sleep(chosen.uniform(0, 0.1))
                for worker in chosen.sample(wait_for_workers(service.process.pid), 1):
                    os.kill(worker, signal.SIGKILL)
            wait_for_more(clients, 10)
            os.killpg(service.process.pid, signal.SIGKILL)  # the supervisor and all workers
    with running(folder, "--desk", path, "--workers", "2", "--quiet") as service:
        clients.url = service.url
        for thread in clients.threads:
            thread.join(300)
    assert len(clients.acknowledged) == N_DECISIONS
    assert clients.n_retries > 0
    with closing(ReviewStore(path, must_exist=True)) as store:
        stored = Counter(key for (key,) in store.connection.execute("SELECT key FROM decisions"))
        assert stored == dict.fromkeys(clients.acknowledged, 1)
        assert store.connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
