"""What a terminal would obey is shown, never sent: in messages, and in answers on a terminal. Files get all of it."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from xmtc.cli.explain import format_highlight
from xmtc.errors import XmtcError, escape_controls, escape_json_controls, find_similar_names
from xmtc.explain.highlights import Highlight, WeightedText
from xmtc.output import Prediction, PredictionTable
from xmtc.output.terminal import terminal
from xmtc.output.text import csv_rows, json_lines, tsv_rows
from xmtc.tagger import Tag

EVIL = "\x1b[2J\n\r\x07\x9b\u202e\u2066\u2028\u200fx"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("naïve ünï 数字 👩\u200d💻", "naïve ünï 数字 👩\u200d💻"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\tc\rd\0", "a\\nb\\tc\\rd\\x00"),
        ("\x9b\x7f", "\\x9b\\x7f"),
        ("abc\u202edef", "abc\\u202edef"),
        ("\u2066\u2028\u200f\u061c", "\\u2066\\u2028\\u200f\\u061c"),
        ("caf\udce9.txt", "caf\\xe9.txt"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_what_is_obeyed_is_escaped(text, shown):
    assert escape_controls(text) == shown
    escape_controls(text).encode()


def test_a_message_is_one_line():
    error = XmtcError(f"There is no {EVIL}; check it.")
    assert str(error) == "There is no \\x1b[2J\\n\\r\\x07\\x9b\\u202e\\u2066\\u2028\\u200fx; check it."
    assert error.args == (f"There is no {EVIL}; check it.",)  # as it was, for programs


def test_json_stays_the_same_json():
    said = {"label": EVIL, "text": "half \ud83d", "nested": ["ü", 1]}
    written = escape_json_controls(json.dumps(said, ensure_ascii=False, indent=1))
    assert json.loads(written) == said
    assert escape_controls(written.replace("\n", "")) == written.replace("\n", "")


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


WRITERS = {"csv": csv_rows, "tsv": tsv_rows, "jsonl": json_lines, "table": terminal}


def written(format: str, stream: io.BytesIO) -> str:
    tags = [Tag("=1+1", 0.5), Tag(EVIL, 0.25), Tag("-1", 0.125)]
    with WRITERS[format](stream, PredictionTable()) as write:
        write([Prediction(EVIL, tags, text=EVIL)])
    return stream.getvalue().decode()


@pytest.mark.parametrize("format", ["csv", "tsv"])
def test_a_table_in_a_file_is_read_as_it_was(format):
    """But for what a spreadsheet takes for a formula; the label -1 stays the label -1."""
    rows = list(
        csv.reader(io.StringIO(written(format, io.BytesIO()), newline=""), dialect=f"excel{'-tab' * (format == 'tsv')}")
    )
    assert rows == [
        ["id", "rank", "label", "score"],
        [EVIL, "1", "'=1+1", "0.5"],
        [EVIL, "2", EVIL, "0.25"],
        [EVIL, "3", "-1", "0.125"],
    ]


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl"])
def test_a_table_on_a_terminal_is_harmless(format):
    answer = written(format, Terminal())
    assert not set(answer.replace("\n", "").replace("\t", "")) & set(EVIL.replace("x", "").replace("[2J", ""))
    assert answer.count("\n") == (1 if format == "jsonl" else 4)


def test_the_table_that_people_read_is_harmless(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    answer = written("table", Terminal())
    assert not set(answer.replace("\n", "").replace("[1m", "")) & set("\r\x07\x9b\u202e\u2066\u2028\u200f")
    assert "\x1b[2J" not in answer
    assert "\\x1b[2J\\n\\r\\x07\\x9b" in answer


def test_json_lines_are_read_as_they_were():
    found = json.loads(written("jsonl", io.BytesIO()))
    assert found["id"] == EVIL
    assert [each["label"] for each in found["labels"]] == ["=1+1", EVIL, "-1"]


def test_an_explanation_on_a_terminal_is_harmless():
    highlight = Highlight(EVIL, 0.5, [WeightedText(f"one\r\ntwo{EVIL}", 1.0)], [(EVIL, 1.0)])
    shown = format_highlight(highlight, Console(force_terminal=True, no_color=True, file=io.StringIO()))
    assert "\x1b[2J" not in shown
    assert not set(shown) & set("\x07\x9b\u202e\u2066\u2028\u200f")
    assert "\r" not in shown.replace("\r\n", "")
    assert shown.startswith("\\x1b[2J\\n\\r")
    plain = format_highlight(highlight, Console(force_terminal=False, no_color=True, file=io.StringIO()))
    assert f"one\r\ntwo{EVIL}" in plain


def test_the_very_name_is_never_near():
    assert find_similar_names("parabel", ["parabel", "parabels"]) == ["parabels"]
    assert find_similar_names("parabel", ["parabel"]) == []
    assert find_similar_names("prabel", ["parabel", "plt"]) == ["parabel"]
