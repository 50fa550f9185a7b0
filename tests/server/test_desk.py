"""Review desk of the service, in the process: roles, decisions, queue, search, feedback and updates."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import closing

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from fastapi.testclient import TestClient
from serving import TEXTS, make_model

from xmtc import Tagger
from xmtc.review.estimates import RULE_VERSION
from xmtc.review.store import ADMINISTRATOR, ReviewStore
from xmtc.server.app import create_app
from xmtc.server.settings import ServiceLimits, Settings

SERVICE_TOKEN = "service-token-0123456789"
DESK = "/v1/desk/n"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "n", named=True, keep_training=True)


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "n")


class Visitor:
    """Client with the token of one person."""

    def __init__(self, client, token):
        self.client, self.headers = client, {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path, **query):
        return self.client.get(path, params=query, headers=self.headers)

    def post(self, path, body=None):
        return self.client.post(path, json=body, headers=self.headers)


@pytest.fixture
def desk(folder, tmp_path):
    """Yield visitors by name, and the store."""
    path = tmp_path / "desk.sqlite"
    with closing(ReviewStore(path)) as store:
        tokens = {name: store.add_person(name) for name in ("ann", "ben")}
        tokens["eva"] = store.add_person("eva", ADMINISTRATOR)
        settings = Settings(
            (("n", str(folder)),), hosts=("testserver",), token=SERVICE_TOKEN, desk=str(path), access_log=False
        )
        with TestClient(create_app(settings)) as client:
            visitors = {name: Visitor(client, token) for name, token in tokens.items()}
            yield visitors | {"service": Visitor(client, SERVICE_TOKEN), "nobody": Visitor(client, ""), "store": store}


def add_texts(desk, n=3):
    documents = [{"id": f"d{i}", "text": text} for i, text in enumerate(TEXTS[:n])]
    return desk["eva"].post(f"{DESK}/documents", {"documents": documents}).json()["documents"]


def make_decision(key="k", **lists):
    return {"key": key, "version": "v", "seconds": 2.5} | lists


ROUTES = [
    ("GET", "/v1/desk/me", "reviewer"),
    ("GET", f"{DESK}/summary", "reviewer"),
    ("GET", f"{DESK}/next", "reviewer"),
    ("GET", f"{DESK}/documents/1", "reviewer"),
    ("POST", f"{DESK}/documents/1/decision", "reviewer"),
    ("GET", f"{DESK}/search", "reviewer"),
    ("POST", "/v1/models/n/learn", "reviewer"),
    ("POST", "/v1/projects/n/learn", "reviewer"),
    ("POST", f"{DESK}/documents", ADMINISTRATOR),
    ("GET", f"{DESK}/export", ADMINISTRATOR),
    ("GET", f"{DESK}/agreement", ADMINISTRATOR),
    ("GET", f"{DESK}/label-studio", ADMINISTRATOR),
    ("POST", f"{DESK}/label-studio", ADMINISTRATOR),
    ("GET", f"{DESK}/updates", ADMINISTRATOR),
    ("POST", f"{DESK}/updates", ADMINISTRATOR),
    ("POST", f"{DESK}/updates/1/switch", ADMINISTRATOR),
    ("POST", f"{DESK}/updates/1/rollback", ADMINISTRATOR),
]
BODIES = {
    "decision": make_decision(),
    "documents": {"documents": []},
    "learn": {"documents": []},
    "projects": [],
    "label-studio": [],
}


def test_every_route_needs_its_role(desk):
    def send(visitor, method, path):
        if method == "GET":
            return visitor.get(path).status_code
        body = BODIES["projects"] if "projects" in path else BODIES.get(path.rpartition("/")[2])
        return visitor.post(path, body).status_code

    for method, path, role in ROUTES:
        assert send(desk["nobody"], method, path) == 401, path
        assert send(desk["service"], method, path) == 403, path
        if role == ADMINISTRATOR:
            assert send(desk["ann"], method, path) == 403, path
        elif not path.endswith("decision"):
            assert send(desk["ann"], method, path) != 403, path
    paths = desk["service"].get("/openapi.json").json()["paths"]
    listed = {
        (method.upper(), path) for path, verbs in paths.items() for method in verbs if "desk" in path or "learn" in path
    }
    assert len(listed) == len(ROUTES)


def test_tokens_of_people_and_of_the_service_open_the_other_routes(desk):
    for name, status in (("ann", 200), ("eva", 200), ("service", 200), ("nobody", 401)):
        assert desk[name].post("/v1/models/n/predict", {"text": TEXTS[0]}).status_code == status
        assert desk[name].get("/metrics").status_code == status
    assert desk["nobody"].get("/healthz").status_code == 200
    assert desk["nobody"].get("/desk").status_code == 200
    desk["store"].remove_person("ann")
    assert desk["ann"].get("/v1/desk/me").status_code == 401


def test_review_is_stored_once_and_shown_again(desk):
    add_texts(desk)
    shown = desk["ann"].get(f"{DESK}/next", order="document", language="fi").json()
    number, suggestions = shown["document"]["number"], shown["suggestions"]
    assert shown["document"]["text"] == TEXTS[0]
    assert suggestions[0]["name"].startswith("nimi")
    assert suggestions[0]["uri"].startswith("http://x.org/")
    lists = {"accepted": [suggestions[0]["label"]], "rejected": [suggestions[1]["label"]], "proposed": ["new"]}
    lists["shown"] = [{"label": tag["label"], "score": tag["score"]} for tag in suggestions]
    path = f"{DESK}/documents/{number}/decision"
    assert desk["ann"].post(path, make_decision(**lists)).json() == {"stored": True}
    assert desk["ann"].post(path, make_decision(**lists)).json() == {"stored": False}
    assert desk["ann"].post(path, make_decision(accepted=["x"])).status_code == 422
    again = desk["ann"].get(f"{DESK}/documents/{number}").json()
    assert again["decisions"][0]["accepted"] == lists["accepted"]
    assert again["decisions"][0]["proposed"] == ["new"]
    assert desk["ben"].get(f"{DESK}/documents/{number}").json()["decisions"] == []
    assert desk["eva"].get(f"{DESK}/documents/{number}").json()["decisions"][0]["person"] == "ann"
    summary = desk["ann"].get(f"{DESK}/summary").json()
    assert (summary["documents"], summary["reviewed"], summary["own"]) == (3, 1, 1)
    assert summary["recent"] == [number]
    second = desk["ann"].get(f"{DESK}/next", order="document").json()["document"]["number"]
    assert desk["ben"].get(f"{DESK}/next", order="document").json()["document"]["number"] not in (number, second)


def test_queue_is_ordered_by_estimates(desk):
    add_texts(desk, 20)
    for _ in range(200):
        if not desk["store"].list_stale("n", f"{desk_version(desk)}/{RULE_VERSION}", 1):
            break
        time.sleep(0.05)
        desk["ann"].get(f"{DESK}/summary")
    rows = desk["store"].connection.execute("SELECT document, uncertainty, disagreement FROM estimates").fetchall()
    assert len(rows) == 20
    best = max(rows, key=lambda row: row["uncertainty"])
    assert desk["ann"].get(f"{DESK}/next").json()["document"]["number"] == best["document"]
    assert {row["disagreement"] for row in rows} == {None}  # a single model


def desk_version(desk):
    return desk["service"].get("/v1/models").json()["models"][0]["version"]


def test_wrong_requests_are_refused(desk):
    add_texts(desk)
    assert desk["ann"].get(f"{DESK}/next", order="1; DROP TABLE people").status_code == 422
    assert desk["ann"].get(f"{DESK}/search", search="a", allow="file:/etc/passwd").status_code == 422
    assert desk["ann"].get(f"{DESK}/documents/99").status_code == 422
    path = f"{DESK}/documents/1/decision"
    assert desk["ann"].post(path, make_decision(accepted=["x" * 1001])).status_code == 422
    assert desk["ann"].post(path, make_decision(accepted=["x"] * 1001)).status_code == 422
    assert desk["ann"].post(path, make_decision(seconds=-1)).status_code == 422
    foreign = {**desk["ann"].headers, "Origin": "http://evil.example"}
    assert desk["ann"].client.post(path, json=make_decision(), headers=foreign).status_code == 403
    assert desk["store"].count_decisions() == 0


def test_numbers_beyond_the_database_are_refused(desk):
    add_texts(desk, 1)
    number = 2**63
    assert desk["ann"].get(f"{DESK}/documents/{number}").status_code == 422
    assert desk["ann"].post(f"{DESK}/documents/{number}/decision", make_decision()).status_code == 422
    task = {"data": {"text": "a text"}, "annotations": [{"lead_time": 10**400, "result": []}]}
    assert desk["eva"].post(f"{DESK}/label-studio", [task]).json() == {"annotations": 1, "stored": 1}


def test_limits_of_the_service_hold_for_label_studio(folder, tmp_path):
    path = tmp_path / "small.sqlite"
    with closing(ReviewStore(path)) as store:
        token = store.add_person("eva", ADMINISTRATOR)
        store.add_documents("n", [("", f"text {i}") for i in range(5)])
    limits = ServiceLimits(texts=2)
    settings = Settings((("n", str(folder)),), hosts=("testserver",), desk=str(path), limits=limits, access_log=False)
    with TestClient(create_app(settings)) as client:
        visitor = Visitor(client, token)
        assert len(visitor.get(f"{DESK}/label-studio").json()) == 2
        task = {"data": {"text": "a", "document_id": "x" * 1001}, "annotations": [{"result": []}]}
        assert visitor.post(f"{DESK}/label-studio", [task]).status_code == 422


def test_reviewers_cannot_replace_the_texts_of_others(desk):
    (queued,) = add_texts(desk, 1)
    body = {"documents": [{"id": "d0", "text": "another text", "labels": ["a"]}]}
    answer = desk["ann"].post("/v1/models/n/learn", body)
    assert answer.status_code == 422
    assert "only an administrator" in answer.json()["error"]["message"]
    own = {"documents": [{"id": "own", "text": "first", "labels": ["a"]}]}
    for text, status in (("first", 200), ("second", 200)):
        own["documents"][0]["text"] = text
        assert desk["ann"].post("/v1/models/n/learn", own).status_code == status
    own["documents"][0]["text"] = "third"
    assert desk["ben"].post("/v1/models/n/learn", own).status_code == 422
    assert desk["store"].get_document("n", queued).text == TEXTS[0]
    assert desk["eva"].post("/v1/models/n/learn", body).status_code == 200
    assert desk["store"].get_document("n", queued).text == "another text"


def test_search_finds_concepts_in_all_languages(desk):
    by_name = desk["ann"].get(f"{DESK}/search", search="nimi 3", language="en").json()["labels"][0]
    assert (by_name["name"], by_name["others"], by_name["is_known"]) == ("name 3", ["nimi 3"], True)
    assert desk["ann"].get(f"{DESK}/search", search="other 3").json()["labels"][0]["uri"] == by_name["uri"]
    narrow = desk["ann"].get(f"{DESK}/search", search="name", allow=by_name["uri"]).json()["labels"]
    assert [label["label"] for label in narrow] == [by_name["label"]]


def test_agreement_conflicts_and_export(desk):
    number = add_texts(desk, 1)[0]
    labels = [tag["label"] for tag in desk["ann"].get(f"{DESK}/documents/{number}").json()["suggestions"]]
    path = f"{DESK}/documents/{number}/decision"
    desk["ann"].post(path, make_decision(accepted=labels[:1], rejected=labels[1:2]))
    desk["ben"].post(path, make_decision(accepted=labels[:2]))
    found = desk["eva"].get(f"{DESK}/agreement").json()
    assert found["pairs"] == [{"people": ["ann", "ben"], "documents": 1, "consistency": 0.6667}]
    assert found["conflicts"] == [{"document": number, "labels": [{"label": labels[1], "yes": ["ben"], "no": ["ann"]}]}]
    desk["eva"].post(path, make_decision(accepted=labels[:2]))
    assert desk["eva"].get(f"{DESK}/agreement").json()["conflicts"] == []
    line = json.loads(desk["eva"].get(f"{DESK}/export").text)
    assert line == {"id": "d0", "text": TEXTS[0], "labels": labels[:2], "rejected": []}


def test_learn_of_both_interfaces(desk):
    body = {"documents": [{"text": "some text", "id": "x", "labels": ["a"], "rejected": ["b"]}]}
    assert desk["ann"].post("/v1/models/n/learn", body).json() == {"documents": 1, "stored": 1}
    assert desk["ann"].post("/v1/models/n/learn", body).json() == {"documents": 1, "stored": 0}
    uri = desk["ann"].get(f"{DESK}/search", search="name 3").json()["labels"][0]["uri"]
    annif = [{"text": "an annif text", "subjects": [{"uri": uri, "label": "name 3"}]}]
    for _ in range(2):
        answer = desk["ben"].post("/v1/projects/n/learn", annif)
        assert (answer.status_code, answer.content) == (204, b"")
    assert (
        desk["ben"].post("/v1/projects/n/learn", [{"text": "t"}]).headers["content-type"] == "application/problem+json"
    )
    assert [stored.final for stored in desk["store"].list_decisions("n")] == [["a"], ["label-03"]]


def test_label_studio_tasks_come_back_as_decisions(desk):
    add_texts(desk, 2)
    tasks = desk["eva"].get(f"{DESK}/label-studio", k=2).json()
    assert [task["data"]["document_id"] for task in tasks] == ["d0", "d1"]
    first, second = tasks[0]["predictions"][0]["result"][0]["value"]["choices"]
    result = {"from_name": "subjects", "to_name": "text", "type": "choices", "value": {"choices": [second]}}
    taxonomy = {"type": "taxonomy", "value": {"taxonomy": [["top", "leaf"]]}}
    annotations = [
        {"id": 5, "completed_by": {"email": "ann@example.org"}, "lead_time": 3.2, "result": [result, taxonomy]},
        {"id": 6, "completed_by": 7, "result": [], "was_cancelled": True},
    ]
    exported = [{**tasks[0], "id": 1, "annotations": annotations}]
    for n_stored in (1, 0):
        answer = desk["eva"].post(f"{DESK}/label-studio", exported).json()
        assert answer == {"annotations": 1, "stored": n_stored}
    (stored,) = desk["store"].list_decisions("n")
    assert (stored.person, stored.decision.seconds) == ("label-studio:ann@example.org", 3.2)
    assert stored.decision[1:4] == ([second], ["leaf"], [first])
    other = {**exported[0], "annotations": [{**annotations[0], "result": []}]}  # the key of another decision
    new = {"data": {"text": "new"}, "annotations": [{"result": []}]}
    assert desk["eva"].post(f"{DESK}/label-studio", [new, other]).status_code == 422
    assert len(desk["store"].list_decisions("n")) == 1  # all or none
    for wrong in ([{}], [{"data": {"text": 5}, "annotations": []}], [5], {"data": {}}):
        assert desk["eva"].post(f"{DESK}/label-studio", wrong).status_code == 422


def wait_for_update(desk):
    for _ in range(600):
        update = desk["eva"].get(f"{DESK}/updates").json()["updates"][0]
        if update["state"] != "running":
            return update
        assert desk["ann"].post("/v1/models/n/predict", {"text": TEXTS[0]}).status_code == 200
        time.sleep(0.1)
    raise AssertionError("the update did not end")


def test_update_is_served_and_rolled_back(desk, folder):
    """The update learns a new label, the held-out documents are compared, and the switch is undone."""
    texts = [{"text": f"{text} brandnew{i}x freshterm", "labels": ["unseen"]} for i, text in enumerate(TEXTS)] + [
        {"text": f"{text} second", "labels": ["unseen"]} for text in TEXTS
    ]
    desk["ann"].post("/v1/models/n/learn", {"documents": texts})
    before = desk_version(desk)
    number = desk["eva"].post(f"{DESK}/updates").json()["number"]
    assert desk["eva"].post(f"{DESK}/updates").status_code == 422
    update = wait_for_update(desk)
    assert (update["state"], update["message"]) == ("ready", "")
    report = update["report"]
    assert report["new_labels"] == ["unseen"]
    assert report["n_learnt"] + report["n_held_out"] == len(texts)
    assert report["n_held_out"] >= 10
    assert report["before"]["P@1"] == 0 < report["after"]["P@1"]
    assert desk_version(desk) == before

    switched = desk["eva"].post(f"{DESK}/updates/{number}/switch").json()["version"]
    assert desk_version(desk) == switched != before
    tags = desk["ann"].post("/v1/models/n/predict", {"text": "freshterm brandnew1x"}).json()["results"][0]["tags"]
    assert tags[0]["label"] == "unseen"
    assert "unseen" in Tagger.load(folder).labels.words()

    assert desk["eva"].post(f"{DESK}/updates").status_code == 200  # nothing new: refused by the process
    assert "No decision" in wait_for_update(desk)["message"]
    rolled_back = desk["eva"].post(f"{DESK}/updates/{number}/rollback").json()["version"]
    assert rolled_back == before
    assert "unseen" not in Tagger.load(folder).labels.words()
    assert desk["eva"].post(f"{DESK}/updates/{number}/rollback").status_code == 422
    assert desk["eva"].post(f"{DESK}/updates/{number}/switch").json()["version"] == switched


def test_model_that_was_replaced_meanwhile_is_not_switched(desk, folder, original):
    texts = [{"text": text, "labels": ["unseen"]} for text in TEXTS]
    desk["ann"].post("/v1/models/n/learn", {"documents": texts})
    number = desk["eva"].post(f"{DESK}/updates").json()["number"]
    assert wait_for_update(desk)["state"] == "ready"
    shutil.rmtree(folder)
    shutil.copytree(original, folder, copy_function=shutil.copyfile)
    refused = desk["eva"].post(f"{DESK}/updates/{number}/switch")
    assert refused.status_code == 422
    assert "replaced" in refused.json()["error"]["message"]


def test_service_without_a_desk_has_no_desk_routes(original):
    with TestClient(create_app(Settings((("n", str(original)),), hosts=("testserver",)))) as client:
        assert client.get("/v1/desk/me").status_code == 404
        assert client.get("/desk").status_code == 404
        assert client.post("/v1/projects/n/learn", json=[]).status_code == 403
