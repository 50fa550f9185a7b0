"""Tests of reports: statistics checked against worked examples, and output files."""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from commands import invoke
from planted import make_planted_corpus
from scipy.sparse import csr_array

from xmtc.analysis.report import Report, compute_report
from xmtc.analysis.report.files import as_json, render_label_csv, render_markdown
from xmtc.analysis.report.page import render_page
from xmtc.analysis.report.tables import Excerpt, NamedReport
from xmtc.core.predictions import NO_LABEL, Predictions

# Four documents; labels 0 to 3 occur in training, label 4 does not.
TRUE = [[1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 1, 0, 0, 1], [1, 0, 0, 1, 0]]
RANKED = [[0, 1, 2], [0, 3, 2], [3, 0, 1], [2, 3, 0]]
SCORES = [[0.9, 0.8, 0.1], [0.95, 0.6, 0.4], [0.85, 0.3, 0.2], [0.7, 0.6, 0.5]]
THRESHOLD = 0.55
FREQUENCIES, N_TRAIN = np.array([120, 30, 7, 2]), 150


def make_predictions() -> tuple[Predictions, Predictions]:
    ranked = Predictions(np.array(RANKED), np.array(SCORES))
    return ranked, ranked.apply_threshold(THRESHOLD)


@pytest.fixture(scope="module")
def report() -> Report:
    branches = ["first", "first", "second", None, None]
    words = np.array([10, 20, 30, 40])
    return compute_report(
        *make_predictions(), csr_array(np.array(TRUE)), FREQUENCIES, N_TRAIN, document_lengths=words, branches=branches
    )


def test_metrics_have_confidence_intervals(report):
    assert report.n_docs == 4
    assert report.metrics["P@1"].mean == pytest.approx(2 / 4)
    for result in report.metrics.values():
        assert result.low <= result.mean <= result.high


def test_decisions_match_a_worked_example(report):
    # predicted: {0, 1}, {0, 3}, {3}, {2, 3}; correct: 2, 1, 0, 1 of 2, 2, 2, 2
    result = report.decided
    assert result.labels_per_document == pytest.approx(7 / 4)
    assert result.micro == pytest.approx((4 / 7, 4 / 8, 8 / 15))
    assert result.by_document == pytest.approx(
        ((1 + 0.5 + 0 + 0.5) / 4, (1 + 0.5 + 0 + 0.5) / 4, (1 + 0.5 + 0 + 0.5) / 4)
    )
    # labels 0 to 4: correct 2 1 0 1 0, predicted 2 1 1 3 0, true 3 2 1 1 1
    assert result.macro[2] == pytest.approx((4 / 5 + 2 / 3 + 0 + 2 / 4 + 0) / 5)


def test_label_statistics_match_a_worked_example(report):
    result = {each.label_id: each for each in report.labels}
    assert [each.label_id for each in report.labels][:2] == [0, 1]
    assert set(result) == {0, 1, 2, 3, 4}
    zero = result[0]
    assert (zero.n_training_documents, zero.support, zero.n_assigned, zero.n_correct) == (120, 3, 2, 2)
    assert (zero.n_missed, zero.n_wrong) == (1, 0)
    assert (zero.precision, zero.recall, zero.f1) == pytest.approx((1, 2 / 3, 4 / 5))
    assert zero.confused_with == ((2, 1),)  # in document 3, where 2 was given and 0 missed
    assert zero.missed_in == (3,)
    assert result[3].wrongly_in == (1, 2)
    assert result[1].confused_with == ((3, 1),)
    assert np.isnan(result[4].precision)
    assert result[4].recall == 0


def test_frequency_bands_match_a_worked_example(report):
    assert [(band.least, band.most, band.n_labels, band.n_true) for band in report.bands] == [
        (0, 0, 1, 1), (1, 4, 1, 1), (5, 19, 1, 1), (20, 99, 1, 2), (100, 999, 1, 3),
    ]  # fmt: skip
    rare, frequent = report.bands[1], report.bands[-1]
    assert (rare.precision, rare.recall) == pytest.approx((1 / 3, 1))
    assert frequent.found_at_5 == 1  # the third answer of document 3 is label 0
    assert np.isnan(rare.auc)  # too few documents for a curve


