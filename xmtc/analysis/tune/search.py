"""The search for good hyper-parameters: trainings on one part of the data, measured on another. Optuna's TPE sampler
chooses what to try next; the first trial is what would be trained without a search, where that lies in the space."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from math import inf, isfinite
from time import perf_counter
from types import ModuleType
from typing import Any, TypeVar

from xmtc import features
from xmtc.analysis.tune.space import Choice, Range, Space
from xmtc.cluster.scheduling import map_on_cluster
from xmtc.core.hyperparameters import ParameterSet, param
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.data.label_collector import LabelCollector
from xmtc.errors import XmtcError, as_missing_extra
from xmtc.evaluation import has_decision_metric, has_hierarchical_metric, max_k, parse_metric
from xmtc.methods import method_name
from xmtc.pipeline import Pipeline, TrainingData

Value = TypeVar("Value")


@dataclass(frozen=True)
class TuningGoal(ParameterSet):
    """What is to be as good as possible, and how long to look for it."""

    metric: str = param("nDCG@5", "metric of the validation documents")
    trials: int = param(20, "trainings at most", low=1)
    minutes: float = param(0.0, "begin no further trial after so many minutes (0: no limit)", low=0.0)
    seed: int = param(0, "seed of what is tried", low=0, high=2**32 - 1)
    at_once: int = param(1, "trials that are chosen together, before the first of them has ended", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "metric", parse_metric(self.metric).name)
        check_tuning_metric(self.metric)

    def goodness(self, trial: TuningTrial) -> float:
        """The larger, the better; a failure is as bad as can be."""
        return 0.0 if trial.value is None else parse_metric(self.metric).goodness(trial.value)


def check_tuning_metric(name: str) -> None:
    """Refuse, before the first training, what no trial can have: its models are given nothing once they are trained."""
    lacks = "a vocabulary" if has_hierarchical_metric(name) else "a decision" if has_decision_metric(name) else ""
    if lacks:
        instead = "P@1" if has_hierarchical_metric(name) else f"{name.partition('@')[0]}@0.5"
        raise XmtcError(
            f"--metric {name} needs {lacks}, which the models of a search do not have; search by another, such as "
            f"{instead}, and measure {name} of the model that is trained with what was found."
        )


@dataclass(frozen=True)
class TuningTrial:
    """One training and how good it was."""

    number: int
    parameters: dict[str, Any]
    value: float | None  # of the metric, as a fraction; None where it failed
    seconds: float
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        """As it is told to those who watch."""
        return {"event": "trial", **asdict(self)}


class TrialEvaluator:
    """Where parameters are tried. Documents become views once for as many trials in a row as need the same ones."""

    def __init__(self, train: Iterable[Document], valid: Iterable[Document], metric: str, run: Run) -> None:
        self.train, self.valid, self.metric, self.k = train, valid, metric, max_k([metric])
        self.run = run
        self.latest_prepared: TrainingData | None = None

    def evaluate_pipeline(self, pipeline: Pipeline) -> float:
        """Train on the one part, with the other to stop by where the method asks when to, and measure on that."""
        prepared = self.prepare_views(pipeline)
        tagger = prepared.train(pipeline.method, self.held_out, self.run)
        predictions = tagger.model.predict(self.held_out, self.k, self.run)
        return next(iter(tagger.evaluate_predictions(predictions, self.truth, [self.metric]).values()))

    def prepare_views(self, pipeline: Pipeline) -> TrainingData:
        if self.latest_prepared is None or self.latest_prepared.views != pipeline.views:
            self.latest_prepared = None  # so that never two are held
            prepared = pipeline.prepare(self.train, self.run)
            collector, names = LabelCollector(), prepared.labels.words()
            data = features.transform(prepared.fitted_views, collector.collect(self.valid), self.run)
            self.truth = collector.to_matrix(names)  # labels that training never saw come last
            self.held_out = replace(data, Y=self.truth[:, : len(names)])
            self.latest_prepared = prepared
        return self.latest_prepared

    def run_trial(self, number: int, pipeline: Pipeline, parameters: dict[str, Any]) -> TuningTrial:
        begin = perf_counter()
        value, failure = catch_failure(lambda: self.evaluate_pipeline(pipeline.with_parameters(parameters)))
        if value is not None and not isfinite(value):
            value, failure = None, f"{self.metric} has no value on the validation documents; choose another metric."
        return TuningTrial(number, parameters, value, perf_counter() - begin, failure)

    def run_trials(
        self, first_number: int, pipeline: Pipeline, proposed: list[dict[str, Any]]
    ) -> Iterator[TuningTrial]:
        """One after the other; several, on a cluster, beside each other."""
        jobs = enumerate(proposed, first_number)
        if not self.run.cluster or len(proposed) == 1:
            return (self.run_trial(number, pipeline, parameters) for number, parameters in jobs)

        def work(job: tuple[int, dict[str, Any], TrialEvaluator | str]) -> TuningTrial:
            number, parameters, bench = job
            if isinstance(bench, str):
                return TuningTrial(number, parameters, None, 0.0, bench)
            return bench.run_trial(number, pipeline, parameters)

        ready = ((number, parameters, self.make_remote_copy(pipeline, parameters)) for number, parameters in jobs)
        return (trial for trial, _ in map_on_cluster(self.run.cluster, work, ready))

    def make_remote_copy(self, pipeline: Pipeline, parameters: dict[str, Any]) -> TrialEvaluator | str:
        """The same for one trial on a machine that has no corpus; or why there is none."""
        _, failure = catch_failure(lambda: self.prepare_views(pipeline.with_parameters(parameters)))
        if failure:
            return failure
        bench = copy(self)
        bench.train, bench.valid, bench.run = (), (), Run(threads=1, device=self.run.device)
        return bench


def catch_failure(function: Callable[[], Value]) -> tuple[Value | None, str]:
    """What it comes to, or why it fails, where that is no fault of the program."""
    try:
        return function(), ""
    except XmtcError as error:
        return None, str(error)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None, "The memory is not enough for this trial; search smaller sizes."


def tune(
    train: Iterable[Document],
    valid: Iterable[Document],
    pipeline: Pipeline,
    space: Space,
    goal: TuningGoal = TuningGoal(),
    run: Run = Run(),
) -> list[TuningTrial]:
    """Trials, the best first and failed ones last. Both parts of the data can be iterated over as often as need be (see
    `hold_out`). Those who watch are told of every trial; if they ask to stop, or at Ctrl-C, the search ends with what
    it has found."""
    bench, found = TrialEvaluator(train, valid, goal.metric, run.without_output()), dict[int, TuningTrial]()
    deadline = perf_counter() + 60 * goal.minutes if goal.minutes else inf
    with run.stage(f"tuning {method_name(pipeline.method)}", goal.trials) as progress:
        try:
            if not any(field.name in space for view in pipeline.views.values() for field in fields(view)):
                bench.prepare_views(pipeline)  # what is wrong with the data is wrong for all trials
            for trial in iter_trials(bench, pipeline, space, goal):
                stop = trial.number not in found and run.notify(trial)
                found[trial.number] = trial
                progress.advance()
                best = max(found.values(), key=goal.goodness)
                progress.set_status(f"best {goal.metric} {100 * (best.value or 0.0):.2f}")
                if stop or perf_counter() >= deadline:
                    break
        except KeyboardInterrupt:
            if not any(trial.value is not None for trial in found.values()):
                raise
    return sort_trials(list(found.values()), goal)


def iter_trials(bench: TrialEvaluator, pipeline: Pipeline, space: Space, goal: TuningGoal) -> Iterator[TuningTrial]:
    """Trial after trial. What is proposed once more comes once more: training it again would give the same value."""
    wanted = propose_parameters(space, select_current_values(space, pipeline), goal.seed, goal.at_once)
    proposed, found = next(wanted), dict[tuple, TuningTrial]()
    for begun in range(0, goal.trials, goal.at_once):
        keys = [tuple(parameters[name] for name in space) for parameters in proposed[: goal.trials - begun]]
        new = {key: parameters for key, parameters in zip(keys, proposed, strict=False) if key not in found}
        trials = bench.run_trials(len(found) + 1, pipeline, list(new.values()))
        for key in keys:
            if key not in found:
                found[key] = next(trials)
            yield found[key]
        if len(keys) == goal.at_once:
            proposed = wanted.send([goal.goodness(found[key]) for key in keys])


def propose_parameters(
    space: Space, first: dict[str, Any], seed: int, batch_size: int = 1
) -> Generator[list[dict[str, Any]], list[float]]:
    """Parameters to try, so many at a time, without end; each time it is to be sent back how good they
    are."""
    optuna = import_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would report every trial
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial(first)
    distributions = {name: as_optuna_distribution(domain) for name, domain in space.items()}
    while True:
        asked = [study.ask(distributions) for _ in range(batch_size)]
        values = yield [
            {name: round_value(space[name], number) for name, number in each.params.items()} for each in asked
        ]
        for each, value in zip(asked, values, strict=True):
            study.tell(each, value)


def sort_trials(trials: list[TuningTrial], goal: TuningGoal) -> list[TuningTrial]:
    """The best first, failed ones last; refused if there are none else."""
    if all(trial.failure for trial in trials):
        raise XmtcError(f"Every trial failed, the last one so: {trials[-1].failure}")
    return sorted(trials, key=lambda trial: (trial.value is None, -goal.goodness(trial), trial.number))


def is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    """Of memory, also a GPU's: PyTorch, which may not be there, has an error of its own for it."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def select_current_values(space: Space, pipeline: Pipeline) -> dict[str, Any]:
    """The values that a pipeline has now, where they lie in the space."""
    values = {name: value for name, (_, value) in pipeline.parameters.items()}
    return {name: values[name] for name, domain in space.items() if values[name] in domain}


def round_value(domain: Range | Choice, value: Any) -> Any:
    """Three digits of a number are enough, and can be typed."""
    if isinstance(domain, Choice) or isinstance(value, int):
        return value
    return min(max(float(f"{value:.3g}"), domain.low), domain.high)


def as_optuna_distribution(domain: Range | Choice) -> Any:
    """What Optuna calls a domain that is searched."""
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
