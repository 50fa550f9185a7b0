"""Quality of tags and drift of texts in the answers and metrics of the service."""

import json
import threading
import time

import pytest
from commands import lines_of

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from fastapi.testclient import TestClient

from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.pipeline import train
from xmtc.scores.quality import parse_promise
from xmtc.scores.tagger_thresholds import tune_tagger_thresholds
from xmtc.server import drift
from xmtc.server.app import create_app
from xmtc.server.settings import Settings


def make_documents(n_docs: int, seed: int) -> list[Document]:
    return [Document(**json.loads(line)) for line in lines_of(n_docs, seed).splitlines()]


@pytest.fixture(scope="module")
def tagger():
    tagger = train(make_documents(1200, 0), "parabel", max_leaf=10)
    promise = parse_promise("precision=0.8")
    return tune_tagger_thresholds(tagger, make_documents(300, 1), "f1", "all", promise=promise).tagger


@pytest.fixture
def client(tagger, tmp_path, monkeypatch):
    monkeypatch.setattr(drift, "SAMPLE_SECONDS", 0.0)
    tagger.save(tmp_path / "model")
    settings = Settings((("m", str(tmp_path / "model")),), hosts=("testserver",), access_log=False)
    with TestClient(create_app(settings)) as client:
        yield client


def read_metrics(client) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def predict(client, texts, **options):
    response = client.post("/v1/models/m/predict", json={"texts": texts, **options})
    assert response.status_code == 200, response.text
    return response.json()["results"]


def test_answers_with_tuned_thresholds_have_the_quality(client, tagger):
    texts = [document.text for document in make_documents(20, 2)]
    results = predict(client, texts, threshold="tuned")
    selected, quality = tagger.predict_with_quality(texts)
    assert [result["quality"] for result in results] == [quality.describe(row) for row in range(20)]
    assert [len(result["tags"]) for result in results] == [len(tags) for tags in tagger.to_tags(selected)]
    assert all("quality" not in result for result in predict(client, texts))
    (model,) = client.get("/v1/models").json()["models"]
    assert model["decision"]["gate"]["target"] == 0.8


def test_metrics_compare_recent_texts_with_the_reference(client, tagger):
    assert 'xmtc_drift_unknown_words{documents="recent",model="m"}' not in read_metrics(client)
    for start in range(0, 160, 8):
        predict(client, [f"{d.text} unheard words nobody wrote" for d in make_documents(160, 3)[start : start + 8]])
    for _ in range(600):
        metrics = read_metrics(client)
        if 'xmtc_drift_unknown_words{documents="recent",model="m"}' in metrics:
            break
        time.sleep(0.05)
    reference = metrics['xmtc_drift_unknown_words{documents="reference",model="m"}']
    assert reference == pytest.approx(float(tagger.reference.unknown.mean()))
    assert metrics['xmtc_drift_unknown_words{documents="recent",model="m"}'] > reference + 0.05
    assert metrics['xmtc_drift_warning{kind="unknown words",model="m"}'] == 1
    assert 0 <= metrics['xmtc_drift_estimated_precision{documents="recent",model="m"}'] <= 1


def test_names_to_reconcile_are_no_documents(client):
    queries = {f"q{i}": {"query": f"unseen {i}"} for i in range(50)}
    for _ in range(4):
        assert client.post("/v1/models/m/reconcile", data={"queries": json.dumps(queries)}).status_code == 200
    assert not [name for name in read_metrics(client) if name.startswith("xmtc_drift_unknown_words{")]


def test_comparison_does_not_delay_requests(tagger, monkeypatch):
    monkeypatch.setattr(drift, "SAMPLE_SECONDS", 0.0)
    begin, release, reports = threading.Event(), threading.Event(), []

    def compare(reference, window):
        begin.set()
        release.wait(10)
        return len(window.labels)

    monkeypatch.setattr(drift, "compare_with_reference", compare)
    monitor = drift.DriftMonitor(tagger, Run(threads=1), reports.append)
    for _ in range(8):
        monitor.sample(["a text"] * 8)
    assert begin.wait(10)
    assert not reports  # the samples have returned while the texts are compared
    release.set()
    monitor.comparison.join(10)
    assert reports == [24]  # and no second comparison has started meanwhile


def test_sampling_is_limited_in_time_and_cannot_fail_a_request(tagger, monkeypatch):
    calls = []

    def observe(*words):
        calls.append(words)
        raise ValueError("damaged")

    monkeypatch.setattr(type(tagger), "observe", observe)
    monitor = drift.DriftMonitor(tagger, Run(), calls.append)
    monitor.sample(["a"])
    monitor.sample(["a"])  # a moment later
    assert len(calls) == 1
