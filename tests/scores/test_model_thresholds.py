"""Tuned thresholds of models: `xmtc thresholds`, `predict --threshold tuned`, and the Python API."""

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from commands import invoke, make_place
from planted import make_planted_corpus
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.metrics import f1_score
from test_damaged_models import set_about_value

from xmtc import Classifier
from xmtc.analysis.report.threshold_curve import CURVE_COLUMNS, compute_threshold_curve
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.errors import XmtcError
from xmtc.evaluation import EVALUATION_DEPTH, RankedResults, to_ranked_results
from xmtc.evaluation.assignment_metrics import compute_assignment_metrics
from xmtc.scores import LabelSelector, parse_goal, tune_thresholds
from xmtc.scores.tagger_thresholds import cross_validate_thresholds, tune_tagger_thresholds
from xmtc.tagger import Tagger


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = make_place(tmp_path_factory.mktemp("decisions"))
    done = invoke("thresholds", "model", "test.jsonl", "--goal", "micro-f1", "--per", "all", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def message(done) -> str:
    return done.stderr.decode()


def answers(place, *words) -> list[list[str]]:
    done = invoke("predict", "model", "test.jsonl", "--format", "jsonl", *words, cwd=place)
    assert done.returncode == 0, done.stderr
    return [[each["label"] for each in json.loads(line)["labels"]] for line in done.stdout.splitlines()]


# The commands


def test_tuned_thresholds_are_printed_and_saved(place):
    done = invoke("thresholds", "model", "test.jsonl", "--goal", "micro-f1", "--per", "all", cwd=place)
    shown = done.stdout.decode()
    assert shown.startswith("Tuned for micro-f1, per all: labels that score at least 0.")
    assert "Saved in model. Next: xmtc predict model FILE --threshold tuned" in message(done)
    assert "60 documents are few to tune thresholds on" in shown
    about = json.loads(invoke("info", "model", cwd=place).stdout)["decision"]
    assert (about["for"], about["by"], about["documents"]) == ("micro-f1", "all", 60)
    # the printed metrics are those of cross-validation, not those on the documents that the thresholds were tuned on
    assert "Five-fold cross-validation on 60 documents" in shown
    tagger = Tagger.load(place / "model")
    data, truth, _ = tagger.transform_labelled(open_corpus(str(place / "test.jsonl")), Run())
    predictions = tagger.predict(data, min(EVALUATION_DEPTH, len(tagger.labels)), Run())
    expected = cross_validate_thresholds(predictions, truth, parse_goal("micro-f1"), len(tagger.labels), "all")
    printed = [float(cell) for cell in shown.splitlines()[3].split()[1:]]
    assert [100 * value for value in expected.micro] == pytest.approx(printed, abs=0.006)


def test_scores_without_information_do_not_look_good_in_cross_validation():
    rng = np.random.default_rng(0)
    n_docs, n_labels = 60, 30
    labels = np.stack([rng.permutation(n_labels) for _ in range(n_docs)]).astype(np.int32)
    scores = -np.sort(-rng.random((n_docs, n_labels)), axis=1).astype(np.float32)
    predictions = Predictions.from_valid_arrays(labels, scores)
    truth = csr_array((np.ones(n_docs), (np.arange(n_docs), rng.integers(0, n_labels, n_docs))), (n_docs, n_labels))
    goal = parse_goal("macro-f1")
    tuned = tune_thresholds(to_ranked_results(predictions, truth), goal, n_labels, "label")
    on_tuning_documents = compute_assignment_metrics(RankedResults(tuned.decision(predictions), truth))
    cross_validated = cross_validate_thresholds(predictions, truth, goal, n_labels, "label")
    assert cross_validated.macro[2] < on_tuning_documents.macro[2]


def test_predict_applies_the_tuned_thresholds(place):
    least = Tagger.load(place / "model").decision.thresholds[0]
    decided = answers(place, "--threshold", "tuned")
    assert decided == answers(place, "-k", "1000", "--threshold", str(least - 1e-6))
    assert max(map(len, decided)) > min(map(len, decided))
    assert answers(place, "--threshold", "tuned", "-k", "1") == [each[:1] for each in decided]
    label = next(each for each in decided if each)[0]
    assert answers(place, "--threshold", "tuned", "--deny", label) == [
        [x for x in each if x != label] for each in decided
    ]
    assert answers(place, "--threshold", "tuned", "--allow", label) == [
        [x for x in each if x == label] for each in decided
    ]
    one = invoke("predict", "model", "--string", "nothing of it is known", "--threshold", "tuned", cwd=place)
    assert json.loads(one.stdout)["labels"] == []


def test_thresholds_apply_to_every_output_format(place, tmp_path):
    decided = answers(place, "--threshold", "tuned")
    invoke("predict", "model", "test.jsonl", "--threshold", "tuned", "-o", tmp_path / "a.csv", cwd=place)
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert [row["label"] for row in rows if row["label"]] == [label for each in decided for label in each]
    done = invoke(
        "predict", "model", "test.jsonl", "--threshold", "tuned", "--wide", "-o", tmp_path / "w.csv", cwd=place
    )
    assert b"may have more labels" not in done.stderr
    wide = list(csv.DictReader((tmp_path / "w.csv").open()))
    columns = [name for name in wide[0] if name.startswith("label_")]
    assert len(columns) == max(map(len, decided))  # tuned on the same documents
    assert [[row[name] for name in columns if row[name]] for row in wide] == decided
    texts = tmp_path / "texts"
    texts.mkdir()
    for i, line in enumerate((place / "test.jsonl").read_text().splitlines()[:3]):
        (texts / f"{i}.txt").write_text(json.loads(line)["text"])
    assert invoke("predict", "model", texts, "--threshold", "tuned", "--per-file", cwd=place).returncode == 0
    beside = [(texts / f"{i}.tags.tsv").read_text().splitlines() for i in range(3)]
    assert [len(lines) for lines in beside] == [len(each) for each in decided[:3]]


def test_more_labels_than_columns_are_reported(place, tmp_path):
    tagger = Tagger.load(place / "model")
    tagger.with_decision(replace(tagger.decision, thresholds=np.zeros(1, np.float32), most=2)).save(tmp_path / "model")
    file = place / "test.jsonl"
    done = invoke("predict", tmp_path / "model", file, "--threshold", "tuned", "--wide", "-o", tmp_path / "w.csv")
    assert "documents may have more labels than the 2 that were written." in message(done)
    done = invoke(
        "predict", tmp_path / "model", file, "--threshold", "tuned", "--wide", "-k", "2", "-o", tmp_path / "w.csv"
    )
    assert "may have more labels" not in message(done)


def test_error_without_thresholds_names_the_command_that_tunes_them(place, tmp_path):
    Tagger.load(place / "model").save(tmp_path / "model")
    assert invoke("thresholds", "model", "--clear", cwd=tmp_path).returncode == 0
    asked = ["predict", "model", "--string", "text", "--threshold", "tuned"]
    for words in (asked, ["evaluate", "model", place / "test.jsonl", "micro-F1@decision"]):
        done = invoke(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert message(done).startswith(
            "xmtc: The model has no tuned thresholds; `xmtc thresholds MODEL CORPUS` tunes them"
        )
    assert b"decision" not in invoke("info", "model", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["model"], "Found no documents; give CORPUS"),
        (["model", "test.jsonl", "--clear"], "Found both CORPUS and --clear"),
        (["model", "test.jsonl", "--goal", "f2"], "'f2' is not a goal for thresholds; expected f1, micro-f1"),
        (["model", "test.jsonl", "--goal", "tags=3", "--per", "label"], "Thresholds by label are not possible"),
        (["model", "test.jsonl", "--per", "luck"], "'luck' is not a scope of thresholds; expected all or document or"),
    ],
)
def test_invalid_options_are_rejected(place, words, sentence):
    done = invoke("thresholds", *words, cwd=place)
    assert done.returncode == 2
    assert sentence in message(done)


