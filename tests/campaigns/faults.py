"""Commands under machine faults: full and read-only disks, too little memory, clock changes, closed streams, no home.

    python tests/campaigns/faults.py --minutes 2 --seed 0

Every case is one command under one fault. It has to succeed or to end with a sentence, never with a traceback; the
model that stood at its target is still whole, or replaced by a whole one; and nothing unfinished is left beside it.
Disks are small tmpfs mounts where this may mount them (as root), else a limit on the size of files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from commands import lines_of

from xmtc.errors import XmtcError
from xmtc.tagger import Tagger

SMALL = ("-p", "n_trees=2", "-p", "max_leaf=10")
TRAIN = ("train", "train.jsonl", "-o", "out/model", *SMALL)
COMMANDS = (
    TRAIN,
    (*TRAIN, "--checkpoint", "out/parts", "--log-json", "out/log.jsonl"),
    ("train", "train.jsonl", "-m", "dismec", "-o", "out/new"),
    ("predict", "model", "test.jsonl"),
    ("predict", "model", "-"),
    ("evaluate", "model", "test.jsonl", "--json"),
    ("explain", "model", "word1alpha word2beta", "--html", "out/page.html"),
    ("combine", "model", "model", "-o", "out/both"),
    ("data", "convert", "train.jsonl", "out/train.csv.gz"),
    ("data", "convert", "train.jsonl", "out/train.parquet"),
    ("data", "convert", "train.jsonl", "-", "--format", "jsonl"),
    ("data", "split", "train.jsonl", "out/a.jsonl", "out/b.jsonl.zst"),
    ("data", "stats", "train.jsonl"),
    ("info", "model", "--verify"),
    ("methods",),
)
PLAIN = "from xmtc.cli import main; main()"
JUMPS = """
import random, time
draw, clock = random.Random({seed}), time.time
time.time = lambda: clock() + draw.choice([-3e8, -60, 0, 60, 3e8])
"""
# Memory in addition to that of the libraries, which are loaded before.
TIGHT = """
import resource
import numba, numpy, pyarrow, safetensors, scipy.linalg, scipy.sparse
import xmtc.tagger, xmtc.pipeline, xmtc.methods.label_tree.parabel
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + {extra}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""
LEAVINGS = (".part", ".saving", ".lock")


@dataclass
class FaultCase:
    """Command and fault."""

    command: tuple[str, ...]
    said: list[str] = field(default_factory=list)
    program: str = PLAIN
    ends: str = ""  # redirection of streams in a shell
    variables: dict[str, str | None] = field(default_factory=dict)
    limit: int | None = None  # maximum file size in bytes
    space: int | None = None  # bytes of memory, including the libraries
    disk: tuple[str, str] | None = None  # options of a mount, and the folder to mount it on

    def __str__(self) -> str:
        return f"xmtc {' '.join(self.command)} [{', '.join(self.said)}]"


def fill_disk(case: FaultCase, rng: np.random.Generator) -> None:
    size = int(rng.choice([4, 8, 16, 32, 64, 128, 256, 1024]))
    where = str(rng.choice(["out", "out", "out", "tmp", "numba"]))
    case.said.append(f"{size} KiB for {where}")
    if can_mount():
        case.disk = f"size={size}k", where
    else:
        case.limit = 1024 * size


def limit_files(case: FaultCase, rng: np.random.Generator) -> None:
    case.limit = 1024 * int(2 ** rng.uniform(0, 10))  # a shell counts in KiB
    case.said.append(f"files of {case.limit >> 10} KiB")


def read_only(case: FaultCase, rng: np.random.Generator) -> None:
    where = str(rng.choice(["out", "tmp", "home", "numba"]))
    case.said.append(f"{where} is read-only")
    case.disk = "ro", where


def limit_address_space(case: FaultCase, rng: np.random.Generator) -> None:
    extra = int(2 ** rng.uniform(20, 28))
    case.said.append(f"{extra >> 20} MiB of memory")
    case.program = TIGHT.format(extra=extra) + PLAIN
    case.variables = {"OPENBLAS_NUM_THREADS": "1"}  # a process that cannot start more threads ends itself


def limit_total_memory(case: FaultCase, rng: np.random.Generator) -> None:
    """Limit memory to between less than Python needs and enough for all commands."""
    case.space = int(2 ** rng.uniform(26, 31))
    case.said.append(f"{case.space >> 20} MiB of memory in all")


def shift_clock(case: FaultCase, rng: np.random.Generator) -> None:
    seed = int(rng.integers(1000))
    case.said.append(f"clock jumps {seed}")
    case.program = JUMPS.format(seed=seed) + PLAIN


def close_streams(case: FaultCase, rng: np.random.Generator) -> None:
    ends = [("", "<&-", "0>/dev/null"), ("", ">&-", ">/dev/full"), ("", "2>&-", "2>/dev/full")]
    case.ends = " ".join(str(rng.choice(each)) for each in ends)
    case.said.append(case.ends or "plain streams")


def remove_home(case: FaultCase, rng: np.random.Generator) -> None:
    homes = {"none": None, "nowhere": "/nonexistent", "a file": "/dev/null", "empty": ""}
    name = str(rng.choice(list(homes)))
    case.said.append(f"home: {name}")
    case.variables = {"HOME": homes[name], "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": None}
    if rng.integers(2):
        case.said.append("no place to compile to")
        case.variables["NUMBA_CACHE_DIR"] = "/nonexistent/numba"