def test_precision_recall_curves_of_frequent_labels():
    rng = np.random.default_rng(0)
    Y = (rng.random((60, 3)) < 0.4).astype(np.int8)
    scores = (Y * 0.8 + rng.random(Y.shape) * 0.1).astype(np.float32)  # never wrong
    order = np.argsort(-scores, axis=1)
    ranked = Predictions(order, np.take_along_axis(scores, order, 1))
    report = compute_report(ranked, ranked.apply_threshold(0.5), csr_array(Y), np.array([30, 40, 50]), 100)
    (band,) = report.bands
    assert (band.auc, band.aupr, band.f1) == pytest.approx((1, 1, 1))
    assert report.decided.micro == pytest.approx((1, 1, 1))


def test_calibration_matches_a_worked_example(report):
    # scores 0.9 and 0.95 (both right), 0.85 (wrong), 0.8 (right) …
    top = report.calibration[-1]
    assert (top.score, top.right, top.n) == pytest.approx(((0.9 + 0.95) / 2, 1.0, 2))
    assert sum(each.n for each in report.calibration) == 12


def test_metrics_by_document_length_and_branch(report):
    assert [(each.least, each.most, each.n_docs) for each in report.lengths] == [
        (10, 10, 1), (20, 20, 1), (30, 30, 1), (40, 40, 1),
    ]  # fmt: skip
    assert report.lengths[0].metrics["P@1"] == 1
    first, second = report.branches
    assert (first.name, first.n_true) == ("first", 5)
    assert (first.precision, first.recall) == pytest.approx((3 / 3, 3 / 5))
    assert (second.name, second.precision) == ("second", 0)


def test_documents_of_equal_length_form_one_group():
    result = compute_report(
        *make_predictions(), csr_array(np.array(TRUE)), FREQUENCIES, N_TRAIN, document_lengths=np.full(4, 7)
    )
    assert [each.n_docs for each in result.lengths] == [4]


def test_worst_documents_are_sorted_by_confidence(report):
    assert report.worst[0] == 2  # its one true known label is third
    assert report.worst.index(3) < report.worst.index(1)
    assert report.unknown == [(4, 1)]


def test_report_without_predicted_labels():
    none = Predictions(np.full((2, 3), NO_LABEL), np.zeros((2, 3)))
    result = compute_report(none, none, csr_array(np.array([[1, 0], [0, 1]])), np.array([3, 4]), 7)
    assert result.decided.micro == (0, 0, 0)
    assert result.calibration == []
    text = render_page(make_named_report(result))
    assert "Missed most often" in text
    assert "nan" not in text


def make_named_report(report: Report) -> NamedReport:
    names = ["zero", "<b>one</b>", "two | 2", "drei, drei", "unbekannt"]
    excerpts = [Excerpt("doc-2", "A text & more", ["<b>one</b>"], [("drei, drei", 0.85)], ["word"])]
    return NamedReport(report, "Report <1>", {"Model": "m & n"}, names.__getitem__, lambda doc: f"doc-{doc}", excerpts)


