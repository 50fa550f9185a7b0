"""Selection of the text analyzer for `analyzer=auto`.

One Parabel tree is trained on a sample of the documents with each of: words, stems, words and pairs of words, words
joined with character n-grams, and character n-grams. Every document of the sample is held out once (two folds). Another
analyzer replaces words only if its nDCG@5 is significantly higher."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.run import Run
from xmtc.data.batch import DocumentBatch, Texts
from xmtc.data.corpus import Corpus
from xmtc.data.document import Document
from xmtc.data.label_collector import LabelCollector
from xmtc.evaluation import evaluate_per_document
from xmtc.features import TEXTS, extract_contents
from xmtc.features.tfidf import Tfidf
from xmtc.features.word_counts import WordCounts
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.storage.disk_arrays import ArrayStore
from xmtc.text.analyzers import CHARS, SNOWBALL, WORDS
from xmtc.text.languages import detect_language, measure_unspaced_share
from xmtc.text.tokenizer import batch_texts

MIN_TRIAL_DOCUMENTS = 1000  # a smaller sample gives no reliable comparison
MAX_TRIAL_DOCUMENTS = 8000
MAX_TRIAL_WORDS = 600_000
MAX_CHARS_TRIAL_WORDS = 300  # words per document, above which character n-grams cost much and gain nothing
N_FOLDS = 2
MIN_GAIN_STANDARD_ERRORS = 1.645  # one-sided test of 5 %
NDCG_TIE_TOLERANCE = 0.0005  # among analyzers within this distance of the best, the cheapest is selected
PAIRS = f"{WORDS}:1-2"
# Change of the gain over words, in nDCG@5, for each doubling of the documents (docs/how-to/languages.md). That of pairs
# of words is for texts of at least PAIRS_GAIN_WORDS words.
PAIRS_GAIN_PER_DOUBLING, PAIRS_GAIN_WORDS = 0.0015, 100
CHARS_GAIN_PER_DOUBLING = -0.0015
MAINLY_UNSPACED_SHARE = 0.5  # share of letters of scripts without spaces, from which only n-grams are used
DEFAULT_VIEW = Tfidf()
PARTLY_UNSPACED_SHARE = 0.1  # share from which n-grams are joined with words

AnyDocument = TypeVar("AnyDocument", Document, Document | DocumentBatch)


@dataclass(frozen=True)
class AnalyzerChoice:
    """Selected analyzer and the reason for it."""

    analyzer: str
    reason: str

    def as_json(self) -> dict[str, str]:
        """Return the entry `chosen` of about.json."""
        return {"analyzer": self.analyzer, "because": self.reason}


def select_corpus_analyzer(corpus: Corpus, run: Run) -> str:
    """Return the analyzer that a training with default parameters would select for a corpus of texts."""
    return select_document_analyzer(corpus.iter_batches(run), run)


def select_document_analyzer(
    documents: Iterable[Document | DocumentBatch], run: Run, view: Tfidf = DEFAULT_VIEW
) -> str:
    """Return the analyzer that a training with the view's other parameters would select for documents of texts."""
    collector = LabelCollector()
    texts = extract_contents(collector.collect(documents), TEXTS)
    return select_analyzer(view, *count_and_sample(view, texts, run), collector, run).analyzer


class TextSample:
    """Uniform sample of a stream of texts, with a fixed seed."""

    def __init__(self, size: int = MAX_TRIAL_DOCUMENTS) -> None:
        self.size, self.n_seen, self.rng = size, 0, np.random.default_rng(0)
        self.heap: list[tuple[float, int, str]] = []  # (-priority, document, text) of the smallest priorities

    def collect(self, contents: Iterable[str | Texts]) -> Iterator[str | Texts]:
        """Yield the contents unchanged and sample their texts."""
        for content in contents:
            self.add(content if isinstance(content, Texts) else (content,))
            yield content

    def collect_documents(self, documents: Iterable[AnyDocument]) -> Iterator[AnyDocument]:
        """Yield the documents unchanged and sample their texts."""
        for document in documents:
            self.add(document.texts if isinstance(document, DocumentBatch) else (document.text,))
            yield document

    def add(self, texts: Texts | tuple[str]) -> None:
        """Sample the next texts of the stream."""
        priorities = self.rng.random(len(texts))
        limit = -self.heap[0][0] if len(self.heap) == self.size else 1.0
        for i in np.flatnonzero(priorities < limit).tolist():
            push = heapq.heappush if len(self.heap) < self.size else heapq.heappushpop
            push(self.heap, (-priorities[i], self.n_seen + i, texts[i]))
        self.n_seen += len(texts)

    def draw(self) -> tuple[np.ndarray, list[str]]:
        """Return the numbers of the sampled documents in random order, and their texts."""
        drawn = sorted(self.heap, reverse=True)
        return np.array([number for _, number, _ in drawn], np.int64), [text for *_, text in drawn]


