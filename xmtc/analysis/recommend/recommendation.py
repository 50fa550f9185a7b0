"""Which method to train within a budget, how good it will be, and how long it will take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xmtc.analysis.method_specs import MethodSpec, as_typed_parameters, is_trainable_on
from xmtc.analysis.recommend.method_search import (
    MAIN_METRIC,
    METRIC_UNCERTAINTY,
    TRIAL_METRICS,
    MethodSearch,
    MethodTrials,
)
from xmtc.analysis.recommend.samples import Samples
from xmtc.errors import XmtcError
from xmtc.methods import as_method, method_class
from xmtc.parameters import build_method

# On none of the five corpora of experiments/results/rivals.json has another method a better nDCG@5 than the best of
# these; the others of these are the quickest.
LINEAR_METHODS = ("plt", "dismec", "proxml", "bonsai", "parabel", "fastxml", "pfastrexml", "annexml")
NEURAL_METHODS = ("attention_xml", "rank_ae")  # of sequences, and of bags of words
METRIC_TOLERANCE = 0.002  # of methods that differ by less, the quicker is as good
MIN_CONSENSUS_GAIN = 0.003  # what a consensus must gain to be worth its time


@dataclass(frozen=True)
class ExpectedResult:
    """A method, and what is expected of it on the whole corpus."""

    name: str
    spec: MethodSpec
    metrics: dict[str, float]
    seconds: float
    peak_mb: float | None
    tried: dict[int, float]  # nDCG@5 by documents of the sample
    fits: bool
    doubt: float = 0.0  # of nDCG@5, where others were tried on larger samples


@dataclass(frozen=True)
class Recommendation:
    chosen: ExpectedResult
    expected: list[ExpectedResult]  # of all that were tried, the best first
    failed: dict[str, str]
    n_docs: int
    n_held_out: int
    budget: float


def list_candidate_methods(content: str) -> list[MethodSpec]:
    """The methods to try on a corpus of texts or of features, on this machine."""
    names = [*LINEAR_METHODS, *list_trainable_networks()]
    return [MethodSpec(name, name) for name in names if is_trainable_on(as_method(name), content)]


def list_trainable_networks() -> list[str]:
    """Where PyTorch and a GPU are: on a CPU none of them is a match for a linear method in the same time."""
    try:
        import torch
    except ImportError:
        return []
    return list(NEURAL_METHODS) if torch.cuda.is_available() else []


def recommend_method(
    samples: Samples, specs: list[MethodSpec], budget: float, report_progress: Callable[[str], None]
) -> Recommendation:
    """Try, and choose."""
    trying = MethodSearch(samples, specs, budget, report_progress)
    trying.run()
    tried = [each for each in trying.trials if each.seconds]
    if not tried:
        reasons = [each.failed for each in trying.trials if each.failed]
        why = f"the first so: {reasons[0]}" if reasons else "none of them in time"
        raise XmtcError(f"No method could be trained on {samples.sizes[0]:,} documents, {why}; give a larger --budget.")
    together = try_consensus(trying, tried)
    found_of = [estimate_result(each, trying) for each in tried] + ([] if together is None else [together])
    expected = sorted(found_of, key=lambda each: -each.metrics[MAIN_METRIC])
    failed = {each.spec.name: each.failed for each in trying.trials if each.failed}
    return Recommendation(choose_result(expected), expected, failed, samples.n_docs, len(samples.held_out), budget)


def estimate_result(method: MethodTrials, trying: MethodSearch) -> ExpectedResult:
    n_docs = trying.samples.n_docs
    seconds = trying.estimate_training_seconds(method)
    return ExpectedResult(
        name=method.spec.name,
        spec=method.spec,
        metrics={name: trying.estimate_metric(n_docs, method, name) for name in TRIAL_METRICS},
        seconds=seconds,
        peak_mb=method.peak_mb,
        tried=dict(method.values[MAIN_METRIC]),
        fits=seconds <= trying.budget,
        doubt=METRIC_UNCERTAINTY * trying.count_missed_samples(method),
    )


def choose_result(expected: list[ExpectedResult]) -> ExpectedResult:
    """The best of those that fit the budget, less the doubt about it; of equals, the quickest. Where nothing fits, the
    quickest of all."""
    fits = [each for each in expected if each.fits]
    if not fits:
        return min(expected, key=lambda each: each.seconds)
    best = max(each.metrics[MAIN_METRIC] - each.doubt for each in fits)
    equal = [each for each in fits if best - (each.metrics[MAIN_METRIC] - each.doubt) <= METRIC_TOLERANCE]
    return min(equal, key=lambda each: each.seconds)


def try_consensus(trying: MethodSearch, tried: list[MethodTrials]) -> ExpectedResult | None:
    """The best method and the best of another kind together, if the budget has time for both; tried on the largest
    sample, where trying leaves the time. It is expected to keep what it gains over the better one."""
    pair = choose_partners(trying, tried)
    given = pair and merge_parameters(pair)
    if not pair or not given:
        return None
    n_docs = trying.samples.n_docs
    seconds = sum(map(trying.estimate_training_seconds, pair)) - trying.startup_seconds
    if seconds > trying.budget or 1.3 * sum(each.seconds[-1][1] for each in pair) > trying.seconds_left:
        return None
    name = f"consensus of {' and '.join(each.spec.name for each in pair)}"
    both = MethodTrials(MethodSpec(name, "consensus", tuple(given.items())))
    if not trying.run_trial(both, pair[0].largest_sample, trying.seconds_left):
        return None
    metrics, gains = {}, {}
    for metric in TRIAL_METRICS:
        gains[metric] = both.values[metric][-1][1] - max(each.values[metric][-1][1] for each in pair)
        best = max(trying.estimate_metric(n_docs, each, metric) for each in pair)
        metrics[metric] = min(1.0, best + gains[metric])
    is_worth = gains[MAIN_METRIC] >= MIN_CONSENSUS_GAIN
    seconds = max(seconds, both.seconds[-1][1])
    return ExpectedResult(name, both.spec, metrics, seconds, both.peak_mb, dict(both.values[MAIN_METRIC]), is_worth)


def merge_parameters(pair: tuple[MethodTrials, MethodTrials]) -> dict[str, str] | None:
    """The parameters of a consensus whose members are as they were tried. What is not a method's own is for the views
    and scores, which both share: None where they differ in that."""
    found = {"members": ",".join(each.spec.method for each in pair)}
    for spec in (each.spec for each in pair):
        _, shared = build_method(spec.method, as_typed_parameters(spec))
        for name, value in spec.parameters:
            name = name if name in shared else f"{spec.method}.{name}"
            if found.setdefault(name, value) != value:
                return None
    return found


def choose_partners(trying: MethodSearch, tried: list[MethodTrials]) -> tuple[MethodTrials, MethodTrials] | None:
    """The best method, and the best of another kind that was tried on as many documents."""
    ranked = sorted(
        tried, key=lambda each: (-each.largest_sample, -trying.estimate_metric(trying.samples.n_docs, each))
    )
    first = ranked[0]
    others = (
        each
        for each in ranked
        if get_method_family(each) != get_method_family(first) and each.largest_sample == first.largest_sample
    )
    other = next(others, None)
    return None if other is None else (first, other)


def get_method_family(method: MethodTrials) -> str:
    """The folder that a method stands in: methods of one kind err alike."""
    return method_class(method.spec.method).__module__.rpartition(".")[0]