def test_corpus_without_known_labels_is_rejected(place, tmp_path):
    (tmp_path / "other.jsonl").write_text('{"text": "a b", "labels": ["never seen"]}\n')
    done = invoke("thresholds", "model", tmp_path / "other.jsonl", cwd=place)
    assert done.returncode == 2
    assert "No document has a label that the model knows" in message(done)


def test_unreachable_precision_is_reported(place, tmp_path):
    lines = [{"text": json.loads(line)["text"], "labels": ["never", "seen"]} for line in (place / "test.jsonl").open()]
    lines[0]["labels"] = [Tagger.load(place / "model").labels.words()[0]]
    (tmp_path / "wrong.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Tagger.load(place / "model").save(tmp_path / "model")
    done = invoke("thresholds", "model", "wrong.jsonl", "--goal", "recall=0.9", cwd=tmp_path)
    assert b"The recall of cross-validation is 0, below the goal of 0.9." in done.stdout


def test_default_averaging_is_selected_by_cross_validation(place, tmp_path):
    Tagger.load(place / "model").save(tmp_path / "model")
    done = invoke("thresholds", "model", place / "test.jsonl", "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert result["for"] == "f1"
    assert result["halves"].keys() == {"all", "document", "label"}
    assert result["halves"][result["by"]] == max(result["halves"].values())
    assert 0 < result["example-F1"] <= 1


def test_evaluate_reports_thresholded_metrics_and_a_curve(place, tmp_path):
    done = invoke("evaluate", "model", "test.jsonl", "--curve", tmp_path / "c.csv", cwd=place)
    shown = done.stdout.decode()
    assert shown.splitlines()[3].startswith("micro-P@decision")
    assert "example-F1@decision" in shown.splitlines()[5]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text())))
    best = max(float(row["micro-F1"]) for row in rows)
    reached = float(shown.splitlines()[3].split()[-1]) / 100
    assert best == pytest.approx(reached, abs=0.02)  # tuned on the same documents, so it is at the maximum of the curve
    assert invoke("evaluate", "model", "test.jsonl", "P@1", "--curve", tmp_path / "c.svg", cwd=place).returncode == 0
    picture = ElementTree.parse(tmp_path / "c.svg").getroot()
    assert {"precision", "recall", "F1", "threshold"} <= {each.text for each in picture.iter()}
    (tmp_path / "mine.csv").write_text("my,own\n")
    refused = {"mine.csv": "is not a curve of xmtc", "c.png": "ends with .csv or .svg", "no/c.csv": "is not there"}
    for name, sentence in refused.items():
        done = invoke("evaluate", "model", "test.jsonl", "--curve", tmp_path / name, cwd=place)
        assert done.returncode == 2
        assert sentence in message(done)