class TextSpool:
    """Copy of a stream of texts, in memory or in a working directory, for a second pass."""

    def __init__(self, workdir: Path | None) -> None:
        self.store = ArrayStore(workdir)
        self.batches: list[tuple[Callable[[], np.ndarray], Callable[[], np.ndarray]]] = []

    def collect(self, contents: Iterable[str | Texts]) -> Iterator[Texts]:
        """Yield the contents in batches and copy them."""
        for batch in batch_texts(contents):
            texts = Texts.from_strings(batch)
            self.batches.append((self.store.put(texts.data), self.store.put(texts.offsets)))
            yield texts

    def __iter__(self) -> Iterator[Texts]:
        return (Texts(load_data(), load_offsets()) for load_data, load_offsets in self.batches)


def count_and_sample(view: Tfidf, contents: Iterable[str | Texts], run: Run) -> tuple[WordCounts, TextSample]:
    """Count the words of a stream of texts and sample the texts."""
    sample = TextSample()
    (counts,) = view.count_words(sample.collect(contents), run).values()
    return counts, sample


def select_analyzer(
    view: Tfidf, counts: WordCounts, sample: TextSample, collector: LabelCollector, run: Run
) -> AnalyzerChoice:
    """Select the analyzer from the word counts and a sample of the training documents, and their collected labels."""
    if not counts.n_words:
        return AnalyzerChoice(WORDS, "the documents contain no words")
    if view.ngrams > 1:
        return AnalyzerChoice(WORDS, f"ngrams={view.ngrams} requires words")
    unspaced = measure_unspaced_share(counts.text)
    if unspaced >= PARTLY_UNSPACED_SHARE:
        analyzer = CHARS if unspaced >= MAINLY_UNSPACED_SHARE else f"{WORDS}+{CHARS}"
        return AnalyzerChoice(analyzer, f"{unspaced:.0%} of the letters belong to scripts without spaces between words")
    if counts.n_docs < MIN_TRIAL_DOCUMENTS:
        return AnalyzerChoice(
            WORDS, f"{counts.n_docs:,} documents are too few to compare analyzers; {MIN_TRIAL_DOCUMENTS:,} are needed"
        )
    Y = collector.to_matrix(sorted(collector.id_by_label))
    documents, texts = sample.draw()
    labelled = np.flatnonzero(np.diff(Y.indptr)[documents])
    if (n_labelled := len(labelled)) < MIN_TRIAL_DOCUMENTS:
        return AnalyzerChoice(
            WORDS,
            f"{n_labelled:,} labelled documents are too few to compare analyzers; {MIN_TRIAL_DOCUMENTS:,} are needed",
        )
    return select_analyzer_by_trial(view, counts, [texts[i] for i in labelled], csr_array(Y[documents[labelled]]), run)


