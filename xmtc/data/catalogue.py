"""Data sets that have a name (catalogue.json): what was published of them, where they are to be had, which presets are
theirs; and whether files that are here are the ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from xmtc.core.progress import ProgressFactory, hide_progress
from xmtc.data.corpus import open_corpus
from xmtc.errors import XmtcError, find_similar_names
from xmtc.storage.cache import get_cache_folder

PARTS = ("train", "test")
NOT_DATA = (".rejects", ".events", ".log")
ROUNDED = 0.01  # averages that differ by less, relatively, are the same: nobody says over which documents they are
COUNTS = {
    "train": "training documents",
    "test": "test documents",
    "features": "features",
    "labels": "labels",
    "labels_per_document": "labels per document",
    "documents_per_label": "documents per label",
}
Counts = dict[str, float]


@dataclass(frozen=True)
class DataSet:
    """An entry of the catalogue."""

    name: str
    about: str
    content: str  # texts, features, or either
    source: str  # where it is to be had
    licence: str
    published: list[dict[str, Any]]  # counts as papers print them, each with its source
    presets: dict[str, dict[str, str]]  # of methods, by what they are trained on: texts, features
    propensity: str = "default"
    aliases: list[str] = field(default_factory=list)
    sha256: dict[str, str] = field(default_factory=dict)  # of files, where known
    note: str = ""

    @property
    def folder(self) -> str:
        """What its folder is called."""
        return self.name.lower()


@cache
def catalogue() -> dict[str, DataSet]:
    """All of them, by name."""
    text = files("xmtc.data").joinpath("catalogue.json").read_text(encoding="utf-8")
    entries = json.loads(text)
    return {name: DataSet(name=name, source=entry.pop("from"), **entry) for name, entry in entries.items()}


def named(name: str) -> DataSet:
    """The data set of this name, whatever its capitals."""
    known = {each.lower(): found for found in catalogue().values() for each in (found.name, *found.aliases)}
    if name.lower() in known:
        return known[name.lower()]
    meant = "".join(f"; did you mean {known[each].name}?" for each in find_similar_names(name.lower(), known)) or "."
    raise XmtcError(f"There is no data set {name!r} in the catalogue{meant} `xmtc data list` shows all.")


def corpora_folder() -> Path:
    """Where data sets lie that nobody says another place of."""
    return get_cache_folder("corpora")


def files_of(folder: Path, part: str) -> list[Path]:
    """The files of a part of a data set: train.txt, train.jsonl.gz …"""
    return sorted(path for path in folder.glob(f"{part}.*") if path.suffix not in NOT_DATA and not path.is_dir())


def place_of(found: DataSet, folder: Path | None) -> Path:
    """Where its files are, or should be: in a folder of its name, or in the very folder that was named."""
    if folder is None:
        return corpora_folder() / found.folder
    return folder if files_of(folder, "train") else folder / found.folder


def forms_in(folder: Path) -> list[tuple[Path, Path]]:
    """Training and test documents, of each kind of file that there is of both: texts, features."""
    found = {part: {path.name.removeprefix(part): path for path in files_of(folder, part)} for part in PARTS}
    return [(path, found["test"][ending]) for ending, path in found["train"].items() if ending in found["test"]]


def count(train: Path, test: Path, show: ProgressFactory = hide_progress) -> list[Counts]:
    """What the papers' tables print, of these two files. Averages are of the training documents; the second of them of
    all: papers do either, and do not say which."""
    n_docs, labels, n_assigned, n_features = [0, 0], [set[str](), set[str]()], [0, 0], 0
    for part, path in enumerate((train, test)):
        corpus = open_corpus(str(path), progress=show)
        n_features = max(n_features, corpus.dimensions.n_features or 0)
        for document in corpus:
            n_docs[part] += 1
            labels[part].update(document.labels)
            n_assigned[part] += len(document.labels)
    both = labels[0] | labels[1]
    known: Counts = {"train": n_docs[0], "test": n_docs[1], "labels": len(both)}
    known |= {"features": n_features} if n_features else {}
    return [
        known | averages(n_docs[0], len(labels[0]), n_assigned[0]),
        known | averages(sum(n_docs), len(both), sum(n_assigned)),
    ]


def averages(n_docs: int, n_labels: int, n_assigned: int) -> Counts:
    return {
        "labels_per_document": n_assigned / max(n_docs, 1),
        "documents_per_label": n_assigned / max(n_labels, 1),
    }


def compared(found: DataSet, counted: list[Counts]) -> Iterator[tuple[str, str, str, bool]]:
    """Each count: its name, what is here, what was published and by whom, and whether one of these agrees."""
    for key, title in COUNTS.items():
        said = [(entry[key], entry["source"]) for entry in found.published if key in entry]
        here = list(dict.fromkeys(counts[key] for counts in counted if key in counts))
        if here:
            agrees = any(same(each, value) for each in here for value, _ in said)
            others = "; ".join(f"{shown(value)} ({source})" for value, source in said)
            told = " or, with test documents, ".join(dict.fromkeys(map(shown, here)))
            yield title, told, others or "nothing", agrees or not said


def same(here: float, published: float) -> bool:
    """Averages are rounded, also to whole numbers."""
    if not isinstance(here, float):
        return here == published
    return abs(here - published) <= max(ROUNDED * abs(published), 0.5 if isinstance(published, int) else 0)


def shown(value: float) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
