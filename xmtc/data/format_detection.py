"""Detection of the format of a corpus from its extension or its first line.

The extension (without .gz, .bz2, .zst) determines the format of .jsonl, .ndjson, .csv, .parquet, .pq, .xlsx, .xls,
.ods, .npz, .ft, .fasttext, .html, .htm and .pdf files. A folder has the format `folder`. Two files, as in X.npz,Y.npz
or texts.txt,labels.txt, have the format npz or paired. For all other inputs, including .txt, .tsv and standard input,
the first of these rules that matches the first line that is not blank determines the format:

1. the magic number of Parquet or of a zip archive       → parquet, xlsx, npz
   the start of MARC, RIS, BibTeX or of XML with records → marc, ris, bibtex, marcxml, mods, dc
2. starts with `[{`, or is `[`; with .json, is no object → json
   starts with `{`                                       → jsonl
3. contains a word that starts with `__label__`          → fasttext
4. consists of three whole numbers                       → sparse
5. `1,2 3:0.5 …`: label numbers, then feature:value      → svmlight
6. tabs, and a cell is the name of the text or labels    → tsv (with a header)
7. two cells, the second consists of `<…>` words         → annif
8. two or three cells, the last of several words         → libmultilabel
9. any other line with tabs, or the extension .tsv       → tsv, whose header is checked later
10. `sep=;`, or a cell is the name of the text field     → csv (with any delimiter)

Two kinds of files are usually plain texts: text files with a matching label file (train_texts.txt and
train_labels.txt), which have the format paired; and documents without required labels. For these, a format is detected
only if it is certain: JSON or features that can be parsed (those of the second line after a sparse header), a header
with the text field, subjects that are URIs. Rules 8 and 9 do not apply, because a text may contain tabs, but a .tsv
file still needs its header. A plain .txt file is then one document, also if labels are required and in a file next to
it (a.txt and a.key). Any other plain file, and standard input, has one document per line, like
fasttext without labels."""

from __future__ import annotations

import os
import re
from contextlib import closing
from itertools import dropwhile, islice
from pathlib import Path

from xmtc.data.corpus_input import CorpusInput
from xmtc.data.file_streams import STANDARD_STREAM, get_extension
from xmtc.data.formats import (
    FORMATS,
    bibliographic,
    document_files,
    list_writable_formats,
    paired,
    sqlite,
    svmlight,
    table,
)
from xmtc.data.records import BadRecord, Fields, load_json, match_name, quote_text
from xmtc.errors import XmtcError

FORMAT_BY_EXTENSION = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".xlsb": "xlsx",
    ".xls": "xlsx",
    ".ods": "xlsx",
    ".html": "html",
    ".htm": "html",
    ".pdf": "pdf",
    ".docx": "docx",
    ".mrc": "marc",
    ".ris": "ris",
    ".bib": "bibtex",
    ".npz": "npz",
    ".ft": "fasttext",
    ".fasttext": "fasttext",
}
ARCHIVE_HINT = "an archive, expected a file or a folder; unpack it, and name what was in it"
WORD_PROCESSOR_HINT = "a file of a word processor, expected text; save it as .pdf, .html or .txt"
UNSUPPORTED_EXTENSIONS = dict.fromkeys((".zip", ".tar", ".tgz", ".7z", ".rar"), ARCHIVE_HINT)
UNSUPPORTED_EXTENSIONS |= dict.fromkeys((".doc", ".odt", ".rtf"), WORD_PROCESSOR_HINT)
PAIR_FORMATS = ("npz", "paired")  # formats of two files
MAX_XML_HEAD_LINES = 40
TAB_EXTENSIONS = (".tsv", ".tab")
FASTTEXT_LABEL = re.compile(r"(?:^|\s)__label__\S")
SPARSE_HEADER = re.compile(r"\d+\s+\d+\s+\d+\s*", re.ASCII)
JSON_ARRAY = re.compile(r"\[\s*({|$)")
ZIP_SIGNATURE = b"PK\x03\x04"
XLS_SIGNATURE = b"\xd0\xcf\x11\xe0"
# Names of members in the zip archive of a workbook.
WORKBOOK_MEMBER_PATTERN = re.compile(rb"\[Content_Types\]\.xml|_rels/|docProps/|xl/|opendocument\.spreadsheet")
FEATURE = r"\d+:[-+\d.eE]+"
FEATURE_LINE = re.compile(rf"(?:[-+\d.,]+\s+|\s*)(?:qid:\d+\s+)?{FEATURE}(?:\s+{FEATURE})*\s*(?:#.*)?", re.ASCII)


def detect_address_format(path: str) -> str | None:
    """Return the format of a path that names two files, or a query on a database; None if it names one file."""
    if sqlite.is_address(path):
        return "sqlite"
    if ".npz," in path:
        return "npz"
    return "paired" if len(paired.split_path_pair(path)) == 2 else None


def detect_format(source: CorpusInput) -> str:
    """Return the name of the format of a corpus; raise XmtcError if it is unknown."""
    if os.path.isdir(source.path):
        return "folder"
    extension = get_extension(source.path)
    if extension in FORMAT_BY_EXTENSION:
        return FORMAT_BY_EXTENSION[extension]
    if extension in UNSUPPORTED_EXTENSIONS:
        raise XmtcError(f"{source.name} is {UNSUPPORTED_EXTENSIONS[extension]}.")

    first = _peek_nonblank_line(source)
    format = _detect_by_first_line(first, source, extension)
    has_labels = paired.find_paired_labels(source.path) is not None
    is_document = extension == ".txt" and document_files.find_label_file(Path(source.path)) is not None
    may_be_texts = has_labels or is_document or not source.labels_required
    if may_be_texts and not _is_certain(format, source.decode_lossy(first), source):
        format = None
    if format is not None:
        return format
    if has_labels:
        return "paired" if source.should_read_labels else "fasttext"

    if extension in TAB_EXTENSIONS:
        return "tsv"
    if not first or (source.labels_required and not is_document):
        raise _unknown_format_error(source, first)
    return "text" if extension == ".txt" else "fasttext"


