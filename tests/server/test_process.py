"""The service as a process: concurrent and slow clients, model reloads, workers, shutdown, and client libraries."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

import httpx
from commands import xmtc
from serving import TEXTS, make_model, running

from xmtc import Run, Tagger

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    make_model(folder / "m")
    make_model(folder / "other", seed=5)
    make_model(folder / "n", named=True)
    return folder


@pytest.fixture(scope="module")
def service(models):
    with running(models / "m", models / "n", "--time-limit", "3s") as service:
        yield service


def predict(url: str, text: str, model: str = "m", **options):
    return httpx.post(f"{url}/v1/models/{model}/predict", json={"text": text, **options}, timeout=30)


def wait_until(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.05)


def first(answer) -> tuple[str, float]:
    tag = answer.json()["results"][0]["tags"][0]
    return tag["label"], tag["score"]


def best_of(folder) -> tuple[str, float]:
    tag = Tagger.load(folder).predict_labels([TEXTS[0]], 1)[0][0]
    return tag.label, round(tag.score, 6)


# Concurrent clients


def test_concurrent_clients_get_their_own_responses(service, models):
    tagger = Tagger.load(models / "m")
    expected = {
        text: [(tag.label, round(tag.score, 6)) for tag in tagger.predict_labels([text], 3, run=Run(1))[0]]
        for text in TEXTS
    }
    with httpx.Client(base_url=service.url, timeout=30) as client, ThreadPoolExecutor(16) as pool:

        def ask(text: str):
            return client.post("/v1/models/m/predict", json={"text": text, "k": 3}).json()["results"][0]["tags"]

        texts = [*TEXTS] * 5
        for text, tags in zip(texts, pool.map(ask, texts), strict=True):
            assert [(tag["label"], tag["score"]) for tag in tags] == expected[text]


def send_part(port: int, content: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(content)
    return connection


def test_slow_clients_do_not_block_others(service):
    head = b"POST /v1/models/m/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    slow = [send_part(service.port, head + b"Content-Length: 100\r\n\r\n{") for _ in range(100)]
    slow += [send_part(service.port, head) for _ in range(50)]  # incomplete headers
    slow += [send_part(service.port, b"") for _ in range(50)]
    for _ in range(5):
        begin = time.monotonic()
        assert predict(service.url, TEXTS[0]).status_code == 200
        assert time.monotonic() - begin < 2
    ends = [each.recv(1000) for each in slow]  # all end within --time-limit
    assert all(end.startswith(b"HTTP/1.1 408") for end in ends[:100])
    assert ends[100:] == [b""] * 100
    for each in slow:
        each.close()


def test_invalid_http_is_rejected(service):
    for words in (b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n"):
        with send_part(service.port, words) as opened:
            assert b" 200 " not in opened.recv(200)
    assert predict(service.url, TEXTS[0]).status_code == 200


def test_wrong_arguments_are_reported(models, tmp_path):
    for arguments, expected in (
        ([tmp_path / "none"], b"does not exist; expected a model folder"),
        ([models / "m", models / "m"], b"Two models have the name m"),
        ([models / "m", "--token-file", tmp_path / "none"], b"cannot be read"),
        ([models / "m", "--token", "two words"], b"cannot be sent in a header"),
        ([models / "m", "--report", tmp_path / "none.html"], b"is not a file"),
    ):
        done = xmtc("serve", *arguments, "--port", "0")
        assert done.returncode == 2, done.stderr
        assert expected in done.stderr
        assert b"Traceback" not in done.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = xmtc("serve", models / "m", "--port", taken.getsockname()[1])
    assert done.returncode == 2
    assert b"Cannot listen on" in done.stderr


# Reload and shutdown


class LoadClient:
    """Client that sends requests without a pause until it is stopped."""

    def __init__(self, url: str) -> None:
        self.url, self.is_running, self.answers = url, True, []
        self.pool = ThreadPoolExecutor(4)
        self.work = [self.pool.submit(self._ask) for _ in range(4)]

    def _ask(self) -> None:
        with httpx.Client(base_url=self.url, timeout=30) as client:
            while self.is_running:
                answer = client.post("/v1/models/served/predict", json={"text": TEXTS[0], "k": 1})
                self.answers.append((answer.status_code, first(answer) if answer.status_code == 200 else None))

    def stop(self) -> list:
        self.is_running = False
        for each in self.work:
            each.result(30)  # raises the error of a client
        self.pool.shutdown()
        return self.answers


def replace_folder(new, old) -> None:
    """Replace a model folder as documented: copy the new one beside it, then rename."""
    shutil.copytree(new, f"{old}.new")
    os.rename(old, f"{old}.old")
    os.rename(f"{old}.new", old)
    shutil.rmtree(f"{old}.old")


def test_new_model_is_loaded_and_damaged_one_is_rejected(models, tmp_path):
    folder = tmp_path / "served"
    shutil.copytree(models / "m", folder)
    before, after = (best_of(models / name) for name in ("m", "other"))
    assert before != after
    with running(folder, "--watch") as service:
        asking = LoadClient(service.url)
        wait_until(lambda: len(asking.answers) > 10)
        replace_folder(models / "other", folder)
        wait_until(lambda: service.events("model reloaded"))
        n_asked = len(asking.answers)
        wait_until(lambda: len(asking.answers) > n_asked + 20)

        damaged = tmp_path / "damaged"
        shutil.copytree(models / "m", damaged)
        with (damaged / "arrays.safetensors").open("r+b") as file:
            file.seek(-100, os.SEEK_END)
            file.write(b"\xff" * 50)
        replace_folder(damaged, folder)
        wait_until(lambda: service.events("model refused"))
        n_asked = len(asking.answers)
        wait_until(lambda: len(asking.answers) > n_asked + 20)
        answers = asking.stop()
        assert {status for status, _ in answers} == {200}
        assert answers[0][1] == before
        assert answers[-1][1] == after
        assert {found for _, found in answers} == {before, after}
        assert "checksum" in service.events("model refused")[0]["message"]
        assert len(service.events("model refused")) == 1  # logged once, not at every check

        replace_folder(models / "m", folder)  # a valid folder is loaded again
        wait_until(lambda: len(service.events("model reloaded")) == 2)
        assert first(predict(service.url, TEXTS[0], "served", k=1)) == before


def test_signal_reloads_a_changed_model(models, tmp_path):
    folder = tmp_path / "served"
    shutil.copytree(models / "m", folder)
    with running(folder) as service:
        before = first(predict(service.url, TEXTS[0], "served"))
        replace_folder(models / "other", folder)
        assert first(predict(service.url, TEXTS[0], "served")) == before  # no signal yet
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: service.events("model reloaded"))
        assert first(predict(service.url, TEXTS[0], "served")) != before


def test_running_requests_are_finished_before_shutdown(models):
    with running(models / "m") as service:
        texts = [" ".join(TEXTS) * 5] * 500  # takes a while
        with ThreadPoolExecutor(1) as pool, httpx.Client(timeout=60) as client:
            url = f"{service.url}/v1/models/m/predict"
            asked = pool.submit(client.post, url, json={"texts": texts})
            running_now = "xmtc_requests_running 2.0"
            wait_until(lambda: running_now in httpx.get(f"{service.url}/metrics").text or asked.done())
            service.process.send_signal(signal.SIGTERM)
            answer = asked.result(60)
        assert answer.status_code == 200
        assert len(answer.json()["results"]) == 500
        assert service.process.wait(20) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{service.url}/healthz")


def test_workers_share_a_port_and_a_dead_worker_is_replaced(models, tmp_path):
    folder = tmp_path / "served"
    shutil.copytree(models / "m", folder)
    with running(folder, "--workers", "2") as service:
        wait_until(lambda: is_ready(service), 60)
        for _ in range(20):
            assert predict(service.url, TEXTS[0], "served").status_code == 200
        counted = sum(numbers(service, 'xmtc_texts_total{model="served"}'))
        assert counted == 20  # the sum of both workers
        replace_folder(models / "other", folder)
        service.process.send_signal(signal.SIGHUP)
        # A worker that still starts has no handler: the signal ends it, and its successor opens the new model.
        wait_until(lambda: len(service.events("model reloaded") + service.events("worker died")) == 2, 60)
        victim = children(service.process.pid)[0]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: victim not in children(service.process.pid), 30)
        wait_until(lambda: is_ready(service), 30)
        assert predict(service.url, TEXTS[0], "served").status_code == 200
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(30) == 0


def test_workers_stop_when_their_supervisor_is_killed(models):
    with running(models / "m", "--workers", "2") as service:
        wait_until(lambda: is_ready(service), 60)
        workers = children(service.process.pid)
        assert len(workers) == 2
        service.process.kill()
        wait_until(lambda: not any(is_running(pid) for pid in workers), 30)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{service.url}/healthz")


def is_running(pid: int) -> bool:
    """Return False for a process that has ended, also if its parent has not read the exit status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def is_ready(service) -> bool:
    try:
        return httpx.get(f"{service.url}/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def numbers(service, name: str) -> list[float]:
    lines = httpx.get(f"{service.url}/metrics").text.splitlines()
    return [float(line.split()[-1]) for line in lines if line.startswith(name)]


def children(pid: int) -> list[int]:
    """Return the spawned workers, without multiprocessing's resource tracker."""
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


# Client libraries


def test_annif_client_can_query_the_service(service):
    annif_client = pytest.importorskip("annif_client", reason="annif-client is not installed")
    client = annif_client.AnnifClient(f"{service.url}/v1/")
    assert client.api_info["version"]
    assert [project["project_id"] for project in client.projects] == ["m", "n"]
    assert client.get_project("n")["language"] == "en"
    with pytest.raises(ValueError, match="not found"):
        client.get_project("none")
    results = client.suggest("n", TEXTS[0], limit=3, threshold=0.01)
    assert 1 <= len(results) <= 3
    assert results[0]["uri"].startswith("http://x.org/label-")
    assert results[0]["label"].startswith("name ")
    documents = [{"document_id": "a", "text": TEXTS[0]}, {"document_id": "b", "text": TEXTS[1]}]
    batch = client.suggest_batch("n", documents, limit=3)
    assert [each["document_id"] for each in batch] == ["a", "b"]
    assert batch[0]["results"][0] == results[0]
    with pytest.raises(ValueError, match="not found"):
        client.suggest("none", "text")


def test_mcp_tools_call_the_service(models):
    mcp = pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

    async def asked():
        command = ["-m", "xmtc", "serve", str(models / "n"), "--mcp"]
        started = mcp.StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
        async with mcp.Client(started) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            tagged = await client.call_tool("tag", {"text": TEXTS[0], "k": 2, "language": "fi"})
            label = tagged.structured_content["tags"][0]["label"]
            explained = await client.call_tool("explain", {"text": TEXTS[0], "label": label})
            found = await client.call_tool("labels", {"search": "other 3", "limit": 1})
            wrong = await client.call_tool("explain", {"text": TEXTS[0], "label": "nonsense"})
            return tools, tagged, explained, found, wrong

    tools, tagged, explained, found, wrong = asyncio.run(asked())
    assert {"tag", "explain", "labels"} == tools.keys()
    assert "text" in tools["tag"].input_schema["properties"]
    tags = tagged.structured_content["tags"]
    assert len(tags) == 2
    assert tags[0]["name"].startswith("nimi ")
    words = explained.structured_content["words"]
    assert words[0]["word"].lower() in TEXTS[0].lower()
    assert found.structured_content["labels"][0]["name"] == "name 3"
    assert wrong.is_error
    assert "no label" in json.dumps([each.text for each in wrong.content])
