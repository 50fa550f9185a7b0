"""Methods beside each other on a corpus: its documents divided, every method trained, and what they answer compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from xmtc.analysis.compare.comparison import Comparison, compare_candidates
from xmtc.analysis.compare.ground_truth import GroundTruth
from xmtc.analysis.method_specs import MethodSpec
from xmtc.analysis.result_files import describe_environment, load_results, save_result
from xmtc.analysis.trials import (
    ProgressFunction,
    TrialContext,
    fingerprint_files,
    load_training_statistics,
    run_methods,
)
from xmtc.data.corpus import Corpus
from xmtc.data.document import Document
from xmtc.data.splits import split_corpus
from xmtc.errors import XmtcError

TEST_SHARE = 0.2  # of a corpus without test documents
SPLIT_KEY = "the split"  # under which results.json keeps what was divided


def prepare_split(corpus: Corpus, path: str, work: Path) -> tuple[str, str]:
    """The files of a corpus divided for training and for test, which are made once."""
    ending = "txt" if corpus.has_features else "jsonl.gz"
    train, test = (work / f"{part}.{ending}" for part in ("train", "test"))
    asked = {"files": fingerprint_files([path])}
    if load_results(work / "results.json").get(SPLIT_KEY) != asked or not (train.is_file() and test.is_file()):
        for part in (train, test):
            part.unlink(missing_ok=True)
        format = "sparse" if corpus.has_features else "jsonl"
        sizes = split_corpus(corpus, str(train), str(test), share=TEST_SHARE, format=format)
        if not sizes.n_test:
            raise XmtcError(
                f"No document of {path} can be held out to compare on, because each is the last one of a label; "
                "give others with --test."
            )
        save_result(work / "results.json", SPLIT_KEY, asked)
    return str(train), str(test)


def compare_methods(
    place: TrialContext,
    specs: Sequence[MethodSpec],
    n_seeds: int,
    documents: Iterable[Document],
    report_progress: ProgressFunction,
) -> Comparison:
    """Train and compare on the test documents, which are read once more here."""
    held = list(documents)
    candidates = run_methods(place, specs, n_seeds, report_progress)
    here = describe_environment()
    versions = ", ".join(f"{name} {version}" for name, version in here["versions"].items())
    about = {"Made on": f"{here['machine']}; {versions}; commit {here['commit']}"}
    if place.limit_seconds is not None:
        about["Budget"] = f"{place.limit_seconds:g} s for each training"
    if not any(each.loaders for each in candidates):
        raise XmtcError(f"Every method failed, the first so: {candidates[0].failed}")
    return compare_candidates(
        candidates, GroundTruth.from_documents(held, load_training_statistics(place, specs)), place.corpus_name, about
    )
