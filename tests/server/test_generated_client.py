"""Typed client that openapi-python-client generates from the published description, asking a running service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request

import pytest

pytest.importorskip("openapi_python_client", reason="openapi-python-client is not installed")
pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from serving import TEXTS, make_model, running

from xmtc import Tagger

PROGRAM = """
import sys
from xmtc_client import Client
from xmtc_client.api.models import predict
from xmtc_client.models import PredictRequest

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)
answer = predict.sync("model", client=client, body=PredictRequest(texts=sys.argv[2:], k=2))
for result in answer.results:
    print(*(tag.label for tag in result.tags))
"""


def test_a_generated_client_predicts(tmp_path):
    folder = make_model(tmp_path / "model")
    with running(str(folder)) as service:
        with urllib.request.urlopen(f"{service.url}/openapi.json") as answer:
            description = json.load(answer)
        (tmp_path / "openapi.json").write_text(json.dumps(description))
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # ruff formats the client
        words = ["generate", "--path", "openapi.json", "--output-path", "client", "--fail-on-warning"]
        subprocess.run(
            [sys.executable, "-m", "openapi_python_client", *words],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            check=True,
        )
        asked = [sys.executable, "-c", PROGRAM, service.url, *TEXTS[:3]]
        lines = subprocess.run(asked, cwd=tmp_path / "client", capture_output=True, text=True, check=True).stdout
    expected = Tagger.load(folder).predict_labels(TEXTS[:3], 2)
    assert lines.splitlines() == [" ".join(tag.label for tag in tags) for tags in expected]
