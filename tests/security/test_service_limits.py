"""Limits of the service against hostile clients: connections, bodies, hosts, models, log, assistant interface."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

import httpx
from cpu_time import limited_cpu_time
from fastapi.testclient import TestClient
from serving import TEXTS, make_model, running, without_token

from xmtc.errors import XmtcError
from xmtc.server.app import create_app
from xmtc.server.settings import ServiceLimits, Settings

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and /proc")

PREDICT = "/v1/models/m/predict"
JSON = {"content-type": "application/json"}
HOST = b"Host: localhost\r\n"
POST = b"POST /v1/models/m/predict HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
SECONDS = 1.0  # --time-limit


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "m")


@pytest.fixture(scope="module")
def service(folder):
    with running(folder, "--time-limit", f"{SECONDS}s") as service:
        yield service


@pytest.fixture(scope="module")
def settings(folder):
    return Settings((("m", str(folder)),), hosts=("testserver",))


@pytest.fixture(scope="module")
def client(settings):
    with TestClient(create_app(settings)) as client:
        yield client


def message(answer) -> str:
    return answer.json()["error"]["message"]


# Connections


def answer_to(port: int, begin: bytes, endless: bytes = b"", most: int = 3_000_000) -> bytes:
    """Send the beginning of a request, then the same bytes again and again until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as opened:
        try:
            opened.sendall(begin)
            for _ in range(most // len(endless) if endless else 0):
                opened.sendall(endless)
        except OSError:  # the service has closed the connection
            pass
        received = b""
        try:
            while part := opened.recv(65_536):
                received += part
        except ConnectionError:
            pass
        return received


TOO_LARGE = b"The head of the request has more than 100 headers or 65,536 bytes; send fewer or shorter headers."


@pytest.mark.parametrize(
    ("begin", "endless"),
    [
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: ", b"a" * 10_000),
        (b"GET / HTTP/1.1\r\n" + HOST, b"X: a\r\n" * 2000),
        (b"GET /", b"a" * 10_000),
        (b"", b"\r\n" * 5000),
    ],
    ids=["header", "headers", "address", "empty lines"],
)
def test_endless_head_is_rejected(service, begin, endless):
    answer = answer_to(service.port, begin, endless)
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert answer.endswith(TOO_LARGE)


def test_head_below_the_limit_is_accepted(service):
    head = b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\nX: " + b"a" * 60_000 + b"\r\n\r\n"
    assert answer_to(service.port, head).startswith(b"HTTP/1.1 200 ")


def test_number_of_headers_is_limited(service):
    head = b"GET /healthz HTTP/1.0\r\n" + HOST + b"a:\r\n" * 99
    assert answer_to(service.port, head + b"\r\n").startswith(b"HTTP/1.1 200 ")
    for end in (b"a:\r\n" * 2, b"a:\r\n\r\n"):
        answer = answer_to(service.port, head + end)
        assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
        assert answer.endswith(TOO_LARGE)


def test_unfinished_heads_have_a_total_limit():
    from xmtc.server import protocol

    connections = [Connection() for _ in range(3)]
    kind = protocol.limited_protocol(Parser, 10.0)
    kind.all_heads.limit = 60_000
    opened = [kind() for _ in connections]
    for each, transport in zip(opened, connections, strict=True):
        each.transport = transport
        each.data_received(b"GET / HTTP/1.1\r\nX: " + b"a" * 25_000)
    assert [transport.written for transport in connections] == [b"", b"", protocol.HEAD_TOO_LARGE_RESPONSE]
    opened[2].set_framing(0)
    opened[0].data_received(b"\r\n\r\n")
    opened[0].on_headers_complete()
    opened[2].data_received(b"a" * 25_000)
    assert not connections[0].written
    assert kind.all_heads.n_bytes == opened[1].n_framing + opened[2].n_framing


class Connection:
    """Transport that records what is written to it."""

    written = b""
    is_closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


class Parser:
    """HTTP protocol without a parser."""

    def __init__(self) -> None:
        self.pipeline, self.cycle, self.unanswered_cycles, self.loop = [], None, [], self

    def time(self) -> float:
        return 0.0

    def data_received(self, data: bytes) -> None:
        pass

    def on_headers_complete(self) -> None:
        pass


def test_body_in_tiny_chunks_ends_the_connection(service):
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    begin = time.monotonic()
    assert answer_to(service.port, head + b"1\r\n \r\n" * 2500) == b""
    assert time.monotonic() - begin < SECONDS / 2
    whole = b'{"text": "a", "k": 1' + b" " * 960 + b"}"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in whole) + b"0\r\n\r\n"
    assert answer_to(service.port, head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + chunks).startswith(
        b"HTTP/1.1 200 "
    )


