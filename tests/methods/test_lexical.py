"""Label names in texts: the automaton against a reference, labels without documents, and consensus with others."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

from xmtc import Classifier
from xmtc.analysis.combine import combine
from xmtc.cli import app
from xmtc.core.dataset import Dataset, LabelNames, Tokens
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.features.names import FittedNames, Names
from xmtc.methods.lexical.automaton import MAX_LABELS_PER_NAME, AhoCorasickAutomaton, NameMatches
from xmtc.methods.lexical.lexical import Lexical, expand_name
from xmtc.methods.lexical.match_classifier import (
    N_FOLDS,
    LabelCounts,
    apply_logistic,
    compute_match_features,
    fit_logistic_regression,
    fit_match_classifier,
    mark_correct_matches,
)
from xmtc.pipeline import Pipeline, train
from xmtc.tagger import Tagger
from xmtc.text.stemming import get_stemmer

ONE = Run(threads=1)


def tokens_of(rows: list[list[int]], size: int = 100) -> Tokens:
    ids = [word for row in rows for word in row]
    return Tokens(np.array(ids, np.int32), np.cumsum([0, *map(len, rows)]), size)


def names_of(rows: list[list[int]], labels: list[int], preferred: list[bool] | None = None) -> LabelNames:
    kinds = [True] * len(rows) if preferred is None else preferred
    return LabelNames(tokens_of(rows), np.array(labels, np.int32), np.array(kinds, bool))


def reference_matches(names: LabelNames, documents: list[list[int]]) -> dict[tuple[int, int], tuple[int, ...]]:
    """Search every name at every position."""
    begins = names.tokens.offsets.tolist()
    called_so: dict[tuple[int, ...], dict[int, bool]] = {}
    for (begin, end), label, preferred in zip(pairwise(begins), names.labels.tolist(), names.preferred, strict=True):
        words = tuple(names.tokens.ids[begin:end].tolist())
        if 0 not in words:
            of_name = called_so.setdefault(words, {})
            of_name[label] = of_name.get(label, False) or bool(preferred)

    result: dict[tuple[int, int], tuple[int, ...]] = {}
    for doc, words in enumerate(documents):
        places = [
            (begin, begin + len(name), name)
            for name in called_so
            for begin in range(len(words))
            if tuple(words[begin : begin + len(name)]) == name
        ]
        for begin, end, name in places:
            covered = any(b <= begin and end <= e and (b, e) != (begin, end) for b, e, _ in places)
            for label, preferred in called_so[name].items():
                one = (1, int(covered), begin, len(name), len(called_so[name]), int(preferred))
                n, within, first, length, shared, is_own = result.get(
                    (doc, label), (0, 0, begin, 0, len(names.labels), 0)
                )
                result[doc, label] = (
                    n + one[0],
                    within + one[1],
                    min(first, one[2]),
                    max(length, one[3]),
                    min(shared, one[4]),
                    is_own | one[5],
                )
    return result


def as_mapping(result: NameMatches) -> dict[tuple[int, int], tuple[int, ...]]:
    rows = zip(*(part.tolist() for part in result), strict=True)
    return {(doc, label): tuple(rest) for doc, label, *rest in rows}


@pytest.mark.parametrize("seed", range(20))
def test_automaton_equals_the_reference(seed):
    """Few words, so that names overlap, share prefixes and contain each other."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(1, 4, rng.integers(1, 6)).tolist() for _ in range(25)] + [[0]]
    names = names_of(rows, rng.integers(0, 12, len(rows)).tolist(), (rng.random(len(rows)) < 0.5).tolist())
    documents = [rng.integers(0, 4, rng.integers(1, 30)).tolist() for _ in range(30)]
    automaton = AhoCorasickAutomaton.from_names(names)
    automaton.check_sizes(12)
    result = automaton.find_matches(tokens_of(documents), 12)
    assert as_mapping(result) == reference_matches(names, documents)
    assert len(as_mapping(result)) == len(result.docs)  # no duplicates
    assert (np.diff(result.docs) >= 0).all()


