"""The audit of a corpus: confident learning by hand and beside cleanlab, copies, labels that are there twice."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from commands import xmtc
from planted import make_planted_corpus
from scipy.sparse import csr_array

from xmtc.analysis.audit.build import (
    DUPLICATE,
    DUPLICATE_IN_TEST,
    DUPLICATE_LABEL,
    MISSING_LABEL,
    NEAR_DUPLICATE,
    WRONG_LABEL,
    Audit,
    audit,
)
from xmtc.analysis.audit.confident_learning import find_label_errors
from xmtc.analysis.audit.duplicate_labels import find_duplicate_labels, normalise_label
from xmtc.analysis.audit.duplicates import DocumentCollector, find_duplicate_documents
from xmtc.analysis.audit.folds import assign_folds, predict_out_of_fold
from xmtc.analysis.audit.near_duplicates import NO_ROW, find_similar_rows
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.pipeline import Pipeline
from xmtc.vocabulary import import_files
from xmtc.vocabulary.label_concepts import LabelConcepts

DROPPED = range(30, 40)  # documents that lose their first label
FLAGGED = Path(__file__).parents[1] / "fixtures" / "cleanlab_flags.json"


def dense_predictions(scores: np.ndarray) -> Predictions:
    """All labels of each document, best first."""
    order = np.argsort(-scores, axis=1, kind="stable")
    return Predictions(order, np.take_along_axis(scores, order, axis=1))


def pairs(found) -> set[tuple[int, int]]:
    return set(zip(found.documents.tolist(), found.labels.tolist(), strict=True))


def test_confident_learning_by_hand():
    # label 0: those that have it score 0.9, 0.8, 0.9 and 0.01, 0.6525 on average; the others 0.95, 0.1 and 0, 0.35
    labels = [[0, 1], [0, 1], [0, 1], [0], [0], [0, 1], [1]]
    scores = [[0.9, 0.2], [0.8, 0.2], [0.9, 0.2], [0.01, 0], [0.95, 0], [0.1, 0.3], [0.2, 0]]
    ranked = Predictions(
        np.array([[*each, NO_LABEL][:2] for each in labels]), np.array([[*each, 0][:2] for each in scores])
    )
    Y = csr_array(np.array([[1, 1], [1, 1], [1, 0], [1, 0], [0, 1], [0, 0], [0, 0]], np.float32))
    wrong, missing = find_label_errors(ranked, Y, min_documents=3)
    assert pairs(wrong) == {(3, 0)}  # 0.01 is no more than 0.35
    assert wrong.confidence == pytest.approx([0.6525 - 0.01])
    assert pairs(missing) == {(4, 0)}  # 0.95 is at least 0.6525
    assert missing.confidence == pytest.approx([0.95 - 0.35])
    # of label 1, nothing is called wrong: where it stands, it scores 0.4 / 3, and no model can tell
    assert (4, 1) in pairs(
        find_label_errors(ranked, Y, min_documents=3, min_mean_score=0.1)[0]
    )  # though it has no score there
    assert not pairs(find_label_errors(ranked, Y, min_documents=5)[0])


def test_a_label_that_all_have_is_never_wrong():
    ranked = dense_predictions(np.array([[0.9], [0.8], [0.0]]))
    wrong, missing = find_label_errors(ranked, csr_array(np.ones((3, 1), np.float32)), min_documents=1)
    assert len(wrong) == len(missing) == 0


def synthetic(seed: int, n_docs: int = 60, n_labels: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Labels with noise, and scores that know better, to three digits."""
    rng = np.random.default_rng(seed)
    true = rng.random((n_docs, n_labels)) < rng.uniform(0.1, 0.5, n_labels)
    given = true ^ (rng.random(true.shape) < 0.1)
    scores = np.clip(0.7 * true + 0.15 + rng.normal(0, 0.15, true.shape), 0, 1)
    return given.astype(int), np.round(scores, 3)