@pytest.mark.parametrize(
    ("begin", "endless"),
    [(b"1;", b"a" * 10_000), (b"1\r\n{\r\n0\r\n", b"X: a\r\n" * 2000)],
    ids=["extension", "trailers"],
)
def test_endless_chunk_framing_ends_the_connection(service, begin, endless):
    started = time.monotonic()
    assert answer_to(service.port, POST + b"Transfer-Encoding: chunked\r\n\r\n" + begin, endless) == b""
    assert time.monotonic() - started < SECONDS


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", b"400"),
        (POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n{}", b"400"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\n", b"400"),
        (POST + b"Content-Length: 99999999999999\r\nConnection: close\r\n\r\n", b"413"),
        (b"GET / HTTP/9.9\r\n" + HOST + b"\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\nHost: evil.example\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
    ],
)
def test_ambiguous_requests_are_rejected(service, request_bytes, status):
    assert answer_to(service.port, request_bytes).split(b" ", 2)[1] == status


def test_slow_head_ends_the_connection(service):
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as opened:
        started = time.monotonic()
        opened.sendall(b"GET /")
        while not select.select([opened], [], [], 0.1)[0]:
            opened.sendall(b"a")
            assert time.monotonic() - started < 2 * SECONDS
        assert opened.recv(100) == b""


