"""Runs the rows of a table or a figure with the commands that a user has, and keeps what came of each.

python experiments/run.py experiments/NAME.toml        every row that has no result yet
python experiments/run.py --table experiments/NAME.toml   its results, as a table in Markdown

experiments/README.md says what such a file holds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path("..") / "shared" / "data"  # where corpora lie, beside the checkout
PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "torch", "transformers")
COSTS = {
    "train_s": "training s",
    "train_cpu_s": "CPU s",
    "evaluate_s": "evaluation s",
    "peak_mb": "peak MB",
    "model_mb": "model MB",
}
MADE_BY = ("method", "combine", "compare")  # a row says one of these


class Failed(Exception):
    """A command, or what it needs, did not work out; the sentence says how."""


@dataclass(frozen=True, eq=False)
class Job:
    """A row, with one of its seeds."""

    table: str  # the name of its file
    row: dict[str, Any]
    seed: int | None = None

    @property
    def name(self) -> str:
        return self.row["name"] if self.seed is None else f"{self.row['name']}, seed {self.seed}"

    @property
    def slug(self) -> str:
        return re.sub(r"[^\w.=-]+", "-", self.name).strip("-").lower()

    @property
    def others(self) -> list[str]:
        """The rows that it is made of."""
        return [*self.row.get("combine", []), *self.row.get("compare", [])]


@dataclass
class Place:
    """Where things lie on this machine, and what is said to every command here."""

    data: Path
    work: Path
    results: Path
    overrides: dict[str, str] = field(default_factory=dict)  # of parameters, where a row has them
    options: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)  # machine, versions, commit
    limit: float | None = None  # seconds of a command
    lock: threading.Lock = field(default_factory=threading.Lock)

    def model(self, job: Job) -> Path:
        return self.work / job.table / job.slug

    def corpus(self, job: Job) -> Path:
        return self.data / job.row["data"]

    def shown(self, words: Sequence[str]) -> str:
        """A command without this machine's folders."""
        plain = [word.replace(str(self.data), str(SHARED)).replace(str(self.work), "models") for word in words]
        return shlex.join(["xmtc", *plain])


# What a file says


def read(path: Path) -> tuple[str, list[Job]]:
    """The title of a table, and its jobs. What stands at the top of the file holds for every row that does not say
    otherwise; parameters are joined."""
    table = tomllib.loads(path.read_text())
    title, rows = table.pop("title", path.stem), table.pop("row", [])
    jobs = []
    for row in chain.from_iterable(by_rate(table, each) for each in rows):
        given = {key: value for key, value in table.items() if key not in MADE_BY or not row.keys() & set(MADE_BY)}
        whole = given | row | {"params": table.get("params", {}) | row.get("params", {})}
        if sum(key in whole for key in MADE_BY) != 1 or not {"name", "data", "measures"} <= whole.keys():
            wanted = f"name, data, measures and one of {', '.join(MADE_BY)}"
            raise SystemExit(f"{path}: row {row.get('name', '?')!r} must have {wanted}.")
        jobs += [Job(path.stem, each, seed) for each in on_each_corpus(whole) for seed in whole.get("seeds", [None])]
    if len({job.slug for job in jobs}) < len(jobs):
        raise SystemExit(f"{path}: two rows have the same name.")
    return title, jobs


