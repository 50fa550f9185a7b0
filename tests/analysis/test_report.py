"""Reports: statistics checked by hand, and the files that show them."""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from commands import xmtc
from planted import make_planted_corpus
from scipy.sparse import csr_array

from xmtc.analysis.report import Report, compute_report
from xmtc.analysis.report.files import as_json, render_label_csv, render_markdown
from xmtc.analysis.report.page import render_page
from xmtc.analysis.report.tables import Excerpt, NamedReport
from xmtc.core.predictions import NO_LABEL, Predictions

# four documents, labels 0 to 3 known, 4 not; ranked and given
TRUE = [[1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 1, 0, 0, 1], [1, 0, 0, 1, 0]]
RANKED = [[0, 1, 2], [0, 3, 2], [3, 0, 1], [2, 3, 0]]
SCORES = [[0.9, 0.8, 0.1], [0.95, 0.6, 0.4], [0.85, 0.3, 0.2], [0.7, 0.6, 0.5]]
GIVEN = 0.55
FREQUENCIES, N_TRAIN = np.array([120, 30, 7, 2]), 150


def answers() -> tuple[Predictions, Predictions]:
    ranked = Predictions(np.array(RANKED), np.array(SCORES))
    return ranked, ranked.apply_threshold(GIVEN)


@pytest.fixture(scope="module")
def report() -> Report:
    branches = ["first", "first", "second", None, None]
    words = np.array([10, 20, 30, 40])
    return compute_report(
        *answers(), csr_array(np.array(TRUE)), FREQUENCIES, N_TRAIN, document_lengths=words, branches=branches
    )


def test_metrics_have_intervals(report):
    assert report.n_docs == 4
    assert report.metrics["P@1"].mean == pytest.approx(2 / 4)
    for found in report.metrics.values():
        assert found.low <= found.mean <= found.high


def test_what_is_given_by_hand(report):
    # given: {0, 1}, {0, 3}, {3}, {2, 3}; right: 2, 1, 0, 1 of 2, 2, 2, 2
    found = report.decided
    assert found.labels_per_document == pytest.approx(7 / 4)
    assert found.micro == pytest.approx((4 / 7, 4 / 8, 8 / 15))
    assert found.by_document == pytest.approx(
        ((1 + 0.5 + 0 + 0.5) / 4, (1 + 0.5 + 0 + 0.5) / 4, (1 + 0.5 + 0 + 0.5) / 4)
    )
    # labels 0 to 4: right 2 1 0 1 0, given 2 1 1 3 0, true 3 2 1 1 1
    assert found.macro[2] == pytest.approx((4 / 5 + 2 / 3 + 0 + 2 / 4 + 0) / 5)


def test_labels_by_hand(report):
    found = {each.label_id: each for each in report.labels}
    assert [each.label_id for each in report.labels][:2] == [0, 1]
    assert set(found) == {0, 1, 2, 3, 4}
    zero = found[0]
    assert (zero.n_training_documents, zero.support, zero.n_assigned, zero.n_correct) == (120, 3, 2, 2)
    assert (zero.n_missed, zero.n_wrong) == (1, 0)
    assert (zero.precision, zero.recall, zero.f1) == pytest.approx((1, 2 / 3, 4 / 5))
    assert zero.confused_with == ((2, 1),)  # in document 3, where 2 was given and 0 missed
    assert zero.missed_in == (3,)
    assert found[3].wrongly_in == (1, 2)
    assert found[1].confused_with == ((3, 1),)
    assert np.isnan(found[4].precision)
    assert found[4].recall == 0


def test_bands_by_hand(report):
    assert [(band.least, band.most, band.n_labels, band.n_true) for band in report.bands] == [
        (0, 0, 1, 1), (1, 4, 1, 1), (5, 19, 1, 1), (20, 99, 1, 2), (100, 999, 1, 3),
    ]  # fmt: skip
    rare, frequent = report.bands[1], report.bands[-1]
    assert (rare.precision, rare.recall) == pytest.approx((1 / 3, 1))
    assert frequent.found_at_5 == 1  # the third answer of document 3 is label 0
    assert np.isnan(rare.auc)  # too few documents for a curve


def test_curves_where_labels_occur_often():
    rng = np.random.default_rng(0)
    Y = (rng.random((60, 3)) < 0.4).astype(np.int8)
    scores = (Y * 0.8 + rng.random(Y.shape) * 0.1).astype(np.float32)  # never wrong
    order = np.argsort(-scores, axis=1)
    ranked = Predictions(order, np.take_along_axis(scores, order, 1))
    report = compute_report(ranked, ranked.apply_threshold(0.5), csr_array(Y), np.array([30, 40, 50]), 100)
    (band,) = report.bands
    assert (band.auc, band.aupr, band.f1) == pytest.approx((1, 1, 1))
    assert report.decided.micro == pytest.approx((1, 1, 1))


def test_calibration_by_hand(report):
    # scores 0.9 and 0.95 (both right), 0.85 (wrong), 0.8 (right) …
    top = report.calibration[-1]
    assert (top.score, top.right, top.n) == pytest.approx(((0.9 + 0.95) / 2, 1.0, 2))
    assert sum(each.n for each in report.calibration) == 12


