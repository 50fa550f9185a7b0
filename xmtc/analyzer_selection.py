"""Selection of the text analyzer for `analyzer=auto`.

Words are sufficient if few words of a new document are missing from the training documents. If many are missing, as in
languages with rich inflection or in short texts, one Parabel tree is trained on a sample of the documents with each of:
words, stems, character n-grams, and words joined with n-grams. Another analyzer replaces words only if its nDCG@5 is
significantly higher."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.dataset import Bag, Dataset
from xmtc.core.run import Run
from xmtc.data.corpus import Corpus
from xmtc.data.label_collector import LabelCollector
from xmtc.evaluation import evaluate_per_document
from xmtc.features import TEXTS, extract_contents
from xmtc.features.tfidf import Tfidf
from xmtc.features.word_counts import MAX_NEW_WORD_SHARE, WordCounts
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.text.analyzers import GRAMS, SNOWBALL, WORDS
from xmtc.text.languages import detect_language, measure_unspaced_share

MIN_TRIAL_DOCUMENTS = 1000  # a smaller sample gives no reliable comparison
MAX_TRIAL_DOCUMENTS = 4000
MAX_TRIAL_WORDS = 300_000
HELD_OUT_SHARE = 0.25  # of the documents of a trial
MIN_NDCG_GAIN = 0.01  # minimum gain of another analyzer over words, in nDCG@5
MIN_GAIN_STANDARD_ERRORS = 2.0  # minimum gain, in standard errors of the gain
NDCG_TIE_TOLERANCE = 0.005  # among analyzers within this distance of the best, the cheapest is selected
MAINLY_UNSPACED_SHARE = 0.5  # share of letters of scripts without spaces, from which only n-grams are used
PARTLY_UNSPACED_SHARE = 0.1  # share from which n-grams are joined with words


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
    view, collector = Tfidf(), LabelCollector()
    texts = extract_contents(collector.collect(corpus.iter_batches(run)), TEXTS)
    return select_analyzer(view, view.count_words(texts, run), collector, run).analyzer


def select_analyzer(view: Tfidf, counts: WordCounts, collector: LabelCollector, run: Run) -> AnalyzerChoice:
    """Select the analyzer from the word counts of the training documents and their collected labels."""
    if not counts.n_words:
        return AnalyzerChoice(WORDS, "the documents contain no words")
    if view.ngrams > 1:
        return AnalyzerChoice(WORDS, f"ngrams={view.ngrams} requires words")
    unspaced = measure_unspaced_share(counts.text)
    if unspaced >= PARTLY_UNSPACED_SHARE:
        analyzer = GRAMS if unspaced >= MAINLY_UNSPACED_SHARE else f"{WORDS}+{GRAMS}"
        return AnalyzerChoice(analyzer, f"{unspaced:.0%} of the letters belong to scripts without spaces between words")
    if counts.n_docs < MIN_TRIAL_DOCUMENTS:
        return AnalyzerChoice(
            WORDS, f"{counts.n_docs:,} documents are too few to compare analyzers; {MIN_TRIAL_DOCUMENTS:,} are needed"
        )
    if counts.new_word_share < MAX_NEW_WORD_SHARE:
        return AnalyzerChoice(WORDS, f"only {describe_new_words(counts)}")
    Y = collector.to_matrix(sorted(collector.id_by_label))
    if (n_labelled := np.count_nonzero(np.diff(Y.indptr))) < MIN_TRIAL_DOCUMENTS:
        return AnalyzerChoice(
            WORDS,
            f"{n_labelled:,} labelled documents are too few to compare analyzers; {MIN_TRIAL_DOCUMENTS:,} are needed",
        )
    return select_analyzer_by_trial(view, counts, Y, run)


def describe_new_words(counts: WordCounts) -> str:
    return f"{counts.new_word_share:.1%} of the words of new documents will be unknown"


def select_analyzer_by_trial(view: Tfidf, counts: WordCounts, Y: csr_array, run: Run) -> AnalyzerChoice:
    """Select the cheapest analyzer whose held-out nDCG@5 is near the best, or words if none is significantly better."""
    language = detect_language(counts.text, counts.ends, counts.frequencies)
    stems = [f"{SNOWBALL}:{language}"] if language else []
    candidates = (WORDS, *stems, GRAMS, f"{WORDS}+{GRAMS}")  # cheapest first
    with run.stage("selecting the analyzer"):
        trial = AnalyzerTrial.from_counts(counts, Y)
        scores = {analyzer: trial.score(view, analyzer, run.for_trial()) for analyzer in candidates}
    baseline = scores[WORDS]
    better = {analyzer: score.mean() for analyzer, score in scores.items() if is_better(score, baseline)}
    best = max(better.values(), default=0)
    selected = next((analyzer for analyzer, mean in better.items() if mean >= best - NDCG_TIE_TOLERANCE), WORDS)
    means = ", ".join(f"{analyzer} {100 * score.mean():.1f}" for analyzer, score in scores.items())
    reason = f"{describe_new_words(counts)}; nDCG@5 of {len(baseline):,} held-out documents: {means}"
    return AnalyzerChoice(selected, reason)


def is_better(score: np.ndarray, baseline: np.ndarray) -> bool:
    gain = score - baseline
    return bool(gain.mean() > max(MIN_NDCG_GAIN, MIN_GAIN_STANDARD_ERRORS * gain.std() / len(gain) ** 0.5))


@dataclass(frozen=True)
class AnalyzerTrial:
    """Training sample and held-out sample for the comparison of analyzers."""

    train_counts: WordCounts
    held_out: WordCounts
    Y: csr_array  # labels of the training sample
    truth: csr_array  # labels of the held-out sample; labels that do not occur in the training sample come last

    @classmethod
    def from_counts(cls, counts: WordCounts, Y: csr_array) -> AnalyzerTrial:
        """Draw both samples from the labelled documents, with a fixed seed."""
        order = np.random.default_rng(0).permutation(np.flatnonzero(np.diff(Y.indptr)))[:MAX_TRIAL_DOCUMENTS]
        n_within_words = int(np.searchsorted(np.cumsum(counts.lengths[order]), MAX_TRIAL_WORDS))
        order = order[: max(MIN_TRIAL_DOCUMENTS, n_within_words)]
        n_held_out = int(HELD_OUT_SHARE * len(order))
        held_out, train = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
        has_documents = np.bincount(Y[train].indices, minlength=Y.shape[1]) > 0
        Y = csr_array(Y[:, np.argsort(~has_documents, kind="stable")])
        return cls(
            counts.select_documents(train),
            counts.select_documents(held_out),
            csr_array(Y[train][:, : has_documents.sum()]),
            Y[held_out],
        )

    def score(self, view: Tfidf, analyzer: str, run: Run) -> np.ndarray:
        """Return the nDCG@5 of each held-out document."""
        view = view.replace(min_df=min(2, view.min_df))  # the sample has fewer documents than the corpus
        fitted, bag = view.fit_counts(self.train_counts, analyzer, run)
        model = Parabel(n_trees=1).fit(Dataset({"tfidf": bag}, self.Y), run=run)
        held_out = Bag(fitted.weigh_counts(self.held_out.to_batch_counts()))
        predictions = model.predict(Dataset({"tfidf": held_out}), 5, run)
        return evaluate_per_document(predictions, self.truth, "nDCG@5")["nDCG@5"]