def flagged(given: np.ndarray, scores: np.ndarray) -> list[list[int]]:
    """By us, with nothing left out that cleanlab does not leave out."""
    found = find_label_errors(
        dense_predictions(scores), csr_array(given.astype(np.float32)), min_documents=1, min_mean_score=0
    )
    return sorted([doc, label] for each in found for doc, label in pairs(each))


def by_cleanlab(given: np.ndarray, scores: np.ndarray) -> list[list[int]]:
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

    labels = [np.flatnonzero(row).tolist() for row in given]
    found = find_multilabel_issues_per_class(labels, scores, filter_by="confident_learning", n_jobs=1)
    return np.argwhere(np.asarray(found)).tolist()


def test_flags_are_those_that_cleanlab_has_set():
    """Stored; made by `by_cleanlab` of version 2.9.0."""
    stored = json.loads(FLAGGED.read_text())
    assert len(stored["flags"]) == 5
    for seed, flags in enumerate(stored["flags"]):
        assert flagged(*synthetic(seed)) == flags
    assert sum(map(len, stored["flags"])) > 100


def test_flags_are_those_that_cleanlab_sets():
    pytest.importorskip("cleanlab")
    for seed in range(5, 10):
        given, scores = synthetic(seed, 300, 20)
        assert flagged(given, scores) == by_cleanlab(given, scores)


def test_folds_keep_copies_together():
    groups = np.repeat(np.arange(50), 2)
    folds = assign_folds(groups, 5)
    assert (folds[::2] == folds[1::2]).all()
    assert np.bincount(folds).tolist() == [20] * 5
    with pytest.raises(XmtcError, match="--folds 1"):
        assign_folds(groups, 1)
    with pytest.raises(XmtcError, match=r"3 different documents cannot .* or --folds 3"):
        assign_folds(np.array([1, 2, 3, 3]), 4)


def corpus(n: int = 200) -> list[Document]:
    texts, tags = make_planted_corpus(n, seed=3)
    return [Document(f"d{i}", text, list(labels)) for i, (text, labels) in enumerate(zip(texts, tags, strict=True))]


def test_each_document_is_judged_by_others():
    documents = corpus()
    pipeline = Pipeline.from_parameters("parabel")
    data = pipeline.prepare(documents).data
    folds = assign_folds(np.arange(len(documents)), 4)
    found = predict_out_of_fold(pipeline.method, data, folds, 3)
    held_out, learnt = np.flatnonzero(folds == 2), np.flatnonzero(folds != 2)
    model = pipeline.method.fit(data.select_rows(learnt))
    expected = model.predict(data.select_rows(held_out), 3)
    assert (found.labels[held_out] == expected.labels).all()
    assert found.scores[held_out] == pytest.approx(expected.scores)


def test_a_label_of_one_fold_alone_gets_no_score_there():
    documents = corpus(40) + [Document(f"x{i}", "only here", ["rare"]) for i in range(2)]
    data = Pipeline.from_parameters("parabel").prepare(documents).data
    folds = np.array([i % 2 for i in range(40)] + [0, 0])
    found = predict_out_of_fold(Pipeline.from_parameters("parabel").method, data, folds, 50)
    rare = (
        data.n_labels - 1 if data.Y[:, [data.n_labels - 1]].sum() == 2 else int(np.flatnonzero(data.Y.sum(0) == 2)[0])
    )
    assert not (found.labels[folds == 0] == rare).any()


def twin_of_near_rows(matrix: csr_array, least: float) -> list[float]:
    """The largest Jaccard similarity with an earlier row, by comparing all."""
    sets = [set(matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]]) for i in range(matrix.shape[0])]
    best = [max((len(a & b) / len(a | b) for b in sets[:i]), default=0.0) for i, a in enumerate(sets)]
    return [each if each >= least else 0.0 for each in best]


