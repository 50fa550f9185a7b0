"""Corpora: documents in files of any supported format, streamed one by one.

xmtc/data/format_detection.py describes how the format is detected."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

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
    get_extension,
    open_binary,
    open_output,
    unreadable_file_error,
)
from xmtc.data.format_detection import (
    FORMAT_BY_EXTENSION,
    PAIR_FORMATS,
    choose_output_format,
    detect_address_format,
    detect_format,
)
from xmtc.data.formats import CorpusFormat, Dimensions, get_format, list_writable_formats, sqlite
from xmtc.data.formats.paired import split_path_pair
from xmtc.data.label_checks import LabelChecker, MarkupChecker
from xmtc.data.layout import Layout, Notifier
from xmtc.data.records import Fields
from xmtc.data.rejects import RejectsFile
from xmtc.data.tables import TABLE_FORMAT, Table, TablePart, get_library, is_table
from xmtc.errors import XmtcError, escape_controls

ERROR_MODES = ("stop", "skip")
# Line-based formats, whose encoding is detected here. The others are binary, or detect it for each file.
LINE_FORMATS = (
    "jsonl",
    "json",
    "csv",
    "tsv",
    "fasttext",
    "annif",
    "libmultilabel",
    "sparse",
    "svmlight",
    "paired",
    "ris",
    "bibtex",
)
DEFAULT_DELIMITERS = {"csv": ",", "tsv": "\t"}
TABLE_FORMATS = ("csv", "tsv", "xlsx", "parquet", "sqlite", TABLE_FORMAT)  # with labels separated within a cell


class CorpusPart:
    """A file or folder of a corpus, with its detected format, encoding and layout."""

    def __init__(self, source: CorpusInput, format: str | None) -> None:
        self.source = source
        source.pipe = as_pipe(source.path, source.layout.encoding)
        source.encoding = source.layout.encoding
        detected = None
        if source.encoding is None:
            detected = self._detect_encoding(format or FORMAT_BY_EXTENSION.get(get_extension(source.path)))
        if detected is not None:
            source.encoding = detected.name
        self.format: CorpusFormat = get_format(format or detect_format(source))
        if detected is not None and self.format.name in LINE_FORMATS and detected.name != source.layout_hint.encoding:
            example = f" ({detected.example})" if detected.example else ""
            source.notifier.inform(f"{source.name} is read as {detected.name}{example}; --encoding overrides this.")
        if self.format.detect_layout is not None:
            source.layout = self.format.detect_layout(source)

        # Read now, because the header of a pipe can be peeked at only before the pipe is read.
        self.dimensions = self.format.read_dimensions(source) if self.format.read_dimensions else Dimensions()

    def _detect_encoding(self, format: str | None) -> Encoding | None:
        """Return the encoding of a file of a line-based or unknown format; None if it is UTF-8."""
        if format not in (None, *LINE_FORMATS):
            return None
        head = self._read_head()
        encoding_hint = self.source.layout_hint.encoding
        detected = detect_encoding(head, is_whole=len(head) < DETECTION_BYTES, encoding_hint=encoding_hint)
        return None if detected.name == UTF8 else detected

    def _read_head(self) -> bytes:
        """Return the first bytes; none of a folder or a damaged file, whose error is raised when it is read."""
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
        """Yield the documents; with a run, in batches and by all its threads if the format supports it."""
        source = replace(self.source, on_bad_line=reject, on_read=on_read, n_lines=0)
        if run is not None and self.format.read_batches is not None:
            return self.format.read_batches(source, run)
        return self.format.read(source)


class Corpus:
    """Documents in files or folders, streamed by iteration: `for document in open_corpus("train.jsonl")`.

    Each iteration reads the files again and does not hold them in memory. A pipe can be read only once. A corpus has
    no `len`, because counting its documents needs a pass.
    """

    def __init__(self, parts: list[Any], rejects: RejectsFile | None, progress: ProgressFactory) -> None:
        self.parts = parts
        self.rejects = rejects
        self.progress = progress
        self.notifier = parts[0].source.notifier
        self.fields = parts[0].source.fields
        self.labels_required = parts[0].source.labels_required
        feature_parts = [part for part in parts if part.format.has_features]
        text_parts = [part for part in parts if not part.format.has_features]
        if feature_parts and text_parts:
            raise XmtcError(
                f"{feature_parts[0].source.name} contains features and {text_parts[0].source.name} contains texts; "
                f"expected the same in all files of one corpus."
            )

    def __repr__(self) -> str:
        return f"Corpus({','.join(self.files)!r}, format={self.format!r})"

    @property
    def path(self) -> str:
        """The path or paths, for messages."""
        return " ".join(part.source.path for part in self.parts)

    @property
    def format(self) -> str:
        """The name of the format; the distinct names if there are several files."""
        return ", ".join(dict.fromkeys(part.format.name for part in self.parts))

    @property
    def files(self) -> list[str]:
        """The files or folders that are read; a pair of files counts as two."""
        return [file for part in self.parts for file in part.files]

    @property
    def has_features(self) -> bool:
        """True if documents have features instead of text."""
        return self.parts[0].format.has_features

    @property
    def dimensions(self) -> Dimensions:
        """The numbers of features and labels that the files declare."""
        return Dimensions(
            _max_or_none(part.dimensions.n_features for part in self.parts),
            _max_or_none(part.dimensions.n_labels for part in self.parts),
        )

    @property
    def n_features(self) -> int | None:
        """The number of features that the files declare; None if they declare none."""
        return self.dimensions.n_features

    @property
    def n_labels(self) -> int | None:
        """The number of labels that the files declare; None if they declare none."""
        return self.dimensions.n_labels

    @property
    def n_rejected(self) -> int:
        """The number of bad lines that the last pass skipped."""
        return 0 if self.rejects is None else self.rejects.count

    @property
    def read_options(self) -> dict[str, Any]:
        """The field and layout settings that are not defaults; a model stores them as hints for prediction."""
        source, format = self.parts[0].source, self.parts[0].format.name
        options = asdict(self.fields) | asdict(source.layout)
        if format in LINE_FORMATS:
            options["encoding"] = source.encoding
        defaults = asdict(Fields()) | asdict(Layout())
        defaults |= {"encoding": UTF8, "delimiter": DEFAULT_DELIMITERS.get(format)}
        return {name: value for name, value in options.items() if value not in (None, defaults[name])}

    def check_not_overwritten(self, path: str | Path) -> None:
        """Raise XmtcError if the path is a file of the corpus or in its folder."""
        for file in split_path_pair(str(path)):
            if file != STANDARD_STREAM and self._contains_file(os.path.realpath(file)):
                raise XmtcError(
                    f"{file} is part of the corpus that is read, expected another file; choose another name."
                )

    def _contains_file(self, path: str) -> bool:
        """Return True if a resolved path is a file of the corpus or lies directly in a folder of the corpus."""
        if not os.path.exists(path):
            return False
        return any(
            os.path.samefile(file, path) or (os.path.isdir(file) and os.path.samefile(file, os.path.dirname(path)))
            for file in self.files
            if os.path.exists(file)
        )

    def __iter__(self) -> Iterator[Document]:
        return self._iterate(None)

    @property
    def is_pipe(self) -> bool:
        """True if a part is a pipe, which can be read only once."""
        return any(part.source.pipe is not None for part in self.parts)

    def iter_batches(self, run: Run) -> Iterator[Document | DocumentBatch]:
        """Yield the same documents, read by all threads of the run, and in batches if the format supports it."""
        return self._iterate(run)

    def _iterate(self, run: Run | None) -> Iterator[Any]:
        if self.rejects is None:
            return self._iter_documents(raise_bad_line, run)
        return self._iter_valid_documents(self.rejects, run)

    def _iter_valid_documents(self, rejects: RejectsFile, run: Run | None) -> Iterator[Any]:
        with rejects.open_pass():
            yield from self._iter_documents(rejects.write, run)

    def _iter_documents(self, reject: Callable[[BadLine], None], run: Run | None) -> Iterator[Any]:
        checker, markup_checker = LabelChecker(), MarkupChecker()
        for part in self.parts:
            is_split_jsonl = part.format.name == "jsonl" and self.fields.separator is not None
            is_split = part.format.name in TABLE_FORMATS or is_split_jsonl
            should_check = is_split and part.source.should_read_labels
            for document in self._iter_part(part, reject, run):
                if should_check:
                    checker.add_document_labels(document.labels)
                if part.format.name in TABLE_FORMATS:
                    markup_checker.add_text(document.text)
                yield document
        for problem in (*checker.find_problems(), *markup_checker.find_problems()):
            self.notifier.warn(f"{display_name(self.path)}: {problem}")

    def _iter_part(self, part: CorpusPart, reject: Callable[[BadLine], None], run: Run | None) -> Iterator[Any]:
        file = next(iter(part.files), "")  # of a pair, the one whose bytes are counted; none of a table in memory
        n_bytes = os.path.getsize(file) if os.path.isfile(file) else None
        is_empty = True

        with self.progress(f"reading {escape_controls(part.source.path)}", n_bytes) as progress:
            for document in part.read(reject, progress.advance, run):
                is_empty = False
                yield document

        if is_empty and self.n_rejected:
            raise XmtcError(f"No document is valid: {self.rejects}")
        if is_empty:
            name = part.source.name
            raise XmtcError(f"{name} is empty, expected at least one document; check where it comes from.")


def _max_or_none(numbers: Iterator[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


def open_corpus(
    path: str | Path | Sequence[str | Path] | Table,
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
    """Open a corpus for streaming.

    Parameters
    ----------
    path : str, Path, sequence of them, or table
        A file, a folder, a pair of files ("texts.txt,labels.txt"), standard input ("-"), a pattern ("part-*.csv") or a
        query ("sqlite:///books.db?query=SELECT text, labels FROM books"); or several of these. Or a table in memory: a
        data frame of pandas or polars, an Arrow table, a relation of DuckDB or a data set of Hugging Face.
    format : str, optional
        Name of the format; it is detected by default.
    fields : Fields
        Names of the fields.
    labels_required : bool
        Raise an error if a document has no label field. Use False for documents without labels.
    on_error : {"stop", "skip"}
        Raise an error at a bad line, or write it to the rejects file.
    rejects : str or Path, optional
        Rejects file; the default is ``<path>.rejects``.
    progress : callable, optional
        Factory of a progress bar.
    layout : Layout
        Encoding, delimiter and sheet, if they are not to be detected.
    layout_hint : Layout
        Probable layout, for example that of the training corpus; it decides where detection is uncertain.
    notifier : Notifier, optional
        Receiver of messages; the default emits Python warnings.

    Returns
    -------
    Corpus
        Iterable of `Document`.

    Raises
    ------
    XmtcError
        If the file is missing or its format is unknown.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from xmtc import open_corpus
    >>> path = Path(tempfile.mkdtemp(), "fish.jsonl")
    >>> _ = path.write_text('{"text": "Herring in the North Sea", "labels": ["fish", "sea"]}')
    >>> [document.labels for document in open_corpus(path)]
    [['fish', 'sea']]
    """
    if on_error not in ERROR_MODES:
        raise XmtcError(f"on_error={on_error!r} is unknown, expected one of {', '.join(ERROR_MODES)}.")

    notifier = notifier or Notifier()
    if is_table(path):
        return open_table(path, fields, labels_required, on_error, rejects, progress, notifier)
    paths = remove_duplicate_paths(expand_paths([path] if isinstance(path, (str, Path)) else cast(Any, path)), notifier)
    parts, files = [], []
    for path in paths:
        part_format = format or detect_address_format(path)
        file = path if part_format is None else get_format(part_format).resolve_files(path)[0] or path
        _check_readable(file, part_format)
        source = CorpusInput(path, fields, labels_required, layout=layout, layout_hint=layout_hint, notifier=notifier)
        source.should_skip_bad_files = on_error == "stop" and fields.labels is None
        source.id_prefix = f"{os.path.basename(path)}:" if len(paths) > 1 else ""
        parts.append(CorpusPart(source, part_format))
        files.append(file)

    rejects_file = None
    if on_error == "skip":
        rejects_file = RejectsFile(_rejects_path(files, rejects), display_name(" ".join(files)))
    return Corpus(parts, rejects_file, progress)


def open_table(
    table: Table | Any,
    fields: Fields,
    labels_required: bool,
    on_error: str,
    rejects: str | Path | None,
    progress: ProgressFactory,
    notifier: Notifier,
) -> Corpus:
    """Open a table in memory as a corpus; see `open_corpus`."""
    source = CorpusInput(f"table of {get_library(table)}", fields, labels_required, notifier=notifier)
    if on_error == "skip" and rejects is None:
        raise XmtcError("on_error='skip' needs the name of a rejects file for a table; expected rejects='FILE'.")
    rejects_file = None if on_error == "stop" else RejectsFile(str(rejects), source.name)
    return Corpus([TablePart(table, source)], rejects_file, progress)


def expand_paths(paths: Sequence[str | Path]) -> list[str]:
    """Return the paths with patterns replaced by the matching files, sorted by name."""
    expanded: list[str] = []
    for path in map(str, paths):
        is_pattern = glob.has_magic(path) and not os.path.lexists(path) and not sqlite.is_address(path)
        matches = sorted(glob.glob(path, recursive=True)) if is_pattern else [path]
        if not matches and not any(map(os.path.lexists, split_path_pair(path))):
            raise XmtcError(f"{path}: no file matches this pattern; check it, and put it in quotes.")
        expanded += matches or [path]
    if not expanded:
        raise XmtcError("There is no file to read; name at least one.")
    return expanded


def remove_duplicate_paths(paths: Sequence[str], notifier: Notifier) -> list[str]:
    """Return the paths without those of a file that occurred before; warn once if there are any."""
    first_paths: dict[tuple[str, ...], str] = {}  # by resolved path
    duplicates: dict[str, str] = {}  # by first path
    for path in paths:
        key = (
            (path,)
            if path == STANDARD_STREAM or sqlite.is_address(path)
            else tuple(map(os.path.realpath, split_path_pair(path)))
        )
        if key in first_paths:
            duplicates.setdefault(first_paths[key], path)
        first_paths.setdefault(key, path)
    if duplicates:
        first, second = map(display_name, next(iter(duplicates.items())))
        problem = f"{first} is named more than once" if first == second else f"{first} and {second} are the same"
        more = f" (and {len(duplicates) - 1:,} more)" if len(duplicates) > 1 else ""
        notifier.warn(
            f"{problem}, and read once{more}; expected each file once: remove the others, or copy the file if its "
            "documents should count twice."
        )
    return list(first_paths.values())


@contextmanager
def open_corpus_writer(
    path: str | Path, format: str | None = None, source_corpus: Corpus | None = None
) -> Iterator[Callable[[Document], None]]:
    """Yield a function that adds a Document to a new corpus file, which is written atomically.

    `source_corpus` is the corpus that the documents come from. It determines whether they have text or features, and
    how many features; it is never overwritten."""
    path = str(path)
    if source_corpus is not None:
        source_corpus.check_not_overwritten(path)

    has_features = source_corpus is not None and source_corpus.has_features
    output_format = get_format(format or choose_output_format(path, has_features))
    if output_format.write is None:
        raise XmtcError(
            f"{path}: {output_format.name} can be read but not written; expected one of {list_writable_formats()}."
        )

    if source_corpus is not None and output_format.has_features != has_features:
        content, format_content = ("features", "text") if has_features else ("text", "features")
        expected = "sparse" if has_features else "jsonl, csv, tsv, parquet or fasttext"
        raise XmtcError(
            f"{source_corpus.path} contains {content}, but {output_format.name} is a format for {format_content}; "
            f"expected {expected}."
        )

    dimensions = Dimensions() if source_corpus is None else source_corpus.dimensions
    with ExitStack() as stack:
        streams = [stack.enter_context(open_output(file)) for file in _list_output_files(path, output_format)]
        yield stack.enter_context(output_format.write(*streams, dimensions))


def _list_output_files(path: str, format: CorpusFormat) -> tuple[str, ...]:
    if format.name != "paired":
        return (path,)
    files = split_path_pair(path)
    if len(set(map(os.path.realpath, files))) != 2:
        raise XmtcError(f"{path}: paired writes two files; name both, as in TEXTS.txt,LABELS.txt.")
    return files


def _check_readable(path: str, format: str | None) -> None:
    if path == STANDARD_STREAM:
        if format in PAIR_FORMATS:
            raise XmtcError(f"{format} is a pair of files, which standard input cannot contain; pass their paths.")
        return
    try:
        if os.path.isdir(path):
            os.listdir(path)
            if format not in (None, "annif", "folder"):
                raise IsADirectoryError
        elif os.path.isfile(path) or not os.path.exists(path):  # a pipe can be opened only once
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