def test_nodes_match_a_worked_example():
    """Names a b, b, b c of labels 0, 1, 2; the text a b c contains all of them, b inside both others."""
    automaton = AhoCorasickAutomaton.from_names(names_of([[1, 2], [2], [2, 3]], [0, 1, 2]))
    assert automaton.depths.tolist() == [0, 1, 1, 2, 2]  # root, a, b, a b, b c
    assert automaton.fail.tolist() == [0, 0, 0, 2, 0]
    assert automaton.ends.tolist() == [0, 0, 2, 3, 4]
    result = as_mapping(automaton.find_matches(tokens_of([[1, 2, 3]]), 3))
    assert result == {(0, 0): (1, 0, 0, 2, 1, 1), (0, 1): (1, 1, 1, 1, 1, 1), (0, 2): (1, 0, 1, 2, 1, 1)}
    assert automaton.mark_name_tokens(tokens_of([[1, 2, 3, 2]]), 1).tolist() == [False, True, False, True]
    assert automaton.mark_name_tokens(tokens_of([[1, 2, 3, 2]]), 2).tolist() == [False, True, True, False]


def test_name_of_too_many_labels_is_ignored():
    names = names_of(
        [[1]] * (MAX_LABELS_PER_NAME + 1) + [[1, 2]] * MAX_LABELS_PER_NAME,
        [*range(MAX_LABELS_PER_NAME + 1), *range(MAX_LABELS_PER_NAME)],
    )
    automaton = AhoCorasickAutomaton.from_names(names)
    automaton.check_sizes(MAX_LABELS_PER_NAME + 1)
    result = automaton.find_matches(tokens_of([[1, 2, 1]]), MAX_LABELS_PER_NAME + 1)
    assert sorted(result.labels.tolist()) == list(range(MAX_LABELS_PER_NAME))
    assert set(result.counts.tolist()) == {1}
    assert set(result.shared.tolist()) == {MAX_LABELS_PER_NAME}


def test_automaton_without_names_finds_nothing():
    automaton = AhoCorasickAutomaton.from_names(names_of([[0]], [0]))
    automaton.check_sizes(1)
    assert not len(automaton.find_matches(tokens_of([[1, 2]]), 1).docs)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("fail", [0, 0, 0, 3, 0], "does not lead to an earlier node"),
        ("ends", [0, 0, 2, 9, 4], "ends has a link to a later node"),
        ("labels", [0, 1, 7], "labels of the names are out of range"),
        ("depths", [0, 1, 1, 9, 2], "depths of a child"),
        ("offsets", [0, 0, 0, 1, 2, 9], "offsets does not ascend"),
    ],
)
def test_damaged_automaton_is_rejected(field, value, message):
    automaton = AhoCorasickAutomaton.from_names(names_of([[1, 2], [2], [2, 3]], [0, 1, 2]))
    damaged = replace(automaton, **{field: np.array(value, getattr(automaton, field).dtype)})
    with pytest.raises(ValueError, match=message):
        damaged.check_sizes(3)


def test_stems():
    assert [get_stemmer("plural")(word) for word in ("laws", "libraries", "glass", "virus", "bus", "ties")] == [
        "law", "library", "glass", "virus", "bus", "tie",
    ]  # fmt: skip
    assert get_stemmer("none")("laws") == "laws"
    with pytest.raises(XmtcError, match="stemming='klingon'"):
        Names(stemming="klingon")


def test_snowball_stems():
    pytest.importorskip("snowballstemmer")
    assert get_stemmer("english")("classification") == get_stemmer("english")("classifications") == "classif"


def test_vocabulary_of_the_view_contains_only_words_of_names():
    fitted_view, tokens = Names(look_within=3).fit(["The Laws of nature", "nothing"], ONE, names=["law", "Nature laws"])
    assert isinstance(fitted_view, FittedNames)
    assert sorted(fitted_view.vocabulary.words()) == ["law", "nature"]
    law = fitted_view.vocabulary.find("law") + 1
    assert tokens.ids.tolist() == [0, law, 0, 0]
    # longer than `look_within`, which limits only texts
    assert fitted_view.transform_names(["law law law law"]).ids.tolist() == [law] * 4


