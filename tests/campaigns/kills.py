"""kill -9 at random moments of training, writing checkpoints, saving a model and writing a corpus.

    python tests/campaigns/kills.py --minutes 2 --seed 0

Each case kills a process one to three times, half of them between two steps on the disk (counted by an audit hook, so
that a seed repeats them exactly) and half after a random time. After each kill, what stood at the target or what was to
come is there, whole; at the end, the work is done once more without a kill, and has to give the same bytes as if it had
never been stopped, with nothing else left in the folder. In half of the cases the system cannot exchange two names in
one step, as on some network drives."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from planted import make_planted_corpus

from xmtc.core.checkpoint import Checkpoint
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus_writer
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.methods import method_class
from xmtc.pipeline import Pipeline
from xmtc.storage import atomic as disk
from xmtc.tagger import Tagger

STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.chmod", "shutil.rmtree"}
TRAININGS = {
    "parabel": {"n_trees": 3, "max_leaf": 10},
    "dismec": {},
    "ensemble": {"member": "parabel", "n_members": 2, "parabel.n_trees": 1},
}
NETWORKS = {"bce_ae": {"epochs": 2, "batch": 32}} if find_spec("torch") else {}
CORPUS = "corpus.jsonl.gz"
LINEAR = (*TRAININGS, CORPUS)
SAVING = 20  # last steps, in which a model replaces another; half of the kills are among them
PATIENCE = 120.0  # longer than any work here takes, in seconds


@dataclass(frozen=True)
class Work:
    """Work whose output is written under one name, and the expected output."""

    kind: str
    seconds: float  # seconds
    steps: int  # steps on the disk
    old: dict[str, bytes]
    new: dict[str, bytes]


def make_documents(seed: int) -> list[Document]:
    texts, tags = make_planted_corpus(120, seed)
    return [Document(str(i), text, labels) for i, (text, labels) in enumerate(zip(texts, tags, strict=True))]


def do(kind: str, place: Path, seed: int) -> None:
    """Do all of the work, resuming from what an earlier process stored."""
    if kind == CORPUS:
        with open_corpus_writer(place / CORPUS) as add:
            for document in make_documents(seed):
                add(document)
        return
    parameters = (TRAININGS | NETWORKS)[kind]
    checkpoint = Checkpoint(place / "parts", interval_seconds=0)  # networks save their state after every step
    run = Run(threads=1, device="cpu", checkpoint=checkpoint)
    Pipeline.from_parameters(kind, parameters=parameters).fit(make_documents(seed), run=run).save(place / "model")
    run.checkpoint.remove()


def run_in_child(work: Callable[[], None], wait: float = PATIENCE) -> int:
    """Do work in a child process and kill it after a while; return its exit status."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(f"  {type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
    end = time.monotonic() + wait
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def count_steps(on_step: Callable[[int], None]) -> None:
    """Call a function with the number of the step before every step on the disk."""
    n = 0

    def hook(event: str, arguments: tuple) -> None:
        nonlocal n
        if event in STEPS and is_ours(arguments):
            n += 1
            on_step(n)

    sys.addaudithook(hook)


def is_ours(arguments: tuple) -> bool:
    """Return True if a step is in the folder of a case, which no other process uses."""
    return any("xmtc-kills-" in os.fsdecode(name) for name in arguments if isinstance(name, (str, bytes, os.PathLike)))


def kill_at_step(step: int) -> None:
    def on_step(n: int) -> None:
        if n == step:
            os.kill(os.getpid(), signal.SIGKILL)

    count_steps(on_step)


def read_content(place: Path, kind: str) -> dict[str, bytes]:
    """Return the bytes that must be equal in every run; those of a history are not."""
    if kind == CORPUS:
        return {CORPUS: (place / CORPUS).read_bytes()} if (place / CORPUS).exists() else {}
    folder = place / "model"
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*")) if path.name != "history.jsonl"}


def warm_up(kind: str) -> None:
    """Import what every child needs. No tensor is created, because threads of PyTorch do not survive a fork."""
    if kind in NETWORKS:
        method_class(kind)
        return
    with tempfile.TemporaryDirectory() as name:
        do(kind, Path(name), 0)


def prepare(kind: str, folder: Path) -> Work:
    """Do the work without kills, for the old and for the expected output."""
    warm_up(kind)
    found = []
    for seed in (1, 0):
        place = folder / f"xmtc-kills-{kind}-{seed}"
        place.mkdir()
        begin, counted = time.monotonic(), place / "steps"

        def work(place=place, seed=seed, counted=counted) -> None:
            steps = [0]
            count_steps(lambda n: steps.__setitem__(0, n))
            do(kind, place, seed)
            counted.write_text(str(steps[0]))

        if run_in_child(work) != 0:
            raise SystemExit(f"{kind} does not work even without a kill")
        found.append((time.monotonic() - begin, int(counted.read_text()), read_content(place, kind)))
    (_, _, old), (seconds, steps, new) = found
    return Work(kind, seconds, steps, old, new)


def find_problem(place: Path, work: Work, stood: bool) -> str | None:
    """Return the problem of the target after a kill."""
    if work.kind != CORPUS:
        try:
            Tagger.load(place / "model", verify=True)  # which also restores what was moved aside
        except XmtcError as error:
            if stood or "does not exist" not in str(error):
                return f"the model does not open: {error}"
    found = read_content(place, work.kind)
    if found not in ([work.old, work.new] if stood else [{}, work.new]):
        return f"the target is neither old nor new: {sorted(found)}"
    return None


def attempt(work: Work, folder: Path, rng: np.random.Generator, log: list[str]) -> str | None:
    """Run one case; return its problem, or ""."""
    place = Path(tempfile.mkdtemp(prefix="xmtc-kills-", dir=folder))
    stood, exchanges = bool(rng.integers(2)), bool(rng.integers(2))
    log.append(f"{work.kind}, {'over an old one' if stood else 'new'}, {'' if exchanges else 'no '}exchange")
    if stood:
        put(place, work)
    for _ in range(rng.integers(1, 4)):
        by_step = bool(rng.integers(2))
        first = max(1, work.steps - SAVING) if rng.integers(2) else 1
        step = int(rng.integers(first, work.steps + 1)) if by_step else 0
        wait = PATIENCE if by_step else float(rng.uniform(0, 1.1 * work.seconds))
        log.append(f"killed at step {step} of {work.steps}" if by_step else f"killed after {wait:.3f} s")

        def run_and_kill(step=step) -> None:
            if not exchanges:
                disk.renameat2 = lambda: None
            kill_at_step(step)
            do(work.kind, place, 0)

        if os.waitstatus_to_exitcode(run_in_child(run_and_kill, wait)) not in (0, -signal.SIGKILL):
            return "the work failed after a kill"
        if (problem := find_problem(place, work, stood)) is not None:
            return problem
    if run_in_child(lambda: do(work.kind, place, 0)) != 0:
        return "the last run failed"
    if read_content(place, work.kind) != work.new:
        return "the bytes are not those of a run that was never stopped"
    left = sorted(path.name for path in place.iterdir() if path.name not in ("model", CORPUS))
    return f"there is left {', '.join(left)}" if left else None


def put(place: Path, work: Work) -> None:
    """Create the old target."""
    folder = place if work.kind == CORPUS else place / "model"
    folder.mkdir(exist_ok=True)
    for name, data in work.old.items():
        (folder / name).write_bytes(data)


def run_campaign(
    seed: int = 0,
    minutes: float = 2.0,
    cases: int | None = None,
    networks: bool = True,
    only: int | None = None,
) -> tuple[int, list[str]]:
    """Return the number of cases and the findings."""
    findings, number = [], 0
    with tempfile.TemporaryDirectory(prefix="xmtc-campaign-") as name:
        works = [prepare(kind, Path(name)) for kind in LINEAR]
        slow = [prepare(kind, Path(name)) for kind in (NETWORKS if networks else ())]
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end and (cases is None or number < cases):
            number = only if only is not None else number
            log: list[str] = []
            of = slow if slow and number % 20 == 19 else works  # a network takes as long as twenty other methods
            problem = attempt(of[number % len(of)], Path(name), np.random.default_rng((seed, number)), log)
            if problem is not None:
                findings.append(f"case {number} ({'; '.join(log)}): {problem}")
            number += 1
            if only is not None:
                return 1, findings
    return number, findings


if __name__ == "__main__":
    import cases  # in this folder

    cases.run_counted(run_campaign, __doc__)
