"""Damaged descriptions and arrays of model folders give a one-line error, never a traceback, a crash or an endless
search."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from planted import make_planted_corpus
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from xmtc import Tagger, XmtcError
from xmtc.analysis.combine import combine
from xmtc.classifier import Classifier
from xmtc.data.in_memory import to_documents

TEXTS, TAGS = make_planted_corpus(60, seed=0)


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Classifier(n_trees=1).fit(TEXTS, TAGS).tagger_


@pytest.fixture
def folder(tagger, tmp_path):
    tagger.save(tmp_path / "model")
    return tmp_path / "model"


def set_about_value(folder, path: str, value) -> None:
    """Change one value of about.json, given by its dotted path."""
    about = json.loads((folder / "about.json").read_text())
    *outer, last = path.split(".")
    inner = about
    for name in outer:
        inner = inner[int(name) if isinstance(inner, list) else name]
    inner[last] = value
    (folder / "about.json").write_text(json.dumps(about))


def set_array(folder, name: str, change) -> None:
    """Change one array and the header, so that only its numbers are invalid."""
    arrays = dict(load_file(folder / "arrays.safetensors"))
    arrays[name] = np.ascontiguousarray(change(arrays[name].copy()))
    save_file(arrays, folder / "arrays.safetensors")
    about = json.loads((folder / "about.json").read_text())
    about["files"]["arrays.safetensors"]["bytes"] = (folder / "arrays.safetensors").stat().st_size
    (folder / "about.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("method", 7),
        ("method", None),
        ("parameters", []),
        ("views", "tfidf"),
        ("n_docs", "100"),
        ("n_docs", 0),
        ("files", []),
        ("files.arrays.safetensors", None),
        ("parts", None),
        ("parts.more", 1),
        ("parts.labels", None),
        ("parts.labels", {"array": "frequencies"}),
        ("parts.labels.text", "abc"),
        ("parts.labels.text", {"array": "labels.ends"}),
        ("parts.labels.form", ["Vocabulary"]),
        ("parts.model", {"form": "Vocabulary"}),
        ("parts.model.beam", "wide"),
        ("parts.model.beam", True),
        ("parts.model.trees", 3),
        ("parts.model.trees", [1]),
        ("parts.model.n_labels", 7),
        ("parts.model.views.mapping.tfidf", 10**30),
        ("parts.views.mapping.tfidf.sublinear_tf", 1),
        (
            "parts.views.mapping.tfidf",
            {"form": "xmtc.features.columns:FittedColumns", "n_columns": 12, "unit_length": True},
        ),
        ("parts.views.mapping", {"nonsense": None}),
        ("parts.views.mapping.tfidf.tokenizer.ngrams", 1.5),
        ("parts.views.mapping.tfidf.tokenizer.stop_words", [1]),
        ("parts.views.mapping.tfidf.tokenizer", {"array": "frequencies"}),
        ("parts.frequencies", {"array": "labels.text"}),
    ],
)
def test_values_of_about_have_checked_types(folder, path, value):
    if path.startswith("files.arrays"):
        set_about_value(folder, "files", {"arrays.safetensors": value})
    else:
        set_about_value(folder, path, value)
    with pytest.raises(XmtcError, match=r"is damaged: .*; copy or train it again"):
        Tagger.load(folder)


@pytest.mark.parametrize("depth", [10_000, 200_000])
def test_deeply_nested_json_is_rejected(folder, depth):
    arrays = folder / "arrays.safetensors"
    size = int.from_bytes(arrays.read_bytes()[:8], "little")
    content = (8 + depth).to_bytes(8, "little")[:8] + b"[" * (8 + depth) + arrays.read_bytes()[8 + size :]
    arrays.write_bytes(content)
    set_about_value(folder, "files", {"arrays.safetensors": {"bytes": len(content), "sha256": ""}})
    with pytest.raises(XmtcError, match=r"arrays.safetensors is damaged: .*; copy or train it again"):
        Tagger.load(folder)
    (folder / "about.json").write_text("[" * depth)
    with pytest.raises(XmtcError, match=r"about.json cannot be read"):
        Tagger.load(folder)


def replace_values(place, value):
    def change(array):
        array[place] = value
        return array

    return change


def fill_with(array):
    return np.where(array < 0, 0, array)


@pytest.mark.parametrize(
    ("name", "change", "phrase"),
    [
        ("views.tfidf.vocabulary.table", fill_with, "has no free slot"),
        ("views.tfidf.vocabulary.table", replace_values(3, 10**6), "points beyond the words"),
        ("views.tfidf.vocabulary.table", replace_values(3, -2), "points beyond the words"),
        ("views.tfidf.vocabulary.table", lambda table: table[:-1], "points beyond the words"),
        ("views.tfidf.vocabulary.table", lambda table: table[:0], "points beyond the words"),
        ("views.tfidf.vocabulary.ends", replace_values(2, 10**12), "end before they begin"),
        ("views.tfidf.vocabulary.ends", replace_values(2, -5), "end before they begin"),
        ("views.tfidf.vocabulary.ends", replace_values(0, -5), "do not lie within their text"),
        ("views.tfidf.vocabulary.ends", replace_values(-1, 10**12), "do not lie within their text"),
        ("views.tfidf.vocabulary.text", lambda text: text[:-1], "do not lie within their text"),
        ("views.tfidf.idf", replace_values(0, np.nan), "views.tfidf.idf holds nan or infinity"),
        ("views.tfidf.idf", lambda idf: idf[:-1], "positive finite numbers"),
        ("labels.table", fill_with, "has no free slot"),
        ("model.trees.0.bias", replace_values(0, np.nan), "model.trees.0.bias holds nan or infinity"),
        ("model.trees.0.scale", replace_values(0, np.inf), "model.trees.0.scale holds nan or infinity"),
        ("frequencies", replace_values(0, -1), "negative label frequency"),
    ],
)
def test_arrays_are_checked_before_use(folder, name, change, phrase):
    set_array(folder, name, change)
    loaded = Tagger.load(folder)  # loading checks only types and sizes
    for use in (
        lambda: loaded.predict_labels(TEXTS),
        lambda: loaded.explain(TEXTS[0], TAGS[0][0]),
        lambda: loaded.transform([]),
    ):
        with pytest.raises(XmtcError, match=f"model is damaged: .*{phrase}.*; copy or train it again"):
            use()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("labels.ends", lambda ends: ends[:0]),
        ("labels.ends", lambda ends: ends[:-1]),
        ("labels.ends", lambda ends: ends.astype(np.int32)),
        ("labels.table", lambda table: table.astype(np.float32)),
        ("frequencies", lambda frequencies: frequencies[:-1]),
        ("frequencies", lambda frequencies: frequencies.astype(np.float64)),
        ("views.tfidf.idf", lambda idf: idf.astype(np.float32)),
        ("views.tfidf.vocabulary.table", lambda table: table.reshape(2, -1)),
    ],
)
def test_sizes_and_types_are_checked_on_loading(folder, name, change):
    set_array(folder, name, change)
    with pytest.raises(XmtcError, match=r"is damaged: .*; copy or train it again"):
        Tagger.load(folder)


def test_sizes_of_words_and_terms_are_checked(folder):
    set_about_value(folder, "parts.views.mapping.tfidf.tokenizer.ngrams", 2**70)
    with pytest.raises(XmtcError, match=f"is damaged: its min_chars=2 or ngrams={2**70} is out of range; copy"):
        Tagger.load(folder).predict_labels(TEXTS)


def test_column_features_are_checked(tmp_path):
    X = csr_array(np.eye(6, dtype=np.float32))
    Classifier().fit(X, [["a"], ["b"]] * 3).save(tmp_path / "model")
    for n_features in (-1, 2**31):
        set_about_value(tmp_path / "model", "parts.views.mapping.columns.n_columns", n_features)
        set_about_value(tmp_path / "model", "parts.model.views.mapping.columns", n_features)
        with pytest.raises(
            XmtcError,
            match=f"is damaged: its number of features, {n_features}, is out of range; copy or train it again",
        ):
            Classifier.load(tmp_path / "model").tagger_.predict([])


def test_names_with_invalid_utf8_are_shown_escaped(folder):
    set_array(folder, "labels.text", lambda text: np.full_like(text, 0xFF))
    loaded = Tagger.load(folder)
    assert set(loaded.predict_labels(TEXTS[:1])[0][0].label) == {"\ufffd"}
    assert set(loaded.labels.words()[0]) == {"\ufffd"}


def test_model_is_checked_once(folder, monkeypatch):
    loaded = Tagger.load(folder)
    first = loaded.predict_labels(TEXTS[:1])
    monkeypatch.setattr("xmtc.text.string_index.StringIndex.check", None)  # a second check would call it and fail
    assert loaded.predict_labels(TEXTS[:1]) == first


def test_too_large_weights_are_reported(folder):
    """The weights are finite, but scores computed from them are not."""
    set_array(folder, "model.trees.0.scale", lambda scale: np.full_like(scale, 3e38))
    set_array(folder, "model.trees.0.bias", lambda bias: np.full_like(bias, -3e38))
    loaded = Tagger.load(folder)
    assert all(0 <= tag.score <= 1 for tags in loaded.predict_labels(TEXTS) for tag in tags)
    with pytest.raises(
        XmtcError, match=r"^The model's explanations are not finite: its weights are too large or damaged"
    ):
        loaded.explain(TEXTS[0], TAGS[0][0])


@pytest.mark.parametrize("part", ["scores", "probabilities"])
def test_calibration_is_checked(tagger, part, tmp_path):
    documents = list(to_documents(TEXTS, TAGS))
    combine([tagger, tagger], valid=documents).save(tmp_path / "model")
    set_array(tmp_path / "model", f"model.{part}", replace_values(0, np.nan))
    with pytest.raises(XmtcError, match=f"is damaged: model.{part} holds nan or infinity; copy"):
        Tagger.load(tmp_path / "model").predict_labels(TEXTS)


@pytest.mark.parametrize(
    ("name", "change", "phrase"),
    [
        ("model.forest.negative", replace_values(0, 1), "nodes of a forest .*"),
        ("model.forest.items", replace_values(0, 10**6), "items or values of a forest are out of range.*"),
        ("model.forest.ends", replace_values(1, 10**12), "nodes of a forest .*"),
        ("model.forest.values", replace_values(0, np.nan), "model.forest.values holds nan or infinity"),
        ("model.labels", replace_values(0, 10**6), "labels or squares do not fit .*"),
        ("model.starts", replace_values(1, -1), "starts, labels and centres do not fit together.*"),
        ("model.squares", lambda squares: squares[:-1], "labels or squares do not fit .*"),
    ],
)
def test_forest_is_checked(name, change, phrase, tmp_path):
    Classifier("pfastrexml", n_trees=2, max_leaf=5).fit(TEXTS, TAGS).save(tmp_path / "model")
    set_array(tmp_path / "model", name, change)
    with pytest.raises(XmtcError, match=f"is damaged: .*{phrase}; copy"):
        Tagger.load(tmp_path / "model").predict_labels(TEXTS)


@pytest.mark.parametrize("gamma", [10**30, -1, 1e300])
def test_parameters_of_a_forest_are_checked(gamma):
    model = Classifier("pfastrexml", n_trees=2, max_leaf=5).fit(TEXTS, TAGS).tagger_.model
    with pytest.raises(ValueError, match=r"gamma=.* is out of range"):
        replace(model, gamma=gamma).check()
    whole = replace(model, gamma=30)  # JSON can store it as an integer
    whole.check()


@pytest.fixture(scope="module")
def neighbours() -> Tagger:
    return Classifier("sleec", n_learners=1, dimension=4, n_clusters=2).fit(TEXTS, TAGS).tagger_


def mirrored(array):
    return np.ascontiguousarray(array[::-1])


@pytest.mark.parametrize(
    ("name", "change", "phrase"),
    [
        ("labels", replace_values(0, 10**6), "labels has a number out of range or a duplicate.*"),
        ("labels", replace_values(0, -1), "labels has a number out of range or a duplicate.*"),
        ("labels", lambda labels: np.full_like(labels, 3), "labels has a number out of range or a duplicate.*"),
        ("label_ends", replace_values(3, 10**12), "label_ends .*"),
        ("label_ends", mirrored, "label_ends .*"),
        ("label_ends", lambda ends: ends[:0], "label_ends .*"),
        ("learners.0.members", replace_values(0, 10**6), "the arrays of a learner do not fit together"),
        ("learners.0.members", replace_values(0, -1), "the arrays of a learner do not fit together"),
        ("learners.0.member_ends", replace_values(1, 0), "the arrays of a learner do not fit together"),
        ("learners.0.member_ends", replace_values(1, -5), "the arrays of a learner do not fit together"),
        ("learners.0.features", replace_values(0, 10**6), "the arrays of a learner do not fit together"),
        ("learners.0.feature_ends", replace_values(1, 10**9), "the arrays of a learner do not fit together"),
        ("learners.0.weights", lambda weights: weights[:-1], "the arrays of a learner do not fit together"),
        ("learners.0.weights", lambda weights: weights[:, :0], "the arrays of a learner do not fit together"),
        ("learners.0.scales", lambda scales: scales[:-1], "the arrays of a learner do not fit together"),
        ("learners.0.routes", lambda routes: routes[:-1], "the arrays of a learner do not fit together"),
        ("learners.0.routes", lambda routes: routes[:, :0], "the arrays of a learner do not fit together"),
        ("learners.0.embeddings", mirrored, None),
        ("learners.0.embeddings", lambda result: result[:-1], "the arrays of a learner do not fit together"),
        ("learners.0.lengths", replace_values(0, 0), "lengths of a learner has a value that is not positive"),
        ("learners.0.scales", replace_values(0, np.nan), "learners.0.scales holds nan or infinity"),
    ],
)
def test_learners_are_checked_before_use(neighbours, tmp_path, name, change, phrase):
    neighbours.save(tmp_path / "model")
    set_array(tmp_path / "model", f"model.{name}", change)
    loaded = Tagger.load(tmp_path / "model")
    if phrase is None:  # other arrays change predictions
        assert all(0 <= tag.score <= 1 for tags in loaded.predict_labels(TEXTS) for tag in tags)
        return
    for use in (lambda: loaded.predict_labels(TEXTS), lambda: loaded.explain(TEXTS[0], TAGS[0][0])):
        with pytest.raises(XmtcError, match=f"model is damaged: .*{phrase}.*; copy or train it again"):
            use()


@pytest.mark.parametrize(
    ("field", "value"),
    [("n_votes", 0), ("n_votes", -3), ("sharpness", 1e9), ("sharpness", -1.0), ("edges", -1), ("edges", 1)],
)
def test_invalid_numbers_of_votes_are_rejected(neighbours, tmp_path, field, value):
    neighbours.save(tmp_path / "model")
    set_about_value(tmp_path / "model", f"parts.model.{field}", value)
    with pytest.raises(XmtcError, match=rf"is damaged: {field} is .*; expected .*; copy or train it again"):
        Tagger.load(tmp_path / "model").predict_labels(TEXTS)


def test_memory_of_many_votes_is_limited_by_the_documents(neighbours, tmp_path):
    neighbours.save(tmp_path / "model")
    set_about_value(tmp_path / "model", "parts.model.n_votes", 2**40)
    assert Tagger.load(tmp_path / "model").predict_labels(TEXTS[:2])


def test_network_is_checked(tmp_path):
    pytest.importorskip("torch", reason="networks need PyTorch: pip install 'xmtc[neural]'")
    Classifier("c2ae", layer=4, epochs=1).fit(TEXTS, TAGS).save(tmp_path / "model")
    name = next(name for name in load_file(tmp_path / "model" / "arrays.safetensors") if ".weights." in name)
    set_array(tmp_path / "model", name, replace_values(0, np.inf))
    with pytest.raises(XmtcError, match=r"is damaged: model.network.weights.*holds nan or infinity; copy"):
        Tagger.load(tmp_path / "model").predict_labels(TEXTS)


def test_unknown_name_is_not_suggested_itself(folder):
    """A damaged table does not find an existing label."""
    set_array(folder, "labels.table", lambda table: np.full_like(table, -1))
    loaded = Tagger.load(folder)
    with pytest.raises(XmtcError, match=r"^The model has no label 'label-07'; did you mean 'label-\d\d'") as error:
        loaded.explain(TEXTS[0], "label-07")
    assert str(error.value).count("label-07") == 1


def test_suggestions_distinguish_names_that_look_equal():
    tagger = Classifier(n_trees=1).fit(TEXTS[:4], [["caf\u00e9"], ["x"]] * 2).tagger_
    with pytest.raises(XmtcError, match=r"did you mean 'caf\\xe9'\?"):
        tagger.explain(TEXTS[0], "cafe\u0301")