class PageChecker(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links = [], set(), set()

    def handle_starttag(self, tag, attrs):
        result = dict(attrs)
        self.ids |= {result["id"]} if "id" in result else set()
        self.links |= {result["href"]} if "href" in result else set()
        assert tag not in ("script", "img", "link", "iframe", "object")
        assert not any(name.startswith("on") or str(value).startswith(("http", "//")) for name, value in attrs)
        if tag not in ("meta", "rect", "path", "circle", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in ("rect", "path", "circle", "polyline"):
            return
        assert self.open.pop() == tag


def test_html_page_is_well_formed_and_self_contained(report):
    text = render_page(make_named_report(report))
    seen = PageChecker()
    seen.feed(text)
    assert seen.open == []
    assert {link.removeprefix("#") for link in seen.links} <= seen.ids
    assert len(seen.links) == 11
    assert "<b>one</b>" not in text
    assert "&lt;b&gt;one&lt;/b&gt;" in text
    assert "A text &amp; more" in text
    assert not re.search(r"\bnan\b", text)


def test_html_page_of_many_labels_collapses_them(report):
    many = replace(report, labels=report.labels * 10)
    assert "<summary>50 rows</summary>" in render_page(make_named_report(many))


def test_markdown_json_and_csv_output(report):
    text = render_markdown(make_named_report(report))
    assert text.startswith("<!-- xmtc report -->\n\n# Report &lt;1>\n")
    assert "| two \\| 2 |" in text
    assert "| P@1 | 50.0 |" in text
    result = json.loads(as_json(make_named_report(report)))
    assert result["metrics"]["P@1"]["mean"] == 0.5
    assert result["labels"][0]["label"] == "zero"
    assert result["labels"][0]["given_in_its_place"] == [["two | 2", 1]]
    assert result["bands"][0]["auc"] is None
    rows = list(csv.DictReader(io.StringIO(render_label_csv(make_named_report(report)))))
    assert len(rows) == 5
    assert rows[0]["label"] == "zero"
    assert rows[3]["label"] in ("two | 2", "drei, drei", "unbekannt")
    assert float(rows[0]["recall"]) == pytest.approx(2 / 3, abs=1e-6)


# Command


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
    done = invoke("train", "train.jsonl", "-o", "model", "-p", "n_trees=1", "-q", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_command_writes_every_format(place):
    for name in ("report.html", "report.md", "report.json", "report.csv"):
        done = invoke("report", "model", "test.jsonl", "-o", name, cwd=place)
        assert done.returncode == 0, done.stderr
        assert f"{name} written." in done.stderr.decode()
        done = invoke("report", "model", "test.jsonl", "-o", name, "-q", cwd=place)  # one of ours may be replaced
        assert done.returncode == 0, done.stderr
    result = json.loads((place / "report.json").read_text())
    assert result["documents"] == 60
    assert result["metrics"]["P@1"]["mean"] > 0.8
    assert result["unknown"] == [["new", 3]]
    expected = json.loads(invoke("evaluate", "model", "test.jsonl", "P@1", "--json", "-q", cwd=place).stdout)["P@1"]
    assert result["metrics"]["P@1"]["mean"] == pytest.approx(expected)
    assert result["worst"][0]["words"]
    assert len(list(csv.DictReader((place / "report.csv").open()))) == len(result["labels"])


def test_number_of_labels_is_as_in_training_without_a_threshold(place):
    assert invoke("report", "model", "test.jsonl", "-o", "a.json", "-q", cwd=place).returncode == 0
    usual = json.loads((place / "a.json").read_text())["decided"]["tags"]
    lines = [json.loads(line) for line in (place / "train.jsonl").read_text().splitlines()]
    assert usual == pytest.approx(np.mean([len(line["labels"]) for line in lines]), abs=0.1)
    assert invoke("report", "model", "test.jsonl", "-o", "b.json", "--threshold", 2, "-q", cwd=place).returncode == 0
    assert json.loads((place / "b.json").read_text())["decided"]["tags"] == 0


def test_metrics_per_label_match_a_worked_example():
    from xmtc.analysis.report.files import iter_label_records

    class KnownLabels:  # as much of a Tagger as is asked
        labels = type("Labels", (list,), {"words": lambda self: list(self)})(["a", "b", "c", "d"])
        frequencies, concepts = FREQUENCIES, None

    _, given = make_predictions()
    result = {
        each["label"]: each for each in iter_label_records(KnownLabels(), given, csr_array(np.array(TRUE)), ["new"])
    }
    assert list(result) == ["a", "b", "c", "d", "new"]
    # a: predicted twice, correct twice, missed once (c and d were predicted); d: predicted three times, correct once
    expected = {"training_documents": 120, "support": 3, "given": 2, "right": 2, "precision": 1, "f1": 0.8}
    assert expected.items() <= result["a"].items()
    assert result["a"]["recall"] == pytest.approx(2 / 3, abs=1e-6)
    assert result["a"]["given_in_its_place"] == "c (1)"
    assert (result["d"]["given"], result["d"]["right"], result["d"]["support"]) == (3, 1, 1)
    assert result["new"]["precision"] is None
    assert result["new"]["recall"] == 0
    assert result["new"]["given_in_its_place"] == "d (1)"


@pytest.mark.parametrize("name", ["labels.csv", "labels.tsv", "labels.jsonl", "labels.xlsx", "labels.parquet"])
def test_evaluate_writes_metrics_per_label(place, name):
    plain = invoke("evaluate", "model", "test.jsonl", "--json", "-q", cwd=place)
    done = invoke("evaluate", "model", "test.jsonl", "--json", "-q", "--per-label", name, cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout  # metrics are the same, however deep it looks
    assert f"{name} written. Labels are assigned from a score of" in done.stderr.decode()
    assert (place / name).stat().st_size > 1000
    if name.endswith("csv"):
        rows = list(csv.DictReader((place / name).open()))
        invoke("report", "model", "test.jsonl", "-o", "same.csv", "-q", cwd=place)
        assert rows == list(csv.DictReader((place / "same.csv").open()))  # the report's own


def test_perfect_ranking_has_an_interval_of_zero_width():
    ranked = Predictions(np.array([[0, 1], [1, 0], [2, 0]]), np.full((3, 2), 0.5))
    Y = csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]]))
    result = compute_report(ranked, ranked, Y, np.array([50, 3, 1]), 60).metrics["PSP@5"]
    assert (result.mean, result.low, result.high) == pytest.approx((1, 1, 1))


