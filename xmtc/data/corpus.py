"""A corpus: documents in any format, read one by one, and as often as needed.

How the format is detected from extension and content is described in xmtc/data/format_detection.py."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from xmtc.core.progress import ProgressFactory, hide_progress
from xmtc.core.run import Run
from xmtc.data.batch import DocumentBatch
from xmtc.data.corpus_input import BadLine, CorpusInput, as_pipe, raise_bad_line
from xmtc.data.document import Document
from xmtc.data.encodings import DETECTION_BYTES, UTF8, Encoding, detect_encoding
from xmtc.data.file_streams import (
    STANDARD_STREAM,
    STREAM_ERRORS,
    display_name,
    open_binary,
    open_output,
    unreadable_file_error,
)
from xmtc.data.format_detection import (
    FORMAT_BY_EXTENSION,
    PAIR_FORMATS,
    choose_output_format,
    detect_format,
    detect_pair_format,
    get_extension,
)
from xmtc.data.formats import CorpusFormat, Dimensions, get_format, list_writable_formats
from xmtc.data.formats.paired import split_path_pair
from xmtc.data.label_checks import LabelChecker
from xmtc.data.layout import Layout, Notifier
from xmtc.data.records import Fields
from xmtc.data.rejects import RejectsFile
from xmtc.errors import XmtcError, escape_controls

ERROR_MODES = ("stop", "skip")
# Formats of text in lines, whose encoding is looked for; the others are bytes, or look for it file by file.
LINE_FORMATS = ("jsonl", "csv", "tsv", "fasttext", "annif", "libmultilabel", "sparse", "svmlight", "paired")
DEFAULT_DELIMITERS = {"csv": ",", "tsv": "\t"}
TABLE_FORMATS = ("csv", "tsv", "xlsx", "parquet")  # where a separator stands between labels


class CorpusPart:
    """One file or folder of a corpus."""

    def __init__(self, source: CorpusInput, format: str | None) -> None:
        self.source = source
        source.pipe = as_pipe(source.path, source.layout.encoding)
        source.encoding = source.layout.encoding
        found = (
            None
            if source.encoding
            else self._detect_encoding(format or FORMAT_BY_EXTENSION.get(get_extension(source.path)))
        )
        if found is not None:
            source.encoding = found.name
        self.format: CorpusFormat = get_format(format or detect_format(source))
        if found is not None and self.format.name in LINE_FORMATS and found.name != source.layout_hint.encoding:
            example = f" ({found.example})" if found.example else ""
            source.notifier.inform(f"{source.name} is read as {found.name}{example}; --encoding names another.")
        if self.format.detect_layout is not None:
            source.layout = self.format.detect_layout(source)

        # Read here, because the header of a pipe can be looked at only before the pipe is read.
        self.dimensions = self.format.read_dimensions(source) if self.format.read_dimensions else Dimensions()

    def _detect_encoding(self, format: str | None) -> Encoding | None:
        """The encoding of a file in lines, if it is not UTF-8; of a file whose format is not known, as if it were."""
        if format not in (None, *LINE_FORMATS):
            return None
        head = self._read_head()
        found = detect_encoding(
            head, is_whole=len(head) < DETECTION_BYTES, encoding_hint=self.source.layout_hint.encoding
        )
        return None if found.name == UTF8 else found

    def _read_head(self) -> bytes:
        """How it begins; nothing of a folder, and of what is damaged, of which whoever reads it is told."""
        if self.source.pipe is not None:
            return self.source.pipe.peek_head()
        if not os.path.isfile(self.source.path):
            return b""
        try:
            with open_binary(self.source.path, encoding=UTF8) as stream:
                return stream.read(DETECTION_BYTES)
        except STREAM_ERRORS:
            return b""

    @property
    def files(self) -> list[str]:
        return [file for file in self.format.resolve_files(self.source.path) if file is not None]

    def read(
        self, reject: Callable[[BadLine], None], on_read: Callable[[int], None], run: Run | None = None
    ) -> Iterator[Any]:
        """Documents; with a run, by all of its threads, and in batches where the format has them."""
        source = replace(self.source, on_bad_line=reject, on_read=on_read, n_lines=0)
        if run is not None and self.format.read_batches is not None:
            return self.format.read_batches(source, run)
        return self.format.read(source)


class Corpus:
    """Documents in files or folders, read one by one: `for document in open_corpus("train.jsonl")`.

    Each iteration reads the file anew, so a corpus can be passed over as often as needed and is never held in memory;
    only a pipe can be read no more than once. How many documents there are takes a pass to tell, so it has no `len`.
    """

    def __init__(self, parts: list[CorpusPart], rejects: RejectsFile | None, progress: ProgressFactory) -> None:
        self.parts = parts
        self.rejects = rejects
        self.progress = progress
        self.notifier = parts[0].source.notifier
        self.fields = parts[0].source.fields
        self.labels_required = parts[0].source.labels_required
        features, texts = ([p for p in parts if p.format.has_features is holds] for holds in (True, False))
        if features and texts:
            raise XmtcError(
                f"{features[0].source.name} holds features and {texts[0].source.name} holds texts; expected the same "
                f"in all files of one corpus."
            )

    def __repr__(self) -> str:
        return f"Corpus({','.join(self.files)!r}, format={self.format!r})"

    @property
    def path(self) -> str:
        """What was opened, for messages."""
        return " ".join(part.source.path for part in self.parts)

    @property
    def format(self) -> str:
        """The name of the format; of several files, those that they have."""
        return ", ".join(dict.fromkeys(part.format.name for part in self.parts))

    @property
    def files(self) -> list[str]:
        """What is read: the file or folder, or the two files of a pair; or several of them."""
        return [file for part in self.parts for file in part.files]

    @property
    def has_features(self) -> bool:
        """Whether documents hold features instead of text."""
        return self.parts[0].format.has_features

    @property
    def dimensions(self) -> Dimensions:
        """How many features and labels the files declare."""
        found = [part.dimensions for part in self.parts]
        return Dimensions(
            _max_or_none(each.n_features for each in found), _max_or_none(each.n_labels for each in found)
        )

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

    @property
    def read_options(self) -> dict[str, Any]:
        """How it was read, as far as it is not as usual: what a model remembers of the corpus that it is trained on."""
        source, format = self.parts[0].source, self.parts[0].format.name
        found = asdict(self.fields) | asdict(source.layout)
        if format in LINE_FORMATS:
            found["encoding"] = source.encoding
        usual = asdict(Fields()) | asdict(Layout()) | {"encoding": UTF8, "delimiter": DEFAULT_DELIMITERS.get(format)}
        return {name: value for name, value in found.items() if value not in (None, usual[name])}

    def check_not_overwritten(self, path: str | Path) -> None:
        """Refuse to write over the corpus, or over a file in its folder."""
        for file in split_path_pair(str(path)):
            if file != STANDARD_STREAM and self._contains_file(os.path.realpath(file)):
                raise XmtcError(
                    f"{file} is part of the corpus that is read, expected another file; choose another name."
                )

    def _contains_file(self, path: str) -> bool:
        """Whether a file, links followed, is one of those that are read, or lies in a folder that is."""
        if not os.path.exists(path):
            return False
        folder = os.path.dirname(path)
        targets = {file: [path, folder] if os.path.isdir(file) else [path] for file in self.files}
        return any(os.path.exists(file) and os.path.samefile(file, each) for file in targets for each in targets[file])

    def __iter__(self) -> Iterator[Document]:
        return self._iterate(None)

    def iter_batches(self, run: Run) -> Iterator[Document | DocumentBatch]:
        """The same documents, read by all threads of the run; where the format allows, many at a time."""
        return self._iterate(run)

    def _iterate(self, run: Run | None) -> Iterator[Any]:
        if self.rejects is None:
            return self._iter_documents(raise_bad_line, run)
        return self._iter_valid_documents(self.rejects, run)

    def _iter_valid_documents(self, rejects: RejectsFile, run: Run | None) -> Iterator[Any]:
        with rejects.open_pass():
            yield from self._iter_documents(rejects.write, run)

    def _iter_documents(self, reject: Callable[[BadLine], None], run: Run | None) -> Iterator[Any]:
        watch = LabelChecker()
        for part in self.parts:
            is_split = part.format.name in TABLE_FORMATS or (
                part.format.name == "jsonl" and self.fields.separator is not None
            )
            is_watched = is_split and part.source.should_read_labels
            for document in self._iter_part(part, reject, run):
                if is_watched:
                    watch.add_document_labels(document.labels)
                yield document
        for sentence in watch.find_problems():
            self.notifier.warn(f"{display_name(self.path)}: {sentence}")

    def _iter_part(self, part: CorpusPart, reject: Callable[[BadLine], None], run: Run | None) -> Iterator[Any]:
        file = part.files[0]  # of a pair, the one whose lines are counted
        n_bytes = os.path.getsize(file) if os.path.isfile(file) else None
        is_empty = True

        with self.progress(f"reading {escape_controls(part.source.path)}", n_bytes) as progress:
            for document in part.read(reject, progress.advance, run):
                is_empty = False
                yield document

        if is_empty and self.n_rejected:
            raise XmtcError(f"Every document was refused: {self.rejects}")
        if is_empty:
            name = part.source.name
            raise XmtcError(f"{name} is empty, expected at least one document; check where it comes from.")


def _max_or_none(numbers: Iterator[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


def open_corpus(
    path: str | Path | Sequence[str | Path],
    format: str | None = None,
    fields: Fields = Fields(),
    labels_required: bool = True,
    on_error: str = "stop",
    rejects: str | Path | None = None,
    progress: ProgressFactory = hide_progress,
    *,
    layout: Layout = Layout(),
    layout_hint: Layout = Layout(),
    notifier: Notifier | None = None,
) -> Corpus:
    """Open the corpus in a file, a folder, a pair of files ("texts.txt,labels.txt"), or standard input ("-"); or in
    several of them, a list or a pattern ("part-*.csv").

    A bad line is an error, or with on_error="skip" is written to the rejects file, by default `<path>.rejects`.
    With labels_required=False, as for documents to be tagged, the labels may be missing altogether. `layout` says how
    the bytes are laid out where they do not tell themselves, `likely` how they probably are."""
    if on_error not in ERROR_MODES:
        raise XmtcError(f"on_error={on_error!r} is unknown, expected one of {', '.join(ERROR_MODES)}.")

    notifier = notifier or Notifier()
    paths = remove_duplicate_paths(expand_paths([path] if isinstance(path, (str, Path)) else path), notifier)
    formats = [format or detect_pair_format(path) for path in paths]
    files = [
        path if chosen is None else get_format(chosen).resolve_files(path)[0] or path
        for path, chosen in zip(paths, formats, strict=True)
    ]
    parts = []
    for file, path, chosen in zip(files, paths, formats, strict=True):
        _check_readable(file, chosen)
        source = CorpusInput(path, fields, labels_required, layout=layout, layout_hint=layout_hint, notifier=notifier)
        source.id_prefix = f"{os.path.basename(path)}:" if len(paths) > 1 else ""
        parts.append(CorpusPart(source, chosen))

    kept = RejectsFile(_rejects_path(files, rejects), display_name(" ".join(files))) if on_error == "skip" else None
    return Corpus(parts, kept, progress)


def expand_paths(paths: Sequence[str | Path]) -> list[str]:
    """The files that paths and patterns stand for; those of a pattern sorted by name."""
    found: list[str] = []
    for path in map(str, paths):
        is_pattern = glob.has_magic(path) and not os.path.lexists(path)
        matches = sorted(glob.glob(path, recursive=True)) if is_pattern else [path]
        if not matches and not any(map(os.path.lexists, split_path_pair(path))):
            raise XmtcError(f"{path}: no file fits this pattern; check it, and put it in quotes.")
        found += matches or [path]
    if not found:
        raise XmtcError("There is no file to read; name at least one.")
    return found


def remove_duplicate_paths(paths: Sequence[str], voice: Notifier) -> list[str]:
    """The same without what is named again, by whatever name; it is said once, however many there are."""
    first: dict[tuple[str, ...], str] = {}
    again: dict[str, str] = {}  # by the names that came first
    for path in paths:
        key = (path,) if path == STANDARD_STREAM else tuple(map(os.path.realpath, split_path_pair(path)))
        if key in first:
            again.setdefault(first[key], path)
        first.setdefault(key, path)
    if again:
        one, other = map(display_name, next(iter(again.items())))
        found = f"{one} is named more than once" if one == other else f"{one} and {other} are the same"
        more = f" (and {len(again) - 1:,} more)" if len(again) > 1 else ""
        voice.warn(
            f"{found}, and read once{more}; expected each file once: leave the others out, or copy it where its "
            "documents are to count twice."
        )
    return list(first.values())


@contextmanager
def open_corpus_writer(
    path: str | Path, format: str | None = None, source_corpus: Corpus | None = None
) -> Iterator[Callable[[Document], None]]:
    """A function that adds a Document to a new corpus file, which is written whole or not at all.

    `like` is the corpus that the documents come from: whether they hold text or features, and how many features there
    are, is taken from it. It is never written over."""
    path = str(path)
    if source_corpus is not None:
        source_corpus.check_not_overwritten(path)

    holds_features = source_corpus is not None and source_corpus.has_features
    chosen = get_format(format or choose_output_format(path, holds_features))
    if chosen.write is None:
        raise XmtcError(
            f"{path}: {chosen.name} can be read but not written; expected one of {list_writable_formats()}."
        )

    if source_corpus is not None and chosen.has_features != holds_features:
        held, wanted = ("features", "text") if holds_features else ("text", "features")
        other = "sparse" if holds_features else "jsonl, csv, tsv, parquet or fasttext"
        raise XmtcError(
            f"{source_corpus.path} holds {held}, and {chosen.name} holds {wanted}; expected {other} to write to."
        )

    with ExitStack() as stack:
        streams = [stack.enter_context(open_output(file)) for file in _list_output_files(path, chosen)]
        yield stack.enter_context(
            chosen.write(*streams, Dimensions() if source_corpus is None else source_corpus.dimensions)
        )


def _list_output_files(path: str, format: CorpusFormat) -> tuple[str, ...]:
    """The files that a corpus is written to."""
    if format.name != "paired":
        return (path,)
    files = split_path_pair(path)
    if len(set(map(os.path.realpath, files))) != 2:
        raise XmtcError(f"{path}: paired writes two files; name both, as in TEXTS.txt,LABELS.txt.")
    return files


def _check_readable(path: str, format: str | None) -> None:
    if path == STANDARD_STREAM:
        if format in PAIR_FORMATS:
            raise XmtcError(f"{format} is a pair of files, which standard input cannot hold; give their path.")
        return
    try:
        if os.path.isdir(path):
            os.listdir(path)
            if format not in (None, "annif", "folder"):
                raise IsADirectoryError
        elif os.path.isfile(path) or not os.path.exists(path):  # a pipe must not be opened twice
            open(path, "rb").close()
            if format == "folder":
                raise XmtcError(f"{path} is a file, expected a folder of documents; pass another --input-format.")
    except OSError as error:
        raise unreadable_file_error(path, error) from None


def _rejects_path(files: list[str], rejects: str | Path | None) -> str:
    if rejects is None:
        return "stdin.rejects" if files[0] == STANDARD_STREAM else os.path.normpath(files[0]) + ".rejects"
    for path in files:
        if os.path.exists(rejects) and os.path.exists(path) and os.path.samefile(rejects, path):
            raise XmtcError(
                f"{rejects} is the corpus itself, expected another file for the rejects; choose another name."
            )
    return str(rejects)
