"""Methods beside each other on a corpus: its documents divided, every method trained, and what they answer compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from xmtc.analysis.compare.figures import Comparison, compare
from xmtc.analysis.compare.runs import Place, Tell, run_all, stamps, trained_in
from xmtc.analysis.compare.specs import Spec
from xmtc.analysis.compare.truth import Truth
from xmtc.data.corpus import Corpus
from xmtc.data.document import Document
from xmtc.data.splits import split_corpus
from xmtc.errors import XmtcError
from xmtc.experiments.keeping import keep, kept_in, made_here

SHARE = 0.2  # of a corpus without test documents
SPLIT = "the split"  # under which results.json keeps what was divided


def split(corpus: Corpus, path: str, work: Path) -> tuple[str, str]:
    """The files of a corpus divided for training and for test, which are made once."""
    ending = "txt" if corpus.holds_features else "jsonl.gz"
    train, test = (work / f"{part}.{ending}" for part in ("train", "test"))
    asked = {"files": stamps([path])}
    if kept_in(work / "results.json").get(SPLIT) != asked or not (train.is_file() and test.is_file()):
        for part in (train, test):
            part.unlink(missing_ok=True)
        format = "sparse" if corpus.holds_features else "jsonl"
        sizes = split_corpus(corpus, str(train), str(test), share=SHARE, format=format)
        if not sizes.n_test:
            raise XmtcError(
                f"No document of {path} can be held out to compare on, because each is the last one of a label; "
                "give others with --test."
            )
        keep(work / "results.json", SPLIT, asked)
    return str(train), str(test)


def compare_methods(
    place: Place, specs: Sequence[Spec], n_seeds: int, documents: Iterable[Document], tell: Tell
) -> Comparison:
    """Train and compare on the test documents, which are read once more here."""
    held = list(documents)
    candidates = run_all(place, specs, n_seeds, tell)
    here = made_here()
    versions = ", ".join(f"{name} {version}" for name, version in here["versions"].items())
    about = {"Made on": f"{here['machine']}; {versions}; commit {here['commit']}"}
    if place.limit is not None:
        about["Budget"] = f"{place.limit:g} s for each training"
    if not any(each.load for each in candidates):
        raise XmtcError(f"Every method failed, the first so: {candidates[0].failed}")
    return compare(candidates, Truth.of(held, trained_in(place, specs)), place.data, about)
