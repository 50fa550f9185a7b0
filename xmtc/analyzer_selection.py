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
from xmtc.evaluation import per_document
from xmtc.features import TEXTS, contents
from xmtc.features.tfidf import Tfidf
from xmtc.features.word_counts import FEW_NEW, Counted
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.text.analyzers import GRAMS, SNOWBALL, WORDS
from xmtc.text.languages import language_of, share_without_blanks
from xmtc.text.tokenizer import Tokenizer

FEWEST = 1000  # documents, below which a trial would not tell
MOST_DOCUMENTS, MOST_WORDS = 4000, 300_000  # of a trial
HELD_OUT = 0.25
GAIN, CERTAINTY = 0.01, 2.0  # what a trial must gain over words: in nDCG@5, and in standard errors
NEAR = 0.005  # of nDCG@5: the cheaper of two that are so near is taken
MOSTLY, PARTLY = 0.5, 0.1  # of letters that are written without blanks between words


@dataclass(frozen=True)
class Chosen:
    """An analyzer, and why."""

    analyzer: str
    because: str

    def as_json(self) -> dict[str, str]:
        """As about.json has it."""
        return {"analyzer": self.analyzer, "because": self.because}


def analyzer_for(corpus: Corpus, run: Run) -> str:
    """What a training on a corpus of texts would choose, without the training."""
    view, collector = Tfidf(), LabelCollector()
    texts = contents(collector.watch(corpus.in_batches(run)), TEXTS)
    counted = Counted.of(view.tokenizer(), texts, run)
    if not counted.n_words:
        return WORDS
    return choose(view, counted, lambda: collector.matrix(sorted(collector.numbers)), run).analyzer


def choose(view: Tfidf, counted: Counted, labels: Callable[[], csr_array], run: Run) -> Chosen:
    """The analyzer for documents whose words were counted, and whose labels are known when all have been read."""
    if view.ngrams > 1:
        return Chosen(WORDS, f"with ngrams={view.ngrams}, terms are runs of words")
    unspaced = share_without_blanks(counted.text)
    if unspaced >= PARTLY:
        analyzer = GRAMS if unspaced >= MOSTLY else f"{WORDS}+{GRAMS}"
        return Chosen(analyzer, f"{unspaced:.0%} of the letters are of scripts without blanks between words")
    if counted.n_docs < FEWEST:
        return Chosen(WORDS, f"{counted.n_docs:,} documents are too few to try others; {FEWEST:,} would do")
    if counted.new_words < FEW_NEW:
        return Chosen(WORDS, f"only {counted.new_words:.1%} of the words of new documents will be unknown")
    Y = labels()
    if (n_labelled := np.count_nonzero(np.diff(Y.indptr))) < FEWEST:
        return Chosen(WORDS, f"{n_labelled:,} documents with labels are too few to try others; {FEWEST:,} would do")
    return tried(view, counted, Y, run)


def tried(view: Tfidf, counted: Counted, Y: csr_array, run: Run) -> Chosen:
    """The cheapest of those that are nearly as good as the best, if they are better than words."""
    language = language_of(counted.text, counted.ends, counted.frequencies)
    stems = [f"{SNOWBALL}:{language}"] if language else []
    with run.stage("choosing the analyzer"):
        trial = Trial.of(counted, Y)
        found = {name: trial.score(view, name, run.without_output()) for name in (WORDS, *stems, GRAMS, f"{WORDS}+{GRAMS}")}
    usual = found[WORDS]
    better = {name: score for name, score in found.items() if is_better(score, usual)}
    top = max((score.mean() for score in better.values()), default=0)
    analyzer = next((name for name, score in better.items() if score.mean() >= top - NEAR), WORDS)
    scores = ", ".join(f"{name} {100 * score.mean():.1f}" for name, score in found.items())
    reason = f"{counted.new_words:.1%} of the words of new documents will be unknown"
    return Chosen(analyzer, f"{reason}; nDCG@5 of {len(usual):,} documents held out: {scores}")


def is_better(score: np.ndarray, usual: np.ndarray) -> bool:
    gain = score - usual
    return bool(gain.mean() > max(GAIN, CERTAINTY * gain.std() / len(gain) ** 0.5))


@dataclass(frozen=True)
class Trial:
    """Some documents to learn from, and some that are held out."""

    seen: Counted
    held_out: Counted
    Y: csr_array  # of the first
    truth: csr_array  # of the second; labels that only they have come last

    @classmethod
    def of(cls, counted: Counted, Y: csr_array) -> Trial:
        """The same documents for the same corpus; only those that have labels."""
        order = np.random.default_rng(0).permutation(np.flatnonzero(np.diff(Y.indptr)))[:MOST_DOCUMENTS]
        order = order[: max(FEWEST, int(np.searchsorted(np.cumsum(counted.lengths[order]), MOST_WORDS)))]
        n_held_out = int(HELD_OUT * len(order))
        held_out, seen = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
        has_documents = np.bincount(Y[seen].indices, minlength=Y.shape[1]) > 0
        columns = np.argsort(~has_documents, kind="stable")
        Y = csr_array(Y[:, columns])
        return cls(
            counted.rows(seen), counted.rows(held_out), csr_array(Y[seen][:, : has_documents.sum()]), Y[held_out]
        )

    def score(self, view: Tfidf, analyzer: str, run: Run) -> np.ndarray:
        """nDCG@5 of each document that is held out."""
        view = view.replace(min_df=min(2, view.min_df))  # of fewer documents
        fitted, shown = view.learn(self.seen, Tokenizer(), analyzer, run)
        model = Parabel(n_trees=1).fit(Dataset({"tfidf": shown}, self.Y), run=run)
        held_out = Bag(fitted.show(self.held_out.as_counts()))
        found = model.predict(Dataset({"tfidf": held_out}), 5, run)
        return per_document(found, self.truth, "nDCG@5")["nDCG@5"]
