"""Methods trained and measured on the same documents, each with each seed in a process of its own. What came of a run
is kept at once in the work folder, so that a comparison that was interrupted goes on where it was.

A work folder holds results.json, the answers of each run, and what each process said; models are deleted once they have
answered, since the commands that make them are in the results."""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from xmtc.analysis.compare.answers import Answers, Trained
from xmtc.analysis.compare.figures import Candidate, Cost
from xmtc.analysis.compare.specs import Spec
from xmtc.cluster.scheduling import map_on_cluster
from xmtc.data.corpus import Corpus, writing_corpus
from xmtc.data.formats.paired import pair
from xmtc.errors import XmtcError
from xmtc.experiments.keeping import Result, keep, kept_in, size_of
from xmtc.experiments.process import Measured, measure

# Documents of a training that nobody measures: what it compiles is kept for the others. With fewer, no analyzer is
# chosen (choice.FEWEST), nothing is calibrated (calibration.ENOUGH) and labels may be too few for a tree.
WARMING = 1_000
PATIENCE = 120.0  # seconds that it may take
MARK = "xmtc-compare.txt"  # by which a work folder is known
WARMED: set[Spec] = set()  # of which everything is compiled
Tell = Callable[[str], None]
Prepare = Callable[["Place", Spec], None]


@dataclass(frozen=True)
class Place:
    """The documents of a comparison, and where its runs are kept."""

    data: str  # what the corpus is called
    train: tuple[str, ...]
    test: str
    work: Path
    reading: tuple[str, ...] = ()  # options of `xmtc` that say how the corpora are read
    options: tuple[str, ...] = ()  # threads, device
    limit: float | None = None  # seconds that a training may take, and as long again its answers
    cluster: str = ""  # whose machines train, each with so many CPUs
    n_cpus: int = 1
    few: str = ""  # a few documents of the corpus, to have everything compiled on

    @property
    def results(self) -> Path:
        return self.work / "results.json"


def run_all(place: Place, specs: Sequence[Spec], n_seeds: int, tell: Tell) -> list[Candidate]:
    """Every method with every seed that has no result yet, all methods with the first seed first; those that fail are
    not tried with another. A cluster has all other seeds at once."""
    place.work.mkdir(parents=True, exist_ok=True)
    held: dict[str, list[Result]] = {spec.name: [] for spec in specs}
    others = range(1, n_seeds)
    for seeds in ([0], *([others] if place.cluster else [[seed] for seed in others])):
        good = [spec for spec in specs if not any("failed" in each for each in held[spec.name])]
        jobs = [
            job_of(place, spec, seed if spec.takes_seed else None)
            for seed in seeds
            for spec in good
            if spec.takes_seed or seed == 0
        ]
        for job, result in finished(place, jobs, tell):
            held[job.spec.name].append(result)
    return [candidate(place, spec, held[spec.name]) for spec in specs]


@dataclass(frozen=True)
class Job:
    """A method to be trained, and asked."""

    spec: Spec
    name: str
    model: Path
    words: tuple[str, ...]
    asked: Result  # by which a result of the same command on the same files is known

    def kept(self, place: Place) -> Result | None:
        """Its result, where it need not be made anew."""
        found = kept_in(place.results).get(self.name, {})
        is_same = all(found.get(key) == value for key, value in self.asked.items())
        return found if is_same and is_final(found, place) else None

    def made(self, place: Place) -> Result:
        warm_up(place, self.spec)
        result = {**self.asked, "budget": place.limit, **made(place, self.name, self.model, self.words)}
        shutil.rmtree(self.model, ignore_errors=True)
        return result


def job_of(place: Place, spec: Spec, seed: int | None) -> Job:
    name = spec.name if seed is None else f"{spec.name}, seed {seed}"
    model = place.work / "models" / slug(name)
    words = ("train", *place.train, *spec.words(seed), "-o", str(model), *place.reading, *place.options)
    asked = {"command": shlex.join(["xmtc", *words]), "files": stamps([*place.train, place.test])}
    return Job(spec, name, model, words, asked)


