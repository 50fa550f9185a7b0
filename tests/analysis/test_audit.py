"""Tests of the corpus audit: label errors (as in cleanlab), duplicate documents and duplicate labels."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from commands import invoke
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
    """Return all labels of each document, best first."""
    order = np.argsort(-scores, axis=1, kind="stable")
    return Predictions(order, np.take_along_axis(scores, order, axis=1))


def document_label_pairs(result) -> set[tuple[int, int]]:
    return set(zip(result.documents.tolist(), result.labels.tolist(), strict=True))


def test_label_errors_match_a_worked_example():
    # Label 0: documents with it score 0.9, 0.8, 0.9 and 0.01 (mean 0.6525), the others 0.95, 0.1 and 0 (mean 0.35).
    labels = [[0, 1], [0, 1], [0, 1], [0], [0], [0, 1], [1]]
    scores = [[0.9, 0.2], [0.8, 0.2], [0.9, 0.2], [0.01, 0], [0.95, 0], [0.1, 0.3], [0.2, 0]]
    ranked = Predictions(
        np.array([[*each, NO_LABEL][:2] for each in labels]), np.array([[*each, 0][:2] for each in scores])
    )
    Y = csr_array(np.array([[1, 1], [1, 1], [1, 0], [1, 0], [0, 1], [0, 0], [0, 0]], np.float32))
    wrong, missing = find_label_errors(ranked, Y, min_documents=3)
    assert document_label_pairs(wrong) == {(3, 0)}  # 0.01 is no more than 0.35
    assert wrong.confidence == pytest.approx([0.6525 - 0.01])
    assert document_label_pairs(missing) == {(4, 0)}  # 0.95 is at least 0.6525
    assert missing.confidence == pytest.approx([0.95 - 0.35])
    # No error of label 1 is reported: its mean score of 0.4 / 3 is too low to be reliable.
    assert (4, 1) in document_label_pairs(
        find_label_errors(ranked, Y, min_documents=3, min_mean_score=0.1)[0]
    )  # though it has no score there
    assert not document_label_pairs(find_label_errors(ranked, Y, min_documents=5)[0])


def test_label_of_all_documents_is_never_an_error():
    ranked = dense_predictions(np.array([[0.9], [0.8], [0.0]]))
    wrong, missing = find_label_errors(ranked, csr_array(np.ones((3, 1), np.float32)), min_documents=1)
    assert len(wrong) == len(missing) == 0


def make_noisy_labels(seed: int, n_docs: int = 60, n_labels: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy labels, and scores of a better model rounded to three digits."""
    rng = np.random.default_rng(seed)
    true = rng.random((n_docs, n_labels)) < rng.uniform(0.1, 0.5, n_labels)
    noisy_labels = true ^ (rng.random(true.shape) < 0.1)
    scores = np.clip(0.7 * true + 0.15 + rng.normal(0, 0.15, true.shape), 0, 1)
    return noisy_labels.astype(int), np.round(scores, 3)


def flag_label_errors(noisy_labels: np.ndarray, scores: np.ndarray) -> list[list[int]]:
    """Return the errors found without the filters that cleanlab does not have."""
    result = find_label_errors(
        dense_predictions(scores), csr_array(noisy_labels.astype(np.float32)), min_documents=1, min_mean_score=0
    )
    return sorted([doc, label] for each in result for doc, label in document_label_pairs(each))


def flag_with_cleanlab(noisy_labels: np.ndarray, scores: np.ndarray) -> list[list[int]]:
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

    labels = [np.flatnonzero(row).tolist() for row in noisy_labels]
    result = find_multilabel_issues_per_class(labels, scores, filter_by="confident_learning", n_jobs=1)
    return np.argwhere(np.asarray(result)).tolist()


def test_label_errors_equal_stored_flags_of_cleanlab():
    """Compare with flags stored from cleanlab 2.9.0."""
    stored = json.loads(FLAGGED.read_text())
    assert len(stored["flags"]) == 5
    for seed, flags in enumerate(stored["flags"]):
        assert flag_label_errors(*make_noisy_labels(seed)) == flags
    assert sum(map(len, stored["flags"])) > 100


