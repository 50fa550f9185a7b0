"""A corpus in files: documents to measure on, and growing samples of the others. And what all documents tell, but a
sample would not: how many labels there are, and which analyzer a training will choose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

import numpy as np

from xmtc.analysis.recommend.learning_curves import SAMPLE_GROWTH, CorpusSize
from xmtc.analysis.trials import TrialContext, write_warm_up_corpus
from xmtc.analyzer_selection import select_corpus_analyzer
from xmtc.core.run import Run
from xmtc.data.corpus import Corpus, open_corpus_writer
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.features import FEATURES, TEXTS
from xmtc.text.analyzers import AUTO

FIRST_SAMPLE_DOCUMENTS = 1_000  # documents of the first sample
MAX_FIRST_SAMPLE_RATIO = (
    100  # of as many documents, the first sample has at least one: fewer would tell little of very many
)
MIN_SAMPLE_GROWTH = 1.5  # times a sample's documents is too little for another one
HELD_OUT_SHARE, MAX_EVALUATION_DOCUMENTS = 0.2, 2_000  # documents to measure on


@dataclass(frozen=True)
class Samples:
    """Of a corpus, in a folder."""

    work: Path
    content: str
    held_out: list[Document]
    sizes: list[int]
    n_docs: int  # of the corpus, which the training to come will have
    machine_options: tuple[str, ...]
    warm_up_path: str = ""  # documents to have everything compiled on
    n_labels: dict[int, int] = field(default_factory=dict)  # by documents, of the samples and of the corpus
    analyzer: str = AUTO  # that a training on all documents will choose

    def get_size(self, n_docs: int) -> CorpusSize:
        return CorpusSize(n_docs, self.n_labels[n_docs])

    @property
    def full_size(self) -> CorpusSize:
        return self.get_size(self.n_docs)

    def make_trial_context(self, size: int, limit: float) -> TrialContext:
        ending = "jsonl" if self.content == TEXTS else "txt"
        work = self.work / str(size)
        work.mkdir(parents=True, exist_ok=True)
        train, test = self.work / f"sample-{size}.{ending}", self.work / f"held-out.{ending}"
        return TrialContext(
            f"{size:,} documents",
            (str(train),),
            str(test),
            work,
            (),
            self.machine_options,
            limit,
            warm_up_path=self.warm_up_path,
        )


def choose_sample_sizes(n_train: int) -> list[int]:
    """Each sample has four times the documents of the one before; the last is all there are."""
    sizes = [FIRST_SAMPLE_DOCUMENTS]
    while sizes[-1] * SAMPLE_GROWTH * MIN_SAMPLE_GROWTH <= n_train:
        sizes.append(int(sizes[-1] * SAMPLE_GROWTH))
    if n_train <= MIN_SAMPLE_GROWTH * sizes[-1]:
        sizes.pop()
    too_few = [size for size in sizes if size * SAMPLE_GROWTH * MAX_FIRST_SAMPLE_RATIO <= n_train]
    return [*sizes[len(too_few) :], n_train]


def make_samples(
    corpus: Corpus,
    test: Iterable[Document] | None,
    work: Path,
    options: tuple[str, ...],
    seed: int = 0,
    run: Run = Run(),
) -> Samples:
    """Divide a corpus; with test documents, these are measured on, and samples may have all others."""
    content = FEATURES if corpus.has_features else TEXTS
    every: set[str] = set()
    labelled = np.array([bool(document.labels) for document in watch_labels(corpus, every)], bool)
    if labelled.sum() < 2:
        raise XmtcError(f"Found {labelled.sum()} documents with labels; expected hundreds to try methods on.")
    rng = np.random.default_rng(seed)
    order = rng.permutation(np.flatnonzero(labelled))
    n_held = 0 if test is not None else max(1, min(MAX_EVALUATION_DOCUMENTS, int(HELD_OUT_SHARE * len(order))))
    held = np.zeros(len(labelled), bool)
    held[order[:n_held]] = True
    measured = list(compress(corpus, held)) if test is None else [each for each in test if each.labels]
    if len(measured) > MAX_EVALUATION_DOCUMENTS:
        measured = [measured[number] for number in np.sort(rng.permutation(len(measured))[:MAX_EVALUATION_DOCUMENTS])]
    sizes, few = choose_sample_sizes(len(order) - n_held), write_warm_up_corpus(corpus, work)
    analyzer = select_corpus_analyzer(corpus, run) if content == TEXTS else AUTO
    n_labels = {len(order): len(every)}
    found = Samples(work, content, measured, sizes, len(order), options, few, n_labels, analyzer)
    with open_sample_writer(corpus, found, "held-out") as add:
        for document in measured:
            add(document)
    ranks = np.full(len(labelled), len(labelled))
    ranks[order[n_held:]] = np.arange(len(order) - n_held)
    write_samples(corpus, found, ranks)
    return found


def write_samples(corpus: Corpus, found: Samples, ranks: np.ndarray) -> None:
    """All in one pass: a sample has the documents whose rank is below its size."""
    labels: dict[int, set[str]] = {size: set() for size in found.sizes}
    with ExitStack() as stack:
        adds = {size: stack.enter_context(open_sample_writer(corpus, found, f"sample-{size}")) for size in found.sizes}
        for document, rank in zip(corpus, ranks.tolist(), strict=True):
            for size in (each for each in found.sizes if rank < each):
                adds[size](document)
                labels[size].update(document.labels)
    for size in found.sizes:
        found.n_labels.setdefault(size, len(labels[size]))


def watch_labels(documents: Iterable[Document], labels: set[str]) -> Iterator[Document]:
    """The same documents; their labels are collected as they are read."""
    for document in documents:
        labels.update(document.labels)
        yield document


def open_sample_writer(corpus: Corpus, found: Samples, name: str) -> AbstractContextManager[Callable[[Document], None]]:
    ending, format = ("jsonl", "jsonl") if found.content == TEXTS else ("txt", "sparse")
    return open_corpus_writer(str(found.work / f"{name}.{ending}"), format, corpus)
