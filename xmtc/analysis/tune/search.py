"""Hyper-parameter search: train on one part of the data, evaluate on the other.

Optuna's TPE sampler proposes the parameters. The first trial has the current parameters, as far as the search space
contains them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from math import inf, isfinite
from time import perf_counter
from types import ModuleType
from typing import Any

from scipy.sparse import csr_array

from xmtc import features
from xmtc.analysis.trials import run_in_process
from xmtc.analysis.tune.space import Choice, Range, Space
from xmtc.cluster.scheduling import map_on_cluster
from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import ParameterSet, param
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.data.label_collector import LabelCollector
from xmtc.errors import XmtcError, as_missing_extra
from xmtc.evaluation import has_decision_metric, has_hierarchical_metric, max_k, parse_metric
from xmtc.methods import method_name
from xmtc.pipeline import Pipeline, TrainingData


@dataclass(frozen=True)
class TuningGoal(ParameterSet):
    """Metric to optimise, and limits of the search.

    Examples
    --------
    >>> TuningGoal("p@1", trials=5).metric
    'P@1'
    """

    metric: str = param("nDCG@5", "Metric of the validation documents.")
    trials: int = param(20, "Maximum number of trials.", low=1)
    minutes: float = param(0.0, "Minutes after which no trial starts; 0 means no limit.", low=0.0)
    seed: int = param(0, "Random seed of the proposed parameters.", low=0, high=2**32 - 1)
    at_once: int = param(1, "Number of trials proposed together, before the first of them ends.", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "metric", parse_metric(self.metric).name)
        check_tuning_metric(self.metric)

    def goodness(self, trial: TuningTrial) -> float:
        """Return a number that is larger for better trials; 0 for a failed one."""
        return 0.0 if trial.value is None else parse_metric(self.metric).goodness(trial.value)


def check_tuning_metric(name: str) -> None:
    """Raise XmtcError for a metric that needs a vocabulary or tuned thresholds, which models of a search lack."""
    missing = "a vocabulary" if has_hierarchical_metric(name) else "a decision" if has_decision_metric(name) else ""
    if missing:
        alternative = "P@1" if has_hierarchical_metric(name) else f"{name.partition('@')[0]}@0.5"
        raise XmtcError(
            f"--metric {name} needs {missing}, which the models of a search do not have; use another metric, such as "
            f"{alternative}, and evaluate {name} on the final model."
        )


@dataclass(frozen=True)
class TuningTrial:
    """Training with one set of parameters, and its metric."""

    number: int
    parameters: dict[str, Any]
    value: float | None  # of the metric, as a fraction; None after a failure
    seconds: float
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the trial as a JSON event."""
        return {"event": "trial", **asdict(self)}


@dataclass(frozen=True)
class PreparedData:
    """Views of the training and validation documents."""

    training: TrainingData
    held_out: Dataset  # labels of the training documents only
    truth: csr_array  # all labels; those that training lacks come last


class TrialEvaluator:
    """Trainer of parameters. Consecutive trials with the same views share the prepared data."""

    def __init__(self, train: Iterable[Document], valid: Iterable[Document], metric: str, run: Run) -> None:
        self.train, self.valid, self.metric, self.k = train, valid, metric, max_k([metric])
        self.run = run
        self.latest: PreparedData | None = None

    def evaluate_pipeline(self, pipeline: Pipeline) -> float:
        """Train, with the validation documents for early stopping, and return the metric on these."""
        data = self.prepare_views(pipeline)
        tagger = data.training.train(pipeline.method, data.held_out, self.run)
        predictions = tagger.model.predict(data.held_out, self.k, self.run)
        return next(iter(tagger.evaluate_predictions(predictions, data.truth, [self.metric]).values()))

    def prepare_views(self, pipeline: Pipeline) -> PreparedData:
        recipe = pipeline.views, pipeline.names
        if self.latest is None or (self.latest.training.views, self.latest.training.names) != recipe:
            self.latest = None  # frees its memory before the next one is built
            training = pipeline.prepare(self.train, self.run)
            collector, names = LabelCollector(), training.labels.words()
            data = features.transform(training.fitted_views, collector.collect(self.valid), self.run)
            truth = collector.to_matrix(names)
            self.latest = PreparedData(training, replace(data, Y=truth[:, : len(names)]), truth)
        return self.latest

    def run_trial(self, number: int, pipeline: Pipeline, parameters: dict[str, Any]) -> TuningTrial:
        result = run_in_process(lambda: self.evaluate_pipeline(pipeline.with_parameters(parameters)))
        value, failure = result.value, result.failure
        if value is not None and not isfinite(value):
            value, failure = None, f"{self.metric} has no value on the validation documents; choose another metric."
        return TuningTrial(number, parameters, value, result.seconds, failure)

    def run_trials(
        self, first_number: int, pipeline: Pipeline, proposals: list[dict[str, Any]]
    ) -> Iterator[TuningTrial]:
        """Yield trials in order; on a cluster, several run in parallel."""
        numbered = enumerate(proposals, first_number)
        if not self.run.cluster or len(proposals) == 1:
            return (self.run_trial(number, pipeline, parameters) for number, parameters in numbered)

        def run_remotely(job: tuple[int, dict[str, Any], TrialEvaluator | str]) -> TuningTrial:
            number, parameters, evaluator = job
            if isinstance(evaluator, str):
                return TuningTrial(number, parameters, None, 0.0, evaluator)
            return evaluator.run_trial(number, pipeline, parameters)

        jobs = ((number, parameters, self.make_remote_copy(pipeline, parameters)) for number, parameters in numbered)
        return (trial for trial, _ in map_on_cluster(self.run.cluster, run_remotely, jobs))

    def make_remote_copy(self, pipeline: Pipeline, parameters: dict[str, Any]) -> TrialEvaluator | str:
        """Return a copy with prepared data for a machine without the corpus, or the reason why there is none."""
        result = run_in_process(lambda: self.prepare_views(pipeline.with_parameters(parameters)))
        if result.failure:
            return result.failure
        evaluator = copy(self)
        evaluator.train, evaluator.valid, evaluator.run = (), (), Run(threads=1, device=self.run.device)
        return evaluator