def test_label_errors_equal_flags_of_installed_cleanlab():
    pytest.importorskip("cleanlab")
    for seed in range(5, 10):
        noisy_labels, scores = make_noisy_labels(seed, 300, 20)
        assert flag_label_errors(noisy_labels, scores) == flag_with_cleanlab(noisy_labels, scores)


def test_duplicates_are_in_the_same_fold():
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


def test_scores_come_from_models_trained_on_other_folds():
    documents = corpus()
    pipeline = Pipeline.from_parameters("parabel")
    data = pipeline.prepare(documents).data
    folds = assign_folds(np.arange(len(documents)), 4)
    result = predict_out_of_fold(pipeline.method, data, folds, 3)
    held_out, learnt = np.flatnonzero(folds == 2), np.flatnonzero(folds != 2)
    model = pipeline.method.fit(data.select_rows(learnt))
    expected = model.predict(data.select_rows(held_out), 3)
    assert (result.labels[held_out] == expected.labels).all()
    assert result.scores[held_out] == pytest.approx(expected.scores)


def test_label_that_occurs_in_one_fold_has_no_score_there():
    documents = corpus(40) + [Document(f"x{i}", "only here", ["rare"]) for i in range(2)]
    data = Pipeline.from_parameters("parabel").prepare(documents).data
    folds = np.array([i % 2 for i in range(40)] + [0, 0])
    result = predict_out_of_fold(Pipeline.from_parameters("parabel").method, data, folds, 50)
    rare = (
        data.n_labels - 1 if data.Y[:, [data.n_labels - 1]].sum() == 2 else int(np.flatnonzero(data.Y.sum(0) == 2)[0])
    )
    assert not (result.labels[folds == 0] == rare).any()


def brute_force_near_rows(matrix: csr_array, least: float) -> list[float]:
    """Return the largest Jaccard similarity to an earlier row by comparing all pairs."""
    sets = [set(matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]]) for i in range(matrix.shape[0])]
    best = [max((len(a & b) / len(a | b) for b in sets[:i]), default=0.0) for i, a in enumerate(sets)]
    return [each if each >= least else 0.0 for each in best]


def test_near_rows_equal_a_comparison_of_all_pairs():
    rng = np.random.default_rng(0)
    base = rng.random((40, 400)) < 0.1
    changed = base ^ (rng.random(base.shape) < 0.004)
    matrix = csr_array(np.vstack([base, changed]).astype(np.float32))
    other, similarity = find_similar_rows(matrix, 0.8)
    assert similarity == pytest.approx(brute_force_near_rows(matrix, 0.8))
    assert 20 < (other != NO_ROW).sum() <= 40
    assert all(other[i] == i - 40 for i in np.flatnonzero(other != NO_ROW))


def test_rows_are_compared_only_with_rows_before_the_boundary():
    rows = np.zeros((6, 30), np.float32)
    rows[:, :10] = 1
    rows[1, :20] = 1
    other, similarity = find_similar_rows(csr_array(rows), 0.9, n_reference=2)
    assert other.tolist() == [NO_ROW, NO_ROW, 0, 0, 0, 0]
    assert similarity.tolist() == [0, 0, 1, 1, 1, 1]
    small, _ = find_similar_rows(csr_array(rows), 0.9, min_columns=11)
    assert set(small.tolist()) == {NO_ROW}


def test_many_duplicates_are_found_quickly():
    rows = csr_array(np.ones((20_000, 6), np.float32))
    other, _ = find_similar_rows(rows, 0.9)
    assert (other[1:] >= 0).all()
    assert other[0] == NO_ROW


def collect_documents(*texts: str) -> DocumentCollector:
    notes = DocumentCollector()
    list(notes.watch(Document(str(i), text, []) for i, text in enumerate(texts)))
    return notes


def test_duplicates_ignore_case_and_whitespace():
    text = "one two three four five six seven eight nine ten"
    notes = collect_documents(text, "", text.upper() + " ", "", f"{text} eleven", "one two")
    result = find_duplicate_documents(np.array(notes.fingerprints), notes.word_matrix())
    assert result.other.tolist() == [NO_ROW, NO_ROW, 0, NO_ROW, result.other[4], NO_ROW]  # empty ones are no copies
    assert result.is_exact.tolist() == [False, False, True, False, False, False]
    assert result.similarity.tolist() == pytest.approx([0, 0, 1, 0, 10 / 11, 0])


