"""Exported models against the model itself: NumPy reader, ONNX, and the arrays of a web page."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from commands import invoke
from exported_models import CASES, make_documents, texts, train

from xmtc import XmtcError
from xmtc.export import export_model, measure_loss
from xmtc.export.numpy_reader import Reader


@pytest.fixture(scope="module", params=CASES, ids=CASES.keys())
def tagger(request):
    return train(**CASES[request.param])


def exhaustive(tagger):
    return replace(tagger, model=tagger.model.to_exhaustive())


def test_numpy_folder_predicts_as_the_model(tagger, tmp_path):
    export_model(tagger, tmp_path / "out", "numpy")
    reader = Reader(tmp_path / "out")
    expected = exhaustive(tagger).predict_labels(texts(), k=7)
    X = tagger.transform(texts()).X
    for row, (text, tags) in enumerate(zip(texts(), expected, strict=True)):
        columns, values = reader.features(text)
        own = X[[row]]
        assert columns.tolist() == own.indices.tolist(), text
        np.testing.assert_allclose(values, own.data, rtol=1e-6)
        answer = reader.predict(text, k=7)
        np.testing.assert_allclose([tag[2] for tag in answer], [tag.score for tag in tags], atol=1e-6)
        by_label = {tag.label: tag.score for tag in tags}
        assert all(abs(by_label.get(label, tags[-1].score) - score) < 1e-6 for label, _, score in answer)


def test_reader_runs_without_xmtc(tagger, tmp_path):
    export_model(tagger, tmp_path / "out", "numpy")
    program = [sys.executable, "-I", str(tmp_path / "out" / "reader.py"), str(tmp_path / "out")]
    text = "kirja0 talo1 öljy5"
    done = subprocess.run(program, input=f"{text}\n\n".encode(), capture_output=True, check=True, timeout=60)
    first, second = map(json.loads, done.stdout.decode().splitlines())
    assert first[0][0] == exhaustive(tagger).predict_labels([text])[0][0].label
    assert second == []
    source = (tmp_path / "out" / "reader.py").read_text()
    assert "xmtc." not in source.replace("xmtc export", "")


def test_onnx_predicts_as_the_model(tagger, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    export_model(tagger, tmp_path / "model.onnx", "onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
    data = tagger.transform(texts())
    cells = data.X.tocoo()
    inputs = {
        "rows": cells.coords[0].astype(np.int64),
        "columns": cells.coords[1].astype(np.int64),
        "values": cells.data,
        "n_rows": np.array([data.n_docs]),
        "k": np.array([7]),
    }
    best, scores = session.run(["labels", "scores"], inputs)
    predictions = exhaustive(tagger).predict(data, 7, always=True)
    np.testing.assert_allclose(scores, predictions.scores, atol=1e-6)
    assert best[0].tolist() == predictions.labels[0].tolist() or np.ptp(scores[0]) < 1e-6
    differs = best != predictions.labels  # only where scores are equal
    assert np.abs(scores - predictions.scores)[differs].max(initial=0) < 1e-6
    assert [labels[i] for i in best[-1][:1]] == [tagger.labels[int(predictions.labels[-1, 0])]]


def test_label_filter_is_exported(tmp_path):
    tagger = train(max_leaf=8).with_filter(deny=["label 1", "label 2"])
    arrays = export_model(tagger, tmp_path / "out", "numpy")
    assert "label 1" not in arrays.labels
    assert "label 1" not in [label for label, *_ in Reader(tmp_path / "out").predict("talo1 talo1", k=20)]


def test_loss_of_an_unpruned_export_is_zero(tagger, tmp_path):
    arrays = export_model(tagger, tmp_path / "out", "numpy")
    before, after = measure_loss(tagger, arrays, make_documents(50, seed=2), "nDCG@5")
    assert after == pytest.approx(before, abs=0.02)


@pytest.mark.parametrize(
    ("settings", "format", "words"),
    [
        ({"method": "fastxml", "n_trees": 2}, "numpy", "only linear label trees"),
        ({"analyzer": "snowball:finnish"}, "web", "need a stemmer"),
        ({"tokens": "names"}, "numpy", "RE2"),
    ],
)
def test_refusals_name_the_reason(tmp_path, settings, format, words):
    with pytest.raises(XmtcError, match=words):
        export_model(train(**settings), tmp_path / "out", format)
    assert not (tmp_path / "out").exists()


def test_existing_folders_are_kept(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious.txt").write_text("mine")
    tagger = train()
    with pytest.raises(XmtcError, match="no earlier export"):
        export_model(tagger, tmp_path / "out", "numpy")
    (tmp_path / "out" / "reader.py").write_text("mine too")
    with pytest.raises(XmtcError, match="no earlier export"):
        export_model(tagger, tmp_path / "out", "numpy")
    for _ in range(2):
        export_model(tagger, tmp_path / "new", "numpy")
        (tmp_path / "new" / "__pycache__").mkdir()
    tagger.save(tmp_path / "model")
    with pytest.raises(XmtcError, match="choose another"):
        export_model(tagger, tmp_path / "model" / "about.json", "web")
    with pytest.raises(XmtcError, match="is a folder"):
        export_model(tagger, tmp_path, "web")


@pytest.mark.parametrize("max_mb", [0.0, -1.0, math.nan, math.inf])
def test_sizes_that_no_page_has_are_refused(tmp_path, max_mb):
    with pytest.raises(XmtcError, match="expected megabytes above 0"):
        export_model(train(), tmp_path / "page.html", "web", max_mb=max_mb)


def test_check_reads_the_fields_of_the_training_corpus(tmp_path):
    lines = [json.dumps({"title": each.text, "subjects": each.labels}) for each in make_documents(100)[:100]]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    corpus, model = str(tmp_path / "corpus.jsonl"), str(tmp_path / "model")
    invoke("train", corpus, "-o", model, "--text", "title", "--labels", "subjects", "-q")
    answer = invoke("export", model, "-o", str(tmp_path / "out"), "--check", corpus)
    assert "nDCG@5: " in answer.stdout.decode()