def test_near_rows_are_those_that_a_comparison_of_all_finds():
    rng = np.random.default_rng(0)
    base = rng.random((40, 400)) < 0.1
    changed = base ^ (rng.random(base.shape) < 0.004)
    matrix = csr_array(np.vstack([base, changed]).astype(np.float32))
    other, similarity = find_similar_rows(matrix, 0.8)
    assert similarity == pytest.approx(twin_of_near_rows(matrix, 0.8))
    assert 20 < (other != NO_ROW).sum() <= 40
    assert all(other[i] == i - 40 for i in np.flatnonzero(other != NO_ROW))


def test_rows_are_compared_with_those_before_a_border_alone():
    rows = np.zeros((6, 30), np.float32)
    rows[:, :10] = 1
    rows[1, :20] = 1
    other, similarity = find_similar_rows(csr_array(rows), 0.9, n_reference=2)
    assert other.tolist() == [NO_ROW, NO_ROW, 0, 0, 0, 0]
    assert similarity.tolist() == [0, 0, 1, 1, 1, 1]
    small, _ = find_similar_rows(csr_array(rows), 0.9, min_columns=11)
    assert set(small.tolist()) == {NO_ROW}


def test_a_crowd_of_copies_takes_no_long():
    rows = csr_array(np.ones((20_000, 6), np.float32))
    other, _ = find_similar_rows(rows, 0.9)
    assert (other[1:] >= 0).all()
    assert other[0] == NO_ROW


def noted(*texts: str) -> DocumentCollector:
    notes = DocumentCollector()
    list(notes.watch(Document(str(i), text, []) for i, text in enumerate(texts)))
    return notes


def test_copies_are_the_same_but_for_capitals_and_blanks():
    text = "one two three four five six seven eight nine ten"
    notes = noted(text, "", text.upper() + " ", "", f"{text} eleven", "one two")
    found = find_duplicate_documents(np.array(notes.fingerprints), notes.word_matrix())
    assert found.other.tolist() == [NO_ROW, NO_ROW, 0, NO_ROW, found.other[4], NO_ROW]  # empty ones are no copies
    assert found.is_exact.tolist() == [False, False, True, False, False, False]
    assert found.similarity.tolist() == pytest.approx([0, 0, 1, 0, 10 / 11, 0])


def test_names_of_one_thing():
    same = [("Library", "libraries"), ("e-mail", "E mail"), ("Müller, A.", "muller a"), ("auth0.js", "auth0-js")]
    for one, other in same:
        assert normalise_label(one) == normalise_label(other)
    for one, other in [("C", "C++"), ("C#", "C++"), ("Python 1.1", "Python 11"), ("glas", "glass"), ("2000", "2001")]:
        assert normalise_label(one) != normalise_label(other)


def test_labels_that_are_there_twice(tmp_path):
    labels = ["Cat", "animals", "cats", "http://x/1", "http://x/2", "mice", "mouse", "zoo"]
    Y = np.zeros((20, 8), np.float32)
    Y[:4, 0] = Y[10:18, 2] = 1  # cats more often than Cat
    Y[:10, 1] = Y[:9, 7] = 1  # animals, and zoo in nine of the ten
    Y[:3, 3] = Y[5:6, 4] = Y[3:5, 5] = Y[7:9, 6] = 1
    found = {(each.label, each.other): each for each in find_duplicate_labels(labels, csr_array(Y))}
    assert set(found) == {(0, 2), (7, 1)}
    assert found[0, 2].reason == "written alike"
    assert found[0, 2].score == 0
    assert found[7, 1].reason == "given to the same documents"
    assert found[7, 1].score == pytest.approx(0.9)

    table = "uri\tname\talt\nhttp://x/1\tHouses\tbuildings\nhttp://x/2\tBuildings\t\nhttp://x/3\tmouse\tmice\n"
    (tmp_path / "vocabulary.tsv").write_text(table)
    vocabulary = import_files([str(tmp_path / "vocabulary.tsv")])
    named = find_duplicate_labels(labels, csr_array(Y), LabelConcepts.from_labels(vocabulary, labels))
    reasons = {(each.label, each.other): each.reason for each in named}
    assert reasons[5, 6] == reasons[4, 3] == "the vocabulary has a name for both"


