"""Campaign of hostile clients against a service with two workers: no failures, memory leaks or delays for others.

    python tests/campaigns/server.py --requests 20000 --seed 0

Attackers send malformed and endless heads, invalid JSON, hostile uploads and forms and slow requests, and read
responses slowly or not at all. Meanwhile workers are killed, and the folder of a model is replaced by that of another
model. A separate process sends a normal request ten times a second.

Findings are: a status of 500 or more that is not 503 with a known cause; a response that matches neither model; a
connection or a thread that remains after its deadline; memory above 1.5 times its value at the start; a worker that
died without being killed; a 99th percentile of the normal client's latency above 200 ms."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from hostile_files import hostile_files
from serving import TEXTS, ServiceProcess, make_model, running

from xmtc import Run, Tagger

SECONDS = 2.0  # --time-limit of the service
SLACK = 3.0  # seconds after a deadline until a connection must be closed: two timeout checks on a busy machine
N_ATTACKERS = 4
N_REQUEST_TEXTS = 4  # texts of a normal request
POOL_THREADS = 8  # threads that a worker starts on demand and keeps
GROWTH = 1.5  # times the memory at the start
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAX_P99 = 0.2  # seconds
HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
# Accepted messages of status 503.
CAUSES = ("longer than", "Too many", "Too much", "is damaged", "Service Unavailable", "No model")


def send_requests(port: int) -> None:
    """Send a normal request ten times a second until standard input is closed, then print all latencies."""
    latencies, connection = [], None
    failures: list[str] = []
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    body = json.dumps({"text": TEXTS[0], "k": 3})
    while not is_over.wait(0.1):
        begin = time.perf_counter()
        for _ in range(2):  # retry on a new connection if a worker was killed
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                connection.request("POST", "/v1/models/served/predict", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                content = answer.read()
                if answer.status != 200:
                    failures.append(f"{answer.status} {content[:100]!r}")
                break
            except (OSError, http.client.HTTPException) as error:
                connection, last = None, f"{type(error).__name__}: {error}"
        else:
            failures.append(last)
        latencies.append(time.perf_counter() - begin)
    print(json.dumps({"latencies": latencies, "failures": failures}))


@dataclass
class HeldConnections:
    """Connections that attackers keep open, with the deadlines by which the service must close them."""

    connections: list[tuple[float, str, socket.socket]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, opened: socket.socket, seconds: float = SECONDS + SLACK) -> None:
        with self.lock:
            self.connections.append((time.monotonic() + seconds, kind, opened))

    def close_due(self, at_end: bool = False) -> list[str]:
        """Close the connections whose deadline has passed; return the findings."""
        now, findings = time.monotonic(), []
        with self.lock:
            due = [each for each in self.connections if each[0] < now or at_end]
            self.connections = [each for each in self.connections if each not in due]
        for end, kind, opened in due:
            if at_end and end > now:
                time.sleep(end - now)
                now = time.monotonic()
            if not is_closed(opened):
                findings.append(f"a connection is open after its deadline: {kind}")
            opened.close()
        return findings


def is_closed(opened: socket.socket) -> bool:
    """Return True if the other side has closed the connection. Discards received data."""
    opened.settimeout(0.2)
    try:
        while opened.recv(1 << 20):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


class Campaign:
    def __init__(self, service: ServiceProcess, seed: int, models: dict[str, Path]) -> None:
        self.service, self.seed, self.models = service, seed, models
        self.expected = {name: predict_answers(folder) for name, folder in models.items()}
        self.statuses: Counter[str] = Counter()
        self.findings: list[str] = []
        self.held = HeldConnections()
        self.uploads = list(hostile_files())
        self.n_requests = self.n_killed = 0
        self.n_resets = 0  # requests without an answer
        self.last_kill = 0.0
        self.lock = threading.Lock()
        self.is_over = threading.Event()

    # Requests

    def connect(self, receive_bytes: int = 0) -> socket.socket:
        opened = socket.socket()
        opened.settimeout(SECONDS + 15)
        if receive_bytes:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        opened.connect(("127.0.0.1", self.service.port))
        return opened

    def ask(self, kind: str, method: str, path: str, body: bytes | None = None, content: str = "application/json"):
        """Send a whole request; return the status and the body of the answer, or None if a worker was killed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=SECONDS + 15)
        begin = time.monotonic()
        try:
            connection.request(method, path, body, {"Content-Type": content} if body is not None else {})
            answer = connection.getresponse()
            answered = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            is_large = body is not None and len(body) > 100_000  # refused before all of it was sent
            if not is_large and time.monotonic() - self.last_kill > time.monotonic() - begin + 1:
                self.report_finding(f"{kind}: no answer to {method} {path} ({type(error).__name__}: {error})")
            self.count(kind, "no answer")
            return None
        finally:
            connection.close()
        self.check(kind, *answered)
        return answered

    def raw(self, kind: str, data: bytes) -> None:
        """Send bytes and read an answer, if there is one."""
        received = b""
        with suppress(OSError), self.connect() as opened:
            opened.settimeout(SECONDS + SLACK)
            with suppress(OSError):
                opened.sendall(data)
                opened.shutdown(socket.SHUT_WR)
            received = opened.recv(4096)
        if received.startswith(b"HTTP/1.1 "):
            self.check(kind, int(received[9:12]), received)
        else:
            self.count(kind, "closed")

    def check(self, kind: str, status: int, body: bytes) -> None:
        cause = next((f" ({cause})" for cause in CAUSES if status == 503 and cause.encode() in body), "")
        self.count(kind, f"{status}{cause}")
        if status >= 500 and not cause:
            self.report_finding(f"{kind}: status {status}: {body[:200]!r}")

    def count(self, kind: str, outcome: str) -> None:
        with self.lock:
            self.n_requests += 1
            self.statuses[f"{kind} {outcome}"] += 1

    def report_finding(self, finding: str) -> None:
        with self.lock:
            self.findings.append(finding)

    # Attacks

    def normal(self, rng: random.Random) -> None:
        begin = rng.randrange(len(TEXTS) - N_REQUEST_TEXTS)
        texts = TEXTS[begin : begin + N_REQUEST_TEXTS]
        answer = self.ask("normal", "POST", "/v1/models/served/predict", json.dumps({"texts": texts, "k": 3}).encode())
        if answer and answer[0] == 200:
            tags = [[(tag["label"], tag["score"]) for tag in each["tags"]] for each in json.loads(answer[1])["results"]]
            if tags not in [expected[begin : begin + N_REQUEST_TEXTS] for expected in self.expected.values()]:
                self.report_finding(f"an answer is of neither model: {tags}")

    def annif(self, rng: random.Random) -> None:
        documents = [{"text": text} for text in rng.sample(TEXTS, 3)]
        self.ask("annif", "POST", "/v1/projects/served/suggest-batch", json.dumps({"documents": documents}).encode())

    def list_models(self, rng: random.Random) -> None:
        paths = ["/v1/models", "/v1/projects", "/readyz", "/metrics", "/openapi.json", "/", "/static/page.js", "/x"]
        paths += ["/v1/models/served/labels?search=a&limit=1000", f"/v1/models/served/labels?{'a&' * 5000}"]
        self.ask("listing", "GET", rng.choice(paths))

    def explain(self, rng: random.Random) -> None:
        text = " ".join(rng.choices(TEXTS, k=rng.choice([1, 10, 1000, 20_000])))
        self.ask(
            "explain", "POST", "/v1/models/served/explain", json.dumps({"text": text, "label": "label-01"}).encode()
        )

    def wrong_json(self, rng: random.Random) -> None:
        n = rng.choice([1, 100, 10_000, 1_000_000])
        bodies = [b'{"texts": [' + b"1," * n + b"1]}", b'{"texts": ' + b"[" * n, b'{"k": ' + b"9" * n + b"}"]
        bodies += [b"{" + b",".join(b'"%d": 1' % number for number in range(min(n, 100_000))) + b"}"]
        bodies += [b'{"text": "a", "threshold": NaN}', b'{"text": "\xff"}', b'{"texts": [' + b"[]," * n + b"[]]}"]
        bodies += [b'{"text": "' + b"\\u0000" * n + b'"}', rng.randbytes(1000), b'"' * n, b'{"text": 1, "text": 2}']
        path = rng.choice(
            ["models/served/predict", "models/served/explain", "models/served/table", "projects/served/suggest-batch"]
        )
        self.ask("wrong JSON", "POST", f"/v1/{path}", rng.choice(bodies))

    def large(self, rng: random.Random) -> None:
        texts = rng.choice([[" ".join(TEXTS)] * 200, ["a"] * 1000, [" ".join(TEXTS) * 50] * 5, ["é" * 900_000]])
        body = json.dumps({"texts": texts, "k": rng.choice([1, 1000])}).encode()
        self.ask("large", "POST", "/v1/models/served/predict", body)

    def table(self, rng: random.Random) -> None:
        tags = [{"label": "a", "name": "b", "score": 0.5}]
        rows = [
            {"id": str(number), "text": "t", "tags": tags * rng.choice([0, 1, 5])}
            for number in range(rng.choice([1, 1000]))
        ]
        rows[0]["tags"] = tags * rng.choice([1, 10_000])
        body = json.dumps({"rows": rows, "format": rng.choice(["csv", "jsonl", "xlsx"])}).encode()
        self.ask("table", "POST", "/v1/models/served/table", body)

    def form(self, rng: random.Random) -> None:
        n = rng.choice([1, 1000, 1_000_000])
        part = b"--x\r\nContent-Disposition: form-data; name=text\r\n\r\n"
        multipart = "multipart/form-data; boundary=x"
        body, kind = rng.choice(
            [
                (b"text=a&" * n, "application/x-www-form-urlencoded"),
                (b"text=" + b"%41" * n, "application/x-www-form-urlencoded"),
                (part * min(n, 10_000) + b"--x--", multipart),
                (part + b"\r" * n + b"\r\n--x--", multipart),
                (part + b"\r\n--" * n + b"\r\n--x--", multipart),
                (part.replace(b"text", b"a" * n) + b"\r\n--x--", multipart),
                (b"text=a", "text/plain"),
            ]
        )
        self.ask("form", "POST", "/v1/projects/served/suggest", body, kind)

    def upload(self, rng: random.Random) -> None:
        name, content = rng.choice(self.uploads)
        head = f'--x-y\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
        body = head + content + b"\r\n--x-y--\r\n"
        self.ask("upload", "POST", "/v1/models/served/file", body, "multipart/form-data; boundary=x-y")

    def send_malformed(self, rng: random.Random) -> None:
        post = b"POST /v1/models/served/predict HTTP/1.1\r\n" + HOST + JSON
        heads = [
            rng.randbytes(200),
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"\r\n" * 1000,
        ]
        heads += [
            b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
            b"\x16\x03\x01" + bytes(100),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ]
        heads += [
            post + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
            post + b"Content-Length: -1\r\n\r\n",
        ]
        heads += [post + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * rng.randrange(1, 40) + b"\r\n"]
        heads += [
            post + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
            b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
        ]
        heads += [b"GET / HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"]
        head = bytearray(rng.choice(heads))
        for _ in range(rng.choice([0, 0, 1, 3])):
            head[rng.randrange(len(head))] = rng.randrange(256)
        self.raw("malformed", bytes(head))

    def send_endless(self, rng: random.Random) -> None:
        chunked = b"POST /v1/models/served/predict HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
        begin, more = rng.choice(
            [
                (b"GET / HTTP/1.1\r\nX: ", b"a" * 1000),
                (b"GET / HTTP/1.1\r\n", b"X: a\r\n" * 100),
                (b"GET /", b"a" * 1000),
                (chunked + b"1;", b"a" * 1000),
                (chunked + b"1\r\n{\r\n0\r\n", b"X: a\r\n" * 100),
            ]
        )
        self.raw("endless", begin + more * 1000)

    def send_pipelined(self, rng: random.Random) -> None:
        self.raw("pipelined", (b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n") * rng.choice([2, 50, 5000]))

    def slow(self, rng: random.Random) -> None:
        """Send a part of a request, and nothing more."""
        post = b"POST /v1/models/served/predict HTTP/1.1\r\n" + HOST + JSON
        parts = [
            b"",
            b"G",
            post,
            post + b"Content-Length: 100\r\n\r\n{",
            post + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{",
        ]
        with suppress(OSError):
            opened = self.connect()
            opened.sendall(rng.choice(parts))
            self.held.add("slow request", opened, 2 * SECONDS + SLACK)  # time for a body and for the next head
        self.count("slow", "sent")

    def leave_unread(self, rng: random.Random) -> None:
        """Request a large response and do not read it."""
        body = json.dumps({"texts": TEXTS * 25, "k": 30}).encode()
        head = b"POST /v1/models/served/predict HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: %d\r\n\r\n" % len(body)
        with suppress(OSError):
            opened = self.connect(4096)
            opened.sendall((head + body) * rng.choice([1, 3]))
            self.held.add(
                "unread answer", opened, 3 * SECONDS + SLACK
            )  # time in the queue, for sending, and for the last chunk
        self.count("unread", "sent")

    def disconnect(self, rng: random.Random) -> None:
        """Reset the connection in the middle of a request."""
        body = json.dumps({"texts": TEXTS * 25, "k": 30}).encode()
        head = b"POST /v1/models/served/predict HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: %d\r\n\r\n" % len(body)
        with suppress(OSError), self.connect() as opened:
            opened.sendall((head + body)[: rng.choice([100, 1000, len(head) + len(body)])])
            time.sleep(rng.choice([0, 0.02]))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.count("vanishing", "sent")

    def attack(self, number: int) -> None:
        rng = random.Random(f"{self.seed}/{number}")
        attacks: list[tuple[int, Callable[[random.Random], None]]] = [
            (300, self.normal),
            (60, self.annif),
            (60, self.list_models),
            (60, self.wrong_json),
            (150, self.send_malformed),
            (40, self.send_endless),
            (20, self.send_pipelined),
            (20, self.form),
            (20, self.upload),
            (10, self.explain),
            (10, self.large),
            (10, self.table),
            (40, self.slow),
            (4, self.leave_unread),
            (20, self.disconnect),
        ]
        weights, chosen = zip(*attacks, strict=True)
        rng.choices(chosen, weights)[0](rng)

    # Faults during the campaign

    def direct(self) -> None:
        """Replace the folder of a model and kill workers until the campaign is over."""
        rng, names = random.Random(self.seed), list(self.models)
        served = self.models[names[0]].parent / "served"
        n = 0
        while not self.is_over.wait(1.0):
            n += 1
            if n % 3 == 0:
                replace_folder(self.models[names[n // 3 % 2]], served)
            workers = list_workers(self.service.process.pid)
            if n % 5 == 0 and len(workers) == 2:
                self.last_kill = time.monotonic()
                os.kill(rng.choice(workers), signal.SIGKILL)
                self.n_killed += 1
                if n % 10 == 0:  # also kill its replacement while it starts
                    time.sleep(rng.uniform(0.3, 1.5))
                    new = [pid for pid in list_workers(self.service.process.pid) if pid not in workers]
                    if new:
                        self.last_kill = time.monotonic()
                        os.kill(new[0], signal.SIGKILL)
                        self.n_killed += 1
            for finding in self.held.close_due():
                self.report_finding(finding)

    def run(self, n_requests: int, stop_at: float) -> None:
        numbers = iter(range(10**9))

        def work() -> None:
            while not self.is_over.is_set() and self.n_requests < n_requests and time.monotonic() < stop_at:
                with self.lock:
                    number = next(numbers)
                try:
                    self.attack(number)
                except Exception as error:
                    self.report_finding(f"attack {number} failed: {type(error).__name__}: {error}")

        threads = [threading.Thread(target=work) for _ in range(N_ATTACKERS)]
        directing = threading.Thread(target=self.direct)
        for each in (*threads, directing):
            each.start()
        for each in threads:
            each.join()
        self.is_over.set()
        directing.join()
        self.findings += self.held.close_due(at_end=True)


def predict_answers(folder: Path) -> list[list[tuple[str, float]]]:
    tags = Tagger.load(folder).predict_labels(TEXTS, 3, run=Run(threads=1))
    return [[(tag.label, round(tag.score, 6)) for tag in each] for each in tags]


def replace_folder(new: Path, served: Path) -> None:
    """Replace a model folder as documented: copy the new one beside it, then rename."""
    shutil.copytree(new, f"{served}.new")
    os.rename(served, f"{served}.old")
    os.rename(f"{served}.new", served)
    shutil.rmtree(f"{served}.old")


def list_workers(pid: int) -> list[int]:
    children = []
    for child in list_children(pid):
        with suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                children.append(child)
    return children


def list_children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def measure_memory(pid: int, with_children: bool = True) -> int:
    """Return the resident memory of a process and all its descendants."""
    with suppress(OSError):
        own = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
        return own + sum(measure_memory(child) for child in (list_children(pid) if with_children else ()))
    return 0


def measure_own_memory(pid: int) -> int:
    """Return the resident memory of the service without the children that parse uploads, which have their own limit."""
    return sum(measure_memory(child, with_children=False) for child in (pid, *list_workers(pid)))


def measure_resources(pid: int) -> dict[str, int]:
    """Return the largest numbers of threads and sockets of a worker."""
    threads, sockets = [0], [0]
    for worker in list_workers(pid):
        threads.append(len(os.listdir(f"/proc/{worker}/task")))
        n = 0
        for file in Path(f"/proc/{worker}/fd").iterdir():
            with suppress(OSError):
                n += os.readlink(file).startswith("socket:")
        sockets.append(n)
    return {"threads": max(threads), "sockets": max(sockets)}


def warm_up(campaign: Campaign) -> None:
    """Send every kind of request to both workers, so that threads and memory reach their usual size."""
    rng = random.Random(0)
    quiet = (
        campaign.normal,
        campaign.annif,
        campaign.list_models,
        campaign.wrong_json,
        campaign.form,
        campaign.upload,
    )
    for each in (*quiet, campaign.explain, campaign.large, campaign.table):
        for _ in range(10):
            each(rng)


def wait_for_workers(service: ServiceProcess, seconds: float = 30) -> bool:
    """Return True when both workers answer."""
    end, seen = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=5)
            connection.request("GET", "/readyz")
            seen = seen + 1 if connection.getresponse().status == 200 else 0
            connection.close()
        except (OSError, http.client.HTTPException):
            seen = 0
        if seen >= 20 and len(list_workers(service.process.pid)) == 2:
            return True
        time.sleep(0.05)
    return False


def settle(service: ServiceProcess, usual: dict[str, int], seconds: float = 15) -> dict[str, int]:
    """Wait until the numbers of threads and sockets are back to usual; return them."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        now = measure_resources(service.process.pid)
        if all(now[name] <= usual[name] for name in usual):
            break
        time.sleep(0.2)
    return now


def run_campaign(seed: int, n_requests: int, minutes: float, max_p99: float) -> list[str]:
    """Run the campaign and print a summary; return the findings."""
    with tempfile.TemporaryDirectory(prefix="xmtc-server-") as name:
        models = {
            model: make_model(Path(name, model), seed=model_seed) for model_seed, model in ((0, "one"), (5, "two"))
        }
        shutil.copytree(models["one"], Path(name, "served"))
        words = (Path(name, "served"), models["two"], "--workers", "2", "--watch", "--time-limit", f"{SECONDS}s")
        with running(*words) as service:
            return attack(service, Campaign(service, seed, models), n_requests, minutes, max_p99)


def attack(service: ServiceProcess, running: Campaign, n_requests: int, minutes: float, max_p99: float) -> list[str]:
    pid = service.process.pid
    if not wait_for_workers(service):
        return ["the workers do not start"]
    warm_up(running)
    usual, start, own, peak = measure_resources(pid), measure_memory(pid), measure_own_memory(pid), 0
    usual["sockets"] += 2  # of the normal client
    usual["threads"] += POOL_THREADS
    client = subprocess.Popen(
        [sys.executable, __file__, "--bystander", str(service.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    attackers = threading.Thread(target=running.run, args=(n_requests, time.monotonic() + 60 * minutes))
    begin = time.monotonic()
    attackers.start()
    while attackers.is_alive():
        peak = max(peak, measure_own_memory(pid))
        attackers.join(0.5)
    seconds = time.monotonic() - begin
    measured = json.loads(client.communicate("", timeout=30)[0])
    findings = running.findings
    if not wait_for_workers(service):
        findings.append("the workers do not recover")
    left, end = settle(service, usual), measure_memory(pid)
    findings += [f"{left[each]} {each}, at the start {usual[each]}" for each in usual if left[each] > usual[each]]
    if end > GROWTH * start:
        findings.append(f"memory grew from {start / 1e6:.0f} to {end / 1e6:.0f} MB")
    if peak > GROWTH * own:
        findings.append(f"memory of the workers grew from {own / 1e6:.0f} to {peak / 1e6:.0f} MB")
    deaths = Counter(event["cause"] for event in service.events("worker died"))
    if deaths != Counter({"SIGKILL": running.n_killed} if running.n_killed else {}):
        findings.append(f"workers died: {dict(deaths)}, of which {running.n_killed} were killed")
    findings += [f"a failure in the log: {event}" for event in service.events("failure")]
    latencies = sorted(measured["latencies"])
    p50, p99, most = (latencies[int(share * (len(latencies) - 1))] for share in (0.5, 0.99, 1))
    if p99 > max_p99:
        findings.append(f"the normal client has a p99 latency of {1000 * p99:.0f} ms")
    if measured["failures"]:
        findings.append(
            f"the normal client had no answer {len(measured['failures'])} times: {measured['failures'][:5]}"
        )
    for outcome, n in sorted(running.statuses.items()):
        print(f"{n:6,} × {outcome}")
    print(
        f"{running.n_requests:,} requests in {seconds:.0f} s, {running.n_killed} workers killed, "
        f"{len(service.events('model reloaded'))} models reloaded; memory {start / 1e6:.0f} MB at the start, "
        f"{end / 1e6:.0f} at the end, of the workers {own / 1e6:.0f} MB at the start, {peak / 1e6:.0f} at most; "
        f"{len(latencies)} requests of the normal client: p50 {1000 * p50:.1f} ms, p99 {1000 * p99:.1f} ms, "
        f"at most {1000 * most:.0f} ms"
    )
    return findings


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, default=20_000, help="Maximum number of requests (%(default)s).")
    parser.add_argument("--minutes", type=float, default=30.0, help="Maximum duration in minutes (%(default)s).")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the random requests.")
    parser.add_argument(
        "--max-p99",
        type=float,
        default=MAX_P99,
        help="Limit of the normal client's p99 latency in seconds (%(default)s).",
    )
    parser.add_argument("--bystander", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bystander:
        send_requests(options.bystander)
        return
    findings = run_campaign(options.seed, options.requests, options.minutes, options.max_p99)
    for finding, n in Counter(findings).most_common():
        print(f"{n:6,} × {finding}")
    print(f"server, seed {options.seed}: {len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
