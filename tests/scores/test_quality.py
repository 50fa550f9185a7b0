"""Quality estimates of documents, and the gate that publishes documents without a person."""

import csv
import json

import numpy as np
import pytest
from commands import invoke, lines_of
from scipy.sparse import csr_array

from xmtc import XmtcError
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.scores.quality import (
    LabelledSelection,
    compute_p_value,
    fit_quality_gate,
    parse_promise,
    select_threshold,
)
from xmtc.tagger import Tagger


def make_selection(n_docs: int, rng: np.random.Generator) -> LabelledSelection:
    """Return rankings of 20 labels whose scores are true probabilities, and the labels that score at least 0.3."""
    scores = -np.sort(-(rng.random((n_docs, 20)) ** rng.uniform(0.02, 1.5, (n_docs, 1))), axis=1).astype(np.float32)
    labels = np.tile(np.arange(20, dtype=np.int32), (n_docs, 1))
    true_labels = csr_array((rng.random(scores.shape) < scores).astype(np.float32))
    is_selected = scores >= 0.3
    selected = Predictions.from_valid_arrays(
        np.where(is_selected, labels, NO_LABEL).astype(np.int32), np.where(is_selected, scores, 0).astype(np.float32)
    )
    return LabelledSelection(Predictions.from_valid_arrays(labels, scores), selected, true_labels)


def compute_published_precision(gate, part: LabelledSelection) -> tuple[float, float]:
    """Return the mean precision of the published documents, counted document by document, and their share."""
    published = gate.estimate(part.ranked, part.selected).is_published
    values = []
    for row in np.flatnonzero(published):
        assigned = set(part.selected.labels[row].tolist()) - {NO_LABEL}
        values.append(len(assigned & set(np.flatnonzero(part.true_labels[[row]].toarray()[0]))) / len(assigned))
    return float(np.mean(values)), float(published.mean())


@pytest.mark.parametrize("draw", [lambda rng, n: rng.random(n) < 0.1, lambda rng, n: rng.beta(0.5, 4.5, n)])
def test_p_values_of_a_loss_at_the_limit_are_rarely_small(draw):
    rng = np.random.default_rng(0)
    values = np.array([compute_p_value(draw(rng, 300).astype(float), 0.1) for _ in range(2000)])
    assert (values <= 0.05).mean() < 0.05
    assert (values <= 0.2).mean() < 0.2


def test_p_values_of_small_losses_are_small():
    assert compute_p_value(np.zeros(20), 0.1) > 0.05  # too few documents for any conclusion
    assert compute_p_value(np.zeros(100), 0.1) < 0.01
    rng = np.random.default_rng(0)
    assert compute_p_value((rng.random(400) < 0.04).astype(float), 0.1) < 0.05
    assert compute_p_value(np.zeros(0), 0.1) == 1


def test_thresholds_are_tested_until_the_first_failure():
    order = np.random.default_rng(0).permutation(600)
    estimates = np.repeat([0.9, 0.8, 0.7], 200)[order]
    losses = np.concatenate([np.zeros(200), np.ones(200), np.zeros(200)])[order]
    assert select_threshold(np.array([0.85, 0.75, 0.0]), estimates, losses, 0.4, 0.05) == 0.85  # 0.0 would pass
    assert select_threshold(np.array([0.0]), estimates, losses, 0.4, 0.05) == 0
    assert select_threshold(np.array([0.75, 0.0]), estimates, losses, 0.1, 0.05) > 1


def test_gate_keeps_its_promise_on_new_documents():
    """Of 60 gates at 90 % confidence, 6 may fail on average; 12 or more have a probability below 2 %."""
    rng, promise = np.random.default_rng(1), parse_promise("precision=0.8", 0.9)
    new = make_selection(4000, rng)
    gates = [fit_quality_gate(make_selection(300, rng), make_selection(300, rng), promise) for _ in range(60)]
    reached = [compute_published_precision(gate, new) for gate in gates if gate.is_certified]
    assert len(reached) > 50
    assert sum(precision < 0.8 for precision, _ in reached) < 12
    assert np.mean([share for _, share in reached]) > 0.3


def test_gate_of_useless_scores_publishes_nothing():
    rng = np.random.default_rng(0)
    parts = [make_selection(300, rng) for _ in range(2)]
    shuffled = [part._replace(true_labels=csr_array(part.true_labels.shape)) for part in parts]
    gate = fit_quality_gate(*shuffled, parse_promise("precision=0.5"))
    assert not gate.is_certified
    assert not gate.estimate(parts[0].ranked, parts[0].selected).is_published.any()
    assert "no documents are published" in str(gate)


def test_estimates_are_close_to_the_mean_metrics():
    rng = np.random.default_rng(2)
    gate = fit_quality_gate(make_selection(1000, rng), make_selection(1000, rng), parse_promise("f1=0.6"))
    new = make_selection(3000, rng)
    has_labels = (new.selected.labels != NO_LABEL).any(axis=1)
    estimates = gate.estimate(new.ranked, new.selected)
    hits = (new.true_labels.toarray() > 0) & (new.selected.labels != NO_LABEL)
    precision = (hits.sum(1) / np.maximum((new.selected.labels != NO_LABEL).sum(1), 1))[has_labels]
    assert estimates.precision[has_labels].mean() == pytest.approx(precision.mean(), abs=0.02)
    assert np.corrcoef(estimates.precision[has_labels], precision)[0, 1] > 0.3


