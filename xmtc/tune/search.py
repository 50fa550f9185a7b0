"""The search for good hyper-parameters: trainings on one part of the data, measured on another. Optuna's TPE sampler
chooses what to try next; the first trial is what would be trained without a search, where that lies in the space."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass, fields, replace
from math import inf, isfinite
from time import perf_counter
from types import ModuleType
from typing import Any

from xmtc import features
from xmtc.base.params import Recipe, param
from xmtc.base.run import Run
from xmtc.data.collect import LabelCollector
from xmtc.data.document import Document
from xmtc.errors import XmtcError, missing_extra
from xmtc.evaluation import are_at_decision, are_hierarchical, max_k, parse_metric
from xmtc.methods import method_name
from xmtc.pipeline import Pipeline, Prepared
from xmtc.tune.space import Choice, Range, Space


@dataclass(frozen=True)
class Goal(Recipe):
    """What is to be as high as possible, and how long to look for it."""

    metric: str = param("nDCG@5", "metric of the validation documents")
    trials: int = param(20, "trainings at most", low=1)
    minutes: float = param(0.0, "begin no further trial after so many minutes (0: no limit)", low=0.0)
    seed: int = param(0, "seed of what is tried", low=0, high=2**32 - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "metric", parse_metric(self.metric).name)
        check_metric(self.metric)


def check_metric(name: str) -> None:
    """Refuse, before the first training, what no trial can have: its models are given nothing once they are trained."""
    lacks = "a vocabulary" if are_hierarchical(name) else "a decision" if are_at_decision(name) else ""
    if lacks:
        instead = "P@1" if are_hierarchical(name) else f"{name.partition('@')[0]}@0.5"
        raise XmtcError(
            f"--metric {name} needs {lacks}, which the models of a search do not have; search by another, such as "
            f"{instead}, and measure {name} of the model that is trained with what was found."
        )


@dataclass(frozen=True)
class Trial:
    """One training and how good it was."""

    number: int
    parameters: dict[str, Any]
    value: float | None  # of the metric, as a fraction; None where it failed
    seconds: float
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        """As it is told to those who watch."""
        return {"event": "trial", **asdict(self)}


class Bench:
    """Where parameters are tried. Documents become views once for as many trials in a row as need the same ones."""

    def __init__(self, train: Iterable[Document], valid: Iterable[Document], metric: str, run: Run) -> None:
        self.train, self.valid, self.metric, self.k = train, valid, metric, max_k([metric])
        self.run = run
        self.latest: Prepared | None = None

    def measure(self, pipeline: Pipeline) -> float:
        """Train on the one part, with the other to stop by where the method asks when to, and measure on that."""
        prepared = self.prepared(pipeline)
        tagger = prepared.train(pipeline.method, self.held_out, self.run)
        predictions = tagger.model.predict(self.held_out, self.k, self.run)
        return next(iter(tagger.measure(predictions, self.truth, [self.metric]).values()))

    def prepared(self, pipeline: Pipeline) -> Prepared:
        if self.latest is None or self.latest.views != pipeline.views:
            self.latest = None  # so that never two are held
            prepared = pipeline.prepare(self.train, self.run)
            collector, names = LabelCollector(), prepared.labels.words()
            data = features.transform(prepared.fitted, collector.watch(self.valid), self.run)
            self.truth = collector.matrix(names)  # labels that training never saw come last
            self.held_out = replace(data, Y=self.truth[:, : len(names)])
            self.latest = prepared
        return self.latest

    def tried(self, number: int, pipeline: Pipeline, parameters: dict[str, Any]) -> Trial:
        begin, value, failure = perf_counter(), None, ""
        try:
            value = self.measure(pipeline.with_values(parameters))
            if not isfinite(value):
                value, failure = None, f"{self.metric} has no value on the validation documents; choose another metric."
        except XmtcError as error:
            failure = str(error)
        except (MemoryError, RuntimeError) as error:
            if not is_shortage(error):
                raise
            failure = "The memory is not enough for this trial; search smaller sizes."
        return Trial(number, parameters, value, perf_counter() - begin, failure)


def tune(
    train: Iterable[Document],
    valid: Iterable[Document],
    pipeline: Pipeline,
    space: Space,
    goal: Goal = Goal(),
    run: Run = Run(),
) -> list[Trial]:
    """Trials, the best first and failed ones last. Both parts of the data can be iterated over as often as need be (see
    `hold_out`). Those who watch are told of every trial; if they ask to stop, or at Ctrl-C, the search ends with what
    it has found."""
    bench = Bench(train, valid, goal.metric, run.quiet())
    wanted = proposals(space, current_values(space, pipeline), goal.seed)
    parameters, found, stop = next(wanted), dict[tuple, Trial](), False
    deadline = perf_counter() + 60 * goal.minutes if goal.minutes else inf
    with run.stage(f"tuning {method_name(pipeline.method)}", goal.trials) as progress:
        try:
            if not any(field.name in space for view in pipeline.views.values() for field in fields(view)):
                bench.prepared(pipeline)  # what is wrong with the data is wrong for all trials
            for _ in range(goal.trials):
                if found and perf_counter() >= deadline:
                    break
                key = tuple(parameters[name] for name in space)
                if key not in found:  # the same training again would give the same value
                    found[key] = bench.tried(len(found) + 1, pipeline, parameters)
                    stop = run.tell(found[key])
                progress.advance()
                progress.tell(f"best {goal.metric} {100 * max(trial.value or 0.0 for trial in found.values()):.2f}")
                if stop:
                    break
                parameters = wanted.send(found[key].value or 0.0)  # a failure is as bad as can be
        except KeyboardInterrupt:
            if not any(trial.value is not None for trial in found.values()):
                raise
    return ranked(list(found.values()))


def proposals(space: Space, first: dict[str, Any], seed: int) -> Generator[dict[str, Any], float]:
    """Parameters to try, without end; each time the metric's value is to be sent back."""
    optuna = imported_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would report every trial
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial(first)
    distributions = {name: distribution(domain) for name, domain in space.items()}
    while True:
        asked = study.ask(distributions)
        value = yield {name: short(space[name], number) for name, number in asked.params.items()}
        study.tell(asked, value)