@pytest.fixture(scope="module")
def spoilt() -> list[Document]:
    """Planted documents with a wrong label, ten missing ones, a copy with other labels, and a label written twice."""
    documents = corpus()
    wrong = documents[5]
    label = next(name for document in documents for name in document.labels if name not in wrong.labels)
    documents[5] = wrong._replace(labels=[*wrong.labels, label])
    for number in DROPPED:
        documents[number] = documents[number]._replace(labels=documents[number].labels[1:])
    documents.append(documents[10]._replace(id="copy", labels=[*documents[10].labels, label.upper()]))
    return documents


@pytest.fixture(scope="module")
def audited(spoilt) -> Audit:
    test = [spoilt[20]._replace(id="t1", labels=["new"]), Document("t2", "something else", ["new"])]
    return audit(spoilt, Pipeline.from_parameters("parabel"), test=test, folds=4)


def test_what_was_planted_is_found(audited, spoilt):
    texts, tags = make_planted_corpus(200, seed=3)
    findings = audited.findings
    assert ("d5", (set(spoilt[5].labels) - set(tags[5])).pop()) in {
        (each.id, each.label) for each in findings[WRONG_LABEL]
    }
    missing = {(f"d{number}", tags[number][0]) for number in DROPPED}
    assert len(missing & {(each.id, each.label) for each in findings[MISSING_LABEL]}) >= 4
    (copy,) = findings[DUPLICATE]
    assert (copy.document, copy.id, copy.other, copy.score) == (201, "copy", "d10", 1)
    assert copy.suggestion.startswith("different labels (only here ")
    (leak,) = findings[DUPLICATE_IN_TEST]
    assert (leak.document, leak.id, leak.other) == (21, "d20", "t1")
    assert "only there new" in leak.suggestion
    assert any(each.label.isupper() and each.other == each.label.lower() for each in findings[DUPLICATE_LABEL])
    assert audited.n_docs == 201
    assert audited.n_test == 2
    assert texts[20][:50].split() == leak.text[:50].split()


def test_documents_without_a_known_word_are_not_judged():
    documents = [*corpus(60), Document("empty", "", ["label-0"]), Document("strange", "zzz", ["label-0"])]
    found = audit(documents, Pipeline.from_parameters("parabel", parameters={"min_df": 2}), folds=3)
    assert not {"empty", "strange"} & {
        each.id for kind in (WRONG_LABEL, MISSING_LABEL) for each in found.findings[kind]
    }


def test_a_method_that_reads_names_is_refused():
    with pytest.raises(XmtcError, match="lexical matches label names"):
        audit(corpus(20), Pipeline.from_parameters("lexical"))


@pytest.fixture(scope="module")
def place(tmp_path_factory, spoilt) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    lines = [json.dumps({"id": each.id, "text": each.text, "labels": each.labels}) for each in spoilt]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "test.jsonl").write_text("\n".join(lines[:3]) + "\n")
    return folder


def test_the_command_shows_the_worst_and_writes_all(place):
    done = xmtc("data", "audit", "train.jsonl", "--test", "test.jsonl", "-o", "found.csv", cwd=place)
    assert done.returncode == 0
    said, told = done.stdout.decode(), done.stderr.decode()
    assert "201 documents with" in told
    assert "5-fold cross-validation of parabel" in told
    assert "findings written to found.csv" in told
    for title in (
        "Probably wrong",
        "Probably missing",
        "Duplicate documents: 1 of 201",
        "Test documents that duplicate training documents: 3",
    ):
        assert title in said
    rows = list(csv.DictReader(io.StringIO((place / "found.csv").read_text())))
    assert {"kind", "document", "id", "label", "score", "other", "suggestion", "text"} <= rows[0].keys()
    assert ["201", "copy", "d10"] in [[row["document"], row["id"], row["other"]] for row in rows]


