"""Selection of the text analyzer for `analyzer=auto`.

One Parabel tree is trained on a sample of the documents with each of: words, stems, words and pairs of words, words
joined with character n-grams, and character n-grams. Every document of the sample is held out once (two folds), but
after the first fold only analyzers that are not significantly behind are trained again. Character n-grams alone cost
most and are tried only if they help words. Another analyzer replaces words only if its nDCG@5 is significantly higher.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Bag, Dataset
from xmtc.core.run import Run
from xmtc.data.batch import DocumentBatch, Texts
from xmtc.data.corpus import Corpus
from xmtc.data.document import Document
from xmtc.data.label_collector import LabelCollector
from xmtc.evaluation import evaluate_per_document
from xmtc.features import TEXTS, extract_contents
from xmtc.features.tfidf import Tfidf, TokenCounts
from xmtc.features.word_counts import WordCounts, count_texts
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.storage.disk_arrays import ArrayStore
from xmtc.text.analyzers import CHARS, SNOWBALL, WORDS
from xmtc.text.languages import detect_language, measure_unspaced_share
from xmtc.text.string_index import StringIndex
from xmtc.text.tokenizer import batch_texts

MIN_TRIAL_DOCUMENTS = 1000  # a smaller sample gives no reliable comparison
MAX_TRIAL_DOCUMENTS = 8000  # of a corpus of up to 200,000; with many labels, a larger corpus needs more
LARGE_TRIAL_SHARE, MAX_LARGE_TRIAL_DOCUMENTS = 0.04, 20_000
MAX_CHARS_TRIAL_WORDS = 300  # words per document, above which character n-grams cost much and gain nothing
MAX_TRIAL_WORDS, MAX_TRIAL_WORDS_WITH_CHARS = 1_500_000, 500_000  # of all documents; n-grams take most of the time
N_FOLDS = 2
MIN_GAIN_STANDARD_ERRORS = 1.645  # one-sided test of 5 %
MAX_DEFICIT_STANDARD_ERRORS = 2.0  # of an analyzer that is tried on the second fold
MIN_CHARS_GAIN = 0.01  # in nDCG@5 of words+chars over words, for a trial of chars alone
NDCG_TIE_TOLERANCE = 0.0005  # among analyzers within this distance of the best, the cheapest is selected
PAIRS, BOTH = f"{WORDS}:1-2", f"{WORDS}+{CHARS}"
# Change of the gain over words, in nDCG@5, for each doubling of the documents (docs/how-to/languages.md). That of stems
# and of words with character n-grams is for texts of at least LONG_TEXT_WORDS words; that of pairs of words is less in
# shorter ones.
PAIRS_GAIN_PER_DOUBLING, LONG_GAIN_PER_DOUBLING, LONG_TEXT_WORDS = 0.0015, -0.002, 100
CHARS_GAIN_PER_DOUBLING = -0.0015
MAINLY_UNSPACED_SHARE = 0.5  # share of letters of scripts without spaces, from which only n-grams are used
DEFAULT_VIEW = Tfidf()
MIN_SORTED_SHARE = 0.5  # of texts whose words are in alphabetical order, from which texts are sets of words
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

    def __init__(self, size: int = MAX_LARGE_TRIAL_DOCUMENTS) -> None:
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

    def draw_documents(self, Y: csr_array, labels: Sequence[str]) -> list[Document]:
        """Return the labelled documents of the sample in random order."""
        ids = ([labels[j] for j in Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()] for row in self.draw()[0])
        return [Document("", text, own) for text, own in zip(self.draw()[1], ids, strict=True) if own]

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
        analyzer = CHARS if unspaced >= MAINLY_UNSPACED_SHARE else BOTH
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
    n_docs, words_per_document = limit_sample(texts, counts.n_docs)
    candidates = list_candidates(counts, words_per_document)
    if not has_word_order(texts[:n_docs]):
        candidates.remove(PAIRS)
    trends = estimate_trends(candidates, words_per_document, counts.n_docs * N_FOLDS / n_docs)
    with run.stage("selecting the analyzer"):
        features = SampleFeatures(view, texts[:n_docs], run.for_trial())
        race = AnalyzerRace(features, candidates, trends)
        for trial in split_folds(csr_array(Y[:n_docs])):
            race.run_fold(trial)
    return AnalyzerChoice(race.select(), f"nDCG@5 of {n_docs:,} held-out documents: {race}")


def limit_sample(texts: Sequence[str], n_corpus: int) -> tuple[int, float]:
    """Return the number of documents for a trial in a corpus of `n_corpus`, and their mean number of words."""
    texts = texts[: max(MAX_TRIAL_DOCUMENTS, int(LARGE_TRIAL_SHARE * n_corpus))]
    n_words = np.cumsum([1 + text.count(" ") for text in texts])
    has_chars = n_words[-1] <= MAX_CHARS_TRIAL_WORDS * len(texts)
    limit = MAX_TRIAL_WORDS_WITH_CHARS if has_chars else MAX_TRIAL_WORDS
    n_docs = min(len(texts), max(MIN_TRIAL_DOCUMENTS, int(np.searchsorted(n_words, limit))))
    return n_docs, float(n_words[n_docs - 1] / n_docs)


def list_candidates(counts: WordCounts, words_per_document: float) -> list[str]:
    """Return the analyzers to compare, the cheapest first."""
    language = detect_language(counts.text, counts.ends, counts.frequencies)
    stems = [f"{SNOWBALL}:{language}"] if language else []
    has_chars = words_per_document <= MAX_CHARS_TRIAL_WORDS
    return [WORDS, *stems, PAIRS, *([BOTH, CHARS] if has_chars else [])]


def has_word_order(texts: Iterable[str]) -> bool:
    """Return False if the words of most texts are in alphabetical order: then pairs of neighbours mean nothing."""
    words = [text.split() for text in texts]
    return bool(np.mean([len(each) > 3 and each == sorted(each) for each in words] or [False]) < MIN_SORTED_SHARE)


def estimate_trends(candidates: Iterable[str], words_per_document: float, growth: float) -> dict[str, float]:
    """Return by how much gains over words change in nDCG@5 if there are `growth` times as many documents."""
    n_doublings = float(np.log2(max(1.0, growth)))
    share = min(1.0, words_per_document / LONG_TEXT_WORDS)
    trends = {PAIRS: PAIRS_GAIN_PER_DOUBLING * share * n_doublings, CHARS: CHARS_GAIN_PER_DOUBLING * n_doublings}
    long = LONG_GAIN_PER_DOUBLING * n_doublings if share >= 1 else 0.0
    return {name: trends.get(name, long) for name in candidates if name != WORDS}


def is_significant(gain: np.ndarray, n_standard_errors: float = MIN_GAIN_STANDARD_ERRORS) -> bool:
    """Return True if the mean of paired differences is positive in a one-sided test."""
    return bool(gain.mean() > n_standard_errors * gain.std() / len(gain) ** 0.5)


@dataclass(frozen=True)
class SampleFeatures:
    """Features of a sample of texts. Tokens are counted once for all analyzers that read them, and the features of
    held-out documents are made together with the others, which saves half of the time of a trial."""

    view: Tfidf
    texts: list[str]
    run: Run
    counts: TokenCounts = field(default_factory=dict)
    bags: dict[str, Bag] = field(default_factory=dict)

    def divide(self, analyzer: str, train: np.ndarray, held_out: np.ndarray) -> list[Bag]:
        """Return training and held-out documents with an analyzer that has seen the training documents only.

        Useful pairs of words are found again without the held-out documents: with these, pairs seem better than they
        are (docs/results/accuracy.md)."""
        if analyzer == PAIRS:
            view = self.view.replace(min_df=min(2, self.view.min_df), analyzer=analyzer, dense="")
            fitted, known = view.fit([self.texts[i] for i in train], self.run)
            transformed = fitted.transform([self.texts[i] for i in held_out], self.run)
            assert isinstance(transformed, Bag)
            return [known, transformed]
        if analyzer not in self.bags:
            self.bags[analyzer] = self.transform(analyzer)
        known = self.bags[analyzer].select_rows(train)
        parts = (known, self.bags[analyzer].select_rows(held_out))
        return select_known_terms(parts, count_terms(known), self.view)

    def transform(self, analyzer: str) -> Bag:
        """Return all documents with an analyzer."""
        # the sample has fewer documents than the corpus
        view = self.view.replace(min_df=min(2, self.view.min_df), analyzer=analyzer)
        missing = [tokenizer for tokenizer in view.list_tokenizers(analyzer) if tokenizer not in self.counts]
        self.counts.update(count_texts(missing, self.texts, self.run) if missing else {})
        return view.fit_counts(self.counts, analyzer, self.run)[1]


def select_known_terms(bags: Sequence[Bag], frequencies: np.ndarray, view: Tfidf) -> list[Bag]:
    """Return documents without the terms that are rare in the training documents: a training on these alone would not
    know them. Rows keep unit length."""
    is_known = frequencies >= min(2, view.min_df)
    first_ngram = bags[0].n_cluster_columns
    if first_ngram and isinstance(bags[0].vocabulary, StringIndex):  # the other columns are n-grams of words
        is_known[first_ngram:] = frequencies[first_ngram:] >= view.ngram_min_df
    return [bag.copy_with(matrix=select_columns(bag.matrix, is_known)) for bag in bags]


def select_columns(matrix: csr_array, is_kept: np.ndarray) -> csr_array:
    """Return rows of unit length without the values of the other columns."""
    kept = is_kept[matrix.indices]
    indptr = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr].astype(matrix.indptr.dtype)
    data, lengths = matrix.data[kept], np.diff(indptr)
    squares = np.add.reduceat(np.append(data**2, 0), indptr[:-1]) if len(lengths) else np.zeros(0)
    data /= np.repeat(np.sqrt(np.where(lengths > 0, squares, 1)), lengths).astype(np.float32)
    return csr_array((data, matrix.indices[kept], indptr), shape=matrix.shape)


def count_terms(bag: Bag) -> np.ndarray:
    """Return the document frequency of each term, shape (size,)."""
    return np.bincount(bag.matrix.indices, minlength=bag.size)


def split_folds(Y: csr_array) -> list[AnalyzerTrial]:
    """Return the trials of a cross-validation of labelled documents in random order."""
    fold = np.arange(Y.shape[0]) % N_FOLDS
    return [AnalyzerTrial.from_labels(Y, fold == i) for i in range(N_FOLDS)]


@dataclass(frozen=True)
class AnalyzerTrial:
    """Division of a sample into training and held-out documents."""

    train: np.ndarray  # rows
    held_out: np.ndarray
    Y: csr_array  # labels of the training documents
    truth: csr_array  # labels of the held-out documents; labels that no training document has come last

    @classmethod
    def from_labels(cls, Y: csr_array, is_held_out: np.ndarray) -> AnalyzerTrial:
        """Divide labelled documents."""
        train, held_out = np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
        has_documents = np.bincount(Y[train].indices, minlength=Y.shape[1]) > 0
        Y = csr_array(Y[:, np.argsort(~has_documents, kind="stable")])
        return cls(train, held_out, csr_array(Y[train][:, : has_documents.sum()]), csr_array(Y[held_out]))

    def score(self, features: SampleFeatures, analyzer: str) -> np.ndarray:
        """Return the nDCG@5 of each held-out document."""
        run, (train, held_out) = features.run, features.divide(analyzer, self.train, self.held_out)
        model = Parabel(n_trees=1).fit(Dataset({"tfidf": train}, self.Y), run=run)
        predictions = model.predict(Dataset({"tfidf": held_out}), 5, run)
        return evaluate_per_document(predictions, self.truth, "nDCG@5")["nDCG@5"]


class AnalyzerRace:
    """Comparison of analyzers, fold by fold, without those that are significantly behind the best."""

    def __init__(self, features: SampleFeatures, candidates: list[str], trends: Mapping[str, float]) -> None:
        self.features, self.candidates, self.trends = features, candidates, trends
        self.remaining = candidates
        self.scores: dict[str, np.ndarray] = {}  # nDCG@5 of the documents that were held out so far

    def run_fold(self, trial: AnalyzerTrial) -> None:
        """Train the remaining analyzers on a fold, unless only one remains."""
        if len(self.remaining) == 1:
            return
        for name in self.remaining if WORDS in self.remaining else [WORDS, *self.remaining]:
            if name == CHARS and self.scores and not self._is_worth_chars():
                continue
            score = trial.score(self.features, name)
            self.scores[name] = np.concatenate([self.scores.get(name, score[:0]), score])
        self._drop_losers()

    def _is_worth_chars(self) -> bool:
        both = self.scores[BOTH]
        return bool((both - self.scores[WORDS][: len(both)]).mean() >= MIN_CHARS_GAIN)

    def _drop_losers(self) -> None:
        n_docs = len(self.scores[WORDS])
        tried = [name for name in self.candidates if len(self.scores.get(name, ())) == n_docs]
        best = max(tried, key=lambda name: self.compute_gain(name).mean())
        deficits = {name: self.compute_gain(best) - self.compute_gain(name) for name in tried}
        self.remaining = [
            name for name, deficit in deficits.items() if not is_significant(deficit, MAX_DEFICIT_STANDARD_ERRORS)
        ]

    def compute_gain(self, name: str) -> np.ndarray:
        """Return the expected gain over words of each document that was held out with both."""
        score = self.scores[name]
        return score - self.scores[WORDS][: len(score)] + self.trends.get(name, 0.0)

    def select(self) -> str:
        """Return the cheapest of the remaining analyzers that are significantly better than words and near the best."""
        gains = {name: self.compute_gain(name) for name in self.remaining if name != WORDS}
        better = {name: gain.mean() for name, gain in gains.items() if is_significant(gain)}
        best = max(better.values(), default=0)
        return next((name for name, mean in better.items() if mean >= best - NDCG_TIE_TOLERANCE), WORDS)

    def __str__(self) -> str:
        means = ", ".join(
            WORDS + f" {100 * score.mean():.1f}"
            if name == WORDS
            else f"{name} {100 * self.compute_gain(name).mean():+.1f}"
            for name, score in self.scores.items()
        )
        expected = [f"{name} {100 * self.trends[name]:+.1f}" for name in self.scores if self.trends.get(name)]
        return means + (f" (with the expected change with all documents: {', '.join(expected)})" if expected else "")
