"""Which method to train within a budget, how good it will be, and how long it will take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xmtc.analysis.compare.specs import Spec, reads, typed
from xmtc.analysis.recommend.samples import Samples
from xmtc.analysis.recommend.trying import LEAD, METRICS, SURE, Trials, Trying
from xmtc.errors import XmtcError
from xmtc.methods import as_method, method_class
from xmtc.parameters import build_method

# On none of the five corpora of experiments/results/rivals.json has another method a better nDCG@5 than the best of
# these; the others of these are the quickest.
LINEAR = ("plt", "dismec", "proxml", "bonsai", "parabel", "fastxml", "pfastrexml", "annexml")
NETWORKS = ("attention_xml", "rank_ae")  # of sequences, and of bags of words
EQUAL = 0.002  # of methods that differ by less, the quicker is as good
WORTH = 0.003  # what a consensus must gain to be worth its time


@dataclass(frozen=True)
class Expected:
    """A method, and what is expected of it on the whole corpus."""

    name: str
    spec: Spec
    metrics: dict[str, float]
    seconds: float
    peak_mb: float | None
    tried: dict[int, float]  # nDCG@5 by documents of the sample
    fits: bool
    doubt: float = 0.0  # of nDCG@5, where others were tried on larger samples


@dataclass(frozen=True)
class Advice:
    chosen: Expected
    expected: list[Expected]  # of all that were tried, the best first
    failed: dict[str, str]
    n_docs: int
    n_held_out: int
    budget: float


def candidates(content: str) -> list[Spec]:
    """The methods to try on a corpus of texts or of features, on this machine."""
    names = [*LINEAR, *networks()]
    return [Spec(name, name) for name in names if reads(as_method(name), content)]


def networks() -> list[str]:
    """Where PyTorch and a GPU are: on a CPU none of them is a match for a linear method in the same time."""
    try:
        import torch
    except ImportError:
        return []
    return list(NETWORKS) if torch.cuda.is_available() else []


def advise(found: Samples, specs: list[Spec], budget: float, tell: Callable[[str], None]) -> Advice:
    """Try, and choose."""
    trying = Trying(found, specs, budget, tell)
    trying.run()
    tried = [each for each in trying.trials if each.seconds]
    if not tried:
        reasons = [each.failed for each in trying.trials if each.failed]
        why = f"the first so: {reasons[0]}" if reasons else "none of them in time"
        raise XmtcError(f"No method could be trained on {found.sizes[0]:,} documents, {why}; give a larger --budget.")
    together = consensus(trying, tried)
    found_of = [expectation(each, trying) for each in tried] + ([] if together is None else [together])
    expected = sorted(found_of, key=lambda each: -each.metrics[LEAD])
    failed = {each.spec.name: each.failed for each in trying.trials if each.failed}
    return Advice(choice(expected), expected, failed, found.n_docs, len(found.held_out), budget)


def expectation(method: Trials, trying: Trying) -> Expected:
    n_docs = trying.samples.n_docs
    seconds = trying.training_seconds(method)
    return Expected(
        name=method.spec.name,
        spec=method.spec,
        metrics={name: trying.value_at(n_docs, method, name) for name in METRICS},
        seconds=seconds,
        peak_mb=method.peak_mb,
        tried=dict(method.values[LEAD]),
        fits=seconds <= trying.budget,
        doubt=SURE * trying.n_missed(method),
    )


def choice(expected: list[Expected]) -> Expected:
    """The best of those that fit the budget, less the doubt about it; of equals, the quickest. Where nothing fits, the
    quickest of all."""
    fits = [each for each in expected if each.fits]
    if not fits:
        return min(expected, key=lambda each: each.seconds)
    best = max(each.metrics[LEAD] - each.doubt for each in fits)
    equal = [each for each in fits if best - (each.metrics[LEAD] - each.doubt) <= EQUAL]
    return min(equal, key=lambda each: each.seconds)


def consensus(trying: Trying, tried: list[Trials]) -> Expected | None:
    """The best method and the best of another kind together, if the budget has time for both; tried on the largest
    sample, where trying leaves the time. It is expected to keep what it gains over the better one."""
    pair = partners(trying, tried)
    given = pair and given_together(pair)
    if not pair or not given:
        return None
    n_docs = trying.samples.n_docs
    seconds = sum(map(trying.training_seconds, pair)) - trying.start
    if seconds > trying.budget or 1.3 * sum(each.seconds[-1][1] for each in pair) > trying.left:
        return None
    name = f"consensus of {' and '.join(each.spec.name for each in pair)}"
    both = Trials(Spec(name, "consensus", tuple(given.items())))
    if not trying.try_out(both, pair[0].largest, trying.left):
        return None
    metrics, gains = {}, {}
    for metric in METRICS:
        gains[metric] = both.values[metric][-1][1] - max(each.values[metric][-1][1] for each in pair)
        best = max(trying.value_at(n_docs, each, metric) for each in pair)
        metrics[metric] = min(1.0, best + gains[metric])
    is_worth = gains[LEAD] >= WORTH
    seconds = max(seconds, both.seconds[-1][1])
    return Expected(name, both.spec, metrics, seconds, both.peak_mb, dict(both.values[LEAD]), is_worth)


def given_together(pair: tuple[Trials, Trials]) -> dict[str, str] | None:
    """The parameters of a consensus whose members are as they were tried. What is not a method's own is for the views
    and scores, which both share: None where they differ in that."""
    found = {"members": ",".join(each.spec.method for each in pair)}
    for spec in (each.spec for each in pair):
        _, shared = build_method(spec.method, typed(spec))
        for name, value in spec.given:
            name = name if name in shared else f"{spec.method}.{name}"
            if found.setdefault(name, value) != value:
                return None
    return found


def partners(trying: Trying, tried: list[Trials]) -> tuple[Trials, Trials] | None:
    """The best method, and the best of another kind that was tried on as many documents."""
    ranked = sorted(tried, key=lambda each: (-each.largest, -trying.value_at(trying.samples.n_docs, each)))
    first = ranked[0]
    others = (each for each in ranked if family(each) != family(first) and each.largest == first.largest)
    other = next(others, None)
    return None if other is None else (first, other)


def family(method: Trials) -> str:
    """The folder that a method stands in: methods of one kind err alike."""
    return method_class(method.spec.method).__module__.rpartition(".")[0]