def by_rate(table: dict[str, Any], row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row whose noise has several rates is a row for each kind and rate, which its name then says."""
    noise = row.get("noise", table.get("noise", {}))
    if not any(isinstance(rates, list) for rates in noise.values()):
        return [row]
    seed = {"seed": noise["seed"]} if "seed" in noise else {}
    kinds = [(kind, rate) for kind, rates in noise.items() if kind != "seed" for rate in rates]
    return [row | {"name": f"{row['name']}, {kind} {rate}", "noise": {kind: rate} | seed} for kind, rate in kinds]


def on_each_corpus(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row on several corpora is as many rows, named after them, as are the ones that it is made of. `on` has what
    holds on one of them alone."""
    if isinstance(row["data"], str):
        return [row]
    made = []
    for data in row["data"]:
        others = {kind: [f"{name}, {data}" for name in row[kind]] for kind in ("combine", "compare") if kind in row}
        made.append(row | others | row.get("on", {}).get(data, {}) | {"data": data, "name": f"{row['name']}, {data}"})
    return made


def members(job: Job, jobs: Sequence[Job]) -> list[Job]:
    """The jobs that a combination or a comparison is of: the ones with its seed, where it has one, else all."""
    found: list[Job] = []
    for name in job.others:
        known = [other for other in jobs if name in (other.name, other.row["name"]) and other is not job]
        if not known:
            raise SystemExit(f"{job.table}: {job.name!r} is made of {name!r}, which no row is called.")
        found += [other for other in known if other.seed == job.seed] or known
    return found


def flat(params: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Parameters as the command line takes them: parabel.n_trees, true, a,b."""
    found: dict[str, str] = {}
    for name, value in params.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            found[prefix + name] = str(value).lower()
        else:
            found[prefix + name] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return found


# The commands of a job


def part(folder: Path, name: str, ending: str = "") -> Path:
    """The file with a part of a corpus: train.jsonl.gz, or one of another ending."""
    found = sorted(path for path in folder.glob(f"{name}.*") if path.name.endswith(ending))
    if not found:
        raise Failed(
            f"{folder / name}.* is not there: expected the corpus {folder.name!r} as a folder of {folder.parent}; "
            "--data FOLDER says where else corpora lie."
        )
    return found[0]


def preparing(job: Job, place: Place) -> tuple[list[list[str]], Path, Path]:
    """The commands that make the corpora of a job, if some must be made, and its training and test documents."""
    row, ending = job.row, job.row.get("ending", "")
    train = part(place.corpus(job), row.get("train_part", "train"), ending)
    test = part(place.corpus(job), row.get("test_part", "test"), ending) if "held_out" not in row else train
    made, endings, commands, held = place.work / "corpora", "".join(train.suffixes), [], ""
    if "documents" in row:  # of the training documents, so many are all that there are
        held, whole = f"-{row['documents']}", train
        cut = made / f"{row['data']}{held}"
        train, rest = Path(f"{cut}{endings}"), Path(f"{cut}-rest{endings}")
        commands.append(["data", "split", str(whole), str(rest), str(train), "--count", str(row["documents"])])
    if "clean" in row:  # stays without noise, and decides when to stop and what is chosen
        held, whole = f"{held}-{row['clean']}", train
        train, valid = (Path(f"{made / row['data']}{held}-{each}{endings}") for each in ("train", "clean"))
        commands.append(["data", "split", str(whole), str(train), str(valid), "--share", str(row["clean"])])
    if "held_out" in row:  # of the training documents; they stay clean, and are what is measured on
        held = f"{held}-{row['held_out']}"
        cut = made / f"{row['data']}{held}"
        whole, train, test = train, Path(f"{cut}-train{endings}"), Path(f"{cut}-test{endings}")
        commands.append(["data", "split", str(whole), str(train), str(test), "--share", str(row["held_out"])])
    if noise := dict(row.get("noise", {})):
        seed = str(noise.pop("seed", job.seed or 0))
        ((kind, rate),) = noise.items()
        clean, train = train, made / f"{row['data']}{held}-{kind}-{rate}-seed-{seed}{endings}"
        commands.append(["data", "noise", str(clean), str(train), "--kind", kind, "--rate", str(rate), "--seed", seed])
    return commands, train, test


def making(job: Job, jobs: Sequence[Job], place: Place, overrides: dict[str, str]) -> list[str]:
    """The command that leaves the job's model."""
    row, corpus = job.row, str(place.corpus(job))
    options = [word.replace("{data}", corpus) for word in [*row.get("train", []), *row.get("options", [])]]
    model = ["-o", str(place.model(job))]
    if "combine" in row:
        models = [str(place.model(member)) for member in members(job, jobs)]
        rule = ["--rule", row["rule"]] if "rule" in row else []
        return ["combine", *models, *model, *rule, *(word.replace("{data}", corpus) for word in row.get("options", []))]
    params = flat(row["params"]) | ({} if job.seed is None else {"seed": str(job.seed)})
    given = {name: overrides.get(name.rpartition(".")[2], value) for name, value in params.items()}
    pairs = [word for name, value in given.items() for word in ("-p", f"{name}={value}".replace("{data}", corpus))]
    commands, train, _ = preparing(job, place)
    if "clean" in row:  # what it was cut off by knows where it is
        options += ["--valid", next(words[4] for words in commands if "-clean." in words[4])]
    if "tune" in row:
        searched = [word for name, values in flat(row["tune"]).items() for word in ("-s", f"{name}={values}")]
        return ["tune", str(train), "-m", row["method"], *pairs, *searched, *options, *model]
    return ["train", str(train), "-m", row["method"], *pairs, *options, *model]


def judging(job: Job, jobs: Sequence[Job], place: Place) -> list[str]:
    """The command that measures it."""
    _, _, test = preparing(job, place)
    if "compare" in job.row:
        return ["compare", *(str(place.model(member)) for member in members(job, jobs)), str(test), "--json"]
    return ["evaluate", str(place.model(job)), str(test), *job.row["measures"], "--json", *job.row.get("evaluate", [])]


def asked(job: Job, jobs: Sequence[Job], place: Place) -> list[str]:
    """All that a job runs, as its file has it: what tells whether a result is still the row's."""
    made = [] if "compare" in job.row else [making(job, jobs, place, {})]
    return [place.shown(words) for words in [*preparing(job, place)[0], *made, judging(job, jobs, place)]]


# Running


def run(words: Sequence[str], log: Path, limit: float | None = None) -> tuple[str, dict[str, float]]:
    """Run xmtc of this tree in a process of its own: what it printed, and what it took: seconds by the clock and of all
    its threads, and memory at the peak in MB. After `limit` seconds it is ended."""
    log.parent.mkdir(parents=True, exist_ok=True)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    begin = time.perf_counter()
    with log.with_suffix(".out").open("w+") as out, log.open("w+") as err:
        process = subprocess.Popen([sys.executable, "-m", "xmtc", *words], stdout=out, stderr=err, env=env)
        clock = threading.Timer(limit or threading.TIMEOUT_MAX, process.kill)
        clock.start()
        _, status, usage = os.wait4(process.pid, 0)
        clock.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - begin
        if process.returncode and limit and seconds >= limit:
            raise Failed(f"xmtc {words[0]} was ended after {limit:g} s")
        out.seek(0)
        err.seek(0)
        if process.returncode:
            said = " ".join(err.read().strip().splitlines()[-3:])
            raise Failed(f"xmtc {words[0]} ended with status {process.returncode}: {said}")
        megabytes = round(usage.ru_maxrss / (1024 if sys.platform != "darwin" else 2**20))
        took = {"s": round(seconds, 1), "cpu_s": round(usage.ru_utime + usage.ru_stime, 1), "peak_mb": megabytes}
        return out.read(), took


def make_corpora(job: Job, place: Place) -> None:
    """Those that are not there yet; one job at a time, since others may want the same."""
    with place.lock:
        for words in preparing(job, place)[0]:
            if not Path(words[3]).exists():
                run(words, place.work / "corpora" / job.slug)


def make_model(job: Job, jobs: Sequence[Job], place: Place) -> dict[str, Any]:
    """Train or combine, if the model is not there; what it took."""
    words, stamp = making(job, jobs, place, place.overrides), Path(f"{place.model(job)}.json")
    if is_made(job, jobs, place):
        return json.loads(stamp.read_text())
    for member in members(job, jobs):
        if not is_made(member, jobs, place):
            raise Failed(f"its member {member.name!r} has no model")
    make_corpora(job, place)
    watched = ["--log-json", f"{place.model(job)}.events"] if words[0] == "train" else []  # how far it is
    _, costs = run([*words, "--quiet", *watched, *place.options], Path(f"{place.model(job)}.log"), place.limit)
    took: dict[str, Any] = {"train_s": costs["s"], "train_cpu_s": costs["cpu_s"], "peak_mb": costs["peak_mb"]}
    took |= {"model_mb": size_of(place.model(job)), "command": place.shown(words)}
    stamp.write_text(json.dumps(took))
    return took


def size_of(model: Path) -> float:
    return round(sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) / 1e6, 1)


def is_made(job: Job, jobs: Sequence[Job], place: Place) -> bool:
    stamp = Path(f"{place.model(job)}.json")
    if "compare" in job.row or not stamp.exists() or not place.model(job).exists():
        return False
    return json.loads(stamp.read_text())["command"] == place.shown(making(job, jobs, place, place.overrides))


def finish(job: Job, jobs: Sequence[Job], place: Place, waiting: dict[Job, Future[None]]) -> None:
    """Run what is missing of a job, and keep the result, or why there is none."""
    for member in members(job, jobs):
        if member in waiting:
            waiting[member].result()
    result = {"row": job.row["name"], "seed": job.seed, "command": asked(job, jobs, place), **place.about}
    if place.overrides:
        result["overrides"] = {name: Path(value).name for name, value in place.overrides.items()}  # no folders of here
    try:
        took = {} if "compare" in job.row else make_model(job, jobs, place)
        words = judging(job, jobs, place)
        said, costs = run([*words, "--quiet", *place.options], Path(f"{place.model(job)}.evaluate"))
        figures = json.loads(said)
        figures = figures.get("overlap", figures)  # what a comparison is about
        result |= {name: value for name, value in took.items() if name != "command"}
        result |= {f"evaluate_{name}": value for name, value in costs.items()}
        result["figures"] = {name: None if value is None else round(100 * value, 2) for name, value in figures.items()}
        print(f"{job.name}: {took.get('train_s', 0)} s,", *result["figures"].items(), flush=True)
    except Failed as error:
        result["failed"] = str(error)
        print(f"{job.name}: failed: {error}", file=sys.stderr, flush=True)
    keep(result, job, place)


def keep(result: dict[str, Any], job: Job, place: Place) -> None:
    """At once, and beside what others may have written meanwhile."""
    with place.lock:
        path = place.results / f"{job.table}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = kept_results(job.table, place) | {job.name: result}
        written = path.with_suffix(".json.part")
        written.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        written.replace(path)


def kept_results(table: str, place: Place) -> dict[str, Any]:
    path = place.results / f"{table}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def is_done(job: Job, jobs: Sequence[Job], place: Place) -> bool:
    result = kept_results(job.table, place).get(job.name, {"failed": "not run"})
    return "failed" not in result and result["command"] == asked(job, jobs, place)


def to_run(jobs: Sequence[Job], only: Sequence[str], place: Place) -> list[Job]:
    """The jobs without a result, and the members of which they need models; members come first."""
    found: list[Job] = []

    def add(job: Job) -> None:
        for member in members(job, jobs):
            if member not in found and not is_made(member, jobs, place):
                add(member)
        if job not in found:
            found.append(job)

    for job in jobs:
        if (not only or {job.name, job.row["name"]} & set(only)) and not is_done(job, jobs, place):
            add(job)
    return found


def with_corpora(jobs: Sequence[Job], place: Place) -> list[Job]:
    """The jobs that can be run here; of the others it is said what is missing."""
    missing: dict[Job, str] = {}
    for job in jobs:
        try:
            preparing(job, place)
        except Failed as error:
            missing[job] = str(error)
    print(*dict.fromkeys(missing.values()), sep="\n", end="\n" if missing else "", file=sys.stderr)
    return [job for job in jobs if not {job, *members(job, jobs)} & missing.keys()]


def run_all(path: Path, only: Sequence[str], n_jobs: int, place: Place) -> bool:
    """Every job that has no result yet; whether all went well."""
    _, jobs = read(path)
    known = {name for job in jobs for name in (job.name, job.row["name"])}
    if unknown := set(only) - known:
        raise SystemExit(f"--only {unknown.pop()!r}: no row is called so; there are {', '.join(sorted(known))}.")
    there = with_corpora(jobs, place)
    todo = to_run(there, only, place)
    waiting: dict[Job, Future[None]] = {}
    with ThreadPoolExecutor(n_jobs) as pool:
        for job in todo:
            waiting[job] = pool.submit(finish, job, there, place, waiting)
    for future in waiting.values():
        future.result()  # a fault of ours is not kept silent
    results = kept_results(path.stem, place)
    return len(there) == len(jobs) and not any("failed" in results[job.name] for job in todo)


# The table


def markdown(path: Path, place: Place) -> str:
    """Measured figures in percent; in brackets what was published, and the difference. Seeds: mean ± deviation.
    Each corpus has a table of its own, and comparisons, which have other figures."""
    title, jobs = read(path)
    results, corpora = kept_results(path.stem, place), dict.fromkeys(job.row["data"] for job in jobs)
    parts = [title]
    for data, is_one in ((data, is_one) for data in corpora for is_one in (False, True)):
        if kind := [job for job in jobs if job.row["data"] == data and ("compare" in job.row) == is_one]:
            parts += [f"{data}:"] if len(corpora) > 1 else []
            parts.append(table_of(kind, results))
    return "\n\n".join(parts)


def table_of(jobs: Sequence[Job], results: dict[str, Any]) -> str:
    found: dict[str, list[dict[str, Any]]] = {job.row["name"]: [] for job in jobs}
    for job in jobs:
        found[job.row["name"]] += [results[job.name]] if job.name in results else []
    columns = list(
        dict.fromkeys(key for kept in found.values() for result in kept for key in result.get("figures", {}))
    )
    rows = {job.row["name"]: job.row for job in jobs}
    lines = [["", *columns, *COSTS.values(), "source"], ["---"] * (len(columns) + len(COSTS) + 2)]
    lines += [cells(rows[name], kept, columns) for name, kept in found.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cells(row: dict[str, Any], kept: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[str]:
    """A row of the table."""
    good, published = [result for result in kept if "failed" not in result], row.get("published", {})
    if not good:
        why = f"failed: {kept[0]['failed']}" if kept else "not run"
        return [row["name"].removesuffix(f", {row['data']}"), why, *[""] * (len(columns) + len(COSTS))]
    figures = [cell([result["figures"].get(column) for result in good], published.get(column)) for column in columns]
    costs = [spread([result[name] for result in good if name in result], 1) for name in COSTS]
    return [row["name"].removesuffix(f", {row['data']}"), *figures, *costs, row.get("source", "")]


def cell(values: Sequence[float | None], published: float | None) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "" if published is None else f"– ({published:.2f})"
    measured = spread(known, 2)
    return measured if published is None else f"{measured} ({published:.2f}, {statistics.mean(known) - published:+.2f})"


def spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


# The machine


def about(machine: str | None, commit: str | None) -> dict[str, Any]:
    known = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            continue
    gpu = output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").replace("\n", ", ")
    there = f"{os.cpu_count()} cores" + (f", {gpu}" if gpu else "")
    changed = "+" if output("git", "-C", str(ROOT), "status", "--porcelain", "-uno", "--", "xmtc") else ""
    now = output("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    return {"machine": machine or there, "versions": known, "commit": commit or (now + changed or "unknown")}


def output(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="experiments/NAME.toml")
    parser.add_argument("--table", action="store_true", help="print what is kept as a table; run nothing")
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help="rows to run, by their names")
    parser.add_argument("--data", type=Path, default=ROOT / SHARED, help="folder that holds the corpora's folders")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "experiments", help="folder for models")
    parser.add_argument("--results", type=Path, default=ROOT / "experiments" / "results", help="folder for results")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time")
    parser.add_argument("--param", action="append", default=[], help="NAME=VALUE, instead of what rows have for NAME")
    parser.add_argument("--device", help="for every command")
    parser.add_argument("--threads", help="for every command")
    parser.add_argument("--limit", type=float, help="seconds after which a training is ended, and its row says so")
    parser.add_argument("--machine", help="what the results say of the machine")
    parser.add_argument("--commit", help="what they say of the commit, where git cannot tell")
    args = parser.parse_args()
    path = args.file if args.file.suffix else ROOT / "experiments" / f"{args.file}.toml"
    if not path.exists():
        raise SystemExit(f"{path} is not there; the experiments are the files experiments/*.toml.")
    data = Path(os.path.normpath(args.data))
    place = Place(data, args.work, args.results, dict(pair.split("=", 1) for pair in args.param))
    if args.table:
        print(markdown(path, place))
        return
    said = {"--device": args.device, "--threads": args.threads}
    place.options = [word for name, value in said.items() if value for word in (name, value)]
    place.limit = args.limit
    place.about = about(args.machine, args.commit)
    sys.exit(0 if run_all(path, args.only, args.jobs, place) else 1)


if __name__ == "__main__":
    main()