def finish(place: Place, spec: Spec, seed: int | None, tell: Tell, prepare: Prepare | None = None) -> Result:
    """The result of a run: the one that is kept, if it is of the same command on the same files; else a new one, for
    which everything is compiled before, by `prepare` or `warm_up`."""
    job = job_of(place, spec, seed)
    if prepare is not None and job.kept(place) is None:
        prepare(place, spec)
    ((_, result),) = finished(place, [job], tell)
    return result


def finished(place: Place, jobs: Sequence[Job], tell: Tell) -> Iterator[tuple[Job, Result]]:
    """Every job and its result: the one that is kept, or a new one, which is kept at once."""
    kept = [job.kept(place) for job in jobs]
    new = [job for job, result in zip(jobs, kept, strict=True) if result is None]
    results = on_cluster(place, new) if place.cluster else one_by_one(place, new, tell)
    for job, result in zip(jobs, kept, strict=True):
        if result is None:
            result = next(results)
            keep(place.results, job.name, result)
            tell(f"{place.data}: {job.name}: {result.get('failed') or f'''{result['train_s']:.1f} s'''}")
        yield job, result


def one_by_one(place: Place, jobs: Sequence[Job], tell: Tell) -> Iterator[Result]:
    for job in jobs:
        tell(f"{place.data}: {job.name}")
        yield job.made(place)


def on_cluster(place: Place, jobs: Sequence[Job]) -> Iterator[Result]:
    """Each on a machine that sees the same folders."""
    here = os.getcwd()

    def work(job: Job) -> Result:
        paths = [here, *(os.path.join(here, path) for path in (place.work, *(file[0] for file in job.asked["files"])))]
        if missing := [path for path in paths if not os.path.exists(path)]:
            raise XmtcError(
                f"{platform.node()}, a machine of the cluster, does not see {missing[0]}; a comparison needs the "
                "corpora and --work in folders that all machines share."
            )
        with chdir(here):
            return job.made(place)

    return (result for result, _ in map_on_cluster(place.cluster, work, jobs, n_cpus=place.n_cpus))


def is_final(kept: Result, place: Place) -> bool:
    """Whether a run need not be repeated: it went well, or took longer than it would have now."""
    if "failed" not in kept:
        return (place.work / kept["answers"]).is_file()
    return bool(kept.get("ended")) and place.limit is not None and place.limit <= (kept.get("budget") or 0)


def made(place: Place, name: str, model: Path, words: Sequence[str]) -> Result:
    """Train, answer, and say what both took, or what went wrong."""
    log, answers = place.work / "logs" / slug(name), Path("answers") / f"{slug(name)}.npz"
    shutil.rmtree(model, ignore_errors=True)
    trained = measure([*words, "--quiet"], Path(f"{log}.train"), place.limit)
    if trained.failed:
        return failure(trained)
    (place.work / answers).parent.mkdir(parents=True, exist_ok=True)
    asked = ["answers", str(model), place.test, "-o", str(place.work / answers), *place.reading, *place.options]
    answered = measure([*asked, "--quiet"], Path(f"{log}.answers"), place.limit)
    if answered.failed:
        return failure(answered)
    peaks = [each.peak_mb for each in (trained, answered) if each.peak_mb is not None]
    return {
        "answers": answers.as_posix(),
        "train_s": trained.seconds,
        "train_cpu_s": trained.cpu_seconds,
        "peak_mb": max(peaks) if peaks else None,
        "model_mb": size_of(model),
    }


def failure(found: Measured) -> Result:
    """In a sentence; the complaint of a command that ends by itself is one."""
    said = found.complaint.removeprefix("xmtc: ") if found.status == 2 and found.complaint else found.failed
    return {"failed": said, "ended": found.ended}


def warm_up(place: Place, spec: Spec) -> None:
    """Have everything compiled that a training uses, on a few documents; once, and whatever comes of it."""
    if spec in WARMED or not place.few:
        return
    WARMED.add(spec)
    with TemporaryDirectory(prefix="xmtc-warm-") as folder:
        words = ["train", place.few, *spec.words(), "-o", f"{folder}/model", "--quiet", *place.options]
        measure(words, Path(folder) / "log", min(PATIENCE, place.limit or PATIENCE))