def test_name_with_a_qualifier_also_matches_without_it():
    assert [name.text for name in expand_name("x", "Mercury (planet)")] == ["Mercury (planet)", "Mercury"]
    assert [name.text for name in expand_name("x", "f(x)")] == ["f(x)"]


def test_label_statistics_come_from_other_folds():
    """Label 0 is correct in half of the documents with its name, label 1 always, label 2 never."""
    n_docs = 40 * N_FOLDS
    rng = np.random.default_rng(0)
    half = rng.random(n_docs) < 0.5
    Y = csr_array(np.stack([half, np.ones(n_docs), np.zeros(n_docs)], axis=1).astype(np.float32))
    automaton = AhoCorasickAutomaton.from_names(names_of([[1], [2], [3]], [0, 1, 2]))
    result = automaton.find_matches(tokens_of([[1, 2, 3]] * n_docs), 3)
    np.testing.assert_array_equal(mark_correct_matches(result, Y), Y.toarray()[result.docs, result.labels] > 0)
    lengths = np.full(n_docs, 3)
    evidence = fit_match_classifier(result, lengths, Y)
    assert evidence.has.tolist() == [half.sum(), n_docs, 0]
    assert evidence.named.tolist() == [n_docs] * 3
    assert evidence.right.tolist() == evidence.has.tolist()
    scores = evidence.predict_probabilities(result, lengths)
    means = [scores[result.labels == label].mean() for label in range(3)]
    assert abs(means[0] - half.mean()) < 0.1
    assert means[1] > 0.9
    assert means[2] < 0.1
    per_label = (evidence.has, evidence.named, evidence.right, evidence.expected)
    counts = LabelCounts(evidence.n_docs, *(values[result.labels] for values in per_label))
    features = compute_match_features(result, lengths, counts)
    np.testing.assert_allclose(scores, apply_logistic(features, evidence.weights))


def test_logistic_regression_without_data_or_variance():
    weights = fit_logistic_regression(np.zeros((0, 3)), np.zeros(0, bool))
    assert weights.tolist() == [0, 0, 0, 0]
    assert apply_logistic(np.ones((1, 3)), fit_logistic_regression(np.ones((9, 3)), np.ones(9, bool)))[0] > 0.9


TEXTS = {
    "cats": ["a cat sat there", "two cats and more cats", "the cat again", "cats cats", "my old cat"],
    "dogs": ["a dog barks", "dogs bark at night", "the dogs of war", "one more dog", "my old dog"],
}


def documents() -> list[Document]:
    return [Document(str(i), text, [label]) for label, texts in TEXTS.items() for i, text in enumerate(texts)]


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "pets.tsv"
    path.write_text("id\tname\taltLabel\ncats\tcat\tkitten\ndogs\tdog\tpuppy\nhorses\thorse\tpony|foals\n")
    return str(path)


def best_label(tagger: Tagger, text: str) -> str | None:
    (tags,) = tagger.predict_labels([text], 1, run=ONE)
    return tags[0].label if tags else None


FINNISH = {
    "cats": ["kissoilla on hyvä olla", "tämä on kissan kuva", "se oli vanha kissa ja sen poika", "kun kissa on"],
    "dogs": ["koirilla on myös nälkä", "se on koiran oma", "tässä on koira ja sen luu", "mutta koirien koti on se"],
}


@pytest.fixture
def finnish_vocabulary(tmp_path):
    """Concepts with names in Finnish and English, one with an English name only."""
    path = tmp_path / "pets.ttl"
    concepts = {"cats": ("kissa", "cat"), "dogs": ("koira", "dog"), "hens": ("kana", "hen"), "scripts": (None, "kana")}
    path.write_text(
        "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
        + "".join(
            f'<http://pets/{uri}> a skos:Concept ; skos:prefLabel "{english}"@en'
            + (f' , "{finnish}"@fi' if finnish else "")
            + " .\n"
            for uri, (finnish, english) in concepts.items()
        )
    )
    return str(path)


