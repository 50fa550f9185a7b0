"""Store of the review desk: people, queues, decisions, export."""

from __future__ import annotations

import json
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing

import pytest
from commands import invoke

from xmtc import Document, Tagger, XmtcError, train
from xmtc.maintenance.update import update_tagger
from xmtc.review.agreement import (
    collect_feedback,
    compute_consistency,
    export_record,
    list_conflicts,
    measure_agreement,
    resolve_decisions,
)
from xmtc.review.store import ADMINISTRATOR, ORDERS, Decision, ReviewStore

MODEL = "m"


@pytest.fixture
def store(tmp_path):
    with closing(ReviewStore(tmp_path / "desk.sqlite")) as store:
        yield store


@pytest.fixture
def people(store):
    roles = (("ann", "reviewer"), ("ben", "reviewer"), ("eva", ADMINISTRATOR))
    return [store.find_person(store.add_person(name, role)) for name, role in roles]


def add_texts(store, n=5):
    return store.add_documents(MODEL, [(f"d{i}", f"text {i}") for i in range(n)])


def test_tokens_are_random_hashed_and_revocable(store):
    first, second = store.add_person("ann"), store.add_person("ben", ADMINISTRATOR)
    assert len(first) >= 43
    assert first != second
    assert store.find_person(first).name == "ann"
    assert store.find_person(second).is_administrator
    assert store.find_person("") is store.find_person("wrong") is None
    assert first.encode() not in b"".join(path.read_bytes() for path in store.path.parent.iterdir())
    renewed = store.add_person("ann")
    assert store.find_person(first) is None
    store.remove_person("ann")
    assert store.find_person(renewed) is None
    assert [person["is_active"] for person in store.list_people()] == [False, True]


def test_file_is_private_and_other_databases_are_refused(store, tmp_path):
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as connection:
        connection.execute("CREATE TABLE t (a)")
    (tmp_path / "text.sqlite").write_text("no database " * 100)
    for name in ("other.sqlite", "text.sqlite"):
        with pytest.raises(XmtcError, match="desk"):
            ReviewStore(tmp_path / name)
    with pytest.raises(XmtcError, match="does not exist"):
        ReviewStore(tmp_path / "missing.sqlite", must_exist=True)


@pytest.mark.parametrize(
    ("name", "role"), [("", "reviewer"), ("a\nb", "reviewer"), ("x" * 101, "reviewer"), ("a", "boss")]
)
def test_wrong_people_are_refused(store, name, role):
    with pytest.raises(XmtcError, match="expected"):
        store.add_person(name, role)


