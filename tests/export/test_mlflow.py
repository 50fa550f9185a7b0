"""MLflow flavour: log, load and serve a model with the real library."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from xmtc import Document, train
from xmtc.errors import MissingExtra
from xmtc.mlflow import log_model

TEXTS = ["apples and pears", "pears grow on trees", "a trip to the moon", "the moon and the stars"]
TAGS = [["fruit"], ["fruit", "garden"], ["space", "travel"], ["space"]]
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def mlflow():
    return pytest.importorskip("mlflow", reason="MLflow is not installed")


@pytest.fixture(scope="module")
def tagger():
    documents = [
        Document(str(number), text, labels) for number, (text, labels) in enumerate(zip(TEXTS, TAGS, strict=True))
    ]
    return train(documents, "parabel", min_df=1, keep_training=True)


@pytest.fixture(scope="module")
def uri(mlflow, tagger, tmp_path_factory):
    """Return the address of the logged model."""
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/runs.db")
    experiment = mlflow.create_experiment("books", artifact_location=tmp_path_factory.mktemp("artifacts").as_uri())
    with mlflow.start_run(experiment_id=experiment):
        return log_model(tagger).model_uri


def labels_and_scores(tagger, **options):
    found = tagger.predict_labels(TEXTS, **options)
    return {
        "labels": [[tag.label for tag in tags] for tags in found],
        "scores": [[tag.score for tag in tags] for tags in found],
    }


def test_a_loaded_model_predicts_the_same(mlflow, tagger, uri):
    pandas = pytest.importorskip("pandas")
    model = mlflow.pyfunc.load_model(uri)
    frame = pandas.DataFrame({"text": TEXTS})
    assert model.predict(frame).to_dict("list") == labels_and_scores(tagger)
    found = model.predict(frame, params={"k": 1, "threshold": 0.5})
    assert found.to_dict("list") == labels_and_scores(tagger, k=1, threshold=0.5)
    assert labels_and_scores(model.get_raw_model()) == labels_and_scores(tagger)


def test_the_artifact_contains_no_code_and_no_documents(mlflow, tagger, uri):
    assert tagger.training is not None
    folder = mlflow.artifacts.download_artifacts(uri)
    files = {file for _, _, files in os.walk(folder) for file in files}
    assert {"MLmodel", "about.json", "arrays.safetensors"} <= files
    assert "training.safetensors" not in files
    assert not [file for file in files if file.endswith((".pkl", ".py", ".cloudpickle"))]


def test_a_served_model_answers(mlflow, tagger, uri):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["serve", "-m", mlflow.artifacts.download_artifacts(uri), "-p", str(port), "--env-manager", "local"]
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # MLflow starts the command uvicorn
    command = [sys.executable, "-m", "mlflow", "models", *words]
    with subprocess.Popen(command, env={**os.environ, "PATH": path}, start_new_session=True) as server:
        try:
            body = json.dumps({"dataframe_split": {"columns": ["text"], "data": [[text] for text in TEXTS]}}).encode()
            address, headers = f"http://127.0.0.1:{port}/invocations", {"Content-Type": "application/json"}
            rows = json.loads(ask(urllib.request.Request(address, body, headers), server))["predictions"]
        finally:
            os.killpg(server.pid, signal.SIGTERM)
    expected = labels_and_scores(tagger)
    assert [row["labels"] for row in rows] == expected["labels"]
    assert [row["scores"] for row in rows] == [pytest.approx(scores) for scores in expected["scores"]]


def test_missing_mlflow_is_named(tagger, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtra, match="log_model needs MLflow 3 or newer: pip install mlflow"):
        log_model(tagger)


def ask(request: urllib.request.Request, server: subprocess.Popen) -> bytes:
    """Return the answer of a service that may still be starting."""
    end = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.read()
        except urllib.error.HTTPError:
            raise
        except OSError:
            if server.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.5)