def test_stemming_and_names_follow_the_language_of_the_texts(finnish_vocabulary):
    pytest.importorskip("snowballstemmer")
    pytest.importorskip("rdflib")
    corpus = [
        Document(f"{label} {i}", text, [f"http://pets/{label}"])
        for label, texts in FINNISH.items()
        for i, text in enumerate(texts)
    ]
    options = {"vocabulary": finnish_vocabulary, "calibrate": False}
    tagger = train(corpus, "lexical", run=ONE, **options)
    assert tagger.views["names"].stemming == "finnish"
    assert best_label(tagger, "naapurin kissasta") == "http://pets/cats"
    assert "dog" not in tagger.views["names"].vocabulary.words()  # the English name of a concept with a Finnish one
    assert "kana" in tagger.views["names"].vocabulary.words()

    explicit = train(corpus, "lexical", run=ONE, stemming="plural", name_language="en", **options)
    assert explicit.views["names"].stemming == "plural"
    assert best_label(explicit, "naapurin kissasta") is None

    english = train(documents(), "lexical", run=ONE, calibrate=False)
    assert english.views["names"].stemming == "plural"


def test_a_consensus_reads_names_in_the_language_of_the_texts(finnish_vocabulary):
    pytest.importorskip("snowballstemmer")
    pytest.importorskip("rdflib")
    corpus = [Document(text, text, [f"http://pets/{label}"]) for label, texts in FINNISH.items() for text in texts]
    parameters = {"members": ("plt", "lexical"), "lexical.vocabulary": finnish_vocabulary, "calibrate": False}
    tagger = train(corpus, "consensus", run=ONE, min_df=1, **parameters)
    assert best_label(tagger, "naapurin kanasta") == "http://pets/hens"


def test_label_without_documents_is_predicted(vocabulary, tmp_path):
    tagger = train(documents(), "lexical", run=ONE, vocabulary=vocabulary)
    assert tagger.labels.words() == ["cats", "dogs", "horses"]
    assert tagger.frequencies.tolist() == [5, 5, 0]
    assert best_label(tagger, "three foals on the meadow") == "horses"
    assert best_label(tagger, "A KITTEN") == "cats"
    assert best_label(tagger, "nobody is called here") is None
    assert tagger.explain("a foal and a meadow", "horses")[0][0] == "foal"

    tagger.save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model")
    assert best_label(loaded, "the pony") == "horses"


def test_labels_are_their_own_names_without_a_vocabulary():
    tagger = train(documents(), "lexical", run=ONE)
    assert tagger.labels.words() == ["cats", "dogs"]
    assert best_label(tagger, "Another CAT.") == "cats"


def test_deprecated_concepts_are_not_added(tmp_path):
    path = tmp_path / "pets.tsv"
    path.write_text("id\tname\tdeprecated\ncats\tcat\ttrue\nhorses\thorse\ttrue\nbirds\tbird\t\n")
    assert {name.label for name in Lexical(vocabulary=str(path)).list_label_names(["cats"])} == {"cats", "birds"}


def test_name_language_selects_names(tmp_path):
    path = tmp_path / "pets.tsv"
    path.write_text("id\tname_en\tname_fi\ncats\tcat\tkissa\n")
    method = Lexical(vocabulary=str(path), name_language="fi")
    assert [name.text for name in method.list_label_names(["cats"])] == ["kissa"]
    with pytest.raises(XmtcError, match="sv"):
        list(Lexical(vocabulary=str(path), name_language="sv").list_label_names(["cats"]))


def test_consensus_trains_other_members_on_labels_with_documents(vocabulary):
    parameters = {"members": ("parabel", "lexical"), "lexical.vocabulary": vocabulary, "min_df": 1}
    tagger = train(documents(), "consensus", run=ONE, **parameters)
    assert tagger.labels.words() == ["cats", "dogs", "horses"]
    assert best_label(tagger, "three foals") == "horses"
    assert best_label(tagger, "dogs bark") == "dogs"
    parabel, lexical = tagger.model.models
    assert (parabel.model.n_labels, lexical.n_labels) == (2, 3)


def test_calibrated_consensus_with_valid_documents(vocabulary):
    parameters = {"members": ("dismec", "lexical"), "lexical.vocabulary": vocabulary, "min_df": 1, "calibrated": True}
    valid = [Document("v", "a foal", ["horses"]), Document("w", "the cat", ["cats"])]
    tagger = train(documents(), "consensus", valid, ONE, **parameters)
    assert best_label(tagger, "three foals") == "horses"