@pytest.mark.parametrize("name", ["found.jsonl", "found.tsv", "found.xlsx", "found.parquet"])
def test_the_table_has_the_form_that_its_name_says(place, name):
    if name.endswith("xlsx"):
        pytest.importorskip("xlsxwriter")
    done = xmtc("data", "audit", "train.jsonl", "-q", "--folds", 2, "--json", "-o", name, cwd=place)
    assert done.returncode == 0
    assert not done.stderr
    found = json.loads(done.stdout)
    assert found["counts"]["duplicate"] == 1
    assert found["worst"]["duplicate"][0]["id"] == "copy"
    assert (place / name).stat().st_size > 100
    if name.endswith("jsonl"):
        records = [json.loads(line) for line in (place / name).read_text().splitlines()]
        assert len(records) == sum(found["counts"].values())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--folds", "1"], "--folds 1 leaves no training documents"),
        (["-o", "found.doc"], "found.doc has no known format"),
        (["-o", "nowhere/found.csv"], "The folder of nowhere/found.csv is not there"),
        (["-o", "train.jsonl"], "train.jsonl is part of the corpus that is read"),
        (["-m", "lexical"], "lexical matches label names"),
        (["--language", "en"], "--language selects names of a vocabulary"),
        (["--test", "absent.jsonl"], "absent.jsonl"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(place, words, sentence):
    done = xmtc("data", "audit", "train.jsonl", *words, cwd=place)
    assert done.returncode == 2
    assert sentence in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


@pytest.mark.parametrize("folds", ["1", "0", "-3"])
def test_too_few_folds_are_refused_before_anything_is_said(place, folds):
    done = xmtc("data", "audit", "absent.jsonl", "--folds", folds, cwd=place)
    assert done.returncode == 2
    assert not done.stdout
    assert done.stderr.decode().startswith(f"xmtc: --folds {folds} leaves no training documents")
    with pytest.raises(XmtcError, match=f"--folds {folds} leaves no training"):
        audit(iter([]), Pipeline.from_parameters("parabel"), folds=int(folds), report_progress=pytest.fail)


def test_features_are_audited_too(tmp_path):
    rng = np.random.default_rng(0)
    rows = [sorted({int(c) for c in rng.integers(0, 40, 8)}) for _ in range(60)]
    lines = [f"{row[0] % 4} {' '.join(f'{c}:1' for c in row)}" for row in rows]
    lines.append(lines[7])
    (tmp_path / "corpus.txt").write_text("\n".join([f"{len(lines)} 40 4", *lines]) + "\n")
    done = xmtc("data", "audit", "corpus.txt", "--json", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["documents"] == 61
    assert found["counts"]["duplicate"] >= 1
    assert NEAR_DUPLICATE in found["counts"]


@pytest.mark.parametrize("n_empty", [0, 30])
def test_documents_of_which_nothing_can_be_said_do_not_change_what_is_usual(monkeypatch, n_empty):
    empty = [Document(f"empty {i}", "", ["b"]) for i in range(n_empty)]
    documents = [Document(str(i), f"word{i % 5} other", ["a"] if i < 6 else ["b"]) for i in range(16)]
    scores = np.array([0.0] * n_empty + [0.9] * 5 + [0.12] + [0.15] * 10, np.float32)[:, None]  # of label a
    ranked = Predictions(np.zeros(scores.shape, np.int32), scores)
    monkeypatch.setattr("xmtc.analysis.audit.build.predict_out_of_fold", lambda *args: ranked)
    found = audit([*empty, *documents], Pipeline.from_parameters("dismec", parameters={"min_df": 1}), folds=2)
    assert [(each.id, each.label) for each in found.findings[WRONG_LABEL]] == [("5", "a")]