def test_report_uses_the_tuned_thresholds(place, tmp_path):
    by_itself = ([], "by the tuned thresholds (labels that score")
    for words, sentence in (by_itself, (["--threshold", "0.9"], "from a score of 0.9")):
        done = invoke("report", "model", "test.jsonl", *words, "-o", tmp_path / "r.json", cwd=place)
        assert done.returncode == 0, done.stderr
        assert sentence in (tmp_path / "r.json").read_text()
    names = ["micro-P@decision", "micro-R@decision", "micro-F1@decision"]
    values = json.loads(invoke("evaluate", "model", "test.jsonl", *names, "--json", cwd=place).stdout)
    invoke("report", "model", "test.jsonl", "-o", tmp_path / "r.md", cwd=place)
    row = next(line for line in (tmp_path / "r.md").read_text().splitlines() if "all assignments (micro)" in line)
    assert [float(cell) for cell in row.split("|")[2:5]] == pytest.approx([100 * v for v in values.values()], abs=0.051)


def test_metrics_per_label_use_the_tuned_thresholds(place, tmp_path):
    done = invoke("evaluate", "model", "test.jsonl", "--per-label", tmp_path / "labels.csv", cwd=place)
    assert "Labels are assigned by the tuned thresholds (labels that score at least" in message(done)
    rows = list(csv.DictReader((tmp_path / "labels.csv").open()))
    given = [label for labels in answers(place, "--threshold", "tuned") for label in labels]
    assert {row["label"]: int(row["given"]) for row in rows if int(row["given"])} == Counter(given)