def test_recall_of_rare_and_unseen_labels_is_reported_if_documents_have_them():
    ranked = Predictions(np.array([[0, 1], [1, 0], [2, 0]]), np.full((3, 2), 0.5))
    Y = csr_array(np.array([[1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0]]))
    metrics = compute_report(ranked, ranked, Y, np.array([50, 3, 30]), 60).metrics
    assert metrics["unseen@5"].mean == 0  # the second document has label 3, which is missed
    assert metrics["rare@5"].mean == 1  # label 1 of the first two documents
    assert not {"unseen@5", "rare@5"} & compute_report(ranked, ranked, Y[:, :3], np.full(3, 9), 60).metrics.keys()


def test_labels_are_not_formulas_in_spreadsheets(report):
    names = ["=1+1", "b", "c", "d", "e"]
    rows = render_label_csv(NamedReport(report, "t", {}, names.__getitem__, str))
    assert "\n'=1+1," in rows


def test_markdown_lists_documents(report):
    assert "**doc-2** A text & more" in render_markdown(make_named_report(report))


def test_report_does_not_overwrite_its_inputs(place):
    (place / "notes.md").write_text("# Report: my own\n")
    done = invoke("report", "model", "test.jsonl", "-o", "notes.md", cwd=place)
    assert (done.returncode, (place / "notes.md").read_text()) == (2, "# Report: my own\n")
    done = invoke("report", "model", "test.jsonl", "-o", "none/report.md", cwd=place)
    assert b"The folder of none/report.md is not there" in done.stderr
    done = invoke("report", "model", "test.jsonl", "--language", "fi", cwd=place)
    assert b"needs a vocabulary" in done.stderr
    (place / "mine.html").write_text("<p>mine</p>")
    done = invoke("report", "model", "test.jsonl", "-o", "mine.html", cwd=place)
    assert (done.returncode, (place / "mine.html").read_text()) == (2, "<p>mine</p>")
    assert b"is not a report of xmtc" in done.stderr
    done = invoke("report", "model", "test.jsonl", "-o", "report.docx", cwd=place)
    assert done.returncode == 2
    assert b".html, .md, .json or .csv" in done.stderr