def select_analyzer_by_trial(
    view: Tfidf, counts: WordCounts, texts: list[str], Y: csr_array, run: Run
) -> AnalyzerChoice:
    """Select the cheapest analyzer whose held-out nDCG@5 is near the best, or words if none is significantly better."""
    n_words = np.cumsum([1 + text.count(" ") for text in texts])
    n_docs = min(len(texts), max(MIN_TRIAL_DOCUMENTS, int(np.searchsorted(n_words, MAX_TRIAL_WORDS))))
    words_per_document = float(n_words[n_docs - 1] / n_docs)
    candidates = list_candidates(counts, words_per_document)
    with run.stage("selecting the analyzer"):
        folds = split_folds(texts[:n_docs], csr_array(Y[:n_docs]))
        scores = {
            name: np.concatenate([fold.score(view, name, run.for_trial()) for fold in folds]) for name in candidates
        }
    trends = estimate_trends(words_per_document, counts.n_docs * N_FOLDS / n_docs)
    gains = {name: score - scores[WORDS] + trends.get(name, 0) for name, score in scores.items()}
    better = {name: gain.mean() for name, gain in gains.items() if is_significant(gain)}
    best = max(better.values(), default=0)
    selected = next((name for name, mean in better.items() if mean >= best - NDCG_TIE_TOLERANCE), WORDS)
    means = ", ".join(f"{name} {100 * score.mean():.1f}" for name, score in scores.items())
    expected = ", ".join(f"{name} {100 * trends[name]:+.1f}" for name in scores if name in trends)
    reason = f"nDCG@5 of {n_docs:,} held-out documents: {means}; expected change with all documents: {expected}"
    return AnalyzerChoice(selected, reason)


def list_candidates(counts: WordCounts, words_per_document: float) -> list[str]:
    """Return the analyzers to compare, the cheapest first."""
    language = detect_language(counts.text, counts.ends, counts.frequencies)
    stems = [f"{SNOWBALL}:{language}"] if language else []
    has_chars = words_per_document <= MAX_CHARS_TRIAL_WORDS
    return [WORDS, *stems, PAIRS, *([f"{WORDS}+{CHARS}", CHARS] if has_chars else [])]


def estimate_trends(words_per_document: float, growth: float) -> dict[str, float]:
    """Return by how much gains over words change in nDCG@5 if there are `growth` times as many documents."""
    n_doublings = float(np.log2(max(1.0, growth)))
    share = min(1.0, words_per_document / PAIRS_GAIN_WORDS)
    return {PAIRS: PAIRS_GAIN_PER_DOUBLING * share * n_doublings, CHARS: CHARS_GAIN_PER_DOUBLING * n_doublings}


def is_significant(gain: np.ndarray) -> bool:
    """Return True if the mean of paired differences is positive in a one-sided test."""
    return bool(gain.mean() > MIN_GAIN_STANDARD_ERRORS * gain.std() / len(gain) ** 0.5)


def split_folds(texts: list[str], Y: csr_array) -> list[AnalyzerTrial]:
    """Return the trials of a cross-validation of labelled documents in random order."""
    fold = np.arange(len(texts)) % N_FOLDS
    return [AnalyzerTrial.from_texts(texts, Y, fold == i) for i in range(N_FOLDS)]


@dataclass(frozen=True)
class AnalyzerTrial:
    """Training sample and held-out sample for the comparison of analyzers."""

    train_texts: list[str]
    held_out: list[str]
    Y: csr_array  # labels of the training sample
    truth: csr_array  # labels of the held-out sample; labels that do not occur in the training sample come last

    @classmethod
    def from_texts(cls, texts: list[str], Y: csr_array, is_held_out: np.ndarray) -> AnalyzerTrial:
        """Divide labelled documents."""
        train, held_out = np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
        has_documents = np.bincount(Y[train].indices, minlength=Y.shape[1]) > 0
        Y = csr_array(Y[:, np.argsort(~has_documents, kind="stable")])
        return cls(
            [texts[i] for i in train],
            [texts[i] for i in held_out],
            csr_array(Y[train][:, : has_documents.sum()]),
            csr_array(Y[held_out]),
        )

    def score(self, view: Tfidf, analyzer: str, run: Run) -> np.ndarray:
        """Return the nDCG@5 of each held-out document."""
        view = view.replace(min_df=min(2, view.min_df))  # the sample has fewer documents than the corpus
        fitted, bag = view.replace(analyzer=analyzer).fit(self.train_texts, run)
        model = Parabel(n_trees=1).fit(Dataset({"tfidf": bag}, self.Y), run=run)
        predictions = model.predict(Dataset({"tfidf": fitted.transform(self.held_out, run)}), 5, run)
        return evaluate_per_document(predictions, self.truth, "nDCG@5")["nDCG@5"]
