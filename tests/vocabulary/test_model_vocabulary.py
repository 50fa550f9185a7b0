"""Tests of a model's vocabulary: label names, filters applied before the top k, and hierarchical metrics."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from commands import invoke, make_place
from planted import N_LABELS, make_planted_corpus, planted_label
from scipy.sparse import csr_array

from xmtc import Classifier, Document, Predictions, Run, Tag, Tagger, XmtcError, evaluate
from xmtc.analysis.combine import combine
from xmtc.analysis.report.build import build_report, find_top_concepts
from xmtc.core.label_masks import predict_allowed
from xmtc.output import Prediction, PredictionTable
from xmtc.vocabulary import import_files

ONE = Run(threads=1)
MISSING, DEPRECATED = (
    planted_label(7),
    planted_label(8),
)  # a label that the vocabulary does not contain, and a concept with a replacement


def rows() -> str:
    """Return concepts for the planted labels in two branches, even and odd, and broader concepts without documents."""
    lines = ["uri\tnotation\tlabel_en\tlabel_fi\tbroader\tscheme\tdeprecated\treplaced_by"]
    lines += [f"http://x.org/{top}\t\t{top} ones\t{top}-fi\t\ts:{top}\t\t" for top in ("even", "odd")]
    for i in range(N_LABELS):
        label, top = planted_label(i), ("even", "odd")[i % 2]
        state = f"true\thttp://x.org/{planted_label(9)}" if label == DEPRECATED else "\t"
        if label != MISSING:
            lines.append(f"http://x.org/{label}\tN{i}\tname {i}\tnimi {i}\thttp://x.org/{top}\ts:{top}|s:all\t{state}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "planted.tsv"
    path.write_text(rows())
    return path


@pytest.fixture(scope="module")
def vocabulary(path):
    return import_files([str(path)])


@pytest.fixture(scope="module")
def classifier(vocabulary):
    return (
        Classifier("parabel", max_leaf=4, n_trees=2, beam=1)
        .fit(*make_planted_corpus(300, seed=0), run=ONE)
        .attach(vocabulary, "fi")
    )


@pytest.fixture(scope="module")
def tagger(classifier):
    return classifier.tagger_


TEXTS = make_planted_corpus(20, seed=1)[0]


# names


def test_names_are_in_the_requested_language(classifier, tagger):
    (first, *_), *_ = tagger.predict_labels(TEXTS, k=3, run=ONE)
    number = int(first.label.removeprefix("label-"))
    assert first.name == f"nimi {number}"
    assert tagger.predict_labels(TEXTS, k=3, run=ONE, language="en")[0][0].name == f"name {number}"
    assert classifier.predict_labels(TEXTS, k=3, run=ONE, language="en")[0][0].name == f"name {number}"
    assert tagger.label_name(MISSING) is None
    with pytest.raises(XmtcError, match="has no names in 'sv'"):
        tagger.predict_labels(TEXTS, language="sv")


def test_broader_concepts_of_a_label_are_named(tagger):
    assert tagger.broader_names(planted_label(2)) == ["even-fi"]
    assert tagger.broader_names(planted_label(3), "en") == ["odd ones"]
    assert tagger.broader_names(MISSING) == []
    table = PredictionTable(k=1, wide=True, has_names=True, broader=tagger.broader_names)
    answer = Prediction("d", [Tag(planted_label(2), 0.5, "nimi 2")])
    assert [column.name for column in table.columns] == ["id", "label_1", "name_1", "broader_1", "score_1"]
    assert table.rows(answer) == [["d", planted_label(2), "nimi 2", "even-fi", 0.5]]
    assert table.to_record(answer)["labels"][0]["broader"] == ["even-fi"]


def test_tag_unpacks_to_label_and_score():
    tag = Tag("p10", 0.5, "awareness")
    label, score = tag
    assert (label, score, tag.name) == ("p10", 0.5, "awareness")
    assert tag == ("p10", 0.5)
    assert repr(tag) == "Tag(label='p10', score=0.5, name='awareness')"
    assert repr(Tag("p10", 0.5)) == "Tag(label='p10', score=0.5)"
    assert pickle.loads(pickle.dumps(tag)).name == "awareness"


def test_without_a_vocabulary_there_are_no_names():
    plain = Classifier("parabel", n_trees=1).fit(*make_planted_corpus(60, seed=0), run=ONE)
    assert plain.predict_labels(TEXTS[:1], run=ONE)[0][0].name is None
    with pytest.raises(XmtcError, match="language='fi' needs a vocabulary, but the model has none"):
        plain.predict_labels(TEXTS, language="fi")
    with pytest.raises(XmtcError, match="branch:even needs a vocabulary"):
        plain.predict_labels(TEXTS, allow=["branch:even"])
    with pytest.raises(XmtcError, match="hP, hR and hF1 need a label hierarchy"):
        plain.evaluate(*make_planted_corpus(5, seed=2), metrics="hP@1")


def test_labels_are_found_by_name_and_notation(classifier):
    text = TEXTS[0]
    by_label = classifier.explain(text, planted_label(5))
    for called in ("nimi 5", "NAME 5", "n5", "http://x.org/label-05", "<http://x.org/label-05>"):
        assert classifier.explain(text, called) == by_label
    (shown,) = classifier.highlight(text, "name 5", language="en")
    assert (shown.label, shown.name, shown.title) == ("label-05", "name 5", "name 5 (label-05)")
    with pytest.raises(XmtcError, match="has no label 'nimi 99'"):
        classifier.explain(text, "nimi 99")


def test_vocabulary_is_saved_in_the_model_folder(tagger, tmp_path):
    tagger.with_filter(deny=["branch:even"]).save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model", verify=True)
    assert loaded.about["vocabulary"]["labels_found"] == N_LABELS - 1
    assert loaded.about["filter"] == {"allow": [], "deny": ["branch:even"]}
    result = loaded.predict_labels(TEXTS, k=5, run=ONE)
    assert result == tagger.predict_labels(TEXTS, k=5, run=ONE, deny=["branch:even"])
    assert result[0][0].name == tagger.label_name(result[0][0].label)


@pytest.mark.parametrize("part", ["concepts.concepts", "allowed"])
def test_damaged_vocabulary_is_rejected(tagger, tmp_path, part):
    from dataclasses import replace

    if part == "allowed":
        damaged = replace(tagger, allowed=np.ones(N_LABELS - 1, bool))
    else:
        concepts = tagger.concepts.concepts.copy()
        concepts[0] = 10_000
        damaged = replace(tagger, concepts=replace(tagger.concepts, concepts=concepts))
    damaged.save(tmp_path / "model")
    with pytest.raises(XmtcError, match="is damaged"):
        Tagger.load(tmp_path / "model").predict_labels(TEXTS)


def test_combined_model_keeps_vocabulary_and_filters(tagger, vocabulary):
    plain = Classifier("parabel", n_trees=1).fit(*make_planted_corpus(100, seed=3), run=ONE).tagger_
    both = combine([plain, tagger.with_filter(deny=["name 3"])], run=ONE)
    assert both.label_name(planted_label(4)) == "nimi 4"
    assert not both.allowed[both.labels.find(planted_label(3))]
    assert both.allowed.sum() == len(both.labels) - 1


# filters


def evens(tagger: Tagger) -> np.ndarray:
    result = [int(label.removeprefix("label-")) % 2 == 0 for label in tagger.labels.words()]
    return np.array(result)


def test_filter_lists_select_labels(tagger, tmp_path):
    even, missing = evens(tagger), tagger.labels.find(MISSING)
    known_odd = ~even
    known_odd[missing] = False

    def left(allow=(), deny=()) -> list[bool]:
        return tagger.build_label_mask(allow, deny).tolist()

    assert left(["branch:even"]) == even.tolist() == left(["branch:even ones"]) == left(["scheme:s:even"])
    assert left(["branch:http://x.org/odd"]) == known_odd.tolist()
    assert left(["scheme:s:all"], ["branch:even"]) == known_odd.tolist()
    assert np.flatnonzero(left(["unknown"])).tolist() == [missing]
    assert np.flatnonzero(left(["deprecated"])).tolist() == [tagger.labels.find(DEPRECATED)]
    assert np.flatnonzero(left([MISSING, "nimi 5", "N6"])).tolist() == [5, 6, 7]

    listed = tmp_path / "list.txt"
    listed.write_text("# a remark\nname 1\tand more\n\nlabel-02\nscheme:s:even\nof another model\n")
    expected = even.copy()
    expected[1] = True
    assert left([f"file:{listed}"]) == expected.tolist()


@pytest.mark.parametrize(
    ("allow", "deny", "sentence"),
    [
        (["label05"], [], "no label 'label05' to allow or to deny; did you mean 'label-05'"),
        (["branch:nowhere"], [], "has no concept 'nowhere'"),
        (["collection:s:even"], [], "has no collection 's:even'"),
        ([], ["scheme:s:all", "unknown"], "The filter excludes all labels"),
        (["file:absent.txt"], [], "no such file"),
    ],
)
def test_invalid_filter_lists_are_rejected(tagger, allow, deny, sentence):
    with pytest.raises(XmtcError, match=sentence):
        tagger.predict_labels(TEXTS, allow=allow, deny=deny)


def test_request_cannot_allow_labels_that_the_model_denies(tagger):
    strict = tagger.with_filter(allow=["branch:even"])
    assert strict.build_label_mask(deny=["label-02"]).sum() == evens(tagger).sum() - 1
    with pytest.raises(XmtcError, match="own filter excludes all"):
        strict.predict_labels(TEXTS, allow=["branch:odd"])
    assert strict.with_filter().allowed is None


def test_k_labels_are_predicted_despite_denied_labels(tagger):
    """Check that filters also work if a narrow search (beam=1: one leaf of four labels) finds no allowed label."""
    for tags in tagger.predict_labels(
        TEXTS, k=5, run=ONE, allow=["name 1", "name 3", "name 5", "name 9", "name 11", "name 13"]
    ):
        assert len(tags) == 5
        assert [tag.score for tag in tags] == sorted((tag.score for tag in tags), reverse=True)
    assert all(len(tags) == 1 for tags in tagger.predict_labels(TEXTS, k=5, run=ONE, allow=["name 1"]))


@pytest.mark.parametrize("method", ["dismec", "fastxml", "consensus"])
def test_filtered_labels_are_the_best_allowed_labels(method):
    """Compare with the filtered complete ranking of an exact model."""
    parameters = {"fastxml": {"n_trees": 5}, "consensus": {"members": ("dismec", "parabel")}}.get(method, {})
    model = Classifier(method, **parameters).fit(*make_planted_corpus(200, seed=0), run=ONE).tagger_
    data = model.transform(TEXTS)
    allowed = np.arange(len(model.labels)) % 3 == 0
    every = model.model.predict(data, len(model.labels), ONE)
    result = predict_allowed(model.model, data, 4, allowed, ONE)
    for row in range(len(TEXTS)):
        pairs = zip(every.labels[row], every.scores[row], strict=True)
        labels, scores = zip(*[(i, score) for i, score in pairs if i >= 0 and allowed[i]][:4], strict=True)
        assert result.labels[row][: len(labels)].tolist() == list(labels)
        assert (result.labels[row][len(labels) :] == -1).all()
        np.testing.assert_allclose(result.scores[row][: len(labels)], scores, rtol=1e-5)


def test_stored_filters_apply_to_every_prediction(classifier, tagger, tmp_path):
    """Check that predict, predict_proba and evaluate apply filters."""
    tagger.with_filter(allow=["branch:even"]).save(tmp_path / "model")
    strict = Classifier.load(tmp_path / "model")
    even = set(np.array(tagger.labels.words())[evens(tagger)])
    assert {label for labels in strict.predict(TEXTS, k=3, run=ONE) for label in labels} <= even
    assert not strict.predict_proba(TEXTS[:3], run=ONE)[:, ~evens(tagger)].any()
    assert (
        strict.evaluate(*make_planted_corpus(40, seed=4), metrics="R@5")["R@5"]
        < classifier.evaluate(*make_planted_corpus(40, seed=4), metrics="R@5")["R@5"]
    )


# hierarchical measures

# 0        nodes 0 to 4 are labels, 5 is broader than 0 and 1, 6 is broader than 2 and 3; 4 has no relation
LINEAGE = csr_array(
    np.array(
        [
            [1, 0, 0, 0, 0, 1, 0],
            [0, 1, 0, 0, 0, 1, 0],
            [0, 0, 1, 0, 0, 0, 1],
            [0, 0, 0, 1, 0, 0, 1],
            [0, 0, 0, 0, 1, 0, 0],
        ],
        np.float32,
    )
)
TRUE = np.array([[1, 0, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]])
ANSWERS = Predictions(np.array([[1, 0], [0, 2], [4, -1]]), np.array([[0.9, 0.5], [0.8, 0.7], [0.6, 0.0]]))


def test_hierarchical_metrics_match_a_worked_example():
    """At 1: {1, 5}, {0, 5}, {4} are predicted, {0, 5}, {2, 3, 6}, {4} are true; {5}, {} and {4} are shared: 2 of 5, and
    2 of 6. At 2: {0, 1, 5}, {0, 2, 5, 6}, {4} are predicted; {0, 5}, {2, 6} and {4} are shared: 5 of 8, and 5 of 6."""
    names = ["hP@1", "hR@1", "hF1@1", "hP@2", "hR@2", "hF1@2"]
    result = evaluate(ANSWERS, TRUE, names, lineage=LINEAGE)
    expected = [2 / 5, 2 / 6, 2 * 2 / 11, 5 / 8, 5 / 6, 2 * 5 / 14]
    np.testing.assert_allclose([result[name] for name in names], expected)


def test_hierarchical_metrics_equal_computation_with_sets():
    """Compare with Python sets, on random labels in a random hierarchy with several broader concepts."""
    rng = np.random.default_rng(0)
    n_docs, n_labels, k = 50, 30, 4
    above = [{i, *(j for j in range(30, 40) if rng.random() < 0.2)} for i in range(n_labels)]
    lineage = np.zeros((n_labels, 40), np.float32)
    for label, nodes in enumerate(above):
        lineage[label, list(nodes)] = 1
    true = (rng.random((n_docs, n_labels)) < 0.1).astype(np.float32)
    labels = np.array([rng.permutation(n_labels)[:k] for _ in range(n_docs)])
    labels[rng.random(labels.shape) < 0.2] = -1
    shared = predicted = expected = 0
    for answers, truth in zip(labels, true, strict=True):
        message = set().union(*(above[i] for i in answers if i >= 0))
        meant = set().union(*(above[i] for i in np.flatnonzero(truth)))
        shared, predicted, expected = shared + len(message & meant), predicted + len(message), expected + len(meant)
    answers = Predictions(labels, np.zeros(labels.shape))
    result = evaluate(answers, true, ["hP@4", "hR@4", "hF1@4"], lineage=csr_array(lineage))
    p, r = shared / predicted, shared / expected
    np.testing.assert_allclose(list(result.values()), [p, r, 2 * p * r / (p + r)])


def test_hierarchical_metrics_count_hits_without_a_hierarchy():
    flat = csr_array(np.eye(5, dtype=np.float32))
    result = evaluate(ANSWERS, TRUE, ["hP@2", "hR@2"], lineage=flat)
    # three of five predictions are correct, three of four labels are found
    assert (result["hP@2"], result["hR@2"]) == (3 / 5, 3 / 4)
    with pytest.raises(XmtcError, match="lineage has 3 rows for 5 labels"):
        evaluate(ANSWERS, TRUE, "hP@1", lineage=csr_array(np.eye(3)))


def test_hierarchy_contains_labels_without_training_documents(tagger):
    """Check that a label of the vocabulary that training never saw shares its ancestors."""
    from xmtc import Document

    best = tagger.predict_labels(TEXTS[:1], k=1, run=ONE)[0][0].label
    branch = ("even", "odd")[int(best.removeprefix("label-")) % 2]
    document = Document("1", TEXTS[0], [f"http://x.org/{branch}"])
    result = tagger.evaluate([document], ["hP@1", "hR@1", "P@1"], run=ONE)
    assert result == {"hP@1": 1 / 2, "hR@1": 1.0, "P@1": 0.0}
    stranger = Document("1", TEXTS[0], ["of no vocabulary"])
    assert tagger.evaluate([stranger], ["hP@1", "hR@1"], run=ONE) == {"hP@1": 0.0, "hR@1": 0.0}


# commands


@pytest.fixture(scope="module")
def place(tmp_path_factory, path):
    place = make_place(tmp_path_factory.mktemp("vocab-commands"))
    (place / "planted.tsv").write_text(path.read_text())
    return place


def run_command(*words, cwd) -> tuple[str, str]:
    done = invoke(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode(), done.stderr.decode()


def test_vocab_commands_import_stats_find_and_show(place):
    assert "41 concepts with names in en, fi" in run_command("vocab", "import", "planted.tsv", "voc", cwd=place)[1]
    stats = json.loads(run_command("vocab", "stats", "voc", "--json", cwd=place)[0])
    assert (stats["concepts"], stats["deprecated"], stats["broader links"]) == (41, 1, 39)
    assert {group["uri"]: group["concepts"] for group in stats["groups"]} == {"s:even": 21, "s:odd": 20, "s:all": 39}
    assert "scheme <s:odd>: 20 concepts" in run_command("vocab", "stats", "voc", cwd=place)[0]
    assert run_command("vocab", "find", "voc", "NIMI 5", cwd=place)[0] == "http://x.org/label-05\tN5\tname 5\n"
    result = run_command("vocab", "find", "voc", "imi 1", "--part", "--language", "fi", cwd=place)[0]
    assert [line.split("\t")[2] for line in result.splitlines()] == ["nimi 1", *(f"nimi {i}" for i in range(10, 20))]
    shown = run_command("vocab", "show", "voc", "n8", "--language", "fi", cwd=place)[0]
    assert "broader: even-fi <http://x.org/even>" in shown
    assert "replaced by: nimi 9 <http://x.org/label-09>" in shown
    assert invoke("vocab", "find", "voc", "nobody", cwd=place).stderr.startswith(b"xmtc: voc has no concept 'nobody'")
    assert b"expected at least one vocabulary file" in invoke("vocab", "import", "voc", cwd=place).stderr
    assert invoke("vocab", "import", "planted.tsv", "model", cwd=place).returncode == 2  # a model is not a vocabulary


@pytest.mark.parametrize(("text", "language"), [("kissa ja koira on metsässä", "fi"), ("le chat et la souris", "sv")])
def test_names_have_the_language_of_the_texts_if_the_vocabulary_has_it(tmp_path, text, language):
    lines = [json.dumps({"text": f"{text} sana{i % 2}", "labels": [f"x{i % 2}"]}) for i in range(20)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    (tmp_path / "animals.tsv").write_text(
        "id\tlabel_sv\tlabel_fi\nx0\tkatt\tkissa\nx1\thund\tkoira\nx2\tfisk\t\n", encoding="utf-8"
    )
    run_command("train", "train.jsonl", "-o", "model", "--vocab", "animals.tsv", cwd=tmp_path)
    tagger = Tagger.load(tmp_path / "model")
    assert (tagger.label_name("x0"), tagger.label_name("x1")) == {"fi": ("kissa", "koira"), "sv": ("katt", "hund")}[
        language
    ]


def test_names_in_output_of_train_attach_predict_and_explain(place):
    message = run_command(
        "train", "train.jsonl", "-o", "named", "--vocab", "planted.tsv", "--language", "fi", cwd=place
    )[1]
    for line in (
        "39 of 40 labels are in the vocabulary",
        f"Not in the vocabulary: {MISSING}",
        "Deprecated: nimi 8 (replaced by ",
    ):
        assert line in message
    first = json.loads(run_command("predict", "named", "test.jsonl", "--language", "en", cwd=place)[0].splitlines()[0])
    assert list(first["labels"][0]) == ["label", "name", "score"]
    assert first["labels"][0]["name"] == f"name {int(first['labels'][0]['label'][-2:])}"
    few = run_command("predict", "named", "test.jsonl", "--allow", "branch:even", "--deny", "name 2", cwd=place)[0]
    labels = {tag["label"] for line in few.splitlines() for tag in json.loads(line)["labels"]}
    assert planted_label(2) not in labels
    assert all(int(label[-2:]) % 2 == 0 for label in labels)
    explained = json.loads(
        run_command("explain", "named", "--string", "word1alpha", "--label", "nimi 1", "--json", cwd=place)[0]
    )
    assert (explained["labels"][0]["label"], explained["labels"][0]["name"]) == ("label-01", "nimi 1")
    assert "hF1@5" in run_command("evaluate", "named", "test.jsonl", "hF1@5", cwd=place)[0]
    missing, deprecated = run_command("vocab", "check", "named", cwd=place)[0].splitlines()
    assert missing.split("\t")[::2] == [MISSING, "not in the vocabulary"]
    assert deprecated.split("\t")[2:] == ["deprecated", "http://x.org/label-09"]


def test_filter_entry_without_effect_is_reported(place, tmp_path):
    table = tmp_path / "empty-branch.tsv"
    table.write_text(rows() + "http://x.org/bare\t\tbare\tbare\t\ts:all\t\t\n")
    assert invoke("vocab", "attach", "model", table, "-q", cwd=place).returncode == 0
    sentence = "--deny branch:bare matches no label of the model."
    for words in (["vocab", "filter", "model"], ["predict", "model", "--string", "word1alpha"]):
        done = invoke(*words, "--deny", "branch:bare", cwd=place)
        assert done.returncode == 0, done.stderr
        assert sentence in done.stderr.decode()
        done = invoke(*words, "--deny", "branch:odd ones", cwd=place)
        assert "does nothing" not in done.stderr.decode()
    assert invoke("vocab", "filter", "model", "--clear", cwd=place).returncode == 0


def test_vocabulary_and_filters_are_added_to_an_existing_model(place):
    run_command("vocab", "attach", "model", "planted.tsv", "--deny", "deprecated", cwd=place)
    assert json.loads(run_command("info", "model", cwd=place)[0])["filter"] == {"allow": [], "deny": ["deprecated"]}
    message = run_command("vocab", "filter", "model", "--allow", "branch:odd", cwd=place)[1]
    assert message == "model predicts 19 of its 40 labels.\n"
    assert "40 of its 40" in run_command("vocab", "filter", "model", "--clear", cwd=place)[1]
    assert b"Found no filter" in invoke("vocab", "filter", "model", cwd=place).stderr


def test_label_can_look_like_a_file_name():
    texts, tags = ["one a", "one b", "two a", "two b"] * 3, [["file:one"], ["file:one"], ["two"], ["two"]] * 3
    tagger = Classifier("dismec", min_df=1).fit(texts, tags, run=ONE).tagger_
    assert [tag.label for tag in tagger.predict_labels(["one two"], run=ONE, deny=["file:one"])[0]] == ["two"]


# flat and foreign vocabularies


@pytest.fixture(scope="module")
def flat_tagger(tmp_path_factory):
    """Return a tagger with a vocabulary without broader concepts, which also names a label that the model does not
    have."""
    path = tmp_path_factory.mktemp("flat") / "flat.tsv"
    lines = [f"http://x.org/{planted_label(i)}\tname {i}" for i in range(N_LABELS)]
    path.write_text("\n".join(["uri\tlabel_en", *lines, "http://x.org/unseen\tunseen name"]) + "\n")
    trained = Classifier("parabel", n_trees=1).fit(*make_planted_corpus(200, seed=0), run=ONE)
    return trained.attach(import_files([str(path)])).tagger_


def test_flat_vocabulary_has_no_branches(flat_tagger, tagger):
    assert flat_tagger.concepts.vocabulary.is_flat
    assert not tagger.concepts.vocabulary.is_flat
    assert find_top_concepts(flat_tagger, None, 0) is None
    assert find_top_concepts(tagger, None, 0) is not None
    with pytest.raises(XmtcError, match="it has no branches; name the labels themselves"):
        flat_tagger.with_filter(["branch:name 1"])


def test_report_names_labels_that_the_model_does_not_have(flat_tagger):
    texts, labels = make_planted_corpus(20, seed=1)
    documents = [Document(str(i), text, list(names)) for i, (text, names) in enumerate(zip(texts, labels, strict=True))]
    documents[0] = documents[0]._replace(labels=["http://x.org/unseen", "in no vocabulary"])
    named = build_report(flat_tagger, documents, "title", {}, run=ONE)
    names = {named.format_label_name(label) for label, _ in named.report.unknown}
    assert names == {"unseen name (http://x.org/unseen)", "in no vocabulary"}
    assert named.report.branches == []


def test_vocabulary_without_any_label_is_rejected(flat_tagger, tmp_path):
    flat_tagger.save(tmp_path / "model")
    before = (tmp_path / "model" / "about.json").read_bytes()
    (tmp_path / "other.tsv").write_text("uri\tlabel_en\nhttp://y.org/1\tanother\n")
    done = invoke("vocab", "attach", "model", "other.tsv", cwd=tmp_path)
    message = done.stderr.decode()
    assert done.returncode == 2
    assert "None of the" in message
    assert "http://y.org/1" in message
    assert planted_label(0)[:6] in message
    assert (tmp_path / "model" / "about.json").read_bytes() == before


def test_attach_warns_of_few_matches_and_of_labels_of_the_same_concept(flat_tagger, tmp_path):
    flat_tagger.save(tmp_path / "model")
    first, second = planted_label(0), planted_label(1)
    (tmp_path / "few.tsv").write_text(f"uri\tlabel_en\nhttp://x.org/{first}\t{second}\n")
    done = invoke("vocab", "attach", "model", "few.tsv", cwd=tmp_path)
    message = done.stderr.decode()
    assert done.returncode == 0, message
    assert f"2 of {len(flat_tagger.labels)} labels are in the vocabulary." in message
    assert "Only " in message
    assert f"{first} and {second} are labels of one concept" in message