def choose_output_format(path: str, has_features: bool) -> str:
    """Return the name of the format for an output file, from its extension."""
    extension = get_extension(path)
    if detect_address_format(path) == "paired":
        return "paired"
    if extension == ".txt":
        return "sparse" if has_features else "fasttext"
    if extension in TAB_EXTENSIONS:
        return "tsv"
    if extension not in FORMAT_BY_EXTENSION:
        target = "Standard output" if path == STANDARD_STREAM else path
        raise XmtcError(
            f"{target} does not say which format to write; pass --format, one of {list_writable_formats()}."
        )
    return FORMAT_BY_EXTENSION[extension]


def _peek_nonblank_line(source: CorpusInput, after: int = 0) -> bytes:
    """Return the first line that is not blank, or the line that follows `after` lines later."""
    with closing(source.peek()) as lines:
        from_first = dropwhile(lambda line: not line.strip(), lines)
        return next(islice(from_first, after, None), b"")


def _peek_head(source: CorpusInput) -> bytes:
    """Return the first lines, in which XML declares its namespaces."""
    with closing(source.peek()) as lines:
        return b"".join(islice(lines, MAX_XML_HEAD_LINES))


def _detect_by_first_line(first: bytes, source: CorpusInput, extension: str) -> str | None:
    if first.startswith(b"PAR1"):
        return "parquet"
    if first.startswith(XLS_SIGNATURE):
        return "xlsx"
    if first.startswith(ZIP_SIGNATURE):
        return "xlsx" if WORKBOOK_MEMBER_PATTERN.search(first) else "npz"

    has_preamble = first.lstrip(b"\xef\xbb\xbf \t").startswith((b"<", b"%"))
    if records := bibliographic.sniff_format(_peek_head(source) if has_preamble else first):
        return records

    line = source.decode_lossy(first).rstrip("\r\n")
    if JSON_ARRAY.match(line.lstrip("\ufeff")) or (extension == ".json" and not _is_json_object(line)):
        return "json"
    if line.lstrip().startswith("{"):
        return "jsonl"
    if FASTTEXT_LABEL.search(line):
        return "fasttext"
    if SPARSE_HEADER.fullmatch(line):
        return "sparse"
    if FEATURE_LINE.fullmatch(line):
        return "svmlight"
    if "\t" in line and source.layout.delimiter in (None, "\t"):
        return _detect_by_cells(line.split("\t"), source.fields)
    return "csv" if table.DELIMITER_DECLARATION_PATTERN.fullmatch(line) or _is_header(line, source) else None


def _is_header(line: str, source: CorpusInput) -> bool:
    """Return True if a cell of the line is the text field, or if the user set the delimiter of a table."""
    if source.layout.delimiter is not None:
        return True
    return match_name(_split_header(line, source), source.fields.text_names[0]) is not None


def _split_header(line: str, source: CorpusInput) -> list[str]:
    return table.split_header(line, table.sniff_delimiter(line, source.fields, ","))


def _normalise_cells(cells: list[str]) -> set[str]:
    return {cell.strip().strip('"').casefold() for cell in cells}


def _detect_by_cells(cells: list[str], fields: Fields) -> str:
    if _normalise_cells(cells) & {name.casefold() for name in (fields.text_names[0], fields.labels) if name}:
        return "tsv"
    if len(cells) == 2 and all(re.fullmatch("<.*>", word) for word in cells[1].split()):
        return "annif"
    if len(cells) in (2, 3) and len(cells[-1].split()) > 1:
        return "libmultilabel"
    return "tsv"


def _is_certain(format: str | None, first: str, source: CorpusInput) -> bool:
    """Return True if a file that may contain plain texts certainly has the format of its first line."""
    cells = first.rstrip("\r\n").split("\t")
    if format == "jsonl":
        return _is_json_object(first)
    if format == "sparse":
        return _has_features(source.decode_lossy(_peek_nonblank_line(source, after=1)))
    if format == "svmlight":
        return _has_features(first)
    if format == "annif":
        return all(re.fullmatch("<[^<>:]+:[^<>]+>", word) for word in cells[1].split() or [""])
    if format == "csv":
        return len(_split_header(first, source)) > 1  # a text may start with the heading "Text"
    if format == "tsv":
        return source.fields.text_names[0].casefold() in _normalise_cells(cells)
    return format != "libmultilabel"


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(load_json(line), dict)
    except BadRecord:
        return False


def _has_features(line: str) -> bool:
    try:
        return FEATURE_LINE.fullmatch(line.rstrip("\r\n")) is not None and svmlight.parse(line, 1).features is not None
    except BadRecord:
        return False


def _unknown_format_error(source: CorpusInput, first: bytes) -> XmtcError:
    if not first:
        return XmtcError(f"{source.name} is empty, expected at least one document; check where it comes from.")
    line = source.decode_lossy(first).strip()
    return XmtcError(
        f"{source.name}: its first line {quote_text(line)} matches no known format; "
        f"pass --input-format, one of {', '.join(FORMATS)}."
    )