FAULTS: tuple[Callable[[FaultCase, np.random.Generator], None], ...] = (
    fill_disk,
    limit_files,
    read_only,
    limit_address_space,
    limit_total_memory,
    shift_clock,
    close_streams,
    remove_home,
)


def can_mount() -> bool:
    """Return True if this process may mount a tmpfs."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    with tempfile.TemporaryDirectory() as folder, mount("size=16k", Path(folder)) as done:
        return done


@contextmanager
def mount(options: str, folder: Path) -> Iterator[bool]:
    """Mount a file system on a folder with as much of its content as fits; yield whether that was possible. Without the
    right to mount, a folder can still be made read-only."""
    kept = folder.with_name(f"{folder.name}-before")
    shutil.copytree(folder, kept)
    words = ["mount", "-t", "tmpfs", "-o", "size=64m" if options == "ro" else options, "xmtc-campaign", str(folder)]
    done = os.geteuid() == 0 and subprocess.run(words, capture_output=True).returncode == 0
    try:
        if done:
            copy_if_possible(lambda: shutil.copytree(kept, folder, dirs_exist_ok=True))
        if done and options == "ro":
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        elif options == "ro":
            folder.chmod(0o555)
        yield done
    finally:
        if done:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.chmod(0o755)
        shutil.rmtree(kept)


def copy_if_possible(work: Callable[[], object]) -> None:
    try:
        work()
    except (OSError, shutil.Error):
        return


def make_place(place: Path, model: Path) -> None:
    """Create a folder with corpora, a model to use, and an old model in the target folder of commands."""
    for name in ("out", "tmp", "home", "numba"):
        (place / name).mkdir()
    (place / "train.jsonl").write_text(lines_of(150, seed=0))
    (place / "test.jsonl").write_text(lines_of(20, seed=1))
    shutil.copytree(model, place / "model")
    shutil.copytree(model, place / "out" / "model")


def attempt(case: FaultCase, place: Path) -> str | None:
    """Run a command under its fault; return the problem, or ""."""
    with mount(case.disk[0], place / case.disk[1]) if case.disk else nullcontext(False):
        stood = is_whole(place / "out" / "model")
        code, said = run(case, place)
        for mark in ("Traceback", "Exception ignored", "Fatal Python error"):
            if mark in said:
                return f"{mark}:\n{said[-1500:]}"
        if code not in (0, 2):
            return f"exit code {code}: {said[-500:]}"
        if code == 2 and "2>" not in case.ends and not said.strip():
            return "exit code 2 without a word"
        if stood and not is_whole(place / "out" / "model"):
            return "the model that stood at the target is gone"
        left = [path.name for path in (place / "out").rglob(".*") if path.name.endswith(LEAVINGS)]
        return f"there is left {', '.join(left)}" if left else None


def run(case: FaultCase, place: Path) -> tuple[int, str]:
    """Return exit code and standard error, which is written to a file if it is open."""
    given = {"TMPDIR": str(place / "tmp"), "HOME": str(place / "home")}
    if case.disk and case.disk[1] == "numba":
        given["NUMBA_CACHE_DIR"] = str(place / "numba")
    variables = os.environ | given | case.variables
    environment = {name: value for name, value in variables.items() if value is not None}
    limit = "" if case.limit is None else f"ulimit -f {case.limit // 1024}; "
    limit += "" if case.space is None else f"ulimit -v {case.space // 1024}; "
    said = Path(tempfile.mkdtemp(prefix="xmtc-said-")) / "said"
    words = ["bash", "-c", f'{limit}exec "$@" {case.ends}', "bash", sys.executable, "-c", case.program, *case.command]
    with (place / "test.jsonl").open("rb") as given_in, open(os.devnull, "wb") as nowhere, said.open("wb") as heard:
        code = subprocess.run(
            words, cwd=place, env=environment, stdin=given_in, stdout=nowhere, stderr=heard, timeout=300
        )
    text = said.read_text(errors="replace")
    shutil.rmtree(said.parent)
    return code.returncode, text


def is_whole(folder: Path) -> bool:
    try:
        Tagger.load(folder, verify=True)
    except XmtcError:
        return False
    return True


def run_campaign(
    seed: int = 0, minutes: float = 2.0, cases: int | None = None, only: int | None = None
) -> tuple[int, list[str]]:
    """Return the number of cases and the findings."""
    findings, number, end = [], 0, time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="xmtc-campaign-") as name:
        first = Path(name) / "first"
        first.mkdir()
        (first / "train.jsonl").write_text(lines_of(150, seed=0))
        code, said = run(FaultCase(("train", "train.jsonl", "-o", "model", *SMALL)), make_first_place(first))
        if code != 0:
            raise SystemExit(f"training does not work even without a fault: {said}")
        while time.monotonic() < end and (cases is None or number < cases):
            number = number if only is None else only
            rng = np.random.default_rng((seed, number))
            case = FaultCase(COMMANDS[int(rng.integers(len(COMMANDS)))])
            FAULTS[number % len(FAULTS)](case, rng)
            place = Path(tempfile.mkdtemp(prefix="case-", dir=name))
            make_place(place, first / "model")
            if (problem := attempt(case, place)) is not None:
                findings.append(f"case {number}: {case}: {problem}")
            shutil.rmtree(place)
            number += 1
            if only is not None:
                return 1, findings
    return number, findings


def make_first_place(place: Path) -> Path:
    for name in ("tmp", "home"):
        (place / name).mkdir()
    shutil.copy(place / "train.jsonl", place / "test.jsonl")
    return place


if __name__ == "__main__":
    import cases  # in this folder

    cases.run_counted(run_campaign, __doc__)
