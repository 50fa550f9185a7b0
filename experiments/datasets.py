"""Data sets of the papers (datasets.json): published counts, sources and presets, and a check of local files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from xmtc.core.progress import ProgressFactory, hide_progress
from xmtc.data.corpus import open_corpus
from xmtc.errors import XmtcError, find_similar_names
from xmtc.storage.cache import get_cache_folder

PARTS = ("train", "test")
IGNORED_EXTENSIONS = (".rejects", ".events", ".log")
ROUNDING_TOLERANCE = 0.01  # relative difference of averages that count as equal
COUNT_TITLES = {
    "train": "training documents",
    "test": "test documents",
    "features": "features",
    "labels": "labels",
    "labels_per_document": "labels per document",
    "documents_per_label": "documents per label",
}
CorpusCounts = dict[str, float]


@dataclass(frozen=True)
class CatalogueEntry:
    """Published data set."""

    name: str
    about: str
    content: str  # texts, features, or either
    source: str  # where to get it
    licence: str
    published: list[dict[str, Any]]  # counts as papers print them, with source
    presets: dict[str, dict[str, str]]  # by content (texts, features) and method
    propensity: str = "default"
    aliases: list[str] = field(default_factory=list)
    sha256: dict[str, str] = field(default_factory=dict)  # by file name
    note: str = ""

    @property
    def folder_name(self) -> str:
        return self.name.lower()


@cache
def load_catalogue() -> dict[str, CatalogueEntry]:
    text = Path(__file__).with_name("datasets.json").read_text(encoding="utf-8")
    entries = json.loads(text)
    return {name: CatalogueEntry(name=name, source=entry.pop("from"), **entry) for name, entry in entries.items()}


def find_catalogue_entry(name: str) -> CatalogueEntry:
    """Return the data set of this name, ignoring case."""
    known = {each.lower(): found for found in load_catalogue().values() for each in (found.name, *found.aliases)}
    if name.lower() in known:
        return known[name.lower()]
    meant = "".join(f"; did you mean {known[each].name}?" for each in find_similar_names(name.lower(), known)) or "."
    raise XmtcError(f"There is no data set {name!r}{meant} `python -m experiments datasets` lists all.")


def get_corpora_folder() -> Path:
    """Return the default folder of data sets."""
    return get_cache_folder("corpora")


def find_part_files(folder: Path, part: str) -> list[Path]:
    """Return the files of a part of a data set: train.txt, train.jsonl.gz …"""
    return sorted(
        path for path in folder.glob(f"{part}.*") if path.suffix not in IGNORED_EXTENSIONS and not path.is_dir()
    )


def locate_corpus_folder(found: CatalogueEntry, folder: Path | None) -> Path:
    """Return the folder of a data set: `folder` itself if it has training files, else a subfolder of its name."""
    if folder is None:
        return get_corpora_folder() / found.folder_name
    return folder if find_part_files(folder, "train") else folder / found.folder_name


def find_train_test_pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Return (train, test) file pairs with the same extension."""
    found = {part: {path.name.removeprefix(part): path for path in find_part_files(folder, part)} for part in PARTS}
    return [(path, found["test"][ending]) for ending, path in found["train"].items() if ending in found["test"]]


def compute_counts(train: Path, test: Path, show: ProgressFactory = hide_progress) -> list[CorpusCounts]:
    """Count what the papers' tables print, twice: averages over training documents, and over all documents.

    Papers use either without saying which."""
    n_docs, labels, n_assigned, n_features = [0, 0], [set[str](), set[str]()], [0, 0], 0
    for part, path in enumerate((train, test)):
        corpus = open_corpus(str(path), progress=show)
        n_features = max(n_features, corpus.dimensions.n_features or 0)
        for document in corpus:
            n_docs[part] += 1
            labels[part].update(document.labels)
            n_assigned[part] += len(document.labels)
    both = labels[0] | labels[1]
    known: CorpusCounts = {"train": n_docs[0], "test": n_docs[1], "labels": len(both)}
    known |= {"features": n_features} if n_features else {}
    return [
        known | compute_averages(n_docs[0], len(labels[0]), n_assigned[0]),
        known | compute_averages(sum(n_docs), len(both), sum(n_assigned)),
    ]


def compute_averages(n_docs: int, n_labels: int, n_assigned: int) -> CorpusCounts:
    return {
        "labels_per_document": n_assigned / max(n_docs, 1),
        "documents_per_label": n_assigned / max(n_labels, 1),
    }


def compare_counts(found: CatalogueEntry, counted: list[CorpusCounts]) -> Iterator[tuple[str, str, str, bool]]:
    """Yield each count as title, local value, published values with source, and whether one agrees."""
    for key, title in COUNT_TITLES.items():
        said = [(entry[key], entry["source"]) for entry in found.published if key in entry]
        here = list(dict.fromkeys(counts[key] for counts in counted if key in counts))
        if here:
            agrees = any(is_same_count(each, value) for each in here for value, _ in said)
            others = "; ".join(f"{format_count(value)} ({source})" for value, source in said)
            told = " or, with test documents, ".join(dict.fromkeys(map(format_count, here)))
            yield title, told, others or "nothing", agrees or not said


def is_same_count(here: float, published: float) -> bool:
    """Compare counts; published averages are rounded, also to integers."""
    if not isinstance(here, float):
        return here == published
    return abs(here - published) <= max(ROUNDING_TOLERANCE * abs(published), 0.5 if isinstance(published, int) else 0)


def format_count(value: float) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
