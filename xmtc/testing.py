"""Conformance tests for methods, also of other packages: `xmtc.testing.check_method(MyMethod())`.

The corpus is synthetic: every label has its own words, and a document has the labels whose words it contains. Each
function in CHECKS tests one rule of the Method contract, and raises AssertionError if it is broken.
"""

from __future__ import annotations

import filecmp
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_array, hstack

from xmtc.classifier import Classifier
from xmtc.core.dataset import Bag, Dataset, Tokens
from xmtc.core.method import Method
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.in_memory import to_documents
from xmtc.errors import XmtcError
from xmtc.pipeline import Pipeline
from xmtc.text import tokenizer

__all__ = ["CHECKS", "check_method", "make_planted_corpus", "planted_label", "planted_words"]

LabelledTexts = tuple[list[str], list[list[str]]]  # texts and their labels

N_LABELS = 40
NOISE_WORDS = [f"noise{i}" for i in range(200)]
ONE_THREAD = Run(threads=1, device="cpu")  # small networks are slower on several
LONG_RANKING_K = 10  # more labels than any document has


def planted_label(label: int) -> str:
    """Return the name of a label of the synthetic corpus.

    Parameters
    ----------
    label : int
        Number of the label.

    Returns
    -------
    str
        Name of the label.

    Examples
    --------
    >>> planted_label(7)
    'label-07'
    """
    return f"label-{label:02d}"


def planted_words(label: int) -> list[str]:
    """Return the words of a label of the synthetic corpus.

    Parameters
    ----------
    label : int
        Number of the label.

    Returns
    -------
    list of str
        Words that occur only in documents with the label.

    Examples
    --------
    >>> planted_words(7)
    ['word7alpha', 'word7beta', 'word7gamma']
    """
    return [f"word{label}{part}" for part in ("alpha", "beta", "gamma")]


def make_planted_corpus(n_docs: int, seed: int) -> LabelledTexts:
    """Return texts and labels: one to three labels per text, with two words of each label and eight noise words.

    Parameters
    ----------
    n_docs : int
        Number of texts.
    seed : int
        Random seed.

    Returns
    -------
    tuple of list
        Texts, and the labels of each text.

    Examples
    --------
    >>> texts, labels = make_planted_corpus(10, seed=0)
    >>> len(texts), len(labels)
    (10, 10)
    """
    rng = np.random.default_rng(seed)
    texts, tags = [], []
    for _ in range(n_docs):
        labels = rng.choice(N_LABELS, rng.integers(1, 4), replace=False)
        words = [word for label in labels for word in rng.choice(planted_words(label), 2, replace=False)]
        words += list(rng.choice(NOISE_WORDS, 8))
        rng.shuffle(words)
        texts.append(" ".join(words))
        tags.append([planted_label(label) for label in labels])
    return texts, tags


def check_method(method: Method | str, min_precision: float = 0.95, **parameters: Any) -> None:
    """Run all conformance tests on a method.

    Parameters
    ----------
    method
        A Method, or the name of one.
    min_precision
        P@1 that the method must exceed on the synthetic corpus.
    **parameters
        Hyper-parameters that make the training quick, if `method` is a name.

    Raises
    ------
    AssertionError
        If the method breaks a rule of the Method contract.

    Examples
    --------
    >>> check_method("dismec")
    """
    case = MethodCase(method, parameters, min_precision)
    for check in CHECKS:
        check(case)


@dataclass(frozen=True)
class MethodCase:
    """A method under test, with its training data and trained model."""

    method: Method | str
    parameters: dict[str, Any]
    min_precision: float = 0.95

    @cached_property
    def train(self) -> LabelledTexts:
        return make_planted_corpus(800, seed=1)

    @cached_property
    def test(self) -> LabelledTexts:
        return make_planted_corpus(200, seed=2)

    @cached_property
    def built_method(self) -> Method:
        return Pipeline.from_parameters(self.method, parameters=self.parameters).method

    @cached_property
    def dataset(self) -> Dataset:
        """Training data of the method."""
        return (
            Pipeline.from_parameters(self.method, parameters=self.parameters)
            .prepare(to_documents(*self.train), ONE_THREAD)
            .data
        )

    @cached_property
    def classifier(self) -> Classifier:
        return self.fit(*self.train)

    def fit(self, texts: list[str], tags: list[list[str]], run: Run = ONE_THREAD, **more: Any) -> Classifier:
        return Classifier(self.method, **(self.parameters | more)).fit(texts, tags, run=run)

    def rank(self, texts: list[str], k: int = 5) -> Predictions:
        return self.classifier.rank(texts, k, ONE_THREAD)