class DeeperSearch:
    """Model that finds a better first label if more than five labels are requested, like a wider search."""

    def __init__(self, model):
        self.model = model

    def predict(self, data, k, run):
        result = self.model.predict(data, k, run)
        return result if k <= 5 else Predictions(np.roll(result.labels, 1, axis=1), result.scores)


def test_thresholds_do_not_change_ranking_metrics(place, monkeypatch):
    monkeypatch.setattr("xmtc.tagger.fingerprint_model", lambda model: "these")
    tagger = Tagger.load(place / "model")
    tagger = replace(tagger, model=DeeperSearch(tagger.model), unchecked=None).with_decision(tagger.decision)
    documents = list(open_corpus(str(place / "test.jsonl")))
    plain = tagger.evaluate(documents, ["P@1", "nDCG@5"])
    both = tagger.evaluate(documents, ["P@1", "nDCG@5", "micro-F1@decision"])
    assert plain["P@1"] > 0.5
    assert both.items() > plain.items()


# The curve


def test_curve_matches_a_worked_example():
    from test_metrics import PREDICTED, Y

    rows = {
        round(row[0], 3): dict(zip(CURVE_COLUMNS, row, strict=True))
        for row in compute_threshold_curve(to_ranked_results(PREDICTED, Y))
    }
    assert min(rows) == 0.2
    assert max(rows) == 0.9
    assert rows[0.9]["tags"] == 1 / 4
    assert (rows[0.9]["micro-P"], rows[0.9]["micro-R"]) == (1, 1 / 5)
    assert rows[0.2]["micro-F1"] == pytest.approx(2 * 4 / (9 + 5))


# In the folder


def test_thresholds_are_saved_and_older_folders_have_none(place, tmp_path):
    tagger = Tagger.load(place / "model")
    replace(tagger.with_decision(None)).save(tmp_path / "old")
    assert Tagger.load(tmp_path / "old").decision is None
    again = Tagger.load(tmp_path / "old").with_decision(tagger.decision)
    again.save(tmp_path / "new")
    loaded = Tagger.load(tmp_path / "new", verify=True)
    assert loaded.require_decision().thresholds.tolist() == tagger.decision.thresholds.tolist()


@pytest.mark.parametrize(
    ("name", "value", "phrase"),
    [
        ("goal", "glory", "its decision has the unknown goal 'glory'"),
        ("by", "luck", "its decision is not for its labels"),
        ("by", "label", "its decision is not for its labels"),
        ("depth", 0, "its decision is not for its labels"),
        ("depth", "many", "decision.depth has the wrong type"),
        ("scale", -1.0, "its decision is not for its labels"),
    ],
)
def test_damaged_thresholds_are_rejected(place, tmp_path, name, value, phrase):
    Tagger.load(place / "model").save(tmp_path / "model")
    set_about_value(tmp_path / "model", f"parts.decision.{name}", value)
    done = invoke("predict", "model", "--string", "text", "--threshold", "tuned", cwd=tmp_path)
    assert done.returncode == 2
    assert "is damaged" in message(done)
    assert phrase in message(done)


def test_thresholds_that_are_not_numbers_are_rejected(place, tmp_path):
    tagger = Tagger.load(place / "model")
    broken = replace(tagger.decision, thresholds=np.array([np.nan], np.float32))
    tagger.with_decision(broken).save(tmp_path / "model")
    with pytest.raises(XmtcError, match=r"is damaged: decision\.thresholds holds nan or infinity"):
        Tagger.load(tmp_path / "model").predict_labels(["text"], threshold="tuned")


def test_thresholds_tuned_on_other_scores_are_not_used(place):
    """Simulate a calibration that does not remove the thresholds."""
    tagger = Tagger.load(place / "model")
    weights = next(name for name, each in vars(tagger.model).items() if isinstance(each, tuple) and each)
    fewer = replace(tagger.model, **{weights: getattr(tagger.model, weights)[:1]})
    stale = replace(tagger, model=fewer)
    with pytest.raises(XmtcError, match="were tuned on other scores than it returns now; tune them again"):
        stale.predict(["text"], threshold="tuned")
    assert tagger.with_model(fewer).decision is None
    assert "decision" not in tagger.with_model(fewer).about
    assert tagger.require_decision() is tagger.decision


