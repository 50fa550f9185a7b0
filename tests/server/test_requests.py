"""HTTP API tested in the process: responses, errors, hostile requests and the log."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import threading
import time
from dataclasses import replace

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from fastapi.testclient import TestClient
from serving import TEXTS, make_model

from xmtc import Run, Tagger, XmtcError
from xmtc.cli.serve import serve
from xmtc.errors import MissingExtra
from xmtc.server.app import create_app
from xmtc.server.batching import Batcher, PredictQuery
from xmtc.server.request_errors import RequestError
from xmtc.server.settings import ServiceLimits, Settings, parse_models, parse_reports

ONE = Run(threads=1)
PREDICT = "/v1/models/m/predict"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "m")


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "n", named=True)


@pytest.fixture(scope="module")
def settings(folder, named):
    return Settings((("m", str(folder)), ("n", str(named))), hosts=("testserver",))


@pytest.fixture(scope="module")
def client(settings):
    with TestClient(create_app(settings)) as client:
        yield client


@pytest.fixture(scope="module")
def tagger(folder):
    return Tagger.load(folder)


def message(response) -> str:
    found = response.json()["error"]
    assert found["status"] == response.status_code
    assert "Traceback" not in response.text
    return found["message"]


# Responses


def test_responses_equal_predictions_of_the_tagger(client, tagger):
    answer = client.post(PREDICT, json={"texts": TEXTS[:7], "k": 3}).json()
    expected = tagger.predict_labels(TEXTS[:7], k=3, run=ONE)
    assert answer["model"] == "m"
    found = [[(tag["label"], tag["score"]) for tag in each["tags"]] for each in answer["results"]]
    assert found == [[(tag.label, round(tag.score, 6)) for tag in tags] for tags in expected]
    one = client.post(PREDICT, json={"text": TEXTS[0], "k": 3}).json()
    assert one["results"] == answer["results"][:1]


def test_threshold_filters_and_many_labels(client, tagger):
    whole = client.post(PREDICT, json={"text": TEXTS[0], "k": 1000}).json()["results"][0]["tags"]
    assert 5 < len(whole) <= len(tagger.labels)
    least = whole[1]["score"]
    above = client.post(PREDICT, json={"text": TEXTS[0], "k": 1000, "threshold": least - 1e-6}).json()
    assert [tag["label"] for tag in above["results"][0]["tags"]] == [tag["label"] for tag in whole[:2]]
    first = whole[0]["label"]
    denied = client.post(PREDICT, json={"text": TEXTS[0], "deny": [first]}).json()["results"][0]["tags"]
    assert first not in [tag["label"] for tag in denied]
    allowed = client.post(PREDICT, json={"text": TEXTS[0], "allow": [first]}).json()["results"][0]["tags"]
    assert [tag["label"] for tag in allowed] == [first]


def test_no_texts_and_unknown_words_have_no_labels(client):
    assert client.post(PREDICT, json={"texts": []}).json()["results"] == []
    assert client.post(PREDICT, json={"text": "zzzz qqqq"}).json()["results"] == [{"tags": []}]
    assert client.post(PREDICT, json={"text": ""}).json()["results"] == [{"tags": []}]


def test_names_in_languages(client):
    for language, name in ((None, "name"), ("fi", "nimi"), ("en", "name")):
        answer = client.post("/v1/models/n/predict", json={"text": TEXTS[0], "k": 1, "language": language})
        assert answer.json()["results"][0]["tags"][0]["name"].startswith(f"{name} ")
    assert "sv" in message(client.post("/v1/models/n/predict", json={"text": TEXTS[0], "language": "sv"}))
    assert "vocabulary" in message(client.post(PREDICT, json={"text": TEXTS[0], "language": "en"}))


def test_tuned_thresholds(client, named):
    tagger = Tagger.load(named)
    answer = client.post("/v1/models/n/predict", json={"texts": TEXTS, "threshold": "tuned"}).json()["results"]
    expected = tagger.predict_labels(TEXTS, threshold="tuned", run=ONE)
    assert [[tag["label"] for tag in each["tags"]] for each in answer] == [[t.label for t in tags] for tags in expected]
    assert len({len(tags) for tags in expected}) > 1
    refused = client.post(PREDICT, json={"text": TEXTS[0], "threshold": "tuned"})
    assert refused.status_code == 422
    assert "no tuned thresholds" in message(refused)


def test_models_are_listed(client, tagger):
    first, second = client.get("/v1/models").json()["models"]
    assert first["name"] == "m"
    assert first["method"] == "parabel"
    assert first["n_labels"] == len(tagger.labels)
    assert first["languages"] == []
    assert first["report"] is False
    assert first["decision"] is None
    assert second["decision"] == {"goal": "f1"}
    assert first["calibrated"] is (tagger.about["scores"]["are"] == "probabilities")
    assert first["explains"] is True
    assert sorted(second["languages"]) == ["en", "fi"]


def test_explanation_gives_positions_of_words(client, tagger):
    text = "Ⅷ " + TEXTS[0] + " " + TEXTS[0].upper()  # the first letter has a lower-case form; each word occurs twice
    label = tagger.predict_labels([text], k=1, run=ONE)[0][0].label
    found = client.post("/v1/models/m/explain", json={"text": text, "label": label}).json()
    assert found["label"] == found["name"] == label
    assert 0 < found["score"] <= 1
    strongest = found["words"][0]
    assert len(strongest["spans"]) == 2
    for begin, end in strongest["spans"]:
        assert text[begin:end].lower() == strongest["word"].lower()
    assert sum(strongest["weights"]) == pytest.approx(strongest["weight"])
    assert strongest["parts"] == [None, None]
    assert isinstance(found["bias"], float)
    assert found["members"] == []
    expected = dict(tagger.explain(text, label, n=100))
    assert strongest["weight"] == pytest.approx(expected[strongest["word"].lower()])
    weights = [abs(word["weight"]) for word in found["words"]]
    assert weights == sorted(weights, reverse=True)
    assert "no label" in message(client.post("/v1/models/m/explain", json={"text": text, "label": "nonsense"}))


def test_label_search_uses_all_names(client):
    found = client.get("/v1/models/n/labels", params={"search": "other 1", "limit": 3}).json()["labels"]
    assert found[0] == {"label": "label-01", "name": "name 1", "others": ["other 1"]}
    assert len(found) == 3
    in_finnish = client.get("/v1/models/n/labels", params={"search": "NIMI 2", "language": "fi"}).json()["labels"]
    assert in_finnish[0]["name"] == "nimi 2"
    assert client.get("/v1/models/m/labels", params={"search": "no such thing"}).json() == {"labels": []}
    assert len(client.get("/v1/models/m/labels").json()["labels"]) == 20


def test_report_of_a_replaced_model_is_hidden(settings, tagger, tmp_path):
    tagger.save(tmp_path / "m")
    page = tmp_path / "report.html"
    page.write_text("<!DOCTYPE html><p>old")
    own = replace(settings, models=(("m", str(tmp_path / "m")),), reports=(("m", str(page)),))

    def describe(client) -> dict:
        return client.get("/v1/models").json()["models"][0]

    with TestClient(create_app(own)) as client:
        before = describe(client)
        assert before["report"] is True
        os.utime(page, (1, 1))
        tagger.save(tmp_path / "m")
        client.portal.call(client.app.state.service.models.reload_changed, True)
        after = describe(client)
        assert after["report"] is False
        assert after["version"] != before["version"]
        assert client.get("/v1/models/m/report").status_code == 404
        page.write_text("<!DOCTYPE html><p>new")
        assert describe(client)["report"] is True
        assert b"new" in client.get("/v1/models/m/report").content


def test_report_is_served_if_the_model_has_one(settings, tmp_path):
    (tmp_path / "report.html").write_text("<!DOCTYPE html><style>p {}</style><p>fine")
    with_report = replace(settings, reports=(("m", str(tmp_path / "report.html")),))
    with TestClient(create_app(with_report)) as client:
        assert [model["report"] for model in client.get("/v1/models").json()["models"]] == [True, False]
        shown = client.get("/v1/models/m/report")
        assert shown.text.endswith("<p>fine")
        assert shown.headers["content-type"].startswith("text/html")
        assert "style-src 'unsafe-inline'" in shown.headers["content-security-policy"]
        assert "script-src" not in shown.headers["content-security-policy"]
        assert "xmtc report" in message(client.get("/v1/models/n/report"))


def test_health_metrics_and_openapi(client):
    client.post(PREDICT, json={"texts": TEXTS[:3]})
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready", "models": ["m", "n"]}
    numbers = client.get("/metrics").text
    assert 'xmtc_requests_total{method="POST",route="/v1/models/{name}/predict",status="200"}' in numbers
    texts = next(line for line in numbers.splitlines() if line.startswith('xmtc_texts_total{model="m"}'))
    assert float(texts.split()[1]) >= 3
    described = client.get("/openapi.json").json()
    for path in (PREDICT.replace("/m/", "/{name}/"), "/v1/projects/{project_id}/suggest", "/healthz", "/metrics"):
        assert path in described["paths"]
    assert described["components"]["schemas"]["PredictRequest"]["examples"]


def test_lone_surrogates_are_accepted(client):
    asked = b'{"text": "\\ud800 \\udfff"}'
    answer = client.post(PREDICT, content=asked, headers={"content-type": "application/json"})
    assert answer.json()["results"] == [{"tags": []}]


def test_server_files_cannot_be_requested(client, tmp_path, tagger):
    (tmp_path / "labels").write_text(f"{tagger.labels[0]}\n")  # valid on the command line
    answer = client.post(PREDICT, json={"text": TEXTS[0], "allow": [f"file:{tmp_path}/labels"]})
    assert answer.status_code == 422
    assert message(answer) == "`file:` entries are not allowed in requests; send the labels themselves."


# Files and tables


def sent(client, name: str, content: bytes, **fields):
    return client.post("/v1/models/m/file", files={"file": (name, content)}, data=fields)


def test_texts_and_tables_are_read(client):
    assert sent(client, "../../a note.txt", b"one\ntwo").json()["documents"] == [{"id": "a note", "text": "one\ntwo"}]
    table = "id;title;words\n7;a;the longest of all\n8;b;short\n".encode("utf-16")
    found = sent(client, "t.csv", table).json()
    assert found["documents"] == [{"id": "7", "text": "the longest of all"}, {"id": "8", "text": "short"}]
    assert found["columns"] == ["id", "title", "words"]
    assert found["column"] == "words"
    assert "semicolons" in found["note"]
    assert "/" not in found["note"]
    assert sent(client, "t.csv", table, text="title").json()["documents"][0]["text"] == "a"
    assert "no column 'x'" in message(sent(client, "t.csv", table, text="x"))
    lines = b'{"abstract": "some words", "id": "q"}\n'
    assert sent(client, "t.jsonl", lines).json()["documents"] == [{"id": "q", "text": "some words"}]
    page = sent(client, "t.html", b"<html><body><p>Visible words of a page, enough of them.</p></body></html>")
    assert page.status_code in (200, 422)  # 422 without the extra `documents`


def test_encoding_is_returned_and_can_be_set(client):
    text = "Tämä löytyy myös äidin pöydältä"
    found = sent(client, "t.txt", text.encode("cp1252")).json()
    assert (found["documents"][0]["text"], found["encoding"]) == (text, "windows-1252")
    assert "file.txt is read as windows-1252" in found["note"]
    mac = sent(client, "t.txt", text.encode("cp1252"), encoding="mac-roman").json()
    assert (mac["documents"][0]["text"], mac["encoding"]) == (text.encode("cp1252").decode("mac-roman"), "mac-roman")
    table = f"id;text\n1;{text}\n".encode("cp850")
    assert sent(client, "t.csv", table, encoding="cp850").json()["documents"][0]["text"] == text
    assert sent(client, "t.txt", text.encode()).json()["encoding"] is None
    assert "no encoding 'x'" in message(sent(client, "t.txt", b"a", encoding="x"))


def test_word_documents_are_read(client):
    docx = pytest.importorskip("docx")
    document, stream = docx.Document(), io.BytesIO()
    document.add_paragraph("Lintuja ja kukkia")
    document.save(stream)
    assert sent(client, "Kirje.docx", stream.getvalue()).json()["documents"] == [
        {"id": "Kirje", "text": "Lintuja ja kukkia"}
    ]


def test_bad_rows_are_skipped_and_reported(client):
    found = sent(client, "t.csv", b"id,text\n1,fine\n2,too,many\n3,fine too\n").json()
    assert [each["id"] for each in found["documents"]] == ["1", "3"]
    assert "1 left out, the first at line 3" in found["note"]


@pytest.mark.parametrize(
    ("name", "content", "status"),
    [
        ("a.docx", b"PK", 422),
        ("a.rtf", b"{}", 415),
        ("", b"text", 422),
        ("noending", b"text", 415),
        ("a.csv", b"", 422),
        ("a.xlsx", b"no workbook", 422),
        ("a.pdf", b"%PDF-1.4 nonsense", 422),
        ("a.csv", b'id,text\n1,"never closed', 422),
        ("a.jsonl", b"[" * 100_000, 422),
        ("a.txt\x00.csv", b"a", 422),
    ],
)
def test_unreadable_files_are_rejected(client, name, content, status):
    answer = sent(client, name, content)
    assert answer.status_code in (status, 422)
    assert "/tmp" not in message(answer)


def test_workbook_response_contains_no_formulas(client):
    pytest.importorskip("xlsxwriter")
    rows = [{"id": "=1+1", "text": "=cmd()", "tags": [{"label": "a", "name": "An A", "score": 0.5}]}]
    rows += [{"id": "2", "text": "ä", "tags": []}]
    made = client.post("/v1/models/m/table", json={"rows": rows, "format": "xlsx"})
    found = sent(client, "t.xlsx", made.content).json()
    assert found["columns"] == ["id", "text", "label_1", "name_1", "score_1"]
    assert found["documents"] == [{"id": "=1+1", "text": "=cmd()"}, {"id": "2", "text": "ä"}]
    in_csv = client.post("/v1/models/m/table", json={"rows": rows, "format": "csv"}).content.decode("utf-8-sig")
    assert in_csv == "id,text,label_1,name_1,score_1\n'=1+1,'=cmd(),a,An A,0.5\n2,ä,,,\n"
    in_lines = client.post("/v1/models/m/table", json={"rows": rows, "format": "jsonl"}).text.splitlines()
    assert json.loads(in_lines[0])["labels"] == [{"label": "a", "name": "An A", "score": 0.5}]
    assert client.post("/v1/models/m/table", json={"rows": rows, "format": "exe"}).status_code == 422


# Annif's interface


def test_annif_projects_and_suggestions(client):
    m, n = client.get("/v1/projects").json()["projects"]
    assert m["project_id"] == "m"
    assert m["backend"] == {"backend_id": "parabel"}
    assert m["is_trained"] is True
    assert n["language"] == n["vocab_language"] == "en"
    assert client.get("/v1/projects/n").json() == n
    answer = client.post("/v1/projects/n/suggest", data={"text": TEXTS[0], "limit": "2"}).json()["results"]
    assert len(answer) == 2
    assert set(answer[0]) == {"uri", "label", "notation", "score"}
    number = int(answer[0]["uri"].removeprefix("http://x.org/label-"))
    assert (answer[0]["label"], answer[0]["notation"]) == (f"name {number}", f"N{number}")
    documents = [{"document_id": "a", "text": TEXTS[0]}, {"text": "qqqq"}]
    both = client.post("/v1/projects/n/suggest-batch?limit=2&language=fi", json={"documents": documents}).json()
    assert [each["document_id"] for each in both] == ["a", None]
    assert both[0]["results"][0]["label"] == f"nimi {number}"
    assert both[1]["results"] == []


def test_annif_errors(client):
    missing = client.post("/v1/projects/none/suggest", data={"text": "a"})
    assert missing.status_code == 404
    assert missing.json()["detail"] == "Project 'none' not found"
    assert missing.headers["content-type"] == "application/problem+json"
    for data in ({}, {"text": "a", "limit": "-1"}, {"text": "a", "threshold": "nan"}, {"text": "a", "language": "sv"}):
        wrong = client.post("/v1/projects/n/suggest", data=data)
        assert wrong.status_code == wrong.json()["status"] == 400
    many = {"documents": [{"text": "a"}] * 33}
    assert client.post("/v1/projects/n/suggest-batch", json=many).status_code == 400
    assert client.post("/v1/projects/n/suggest", data={"text": TEXTS[0], "limit": "0"}).json() == {"results": []}
    assert client.post("/v1/projects/n/suggest", data={"text": ""}).json() == {"results": []}
    assert client.post("/v1/projects/n/learn", json=[]).status_code == 403


# Errors


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"text": 5}',
        b'{"text": null}',
        b'{"texts": "one"}',
        b'{"texts": [1]}',
        b'{"text": "a", "texts": ["b"]}',
        b'{"text": "a", "k": 0}',
        b'{"text": "a", "k": NaN}',
        b'{"text": "a", "k": 1e999}',
        b'{"text": "a", "k": 2.5}',
        b'{"text": "a", "k": "5"}',
        b'{"text": "a", "k": true}',
        b'{"text": "a", "k": 99999999999999999999999}',
        b'{"text": "a", "k": 1001}',
        b'{"text": "a", "threshold": NaN}',
        b'{"text": "a", "threshold": Infinity}',
        b'{"text": "a", "threshold": -1}',
        b'{"text": "a", "threshold": "high"}',
        b'{"text": "a", "threshold": true}',
        b'{"text": "a", "unknown": 1}',
        b'{"text": "a", "allow": ["no such label"]}',
        b'{"text": "a", "allow": [" file:/etc/passwd"]}',
        b'{"text": "a", "deny": ["file:-"]}',
        b'{"text": "a", "deny": "a"}',
        b"\xff\xfe",
        b'{"text": "' + b"\xff" + b'"}',
        b"[" * 100_000,
    ],
)
def test_invalid_bodies_return_one_error_message(client, body):
    answer = client.post(PREDICT, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 413, 422), answer.text
    assert message(answer).endswith((".", "?"))


def test_body_of_another_type_is_rejected(client):
    for kind, found in (
        ("text/plain", "'text/plain'"),
        ("", "'unknown'"),
        ("application/json5", "'application/json5'"),
    ):
        answer = client.post(PREDICT, content=b'{"text": "a"}', headers={"content-type": kind})
        assert answer.status_code == 415
        assert message(answer) == f"Found Content-Type {found}, expected application/json."
    assert client.post(PREDICT, data={"text": "a"}).status_code == 415


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/none/predict",
        "/v1/models/..%2f..%2fetc/predict",
        "/v1/models/%2e%2e/predict",
        "/v1/models/m%00/predict",
        "/v1/models/" + "x" * 5000 + "/predict",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/../../etc/passwd",
        "/v2",
    ],
)
def test_unknown_paths_and_methods_are_rejected(client, path):
    for method in ("POST", "GET"):
        answer = client.request(method, path, json={"text": "a"})
        assert answer.status_code in (404, 405), (path, answer.text)
        assert answer.status_code == 404 or answer.headers["allow"]
        assert len(message(answer)) < 400


def test_limits_of_texts(settings):
    limits = ServiceLimits(body=20_000, text=1000, texts=3, k=10)
    with TestClient(create_app(replace(settings, limits=limits))) as client:
        assert client.post(PREDICT, json={"texts": ["a"] * 3}).status_code == 200
        for wrong, status, said in (
            ({"texts": ["a"] * 4}, 413, "4 texts"),
            ({"text": "a" * 1001}, 413, "1,001 characters"),
            ({"text": "a" * 30_000}, 413, "20,000 bytes"),
            ({"text": "a", "k": 11}, 422, "10 labels"),
        ):
            answer = client.post(PREDICT, json=wrong)
            assert answer.status_code == status
            assert said in message(answer)

        def parts():  # without a Content-Length
            yield from [b" " * 10_000] * 3

        answer = client.post(PREDICT, content=parts(), headers={"content-type": "application/json"})
        assert answer.status_code == 413


def test_token_is_required(settings):
    with TestClient(create_app(replace(settings, token="secret"))) as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}):
            answer = client.post(PREDICT, json={"text": "a"}, headers=headers)
            assert answer.status_code == 401
            assert "secret" not in message(answer)
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/metrics").status_code == 401
        assert client.get("/openapi.json").status_code == 401
        right = {"Authorization": "Bearer secret"}
        assert client.post(PREDICT, json={"text": "a"}, headers=right).status_code == 200
        assert client.get("/healthz").status_code == 200


def test_other_sites_need_cors(client, settings):
    asked = {"Origin": "https://other.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in client.options(PREDICT, headers=asked).headers
    with TestClient(create_app(replace(settings, origins=("https://other.example",), token="t"))) as opened:
        assert opened.options(PREDICT, headers=asked).headers["access-control-allow-origin"] == "https://other.example"
        refused = opened.post(PREDICT, json={"text": "a"}, headers={"Origin": "https://other.example"})
        assert (
            refused.headers["access-control-allow-origin"] == "https://other.example"
        )  # so that the page can read the error
        third = opened.options(PREDICT, headers=asked | {"Origin": "https://third.example"})
        assert "access-control-allow-origin" not in third.headers


def test_every_response_has_security_headers(client):
    answers = [client.get(path) for path in ("/", "/v1/models", "/nothing", "/static/page.js", "/metrics")]
    for answer in [*answers, client.post(PREDICT, content=b"{")]:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_internal_error_reveals_no_text(settings, capfd):
    def broken(texts, query):
        raise KeyError("the words of a text")

    with TestClient(create_app(settings)) as client:
        served = client.app.state.service.models.by_name["m"]
        served.batcher.answer = broken
        answer = client.post(PREDICT, json={"text": "a"})
        assert answer.status_code == 500
        assert "words" not in answer.text
    log = capfd.readouterr().err
    assert '"error": "KeyError"' in log
    assert "the words" not in log


def test_log_contains_no_text(client, capfd):
    secret = "Zyxwvut"
    client.post(PREDICT, json={"text": secret})
    client.post(PREDICT, json={"text": 5, secret: 1})
    client.post(PREDICT, content=secret.encode())
    client.post("/v1/models/m/explain", json={"text": secret, "label": secret})
    client.post("/v1/projects/m/suggest", data={"text": secret})
    client.get("/v1/models/m/labels", params={"search": secret})
    client.get(f"/{secret}", headers={"User-Agent": secret})
    client.get(f"/v1/models/{secret}/labels")
    sent(client, f"{secret}.csv", f"id,{secret}\n1,{secret}\n".encode())
    client.request(secret.upper(), "/")
    log = capfd.readouterr().err
    assert secret.lower() not in log.lower()
    lines = [json.loads(line) for line in log.splitlines()]
    assert len(lines) == 10
    first = lines[0]
    assert first["route"] == "/v1/models/{name}/predict"
    assert (first["model"], first["texts"], first["status"], first["method"]) == ("m", 1, 200, "POST")
    assert {"time", "ms", "client", "bytes_in", "bytes_out"} <= first.keys()


# Batches


def predict_all(batcher: Batcher, *queries):
    async def predict():
        batcher.start()
        requests = [batcher.predict(texts, query) for texts, query in queries]
        results = await asyncio.gather(*requests, return_exceptions=True)
        await batcher.stop()
        return results

    return asyncio.run(predict())


def test_equal_queries_are_answered_in_one_batch():
    batches = []

    def answer(texts, query):
        batches.append((list(texts), query))
        time.sleep(0.05)
        return [f"{text}{query.k}" for text in texts]

    one, two = PredictQuery(1), PredictQuery(2)
    found = predict_all(Batcher(answer, 100), (["a"], one), (["b", "c"], one), (["d"], two), (["e"], one))
    assert found == [["a1"], ["b1", "c1"], ["d2"], ["e1"]]
    assert len(batches) <= 3
    assert sum(len(texts) for texts, _ in batches) == 5


def test_one_bad_text_does_not_affect_others():
    def answer(texts, query):
        if "bad" in texts:
            raise RuntimeError
        return texts

    def raise_for_bad_text(texts, query):
        raise XmtcError("no such label")

    found = predict_all(
        Batcher(answer, 100), (["a"], PredictQuery()), (["bad"], PredictQuery()), (["b"], PredictQuery())
    )
    assert found[0] == ["a"]
    assert isinstance(found[1], RuntimeError)
    assert found[2] == ["b"]
    assert all(
        isinstance(each, XmtcError)
        for each in predict_all(Batcher(raise_for_bad_text, 100), *[(["a"], PredictQuery())] * 3)
    )


def test_requests_to_a_full_queue_are_rejected():
    def slow(texts, query):
        time.sleep(0.1)
        return texts

    batcher = Batcher(slow, 3)
    found = predict_all(batcher, *[(["a"], PredictQuery(k)) for k in range(1, 6)])
    refused = [each for each in found if isinstance(each, RequestError)]
    assert len(refused) == 2
    assert refused[0].status == 503
    assert refused[0].headers == {"Retry-After": "1"}
    assert batcher.n_waiting_texts == 0
    big = predict_all(
        Batcher(slow, 3), (["a"] * 10, PredictQuery())
    )  # a request above the limit is accepted when the queue is empty
    assert big == [["a"] * 10]


def test_timeout_returns_503(settings):
    limits = ServiceLimits(seconds=0.3)
    with TestClient(create_app(replace(settings, limits=limits))) as client:
        served = client.app.state.service.models.by_name["m"]
        answer_as_before, ended = served.batcher.answer, threading.Event()
        served.batcher.answer = lambda texts, query: [[] for _ in texts if ended.wait(60)]
        late = client.post(PREDICT, json={"text": "a"})
        assert late.status_code == 503
        assert late.headers["retry-after"] == "1"
        assert not ended.is_set()
        ended.set()
        served.batcher.answer = answer_as_before
        assert client.post(PREDICT, json={"text": TEXTS[0]}).status_code == 200


# Settings


def test_models_have_names(tmp_path):
    (tmp_path / "a=b").mkdir()
    given = [str(tmp_path / "one"), f"two={tmp_path}/one", str(tmp_path / "a=b")]
    with pytest.raises(XmtcError, match="cannot be part of a URL"):
        parse_models(given)
    assert [name for name, _ in parse_models(given[:2])] == ["one", "two"]
    with pytest.raises(XmtcError, match="Two models have the name one"):
        parse_models([given[0], given[0]])
    with pytest.raises(XmtcError, match="cannot be part"):
        parse_models([f"a/b={tmp_path}"])


def test_reports_belong_to_models(tmp_path):
    page = tmp_path / "r.html"
    page.write_text("x")
    models = (("a", "x"), ("b", "y"))
    assert parse_reports([f"b={page}"], models) == (("b", str(page)),)
    assert parse_reports([str(page)], models[:1]) == (("a", str(page)),)
    with pytest.raises(XmtcError, match="names no model"):
        parse_reports([str(page)], models)
    with pytest.raises(XmtcError, match="is not a file"):
        parse_reports(["a=none.html"], models)


@pytest.mark.parametrize(("package", "extra"), [("fastapi", "serve"), ("uvicorn", "serve"), ("mcp", "mcp")])
def test_command_names_the_missing_extra(monkeypatch, tmp_path, package, extra):
    for name in [name for name in sys.modules if name.startswith((package, "xmtc.server.startup", "xmtc.server.mcp"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"xmtc serve needs .*pip install 'xmtc\[{extra}\]'"):
        serve([str(tmp_path)], mcp=extra == "mcp")


def test_uploads_leave_no_files(client, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sent(client, "a.csv", b"id,text\n1,a\n")
    sent(client, "a.xlsx", io.BytesIO(b"no").read())
    assert list(tmp_path.iterdir()) == []


def test_invalid_json_is_reported_with_its_position(client):
    answer = client.post(PREDICT, content=b'{"text": a}', headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] == (
        "The request is not valid JSON: syntax error at character 9; expected an object with a text."
    )
