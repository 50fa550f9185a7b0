"""Commands of a row: preparation of its corpora, training and evaluation."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.datasets import find_part_files
from experiments.rows import ExperimentRow, find_members, flatten_parameters

SHARED_DATA_FOLDER = Path("..") / "shared" / "data"  # folder of the corpora in recorded commands

NOISE_COMMAND = ["python", "-m", "experiments", "noise"]


class ExperimentFailed(Exception):
    """A command failed or its input is missing."""


@dataclass(frozen=True)
class ExperimentContext:
    """Folders of this machine and options of every command."""

    corpus_folders: tuple[Path, ...]  # searched in this order
    work: Path
    results: Path
    overrides: dict[str, str] = field(default_factory=dict)  # parameter values that replace those of the rows
    options: tuple[str, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)  # machine, versions, commit
    limit_seconds: float | None = None  # time limit of a training
    has_gpu: bool = False  # or --device was given
    lock: threading.Lock = field(default_factory=threading.Lock)
    stop_event: threading.Event = field(default_factory=threading.Event)  # set: start nothing, stop what runs

    def get_model_path(self, job: ExperimentRow) -> Path:
        return self.work / job.table / job.slug

    def get_corpus_folder(self, job: ExperimentRow) -> Path:
        there = (folder / job.settings["data"] for folder in self.corpus_folders)
        return next((folder for folder in there if folder.is_dir()), self.corpus_folders[0] / job.settings["data"])

    def get_results_path(self, table: str) -> Path:
        return self.results / f"{table}.json"

    def format_command(self, words: Sequence[str]) -> str:
        """Return a command line without this machine's folders."""
        places = {self.work: "models"} | {folder: SHARED_DATA_FOLDER.as_posix() for folder in self.corpus_folders}
        program = [] if words[0] == "python" else ["xmtc"]
        return shlex.join([*program, *(replace_folders(word, places) for word in words)])


def replace_folders(word: str, places: dict[Path, str]) -> str:
    """Replace folders at the start of a path, also in name=FOLDER/x."""
    for here, there in places.items():
        word = re.sub(rf"(?:^|(?<==)){re.escape(str(here))}(?=[/\\\\])", there, word)
    return word


def find_corpus_file(folder: Path, name: str, ending: str = "") -> Path:
    """Return the file of a part of a corpus, such as train.jsonl.gz."""
    found = [path for path in find_part_files(folder, name) if path.name.endswith(ending)]
    if not found:
        raise ExperimentFailed(
            f"{folder / name}.* does not exist; expected the corpus {folder.name!r} in {folder.parent}. "
            f"Give another folder with --data, or see `python -m experiments datasets`."
        )
    return found[0]


def plan_corpora(job: ExperimentRow, place: ExperimentContext) -> tuple[list[list[str]], Path, Path]:
    """Return the commands that make the corpora of a row, its training file and its test file."""
    row, ending = job.settings, job.settings.get("ending", "")
    train = find_corpus_file(place.get_corpus_folder(job), row.get("train_part", "train"), ending)
    test = (
        find_corpus_file(place.get_corpus_folder(job), row.get("test_part", "test"), ending)
        if "held_out" not in row
        else train
    )
    made, endings, commands, held = place.work / "corpora", "".join(train.suffixes), [], ""
    if "documents" in row:  # subset of the training documents
        held, whole = f"-{row['documents']}", train
        cut = made / f"{row['data']}{held}"
        train, rest = Path(f"{cut}{endings}"), Path(f"{cut}-rest{endings}")
        commands.append(["data", "split", str(whole), str(rest), str(train), "--count", str(row["documents"])])
    if "clean" in row:  # validation documents without noise
        held, whole = f"{held}-{row['clean']}", train
        train, valid = (Path(f"{made / row['data']}{held}-{each}{endings}") for each in ("train", "clean"))
        commands.append(["data", "split", str(whole), str(train), str(valid), "--share", str(row["clean"])])
    if "held_out" in row:  # evaluation on held-out training documents without noise
        held = f"{held}-{row['held_out']}"
        cut = made / f"{row['data']}{held}"
        whole, train, test = train, Path(f"{cut}-train{endings}"), Path(f"{cut}-test{endings}")
        commands.append(["data", "split", str(whole), str(train), str(test), "--share", str(row["held_out"])])
    if noise := dict(row.get("noise", {})):
        seed = str(noise.pop("seed", job.seed or 0))
        ((kind, rate),) = noise.items()
        clean, train = train, made / f"{row['data']}{held}-{kind}-{rate}-seed-{seed}{endings}"
        commands.append([*NOISE_COMMAND, str(clean), str(train), "--kind", kind, "--rate", str(rate), "--seed", seed])
    return commands, train, test