def test_combined_with_a_model_of_fewer_labels(vocabulary):
    lexical = train(documents(), "lexical", run=ONE, vocabulary=vocabulary)
    parabel = train(documents(), "parabel", run=ONE, min_df=1)
    both = combine([parabel, lexical], valid=documents(), run=ONE)
    assert both.labels.words() == ["cats", "dogs", "horses"]
    assert best_label(both, "a pony") == "horses"
    scores = both.evaluate([Document("", "a pony", ["horses", "unheard of"])], ["P@1", "R@5"], run=ONE)
    assert scores == {"P@1": 1.0, "R@5": 0.5}


def test_members_with_different_vocabularies_are_rejected(vocabulary):
    parameters = {"members": ("lexical", "lexical"), "lexical.vocabulary": vocabulary}
    with pytest.raises(XmtcError, match="xmtc combine"):
        train(documents(), "consensus", run=ONE, **parameters)


def test_only_declared_classes_are_predicted(vocabulary):
    pipeline = Pipeline.from_parameters("lexical", parameters={"vocabulary": vocabulary})
    tagger = pipeline.fit(documents(), run=ONE, classes=["dogs", "cats"])
    assert tagger.labels.words() == ["dogs", "cats"]
    assert best_label(tagger, "three foals") is None
    with_horses = pipeline.fit(documents(), run=ONE, classes=["dogs", "horses", "cats"])
    assert best_label(with_horses, "three foals") == "horses"  # declared, and matched by its name


def test_dataset_without_names_is_rejected():
    data = Dataset({"names": tokens_of([[1], [2]])}, csr_array(np.eye(2, dtype=np.float32)))
    with pytest.raises(XmtcError, match="has no names of labels"):
        Lexical().fit(data)


def test_names_change_the_fingerprint_and_stay_with_rows():
    views, Y = {"names": tokens_of([[1], [2]])}, csr_array(np.eye(2, dtype=np.float32))
    one, other = (Dataset(views, Y, names=names_of([[word]], [0])) for word in (1, 2))
    assert one.fingerprint() != other.fingerprint()
    assert one.select_rows(np.array([1])).names is one.names
    assert one.keep_views(["names"]).names is one.names
    assert one.select_label_columns(np.array([1])).names is None
    assert one.select_label_columns(np.array([1])).Y.toarray().tolist() == [[0], [1]]


def test_train_vocab_option_sets_the_vocabulary_of_lexical(vocabulary, tmp_path):
    """`--vocab` applies to the display of names and to the method."""
    corpus = tmp_path / "train.jsonl"
    rows = ({"text": document.text, "labels": document.labels} for document in documents())
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for method in (["-m", "lexical"], ["-m", "consensus", "-p", "members=dismec,lexical", "-p", "min_df=1"]):
        command = ["train", str(corpus), *method, "--vocab", vocabulary, "-o", str(tmp_path / "model"), "--quiet"]
        assert CliRunner().invoke(app, command).exit_code == 0
        tagger = Tagger.load(tmp_path / "model")
        assert best_label(tagger, "three foals") == "horses"
        assert tagger.label_name("horses") == "horse"


def test_combination_explains_by_the_member_that_found_the_label(tmp_path):
    (tmp_path / "names.tsv").write_text("cats\tcats\nvehicles\tvehicles\n")
    texts, tags = ["cats sleep", "cats run", "dogs sleep", "dogs run"] * 6, [["cats"], ["cats"], ["dogs"], ["dogs"]] * 6
    linear = Classifier("dismec", min_df=1).fit(texts, tags).tagger_
    lexical = Classifier("lexical", vocabulary=str(tmp_path / "names.tsv")).fit(texts, tags).tagger_
    (first, *_) = combine([linear, lexical]).explain("cats and vehicles", "vehicles")
    assert first[0] == "vehicles"
    assert first[1] > 0
    (found_by,) = combine([linear, lexical]).highlight("cats and vehicles", "vehicles")[0].members
    assert (found_by.name, found_by.share) == ("lexical", pytest.approx(1))
