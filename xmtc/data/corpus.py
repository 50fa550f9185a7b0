"""A corpus: documents in any format, read one by one, and as often as needed.

How the format is detected from extension and content is described in xmtc/data/detect.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xmtc.base.progress import ShowProgress, silent
from xmtc.data.detect import PAIRS, detect, format_of_pair, format_to_write
from xmtc.data.document import Document
from xmtc.data.files import STANDARD_STREAM, display_name, unreadable, writing
from xmtc.data.formats import Dimensions, Format, format_named, writable_formats
from xmtc.data.formats.paired import named_files
from xmtc.data.records import Fields
from xmtc.data.rejects import Rejects
from xmtc.data.source import BadLine, Source, pipe_of, stop
from xmtc.errors import XmtcError, visible

ON_ERROR = ("stop", "skip")


class Corpus:
    """Documents in a file or folder, read one by one: `for document in open_corpus("train.jsonl")`.

    Each iteration reads the file anew, so a corpus can be passed over as often as needed and is never held in memory;
    only a pipe can be read no more than once. How many documents there are takes a pass to tell, so it has no `len`.
    """

    def __init__(
        self,
        path: str,
        format: str | None,
        fields: Fields,
        labels_required: bool,
        rejects: Rejects | None,
        progress: ShowProgress,
    ) -> None:
        self.path = path
        self.fields = fields
        self.labels_required = labels_required
        self.rejects = rejects
        self.progress = progress

        self._pipe = pipe_of(path)
        self._format: Format = format_named(format or detect(self._source(stop)))

        # Read here, because the header of a pipe can be looked at only before the pipe is read.
        read_dimensions = self._format.dimensions
        self.dimensions = read_dimensions(self._source(stop)) if read_dimensions else Dimensions()

    def __repr__(self) -> str:
        return f"Corpus({','.join(self.files)!r}, format={self.format!r})"

    @property
    def format(self) -> str:
        return self._format.name

    @property
    def files(self) -> list[str]:
        """What is read: the file or folder, or the two files of a pair."""
        return [file for file in self._format.files(self.path) if file is not None]

    @property
    def holds_features(self) -> bool:
        """Whether documents hold features instead of text."""
        return self._format.holds_features

    @property
    def n_features(self) -> int | None:
        """Columns of the feature matrix as the file declares them; None if that takes a full pass."""
        return self.dimensions.n_features

    @property
    def n_labels(self) -> int | None:
        """Labels as the file declares them; None if that takes a full pass."""
        return self.dimensions.n_labels

    @property
    def n_rejected(self) -> int:
        """Bad lines that were skipped in the last pass."""
        return 0 if self.rejects is None else self.rejects.count

    def check_target(self, path: str | Path) -> None:
        """Refuse to write over the corpus, or over a file in its folder."""
        for file in named_files(str(path)):
            if file != STANDARD_STREAM and os.path.exists(file) and self._holds(file):
                raise XmtcError(
                    f"{file} is part of the corpus that is read, expected another file; choose another name."
                )

    def _holds(self, path: str) -> bool:
        """Whether a file is one of those that are read."""
        in_folder = os.path.isdir(self.path)
        targets = [path, os.path.dirname(os.path.realpath(path))] if in_folder else [path]
        return any(os.path.exists(s) and os.path.samefile(s, target) for s in self.files for target in targets)

    def __iter__(self) -> Iterator[Document]:
        if self.rejects is None:
            return self._documents(stop)
        return self._documents_without_rejects(self.rejects)

    def _source(self, reject: Callable[[BadLine], None]) -> Source:
        return Source(
            path=self.path,
            fields=self.fields,
            labels_required=self.labels_required,
            reject=reject,
            pipe=self._pipe,
        )

    def _documents_without_rejects(self, rejects: Rejects) -> Iterator[Document]:
        with rejects.of_one_pass():
            yield from self._documents(rejects.keep)

    def _documents(self, reject: Callable[[BadLine], None]) -> Iterator[Document]:
        source = self._source(reject)
        file = self.files[0]  # of a pair, the one whose lines are counted
        n_bytes = os.path.getsize(file) if os.path.isfile(file) else None
        is_empty = True

        with self.progress(f"reading {visible(self.path)}", n_bytes) as progress:
            source.on_read = progress.advance
            for document in self._format.read(source):
                is_empty = False
                yield document

        if is_empty and self.n_rejected:
            raise XmtcError(f"Every document was refused: {self.rejects}")
        if is_empty:
            name = display_name(self.path)
            raise XmtcError(f"{name} is empty, expected at least one document; check where it comes from.")


def open_corpus(
    path: str | Path,
    format: str | None = None,
    fields: Fields = Fields(),
    labels_required: bool = True,
    on_error: str = "stop",
    rejects: str | Path | None = None,
    progress: ShowProgress = silent,
) -> Corpus:
    """Open the corpus in a file, a folder, a pair of files ("texts.txt,labels.txt"), or standard input ("-").

    A bad line is an error, or with on_error="skip" is written to the rejects file, by default `<path>.rejects`.
    With labels_required=False, as for documents to be tagged, the labels may be missing altogether."""
    path = str(path)
    if on_error not in ON_ERROR:
        raise XmtcError(f"on_error={on_error!r} is unknown, expected one of {', '.join(ON_ERROR)}.")

    format = format or format_of_pair(path)
    file = path if format is None else format_named(format).files(path)[0] or path
    _check_readable(file, format)

    return Corpus(
        path=path,
        format=format,
        fields=fields,
        labels_required=labels_required,
        rejects=Rejects(_rejects_path(file, rejects), display_name(file)) if on_error == "skip" else None,
        progress=progress,
    )


@contextmanager
def writing_corpus(
    path: str | Path, format: str | None = None, like: Corpus | None = None
) -> Iterator[Callable[[Document], None]]:
    """A function that adds a Document to a new corpus file, which is written whole or not at all.

    `like` is the corpus that the documents come from: whether they hold text or features, and how many features there
    are, is taken from it. It is never written over."""
    path = str(path)
    if like is not None:
        like.check_target(path)

    holds_features = like is not None and like.holds_features
    chosen = format_named(format or format_to_write(path, holds_features))
    if chosen.write is None:
        raise XmtcError(f"{path}: {chosen.name} can be read but not written; expected one of {writable_formats()}.")

    if like is not None and chosen.holds_features != holds_features:
        held, wanted = ("features", "text") if holds_features else ("text", "features")
        other = "sparse" if holds_features else "jsonl, csv, tsv, parquet or fasttext"
        raise XmtcError(f"{like.path} holds {held}, and {chosen.name} holds {wanted}; expected {other} to write to.")

    with ExitStack() as stack:
        streams = [stack.enter_context(writing(file)) for file in _targets(path, chosen)]
        yield stack.enter_context(chosen.write(*streams, Dimensions() if like is None else like.dimensions))


def _targets(path: str, format: Format) -> tuple[str, ...]:
    """The files that a corpus is written to."""
    if format.name != "paired":
        return (path,)
    files = named_files(path)
    if len(set(map(os.path.realpath, files))) != 2:
        raise XmtcError(f"{path}: paired writes two files; name both, as in TEXTS.txt,LABELS.txt.")
    return files


def _check_readable(path: str, format: str | None) -> None:
    if path == STANDARD_STREAM:
        if format in PAIRS:
            raise XmtcError(f"{format} is a pair of files, which standard input cannot hold; give their path.")
        return
    try:
        if os.path.isdir(path):
            os.listdir(path)
            if format not in (None, "annif"):
                raise IsADirectoryError
        elif os.path.isfile(path) or not os.path.exists(path):  # a pipe must not be opened twice
            open(path, "rb").close()
    except OSError as error:
        raise unreadable(path, error) from None


def _rejects_path(path: str, rejects: str | Path | None) -> str:
    if rejects is None:
        return "stdin.rejects" if path == STANDARD_STREAM else os.path.normpath(path) + ".rejects"
    if os.path.exists(rejects) and os.path.exists(path) and os.path.samefile(rejects, path):
        raise XmtcError(f"{rejects} is the corpus itself, expected another file for the rejects; choose another name.")
    return str(rejects)