@pytest.mark.parametrize("text", ["precision", "precision=1", "accuracy=0.9", "f1=x", "micro-f1=0.5"])
def test_invalid_promises_are_rejected(text):
    with pytest.raises(XmtcError, match="is not a promise"):
        parse_promise(text)


def make_lines(n_docs: int, seed: int) -> str:
    """Return documents of which only a few words are left, so that some are hard to label."""
    rng, lines = np.random.default_rng(seed), []
    for line in lines_of(n_docs, seed).splitlines():
        document = json.loads(line)
        words = document["text"].split()
        kept = rng.permutation(len(words))[: rng.integers(1, len(words))]
        lines.append(json.dumps(document | {"text": " ".join(words[i] for i in kept)}) + "\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate")
    (folder / "train.jsonl").write_text(lines_of(400, seed=0))
    (folder / "valid.jsonl").write_text(make_lines(400, seed=1))
    (folder / "test.jsonl").write_text(make_lines(300, seed=2))
    done = invoke("train", "train.jsonl", "-o", "model", "-p", "max_leaf=10", cwd=folder)
    assert done.returncode == 0, done.stderr
    done = invoke("thresholds", "model", "valid.jsonl", "--publish", "precision=0.9", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert b"Gate: documents with an estimated precision of at least" in done.stdout
    return folder


def test_predict_writes_the_quality_of_every_document(place, tmp_path):
    words = ["predict", "model", "test.jsonl", "--threshold", "tuned"]
    records = [json.loads(line) for line in invoke(*words, cwd=place).stdout.splitlines()]
    tagger = Tagger.load(place / "model")
    texts = [json.loads(line)["text"] for line in (place / "test.jsonl").open()]
    selected, quality = tagger.predict_with_quality(texts)
    assert [record["quality"] for record in records] == [quality.describe(row) for row in range(300)]
    assert [len(record["labels"]) for record in records] == (selected.labels != NO_LABEL).sum(axis=1).tolist()
    assert 0 < quality.is_published.sum() < 300
    done = invoke(*words, "--joined", "-o", tmp_path / "a.csv", cwd=place)
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert [row["publish"] == "yes" for row in rows] == quality.is_published.tolist()
    assert [float(row["estimated_precision"]) for row in rows] == [r["quality"]["precision"] for r in records]
    assert f"{quality.is_published.sum()} to publish".encode() in done.stderr
    invoke(*words, "--wide", "-o", tmp_path / "w.csv", cwd=place)
    assert [row["publish"] for row in csv.DictReader((tmp_path / "w.csv").open())] == [row["publish"] for row in rows]


def test_gate_is_described_and_removed_with_its_thresholds(place, tmp_path):
    about = json.loads(invoke("info", "model", cwd=place).stdout)["decision"]["gate"]
    assert (about["metric"], about["target"], about["documents"]) == ("precision", 0.9, 200)
    Tagger.load(place / "model").save(tmp_path / "model")
    assert invoke("thresholds", "model", "--clear", cwd=tmp_path).returncode == 0
    with pytest.raises(XmtcError, match="has no tuned thresholds"):
        Tagger.load(tmp_path / "model").predict_with_quality(["text"])
    assert invoke("thresholds", "model", place / "valid.jsonl", cwd=tmp_path).returncode == 0
    with pytest.raises(XmtcError, match="has no gate"):
        Tagger.load(tmp_path / "model").predict_with_quality(["text"])
    record = json.loads(invoke("predict", "model", "--string", "text", "--threshold", "tuned", cwd=tmp_path).stdout)
    assert "quality" not in record


def test_report_shows_what_the_gate_reaches(place, tmp_path):
    done = invoke("report", "model", "test.jsonl", "-o", tmp_path / "report.md", cwd=place)
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "report.md").read_text()
    tagger = Tagger.load(place / "model")
    documents = [json.loads(line) for line in (place / "test.jsonl").open()]
    selected, quality = tagger.predict_with_quality([document["text"] for document in documents])
    words = tagger.labels.words()
    precisions = []
    for row in np.flatnonzero(quality.is_published):
        assigned = {words[i] for i in selected.labels[row] if i != NO_LABEL}
        precisions.append(len(assigned & set(documents[row]["labels"])) / len(assigned))
    assert f"with a mean precision of {100 * np.mean(precisions):.1f} %" in report


def test_few_documents_are_refused(place, tmp_path):
    (tmp_path / "few.jsonl").write_text(lines_of(120, seed=3))
    done = invoke("thresholds", "model", tmp_path / "few.jsonl", "--publish", "f1=0.5", "-o", tmp_path / "m", cwd=place)
    assert done.returncode == 2
    assert b"A gate needs 100 documents" in done.stderr
