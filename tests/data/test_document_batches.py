"""Documents in batches equal documents one by one, for all lines and readers."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xmtc.core.run import Run
from xmtc.data.batch import DocumentBatch, Texts, concatenate_bytes
from xmtc.data.corpus import open_corpus
from xmtc.data.document import Document
from xmtc.data.file_streams import read_blocks
from xmtc.data.label_collector import LabelCollector
from xmtc.data.layout import Layout
from xmtc.data.records import Fields
from xmtc.errors import XmtcError
from xmtc.pipeline import Pipeline
from xmtc.text.normalisation import normalize_text, normalize_texts
from xmtc.text.string_index import StringIndex, WordMerger, merge_word_batches, select_most_frequent, select_words

PLAIN = [
    '{"id": "a", "text": "Große Ærø ΑΣ \\u00e9\\n\\ud83d\\udc1f", "labels": ["x", "y|z"]}',
    '{"labels": [], "text": ""}',
    '{"id": 7, "text": "seven", "labels": ["x"], "year": 1999, "more": {"a": [1.5, null]}}',
    '{"text": "\\u0000 zero", "labels": ["日本", "x"], "id": null}',
]
OTHERS = [
    "", "   ", "{}", "[]", "7", "null", '"text"', "{", '{"text": "a", "labels": ["x"]', "not JSON", "\x00", "\ufeff",
    '{"text": "a", "labels": "x"}', '{"text": "a", "labels": null}', '{"text": null, "labels": ["x"]}', '{"text": "a"}',
    '{"text": "a", "labels": [1, "x"]}', '{"text": "a", "labels": [null]}', '{"text": "a", "labels": [""]}',
    '{"text": "a", "labels": ["x", "x", "y"]}', '{"text": 5, "labels": []}', '{"text": ["a"], "labels": []}',
    '{"text": "a", "text": "b", "labels": ["x"]}', '{"Text": "a", "LABELS": ["x"]}',
    '{"text": "\\ud800", "labels": []}', '{"text": "\\udc00", "labels": []}', '{"text": "a", "labels": ["\\ud83d"]}',
    '{"text": "tab\tinside", "labels": []}', '{"text": "a", "labels": ["x"]} null', "null null", '{"text": null} null',
    '{"text": "a", "labels": ["x"], "id": [1]}', '{"text": "a", "labels": ["x"], "id": 1.5}',
    '{"text": "a", "labels": ["x"], "id": true}', '{"text": "a", "labels": ["x"]} {"text": "b", "labels": ["y"]}',
    '{"text": "a", "labels": ["x"], "n": NaN}', '{"text": "a", "labels": ["x"], "n": 01}',
    '{"text": "a\rb", "labels": ["x"]}', '{"text": "a",\r"labels": ["x"]}', '{"text": "a", "labels": ["x"],}',
    ' {"text" : "a" , "labels" : [ "x" ] } ', '{"text": "a", "labels": ["x"]}\r',
]  # fmt: skip
# without zeros, which could be detected as UTF-16
ALL = st.lists(st.sampled_from(PLAIN * 8 + [line for line in OTHERS if line != "\0"]), max_size=8)


def content(documents) -> list[tuple[str, list[str]]]:
    """Yield texts and labels of single documents or batches."""
    found: list[tuple[str, list[str]]] = []
    for each in documents:
        if isinstance(each, DocumentBatch):
            names = each.label_names.to_pylist()
            labels = np.split(each.label_ids, each.label_offsets[1:-1])
            found += [(text, [names[n] for n in own]) for text, own in zip(each.texts, labels, strict=True)]
        else:
            found.append((each.text, each.labels))
    return found


def outcome(path: Path, run: Run | None, **options) -> tuple:
    """Return the documents or the error message, and the rejects."""
    rejects = path.with_suffix(".rejects")
    rejects.unlink(missing_ok=True)
    corpus = open_corpus(path, "jsonl", **options)
    try:
        found: object = content(corpus if run is None else corpus.iter_batches(run))
    except XmtcError as error:
        found = str(error)
    return found, rejects.read_bytes() if rejects.exists() else b"", corpus.n_rejected


@settings(max_examples=300, deadline=None)
@example([PLAIN[0], *OTHERS], True)
@given(ALL, st.booleans())
def test_batches_of_lines_equal_single_documents(tmp_path_factory, lines, ends):
    path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    path.write_bytes("\n".join(lines).encode() + b"\n" * ends)
    for options in ({}, {"on_error": "skip", "rejects": path.with_suffix(".rejects")}):
        assert outcome(path, Run(threads=1), **options) == outcome(path, None, **options)


@pytest.mark.parametrize("bad", OTHERS)
def test_batches_with_a_bad_line_equal_single_documents(tmp_path, bad):
    path = tmp_path / "lines.jsonl"
    path.write_bytes("\n".join([PLAIN[0], bad, PLAIN[1]]).encode())
    assert outcome(path, Run(threads=1)) == outcome(path, None)


def test_deeply_nested_json_does_not_crash(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"text": "a", "labels": ["x"], "n": ' + "[" * 10**6 + "]" * 10**6 + "}\n" + "[" * 10**6)
    with pytest.raises(XmtcError, match="line"):
        list(open_corpus(path).iter_batches(Run(threads=2)))


@pytest.mark.parametrize("bad", [b'{"text": "\xff", "labels": []}', b'{"text": ""\t, "\xff": 5, "labels": []}'])
def test_invalid_utf8_is_reported_with_its_line(tmp_path, bad):
    path = tmp_path / "lines.jsonl"
    line = json.dumps({"text": "a" * 20_000, "labels": ["x"]}).encode()
    path.write_bytes(b"\n".join([line] * 150 + [bad, line]))
    with pytest.raises(XmtcError, match="line 151: byte 0xff at position 1"):
        list(open_corpus(path, "jsonl", layout=Layout(encoding="utf-8")).iter_batches(Run(threads=2)))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_result_is_independent_of_blocks_and_threads(tmp_path, threads):
    path = tmp_path / "lines.jsonl.gz"
    padded = [line.strip()[:-1] + ', "padding": "' + "x" * 20_000 + '"}' for line in PLAIN[:2]]
    lines = [
        padded[i % 2] if i % 37 or i > 300 else OTHERS[i % 11] for i in range(500)
    ]  # ids of one type, as pyarrow requires
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    options = {"on_error": "skip", "rejects": path.with_suffix(".rejects")}
    expected = outcome(path, None, **options)
    assert len(list(read_blocks(str(path)))) > 4
    assert any(isinstance(each, DocumentBatch) for each in open_corpus(path, **options).iter_batches(Run(threads)))
    assert outcome(path, Run(threads), **options) == expected
    assert expected[2] > 5


def test_blocks_contain_all_lines_with_numbers(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%d\n" % i * (i % 5) for i in range(300)) + b"the last" * 40)
    blocks = list(read_blocks(str(path), size=50))
    assert b"".join(block.lines for block in blocks) == path.read_bytes()
    n_before = [0, *itertools.accumulate(block.n_lines for block in blocks)]
    assert [block.first_line_number for block in blocks] == [n + 1 for n in n_before[:-1]]
    assert n_before[-1] == len(path.read_bytes().split(b"\n"))
    (tmp_path / "empty").write_bytes(b"")
    assert not list(read_blocks(str(tmp_path / "empty")))


def test_damaged_file_is_reported_with_the_last_line(tmp_path):
    path = tmp_path / "damaged.jsonl.gz"
    content = gzip.compress(b"".join(b'{"text": "%d", "labels": ["x"]}\n' % (i**9) for i in range(30_000)))
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(XmtcError, match=r"after line \d+: the data is damaged or ends too early"):
        list(open_corpus(path, "jsonl").iter_batches(Run(threads=2)))


@pytest.mark.parametrize(
    "fields", [Fields(text="title,text"), Fields(separator=","), Fields(labels=None), Fields(keep=("id",))]
)
def test_other_fields_are_read_one_by_one(tmp_path, fields):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"id": "1", "title": "t", "text": "a", "labels": ["x"]}\n' * 3)
    found = list(open_corpus(path, fields=fields).iter_batches(Run()))
    assert found == list(open_corpus(path, fields=fields))


def test_missing_id_field_is_an_error(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"key": "a", "text": "a", "labels": ["x"]}\n{"text": "a", "labels": ["x"]}')
    with pytest.raises(XmtcError, match="line 2: there is no field 'key'"):
        list(open_corpus(path, fields=Fields(id="key")).iter_batches(Run()))


def test_fingerprint_is_independent_of_batches():
    def batch(*documents: tuple[str, list[str]]) -> DocumentBatch:
        import pyarrow

        flat = [label for _, labels in documents for label in labels]
        names = list(dict.fromkeys(flat))
        starts = np.cumsum([0, *(len(labels) for _, labels in documents)])
        numbers = np.array([names.index(label) for label in flat], np.int32)
        return DocumentBatch(
            Texts.from_strings(text for text, _ in documents), pyarrow.array(names, "string"), numbers, starts
        )

    def collected(*stream) -> tuple:
        collector = LabelCollector()
        assert len(list(collector.collect(stream))) == len(stream)
        return collector.fingerprint(), collector.to_matrix("abc").toarray().tolist(), list(collector.id_by_label)

    a, b, c = ("one", ["b", "a"]), ("töwo", []), ("", ["c", "b"])
    expected = collected(*(Document("", *each) for each in (a, b, c)))
    assert expected[1] == [[1, 1, 0], [0, 0, 0], [0, 1, 1]]
    assert collected(batch(a, b, c)) == collected(batch(a), batch(b, c)) == expected
    assert collected(batch(a), Document("", *b), batch(c)) == expected
    others = [[("on", ["b", "a"]), ("etöwo", []), c], [("one", ["b"]), ("töwo", ["a"]), c], [a, b, ("", ["c", "a"])]]
    assert len({expected[0], *(collected(batch(*other))[0] for other in others)}) == 4


SPECIAL = "aZ ÄßéİΣσςǄǅ가각\u1100\u1161\u11a8\u0301\u0315\u212a\u2126\u0958\u09be\u1e9e𐐀🐟ȺⱥꙀÅĸ"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.one_of(st.sampled_from(SPECIAL), st.characters(exclude_categories=["Cs"])))), st.booleans())
def test_compiled_normalization_equals_python(texts, lowercase):
    found = normalize_texts(Texts.from_strings(texts), lowercase)
    assert list(found) == [normalize_text(text, lowercase) for text in texts]


@pytest.mark.parametrize("lowercase", [False, True])
def test_compiled_normalization_equals_python_for_every_character(lowercase):
    characters = [chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000]
    for before in ("A", "\u1100", "Σ"):
        texts = [before + character + "e" for character in characters]
        assert list(normalize_texts(Texts.from_strings(texts), lowercase)) == [
            normalize_text(text, lowercase) for text in texts
        ]


BYTES = st.lists(st.text("abcä ", max_size=20).map(str.encode), unique=True, max_size=60)


@settings(deadline=None)
@given(BYTES, st.data())
def test_words_are_sorted_by_frequency_and_bytes(words, data):
    frequencies = np.array([data.draw(st.integers(0, 3)) for _ in words], np.int64)
    at_least, n = data.draw(st.integers(0, 3)), data.draw(st.none() | st.integers(0, 9))
    plain = sorted(np.flatnonzero(frequencies >= at_least).tolist(), key=lambda i: (-frequencies[i], words[i]))
    assert select_most_frequent(*concatenate_bytes(words), frequencies, at_least, n).tolist() == plain[:n]

    text, ends = select_words(*concatenate_bytes(words), np.array(plain[:n], np.int64))
    assert [bytes(text[a:b]) for a, b in itertools.pairwise(ends)] == [words[i] for i in plain[:n]]


@settings(deadline=None)
@given(st.lists(BYTES, max_size=12), st.integers(0, 40))
def test_merging_in_steps_equals_merging_at_once(batches, together):
    packed = [concatenate_bytes(batch) for batch in batches]
    merging = WordMerger(min_merge_words=together)
    for text, ends in packed:
        merging.add(text, ends)
    merging.merge()
    text, ends, numbers = merge_word_batches(packed)
    assert StringIndex(merging.text, merging.ends, np.empty(0)).words() == StringIndex(text, ends, np.empty(0)).words()
    assert [each.tolist() for each in merging.numbers] == [each.tolist() for each in numbers]


def test_items_are_prefetched_by_a_thread():
    made = []

    def items():
        for i in range(100):
            made.append(threading.get_ident())
            yield i

    stream = Run(threads=2).prefetch_items(items())
    assert next(stream) == 0
    until = time.monotonic() + 10
    while len(made) < 5 and time.monotonic() < until:
        time.sleep(0.01)
    assert 5 <= len(made) <= 12  # produced in advance, but a limited number
    assert list(stream) == list(range(1, 100))
    assert len(made) == 100
    assert {*made} != {threading.get_ident()}

    made.clear()
    assert list(Run(threads=1).prefetch_items(items())) == list(range(100))
    assert {*made} == {threading.get_ident()}


@pytest.mark.parametrize("threads", [1, 2])
def test_prefetch_error_is_raised_at_its_item(threads):
    def items():
        yield from range(20)
        raise XmtcError("after twenty")

    stream = Run(threads=threads).prefetch_items(items())
    assert list(itertools.islice(stream, 20)) == list(range(20))
    with pytest.raises(XmtcError, match="after twenty"):
        next(stream)


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_results_before_a_failure_are_returned(threads, n):
    def items():
        yield from range(n)
        raise XmtcError("no more")

    stream = Run(threads).map(lambda i: i * i, items(), "squaring")
    assert list(itertools.islice(stream, n)) == [i * i for i in range(n)]
    with pytest.raises(XmtcError, match="no more"):
        next(stream)


def test_closing_stops_prefetching():
    n_before, made = threading.active_count(), itertools.count()
    stream = Run(threads=2).prefetch_items(made)
    assert [next(stream), next(stream)] == [0, 1]
    stream.close()
    n_made = next(made)
    time.sleep(0.05)
    assert next(made) == n_made + 1
    assert threading.active_count() == n_before


def test_training_is_independent_of_batches(tmp_path):
    documents = [Document(str(i), f"Word{i % 7} word{i % 5} Ünï{i % 3} ΣΑΣ", [f"l{i % 7}"]) for i in range(300)]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": d.text, "labels": d.labels}) + "\n" for d in documents))
    pipeline = Pipeline.from_parameters("parabel", parameters={"min_df": 1})
    one, other = pipeline.prepare(open_corpus(path)), pipeline.prepare(documents)
    assert (one.fingerprint, one.data.fingerprint()) == (other.fingerprint, other.data.fingerprint())


def test_bad_line_leaves_no_thread_or_open_file(tmp_path):
    path = tmp_path / "corpus.jsonl"
    line = json.dumps({"text": "a" * 20_000, "labels": ["x"]})
    path.write_text('{"text": 1}\n' + f"{line}\n" * 500)
    assert len(list(read_blocks(str(path)))) > 4
    n_before = threading.active_count()
    with pytest.raises(XmtcError, match="line 1") as held:
        list(open_corpus(path).iter_batches(Run(threads=2)))
    assert held.value is not None  # like a notebook, which keeps the last error
    assert threading.active_count() == n_before


def test_line_beyond_the_limit_of_pyarrow_is_read_by_python(tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.data.formats.jsonl.MAX_ARROW_BYTES", 100)
    monkeypatch.setattr(read_blocks, "__defaults__", (None, None, 60))
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": "a" * n, "labels": ["x"]}) + "\n" for n in (10, 10, 200, 10, 10)))
    found = list(open_corpus(path).iter_batches(Run(threads=2)))
    assert [type(each) for each in found] == [DocumentBatch, Document, DocumentBatch]


@pytest.mark.parametrize("threads", [1, 2])
def test_earlier_errors_are_reported_before_damage(tmp_path, threads):
    """The file has fewer blocks than are prefetched."""
    lines = ['{"text": 1}', *(json.dumps({"text": f"{i}" * 2000, "labels": ["x"]}) for i in range(500))]
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode())[:-20])
    with pytest.raises(XmtcError, match="line 1: the field 'text'"):
        list(open_corpus(path).iter_batches(Run(threads)))
    rejects = tmp_path / "rejects"
    with pytest.raises(XmtcError, match="damaged"):
        list(open_corpus(path, on_error="skip", rejects=rejects).iter_batches(Run(threads)))
    assert rejects.read_text().startswith("1\t")


def test_batches_are_read_without_pandas(tmp_path):
    """pyarrow imports it by itself for many conversions."""
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join(PLAIN))
    program = f"""
import sys
from xmtc import Run
from xmtc.data.label_collector import LabelCollector
from xmtc.data.corpus import open_corpus

list(LabelCollector().collect(open_corpus({str(path)!r}).iter_batches(Run(threads=2))))
assert "pyarrow" in sys.modules and "pandas" not in sys.modules"""
    subprocess.run([sys.executable, "-c", program], check=True)
