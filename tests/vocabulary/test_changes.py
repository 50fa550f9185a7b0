"""Tests of changes between two versions of a vocabulary, and of the labels that follow them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import invoke

from xmtc import Classifier, Document, Run, Tagger, Vocabulary, XmtcError
from xmtc.core.predictions import Predictions
from xmtc.maintenance.label_migration import migrate_tagger
from xmtc.methods.ensemble.merged_labels import MergedLabelModel
from xmtc.scores.tagger_thresholds import tune_tagger_thresholds
from xmtc.vocabulary import import_files
from xmtc.vocabulary.changes import LabelMigration, compare_vocabularies, read_mapping

ONE = Run(threads=1)
SKOS = "http://www.w3.org/2004/02/skos/core#"
HEADER = "uri\tnotation\tlabel_en\taltLabel\tbroader\tdeprecated\treplaced_by\texactMatch\n"
OLD = """
x:cat\tC\tcat\t\tx:animal\t\t\t
x:tabby\tT\ttabby\t\tx:animal\t\t\t
x:dog\tD\tdog\t\tx:animal\t\t\t
x:wolf\tW\twolf\t\tx:animal\t\t\t
x:bank\tB\tbank\t\t\t\t\t
x:telex\tX\ttelex\t\t\t\t\t
x:gone\tG\tgone\t\t\t\t\t
x:animal\tA\tanimal\t\t\t\t\t
"""
NEW = """
x:cat\tC\tcat\t\tx:pet\t\t\t
x:tabby\t\ttabby\t\t\ttrue\tx:cat\t
x:canine\tK\thound\tdog\tx:animal\t\t\tx:dog
x:wolf\tW\tgrey wolf\twolf\tx:animal\t\t\t
x:bank\t\tbank\t\t\ttrue\tx:shore|x:finance\t
x:shore\tS\tshore\t\t\t\t\t
x:finance\tF\tfinance\t\t\t\t\t
x:telex\t\ttelex\t\t\ttrue\t\t
x:animal\tA\tanimal\t\t\t\t\t
x:pet\tP\tpet\t\t\t\t\t
"""


def write_table(path, rows: str) -> str:
    path.write_text(HEADER + rows.lstrip())
    return str(path)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("versions")
    return write_table(folder / "old.tsv", OLD), write_table(folder / "new.tsv", NEW)


@pytest.fixture(scope="module")
def versions(paths):
    return tuple(import_files([path]) for path in paths)


def test_changes_of_each_kind_are_found(versions):
    changes = {(change.change, change.old): change for change in compare_vocabularies(*versions)}
    assert changes.keys() == {
        ("moved", "x:cat"),
        ("merged", "x:tabby"),
        ("replaced", "x:dog"),
        ("renamed", "x:wolf"),
        ("split", "x:bank"),
        ("deprecated", "x:telex"),
        ("removed", "x:gone"),
        ("added", ""),
    }
    assert changes["merged", "x:tabby"].new == ("x:cat",)
    assert changes["replaced", "x:dog"].cells()[2:5] == ["x:canine", "dog", "hound"]
    assert changes["renamed", "x:wolf"].new_name == "grey wolf"
    assert set(changes["split", "x:bank"].candidates) == {"x:shore", "x:finance"}
    assert changes["split", "x:bank"].new == ()


def test_a_vocabulary_has_no_changes_against_itself_and_another_one_is_refused(versions, tmp_path):
    assert compare_vocabularies(versions[0], versions[0]) == []
    other = import_files([write_table(tmp_path / "other.tsv", "y:sun\t1\tsun\t\t\t\t\t\n")])
    with pytest.raises(XmtcError, match=r"None of the 8 labels or concepts has a successor.*y:sun"):
        compare_vocabularies(versions[0], other)
    with pytest.raises(XmtcError, match="None of the 2 labels"):
        LabelMigration(other).migrate(["x:cat", "x:dog"])


@pytest.mark.parametrize("has_old", [True, False])
def test_exact_matches_and_replaced_uris_of_ntriples_are_followed(tmp_path, has_old):
    concept = "<http://x/{0}> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <" + SKOS + "Concept> .\n"
    old, new = tmp_path / "old.nt", tmp_path / "new.nt"
    old.write_text("".join(map(concept.format, ("a", "b", "c"))) + f"<http://x/c> <{SKOS}exactMatch> <http://x/3> .\n")
    triples = f"<http://x/1> <{SKOS}exactMatch> <http://x/a> .\n"
    triples += "<http://x/b> <http://purl.org/dc/terms/isReplacedBy> <http://x/2> .\n"  # b is not a concept any more
    new.write_text("".join(map(concept.format, "123")) + triples)
    former, current = import_files([str(old)]), import_files([str(new)])
    labels = [f"http://x/{name}" for name in "abc"]
    changes = LabelMigration(current, former if has_old else None).migrate(labels)
    expected = [("http://x/1",), ("http://x/2",), ("http://x/3",) if has_old else ("http://x/c",)]
    assert [change.new for change in changes] == expected
    current.save(tmp_path / "saved")  # aliases are stored
    assert Vocabulary.load(tmp_path / "saved").aliases.find("http://x/a") == [0]


@pytest.mark.parametrize(
    ("label", "new"),
    [
        ("x:dog", ("x:canine",)),
        ("<x:dog>", ("<x:canine>",)),
        ("dog", ("hound",)),
        ("D", ("K",)),
        ("wolf", ("grey wolf",)),
        ("x:wolf", ("x:wolf",)),
        ("tabby", ("cat",)),
        ("x:telex", ()),
        ("x:gone", ()),
        ("bank", ("bank",)),
        ("no such label", ("no such label",)),
    ],
)
def test_a_label_keeps_its_form(versions, label, new):
    old, current = versions
    assert LabelMigration(current, old).migrate_label(label).new == new


def test_labels_are_migrated_without_the_old_vocabulary(versions):
    changes = LabelMigration(versions[1]).migrate(["x:tabby", "x:cat", "x:gone", "x:dog"])
    assert [(change.change, change.new) for change in changes] == [
        ("merged", ("x:cat",)),
        ("unchanged", ("x:cat",)),
        ("unknown", ("x:gone",)),
        ("replaced", ("x:canine",)),
    ]


@pytest.mark.parametrize("extension", ["tsv", "csv"])
def test_an_edited_mapping_decides(paths, versions, tmp_path, extension):
    path = tmp_path / f"map.{extension}"
    done = invoke("vocab", "diff", *paths, "-o", path)
    assert b"1 split" in done.stderr
    mapping = read_mapping(str(path))
    assert "x:bank" not in mapping  # undecided
    assert mapping["x:telex"] == ()
    delimiter = {"tsv": "\t", "csv": ","}[extension]
    path.write_text(f"old{delimiter}new\nx:bank{delimiter}x:shore\nx:telex{delimiter}x:telex\nx:dog{delimiter}\n")
    migration = LabelMigration(versions[1], versions[0], read_mapping(str(path)))
    assert [migration.migrate_label(label).new for label in ("x:bank", "B", "x:telex", "dog", "x:tabby")] == [
        ("x:shore",),
        ("S",),
        ("x:telex",),
        (),
        ("x:cat",),
    ]
    path.write_text("a,b\n1,2\n")
    with pytest.raises(XmtcError, match="expected `old` and `new`"):
        read_mapping(str(path))


WORDS = {"x:cat": "purrs meows", "x:tabby": "stripes meows", "x:dog": "barks", "x:bank": "money", "x:telex": "wire"}


@pytest.fixture(scope="module")
def tagger(versions):
    texts = [f"{words} {i % 3}x" for i in range(30) for words in WORDS.values()]
    classifier = Classifier("parabel", n_trees=1).fit(texts, [[label] for _ in range(30) for label in WORDS], run=ONE)
    return classifier.attach(versions[0], "en").tagger_


def test_scores_of_merged_labels_are_those_of_the_union(tagger, versions):
    migrated, changes = migrate_tagger(tagger, versions[1])
    assert {change.label: change.change for change in changes}["x:tabby"] == "merged"
    assert migrated.labels.words() == ["x:bank", "x:canine", "x:cat"]
    texts = ["meows", "purrs stripes barks", "money wire"]
    before = [dict(tags) for tags in tagger.predict_labels(texts, k=5, run=ONE)]
    after = [dict(tags) for tags in migrated.predict_labels(texts, k=3, run=ONE)]
    for old, new in zip(before, after, strict=True):
        assert new["x:cat"] == pytest.approx(1 - (1 - old["x:cat"]) * (1 - old["x:tabby"]), abs=1e-5)
        assert new["x:canine"] == pytest.approx(old["x:dog"], abs=1e-6)
        assert "x:telex" not in new
    assert migrated.frequencies.tolist() == [30, 30, 60]
    assert migrated.predict_labels(["barks"], 1, run=ONE)[0][0].name == "hound"
    assert migrated.explain("stripes", "x:cat")[0][0] == "stripes"


def test_filter_thresholds_and_earlier_merges_follow(tagger, versions, tmp_path):
    documents = [Document(str(i), words, [label]) for i, (label, words) in enumerate(WORDS.items())] * 20
    tuned = tune_tagger_thresholds(tagger, documents, by="label", run=ONE).tagger.with_filter(deny=["x:dog", "x:cat"])
    migrated = migrate_tagger(tuned, versions[1]).tagger
    assert migrated.allowed.tolist() == [True, False, True]  # tabby was allowed, so cat is now
    assert migrated.about["filter"] == {"allow": [], "deny": ["x:canine", "x:cat"]}
    thresholds = dict(zip(tuned.labels.words(), tuned.decision.thresholds, strict=True))
    assert migrated.decision.thresholds[2] == max(thresholds["x:cat"], thresholds["x:tabby"])
    migrated.save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model", verify=True)
    assert loaded.predict(["meows"], threshold="tuned", run=ONE).labels.shape[0] == 1
    last = migrate_tagger(loaded, versions[1], mapping={"x:bank": ("x:canine",)}).tagger
    assert last.labels.words() == ["x:canine", "x:cat"]
    assert not isinstance(last.model.model, MergedLabelModel)  # merges are not nested
    with pytest.raises(XmtcError, match="splits 'x:bank' into 2 labels"):
        migrate_tagger(tagger, versions[1], mapping={"x:bank": ("x:shore", "x:finance")})


def test_renaming_all_labels_keeps_the_model(tagger, versions):
    same = migrate_tagger(tagger, versions[0]).tagger
    assert same.model is tagger.model


def test_top_labels_of_merged_models_equal_a_plain_computation():
    class Fixed:
        n_labels, views = 5, {}

        def predict(self, data, k, run):
            order = np.argsort(-SCORES, axis=1, kind="stable")[:, :k].astype(np.int32)
            return Predictions(order, np.take_along_axis(SCORES, order, axis=1))

    SCORES = np.random.default_rng(0).random((20, 5)).astype(np.float32)
    model = MergedLabelModel(n_labels=3, views={}, model=Fixed(), targets=np.array([2, 0, 2, -1, 1], np.int32))
    predicted = model._predict(None, 3, ONE)
    expected = np.stack([SCORES[:, 1], SCORES[:, 4], 1 - (1 - SCORES[:, 0]) * (1 - SCORES[:, 2])], axis=1)
    order = np.argsort(-expected, axis=1)
    assert np.array_equal(predicted.labels, order)
    assert np.allclose(predicted.scores, np.take_along_axis(expected, order, axis=1), atol=1e-6)


def test_commands_migrate_a_model_and_a_corpus(tagger, paths, tmp_path):
    tagger.save(tmp_path / "model")
    done = invoke("vocab", "migrate", tmp_path / "model", paths[1], "-o", tmp_path / "migrated")
    assert b"x:tabby\tmerged\tx:cat\n" in done.stdout
    assert b"Decide: 1 labels are split and kept as they are, such as x:bank" in done.stderr
    assert Tagger.load(tmp_path / "migrated").labels.words() == ["x:bank", "x:canine", "x:cat"]

    corpus = tmp_path / "corpus.jsonl"
    rows = [
        {"id": f"d{i}", "text": "t", "labels": labels} for i, labels in enumerate([["x:tabby", "x:cat"], ["x:gone"]])
    ]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    target = tmp_path / "new.jsonl"
    done = invoke("vocab", "migrate", corpus, paths[1], "--old", paths[0], "-o", target)
    assert done.stderr.endswith(
        b"2 documents written to " + str(target).encode() + b", 1 of them without any label now.\n"
    )
    assert [json.loads(line)["labels"] for line in target.read_text().splitlines()] == [["x:cat"], []]
    record = (tmp_path / "new.jsonl.changes.tsv").read_text().splitlines()
    assert record == ["id\tlabel\tchange\tnew", "d0\tx:tabby\tmerged\tx:cat", "d1\tx:gone\tremoved\t"]
    done = invoke("vocab", "migrate", corpus, paths[1], "-o", "-")
    assert b"give -o the name of a file" in done.stderr
