"""A corpus: documents from any format, one by one, as often as they are asked for.

How the format is told from extension and content is written in xmtc/data/detect.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from xmtc.base.run import ShowProgress, silent
from xmtc.data.detect import detect, format_to_write
from xmtc.data.document import Document
from xmtc.data.files import STANDARD_STREAM, display_name, unreadable, writing
from xmtc.data.formats import Format, Shape, format_named, writable_formats
from xmtc.data.records import Fields
from xmtc.data.rejects import Rejects
from xmtc.data.source import BadLine, Source, pipe_of, stop
from xmtc.errors import XmtcError

ON_ERROR = ("stop", "skip")


class Corpus:
    """Iterate over it for its Documents; each pass streams the file anew (standard input can be passed once)."""

    def __init__(
        self,
        path: str,
        format: str | None,
        fields: Fields,
        labels_required: bool,
        rejects: Rejects | None,
        progress: ShowProgress,
    ) -> None:
        self.path, self.fields, self.labels_required = path, fields, labels_required
        self.rejects, self.progress = rejects, progress
        self._pipe = pipe_of(path)
        self._format: Format = format_named(format or detect(self._source(stop)))
        # now, because a pipe shows its header only before it is read
        self.shape = Shape() if self._format.shape is None else self._format.shape(self._source(stop))

    @property
    def format(self) -> str:
        return self._format.name

    @property
    def holds_features(self) -> bool:
        """Whether documents hold features instead of text."""
        return self._format.holds_features

    @property
    def n_features(self) -> int | None:
        """Columns of the feature matrix as the file declares them; None if only a full pass can tell."""
        return self.shape.n_features

    @property
    def n_labels(self) -> int | None:
        """Labels as the file declares them; None if only a full pass can tell."""
        return self.shape.n_labels

    @property
    def n_rejected(self) -> int:
        """Lines set aside in the last pass."""
        return 0 if self.rejects is None else self.rejects.count

    def check_target(self, path: str | Path) -> None:
        """Refuse to write over the corpus, or over a file in its folder."""
        from xmtc.data.formats.npz import pair

        if path == STANDARD_STREAM or not os.path.exists(path):
            return
        sources = filter(None, pair(self.path) if self.format == "npz" else [self.path])
        places = [path, os.path.dirname(os.path.realpath(path))] if os.path.isdir(self.path) else [path]
        if any(os.path.exists(s) and os.path.samefile(s, place) for s in sources for place in places):
            raise XmtcError(f"{path} is part of the corpus that is read, expected another file; choose another name.")

    def __iter__(self) -> Iterator[Document]:
        if self.rejects is None:
            return self._documents(stop)
        return self._documents_less_rejects(self.rejects)

    def _source(self, reject: Callable[[BadLine], None]) -> Source:
        return Source(self.path, self.fields, self.labels_required, reject, self._pipe)

    def _documents_less_rejects(self, rejects: Rejects) -> Iterator[Document]:
        with rejects.of_one_pass():
            yield from self._documents(rejects.keep)

    def _documents(self, reject: Callable[[BadLine], None]) -> Iterator[Document]:
        is_empty, source = True, self._source(reject)
        n_bytes = os.path.getsize(self.path) if os.path.isfile(self.path) else None
        with self.progress(f"reading {self.path}", n_bytes) as progress:
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
    """The corpus in a file, a folder, or standard input ("-").

    A bad line stops the reading, or with on_error="skip" goes to the rejects file, by default `<path>.rejects`.
    Without labels_required, as for documents to be tagged, the labels may be missing altogether."""
    path = str(path)
    if on_error not in ON_ERROR:
        raise XmtcError(f"on_error={on_error!r} is unknown, expected one of {', '.join(ON_ERROR)}.")
    file = path
    if format == "npz" or ".npz," in path:
        file, format = path.partition(",")[0], "npz"
    _check_readable(file, format)
    kept = Rejects(_rejects_path(file, rejects), display_name(file)) if on_error == "skip" else None
    return Corpus(path, format, fields, labels_required, kept, progress)


@contextmanager
def writing_corpus(
    path: str | Path, format: str | None = None, like: Corpus | None = None
) -> Iterator[Callable[[Document], None]]:
    """A function that adds a Document to a new corpus file, which appears whole at the end or not at all.

    `like` is the corpus that the documents come from: it tells what they hold and how many features there are, and is
    never written over."""
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
    with writing(path) as stream, chosen.write(stream, Shape() if like is None else like.shape) as add:
        yield add


def _check_readable(path: str, format: str | None) -> None:
    if path == STANDARD_STREAM:
        if format == "npz":
            raise XmtcError("npz is a pair of files, which standard input cannot hold; give their path.")
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
