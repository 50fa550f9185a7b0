"""Samples of a corpus for trials: growing training files and held-out documents, and statistics of the whole corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

import numpy as np

from xmtc.analysis.trials import TrialContext, write_warm_up_corpus
from xmtc.analyzer_selection import select_corpus_analyzer
from xmtc.core.run import Run
from xmtc.data.corpus import Corpus, open_corpus_writer
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.evaluation.learning_curves import SAMPLE_GROWTH, CorpusSize
from xmtc.features import FEATURES, TEXTS
from xmtc.text.analyzers import AUTO

FIRST_SAMPLE_DOCUMENTS = 1_000
MAX_FIRST_SAMPLE_RATIO = 100  # of the corpus to the first sample, which would otherwise say little about it
MIN_SAMPLE_GROWTH = 1.5  # below it another sample is not worth a trial
HELD_OUT_SHARE, MAX_EVALUATION_DOCUMENTS = 0.2, 2_000


@dataclass(frozen=True)
class Samples:
    """Samples of a corpus in the files of a folder."""

    work: Path
    content: str
    held_out: list[Document]
    sizes: list[int]
    n_docs: int  # labelled documents of the corpus
    threads: int = 0
    device: str = "auto"
    warm_up_path: str = ""
    n_labels: dict[int, int] = field(default_factory=dict)  # by n_docs, of the samples and of the corpus
    analyzer: str = AUTO  # that a training on all documents selects

    def get_size(self, n_docs: int) -> CorpusSize:
        return CorpusSize(n_docs, self.n_labels[n_docs])

    @property
    def full_size(self) -> CorpusSize:
        return self.get_size(self.n_docs)

    def make_trial_context(self, size: int, limit_seconds: float) -> TrialContext:
        work = self.work / str(size)
        work.mkdir(parents=True, exist_ok=True)
        return TrialContext(
            f"{size:,} documents",
            (self.get_path(f"sample-{size}"),),
            self.get_path("held-out"),
            work,
            threads=self.threads,
            device=self.device,
            limit_seconds=limit_seconds,
            warm_up_path=self.warm_up_path,
        )

    def get_path(self, name: str) -> str:
        return str(self.work / f"{name}.{'jsonl' if self.content == TEXTS else 'txt'}")

    def open_writer(self, corpus: Corpus, name: str) -> AbstractContextManager[Callable[[Document], None]]:
        return open_corpus_writer(self.get_path(name), "jsonl" if self.content == TEXTS else "sparse", corpus)


def choose_sample_sizes(n_train: int) -> list[int]:
    """Return the sizes of the samples: each four times the one before, the last one all documents."""
    sizes = [FIRST_SAMPLE_DOCUMENTS]
    while sizes[-1] * SAMPLE_GROWTH * MIN_SAMPLE_GROWTH <= n_train:
        sizes.append(int(sizes[-1] * SAMPLE_GROWTH))
    if n_train <= MIN_SAMPLE_GROWTH * sizes[-1]:
        sizes.pop()
    n_too_small = sum(size * SAMPLE_GROWTH * MAX_FIRST_SAMPLE_RATIO <= n_train for size in sizes)
    return [*sizes[n_too_small:], n_train]


def make_samples(
    corpus: Corpus,
    test: Iterable[Document] | None,
    work: Path,
    *,
    threads: int = 0,
    device: str = "auto",
    seed: int = 0,
) -> Samples:
    """Write the samples of a corpus; without test documents, hold some of its documents out."""
    content = FEATURES if corpus.has_features else TEXTS
    label_names: set[str] = set()
    is_labelled = np.array([bool(document.labels) for document in collect_labels(corpus, label_names)], bool)
    if is_labelled.sum() < 2:
        raise XmtcError(f"Found {is_labelled.sum()} documents with labels; a recommendation needs at least hundreds.")
    rng = np.random.default_rng(seed)
    order = rng.permutation(np.flatnonzero(is_labelled))
    n_held_out = 0 if test is not None else max(1, min(MAX_EVALUATION_DOCUMENTS, int(HELD_OUT_SHARE * len(order))))
    is_held_out = np.zeros(len(is_labelled), bool)
    is_held_out[order[:n_held_out]] = True
    held_out = list(compress(corpus, is_held_out)) if test is None else [each for each in test if each.labels]
    if len(held_out) > MAX_EVALUATION_DOCUMENTS:
        held_out = [held_out[row] for row in np.sort(rng.permutation(len(held_out))[:MAX_EVALUATION_DOCUMENTS])]
    samples = Samples(
        work,
        content,
        held_out,
        sizes=choose_sample_sizes(len(order) - n_held_out),
        n_docs=len(order),
        threads=threads,
        device=device,
        warm_up_path=write_warm_up_corpus(corpus, work),
        n_labels={len(order): len(label_names)},
        analyzer=select_corpus_analyzer(corpus, Run(threads=threads)) if content == TEXTS else AUTO,
    )
    with samples.open_writer(corpus, "held-out") as write:
        for document in held_out:
            write(document)
    ranks = np.full(len(is_labelled), len(is_labelled))
    ranks[order[n_held_out:]] = np.arange(len(order) - n_held_out)
    write_samples(corpus, samples, ranks)
    return samples


def write_samples(corpus: Corpus, samples: Samples, ranks: np.ndarray) -> None:
    """Write all samples in one pass; a sample has the documents whose rank is below its size."""
    labels: dict[int, set[str]] = {size: set() for size in samples.sizes}
    with ExitStack() as stack:
        writers = {size: stack.enter_context(samples.open_writer(corpus, f"sample-{size}")) for size in samples.sizes}
        for document, rank in zip(corpus, ranks.tolist(), strict=True):
            for size in samples.sizes:
                if rank < size:
                    writers[size](document)
                    labels[size].update(document.labels)
    for size in samples.sizes:
        samples.n_labels.setdefault(size, len(labels[size]))


def collect_labels(documents: Iterable[Document], labels: set[str]) -> Iterator[Document]:
    """Yield the documents and add their labels to `labels`."""
    for document in documents:
        labels.update(document.labels)
        yield document