def test_lengths_and_branches(report):
    assert [(each.least, each.most, each.n_docs) for each in report.lengths] == [
        (10, 10, 1), (20, 20, 1), (30, 30, 1), (40, 40, 1),
    ]  # fmt: skip
    assert report.lengths[0].metrics["P@1"] == 1
    first, second = report.branches
    assert (first.name, first.n_true) == ("first", 5)
    assert (first.precision, first.recall) == pytest.approx((3 / 3, 3 / 5))
    assert (second.name, second.precision) == ("second", 0)


def test_documents_of_one_length_are_one_group():
    found = compute_report(*answers(), csr_array(np.array(TRUE)), FREQUENCIES, N_TRAIN, document_lengths=np.full(4, 7))
    assert [each.n_docs for each in found.lengths] == [4]


def test_the_surest_of_the_worst_come_first(report):
    assert report.worst[0] == 2  # its one true known label is third
    assert report.worst.index(3) < report.worst.index(1)
    assert report.unknown == [(4, 1)]


def test_without_answers_there_are_still_figures():
    none = Predictions(np.full((2, 3), NO_LABEL), np.zeros((2, 3)))
    found = compute_report(none, none, csr_array(np.array([[1, 0], [0, 1]])), np.array([3, 4]), 7)
    assert found.decided.micro == (0, 0, 0)
    assert found.calibration == []
    text = render_page(named(found))
    assert "Missed most often" in text
    assert "nan" not in text


def named(report: Report) -> NamedReport:
    names = ["zero", "<b>one</b>", "two | 2", "drei, drei", "unbekannt"]
    excerpts = [Excerpt("doc-2", "A text & more", ["<b>one</b>"], [("drei, drei", 0.85)], ["word"])]
    return NamedReport(report, "Report <1>", {"Model": "m & n"}, names.__getitem__, lambda doc: f"doc-{doc}", excerpts)