def test_pipelined_requests_do_not_increase_memory(service):
    before = memory(service.process.pid)
    flood = (b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n") * 7000
    connections = [socket.create_connection(("127.0.0.1", service.port), timeout=10) for _ in range(20)]
    for each in connections:
        with suppress(OSError):
            each.sendall(flood)
    assert answer_to(service.port, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert memory(service.process.pid) - before < 40e6
    for each in connections:
        each.close()
    few = (b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n") * 50
    assert answer_to(service.port, few).count(b"HTTP/1.1 200 OK") == 50


def memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def n_sockets(pid: int) -> int:
    count = 0
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += os.readlink(file).startswith("socket:")
        except OSError:
            continue
    return count


def test_clients_that_do_not_read_are_dropped(service):
    body = json.dumps({"texts": TEXTS * 25, "k": 30}).encode()  # answered with 1.5 MB
    request = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    assert len(answer_to(service.port, request)) > 1e6
    before = n_sockets(service.process.pid)
    connections = []
    for _ in range(5):
        opened = socket.socket()
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        opened.connect(("127.0.0.1", service.port))
        opened.sendall(request)
        connections.append(opened)
    assert_soon(lambda: n_sockets(service.process.pid) >= before + 5)
    assert_soon(lambda: n_sockets(service.process.pid) <= before, 4 * SECONDS)
    for each in connections:
        each.close()


def assert_soon(condition, seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.02)


# Memory for responses

FULL = "Too much memory is in use by other requests; retry in a moment."


def test_large_responses_are_rejected_if_memory_is_full(client):
    memory = client.app.state.service.memory
    large = {"texts": TEXTS * 2, "k": 20}
    assert len(client.post(PREDICT, json=large).content) > 2**16
    assert memory.used == 0
    memory.used = memory.limit * 3 // 4 - 10_000  # held by responses to slow clients
    try:
        answer = client.post(PREDICT, json=large)
        assert (answer.status_code, message(answer), answer.headers["retry-after"]) == (503, FULL, "1")
        assert client.post(PREDICT, json={"text": TEXTS[0]}).status_code == 200
        upload = client.post("/v1/models/m/file", files={"file": ("a.txt", b"hello")})
        assert (upload.status_code, message(upload)) == (503, FULL)
        assert client.app.state.service.n_files == 0
    finally:
        memory.used -= memory.limit * 3 // 4 - 10_000
    assert memory.used == 0
    upload = client.post("/v1/models/m/file", files={"file": ("a.txt", "h\u00e9llo".encode())})
    assert upload.json()["documents"][0]["text"] == "h\u00e9llo"
    assert "h\u00e9llo".encode() in upload.content
    assert memory.used == 0


def test_waiting_files_are_limited(client, monkeypatch):
    service = client.app.state.service
    monkeypatch.setattr(service, "n_files", 8)
    answer = client.post("/v1/models/m/file", files={"file": ("a.txt", b"hello")})
    assert (answer.status_code, message(answer)) == (503, "Too many files are queued; retry in a moment.")


def test_report_is_held_in_memory_once(folder, tmp_path):
    report = tmp_path / "report.html"
    report.write_bytes(b"x" * 1_000_000)
    settings = Settings((("m", str(folder)),), hosts=("testserver",), reports=(("m", str(report)),))
    with TestClient(create_app(settings)) as client:
        service = client.app.state.service
        served = service.models.by_name["m"]
        assert served.read_report(settings) is served.read_report(settings)
        service.memory.used = service.memory.limit
        assert client.get("/v1/models/m/report").content == b"x" * 1_000_000
        report.write_bytes(b"y" * 1_000_000)
        assert client.get("/v1/models/m/report").content == b"y" * 1_000_000
        report.unlink()
        assert client.get("/v1/models/m/report").status_code == 404
        assert service.memory.used == service.memory.limit


# JSON and forms


@pytest.mark.parametrize(
    ("body", "status", "expected_message"),
    [
        (
            b'{"texts": [' + b"1," * 100_000 + b"1]}",
            413,
            "The request has more than 22,000 values; send less at a time.",
        ),
        (b'{"texts": [' + b"1," * 9000 + b"1]}", 422, "texts.0: Input should be a valid string."),
        (b'{"texts": ["a", 1]}', 422, "texts.1: Input should be a valid string."),
        (
            b"{" + b",".join(b'"%d": 1' % number for number in range(500)) + b"}",
            422,
            "Found 500 fields, expected only text, texts, k, threshold, language, allow, deny.",
        ),
        (
            b'{"texts": ' + b"[" * 15_000,
            422,
            "The request is not valid JSON: a number is too long, or lists are nested too deeply; "
            "expected an object with a text.",
        ),
        (
            b'{"text": "a", "k": ' + b"9" * 100_000 + b"}",
            422,
            "The request is not valid JSON: a number is too long, or lists are nested too deeply; "
            "expected an object with a text.",
        ),
        (b'{"text": "a", "k": NaN}', 422, "The request is not valid JSON: NaN is not a JSON number."),
        (
            '{"text": "a"}'.encode("utf-16"),
            422,
            "The request is not valid JSON: it is not UTF-8; expected an object with a text.",
        ),
    ],
    ids=["numbers", "few numbers", "one number", "fields", "nested", "digits", "NaN", "utf-16"],
)
def test_invalid_json_is_rejected_quickly(client, body, status, expected_message):
    with limited_cpu_time(0.5):
        answer = client.post(PREDICT, content=body, headers=JSON)
    assert (answer.status_code, message(answer)) == (status, expected_message)


def test_punctuation_in_texts_does_not_count_as_json_values(client):
    answer = client.post(PREDICT, json={"text": '[{,:"\\' * 50_000})
    assert answer.status_code == 200


def test_operator_can_allow_more_texts(settings):
    with TestClient(create_app(replace(settings, limits=ServiceLimits(texts=30_000)))) as client:
        assert client.post(PREDICT, json={"texts": ["a"] * 30_000, "k": 1}).status_code == 200


def test_metadata_is_ignored(client):
    documents = [{"text": TEXTS[0], "metadata": {str(number): number for number in range(1000)}}]
    assert client.post("/v1/projects/m/suggest-batch", json={"documents": documents}).status_code == 200


MULTIPART = {"content-type": "multipart/form-data; boundary=x"}
PART = b"--x\r\nContent-Disposition: form-data; name="


@pytest.mark.parametrize(
    ("content", "kind", "status", "expected_message"),
    [
        (b"a&" * 1000, "application/x-www-form-urlencoded", 413, "The form has more than 100 fields."),
        (
            PART + b"a\r\n\r\n\r\n" + (PART + b"a\r\n\r\n\r\n") * 200 + b"--x--",
            None,
            413,
            "The form has more than 100 fields and files.",
        ),
        (
            PART + b"a" * 100_000 + b"\r\n\r\nb\r\n--x--",
            None,
            400,
            "The form is invalid: the headers of a part are invalid; expected a valid multipart/form-data body.",
        ),
        (
            PART + b"a\r\n\r\nb",
            None,
            400,
            "The form is invalid: its last boundary is missing; expected a valid multipart/form-data body.",
        ),
        (
            b"--x\r\nX: a\r\n\r\nb\r\n--x--",
            None,
            400,
            "The form is invalid: a part has no name; expected a valid multipart/form-data body.",
        ),
        (
            b"a",
            "multipart/form-data",
            400,
            "The form is invalid: the Content-Type header has no valid boundary; expected a valid "
            "multipart/form-data body.",
        ),
        (b"{}", "application/json", 415, "Found Content-Type 'application/json', expected a form."),
    ],
    ids=["fields", "parts", "part head", "no end", "no name", "no boundary", "no form"],
)
def test_invalid_forms_are_rejected(client, content, kind, status, expected_message):
    answer = client.post(
        "/v1/projects/m/suggest", content=content, headers={"content-type": kind} if kind else MULTIPART
    )
    assert (answer.status_code, answer.json()["detail"]) == (status, expected_message)


@pytest.mark.parametrize("value", ["a b+c%&=ü€😀\x00", "%", "ü" * 20_000, "a%" * 20_000, ""])
def test_forms_are_decoded(value):
    from urllib.parse import urlencode

    from xmtc.server.request_bodies import parse_urlencoded

    assert parse_urlencoded(urlencode({"text": value, "é": "1"}).encode()).multi_items() == [
        ("text", value),
        ("é", "1"),
    ]
    assert parse_urlencoded(b"a=%4&b=%zz&c").multi_items() == [("a", "%4"), ("b", "%zz"), ("c", "")]


def test_form_of_line_ends_is_parsed_in_linear_time(client):
    content = PART + b"text\r\n\r\n" + b"\r" * 5_000_000 + b"\r\n--x--"
    with limited_cpu_time(1):
        answer = client.post("/v1/projects/m/suggest", content=content, headers=MULTIPART)
    assert answer.status_code == 413
    assert answer.json()["detail"].startswith("Found a text of 5,000,000 characters")
    both = client.post("/v1/projects/m/suggest", files={"text": (None, TEXTS[0])})
    assert both.json() == client.post("/v1/projects/m/suggest", data={"text": TEXTS[0]}).json()
    assert both.json()["results"]


def test_query_with_many_fields_is_rejected(client):
    answer = client.get(f"/v1/models/m/labels?{'a&' * 1000}")
    assert (answer.status_code, message(answer)) == (400, "The query string has more than 100 fields; send fewer.")


# Prediction


def test_number_of_labels_in_a_response_is_limited(settings):
    with TestClient(create_app(replace(settings, limits=ServiceLimits(texts=20_000)))) as client:
        # k counts as the number of labels of the model at most.
        assert client.post(PREDICT, json={"texts": TEXTS * 5, "k": 1000}).status_code == 200
        answer = client.post(PREDICT, json={"texts": ["a"] * 10_001, "k": 10})
        assert (answer.status_code, message(answer)) == (
            413,
            "Found 10,001 texts with 10 labels each, expected 100,000 labels in all at most; send fewer texts, or ask "
            "for fewer labels.",
        )


def test_large_response_has_the_same_format(client):
    texts = TEXTS * 10
    large = client.post(PREDICT, json={"texts": texts, "k": 20}).json()
    one = client.post(PREDICT, json={"text": texts[0], "k": 20}).json()
    assert large["results"][0] == one["results"][0]
    assert len(large["results"]) == len(texts)


def test_long_text_is_not_explained(client):
    answer = client.post("/v1/models/m/explain", json={"text": "a " * 60_000, "label": "label-01"})
    assert (answer.status_code, message(answer)) == (
        413,
        "Found a text of 120,000 characters, expected 100,000 at most for an explanation; send a part of it.",
    )


def test_work_of_a_disconnected_client_is_cancelled(settings):
    with TestClient(create_app(replace(settings, limits=ServiceLimits(seconds=0.3)))) as client:
        batches = []

        def slow(texts, query):
            batches.append(len(texts))
            time.sleep(0.1)
            return [[] for _ in texts]

        batcher = client.app.state.service.models.by_name["m"].batcher
        batcher.answer, batcher.max_batch_texts = slow, 2
        late = client.post(PREDICT, json={"texts": ["a"] * 100})
        assert (late.status_code, message(late)) == (
            503,
            "The request took longer than 0.3 seconds; send less at once, or retry later.",
        )
        time.sleep(0.3)
        assert 2 <= len(batches) <= 5
        assert set(batches) == {2}
        assert batcher.n_waiting_texts == 0


def test_small_request_is_answered_before_the_rest_of_a_large_one(settings):
    with TestClient(create_app(settings)) as client:
        ended = {}

        def slow(texts, query):
            time.sleep(0.02)
            return [[] for _ in texts]

        batcher = client.app.state.service.models.by_name["m"].batcher
        batcher.answer, batcher.max_batch_texts = slow, 2

        def ask(name, n_texts):
            assert client.post(PREDICT, json={"texts": ["a"] * n_texts}).status_code == 200
            ended[name] = time.monotonic()

        large = threading.Thread(target=ask, args=("large", 100))
        large.start()
        time.sleep(0.1)
        ask("small", 1)
        large.join()
        assert ended["small"] < ended["large"] - 0.3


@pytest.mark.parametrize("field", ["allow", "deny"])
def test_length_of_filter_entries_is_limited(client, field):
    with limited_cpu_time(1):
        answer = client.post(PREDICT, json={"text": "abc", field: ["abcdefghij" * 1_000_000]})
        assert (answer.status_code, message(answer)) == (422, f"{field}.0: String should have at most 1000 characters.")
        for entry in ("x" * 1000, "branch:" + "x" * 900):
            answer = client.post(PREDICT, json={"text": "abc", field: [entry]})
            assert answer.status_code == 422
            assert "x" * 90 + "…" in message(answer)
            assert len(message(answer)) < 350


def test_filters_are_resolved_outside_the_event_loop():
    from xmtc.server.batching import Batcher, PredictQuery

    batcher = Batcher(lambda texts, query: [], 10)
    batcher.seconds_per_character.append(0.0)
    assert batcher._is_quick(["a"], PredictQuery())
    assert not batcher._is_quick(["a"], PredictQuery(allow=("b",)))
    assert not batcher._is_quick(["a"], PredictQuery(deny=("b",)))


def test_suggestions_are_found_in_limited_time():
    from xmtc.errors import find_similar_names

    names = [f"{number} label" for number in range(400_000)] + ["label 1"]
    with limited_cpu_time(1):
        assert find_similar_names("a" * 101, ["a" * 102] * 2) == []
        assert find_similar_names("label 1x", names) == ["label 1"]


def test_concurrently_cancelled_request_is_counted_once():
    import asyncio

    from xmtc.server.batching import Batcher, PredictQuery, QueuedRequest

    class Cancelled(QueuedRequest):
        """Request whose client disconnects between two checks of it."""

        checks = iter([False, True, True, True])

        @property
        def is_done(self) -> bool:
            return next(self.checks)

    async def ask() -> int:
        batcher = Batcher(lambda texts, query: [0] * len(texts), 10)
        batcher.start()
        job = Cancelled(batcher.loop.create_future(), ["a"], PredictQuery(), batcher.answer)
        task = asyncio.ensure_future(batcher._enqueue(job))
        await asyncio.sleep(0.2)
        task.cancel()
        await batcher.stop()
        await asyncio.sleep(0.05)
        return batcher.n_waiting_texts

    assert asyncio.run(ask()) == 0


def test_annif_batch_is_encoded_outside_the_event_loop(client, monkeypatch):
    from xmtc.server import annif

    threads = []
    encode = annif.encode_suggestion
    monkeypatch.setattr(
        annif,
        "encode_suggestion",
        lambda *arguments: threads.append(threading.current_thread().name) or encode(*arguments),
    )
    documents = [{"text": TEXTS[0], "document_id": "1"}, {"text": TEXTS[1]}]
    answer = client.post("/v1/projects/m/suggest-batch", json={"documents": documents})
    assert [each["document_id"] for each in answer.json()] == ["1", None]
    assert all(each["results"] for each in answer.json())
    assert all(name.startswith("bodies") for name in threads)


def test_label_search_has_a_time_limit(client):
    model = client.app.state.service.models.by_name["m"].model
    with pytest.raises(XmtcError, match=r"^The search took longer than -1 seconds; retry later\.$"):
        model.search("a", max_seconds=-1)


# Hosts and origins


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("[::1]:8000", 200),
        ("127.0.0.1", 200),
        ("localhost:80@evil.example", 400),
        ("localhost:", 400),
        ("localhost:80:80", 400),
        ("[::1", 400),
        ("[::1]x", 400),
        ("[localhost]", 400),
        ("::1", 400),
        ("local host", 400),
        ("localhost/evil.example", 400),
        ("", 400),
        ("localhost.evil.example", 421),
        ("evil.example", 421),
        ("10.0.0.1", 421),
    ],
)
def test_local_service_accepts_only_local_hosts(settings, host, status):
    expected_message = {
        400: "Invalid Host header; expected a host name or IP address with an optional port.",
        421: "This host name is not allowed; `xmtc serve --allow-host NAME` allows it.",
    }
    with TestClient(create_app(replace(settings, hosts=()))) as client:
        answer = client.get("/healthz", headers={"Host": host})
        assert answer.status_code == status
        assert status == 200 or message(answer) == expected_message[status]


def test_duplicate_headers_are_rejected(client):
    for name in ("Host", "Authorization", "Origin"):
        headers = [("Host", "testserver"), (name, "localhost"), (name, "localhost")]
        answer = client.get("/healthz", headers=headers)
        assert (answer.status_code, message(answer)) == (400, f"Duplicate header {name}; send it once.")


def test_public_service_accepts_addresses_and_known_names(settings):
    public = replace(settings, hosts=("tags.example",), host="0.0.0.0")
    with TestClient(create_app(public)) as client:
        for host in ("tags.example", "10.0.0.1:8000", "[fe80::1]:80", "localhost", socket.gethostname()):
            assert client.get("/healthz", headers={"Host": host}).status_code == 200
        for host in ("evil.example", "sub.tags.example", "0x7f.1"):
            assert client.get("/healthz", headers={"Host": host}).status_code == 421
    with TestClient(create_app(replace(public, hosts=("*",)))) as client:
        assert client.get("/healthz", headers={"Host": "evil.example"}).status_code == 200


FOREIGN = "Cross-site requests are not allowed; `xmtc serve --cors ORIGIN` allows a site."


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://testserver"}, 200),
        ({"Origin": "https://testserver", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://behind.a.proxy", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://testserver:3000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    ],
)
def test_cross_site_requests_are_rejected(client, headers, status):
    answer = client.post(PREDICT, json={"text": TEXTS[0]}, headers=headers)
    assert answer.status_code == status
    assert status == 200 or message(answer) == FOREIGN


def test_cross_site_link_to_the_page_is_accepted(client):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200


def test_allowed_origin_is_accepted(settings):
    with TestClient(create_app(replace(settings, origins=("https://a.example",)))) as client:
        for origin, status in (("https://a.example", 200), ("https://b.example", 403)):
            headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
            assert client.post(PREDICT, json={"text": TEXTS[0]}, headers=headers).status_code == status


def test_preflight_of_an_unknown_host_is_rejected(settings):
    with TestClient(create_app(replace(settings, origins=("https://a.example",)))) as client:
        headers = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
        assert client.options(PREDICT, headers=headers).status_code == 200
        expected_message = {
            "evil.example": (
                421,
                "This host name is not allowed; `xmtc serve --allow-host NAME` allows it.",
            ),
            "a b": (400, "Invalid Host header; expected a host name or IP address with an optional port."),
        }
        for host, expected in expected_message.items():
            answer = client.options(PREDICT, headers=headers | {"Host": host})
            assert (answer.status_code, message(answer)) == expected
            assert "access-control-allow-methods" not in answer.headers


# Damaged models


def edit_about(folder: Path, **values) -> None:
    file = folder / "about.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def copy_of(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    return target


def test_damaged_model_does_not_stop_the_others(folder, tmp_path, capfd):
    good, bad = copy_of(folder, tmp_path / "good"), copy_of(folder, tmp_path / "bad")
    edit_about(bad, scores="x")
    both = Settings((("good", str(good)), ("bad", str(bad))), hosts=("testserver",))
    with TestClient(create_app(both)) as client:  # loads models like a worker that replaces a dead one
        listed = client.get("/v1/models").json()
        assert [model["name"] for model in listed["models"]] == ["good"]
        assert listed["damaged"] == ["bad"]
        assert [project["project_id"] for project in client.get("/v1/projects").json()["projects"]] == ["good"]
        assert client.get("/readyz").json() == {"status": "ready", "models": ["good"], "damaged": ["bad"]}
        assert client.post("/v1/models/good/predict", json={"text": TEXTS[0]}).status_code == 200
        expected_message = "The model bad is damaged; see the log of the service."
        for path in ("models/bad/predict", "models/bad/explain"):
            answer = client.post(
                f"/v1/{path}", json={"text": TEXTS[0], **({"label": "a"} if "explain" in path else {})}
            )
            assert (answer.status_code, message(answer)) == (503, expected_message)
        answer = client.post("/v1/projects/bad/suggest", data={"text": TEXTS[0]})
        assert (answer.status_code, answer.json()["detail"]) == (503, expected_message)
        assert client.get("/v1/projects/bad").status_code == 503
        shutil.rmtree(bad)
        copy_of(folder, bad)
        assert_soon(lambda: client.get("/readyz").json() == {"status": "ready", "models": ["good", "bad"]})
        assert client.post("/v1/models/bad/predict", json={"text": TEXTS[0]}).status_code == 200
    refused = [json.loads(line) for line in capfd.readouterr().err.splitlines() if "model refused" in line]
    assert [each["model"] for each in refused] == ["bad"]
    assert "bad" in refused[0]["message"]


def test_service_does_not_start_with_a_damaged_model(folder, tmp_path):
    bad = copy_of(folder, tmp_path / "bad")
    edit_about(bad, scores="x")
    command = [sys.executable, "-m", "xmtc", "serve", str(folder), str(bad), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, env=without_token(), timeout=60)
    assert done.returncode == 2
    assert "bad" in done.stderr
    assert "Traceback" not in done.stderr


def test_deleted_model_folder_is_still_served(folder, tmp_path):
    copy = copy_of(folder, tmp_path / "m")
    with TestClient(create_app(Settings((("m", str(copy)),), hosts=("testserver",)))) as client:
        before = client.get("/v1/projects").json()
        shutil.rmtree(copy)
        assert client.get("/v1/projects").json() == before
        assert client.get("/v1/models").status_code == 200
        assert client.post(PREDICT, json={"text": TEXTS[0]}).status_code == 200


# Log


def test_unread_log_does_not_block(folder):
    command = [sys.executable, "-m", "xmtc", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=without_token())
    try:
        port = json.loads(process.stderr.readline())["port"]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=5) as client:
            for _ in range(600):  # a pipe holds 64 KB, some 300 lines
                assert client.get("/healthz").status_code == 200
            lines: list[bytes] = []
            threading.Thread(target=lambda: [lines.append(line) for line in process.stderr], daemon=True).start()
            time.sleep(0.2)
            client.get("/healthz")
            assert_soon(lambda: any(b'"log lines lost"' in line for line in list(lines)))
        time.sleep(0.1)
        events = [json.loads(line) for line in list(lines)]
        lost = sum(each["lines"] for each in events if each["event"] == "log lines lost")
        assert lost + sum(each["event"] == "request" for each in events) == 601
    finally:
        process.kill()
        process.wait()


def test_full_or_closed_log_does_not_block(folder):
    for redirect in ("2>/dev/full", "2>&-"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = f"exec {sys.executable} -m xmtc serve {folder} --port {port} {redirect}"
        process = subprocess.Popen(words, shell=True, env=without_token())
        try:
            assert_soon(lambda port=port: is_healthy(port), 30)
            assert is_healthy(port)
        finally:
            process.terminate()
            assert process.wait(20) == 0


def is_healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


# MCP server


@pytest.fixture(scope="module")
def tools(settings):
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    from xmtc.server.mcp import create_server

    return create_server(replace(settings, limits=ServiceLimits(text=1000)))


@pytest.mark.parametrize(
    ("tool", "arguments", "expected_message"),
    [
        ("tag", {"text": "a" * 1001}, "Found a text of 1,001 characters, expected 1,000 at most; shorten it."),
        ("tag", {"text": "a", "k": -1}, "k=-1 is not positive; expected a number of labels of at least 1."),
        ("tag", {"text": "a", "model": "x" * 1000}, "Unknown model '" + "x" * 100 + "'; expected one of m."),
        ("labels", {"search": "a", "limit": -1}, "Found limit=-1, expected a number from 1 to 1,000."),
        ("labels", {"search": "a", "limit": 10**9}, "Found limit=1000000000, expected a number from 1 to 1,000."),
        ("labels", {"search": "a" * 201}, "Found a text of 201 characters, expected 200 at most; shorten it."),
        ("tag", {"text": "a", "language": "a" * 101}, "Found a language of 101 characters, expected 100 at most"),
        ("explain", {"text": "a", "label": "a" * 1001}, "Found a label of 1,001 characters, expected 1,000 at most"),
        (
            "explain",
            {"text": "a " * 60_000, "label": "a"},
            "Found a text of 120,000 characters, expected 100,000 at most; shorten it.",
        ),
    ],
)
def test_mcp_tools_have_limits(tools, tool, arguments, expected_message):
    import asyncio

    from mcp.server.mcpserver.exceptions import ToolError

    with pytest.raises(ToolError) as raised:
        asyncio.run(tools.call_tool(tool, arguments))
    assert expected_message in str(raised.value)


def test_mcp_message_with_a_lone_surrogate_is_answered(folder):
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    client = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    call = {"name": "tag", "arguments": {"text": "\ud800 \\ud800 \U0001f600"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    command = [sys.executable, "-m", "xmtc", "serve", str(folder), "--mcp"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=without_token()
    )
    try:
        for each in messages:
            process.stdin.write(json.dumps(each).encode() + b"\n")
            process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        assert select.select([process.stdout], [], [], 10)[0], "no answer"
        answer = json.loads(process.stdout.readline())
        assert (answer["id"], answer["result"]["isError"]) == (2, False)
    finally:
        process.kill()
        process.communicate()


def test_lone_surrogates_of_json_are_replaced():
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    from io import BytesIO

    from xmtc.server.mcp import LimitedLineReader

    line = rb'"\ud800 \\ud800 \\\udFFF \ud83d\ude00 \ud83d\ud83d\ude00 \u00e9 \ude00"' + b"\n"
    expected = rb'"\ufffd \\ud800 \\\ufffd \ud83d\ude00 \ufffd\ud83d\ude00 \u00e9 \ufffd"' + b"\n"
    assert LimitedLineReader(BytesIO(line), 1000).read1() == expected


def test_endless_mcp_message_ends_the_server(folder):
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    command = [sys.executable, "-m", "xmtc", "serve", str(folder), "--mcp", "--max-body", "100000"]
    done = subprocess.run(command, input=b"{" * 3_000_000, capture_output=True, timeout=60, env=without_token())
    assert b"A message is longer than 100,000 bytes." in done.stderr
    assert b"Traceback" not in done.stderr
    assert done.returncode == 0


def test_damaged_model_is_reported_without_a_traceback(folder, tmp_path):
    from xmtc.core.run import Run
    from xmtc.server.models import LoadedModel

    bad = copy_of(folder, tmp_path / "bad")
    edit_about(bad, scores="x")
    with pytest.raises(XmtcError, match="bad"):
        LoadedModel.load(str(bad), Run(threads=1))