def tune(
    train: Iterable[Document],
    valid: Iterable[Document],
    pipeline: Pipeline,
    space: Space,
    goal: TuningGoal = TuningGoal(),
    run: Run = Run(),
) -> list[TuningTrial]:
    """Search the hyper-parameters of a pipeline.

    Parameters
    ----------
    train, valid
        Training and validation documents; both are iterated over repeatedly (see `xmtc.data.splits.hold_out`).
    pipeline
        Method and views; parameters outside of the space keep their values.
    space
        Search space, see `build_search_space`.
    goal
        Metric to optimise, and limits of the search.
    run
        Threads, device, cluster and callbacks. Every trial is an event; the search ends if a callback returns True for
        it, and at Ctrl-C.

    Returns
    -------
    list of TuningTrial
        The best trial first, failed ones last.

    Raises
    ------
    XmtcError
        If every trial fails, or the method is `auto`.

    Examples
    --------
    >>> from xmtc.analysis.tune.space import Choice
    >>> from xmtc.data.in_memory import to_documents
    >>> documents = list(to_documents(["red apple", "blue sea"] * 10, [["fruit"], ["water"]] * 10))
    >>> pipeline = Pipeline.from_parameters("dismec")
    >>> trials = tune(documents, documents, pipeline, {"C": Choice((1.0, 2.0))}, TuningGoal("P@1", trials=2))
    >>> trials[0].value
    1.0
    """
    pipeline.refuse_auto("tune")
    evaluator = TrialEvaluator(train, valid, goal.metric, run.without_output())
    trials: dict[int, TuningTrial] = {}
    deadline = perf_counter() + 60 * goal.minutes if goal.minutes else inf
    with run.stage(f"tuning {method_name(pipeline.method)}", goal.trials) as progress:
        try:
            if not any(field.name in space for view in pipeline.views.values() for field in fields(view)):
                evaluator.prepare_views(pipeline)  # raises at once what would make all trials fail
            for trial in iter_trials(evaluator, pipeline, space, goal):
                is_new = trial.number not in trials
                should_stop = run.notify(trial) if is_new else False
                trials[trial.number] = trial
                progress.advance()
                best = max(trials.values(), key=goal.goodness)
                progress.set_status(f"best {goal.metric} {100 * (best.value or 0.0):.2f}")
                if should_stop or perf_counter() >= deadline:
                    break
        except KeyboardInterrupt:
            if not any(trial.value is not None for trial in trials.values()):
                raise
    return sort_trials(list(trials.values()), goal)


def iter_trials(evaluator: TrialEvaluator, pipeline: Pipeline, space: Space, goal: TuningGoal) -> Iterator[TuningTrial]:
    """Yield trials; parameters that are proposed again yield the same trial again without training."""
    optuna = import_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would log every trial
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=goal.seed))
    study.enqueue_trial(select_current_values(space, pipeline))
    distributions = {name: as_optuna_distribution(domain) for name, domain in space.items()}
    finished: dict[tuple, TuningTrial] = {}
    for n_before in range(0, goal.trials, goal.at_once):
        optuna_trials = [study.ask(distributions) for _ in range(min(goal.at_once, goal.trials - n_before))]
        proposals = [{name: round_value(space[name], x) for name, x in each.params.items()} for each in optuna_trials]
        keys = [tuple(parameters[name] for name in space) for parameters in proposals]
        missing = {key: parameters for key, parameters in zip(keys, proposals, strict=True) if key not in finished}
        trials = evaluator.run_trials(len(finished) + 1, pipeline, list(missing.values()))
        for key in keys:
            if key not in finished:
                finished[key] = next(trials)
            yield finished[key]
        for each, key in zip(optuna_trials, keys, strict=True):
            study.tell(each, goal.goodness(finished[key]))


def sort_trials(trials: list[TuningTrial], goal: TuningGoal) -> list[TuningTrial]:
    """Return the trials, the best first and failed ones last; raise XmtcError if all failed."""
    if all(trial.failure for trial in trials):
        raise XmtcError(f"Every trial failed. The last one: {trials[-1].failure}")
    return sorted(trials, key=lambda trial: (trial.value is None, -goal.goodness(trial), trial.number))


def select_current_values(space: Space, pipeline: Pipeline) -> dict[str, Any]:
    """Return the pipeline's values of the parameters in the space, where the space contains them."""
    values = {name: value for name, (_, value) in pipeline.parameters.items()}
    return {name: values[name] for name, domain in space.items() if values[name] in domain}


def round_value(domain: Range | Choice, value: Any) -> Any:
    """Round a number to three digits, which are enough and easy to type."""
    if isinstance(domain, Choice) or isinstance(value, int):
        return value
    return min(max(float(f"{value:.3g}"), domain.low), domain.high)


def as_optuna_distribution(domain: Range | Choice) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(domain, Choice):
        return CategoricalDistribution(domain.values)
    kind: Any = IntDistribution if isinstance(domain.low, int) else FloatDistribution
    return kind(domain.low, domain.high, log=domain.log)


def import_optuna() -> ModuleType:
    try:
        import optuna
    except ImportError as error:
        raise as_missing_extra("xmtc tune", error) from None
    return optuna