def test_normalised_labels_ignore_case_plural_and_punctuation():
    same = [("Library", "libraries"), ("e-mail", "E mail"), ("Müller, A.", "muller a"), ("auth0.js", "auth0-js")]
    for one, other in same:
        assert normalise_label(one) == normalise_label(other)
    for one, other in [("C", "C++"), ("C#", "C++"), ("Python 1.1", "Python 11"), ("glas", "glass"), ("2000", "2001")]:
        assert normalise_label(one) != normalise_label(other)


def test_duplicate_labels_are_found(tmp_path):
    labels = ["Cat", "animals", "cats", "http://x/1", "http://x/2", "mice", "mouse", "zoo"]
    Y = np.zeros((20, 8), np.float32)
    Y[:4, 0] = Y[10:18, 2] = 1  # cats more often than Cat
    Y[:10, 1] = Y[:9, 7] = 1  # animals, and zoo in nine of the ten
    Y[:3, 3] = Y[5:6, 4] = Y[3:5, 5] = Y[7:9, 6] = 1
    result = {(each.label, each.other): each for each in find_duplicate_labels(labels, csr_array(Y))}
    assert set(result) == {(0, 2), (7, 1)}
    assert result[0, 2].reason == "written alike"
    assert result[0, 2].score == 0
    assert result[7, 1].reason == "given to the same documents"
    assert result[7, 1].score == pytest.approx(0.9)

    table = "uri\tname\talt\nhttp://x/1\tHouses\tbuildings\nhttp://x/2\tBuildings\t\nhttp://x/3\tmouse\tmice\n"
    (tmp_path / "vocabulary.tsv").write_text(table)
    vocabulary = import_files([str(tmp_path / "vocabulary.tsv")])
    named = find_duplicate_labels(labels, csr_array(Y), LabelConcepts.from_labels(vocabulary, labels))
    reasons = {(each.label, each.other): each.reason for each in named}
    assert reasons[5, 6] == reasons[4, 3] == "the vocabulary has a name for both"


@pytest.fixture(scope="module")
def corpus_with_errors() -> list[Document]:
    """Documents with a wrong label, missing labels, a duplicate with other labels, and a label in two spellings."""
    documents = corpus()
    wrong = documents[5]
    label = next(name for document in documents for name in document.labels if name not in wrong.labels)
    documents[5] = wrong._replace(labels=[*wrong.labels, label])
    for number in DROPPED:
        documents[number] = documents[number]._replace(labels=documents[number].labels[1:])
    documents.append(documents[10]._replace(id="copy", labels=[*documents[10].labels, label.upper()]))
    return documents


@pytest.fixture(scope="module")
def audit_result(corpus_with_errors) -> Audit:
    test = [corpus_with_errors[20]._replace(id="t1", labels=["new"]), Document("t2", "something else", ["new"])]
    return audit(corpus_with_errors, Pipeline.from_parameters("parabel"), test=test, folds=4)


def test_audit_finds_all_kinds_of_planted_errors(audit_result, corpus_with_errors):
    texts, tags = make_planted_corpus(200, seed=3)
    findings = audit_result.findings
    assert ("d5", (set(corpus_with_errors[5].labels) - set(tags[5])).pop()) in {
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
    assert audit_result.n_docs == 201
    assert audit_result.n_test == 2
    assert texts[20][:50].split() == leak.text[:50].split()


def test_documents_without_a_known_word_have_no_label_errors():
    documents = [*corpus(60), Document("empty", "", ["label-0"]), Document("strange", "zzz", ["label-0"])]
    result = audit(documents, Pipeline.from_parameters("parabel", parameters={"min_df": 2}), folds=3)
    assert not {"empty", "strange"} & {
        each.id for kind in (WRONG_LABEL, MISSING_LABEL) for each in result.findings[kind]
    }


def test_auto_is_refused():
    with pytest.raises(XmtcError, match="auto plans another method for each training, so audit needs a method"):
        audit(corpus(20), Pipeline.from_parameters("auto"))


def test_method_that_matches_label_names_is_refused():
    with pytest.raises(XmtcError, match="lexical matches label names"):
        audit(corpus(20), Pipeline.from_parameters("lexical"))


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus_with_errors) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    lines = [json.dumps({"id": each.id, "text": each.text, "labels": each.labels}) for each in corpus_with_errors]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "test.jsonl").write_text("\n".join(lines[:3]) + "\n")
    return folder