class Seen(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links = [], set(), set()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids |= {found["id"]} if "id" in found else set()
        self.links |= {found["href"]} if "href" in found else set()
        assert tag not in ("script", "img", "link", "iframe", "object")
        assert not any(name.startswith("on") or str(value).startswith(("http", "//")) for name, value in attrs)
        if tag not in ("meta", "rect", "path", "circle", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in ("rect", "path", "circle", "polyline"):
            return
        assert self.open.pop() == tag


def test_a_page_is_whole_and_needs_nothing_else(report):
    text = render_page(named(report))
    seen = Seen()
    seen.feed(text)
    assert seen.open == []
    assert {link.removeprefix("#") for link in seen.links} <= seen.ids
    assert len(seen.links) == 11
    assert "<b>one</b>" not in text
    assert "&lt;b&gt;one&lt;/b&gt;" in text
    assert "A text &amp; more" in text
    assert not re.search(r"\bnan\b", text)


def test_a_page_of_many_labels_folds_them(report):
    many = replace(report, labels=report.labels * 10)
    assert "<summary>50 rows</summary>" in render_page(named(many))


def test_markdown_json_and_rows(report):
    text = render_markdown(named(report))
    assert text.startswith("<!-- xmtc report -->\n\n# Report &lt;1>\n")
    assert "| two \\| 2 |" in text
    assert "| P@1 | 50.0 |" in text
    found = json.loads(as_json(named(report)))
    assert found["metrics"]["P@1"]["mean"] == 0.5
    assert found["labels"][0]["label"] == "zero"
    assert found["labels"][0]["given_in_its_place"] == [["two | 2", 1]]
    assert found["bands"][0]["auc"] is None
    rows = list(csv.DictReader(io.StringIO(render_label_csv(named(report)))))
    assert len(rows) == 5
    assert rows[0]["label"] == "zero"
    assert rows[3]["label"] in ("two | 2", "drei, drei", "unbekannt")
    assert float(rows[0]["recall"]) == pytest.approx(2 / 3, abs=1e-6)


# through the command


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    for name, n, seed in (("train", 300, 0), ("test", 60, 1)):
        texts, tags = make_planted_corpus(n, seed=seed)
        lines = [
            json.dumps(
                {"id": f"d{i}", "text": text, "labels": [*labels, "new"] if name == "test" and i < 3 else labels}
            )
            for i, (text, labels) in enumerate(zip(texts, tags, strict=True))
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    done = xmtc("train", "train.jsonl", "-o", "model", "-p", "n_trees=1", "-q", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_command_writes_every_form(place):
    for name in ("report.html", "report.md", "report.json", "report.csv"):
        done = xmtc("report", "model", "test.jsonl", "-o", name, cwd=place)
        assert done.returncode == 0, done.stderr
        assert f"{name} written." in done.stderr.decode()
        done = xmtc("report", "model", "test.jsonl", "-o", name, "-q", cwd=place)  # one of ours may be replaced
        assert done.returncode == 0, done.stderr
    found = json.loads((place / "report.json").read_text())
    assert found["documents"] == 60
    assert found["metrics"]["P@1"]["mean"] > 0.8
    assert found["unknown"] == [["new", 3]]
    expected = json.loads(xmtc("evaluate", "model", "test.jsonl", "P@1", "--json", "-q", cwd=place).stdout)["P@1"]
    assert found["metrics"]["P@1"]["mean"] == pytest.approx(expected)
    assert found["worst"][0]["words"]
    assert len(list(csv.DictReader((place / "report.csv").open()))) == len(found["labels"])


def test_as_many_labels_are_given_as_in_training_unless_a_threshold_says_otherwise(place):
    assert xmtc("report", "model", "test.jsonl", "-o", "a.json", "-q", cwd=place).returncode == 0
    usual = json.loads((place / "a.json").read_text())["decided"]["tags"]
    lines = [json.loads(line) for line in (place / "train.jsonl").read_text().splitlines()]
    assert usual == pytest.approx(np.mean([len(line["labels"]) for line in lines]), abs=0.1)
    assert xmtc("report", "model", "test.jsonl", "-o", "b.json", "--threshold", 2, "-q", cwd=place).returncode == 0
    assert json.loads((place / "b.json").read_text())["decided"]["tags"] == 0


def test_figures_of_each_label_by_hand():
    from xmtc.analysis.report.files import iter_label_records

    class Known:  # as much of a Tagger as is asked
        labels = type("Labels", (list,), {"words": lambda self: list(self)})(["a", "b", "c", "d"])
        frequencies, concepts = FREQUENCIES, None

    _, given = answers()
    found = {each["label"]: each for each in iter_label_records(Known(), given, csr_array(np.array(TRUE)), ["new"])}
    assert list(found) == ["a", "b", "c", "d", "new"]
    # a is given twice and right, and missed once, where c and d were given; d is given three times and right once
    expected = {"training_documents": 120, "support": 3, "given": 2, "right": 2, "precision": 1, "f1": 0.8}
    assert expected.items() <= found["a"].items()
    assert found["a"]["recall"] == pytest.approx(2 / 3, abs=1e-6)
    assert found["a"]["given_in_its_place"] == "c (1)"
    assert (found["d"]["given"], found["d"]["right"], found["d"]["support"]) == (3, 1, 1)
    assert found["new"]["precision"] is None
    assert found["new"]["recall"] == 0
    assert found["new"]["given_in_its_place"] == "d (1)"


@pytest.mark.parametrize("name", ["labels.csv", "labels.tsv", "labels.jsonl", "labels.xlsx", "labels.parquet"])
def test_evaluate_writes_the_figures_of_each_label(place, name):
    plain = xmtc("evaluate", "model", "test.jsonl", "--json", "-q", cwd=place)
    done = xmtc("evaluate", "model", "test.jsonl", "--json", "-q", "--per-label", name, cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout  # metrics are the same, however deep it looks
    assert f"{name} written. Labels are assigned from a score of" in done.stderr.decode()
    assert (place / name).stat().st_size > 1000
    if name.endswith("csv"):
        rows = list(csv.DictReader((place / name).open()))
        xmtc("report", "model", "test.jsonl", "-o", "same.csv", "-q", cwd=place)
        assert rows == list(csv.DictReader((place / "same.csv").open()))  # the report's own


def test_a_perfect_ranking_has_no_interval():
    ranked = Predictions(np.array([[0, 1], [1, 0], [2, 0]]), np.full((3, 2), 0.5))
    Y = csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]]))
    found = compute_report(ranked, ranked, Y, np.array([50, 3, 1]), 60).metrics["PSP@5"]
    assert (found.mean, found.low, found.high) == pytest.approx((1, 1, 1))


def test_no_spreadsheet_runs_a_label(report):
    names = ["=1+1", "b", "c", "d", "e"]
    rows = render_label_csv(NamedReport(report, "t", {}, names.__getitem__, str))
    assert "\n'=1+1," in rows


def test_markdown_shows_the_documents_too(report):
    assert "**doc-2** A text & more" in render_markdown(named(report))


def test_what_a_report_would_write_over_is_kept(place):
    (place / "notes.md").write_text("# Report: my own\n")
    done = xmtc("report", "model", "test.jsonl", "-o", "notes.md", cwd=place)
    assert (done.returncode, (place / "notes.md").read_text()) == (2, "# Report: my own\n")
    done = xmtc("report", "model", "test.jsonl", "-o", "none/report.md", cwd=place)
    assert b"The folder of none/report.md is not there" in done.stderr
    done = xmtc("report", "model", "test.jsonl", "--language", "fi", cwd=place)
    assert b"needs a vocabulary" in done.stderr
    (place / "mine.html").write_text("<p>mine</p>")
    done = xmtc("report", "model", "test.jsonl", "-o", "mine.html", cwd=place)
    assert (done.returncode, (place / "mine.html").read_text()) == (2, "<p>mine</p>")
    assert b"is no report of xmtc" in done.stderr
    done = xmtc("report", "model", "test.jsonl", "-o", "report.docx", cwd=place)
    assert done.returncode == 2
    assert b".html, .md, .json or .csv" in done.stderr