@pytest.mark.parametrize("order", ORDERS)
def test_next_document_is_found_by_an_index(store, people, order):
    numbers = add_texts(store, 3)
    store.save_estimates("v", [(number, 0.5, 0.5, 0.5) for number in numbers])
    plans = []
    store.connection.set_trace_callback(plans.append)
    assert store.find_next(MODEL, people[0], order) is not None
    store.connection.set_trace_callback(None)
    queries = [plan for plan in plans if plan.startswith("SELECT")]
    steps = [row["detail"] for query in queries for row in store.connection.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert steps
    assert not any("TEMP B-TREE FOR ORDER BY" in step for step in steps)
    first_lock = next(number for number, plan in enumerate(plans) if plan.startswith("BEGIN"))
    assert first_lock > 0  # the search comes before the lock


def test_a_document_that_somebody_opens_in_between_is_not_given_twice(store, people, monkeypatch):
    first, second = add_texts(store, 2)
    select, is_first = store._select_next, iter([True])

    def select_and_lose(order, values):
        number = select(order, values)
        if next(is_first, False):
            assert store.find_next(MODEL, people[1], "document") == first
        return number

    monkeypatch.setattr(store, "_select_next", select_and_lose)
    assert store.find_next(MODEL, people[0], "document") == second


def test_files_of_earlier_versions_get_the_indexes(tmp_path):
    path = tmp_path / "old.sqlite"
    store = ReviewStore(path)
    for name in ("documents_random", "estimates_uncertainty", "estimates_disagreement", "estimates_rare"):
        store.connection.execute(f"DROP INDEX {name}")
    store.close()
    store = ReviewStore(path)
    found = store.connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
    store.close()
    assert {"documents_random", "estimates_uncertainty"} <= {row["name"] for row in found}


def test_retried_decision_is_stored_once(store, people):
    (number,) = add_texts(store, 1)
    decision = Decision([("a", 0.5)], ["a"], ["b"], [], ["new subject"], "v1", 3.5)
    assert store.record(MODEL, number, people[0], "k1", decision)
    assert not store.record(MODEL, number, people[0], "k1", decision)
    assert store.record(MODEL, number, people[1], "k1", decision)  # keys are those of a person
    assert store.count_decisions() == 2
    with pytest.raises(XmtcError, match="another decision"):
        store.record(MODEL, number, people[0], "k1", Decision(accepted=["c"]))
    stored = store.list_decisions(MODEL)[0]
    assert stored.decision == decision
    assert stored.final == ["a", "b"]
    with pytest.raises(XmtcError, match="no document"):
        store.record("other", number, people[0], "k2", decision)


def test_last_decision_of_a_person_counts(store, people):
    (number,) = add_texts(store, 1)
    for key in ("a", "b"):
        store.record(MODEL, number, people[0], key, Decision(accepted=[key]))
    assert [stored.final for stored in store.list_decisions(MODEL)] == [["b"]]


def test_queue_orders(store, people):
    numbers = add_texts(store, 4)
    values = [(0.1, 0.9, 0.2), (0.9, 0.1, 0.1), (0.5, None, 0.9), (0.2, 0.3, 0.4)]
    store.save_estimates("v", [(number, *value) for number, value in zip(numbers, values, strict=True)])
    orders = {"document": 0, "uncertainty": 1, "disagreement": 0, "rare": 2}
    for order, expected in orders.items():
        store.connection.execute("DELETE FROM openings")
        assert store.find_next(MODEL, people[0], order) == numbers[expected], order
    store.connection.execute("DELETE FROM openings")
    shuffled = [store.find_next(MODEL, people[0], "random") for _ in numbers]
    assert sorted(shuffled) == numbers
    with pytest.raises(XmtcError, match="expected one of"):
        store.find_next(MODEL, people[0], "number; DROP TABLE people")


def test_two_reviewers_get_different_documents(store, people):
    first, second, *_ = add_texts(store, 3)
    assert store.find_next(MODEL, people[0], "document") == first
    assert store.find_next(MODEL, people[1], "document") == second
    store.record(MODEL, first, people[0], "k", Decision(accepted=["a"]))
    assert store.find_next(MODEL, people[1], "document") != first
    assert store.find_next(MODEL, people[1], "document", max_reviewers=2) == first


def test_skipped_documents_come_last(store, people):
    numbers = add_texts(store, 3)
    assert [store.find_next(MODEL, people[0], "document") for _ in range(4)] == [*numbers, numbers[0]]


def test_changed_text_outdates_its_decisions(store, people):
    (number,) = add_texts(store, 1)
    store.record(MODEL, number, people[0], "k", Decision(accepted=["a"]))
    assert len(list(collect_feedback(store.list_documents(MODEL), store.list_decisions(MODEL)))) == 1
    assert store.add_documents(MODEL, [("d0", "another text")]) == [number]
    assert list(collect_feedback(store.list_documents(MODEL), store.list_decisions(MODEL))) == []


def test_texts_can_be_deleted(store, people):
    first, second = store.add_documents(MODEL, [("a", "a secret text of a person"), ("b", "another text")])
    store.record(MODEL, first, people[0], "k", Decision(accepted=["a"]))
    assert store.forget_texts(MODEL) == 1
    assert store.get_document(MODEL, first).text is None
    assert store.get_document(MODEL, second).text == "another text"
    assert store.count_decisions() == 1
    assert b"secret text" not in b"".join(path.read_bytes() for path in store.path.parent.iterdir())


def test_votes_decide_and_administrators_overrule(store, people):
    (number,) = add_texts(store, 1)
    store.record(MODEL, number, people[0], "1", Decision(accepted=["a", "b"], rejected=["c"], proposed=["p"]))
    assert resolve_decisions(store.list_decisions(MODEL)) == (["a", "b"], ["c"], [], ["p"])
    store.record(MODEL, number, people[1], "1", Decision(accepted=["a"], rejected=["b"], added=["d"]))
    assert resolve_decisions(store.list_decisions(MODEL)) == (["a"], ["c"], ["b", "d"], ["p"])
    (conflict,) = list_conflicts(store.list_decisions(MODEL))
    assert conflict["labels"] == [
        {"label": "b", "yes": ["ann"], "no": ["ben"]},
        {"label": "d", "yes": ["ben"], "no": ["ann"]},
    ]
    (pair,) = measure_agreement(store.list_decisions(MODEL))
    assert pair == {"people": ["ann", "ben"], "documents": 1, "consistency": 0.5}
    store.record(MODEL, number, people[2], "1", Decision(accepted=["d"], rejected=["a"]))
    assert resolve_decisions(store.list_decisions(MODEL)) == (["d"], ["a"], [], [])
    assert list_conflicts(store.list_decisions(MODEL)) == []


def test_consistency_by_hand():
    assert compute_consistency(["a", "b", "c"], ["b", "c", "d", "e"]) == pytest.approx(4 / 7)
    assert compute_consistency([], []) == 1


def test_export_is_read_by_update(store, people, tmp_path):
    from commands import xmtc

    train = [{"id": f"t{i}", "text": f"word{i % 4} common text", "labels": [f"l{i % 4}"]} for i in range(80)]
    write_lines(tmp_path / "train.jsonl", train)
    assert xmtc("train", "train.jsonl", "-o", "model", "-q", cwd=tmp_path).returncode == 0
    write_lines(tmp_path / "texts.jsonl", [{"id": "n1", "text": "brandnew word1"}, {"text": "brandnew word2"}])
    assert xmtc("desk", "import", store.path, "texts.jsonl", cwd=tmp_path).returncode == 0
    first, second = store.list_documents("model")
    assert (first.id, second.has_generated_id) == ("n1", True)
    store.record("model", first.number, people[0], "1", Decision(accepted=["l1"], added=["unseen"], rejected=["l2"]))
    store.record("model", second.number, people[0], "2", Decision(added=["unseen"]))
    done = xmtc("desk", "export", store.path, "-o", "feedback.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "feedback.jsonl").read_text().splitlines()]
    assert lines == [
        {"id": "n1", "text": "brandnew word1", "labels": ["l1", "unseen"], "rejected": ["l2"]},
        {"text": "brandnew word2", "labels": ["unseen"], "rejected": []},
    ]
    done = xmtc("update", "model", "--feedback", "feedback.jsonl", "-o", "updated", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    updated = Tagger.load(tmp_path / "updated")
    assert updated.predict_labels(["brandnew"], 1)[0][0].label == "unseen"
    items = list(collect_feedback(store.list_documents("model"), store.list_decisions("model")))
    direct = update_tagger(Tagger.load(tmp_path / "model"), feedback=[feedback for _, feedback, _ in items])
    assert direct.tagger.about["data"] == updated.about["data"]
    assert [export_record(*item) for item in items] == lines


def test_commands_spare_models_and_name_the_command(store, tmp_path):
    done = invoke("desk", "people", "missing.sqlite", cwd=tmp_path)
    assert b"`xmtc desk add missing.sqlite NAME`" in done.stderr
    train([Document("1", "pears", ["fruit"]), Document("2", "a moon", ["space"])], min_df=1).save(tmp_path / "model")
    for target, words in (("model/about.json", b"the folder of a model"), ("nowhere/x.jsonl", b"cannot be written")):
        done = invoke("desk", "export", store.path, "-o", target, cwd=tmp_path)
        assert words in done.stderr


def test_texts_are_read_before_the_desk_is_locked(store, tmp_path, monkeypatch):
    sizes, add = [], ReviewStore.add_documents

    def count_and_add(self, model, documents):
        sizes.append(len(documents))  # a generator has no length
        return add(self, model, documents)

    monkeypatch.setattr("xmtc.cli.desk.TEXTS_PER_TRANSACTION", 2)
    monkeypatch.setattr(ReviewStore, "add_documents", count_and_add)
    write_lines(tmp_path / "texts.jsonl", [{"text": f"text {i}"} for i in range(5)])
    assert invoke("desk", "import", store.path, "texts.jsonl", cwd=tmp_path).returncode == 0
    assert sizes == [2, 2, 1]


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_threads_share_a_store(store, people):
    numbers = add_texts(store, 40)
    failures = []

    def decide(person, part):
        try:
            for number in part:
                store.record(MODEL, number, person, f"k{number}", Decision(accepted=["a"]))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=decide, args=(people[i % 2], numbers[i::4])) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.count_decisions() == 40


def test_halves_of_surrogate_pairs_are_replaced(store, people):
    (number,) = store.add_documents(MODEL, [("\ud800", "a \udc00 text")])
    store.record(MODEL, number, people[0], "\ud800", Decision(accepted=["\ud800"]))
    assert store.list_decisions(MODEL)[0].final == ["\ud800"]


WRITER = """
import sys
from xmtc.review.store import Decision, ReviewStore
store = ReviewStore(sys.argv[1], must_exist=True)
person = store.find_person(sys.argv[2])
number = 0
while True:
    number += 1
    store.record("m", 1, person, f"k{number}", Decision(accepted=[str(number)]))
    print(number, flush=True)
"""


def test_acknowledged_decisions_survive_a_kill(store):
    add_texts(store, 1)
    token = store.add_person("ann")
    acknowledged = 0
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, store.path, token]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(acknowledged + 20):
                acknowledged = max(acknowledged, int(process.stdout.readline()))
            process.kill()
            acknowledged = max([acknowledged, *(int(line) for line in process.stdout.read().split("\n")[:-1] if line)])
    assert acknowledged <= store.count_decisions() <= acknowledged + 1
    assert store.connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


READER = "import sys; from xmtc.review.store import ReviewStore; ReviewStore(sys.argv[1]).close()"


def test_stores_of_one_file_in_a_process_keep_their_locks(store):
    """Else another process that closes the file deletes the log of writes, because it believes to be the last one."""
    add_texts(store, 1)
    ReviewStore(store.path).close()
    subprocess.run([sys.executable, "-c", READER, store.path], check=True)
    assert store.path.with_name(f"{store.path.name}-wal").exists()
    add_texts(store, 5)
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM documents").fetchone()[0] == 5


def test_killed_update_is_interrupted_and_does_not_block_the_next(store):
    first = store.start_update(MODEL, "eva")
    with pytest.raises(XmtcError, match="is running"):
        store.start_update(MODEL, "eva")
    store.connection.execute("UPDATE updates SET heartbeat = heartbeat - 60")
    assert store.list_updates(MODEL)[0]["state"] == "interrupted"
    second = store.start_update(MODEL, "eva")
    assert [(update["number"], update["state"]) for update in store.list_updates(MODEL)] == [
        (second, "running"),
        (first, "interrupted"),
    ]


def test_updates_learn_only_new_decisions(store, people):
    """After a rollback, the decisions of the update that was rolled back are learnt again."""
    first = store.start_update(MODEL, "eva")
    numbers = add_texts(store, 2)
    store.save_learnt(first, [(numbers[0], 5)])
    store.change_update(first, "served")
    second = store.start_update(MODEL, "eva")
    store.save_learnt(second, [(numbers[0], 7), (numbers[1], 6)])
    store.change_update(second, "served")
    assert store.find_served_update(MODEL) == second
    assert store.list_learnt(second) == {numbers[0]: 7, numbers[1]: 6}
    store.change_update(second, "ready")
    assert store.find_served_update(MODEL) == first
    assert store.list_learnt(first) == {numbers[0]: 5}
    assert store.list_learnt(None) == {}