def test_command_prints_the_worst_findings_and_writes_all(place):
    done = invoke("data", "audit", "train.jsonl", "--test", "test.jsonl", "-o", "found.csv", cwd=place)
    assert done.returncode == 0
    stdout, stderr = done.stdout.decode(), done.stderr.decode()
    assert "201 documents with" in stderr
    assert "5-fold cross-validation of parabel" in stderr
    assert "findings written to found.csv" in stderr
    for title in (
        "Probably wrong",
        "Probably missing",
        "Duplicate documents: 1 of 201",
        "Test documents that duplicate training documents: 3",
    ):
        assert title in stdout
    rows = list(csv.DictReader(io.StringIO((place / "found.csv").read_text())))
    assert {"kind", "document", "id", "label", "score", "other", "suggestion", "text"} <= rows[0].keys()
    assert ["201", "copy", "d10"] in [[row["document"], row["id"], row["other"]] for row in rows]


@pytest.mark.parametrize("name", ["found.jsonl", "found.tsv", "found.xlsx", "found.parquet"])
def test_extension_sets_the_format_of_the_table(place, name):
    if name.endswith("xlsx"):
        pytest.importorskip("xlsxwriter")
    done = invoke("data", "audit", "train.jsonl", "-q", "--folds", 2, "--json", "-o", name, cwd=place)
    assert done.returncode == 0
    assert not done.stderr
    result = json.loads(done.stdout)
    assert result["counts"]["duplicate"] == 1
    assert result["worst"]["duplicate"][0]["id"] == "copy"
    assert (place / name).stat().st_size > 100
    if name.endswith("jsonl"):
        records = [json.loads(line) for line in (place / name).read_text().splitlines()]
        assert len(records) == sum(result["counts"].values())


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
def test_invalid_options_give_one_error_message(place, words, sentence):
    done = invoke("data", "audit", "train.jsonl", *words, cwd=place)
    assert done.returncode == 2
    assert sentence in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


@pytest.mark.parametrize("folds", ["1", "0", "-3"])
def test_too_few_folds_are_refused_before_any_output(place, folds):
    done = invoke("data", "audit", "absent.jsonl", "--folds", folds, cwd=place)
    assert done.returncode == 2
    assert not done.stdout
    assert done.stderr.decode().startswith(f"xmtc: --folds {folds} leaves no training documents")
    with pytest.raises(XmtcError, match=f"--folds {folds} leaves no training"):
        audit(iter([]), Pipeline.from_parameters("parabel"), folds=int(folds), report_progress=pytest.fail)


def test_corpus_of_features_is_audited(tmp_path):
    rng = np.random.default_rng(0)
    rows = [sorted({int(c) for c in rng.integers(0, 40, 8)}) for _ in range(60)]
    lines = [f"{row[0] % 4} {' '.join(f'{c}:1' for c in row)}" for row in rows]
    lines.append(lines[7])
    (tmp_path / "corpus.txt").write_text("\n".join([f"{len(lines)} 40 4", *lines]) + "\n")
    done = invoke("data", "audit", "corpus.txt", "--json", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["documents"] == 61
    assert result["counts"]["duplicate"] >= 1
    assert NEAR_DUPLICATE in result["counts"]


@pytest.mark.parametrize("n_empty", [0, 30])
def test_empty_documents_do_not_change_the_mean_scores(monkeypatch, n_empty):
    empty = [Document(f"empty {i}", "", ["b"]) for i in range(n_empty)]
    documents = [Document(str(i), f"word{i % 5} other", ["a"] if i < 6 else ["b"]) for i in range(16)]
    scores = np.array([0.0] * n_empty + [0.9] * 5 + [0.12] + [0.15] * 10, np.float32)[:, None]  # of label a
    ranked = Predictions(np.zeros(scores.shape, np.int32), scores)
    monkeypatch.setattr("xmtc.analysis.audit.build.predict_out_of_fold", lambda *args: ranked)
    result = audit([*empty, *documents], Pipeline.from_parameters("dismec", parameters={"min_df": 1}), folds=2)
    assert [(each.id, each.label) for each in result.findings[WRONG_LABEL]] == [("5", "a")]