def check_planted_labels(case: MethodCase) -> None:
    scores = case.classifier.evaluate(*case.test, ["P@1", "R@5"], run=ONE_THREAD)
    assert scores["P@1"] > case.min_precision, f"P@1 is {scores['P@1']:.3f}, expected more than {case.min_precision}"
    assert scores["R@5"] > case.min_precision - 0.03, (
        f"R@5 is {scores['R@5']:.3f}, expected more than {case.min_precision - 0.03:.2f}"
    )


def check_ranking(case: MethodCase) -> None:
    answer = case.rank(case.test[0], LONG_RANKING_K)
    assert (answer.labels.dtype, answer.scores.dtype) == (np.int32, np.float32)
    assert (np.diff(answer.scores, axis=1) <= 0).all(), "scores are not descending"
    assert ((answer.scores >= 0) & (answer.scores <= 1)).all(), "scores are not between 0 and 1"
    for row in answer.labels:
        found = row[row != NO_LABEL]
        assert len(set(found)) == len(found), "a label is named twice"
        assert ((found >= 0) & (found < N_LABELS)).all(), "a label is out of range"


def check_k_prefix(case: MethodCase) -> None:
    long = case.rank(case.test[0], N_LABELS)
    for k in (1, 3, 7, 20, 25):
        short = case.rank(case.test[0], k)
        assert short.labels.shape == (len(case.test[0]), k)
        np.testing.assert_array_equal(short.labels, long.labels[:, :k])
        np.testing.assert_allclose(short.scores, long.scores[:, :k], rtol=0 if case.built_method.is_exact else 1e-5)


def check_metrics_are_independent(case: MethodCase) -> None:
    """Compare metrics that are computed alone with the same metrics beside others, and with rankings of their k."""
    metrics = ["P@1", "nDCG@5", "micro-F1@0.5", f"R@{N_LABELS}"]
    together = case.classifier.evaluate(*case.test, metrics, run=ONE_THREAD)
    for metric in metrics:
        alone = case.classifier.evaluate(*case.test, [metric], run=ONE_THREAD)[metric]
        assert alone == together[metric], f"{metric} is {alone} alone and {together[metric]} beside other metrics"


def check_scores_agree_with_ranking(case: MethodCase) -> None:
    """Compare `predict_proba` with the scores of a short ranking."""
    texts = case.test[0][:20]
    ranking, scores = case.rank(texts, 5), case.classifier.predict_proba(texts, run=ONE_THREAD)
    is_label = ranking.labels != NO_LABEL
    found = np.take_along_axis(scores, np.maximum(ranking.labels, 0), axis=1)
    np.testing.assert_allclose(
        found[is_label], ranking.scores[is_label], rtol=0 if case.built_method.is_exact else 1e-5
    )
    np.put_along_axis(scores, np.maximum(ranking.labels, 0), 0, axis=1)
    rest = scores.max(axis=1)[is_label.all(axis=1)]
    assert (rest <= ranking.scores[is_label.all(axis=1), -1] * (1 + 1e-5)).all(), (
        "a label outside the ranking is better"
    )


def check_k_above_n_labels(case: MethodCase) -> None:
    assert case.rank(case.test[0][:3], 10 * N_LABELS).k == N_LABELS


def check_reproducibility(case: MethodCase) -> None:
    threads = (1, 2 if case.built_method.is_exact else 1)
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder) / "one", Path(folder) / "two"
        for target, n in zip((one, two), threads, strict=True):
            case.fit(*case.train, run=replace(ONE_THREAD, threads=n)).save(target)
        files = sorted(path.name for path in one.iterdir() if path.name != "history.jsonl")  # which has seconds in it
        assert files == ["about.json", "arrays.safetensors"]
        assert filecmp.cmpfiles(one, two, files, shallow=False) == (files, [], [])


