"""Comparison of methods: split the corpus, train each method, compare the predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from xmtc.analysis.compare.comparison import Candidate, Comparison, Cost, compare_candidates
from xmtc.analysis.compare.ground_truth import GroundTruth
from xmtc.analysis.compare.saved_predictions import SavedPredictions, TrainingStatistics
from xmtc.analysis.method_specs import MethodSpec
from xmtc.analysis.result_files import ResultRecord, describe_environment, load_results, save_result
from xmtc.analysis.trials import (
    ProgressFunction,
    TrialContext,
    fingerprint_files,
    make_training_run,
    run_or_load_all,
)
from xmtc.data.corpus import Corpus
from xmtc.data.document import Document
from xmtc.data.splits import split_corpus
from xmtc.errors import XmtcError

TEST_SHARE = 0.2  # of a corpus without test documents
SPLIT_KEY = "the split"  # of results.json
MEAN_COSTS = ("train_s", "train_cpu_s", "peak_mb", "model_mb")


def prepare_split(corpus: Corpus, path: str, work: Path) -> tuple[str, str]:
    """Split a corpus into a training and a test file, unless that was done before; return their paths."""
    extension = "txt" if corpus.has_features else "jsonl.gz"
    train, test = (work / f"{part}.{extension}" for part in ("train", "test"))
    identity = {"files": fingerprint_files([path])}
    if load_results(work / "results.json").get(SPLIT_KEY) != identity or not (train.is_file() and test.is_file()):
        for part in (train, test):
            part.unlink(missing_ok=True)
        format = "sparse" if corpus.has_features else "jsonl"
        sizes = split_corpus(corpus, str(train), str(test), share=TEST_SHARE, format=format)
        if not sizes.n_test:
            raise XmtcError(
                f"No document of {path} can be held out, because each is the only one of a label; give test documents "
                "with --test."
            )
        save_result(work / "results.json", SPLIT_KEY, identity)
    return str(train), str(test)


def compare_methods(
    context: TrialContext,
    specs: Sequence[MethodSpec],
    n_seeds: int,
    documents: Iterable[Document],
    report_progress: ProgressFunction,
) -> Comparison:
    """Train methods and compare them on test documents."""
    test_documents = list(documents)
    candidates = run_methods(context, specs, n_seeds, report_progress)
    environment = describe_environment()
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    about = {"Environment": f"{environment['machine']}; {versions}; commit {environment['commit']}"}
    if context.limit_seconds is not None:
        about["Time limit"] = f"{context.limit_seconds:g} s per training"
    if not any(candidate.loaders for candidate in candidates):
        raise XmtcError(f"Every method failed. The first one: {candidates[0].failed}")
    truth = GroundTruth.from_documents(test_documents, load_training_statistics(context, specs))
    return compare_candidates(candidates, truth, context.corpus_name, about)


def run_methods(
    context: TrialContext, specs: Sequence[MethodSpec], n_seeds: int, report_progress: ProgressFunction
) -> list[Candidate]:
    """Train every method with seed 0, then those that succeeded with the other seeds; a cluster runs these at once."""
    context.work.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[ResultRecord]] = {spec.name: [] for spec in specs}
    other_seeds = range(1, n_seeds)
    for seeds in ([0], *([other_seeds] if context.cluster else [[seed] for seed in other_seeds])):
        successful = [spec for spec in specs if not any("failed" in result for result in results[spec.name])]
        runs = [
            make_training_run(context, spec, seed if spec.has_free_seed else None)
            for seed in seeds
            for spec in successful
            if spec.has_free_seed or seed == 0
        ]
        for run, result in run_or_load_all(context, runs, report_progress):
            results[run.spec.name].append(result)
    return [make_candidate(context, spec, results[spec.name]) for spec in specs]


def make_candidate(context: TrialContext, spec: MethodSpec, results: Sequence[ResultRecord]) -> Candidate:
    commands = tuple(result["command"] for result in results)
    failure = next((result["failed"] for result in results if "failed" in result), "")
    if failure:
        return Candidate(spec.name, (), failed=failure, commands=commands)
    cost = Cost(**{name: average_cost(results, name) for name in MEAN_COSTS})
    loaders = tuple(partial(SavedPredictions.load, context.work / result["answers"]) for result in results)
    return Candidate(spec.name, loaders, cost, commands=commands)


def average_cost(results: Sequence[ResultRecord], name: str) -> float | None:
    values = [result[name] for result in results if result.get(name) is not None]
    return float(np.mean(values)) if values else None


def load_training_statistics(context: TrialContext, specs: Sequence[MethodSpec]) -> Iterator[TrainingStatistics]:
    """Yield the training statistics of all saved runs of these methods on the present files."""
    files = fingerprint_files([*context.train, context.test])
    results = load_results(context.results_path)
    for spec in specs:
        for name, result in results.items():
            is_of_spec = name == spec.name or name.startswith(f"{spec.name}, seed ")
            if is_of_spec and result.get("files") == files and "answers" in result:
                yield TrainingStatistics.load(context.work / result["answers"])
