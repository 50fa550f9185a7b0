"""Stacked: models of several methods, combined by a ranker that is trained on their held-out scores.

Papers: Wolpert: Stacked Generalization (Neural Networks 1992); Friedman: Greedy Function Approximation: A Gradient
Boosting Machine (Annals of Statistics 2001).

Every member is trained once on all documents, for the model, and once more for each fold, without the documents of the
fold. The members without it predict the documents of a fold, so every training document has predictions of members that
have not seen it. The candidates of a document are the 20 best labels of each member. The ranker, gradient-boosted trees
of scikit-learn, learns which candidates are correct from each member's log-odds and rank, the mean of the log-odds, the
number of members that predict the label, and the logarithm of the label's frequency in training. A higher score of a
member never lowers the probability. Documents with equal features are in the same fold.

The number and the size of the trees are selected by cross-validation over documents. If the ranker is not better than
the best member, by more than two standard errors of the difference in nDCG@5, the model is that member alone.

The probabilities are calibrated by isotonic regression on the cross-validated predictions, or on the validation
documents if there are any. Fewer than 200 labelled documents are too few to compare members; the model is then the
first member alone, without calibration.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.core.checkpoint import claim_checkpoint
from xmtc.core.dataset import Bag, Dataset, Tokens
from xmtc.core.hyperparameters import ParameterSet, param
from xmtc.core.method import Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.splits import find_labelled_rows
from xmtc.errors import XmtcError
from xmtc.evaluation import RankedResults
from xmtc.methods import as_method
from xmtc.methods.ensemble.boosted_trees import BoostedTrees
from xmtc.methods.ensemble.calibrated_model import (
    SELECTION_METRIC,
    CalibratedModel,
    calibrate_model,
    calibrate_on_predictions,
    select_prediction_rows,
)
from xmtc.methods.ensemble.candidates import (
    CANDIDATE_LABELS,
    Candidates,
    build_features,
    collect_candidates,
    list_monotonic_constraints,
    mark_correct,
    rank_candidates,
    round_frequencies,
)
from xmtc.methods.ensemble.combination_rules import MEAN
from xmtc.methods.ensemble.holdout_model import CLAIM_PREFIX, iterate_fold_models
from xmtc.methods.ensemble.members import (
    MEMBER_VIEWS_PARAM,
    CombinedMethod,
    iterate_member_trainings,
    name_members,
    parse_member_views,
)
from xmtc.methods.ensemble.stacked_model import StackedModel

MIN_STACKING_DOCUMENTS = 200
FOLDS_BY_DOCUMENTS = ((10_000, 5), (30_000, 3))  # members of small corpora lose more by smaller folds
MIN_FOLDS = 2
NO_FOLD = -1  # of names of labels, which are never held out
SELECTION_FOLDS = 3
MAX_RANKER_CANDIDATES = 600_000  # more make the training slower, not the ranking better
MIN_GAIN_STANDARD_ERRORS = 2.0
MIN_LEAF_CANDIDATES, RANKER_L2 = 100, 10.0
RANKER_SETTINGS: tuple[dict[str, Any], ...] = (
    {"max_iter": 100, "max_leaf_nodes": 8, "learning_rate": 0.08},
    {"max_iter": 200, "max_leaf_nodes": 31, "learning_rate": 0.05},
)


@dataclass(frozen=True)
class Stacked(CombinedMethod):
    """Models of several methods, combined by boosted trees on their held-out scores (Wolpert, 1992).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import Bonsai, DiSMEC, Stacked
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> method = Stacked([DiSMEC(), Bonsai()])
    >>> classifier = Classifier(method).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    quick_parameters: ClassVar[dict[str, Any]] = {"members": ("parabel", "dismec"), "parabel.max_leaf": 8, "folds": 2}

    rule: ClassVar[str] = MEAN
    calibrated: ClassVar[bool] = True
    has_weight_support: ClassVar[bool] = False

    members: tuple[Any, ...] = param(("dismec", "bonsai"), "Methods of the members.", kind=ParameterSet)
    folds: int = param(
        0,
        "Number of folds for the held-out scores; 0 is 5, 3 from 10,000 and 2 from 30,000 documents on.",
        low=0,
        high=20,
    )
    seed: int = param(0, "Random seed of the folds and of the ranker.", low=0, high=2**32 - 1)
    minutes: float = param(0.0, "Time in minutes after which no further member is trained; 0 is no limit.", low=0)
    member_views: tuple[str, ...] = MEMBER_VIEWS_PARAM

    @property
    def has_name_documents(self) -> bool:
        """True if names of labels may be training documents of a member; the others are trained without them."""
        return any(member.has_name_documents for member in self.members)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "members", tuple(map(as_method, self.members)))
        if len(self.members) < 2:
            raise XmtcError(
                f"Stacked: found {len(self.members)} members, expected at least two, such as dismec,bonsai."
            )
        if self.folds == 1:
            raise XmtcError("Stacked: folds=1 is invalid; expected 0 (by the number of documents) or at least 2.")
        parse_member_views(self.members, self.member_views)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> CalibratedModel:
        claim_checkpoint(run, self, data)
        rows = find_labelled_rows(data)
        if len(rows) < MIN_STACKING_DOCUMENTS:
            return self._fit_first_member(data, valid, run)
        folds = assign_folds(data, self.folds or choose_fold_number(len(rows)), self.seed)
        models, held_out = self._fit_members(data, valid, folds, run)
        with run.stage("training the ranker"):
            examples = RankerExamples.sample(data, held_out, folds, self.seed)
            selection = select_ranker(examples, self.seed, run)
        return self._build_model(models, data, examples, selection, valid, run)

    def _fit_first_member(self, data: Dataset, valid: Dataset | None, run: Run) -> Any:
        training = next(iterate_member_trainings(self, data, run))
        own_valid = None if valid is None else training.select(valid)
        return training.to_combination(training.method.fit(training.select(data), own_valid, training.run))

    def _fit_members(
        self, data: Dataset, valid: Dataset | None, fold_numbers: np.ndarray, run: Run
    ) -> tuple[list[Model], list[Predictions]]:
        """Return the members' models, and for each member predictions of all documents by models without them."""
        folds = [np.flatnonzero(fold_numbers == number) for number in range(fold_numbers.max() + 1)]
        models: list[Model] = []
        held_out: list[Predictions] = []
        begin = perf_counter()
        for training in iterate_member_trainings(self, data, run):
            if models and self.minutes and perf_counter() - begin > 60 * self.minutes:
                break
            own, own_valid = training.select(data), None if valid is None else training.select(valid)
            claim_checkpoint(training.run, training.method, own, prefix=CLAIM_PREFIX)
            labels = np.full((data.n_docs, CANDIDATE_LABELS), NO_LABEL, np.int32)
            scores = np.zeros(labels.shape, np.float32)
            for rows, fold_model in iterate_fold_models(training.method, own, folds, training.run, own_valid):
                model = training.to_combination(fold_model)
                part = model.predict(data.keep_views(model.views).select_rows(rows), CANDIDATE_LABELS, training.run)
                labels[rows, : part.k], scores[rows, : part.k] = part.labels, part.scores
            held_out.append(Predictions.from_valid_arrays(labels, scores))
            model_run = replace(training.run, checkpoint=training.run.checkpoint.sub_checkpoint("model"))
            models.append(training.to_combination(training.method.fit(own, own_valid, model_run)))
        return models, held_out

    def _build_model(
        self,
        models: list[Model],
        data: Dataset,
        examples: RankerExamples,
        selection: RankerSelection,
        valid: Dataset | None,
        run: Run,
    ) -> CalibratedModel:
        """Return the combination with the ranker, or the best member alone, with calibrated scores."""
        n_seen = 1 - 1 / (1 + examples.folds.max())  # as for the members whose scores the ranker has learnt from
        model: Model = StackedModel(
            n_labels=data.n_labels,
            views={view: size for view, size in data.sizes.items() if any(view in model.views for model in models)},
            rule=self.rule,
            models=tuple(models),
            ranker=selection.ranker,
            frequencies=round_frequencies(n_seen * count_labels(data.document_labels)),
        )
        if not selection.is_better:
            model = models[selection.best_member]
        if valid is not None and len(find_labelled_rows(valid)) >= MIN_STACKING_DOCUMENTS:
            calibrated = calibrate_model(model, valid, CANDIDATE_LABELS, run)
        else:
            calibrated = calibrate_on_predictions(model, selection.predictions, examples.Y)
        return replace(calibrated, description=selection.describe(name_members(self.members)[: len(models)]))


