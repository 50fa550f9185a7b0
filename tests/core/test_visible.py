"""Escaping of control characters in messages and in output on a terminal; files keep them."""

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
def test_control_characters_are_escaped(text, shown):
    assert escape_controls(text) == shown
    escape_controls(text).encode()


def test_a_message_is_one_line():
    error = XmtcError(f"There is no {EVIL}; check it.")
    assert str(error) == "There is no \\x1b[2J\\n\\r\\x07\\x9b\\u202e\\u2066\\u2028\\u200fx; check it."
    assert error.args == (f"There is no {EVIL}; check it.",)  # unchanged for programs


def test_json_stays_the_same_json():
    message = {"label": EVIL, "text": "half \ud83d", "nested": ["ü", 1]}
    write_prediction = escape_json_controls(json.dumps(message, ensure_ascii=False, indent=1))
    assert json.loads(write_prediction) == message
    assert escape_controls(write_prediction.replace("\n", "")) == write_prediction.replace("\n", "")


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


WRITERS = {"csv": csv_rows, "tsv": tsv_rows, "jsonl": json_lines, "table": terminal}


def write_prediction(format: str, stream: io.BytesIO) -> str:
    tags = [Tag("=1+1", 0.5), Tag(EVIL, 0.25), Tag("-1", 0.125)]
    with WRITERS[format](stream, PredictionTable()) as write:
        write([Prediction(EVIL, tags, text=EVIL)])
    return stream.getvalue().decode()


@pytest.mark.parametrize("format", ["csv", "tsv"])
def test_table_in_a_file_keeps_control_characters(format):
    """Check that only spreadsheet formulas are changed; the label -1 is kept."""
    rows = list(
        csv.reader(
            io.StringIO(write_prediction(format, io.BytesIO()), newline=""),
            dialect=f"excel{'-tab' * (format == 'tsv')}",
        )
    )
    assert rows == [
        ["id", "rank", "label", "score"],
        [EVIL, "1", "'=1+1", "0.5"],
        [EVIL, "2", EVIL, "0.25"],
        [EVIL, "3", "-1", "0.125"],
    ]


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl"])
def test_table_on_a_terminal_has_no_control_characters(format):
    answer = write_prediction(format, Terminal())
    assert not set(answer.replace("\n", "").replace("\t", "")) & set(EVIL.replace("x", "").replace("[2J", ""))
    assert answer.count("\n") == (1 if format == "jsonl" else 4)


def test_text_table_has_no_control_characters(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    answer = write_prediction("table", Terminal())
    assert not set(answer.replace("\n", "").replace("[1m", "")) & set("\r\x07\x9b\u202e\u2066\u2028\u200f")
    assert "\x1b[2J" not in answer
    assert "\\x1b[2J\\n\\r\\x07\\x9b" in answer


def test_json_lines_round_trip():
    result = json.loads(write_prediction("jsonl", io.BytesIO()))
    assert result["id"] == EVIL
    assert [each["label"] for each in result["labels"]] == ["=1+1", EVIL, "-1"]


def test_explanation_on_a_terminal_has_no_control_characters():
    highlight = Highlight(EVIL, 0.5, [WeightedText(f"one\r\ntwo{EVIL}", 1.0)], [(EVIL, 1.0)])
    shown = format_highlight(highlight, Console(force_terminal=True, no_color=True, file=io.StringIO()))
    assert "\x1b[2J" not in shown
    assert not set(shown) & set("\x07\x9b\u202e\u2066\u2028\u200f")
    assert "\r" not in shown.replace("\r\n", "")
    assert shown.startswith("\\x1b[2J\\n\\r")
    plain = format_highlight(highlight, Console(force_terminal=False, no_color=True, file=io.StringIO()))
    assert f"one\r\ntwo{EVIL}" in plain


def test_equal_name_is_not_suggested():
    assert find_similar_names("parabel", ["parabel", "parabels"]) == ["parabels"]
    assert find_similar_names("parabel", ["parabel"]) == []
    assert find_similar_names("prabel", ["parabel", "plt"]) == ["parabel"]