def get_base_name(name: str) -> str:
    """Return `vectors` for the member's parameter `attention_xml.vectors`."""
    return name.rpartition(".")[2]


def list_overridable(job: ExperimentRow) -> set[str]:
    """Return the parameters that the command of a row sets."""
    if "combine" in job.settings:
        return set()
    return {
        get_base_name(name)
        for name in [*flatten_parameters(job.settings.get("params", {})), *([] if job.seed is None else ["seed"])]
    }


def build_model_command(
    job: ExperimentRow, jobs: Sequence[ExperimentRow], place: ExperimentContext, overrides: dict[str, str]
) -> list[str]:
    """Return the command that trains the row's model."""
    row, corpus = job.settings, str(place.get_corpus_folder(job))
    options = [word.replace("{data}", corpus) for word in [*row.get("train", []), *row.get("options", [])]]
    model = ["-o", str(place.get_model_path(job))]
    if "combine" in row:
        models = [str(place.get_model_path(member)) for member in find_members(job, jobs)]
        rule = ["--rule", row["rule"]] if "rule" in row else []
        return ["combine", *models, *model, *rule, *(word.replace("{data}", corpus) for word in row.get("options", []))]
    params = flatten_parameters(row["params"]) | ({} if job.seed is None else {"seed": str(job.seed)})
    given = {name: overrides.get(get_base_name(name), value) for name, value in params.items()}
    pairs = [word for name, value in given.items() for word in ("-p", f"{name}={value}".replace("{data}", corpus))]
    commands, train, _ = plan_corpora(job, place)
    if "clean" in row:
        options += ["--valid", next(words[4] for words in commands if "-clean." in words[4])]
    if "tune" in row:
        searched = [
            word for name, values in flatten_parameters(row["tune"]).items() for word in ("-s", f"{name}={values}")
        ]
        return ["tune", str(train), "-m", row["method"], *pairs, *searched, *options, *model]
    return ["train", str(train), "-m", row["method"], *pairs, *options, *model]


def build_evaluation_command(job: ExperimentRow, jobs: Sequence[ExperimentRow], place: ExperimentContext) -> list[str]:
    """Return the command that evaluates the row."""
    _, _, test = plan_corpora(job, place)
    if "compare" in job.settings:
        return [
            "compare",
            *(str(place.get_model_path(member)) for member in find_members(job, jobs)),
            "--test",
            str(test),
            "--json",
        ]
    return [
        "evaluate",
        str(place.get_model_path(job)),
        str(test),
        *job.settings["measures"],
        "--json",
        *job.settings.get("evaluate", []),
    ]


def list_commands(job: ExperimentRow, jobs: Sequence[ExperimentRow], place: ExperimentContext) -> list[str]:
    """Return all commands of a row; a stored result is current if they are unchanged."""
    made = [] if "compare" in job.settings else [build_model_command(job, jobs, place, {})]
    return [
        place.format_command(words)
        for words in [*plan_corpora(job, place)[0], *made, build_evaluation_command(job, jobs, place)]
    ]