# In Python


@pytest.fixture(scope="module")
def parts():
    texts, tags = make_planted_corpus(400, seed=0)
    return (texts[:250], tags[:250]), (texts[250:330], tags[250:330]), (texts[330:], tags[330:])


def test_classifier_applies_tuned_thresholds(parts, tmp_path):
    train, valid, test = parts
    classifier = Classifier("parabel", max_leaf=10).fit(*train)
    before = classifier.predict(test[0])
    assert all(len(each) == 5 for each in before)
    assert classifier.tune_thresholds(*valid, goal="tags=2") is classifier
    decided = classifier.predict(test[0])
    assert np.mean(list(map(len, decided))) == pytest.approx(2, abs=0.4)
    assert [each[: len(after)] for each, after in zip(before, decided, strict=True) if len(after) <= 5] == [
        after for after in decided if len(after) <= 5
    ]
    assert classifier.predict(test[0], k=5) == before
    assert classifier.predict(test[0], threshold=0.0) == before
    classifier.save(tmp_path / "model")
    assert Classifier.load(tmp_path / "model").predict(test[0]) == decided
    assert classifier.evaluate(*test, "micro-F1@decision")["micro-F1@decision"] > 0
    assert clone(classifier).get_params() == Classifier("parabel", max_leaf=10).get_params()
    assert classifier.fit(*train).predict(test[0]) == before  # thresholds tuned on other scores are removed


def test_indicator_output_uses_tuned_thresholds(parts):
    train, valid, test = parts
    names = sorted({label for part in parts for each in part[1] for label in each})
    Y, V, T = (np.array([[label in each for label in names] for each in part[1]], int) for part in parts)
    classifier = Classifier("parabel", max_leaf=10).fit(train[0], Y)
    half = f1_score(T, classifier.predict(test[0]), average="micro", zero_division=0)
    classifier.tune_thresholds(valid[0], V, "micro-f1")
    result = classifier.predict(test[0])
    assert result.shape == T.shape
    assert f1_score(T, result, average="micro", zero_division=0) > half
    value = classifier.evaluate(test[0], T, "micro-F1@decision")["micro-F1@decision"]
    assert f1_score(T, result, average="micro", zero_division=0) == pytest.approx(value)


def test_deep_thresholds_predict_beyond_the_default_depth():
    """All selected labels are predicted and measured, also if they are more than the default depth."""
    rng = np.random.default_rng(0)
    n_labels = 300
    texts = [" ".join(f"w{i}" for i in rng.choice(40, 8, replace=False)) for _ in range(120)]
    Y = csr_array((rng.random((120, n_labels)) < 0.5).astype(np.int8))
    classifier = Classifier("dismec", min_df=1).fit(texts, Y)
    lesson = tune_tagger_thresholds(classifier.tagger_, classifier._to_labelled_documents(texts, Y), "recall=0.95")
    assert lesson.decision.depth == n_labels
    assert lesson.metrics.micro[1] == pytest.approx(0.95, abs=0.01)  # of cross-validation
    assert lesson.decision.most > 100
    given = lesson.tagger.predict(texts, threshold="tuned")
    assert int((given.labels != NO_LABEL).sum(axis=1).max()) == lesson.decision.most
    documents = classifier._to_labelled_documents(texts, Y)
    assert lesson.tagger.evaluate(documents, ["micro-R@decision"])["micro-R@decision"] >= 0.95


def test_thresholds_have_a_readable_repr():
    assert (
        str(LabelSelector("f1", "document", np.zeros(0, np.float32)))
        == "as many labels as maximise the expected F1 of the document"
    )
    assert str(LabelSelector("f1", "all", np.array([0.25], np.float32))) == "labels that score at least 0.25"
    own = LabelSelector("f1", "label", np.linspace(0, 1, 11, dtype=np.float32))
    assert str(own) == "one threshold per label, with median 0.5 and 10 % to 90 % quantiles 0.1 to 0.9"