def ranked(trials: list[Trial]) -> list[Trial]:
    """The best first, failed ones last; refused if there are none else."""
    if all(trial.failure for trial in trials):
        raise XmtcError(f"Every trial failed, the last one so: {trials[-1].failure}")
    return sorted(trials, key=lambda trial: (trial.value is None, -(trial.value or 0.0), trial.number))


def is_shortage(error: MemoryError | RuntimeError) -> bool:
    """Of memory, also a GPU's: PyTorch, which may not be there, has an error of its own for it."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def current_values(space: Space, pipeline: Pipeline) -> dict[str, Any]:
    """The values that a pipeline has now, where they lie in the space."""
    values = {name: value for name, (_, value) in pipeline.parameters.items()}
    return {name: values[name] for name, domain in space.items() if values[name] in domain}


def short(domain: Range | Choice, value: Any) -> Any:
    """Three digits of a number are enough, and can be typed."""
    if isinstance(domain, Choice) or isinstance(value, int):
        return value
    return min(max(float(f"{value:.3g}"), domain.low), domain.high)


def distribution(domain: Range | Choice) -> Any:
    """What Optuna calls a domain that is searched."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(domain, Choice):
        return CategoricalDistribution(domain.values)
    kind: Any = IntDistribution if isinstance(domain.low, int) else FloatDistribution
    return kind(domain.low, domain.high, log=domain.log)


def imported_optuna() -> ModuleType:
    try:
        import optuna
    except ImportError as error:
        raise missing_extra("xmtc tune", error) from None
    return optuna
