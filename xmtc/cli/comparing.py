"""Methods trained for a comparison, as the options of a command say it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from xmtc.cli.options import Reading, as_words, open_input, report_rejects
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.analysis.compare.figures import Comparison
    from xmtc.analysis.compare.runs import Place
    from xmtc.data.corpus import Corpus


@dataclass(frozen=True)
class Asked:
    """Which methods are to be trained, and how, on any corpus."""

    methods: Sequence[str]
    parameters: Sequence[str]
    seeds: int
    limit: float | None  # seconds of each training
    reading: Reading
    machine: tuple[str, ...]  # options that say where to work
    work: Path
    quiet: bool
    cluster: str = ""
    n_cpus: int = 1

    def on(self, path: str, test: str | None, name: str) -> Callable[[], Comparison]:
        """What is to be done on a corpus that was looked at: of several, one that cannot be is refused before the first
        is trained on."""
        from xmtc.analysis.compare.methods import compare_methods
        from xmtc.analysis.compare.runs import claim, write_few
        from xmtc.analysis.compare.specs import specs
        from xmtc.features import COLUMNS, TEXTS

        source = open_input(path, self.reading, quiet=True)
        wanted = specs(self.methods, self.parameters, COLUMNS if source.holds_features else TEXTS)
        claim(self.work)
        place = self.place(path, test, source, name)
        place = replace(place, few=write_few(source, place.work))
        documents = open_input(place.test, replace(self.reading, rejects=None) if test else Reading(), quiet=True)
        for each in (source, documents):
            tell_rejects(each)
        return partial(compare_methods, place, wanted, self.seeds, documents, self.tell)

    def place(self, path: str, test: str | None, source: Corpus, name: str) -> Place:
        """The files to train on and to compare on; without test documents, the corpus is divided first."""
        from xmtc.analysis.compare.methods import split
        from xmtc.analysis.compare.runs import Place, slug

        work = self.work / slug(name)
        work.mkdir(parents=True, exist_ok=True)
        if test is not None:
            words = tuple(as_words(replace(self.reading, rejects=None)))
            return Place(name, (path,), test, work, words, self.machine, self.limit, self.cluster, self.n_cpus)
        train, test = split(source, path, work)
        return Place(name, (train,), test, work, (), self.machine, self.limit, self.cluster, self.n_cpus)

    def tell(self, sentence: str) -> None:
        from xmtc.errors import escape_controls

        if not self.quiet:
            echo(escape_controls(sentence), err=True)


def tell_rejects(corpus: Corpus) -> None:
    """What is set aside in a corpus, if anything may be: it is trained on in processes that are not listened to."""
    if corpus.rejects is not None:
        deque(corpus, maxlen=0)
        report_rejects(corpus)


@contextmanager
def work_folder(work: Path | None, output: str) -> Iterator[Path]:
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


def names_of(paths: Sequence[str]) -> list[str]:
    """What the corpora are called; two of a name are told apart."""
    from xmtc.analysis.compare.runs import data_name

    names: list[str] = []
    for path in paths:
        name = data_name(path)
        names.append(name if name not in names else path)
    return names