class RankerExamples(NamedTuple):
    """Candidates of training documents, for the ranker. Documents are numbered anew."""

    candidates: Candidates
    X: np.ndarray  # features of the candidates
    is_correct: np.ndarray  # (n_candidates,)
    Y: csr_array  # labels of the documents
    folds: np.ndarray  # (n_docs,), fold of each document
    members: list[Predictions]  # held-out predictions of each member

    @classmethod
    def sample(cls, data: Dataset, held_out: list[Predictions], folds: np.ndarray, seed: int) -> RankerExamples:
        """Build the examples from labelled documents, a random sample of them if there are many."""
        assert data.Y is not None
        rows, width = find_labelled_rows(data), len(held_out) * CANDIDATE_LABELS
        n_rows = max(MIN_STACKING_DOCUMENTS, MAX_RANKER_CANDIDATES // width)
        rows = np.sort(np.random.default_rng(seed).permutation(rows)[:n_rows])
        members = [select_prediction_rows(part, rows) for part in held_out]
        candidates = collect_candidates(members, data.n_labels)
        fold_frequencies = np.stack(
            [
                round_frequencies(count_labels(data.Y[(folds != number) & (folds != NO_FOLD)]))
                for number in range(folds.max() + 1)
            ]
        )
        frequencies = fold_frequencies[folds[rows][candidates.documents], candidates.labels]
        X, Y = build_features(candidates, frequencies), data.Y[rows]
        return cls(candidates, X, mark_correct(candidates, Y), Y, folds[rows], members)

    def rank(self, scores: np.ndarray) -> Predictions:
        return rank_candidates(self.candidates, scores, self.Y.shape[0], CANDIDATE_LABELS)

    def measure(self, predictions: Predictions) -> np.ndarray:
        """Return the nDCG@5 of each document."""
        return SELECTION_METRIC.compute_per_document(RankedResults(predictions, self.Y))


class RankerSelection(NamedTuple):
    """Best ranker and best member, by cross-validated nDCG@5."""

    ranker: BoostedTrees
    predictions: Predictions  # held-out ones of the ranker, or of the best member if the ranker is not better
    best_member: int
    member_score: float
    ranker_score: float
    standard_error: float  # of the difference
    n_docs: int

    @property
    def is_better(self) -> bool:
        return self.ranker_score - self.member_score > MIN_GAIN_STANDARD_ERRORS * self.standard_error

    def describe(self, names: Sequence[str]) -> str:
        best, gain = names[self.best_member], 100 * (self.ranker_score - self.member_score)
        measured = (
            f"nDCG@5 of {self.n_docs:,} held-out documents {100 * self.ranker_score:.1f}, with {best} alone "
            f"{100 * self.member_score:.1f} (difference {gain:+.1f}, standard error {100 * self.standard_error:.1f})"
        )
        if self.is_better:
            return f"ranker of the scores of {', '.join(names)}: {measured}"
        return f"{best} alone, because the ranker is not significantly better: {measured}"


def select_ranker(examples: RankerExamples, seed: int, run: Run) -> RankerSelection:
    """Train the ranker with the settings of the highest cross-validated nDCG@5, and compare it with the members."""
    member_values = [examples.measure(part) for part in examples.members]
    best_member = int(np.argmax([values.mean() for values in member_values]))
    groups = np.random.default_rng(seed).permutation(examples.Y.shape[0]) % SELECTION_FOLDS
    rankings = [examples.rank(cross_validate(examples, groups, settings, seed, run)) for settings in RANKER_SETTINGS]
    ranker_values = [examples.measure(ranking) for ranking in rankings]
    best = int(np.argmax([values.mean() for values in ranker_values]))
    gain = ranker_values[best] - member_values[best_member]
    selection = RankerSelection(
        ranker=fit_ranker(examples, np.ones(len(examples.X), bool), RANKER_SETTINGS[best], seed),
        predictions=rankings[best],
        best_member=best_member,
        member_score=float(member_values[best_member].mean()),
        ranker_score=float(ranker_values[best].mean()),
        standard_error=float(gain.std() / np.sqrt(len(gain))),
        n_docs=len(gain),
    )
    return selection if selection.is_better else selection._replace(predictions=examples.members[best_member])


def cross_validate(
    examples: RankerExamples, groups: np.ndarray, settings: dict[str, Any], seed: int, run: Run
) -> np.ndarray:
    """Return the probability of each candidate by a ranker that has not seen its document."""
    group, scores = groups[examples.candidates.documents], np.zeros(len(examples.X))
    for number in range(SELECTION_FOLDS):
        ranker = fit_ranker(examples, group != number, settings, seed)
        scores[group == number] = ranker.predict_proba(examples.X[group == number], run)
    return scores


def fit_ranker(examples: RankerExamples, rows: np.ndarray, settings: dict[str, Any], seed: int) -> BoostedTrees:
    """Train boosted trees on some candidates; with one thread, because sums of several differ in the last digit."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # takes a second to import, and prediction needs none
    from threadpoolctl import threadpool_limits

    classifier = HistGradientBoostingClassifier(
        min_samples_leaf=MIN_LEAF_CANDIDATES,
        l2_regularization=RANKER_L2,
        monotonic_cst=list_monotonic_constraints(len(examples.members)),
        early_stopping=False,
        random_state=seed,
        **settings,
    )
    with threadpool_limits(1, user_api="openmp"):
        classifier.fit(examples.X[rows], examples.is_correct[rows])
    return BoostedTrees.from_classifier(classifier)


def choose_fold_number(n_docs: int) -> int:
    return next((n_folds for limit, n_folds in FOLDS_BY_DOCUMENTS if n_docs < limit), MIN_FOLDS)


def assign_folds(data: Dataset, n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each document, (n_docs,), or NO_FOLD for names of labels; documents with equal features have
    the same, unless too few documents differ."""
    digests = hash_documents(next(iter(data.views.values())))
    number_by_digest = {digest: number for number, digest in enumerate(dict.fromkeys(digests))}
    groups = np.array([number_by_digest[digest] for digest in digests])
    is_document = np.ones(data.n_docs, bool) if data.is_name is None else ~data.is_name
    if len(np.unique(groups[is_document])) < n_folds:
        groups = np.arange(data.n_docs)
    kept, groups_of_documents = np.unique(groups[is_document], return_inverse=True)
    folds = np.full(data.n_docs, NO_FOLD)
    folds[is_document] = (np.random.default_rng(seed).permutation(len(kept)) % n_folds)[groups_of_documents]
    return folds


def hash_documents(view: Bag | Tokens) -> list[bytes]:
    """Return a hash of the features of each document: its ids, and for a Bag their values."""
    parts: list[np.ndarray]
    if isinstance(view, Bag):
        parts, ends = [view.matrix.indices, view.matrix.data], view.matrix.indptr
    else:
        parts, ends = [view.ids], view.offsets
    spans = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    return [
        hashlib.blake2b(b"".join(part[begin:end].tobytes() for part in parts), digest_size=8).digest()
        for begin, end in spans
    ]


def count_labels(Y: csr_array) -> np.ndarray:
    """Return the number of documents of each label."""
    return np.bincount(Y.indices, minlength=Y.shape[1])