def check_seed_changes_model(case: MethodCase) -> None:
    if "seed" not in {field.name for field in fields(case.built_method)}:
        return
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder) / "one", Path(folder) / "two"
        case.classifier.save(one)
        case.fit(*case.train, seed=5).save(two)
        assert not filecmp.cmp(one / "arrays.safetensors", two / "arrays.safetensors", shallow=False)


def check_save_and_load(case: MethodCase) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case.classifier.save(Path(folder) / "model")
        loaded = Classifier.load(Path(folder) / "model", verify=True)
        assert loaded.tagger_.about == case.classifier.tagger_.about
        found, expected = loaded.rank(case.test[0], run=ONE_THREAD), case.rank(case.test[0])
        np.testing.assert_array_equal(found.labels, expected.labels)
        np.testing.assert_array_equal(found.scores, expected.scores)


def check_batch_invariance(case: MethodCase) -> None:
    """Compare predictions of single documents and of a batch; networks may swap labels with nearly equal scores."""
    exact, batch = case.built_method.is_exact, case.rank(case.test[0][:20])
    for i in range(20):
        one = case.rank([case.test[0][i]])
        np.testing.assert_allclose(one.scores[0], batch.scores[i], rtol=1e-6 if exact else 1e-4)
        apart = np.abs(np.diff(one.scores[0], prepend=2, append=-1)) > (-1 if exact else 1e-6)
        clear = apart[1:] & apart[:-1]  # from the previous and the next score
        np.testing.assert_array_equal(one.labels[0][clear], batch.labels[i][clear])


def check_thread_invariance(case: MethodCase) -> None:
    texts, pieces = case.train[0] + case.test[0], PieceCounter()
    with patch.object(
        tokenizer.batch_texts, "__defaults__", (2000,)
    ):  # small batches, so that there is work for two threads
        runs = (replace(ONE_THREAD, threads=threads, progress=pieces) for threads in (1, 2))
        one, two = (case.classifier.rank(texts, run=run) for run in runs)
    np.testing.assert_array_equal(one.labels, two.labels)
    np.testing.assert_allclose(one.scores, two.scores, rtol=0 if case.built_method.is_exact else 1e-5)
    assert min(pieces.counts.values(), default=2) >= 2, "the work was not split between two threads"


def check_unknown_texts(case: MethodCase) -> None:
    texts = ["", "unheard-of ïn træining", " \n "]
    answer, silent = case.classifier.rank(texts, 3, ONE_THREAD, always=True), case.rank([*texts, *case.test[0][:5]], 3)
    unknown = np.array([not case.classifier.tagger_.has_known_words(text) for text in texts])
    assert answer.labels.shape == (3, 3)
    assert (silent.labels[:3][unknown] == NO_LABEL).all(), "a text without a known word gets a label"
    np.testing.assert_array_equal(silent.labels[:3][~unknown], answer.labels[~unknown])
    assert (silent.labels[3:, 0] != NO_LABEL).all(), "a text with known words gets no label"
    assert np.isfinite(answer.scores).all()
    # a text without known words equals an empty text, except for subwords
    has_subwords = not {"subwords", "dense"}.isdisjoint(case.built_method.required_views)
    for other in (2,) if has_subwords else (1, 2):
        np.testing.assert_allclose(answer.scores[0], answer.scores[other], rtol=1e-4)
        if case.built_method.is_exact:
            np.testing.assert_array_equal(answer.labels[0], answer.labels[other])


def check_empty_input(case: MethodCase) -> None:
    assert case.rank([], 3).labels.shape == (0, 3)


def check_unseen_labels(case: MethodCase) -> None:
    texts, tags = case.test
    with_stranger = [[*labels, "stranger"] for labels in tags]
    known, strange = (case.classifier.evaluate(texts, y, ["P@1", "R@5"], run=ONE_THREAD) for y in (tags, with_stranger))
    assert strange["P@1"] == known["P@1"]
    assert strange["R@5"] < known["R@5"]


def check_unlabelled_documents(case: MethodCase) -> None:
    texts, tags = case.train
    classifier = case.fit([*texts, "noise1 noise2", ""], [*tags, [], []])
    assert classifier.evaluate(*case.test, ["P@1"], run=ONE_THREAD)["P@1"] > case.min_precision - 0.01


