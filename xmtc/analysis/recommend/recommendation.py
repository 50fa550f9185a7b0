"""Choice of a method within a time limit, with its expected metrics and training time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from xmtc.analysis.method_specs import MethodSpec, as_typed_parameters, is_trainable_on
from xmtc.analysis.recommend.method_search import (
    MAIN_METRIC,
    METRIC_UNCERTAINTY,
    TRIAL_METRICS,
    MethodSearch,
    MethodTrials,
)
from xmtc.analysis.recommend.samples import Samples
from xmtc.errors import MissingExtra, XmtcError
from xmtc.methods import as_method, method_class
from xmtc.parameters import build_method, collect_all_parameters

# On none of the five corpora of experiments/results/rivals.json does another method have a better nDCG@5 than the best
# of these; the remaining ones are the fastest.
LINEAR_METHODS = ("plt", "dismec", "proxml", "bonsai", "parabel", "fastxml", "pfastrexml", "annexml")
NEURAL_METHODS = ("attention_xml", "rank_ae")  # one reads sequences, the other bags of words
LABEL_NAME_METHOD = "lexical"  # tried if there is a vocabulary, and in a consensus
METRIC_TOLERANCE = 0.002  # methods that differ by less are equal; the faster one is chosen
MIN_CONSENSUS_GAIN = 0.003  # below it a consensus is not worth its time
CONSENSUS_TIME_FACTOR = 1.3  # of the trials of both members, that must be left for a trial of the consensus


@dataclass(frozen=True)
class ExpectedResult:
    """Method and its expected result on the whole corpus."""

    name: str
    spec: MethodSpec
    metrics: dict[str, float]
    seconds: float
    peak_mb: float | None
    tried: dict[int, float]  # nDCG@5 by sample size
    fits: bool  # within the time limit
    doubt: float = 0.0  # uncertainty of nDCG@5, because other methods were tried on larger samples


@dataclass(frozen=True)
class Recommendation:
    """Chosen method, and the expected results of all methods that were tried."""

    chosen: ExpectedResult
    expected: list[ExpectedResult]  # the best first
    failed: dict[str, str]
    unfinished: dict[str, str]  # methods whose first trial was ended by its time limit
    n_docs: int
    n_held_out: int
    budget: float


def list_candidate_methods(content: str, has_vocabulary: bool = False) -> list[MethodSpec]:
    """Return the methods to try on a corpus of texts or of features on this machine."""
    names = [*LINEAR_METHODS, *list_trainable_networks(), *([LABEL_NAME_METHOD] if has_vocabulary else [])]
    return [MethodSpec(name, name) for name in names if is_trainable_on(as_method(name), content)]


def set_vocabulary(spec: MethodSpec, vocabulary: str) -> MethodSpec:
    """Return a method that matches the label names of a vocabulary, unless it has another one or matches none."""
    try:
        parameters = collect_all_parameters(spec.method, as_typed_parameters(spec))
    except MissingExtra:  # its trial reports that it is not installed
        return spec
    unset = [name for name in parameters if is_vocabulary_parameter(name) and name not in dict(spec.parameters)]
    return replace(spec, parameters=(*spec.parameters, *((name, vocabulary) for name in unset)))


def is_vocabulary_parameter(name: str) -> bool:
    """Return True for `vocabulary`, and for that of a member of a combination, such as `lexical.vocabulary`."""
    return name.rpartition(".")[2] == "vocabulary"


def list_trainable_networks() -> list[str]:
    """Return the networks to try: none without PyTorch and a GPU, because linear methods are better in that time."""
    try:
        import torch
    except ImportError:
        return []
    return list(NEURAL_METHODS) if torch.cuda.is_available() else []


def recommend_method(
    samples: Samples, specs: list[MethodSpec], budget: float, report_progress: Callable[[str], None]
) -> Recommendation:
    """Try methods on samples and choose one."""
    search = MethodSearch(samples, specs, budget, report_progress)
    search.run()
    successful = [method for method in search.trials if method.seconds]
    failed = {method.spec.name: method.failed for method in search.trials if method.failed}
    unfinished = {
        method.spec.name: f"after {method.timeouts[-1][1]:.0f} s on {method.timeouts[-1][0]:,} documents"
        for method in search.trials
        if method.timeouts and not method.seconds
    }
    if not successful:
        reason = f"The first one: {next(iter(failed.values()))}" if failed else "None finished in time."
        raise XmtcError(
            f"No method could be trained on {samples.sizes[0]:,} documents. {reason} A longer --time-limit may help."
        )
    results = [estimate_result(method, search) for method in successful]
    results += filter(None, [try_consensus(search, pair) for pair in list_partners(search, successful)])
    results.sort(key=lambda result: -result.metrics[MAIN_METRIC])
    return Recommendation(
        choose_result(results), results, failed, unfinished, samples.n_docs, len(samples.held_out), budget
    )


def estimate_result(method: MethodTrials, search: MethodSearch) -> ExpectedResult:
    n_docs = search.samples.n_docs
    seconds = search.estimate_training_seconds(method)
    return ExpectedResult(
        name=method.spec.name,
        spec=method.spec,
        metrics={name: search.estimate_metric(n_docs, method, name) for name in TRIAL_METRICS},
        seconds=seconds,
        peak_mb=method.peak_mb,
        tried=dict(method.values[MAIN_METRIC]),
        fits=seconds <= search.budget,
        doubt=METRIC_UNCERTAINTY * search.count_missed_samples(method),
    )


def choose_result(results: list[ExpectedResult]) -> ExpectedResult:
    """Return the best method within the time limit, the fastest of equals; if none fits, the fastest of all."""
    fitting = [result for result in results if result.fits]
    if not fitting:
        return min(results, key=lambda result: result.seconds)
    best = max(result.metrics[MAIN_METRIC] - result.doubt for result in fitting)
    equal = [result for result in fitting if best - (result.metrics[MAIN_METRIC] - result.doubt) <= METRIC_TOLERANCE]
    return min(equal, key=lambda result: result.seconds)


def try_consensus(search: MethodSearch, pair: tuple[MethodTrials, MethodTrials]) -> ExpectedResult | None:
    """Try the consensus of two methods, if the time suffices.

    Its gain over the better member on the largest sample is expected to remain on all documents.
    """
    parameters = merge_parameters(pair)
    if not parameters:
        return None
    n_docs = search.samples.n_docs
    seconds = sum(map(search.estimate_training_seconds, pair)) - search.startup_seconds
    trial_seconds = CONSENSUS_TIME_FACTOR * sum(method.seconds[-1][1] for method in pair)
    if seconds > search.budget or trial_seconds > search.seconds_left:
        return None
    name = f"consensus of {' and '.join(method.spec.name for method in pair)}"
    consensus = MethodTrials(MethodSpec(name, "consensus", tuple(parameters.items())))
    if not search.run_trial(consensus, pair[0].largest_sample, search.seconds_left):
        return None
    metrics, gains = {}, {}
    for metric in TRIAL_METRICS:
        gains[metric] = consensus.values[metric][-1][1] - max(method.values[metric][-1][1] for method in pair)
        best = max(search.estimate_metric(n_docs, method, metric) for method in pair)
        metrics[metric] = min(1.0, best + gains[metric])
    return ExpectedResult(
        name,
        consensus.spec,
        metrics,
        max(seconds, consensus.seconds[-1][1]),
        consensus.peak_mb,
        dict(consensus.values[MAIN_METRIC]),
        fits=gains[MAIN_METRIC] >= MIN_CONSENSUS_GAIN,
    )


def merge_parameters(pair: tuple[MethodTrials, MethodTrials]) -> dict[str, str] | None:
    """Return the parameters of a consensus of two methods with the parameters of their trials.

    Parameters of views and scores are shared by the members; return None if the two methods differ in one.
    """
    merged = {"members": ",".join(method.spec.method for method in pair)}
    for spec in (method.spec for method in pair):
        _, shared = build_method(spec.method, as_typed_parameters(spec))
        for name, value in spec.parameters:
            name = name if name in shared else f"{spec.method}.{name}"
            if merged.setdefault(name, value) != value:
                return None
    return merged


def list_partners(search: MethodSearch, methods: list[MethodTrials]) -> list[tuple[MethodTrials, MethodTrials]]:
    """Return the best method with the best one of another family that was tried on as many documents, and with the one
    that matches label names, which finds other labels however it ranks alone."""
    n_docs = search.samples.n_docs
    ranked = sorted(methods, key=lambda method: (-method.largest_sample, -search.estimate_metric(n_docs, method)))
    first = ranked[0]
    others = [
        method
        for method in ranked
        if method.largest_sample == first.largest_sample and get_method_family(method) != get_method_family(first)
    ]
    label_names = [method for method in others[1:] if method.spec.method == LABEL_NAME_METHOD]
    return [(first, other) for other in (*others[:1], *label_names)]


def get_method_family(method: MethodTrials) -> str:
    """Return the package of a method; methods of one family make similar errors."""
    return method_class(method.spec.method).__module__.rpartition(".")[0]
