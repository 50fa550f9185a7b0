"""Methods trained for a comparison, as the options of a command say it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from xmtc.cli.options import CorpusOptions, format_corpus_options, open_corpus_input, report_rejects
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.analysis.compare.figures import Comparison
    from xmtc.analysis.compare.runs import TrialContext
    from xmtc.data.corpus import Corpus


@dataclass(frozen=True)
class CompareOptions:
    """Which methods are to be trained, and how, on any corpus."""

    methods: Sequence[str]
    parameters: Sequence[str]
    seeds: int
    time_limit_seconds: float | None  # seconds of each training
    reading: CorpusOptions
    machine_options: tuple[str, ...]  # options that say where to work
    work: Path
    quiet: bool
    cluster: str = ""
    n_cpus: int = 1

    def prepare_comparison(self, path: str, test: str | None, name: str) -> Callable[[], Comparison]:
        """What is to be done on a corpus that was looked at: of several, one that cannot be is refused before the first
        is trained on."""
        from xmtc.analysis.compare.methods import compare_methods
        from xmtc.analysis.compare.runs import claim_work_folder, write_warm_up_corpus
        from xmtc.analysis.compare.specs import parse_specs
        from xmtc.features import FEATURES, TEXTS

        source = open_corpus_input(path, self.reading, quiet=True)
        wanted = parse_specs(self.methods, self.parameters, FEATURES if source.has_features else TEXTS)
        claim_work_folder(self.work)
        place = self.build_place(path, test, source, name)
        place = replace(place, warm_up_path=write_warm_up_corpus(source, place.work))
        documents = open_corpus_input(
            place.test, replace(self.reading, rejects=None) if test else CorpusOptions(), quiet=True
        )
        for each in (source, documents):
            read_and_report_rejects(each)
        return partial(compare_methods, place, wanted, self.seeds, documents, self.print_status)

    def build_place(self, path: str, test: str | None, source: Corpus, name: str) -> TrialContext:
        """The files to train on and to compare on; without test documents, the corpus is divided first."""
        from xmtc.analysis.compare.methods import prepare_split
        from xmtc.analysis.compare.runs import TrialContext, make_slug

        work = self.work / make_slug(name)
        work.mkdir(parents=True, exist_ok=True)
        if test is not None:
            words = tuple(format_corpus_options(replace(self.reading, rejects=None)))
            return TrialContext(
                name,
                (path,),
                test,
                work,
                words,
                self.machine_options,
                self.time_limit_seconds,
                self.cluster,
                self.n_cpus,
            )
        train, test = prepare_split(source, path, work)
        return TrialContext(
            name, (train,), test, work, (), self.machine_options, self.time_limit_seconds, self.cluster, self.n_cpus
        )

    def print_status(self, sentence: str) -> None:
        from xmtc.errors import escape_controls

        if not self.quiet:
            echo(escape_controls(sentence), err=True)


def read_and_report_rejects(corpus: Corpus) -> None:
    """What is set aside in a corpus, if anything may be: it is trained on in processes that are not listened to."""
    if corpus.rejects is not None:
        deque(corpus, maxlen=0)
        report_rejects(corpus)


@contextmanager
def open_work_folder(work: Path | None, output: str) -> Iterator[Path]:
    """The folder for runs; where none is named, compare.html has compare.work, and standard output one that nobody
    could find again, and that is removed."""
    from tempfile import TemporaryDirectory

    if work is not None or output != "-":
        yield work or Path(output).with_suffix(".work")
        return
    with TemporaryDirectory(prefix="xmtc-compare-") as folder:
        yield Path(folder)


def check_corpora(paths: Sequence[str], tests: Sequence[str] | None, models: Sequence[str]) -> None:
    from xmtc.errors import XmtcError

    for path in models:
        raise XmtcError(f"{path} is a model, and --methods trains others; trained ones: xmtc compare MODEL MODEL TEST.")
    if tests and len(tests) != len(paths):
        raise XmtcError(f"Found {len(tests)} --test for {len(paths)} corpora; give one for each, in the same order.")


def name_corpora(paths: Sequence[str]) -> list[str]:
    """What the corpora are called; two of a name are told apart."""
    from xmtc.analysis.compare.runs import make_corpus_name

    names: list[str] = []
    for path in paths:
        name = make_corpus_name(path)
        names.append(name if name not in names else path)
    return names
