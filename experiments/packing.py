"""Corpora and word vectors of a table's open rows in one folder, for a machine without a network."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from experiments.commands import ExperimentContext, ExperimentFailed, find_corpus_file, get_base_name
from experiments.rows import ExperimentRow, find_members, flatten_parameters
from experiments.runner import has_current_result
from xmtc.data.corpus import open_corpus
from xmtc.data.file_streams import open_output
from xmtc.features.words import Words
from xmtc.text.string_index import StringIndex
from xmtc.text.word_vectors import read_known_vectors

VECTORS_NAME = "{}.txt.gz"
DECIMALS = 3


@dataclass(frozen=True)
class Package:
    """Packed rows."""

    rows: list[ExperimentRow]
    files: list[Path]  # below the target folder
    sources: dict[str, Path]  # packed word vectors, by the value of the parameter `vectors`
    encoders: list[str]  # not packed: `xmtc pretrained export` writes them

    @property
    def n_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)


def find_open_rows(jobs: Sequence[ExperimentRow], only: Sequence[str], place: ExperimentContext) -> list[ExperimentRow]:
    """Return the selected rows without a current result whose corpus is here, with their members."""
    wanted = [job for job in jobs if not only or {job.name, job.settings["name"]} & set(only)]
    found: dict[ExperimentRow, None] = {}
    for job in wanted:
        if place.get_corpus_folder(job).is_dir() and not has_current_result(job, jobs, place):
            found |= dict.fromkeys([*find_members(job, jobs), job])
    return list(found)


def list_corpus_files(job: ExperimentRow, place: ExperimentContext) -> list[Path]:
    """Return the files that the commands of a row read."""
    row, folder = job.settings, place.get_corpus_folder(job)
    parts = [row.get("train_part", "train"), *([] if "held_out" in row else [row.get("test_part", "test")])]
    words = [*row.get("train", []), *row.get("options", []), *flatten_parameters(row["params"]).values()]
    named = [Path(word.replace("{data}", str(folder))) for word in words if "{data}" in word]
    if missing := [path for path in named if not path.is_file()]:
        raise ExperimentFailed(
            f"{missing[0]} does not exist; expected the file that {job.name!r} of {job.table} reads."
        )
    return [*(find_corpus_file(folder, part, row.get("ending", "")) for part in parts), *named]


def list_values(jobs: Iterable[ExperimentRow], name: str) -> list[str]:
    """Return the values of a parameter in the rows, also in their members, without repetition."""
    pairs = chain.from_iterable(flatten_parameters(job.settings["params"]).items() for job in jobs)
    return list(dict.fromkeys(value for key, value in pairs if get_base_name(key) == name and value))


def pack_rows(rows: list[ExperimentRow], place: ExperimentContext, target: Path, max_words: int) -> Package:
    """Copy the corpora of the rows, and the vectors of the most frequent words of their training texts."""
    read = {job: list_corpus_files(job, place) for job in rows}
    copied = {path: target / job.settings["data"] / path.name for job, paths in read.items() for path in paths}
    for path, there in copied.items():
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, there)
    sources = {name: target / VECTORS_NAME.format(Path(name).stem) for name in list_values(rows, "vectors")}
    if sources:
        training_files = dict.fromkeys(paths[0] for paths in read.values())
        lengths = [list_values([job], "max_tokens") or [str(Words().max_tokens)] for job in rows]
        max_tokens = max(map(int, chain.from_iterable(lengths)))
        words = Words(max_tokens=max_tokens, max_words=max_words).fit(read_texts(training_files))[0].vocabulary
        for name, path in sources.items():
            write_vectors(name, words, path)
    return Package(rows, [*copied.values(), *sources.values()], sources, list_values(rows, "encoder"))


def read_texts(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        for document in open_corpus(str(path)):
            yield document.text


def write_vectors(source: str, words: StringIndex, path: Path) -> None:
    """Write the vectors of known words as GloVe text, rounded."""
    vectors, is_known = read_known_vectors(source, words)
    with open_output(str(path)) as file:
        for number in np.flatnonzero(is_known).tolist():
            numbers = " ".join(f"{value:.{DECIMALS}f}" for value in vectors[number])
            file.write(f"{words[number]} {numbers}\n".encode())


def format_run_commands(table: str, package: Package, target: Path, only: Sequence[str]) -> list[str]:
    """Return commands that run the packed rows, one per value of `vectors`, which they replace by the packed file."""
    words = ["python", "-m", "experiments", "run", table, "--data", str(target), "--device", "cuda"]
    if not package.sources:
        return [shlex.join([*words, *(word for name in only for word in ("--only", name))])]
    commands = []
    for source, path in package.sources.items():
        rows = [job for job in package.rows if source in list_values([job], "vectors")]
        chosen = [word for job in rows for word in ("--only", job.name)] if len(package.sources) > 1 or only else []
        commands.append(shlex.join([*words, "-p", f"vectors={path}", *chosen]))
    return commands
