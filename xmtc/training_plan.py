"""Training plans for the method `auto`: the members of a stacked combination that can be trained within a time budget.

Linear methods are trained on two sizes of a sample of the documents, on each view of the texts. The larger one gives
the nDCG@5 of held-out documents; both give the training time on all documents. Members are added as long as the time
suffices: first the one with the best nDCG@5, then `lexical` if there is a vocabulary, then the others in the order of
their usual speed, because every further view or method adds about as much. Methods that are far behind are left out.
If the time suffices for one method only, the plan is the best that is fast enough.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from xmtc.analyzer_selection import select_document_analyzer
from xmtc.core.dataset import Bag, Dataset
from xmtc.core.hyperparameters import format_cli_value
from xmtc.core.memory import get_memory_limit
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.data.label_collector import LabelCollector
from xmtc.errors import XmtcError
from xmtc.evaluation import evaluate_per_document
from xmtc.evaluation.learning_curves import CorpusSize, extrapolate_seconds
from xmtc.features import View, extract_contents
from xmtc.features.tfidf import Tfidf
from xmtc.methods import as_method
from xmtc.methods.ensemble.auto import Auto
from xmtc.methods.ensemble.members import name_members
from xmtc.methods.ensemble.stacked import MAX_RANKER_CANDIDATES, choose_fold_number
from xmtc.scores.calibration import count_trainings
from xmtc.text.analyzers import AUTO

MIN_TRIAL_DOCUMENTS = 500  # fewer give no comparison
MAX_TRIAL_DOCUMENTS, MAX_HELD_OUT_DOCUMENTS, HELD_OUT_SHARE = 4000, 1000, 0.2
SIZE_RATIO = 4  # of the two sizes of the sample
WARM_UP_DOCUMENTS = 50  # compiled code is loaded before the first trial
TRIAL_BUDGET_SHARE = 0.15  # of the time budget, for all trials
BUDGET_SHARE = 0.8  # that a plan may use; estimates are wrong by up to the rest
STACKING_BUDGET_SHARE = 0.75  # after which no further member is trained
RANKER_SECONDS_PER_CANDIDATE = 1e-4
CANDIDATES_PER_MEMBER = 12  # of each document; members have most in common
MEMORY_SHARE, COPIES, BYTES_PER_FEATURE = 0.5, 3, 8  # of a feature matrix during training
FALLBACK = "parabel"  # fastest method
# A stacked combination gains from members on different views, also on words where pairs of words are better alone.
MAX_LAG = 0.05  # in nDCG@5 behind the best; members that are farther behind add nothing to a combination
LEXICAL_SECONDS_PER_WORD = 1e-6


class PlanCandidate(NamedTuple):
    """Method and analyzer of its view; an empty analyzer is that of the corpus."""

    analyzer: str
    method: str
    ngram_min_lift: float | None = None  # of terms of several words, if it is not the default

    @property
    def name(self) -> str:
        every = "" if self.ngram_min_lift is None else "all of "
        return f"{self.method} on {every}{self.analyzer}" if self.analyzer else self.method

    @property
    def view_parameters(self) -> dict[str, Any]:
        """Parameters of the view that are not those of the corpus."""
        values = {"analyzer": self.analyzer or None, "ngram_min_lift": self.ngram_min_lift}
        return {name: value for name, value in values.items() if value is not None}


LEXICAL = PlanCandidate("", "lexical")
CANDIDATES = (
    PlanCandidate("", "parabel"),
    PlanCandidate("", "bonsai"),
    PlanCandidate("", "dismec"),
    PlanCandidate("words:1-2", "dismec", ngram_min_lift=0.0),  # one-vs-all gains from all pairs, label trees do not
    PlanCandidate("words", "dismec"),
    PlanCandidate("words", "bonsai"),
    PlanCandidate("chars", "dismec"),
    PlanCandidate("", "fastxml"),
    PlanCandidate("", "annexml"),
)


@dataclass(frozen=True)
class Trial:
    """Result of a candidate on the sample, and its expected costs on all documents."""

    candidate: PlanCandidate
    value: float  # nDCG@5
    view_seconds: float
    seconds: float  # of one training


@dataclass(frozen=True)
class TrainingPlan:
    """Method and parameters to train, and the reason."""

    method: str
    parameters: dict[str, str]  # as typed on the command line
    reason: str
    minutes: float
    seconds: float = field(default=0.0, compare=False)  # expected

    @property
    def arguments(self) -> str:
        """Options of `xmtc train` that repeat the plan."""
        words = ["-m", self.method, *(word for pair in self.parameters.items() for word in ("-p", "=".join(pair)))]
        return shlex.join(words)

    def with_parameters(self, values: Mapping[str, Any]) -> TrainingPlan:
        """Return a copy with further parameters; those of the plan take precedence."""
        further = {name: format_cli_value(value) for name, value in values.items() if name not in self.parameters}
        return replace(self, parameters=self.parameters | further)

    def as_json(self) -> dict[str, Any]:
        return {"minutes": self.minutes, "arguments": self.arguments, "because": self.reason}


@dataclass(frozen=True)
class Sample:
    """Random sample of the labelled documents: two sizes for training, and held-out documents."""

    documents: list[Document]  # training documents first
    Y: csr_array
    n_train: int
    n_docs: int  # of the corpus
    n_labels: int

    def count_words(self) -> float:
        """Return the expected number of words of the corpus."""
        return self.n_docs / len(self.documents) * sum(1 + document.text.count(" ") for document in self.documents)

    @classmethod
    def draw(cls, documents: Iterable[Document], seed: int) -> Sample:
        collector = LabelCollector()
        labelled = [document for document in collector.collect(documents) if document.labels]
        n_held_out = min(MAX_HELD_OUT_DOCUMENTS, int(HELD_OUT_SHARE * len(labelled)))
        n_train = min(MAX_TRIAL_DOCUMENTS, len(labelled) - n_held_out)
        rows = np.random.default_rng(seed).permutation(len(labelled))[: n_train + n_held_out]
        chosen, sampled = [labelled[row] for row in rows], LabelCollector()
        for _ in sampled.collect(chosen):
            pass
        Y = sampled.to_matrix(sorted(sampled.id_by_label))
        return cls(chosen, Y, n_train, len(labelled), len(collector.id_by_label))

    def select(self, bag: Bag, n_docs: int) -> Dataset:
        """Return the first training documents with the labels that they have."""
        Y = self.Y[:n_docs]
        return Dataset({"tfidf": bag.select_rows(slice(n_docs))}, Y[:, np.unique(Y.indices)])

    def order_labels(self) -> csr_array:
        """Return the labels of the held-out documents; those that training lacks come last."""
        is_known = np.bincount(self.Y[: self.n_train].indices, minlength=self.Y.shape[1]) > 0
        return csr_array(self.Y[self.n_train :][:, np.argsort(~is_known, kind="stable")])


def make_training_plan(
    method: Auto, view: View, documents: Sequence[Document], run: Run, naming: Mapping[str, Any] | None = None
) -> TrainingPlan:
    """Return the plan for documents; `view` has the parameters that the user set, and `naming` are the parameters of
    `lexical`, if there is a vocabulary."""
    begin, budget = perf_counter(), 60 * method.minutes
    parameters = {}
    if isinstance(view, Tfidf) and view.analyzer == AUTO:
        parameters["analyzer"] = select_document_analyzer(documents, run, view)
    sample = Sample.draw(documents, method.seed)
    if len(sample.documents) < MIN_TRIAL_DOCUMENTS:
        reason = f"{sample.n_docs:,} labelled documents are too few to compare methods"
        return TrainingPlan("dismec", parameters, reason, method.minutes)
    candidates = list_candidates(view, parameters.get("analyzer"))
    trials = run_trials(candidates, view.replace(**parameters), sample, begin + TRIAL_BUDGET_SHARE * budget, run)
    if not trials:
        return TrainingPlan(FALLBACK, parameters, "the memory suffices for no other method", method.minutes)
    values = ", ".join(f"{trial.candidate.name} {100 * trial.value:.1f}" for trial in trials)
    measured = f"nDCG@5 after {sample.n_train:,} documents: {values}"
    seconds_left = BUDGET_SHARE * budget - (perf_counter() - begin)
    matching = [Trial(LEXICAL, 0.0, 0.0, LEXICAL_SECONDS_PER_WORD * sample.count_words())] if naming else []
    members, seconds = select_members([*trials, *matching], sample, seconds_left)
    if len(members) > 1:
        own = {f"{LEXICAL.method}.{name}": format_cli_value(value) for name, value in (naming or {}).items()}
        parameters |= own if any(member.candidate == LEXICAL for member in members) else {}
        return make_stacking_plan(method, members, parameters, measured, seconds)
    best, seconds = select_single(trials, sample, seconds_left)
    own = {name: format_cli_value(value) for name, value in best.candidate.view_parameters.items()}
    reason = f"the time suffices for one method; {measured}"
    return TrainingPlan(best.candidate.method, parameters | own, reason, method.minutes, seconds)


def list_candidates(view: View, analyzer: str | None) -> list[PlanCandidate]:
    """Return the candidates, the fastest first; with an analyzer of the user, only those on it.

    Analyzers that contradict other parameters of the user, such as ngrams=2, are left out."""
    if not isinstance(view, Tfidf) or analyzer is None:
        return [candidate for candidate in CANDIDATES if not candidate.view_parameters]
    others = (candidate for candidate in CANDIDATES if candidate.view_parameters != {"analyzer": analyzer})
    return [candidate for candidate in others if is_compatible(view, candidate)]


def is_compatible(view: View, candidate: PlanCandidate) -> bool:
    """Return True if the parameters that the user set allow those of the candidate, and differ from them."""
    own = candidate.view_parameters
    if own.keys() & view.explicit_values.keys() - {"analyzer"}:
        return False
    try:
        view.replace(**own)
    except XmtcError:
        return False
    return True


def run_trials(
    candidates: Sequence[PlanCandidate], view: View, sample: Sample, deadline: float, run: Run
) -> list[Trial]:
    """Try the candidates until the deadline; leave out those that need too much memory."""
    trials: list[Trial] = []
    bags: dict[tuple[Any, ...], tuple[Bag, float]] = {}
    with run.stage("comparing methods on a sample"):
        for candidate in candidates:
            if trials and perf_counter() > deadline:
                break
            key = tuple(candidate.view_parameters.values())
            if key not in bags:
                bags[key] = fit_sample_view(candidate, view, sample, run.for_trial())
            bag, view_seconds = bags[key]
            if estimate_memory(bag, sample.n_docs) < MEMORY_SHARE * get_memory_limit():
                limit = deadline if trials else float("inf")
                trial = run_trial(candidate, bag, view_seconds, sample, run.for_trial(), limit)
                trials += [trial] if trial else []
    return trials


def fit_sample_view(candidate: PlanCandidate, view: View, sample: Sample, run: Run) -> tuple[Bag, float]:
    """Return the sample in the view of a candidate, and the expected time for all documents."""
    begin = perf_counter()
    _, bag = view.replace(**candidate.view_parameters).fit(extract_contents(sample.documents, view.input_kind), run)
    assert isinstance(bag, Bag)
    return bag, sample.n_docs / len(sample.documents) * (perf_counter() - begin)


def estimate_memory(bag: Bag, n_docs: int) -> float:
    """Return the memory for the features of all documents, in bytes."""
    return bag.matrix.nnz / bag.n_docs * n_docs * BYTES_PER_FEATURE * COPIES


def run_trial(
    candidate: PlanCandidate, bag: Bag, view_seconds: float, sample: Sample, run: Run, deadline: float
) -> Trial | None:
    """Train a candidate on both sizes of the sample; return None if the larger one would take past the deadline."""
    method = as_method(candidate.method)
    method.fit(sample.select(bag, WARM_UP_DOCUMENTS), run=run)
    times: list[tuple[CorpusSize, float]] = []
    model = None
    for n_docs in (sample.n_train // SIZE_RATIO, sample.n_train):
        if times and perf_counter() + SIZE_RATIO * times[0][1] > deadline:
            return None
        training, begin = sample.select(bag, n_docs), perf_counter()
        model = method.fit(training, run=run)
        times.append((CorpusSize(n_docs, training.n_labels), perf_counter() - begin))
    assert model is not None
    held_out = Dataset({"tfidf": bag.select_rows(slice(sample.n_train, None))})
    values = evaluate_per_document(model.predict(held_out, 5, run), sample.order_labels(), "nDCG@5")["nDCG@5"]
    seconds = extrapolate_seconds(CorpusSize(sample.n_docs, sample.n_labels), times)
    return Trial(candidate, float(values.mean()), view_seconds, seconds)


def select_members(trials: Sequence[Trial], sample: Sample, seconds_left: float) -> tuple[list[Trial], float]:
    """Return the members of a stacked combination that the time suffices for, and the expected time."""
    n_trainings = 1 + choose_fold_number(sample.n_docs)
    fitting = [trial for trial in trials if trial.candidate.method != FALLBACK]
    best = max(fitting, key=lambda trial: trial.value, default=None)
    fitting = [trial for trial in fitting if is_worth_adding(trial, best)]
    members: list[Trial] = []
    total = 0.0
    for trial in sorted(fitting, key=lambda trial: (trial is not best, trial.candidate != LEXICAL)):
        has_view = any(member.candidate.view_parameters == trial.candidate.view_parameters for member in members)
        seconds = n_trainings * trial.seconds + (0.0 if has_view else trial.view_seconds)
        ranker = estimate_ranker_seconds(sample.n_docs, len(members) + 1)
        if total + seconds + ranker <= seconds_left:
            members.append(trial)
            total += seconds
    return members, total + estimate_ranker_seconds(sample.n_docs, len(members))


def is_worth_adding(trial: Trial, best: Trial | None) -> bool:
    """Return False for a member far behind the best; `lexical`, which finds other labels, is always worth adding."""
    return best is None or trial.candidate == LEXICAL or trial.value > best.value - MAX_LAG


def estimate_ranker_seconds(n_docs: int, n_members: int) -> float:
    return RANKER_SECONDS_PER_CANDIDATE * min(MAX_RANKER_CANDIDATES, CANDIDATES_PER_MEMBER * n_docs * n_members)


def select_single(trials: Sequence[Trial], sample: Sample, seconds_left: float) -> tuple[Trial, float]:
    """Return the best method that the time suffices for, or else the fastest one, and the expected time."""
    costs = [
        trial.view_seconds + count_trainings(as_method(trial.candidate.method), sample.n_docs) * trial.seconds
        for trial in trials
    ]
    pairs = list(zip(trials, costs, strict=True))
    fitting = [pair for pair in pairs if pair[1] <= seconds_left]
    if fitting:
        return max(fitting, key=lambda pair: pair[0].value)
    return min(pairs, key=lambda pair: pair[1])


def make_stacking_plan(
    method: Auto, members: Sequence[Trial], shared: dict[str, str], measured: str, seconds: float
) -> TrainingPlan:
    """Return the plan of a stacked combination; a limit drops its last members if they are slower than expected."""
    names = [trial.candidate.method for trial in members]
    own = {
        f"{name}.{parameter}": format_cli_value(value)
        for name, trial in zip(name_members(names), members, strict=True)
        for parameter, value in trial.candidate.view_parameters.items()
    }
    seed = {"seed": str(method.seed)} if method.seed else {}
    limit = {"minutes": f"{STACKING_BUDGET_SHARE * method.minutes:g}"}
    parameters = {"members": ",".join(names), **shared, **own, **seed, **limit}
    return TrainingPlan("stacked", parameters, measured, method.minutes, seconds)
