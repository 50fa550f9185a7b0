"""Measure `xmtc serve` under load, relative to direct calls of the library, and the memory of its workers.

    python benchmarks/serving.py MODEL CORPUS [--seconds 10] [-o results/serving.json]

MODEL is a model folder; of CORPUS, the document nearest to 726 words is asked for again and again. The load comes from
wrk (Debian's package `wrk`), on the same machine. Seconds of the CPU are those of the service alone; memory is PSS, in
which what processes share counts once.

    python benchmarks/serving.py MODEL CORPUS --beside http://127.0.0.1:5000/v1/projects/ID

asks a server of Annif, which runs already, and `xmtc serve` with two workers, in turn, through Annif's interface."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack, contextmanager
from itertools import islice, product
from pathlib import Path

WORDS = 726  # length of the text in the measurements of Annif's server
CLIENTS = (1, 8, 32, 64, 256)
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
POST = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "{kind}"
wrk.body = io.open("{body}"):read("*a")
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("model")
    options.add_argument("corpus")
    options.add_argument("--seconds", type=int, default=10)
    options.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    options.add_argument("--trouble", action="store_true", help="1,000 slow clients, and a worker that is killed")
    options.add_argument("--overload", type=int, default=0, help="seconds of overload at the end")
    options.add_argument("--beside", metavar="URL", help="a project of Annif's server to compare with, and no more")
    options.add_argument("-o", "--output")
    asked = options.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not here; install it (apt-get install wrk).")
    text = choose_text(asked.corpus)
    if asked.beside:
        found = {
            "text": f"{len(text.split())} words",
            "beside": compare_servers(asked.model, asked.beside, text, asked.seconds),
        }
    else:
        found = run_measurements(asked, text)
    if asked.output:
        Path(asked.output).write_text(json.dumps(found, indent=1) + "\n")


def run_measurements(asked: argparse.Namespace, text: str) -> dict:
    found = {"text": f"{len(text.split())} words", "library": measure_library(asked.model, text)}
    print(json.dumps(found), flush=True)
    found["load"] = [
        row for workers in asked.workers for row in measure_loads(asked.model, text, workers, asked.seconds)
    ]
    found["memory"] = [measure_memory(asked.model, text, workers) for workers in (1, 2, 4)]
    if asked.trouble:
        found["slow clients"] = measure_slow_clients(asked.model, text, asked.seconds)
        found["killed"] = measure_killed_worker(asked.model, text, asked.seconds)
    if asked.overload:
        found["overload"] = measure_overload(asked.model, text, asked.overload)
    return found


def choose_text(corpus: str) -> str:
    from xmtc.data.corpus import open_corpus

    texts = [document.text for document in islice(open_corpus(corpus), 2000)]
    return min(texts, key=lambda text: abs(len(text.split()) - WORDS))


def measure_library(model: str, text: str, n: int = 2000) -> dict[str, float]:
    """Measure the same request as sequential calls in Python."""
    from xmtc import Run, Tagger

    tagger, run = Tagger.load(model), Run(threads=1, device="cpu")
    tagger.predict_labels([text], run=run)
    seconds, begin, cpu = [], time.perf_counter(), time.process_time()
    for _ in range(n):
        before = time.perf_counter()
        tagger.predict_labels([text], k=5, run=run)
        seconds.append(time.perf_counter() - before)
    cpu, whole = time.process_time() - cpu, time.perf_counter() - begin
    cuts = statistics.quantiles(seconds, n=100)
    return {"per_second": n / whole, "p50_ms": 1e3 * cuts[49], "p99_ms": 1e3 * cuts[98], "cpu_ms": 1e3 * cpu / n}


@contextmanager
def start_service(model: str, *options: str):
    """Start the service; return its process and address."""
    command = [sys.executable, "-m", "xmtc", "serve", f"m={model}", "--port", "0", "--quiet", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        port = json.loads(process.stderr.readline())["port"]
        url = f"http://127.0.0.1:{port}"
        while not is_ready(url):
            time.sleep(0.2)
        yield process, url
    finally:
        process.terminate()
        process.wait()


def is_ready(url: str) -> bool:
    try:
        return urllib.request.urlopen(f"{url}/readyz", timeout=2).status == 200
    except OSError:
        return False


def measure_loads(model: str, text: str, workers: int, seconds: int):
    with start_service(model, "--workers", str(workers)) as (process, url):
        load(process, url, text, 8, 3)  # every worker has started
        for clients in CLIENTS:
            row = {"workers": workers, "clients": clients, **load(process, url, text, clients, seconds)}
            print(json.dumps(row), flush=True)
            yield row


def compare_servers(model: str, project: str, text: str, seconds: int) -> list[dict]:
    """Measure two servers alternately, three times for each number of clients."""
    body, kind = urllib.parse.urlencode({"text": text, "limit": 5}), "application/x-www-form-urlencoded"
    rows = []
    with start_service(model, "--workers", "2") as (_, url):
        servers = {"annif": project, "xmtc": f"{url}/v1/projects/m"}
        for address in servers.values():
            run_wrk(8, f"{address}/suggest", body, kind, 5)  # every worker has started
        for clients, again in product((1, 8, 64, 256), range(3)):
            for name, address in servers.items():
                found = parse_wrk(run_wrk(clients, f"{address}/suggest", body, kind, seconds))
                rows.append({"server": name, "clients": clients, "again": again, **found})
                print(json.dumps(rows[-1]), flush=True)
    return rows


def load(process: subprocess.Popen, url: str, text: str, clients: int, seconds: int) -> dict[str, float]:
    before = read_cpu_seconds(process.pid)
    body = json.dumps({"text": text, "k": 5})
    said = run_wrk(clients, f"{url}/v1/models/m/predict", body, "application/json", seconds)
    cpu = read_cpu_seconds(process.pid) - before
    found = parse_wrk(said)
    return {**found, "cpu_ms": 1e3 * cpu / int(re.search(r"(\d+) requests in", said)[1])}


def run_wrk(clients: int, url: str, body: str, kind: str, seconds: int) -> str:
    """Parse the output of wrk."""
    with tempfile.TemporaryDirectory() as folder:
        file, script = Path(folder, "body"), Path(folder, "post.lua")
        file.write_text(body)
        script.write_text(POST.format(body=file, kind=kind))
        how = ["-t1", f"-c{clients}", f"-d{seconds}s", "--timeout", "30s", "--latency", "-s", str(script)]
        return subprocess.run(["wrk", *how, url], capture_output=True, text=True).stdout


def parse_wrk(said: str) -> dict[str, float]:
    errors = [int(number) for number in re.findall(r"(?:Non-2xx.*|connect|read|write|timeout)[: ]+(\d+)", said)]
    return {
        "per_second": float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]),
        "p50_ms": parse_latency(said, "50%"),
        "p99_ms": parse_latency(said, "99%"),
        "errors": sum(errors),
    }


def parse_latency(said: str, share: str) -> float:
    number, unit = re.search(rf"\s{share}\s+([\d.]+)(us|ms|s|m)\b", said).groups()
    return float(number) * UNITS[unit]


def list_processes(pid: int) -> list[int]:
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def read_cpu_seconds(pid: int) -> float:
    """Return the processor seconds of a process and its workers."""
    fields = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in list_processes(pid)]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def read_pss_mb(pid: int) -> float:
    """Return megabytes; shared memory is divided among the processes."""
    rollups = [Path(f"/proc/{each}/smaps_rollup").read_text() for each in list_processes(pid)]
    return sum(int(re.search(r"^Pss:\s+(\d+) kB", each, re.MULTILINE)[1]) for each in rollups) / 1e3


def measure_memory(model: str, text: str, workers: int) -> dict[str, float]:
    with start_service(model, "--workers", str(workers)) as (process, url):
        load(process, url, text, 8 * workers, 4)  # every worker has read its model
        size = sum(file.stat().st_size for file in Path(model).iterdir()) / 1e6
        row = {"workers": workers, "model_mb": size, "pss_mb": read_pss_mb(process.pid)}
        print(json.dumps(row), flush=True)
        return row


def measure_slow_clients(model: str, text: str, seconds: int) -> dict[str, float]:
    """Measure 8 clients while 1,000 others send a part of their request and wait."""
    with start_service(model) as (process, url), ExitStack() as opened:
        port = int(url.rpartition(":")[2])
        for _ in range(1000):
            half = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            half.sendall(b"POST /v1/models/m/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n{")
        row = load(process, url, text, 8, seconds)
        print(json.dumps({"slow clients": 1000, **row}), flush=True)
        return row


def measure_killed_worker(model: str, text: str, seconds: int) -> dict[str, float]:
    """Kill one of two workers while 64 clients send requests."""
    with start_service(model, "--workers", "2") as (process, url):
        load(process, url, text, 8, 3)
        worker = list_processes(process.pid)[-1]
        threading.Timer(seconds / 2, os.kill, (worker, signal.SIGKILL)).start()
        row = load(process, url, text, 64, seconds)
        print(json.dumps({"killed": worker, **row}), flush=True)
        return row


def measure_overload(model: str, text: str, seconds: int) -> dict[str, float]:
    """Send more requests than the service can process: accepted ones are answered, and memory is stable."""
    with start_service(model, "--max-queue", "32") as (process, url):
        load(process, url, text, 256, 5)
        before = read_pss_mb(process.pid)
        row = {
            **load(process, url, text, 256, seconds),
            "pss_mb_before": before,
            "pss_mb_after": read_pss_mb(process.pid),
        }
        print(json.dumps(row), flush=True)
        return row


if __name__ == "__main__":
    main()