def write_few(corpus: Corpus, work: Path) -> str:
    """A file of the first documents of a corpus that have labels, for `warm_up`."""
    form, ending = ("sparse", "txt") if corpus.holds_features else ("jsonl", "jsonl")
    path = work / f"few.{ending}"
    with writing_corpus(str(path), form, corpus) as add:
        for document in islice((each for each in corpus if each.labels), WARMING):
            add(document)
    return str(path)


def candidate(place: Place, spec: Spec, results: Sequence[Result]) -> Candidate:
    """What is compared of a method's runs."""
    commands = tuple(each["command"] for each in results)
    failed = next((each["failed"] for each in results if "failed" in each), "")
    if failed:
        return Candidate(spec.name, (), failed=failed, commands=commands)
    cost = Cost(**{name: mean(results, name) for name in ("train_s", "train_cpu_s", "peak_mb", "model_mb")})
    load = tuple(partial(Answers.load, place.work / each["answers"]) for each in results)
    return Candidate(spec.name, load, cost, commands=commands)


def trained_in(place: Place, specs: Sequence[Spec]) -> Iterator[Trained]:
    """What the kept models of these methods were trained on; not those of files as they were before."""
    files = stamps([*place.train, place.test])
    kept = {name: each for name, each in kept_in(place.results).items() if each.get("files") == files}
    for spec in specs:
        found = [each for name, each in kept.items() if name == spec.name or name.startswith(f"{spec.name}, seed ")]
        yield from (Trained.load(place.work / each["answers"]) for each in found if "answers" in each)


def mean(results: Sequence[Result], name: str) -> float | None:
    values = [each[name] for each in results if each.get(name) is not None]
    return float(np.mean(values)) if values else None


def stamps(paths: Sequence[str]) -> list[list[Any]]:
    """By which a file that was changed is known, and one that was only copied is not taken for another: its size and a
    digest of its bytes; of a folder, those of all files in it."""
    found: dict[str, list[Any]] = {}
    for path in (file for listed in paths for named in pair(listed) if named for file in matching(named)):
        size, whole = 0, hashlib.blake2b(digest_size=16)
        for file in sorted(filter(Path.is_file, Path(path).rglob("*"))) or [Path(path)]:
            about = file.stat()
            size += about.st_size
            whole.update(os.fsencode(file.relative_to(path)) + b"\0")
            whole.update(digest(os.path.abspath(file), about.st_size, about.st_mtime_ns))
        found[path] = [path, size, whole.hexdigest()]
    return list(found.values())


@cache
def digest(path: str, size: int, changed: int) -> bytes:
    """Of the bytes of a file, which is read once for all runs as long as its size and date stay."""
    if not os.path.isfile(path):
        return str(changed).encode()  # a pipe can be read only once, and not for this
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def matching(path: str) -> list[str]:
    """The file itself, or those that fit the pattern; none where nothing is there."""
    return [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))


def slug(name: str) -> str:
    """The name of a run's files: readable, and no two alike."""
    digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    readable = re.sub(r"[^\w.=-]+", "-", name).strip("-").lower()
    return f"{readable[:80]}-{digest}"


def data_name(path: str) -> str:
    """What a corpus is called: its file, or its folder where the file is called train."""
    first = path.split(",")[0]
    stem = Path(first).name.split(".")[0]
    parent = Path(first).resolve().parent.name
    return parent if stem in ("train", "training") and parent else stem or first


def claim(work: Path) -> None:
    """Make the folder, or refuse one that holds something else."""
    if work.exists() and not work.is_dir():
        raise XmtcError(f"{work} is a file; expected a folder for the runs of a comparison: name another with --work.")
    if work.is_dir() and any(work.iterdir()) and not (work / MARK).exists():
        raise XmtcError(
            f"{work} holds other things than runs of a comparison; name another folder with --work, or empty it."
        )
    work.mkdir(parents=True, exist_ok=True)
    (work / MARK).write_text("Runs of a comparison by xmtc; the folder can be deleted.\n")