def check_single_label(case: MethodCase) -> None:
    more: dict[str, Any] = {"min_df": 1} if "min_df" in case.classifier.get_params() else {}
    classifier = case.fit(["a text", "another text"], [["only"], ["only"]], **more)
    first, *others = classifier.predict_labels(["a text"], run=ONE_THREAD, always=True)[0]
    assert first.label == "only"
    assert not others or case.built_method.has_label_name_input, "it predicts labels that it does not know"


def check_explanation(case: MethodCase) -> None:
    for label in (3, 17):
        text = " ".join([*planted_words(label)[:2], "noise1", "noise2", "noise3"])
        explained = case.classifier.explain(text, planted_label(label))
        assert explained[0][0] in planted_words(label), (
            f"{explained[0][0]!r} has the largest weight for {planted_label(label)}"
        )
        weights = [weight for _, weight in explained]
        assert weights == sorted(weights, reverse=True)


def check_wider_dataset_is_refused(case: MethodCase) -> None:
    tagger = case.classifier.tagger_
    data = tagger.transform(to_documents(case.test[0][:3]), ONE_THREAD)
    tagger.model.predict(data, run=ONE_THREAD)
    wider = Dataset({name: widen_view(view) for name, view in data.views.items()})
    assert is_refused(lambda: tagger.model.predict(wider, run=ONE_THREAD)), "it accepts documents with unknown columns"


def widen_view(view: Bag | Tokens) -> Bag | Tokens:
    """Return a view with an additional column or token id."""
    if isinstance(view, Tokens):
        return replace(view, size=view.size + 1)
    return Bag(hstack([view.matrix, csr_array((view.n_docs, 1), dtype=np.float32)]))


def is_refused(work: Callable[[], Any]) -> bool:
    try:
        work()
    except XmtcError:
        return True
    return False


def check_document_weights(case: MethodCase) -> None:
    """Compare integer weights with repeated documents; half of the documents have wrong labels, so weights matter."""
    true, weights = case.dataset, np.where(np.arange(case.dataset.n_docs) % 2, 3, 1)
    assert true.Y is not None
    half = replace(true, Y=csr_array(np.where(weights[:, None] == 1, true.Y.toarray()[::-1], true.Y.toarray())))
    if not case.built_method.has_weight_support:
        assert is_refused(lambda: case.built_method.fit(replace(half, weights=weights), run=ONE_THREAD)), (
            "it ignores weights"
        )
        return

    def scores(data: Dataset) -> np.ndarray:
        found = case.built_method.fit(data, run=ONE_THREAD).predict(true, N_LABELS, ONE_THREAD)
        by_label = np.zeros((found.n_docs, N_LABELS + 1), np.float32)  # the last for NO_LABEL, which is -1
        np.put_along_axis(by_label, found.labels, found.scores, axis=1)
        return by_label

    absent, thrice = half.select_rows(weights == 3), half.select_rows(np.repeat(np.arange(half.n_docs), weights))
    for wanted, given in ((absent, weights == 3), (thrice, weights)):
        expected, found = scores(wanted), scores(replace(half, weights=given))
        apart = np.abs(scores(half) - expected).mean()
        assert np.abs(found - expected).mean() < 0.1 * apart, "a weight of 3 differs from three copies of a document"


CHECKS = (
    check_planted_labels,
    check_ranking,
    check_k_prefix,
    check_metrics_are_independent,
    check_scores_agree_with_ranking,
    check_k_above_n_labels,
    check_reproducibility,
    check_seed_changes_model,
    check_save_and_load,
    check_batch_invariance,
    check_thread_invariance,
    check_unknown_texts,
    check_empty_input,
    check_unseen_labels,
    check_unlabelled_documents,
    check_single_label,
    check_explanation,
    check_wider_dataset_is_refused,
    check_document_weights,
)


class PieceCounter:
    """Progress callback that counts the pieces of each stage."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    @contextmanager
    def __call__(self, title: str, total: float | None = None) -> Iterator[PieceCounter]:
        self.title = title
        yield self

    def advance(self, steps: float = 1) -> None:
        self.counts[self.title] += 1

    def set_status(self, news: str) -> None:
        return None
