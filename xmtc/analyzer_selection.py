"""analyzer=auto: which terms suit the documents of a corpus, found by trying them on a few.

Words are enough where new documents hold few words that training has not seen. Where they hold many, as in languages
of many word forms or in short texts, one tree of Parabel is trained on a part of the documents with words, stems,
character n-grams and words beside n-grams; what costs more has to be better than words by more than chance."""

from __future__ import annotations

from collections.abc import Callable
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
from xmtc.text.tokenizer import Tokenizer

MIN_TRIAL_DOCUMENTS = 1000  # documents, below which a trial would not tell
MAX_TRIAL_DOCUMENTS, MAX_TRIAL_WORDS = 4000, 300_000  # of a trial
HELD_OUT_SHARE = 0.25
MIN_NDCG_GAIN, MIN_GAIN_STANDARD_ERRORS = (
    0.01,
    2.0,
)  # what a trial must gain over words: in nDCG@5, and in standard errors
NDCG_TIE_TOLERANCE = 0.005  # of nDCG@5: the cheaper of two that are so near is taken
MAINLY_UNSPACED_SHARE, PARTLY_UNSPACED_SHARE = 0.5, 0.1  # of letters that are written without blanks between words


@dataclass(frozen=True)
class AnalyzerChoice:
    """An analyzer, and why."""

    analyzer: str
    reason: str

    def as_json(self) -> dict[str, str]:
        """As about.json has it."""
        return {"analyzer": self.analyzer, "because": self.reason}


def select_corpus_analyzer(corpus: Corpus, run: Run) -> str:
    """What a training on a corpus of texts would choose, without the training."""
    view, collector = Tfidf(), LabelCollector()
    texts = extract_contents(collector.collect(corpus.iter_batches(run)), TEXTS)
    counted = WordCounts.from_texts(view.build_tokenizer(), texts, run)
    if not counted.n_words:
        return WORDS
    return select_analyzer(view, counted, lambda: collector.to_matrix(sorted(collector.id_by_label)), run).analyzer


def select_analyzer(view: Tfidf, counted: WordCounts, load_labels: Callable[[], csr_array], run: Run) -> AnalyzerChoice:
    """The analyzer for documents whose words were counted, and whose labels are known when all have been read."""
    if view.ngrams > 1:
        return AnalyzerChoice(WORDS, f"with ngrams={view.ngrams}, terms are runs of words")
    unspaced = measure_unspaced_share(counted.text)
    if unspaced >= PARTLY_UNSPACED_SHARE:
        analyzer = GRAMS if unspaced >= MAINLY_UNSPACED_SHARE else f"{WORDS}+{GRAMS}"
        return AnalyzerChoice(analyzer, f"{unspaced:.0%} of the letters are of scripts without blanks between words")
    if counted.n_docs < MIN_TRIAL_DOCUMENTS:
        return AnalyzerChoice(
            WORDS, f"{counted.n_docs:,} documents are too few to try others; {MIN_TRIAL_DOCUMENTS:,} would do"
        )
    if counted.new_word_share < MAX_NEW_WORD_SHARE:
        return AnalyzerChoice(WORDS, f"only {counted.new_word_share:.1%} of the words of new documents will be unknown")
    Y = load_labels()
    if (n_labelled := np.count_nonzero(np.diff(Y.indptr))) < MIN_TRIAL_DOCUMENTS:
        return AnalyzerChoice(
            WORDS, f"{n_labelled:,} documents with labels are too few to try others; {MIN_TRIAL_DOCUMENTS:,} would do"
        )
    return select_analyzer_by_trial(view, counted, Y, run)


def select_analyzer_by_trial(view: Tfidf, counted: WordCounts, Y: csr_array, run: Run) -> AnalyzerChoice:
    """The cheapest of those that are nearly as good as the best, if they are better than words."""
    language = detect_language(counted.text, counted.ends, counted.frequencies)
    stems = [f"{SNOWBALL}:{language}"] if language else []
    with run.stage("choosing the analyzer"):
        trial = AnalyzerTrial.from_counts(counted, Y)
        found = {
            name: trial.score(view, name, run.without_output()) for name in (WORDS, *stems, GRAMS, f"{WORDS}+{GRAMS}")
        }
    usual = found[WORDS]
    better = {name: score for name, score in found.items() if is_better(score, usual)}
    top = max((score.mean() for score in better.values()), default=0)
    analyzer = next((name for name, score in better.items() if score.mean() >= top - NDCG_TIE_TOLERANCE), WORDS)
    scores = ", ".join(f"{name} {100 * score.mean():.1f}" for name, score in found.items())
    reason = f"{counted.new_word_share:.1%} of the words of new documents will be unknown"
    return AnalyzerChoice(analyzer, f"{reason}; nDCG@5 of {len(usual):,} documents held out: {scores}")


def is_better(score: np.ndarray, baseline: np.ndarray) -> bool:
    gain = score - baseline
    return bool(gain.mean() > max(MIN_NDCG_GAIN, MIN_GAIN_STANDARD_ERRORS * gain.std() / len(gain) ** 0.5))


@dataclass(frozen=True)
class AnalyzerTrial:
    """Some documents to learn from, and some that are held out."""

    train_counts: WordCounts
    held_out: WordCounts
    Y: csr_array  # of the first
    truth: csr_array  # of the second; labels that only they have come last

    @classmethod
    def from_counts(cls, counted: WordCounts, Y: csr_array) -> AnalyzerTrial:
        """The same documents for the same corpus; only those that have labels."""
        order = np.random.default_rng(0).permutation(np.flatnonzero(np.diff(Y.indptr)))[:MAX_TRIAL_DOCUMENTS]
        order = order[
            : max(MIN_TRIAL_DOCUMENTS, int(np.searchsorted(np.cumsum(counted.lengths[order]), MAX_TRIAL_WORDS)))
        ]
        n_held_out = int(HELD_OUT_SHARE * len(order))
        held_out, seen = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
        has_documents = np.bincount(Y[seen].indices, minlength=Y.shape[1]) > 0
        columns = np.argsort(~has_documents, kind="stable")
        Y = csr_array(Y[:, columns])
        return cls(
            counted.select_documents(seen),
            counted.select_documents(held_out),
            csr_array(Y[seen][:, : has_documents.sum()]),
            Y[held_out],
        )

    def score(self, view: Tfidf, analyzer: str, run: Run) -> np.ndarray:
        """nDCG@5 of each document that is held out."""
        view = view.replace(min_df=min(2, view.min_df))  # of fewer documents
        fitted, shown = view.fit_counts(self.train_counts, Tokenizer(), analyzer, run)
        model = Parabel(n_trees=1).fit(Dataset({"tfidf": shown}, self.Y), run=run)
        held_out = Bag(fitted.weigh_counts(self.held_out.to_batch_counts()))
        found = model.predict(Dataset({"tfidf": held_out}), 5, run)
        return evaluate_per_document(found, self.truth, "nDCG@5")["nDCG@5"]
