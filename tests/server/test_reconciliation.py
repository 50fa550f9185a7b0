"""Reconciliation API 0.2: shapes of its schemas, and the queries of the specification's examples."""

from __future__ import annotations

import json
import threading

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from fastapi.testclient import TestClient
from serving import TEXTS, make_model

from xmtc.server import reconciliation
from xmtc.server.app import create_app
from xmtc.server.reconciliation import describe_service
from xmtc.server.settings import Settings

PATH = "/v1/models/n/reconcile"
# Queries as in the examples of the specification: minimal, with all fields, and with several values.
EXAMPLES = {
    "minimal": {"q0": {"query": "Hans-Eberhard Urbaniak"}, "q1": {"query": "Ernst Schwanhold"}},
    "full": {
        "q1": {
            "query": "Hans-Eberhard Urbaniak",
            "type": "DifferentiatedPerson",
            "limit": 5,
            "properties": [
                {"pid": "professionOrOccupation", "v": "Politik*"},
                {"pid": "affiliation", "v": {"id": "2022139-3", "name": "SPD"}},
            ],
            "type_strict": "should",
        }
    },
    "several values": {
        "q0": {"query": "Douglas Adams", "type": ["Q5"], "properties": [{"pid": "P31", "v": ["a", 1, True]}]}
    },
    "no query string": {"q0": {"properties": [{"pid": "P1", "v": "text"}]}},
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = make_model(tmp_path_factory.mktemp("models") / "n", named=True)
    with TestClient(create_app(Settings((("n", str(folder)),), hosts=("testserver",)))) as client:
        yield client


def ask(client, queries):
    answer = client.post(PATH, data={"queries": json.dumps(queries)})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_manifest(client):
    manifest = client.get(PATH).json()
    assert "0.2" in manifest["versions"]
    assert {"name", "identifierSpace", "schemaSpace"} <= manifest.keys()
    assert "{{id}}" in manifest["view"]["url"]
    entity = manifest["suggest"]["entity"]
    suggested = client.get(entity["service_url"] + entity["service_path"], params={"prefix": "name 1"}).json()
    assert suggested["result"][0]["name"].startswith("name 1")
    assert {"id", "name"} <= suggested["result"][0].keys()
    rest = client.get(f"{PATH}/suggest", params={"prefix": "name", "cursor": 1}).json()["result"]
    assert rest[0] == client.get(f"{PATH}/suggest", params={"prefix": "name"}).json()["result"][1]


def test_addresses_of_the_manifest_are_encoded():
    assert describe_service("my model", "http://h/")["identifierSpace"] == "http://h/v1/models/my%20model/labels"
    entity = describe_service("my model", "http://h/")["suggest"]["entity"]
    assert entity["service_url"] == "http://h/v1/models/my%20model/reconcile"


@pytest.mark.parametrize("queries", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_queries_of_the_specification(client, queries):
    answers = ask(client, queries)
    assert answers.keys() == queries.keys()
    assert all(isinstance(answer["result"], list) for answer in answers.values())
    assert client.get(PATH, params={"queries": json.dumps(queries)}).json() == answers


def test_names_match_and_texts_are_predicted(client):
    answers = ask(client, {"a": {"query": "Name 3"}, "b": {"query": TEXTS[0], "limit": 2}})
    best = answers["a"]["result"][0]
    assert (best["name"], best["score"], best["match"]) == ("name 3", 100, True)
    assert best["type"] == [{"id": "label", "name": "Label"}]
    assert [each["match"] for each in answers["a"]["result"][1:]] == [False] * (len(answers["a"]["result"]) - 1)
    tags = client.post("/v1/models/n/predict", json={"text": TEXTS[0], "k": 2}).json()["results"][0]["tags"]
    assert [each["id"] for each in answers["b"]["result"]] == [tag["label"] for tag in tags]
    scores = [each["score"] for each in answers["b"]["result"]]
    assert scores == pytest.approx([100 * tag["score"] for tag in tags], abs=1e-3)
    combined = {"query": "", "properties": [{"pid": "abstract", "v": TEXTS[0]}], "limit": 2}
    assert ask(client, {"b": combined})["b"]["result"] == answers["b"]["result"]


@pytest.mark.parametrize(
    "queries", ["", "[]", "{", '{"q0": {}}', '{"q0": {"query": 5}}', '{"q0": {"query": "a", "limit": 0}}']
)
def test_invalid_batches_are_refused(client, queries):
    answer = client.post(PATH, data={"queries": queries})
    assert answer.status_code == 422
    assert "Traceback" not in answer.text


def test_large_batches_do_not_block_the_service(client, monkeypatch):
    threads, parse = [], reconciliation.parse_queries

    def record_and_parse(body):
        threads.append(threading.current_thread().name)
        return parse(body)

    monkeypatch.setattr(reconciliation, "parse_queries", record_and_parse)
    ask(client, {"q0": {"query": "name 1"}})
    ask(client, {"q0": {"query": "word " * 40_000}})
    assert [name.startswith("bodies") for name in threads] == [False, True]


def test_large_batches_and_unknown_models(client):
    many = json.dumps({str(i): {"query": "a"} for i in range(101)})
    assert client.post(PATH, data={"queries": many}).status_code == 413
    assert client.get("/v1/models/none/reconcile").status_code == 404
    assert client.post("/v1/models/none/reconcile", data={"queries": "{}"}).status_code == 404
