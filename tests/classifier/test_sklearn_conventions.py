"""Conventions of scikit-learn: clones and searches keep defaults unset, and predictions have the type of the training
labels."""

from __future__ import annotations

import numpy as np
import pytest
from planted import make_planted_corpus
from scipy.sparse import csr_array, csr_matrix, issparse
from sklearn.base import clone, is_classifier
from sklearn.calibration import calibration_curve
from sklearn.metrics import f1_score, label_ranking_average_precision_score, make_scorer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer

from xmtc import Classifier, Dataset, Run, XmtcError, open_corpus
from xmtc.classifier import INITIAL_SEARCH_LABELS
from xmtc.data import prediction_matrices as indicators
from xmtc.methods.ensemble.consensus import Consensus
from xmtc.methods.label_tree.parabel import Parabel
from xmtc.methods.label_tree.plt import PLT

TEXTS, TAGS = make_planted_corpus(200, seed=0)
TEST, TEST_TAGS = make_planted_corpus(60, seed=1)
BINARIZER = MultiLabelBinarizer().fit(TAGS + TEST_TAGS)
Y, TEST_Y = BINARIZER.transform(TAGS), BINARIZER.transform(TEST_TAGS)


def trained_parameters(classifier: Classifier) -> dict:
    """Return the parameters of the trained method."""
    return classifier.tagger_.about["parameters"]


class TestUnsetParameters:
    def test_a_search_over_methods_trains_each_with_its_own_defaults(self):
        search = GridSearchCV(Classifier("parabel"), {"method": ["plt", "dismec", "parabel"]}, cv=KFold(2), refit=False)
        search.fit(TEXTS, TAGS)
        for method, score in zip(
            search.cv_results_["param_method"], search.cv_results_["mean_test_score"], strict=True
        ):
            alone = cross_validate(Classifier(method), TEXTS, TAGS, cv=KFold(2))["test_score"].mean()
            assert score == pytest.approx(alone)
        changed = clone(Classifier("parabel")).set_params(method="plt").fit(TEXTS, TAGS)
        assert trained_parameters(changed)["C"] == PLT().C != Parabel().C

    def test_set_parameters_are_kept(self):
        changed = clone(Classifier("parabel", C=1.0)).set_params(method="plt").fit(TEXTS, TAGS)
        assert trained_parameters(changed)["C"] == 1.0 != PLT().C

    def test_parameters_of_another_method_are_kept_for_it(self):
        changed = Classifier("plt", arity=4).set_params(method="dismec").fit(TEXTS, TAGS)
        assert "arity" not in trained_parameters(changed)
        assert trained_parameters(changed.set_params(method="plt").fit(TEXTS, TAGS))["arity"] == 4

    def test_clone_has_only_parameters_of_its_method(self):
        search = GridSearchCV(Classifier("plt", arity=4, C=1.0), {"method": ["dismec"]}, cv=KFold(2)).fit(TEXTS, TAGS)
        best = search.best_estimator_
        assert clone(best).get_params(deep=False) == {"method": "dismec", "C": 1.0}
        assert repr(best) == "Classifier('dismec', C=1.0)"

    def test_clone_keeps_the_preset(self):
        pytest.importorskip("torch")
        changed = clone(Classifier("attention_xml")).set_params(preset="Amazon-670K")
        assert changed.get_params()["hidden"] == 512
        assert clone(changed).set_params(preset="").get_params()["hidden"] == 256
        given = clone(Classifier("attention_xml", hidden=256)).set_params(preset="Amazon-670K")
        assert given.get_params()["hidden"] == 256

    def test_search_over_presets(self):
        pytest.importorskip("torch")
        from xmtc.methods.attention.attention_xml import AttentionXML

        tiny = AttentionXML.quick_parameters | {"epochs": 1}
        given = {name: value for name, value in tiny.items() if name not in ("candidates", "arity")}
        search = GridSearchCV(Classifier("attention_xml", **given), {"preset": ["", "Wiki-500K"]}, cv=KFold(2))
        search.fit(TEXTS[:60], TAGS[:60])
        for found in (clone(search.estimator).set_params(**params) for params in search.cv_results_["params"]):
            assert found.get_params()["arity"] == (64 if found.get_params()["preset"] else 8)
            assert found.get_params()["epochs"] == 1

    def test_method_instance_knows_its_set_parameters(self):
        pytest.importorskip("torch")
        from xmtc.methods.attention.attention_xml import AttentionXML

        classifier = Classifier(AttentionXML(candidates=80), preset="Amazon-670K")
        assert (classifier.get_params()["hidden"], classifier.get_params()["candidates"]) == (512, 80)
        assert AttentionXML(candidates=80).explicit_values == {"candidates": 80}

    def test_search_over_members(self):
        base = Classifier("consensus", members=("parabel", "plt"), parabel__max_leaf=10)
        grid = [
            {"parabel.n_trees": [1, 2], "plt__arity": [2]},
            {"members": [("parabel", "dismec")], "dismec.C": [1.0]},
        ]
        search = GridSearchCV(base, grid, cv=KFold(2)).fit(TEXTS, TAGS)
        assert len(search.cv_results_["params"]) == 3
        assert min(search.cv_results_["mean_test_score"]) > 0.5
        first = trained_parameters(clone(base).set_params(**search.cv_results_["params"][1]).fit(TEXTS, TAGS))[
            "members"
        ]
        assert [member["method"] for member in first] == ["parabel", "plt"]
        assert first[0]["parameters"]["n_trees"] == 2
        assert first[0]["parameters"]["max_leaf"] == 10
        assert first[1]["parameters"]["C"] == PLT().C

    def test_nested_members_have_parameters(self):
        given = {"members": ("ensemble", "plt"), "ensemble.member": "parabel", "ensemble.parabel.n_trees": 1}
        classifier = clone(Classifier("consensus", **given))
        assert classifier.get_params()["ensemble.parabel.n_trees"] == 1
        with pytest.raises(XmtcError, match=r"has no member 'ensemble\.dismec'"):
            classifier.set_params(**{"ensemble.dismec.C": 1.0})
        with pytest.raises(XmtcError, match=r"ensemble\.parabel has no parameter 'n_tree'; did you mean n_trees"):
            classifier.set_params(**{"ensemble.parabel.n_tree": 1})

    def test_clone_copies_only_set_parameters(self):
        classifier = Classifier("parabel", C=1.0)
        assert clone(classifier).get_params(deep=False) == {"method": "parabel", "C": 1.0}
        assert classifier.get_params()["n_trees"] == 3

    def test_loaded_model_has_its_non_default_parameters(self, tmp_path):
        Classifier("parabel", n_trees=1, min_df=1).fit(TEXTS, TAGS).save(tmp_path / "model")
        loaded = Classifier.load(tmp_path / "model")
        assert loaded.get_params(deep=False) == {"method": "parabel", "n_trees": 1, "min_df": 1}
        assert trained_parameters(clone(loaded).set_params(method="plt").fit(TEXTS, TAGS))["C"] == PLT().C
        Classifier().fit(np.eye(5), TAGS[:5]).save(tmp_path / "features")
        assert clone(Classifier.load(tmp_path / "features")).fit(np.eye(3), TAGS[:3]).n_features_in_ == 3

    def test_consensus_instance_has_parameters_of_members(self):
        classifier = clone(Classifier(Consensus((Parabel(n_trees=1), PLT())))).set_params(parabel__C=0.5)
        assert classifier.get_params()["parabel.C"] == 0.5
        assert classifier.get_params()["parabel.n_trees"] == 1


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (lambda: Classifier(n_trees=0), "n_trees=0 is invalid; expected a whole number from 1 to 1000"),
        (lambda: Classifier(min_df="two"), "min_df='two' is invalid"),
        (lambda: Classifier().set_params(C=-1), "C=-1 is invalid"),
        (lambda: Classifier("consensus", members=("parabel", "plt"), parabel__C=-1), "C=-1 is invalid"),
        (lambda: Classifier("consensus", members=("parabel", "plt"), dismec__C=1), "has no member 'dismec'"),
        (lambda: Classifier(device="cuda"), 'set the device with fit(X, y, run=Run(device="cuda"))'),
        (lambda: Classifier(class_weight="balanced"), "give weights of documents with fit(X, y, sample_weight)"),
        (lambda: Classifier().fit(TEXTS, TAGS, run=4), "run=4 is invalid; expected a Run, such as run=Run(threads=4)"),
        (lambda: Classifier().fit(TEXTS, TAGS).predict(TEST, run="cuda"), "run='cuda' is invalid; expected a Run"),
    ],
)
def test_invalid_parameters_are_rejected_when_they_are_set(action, sentence):
    with pytest.raises(XmtcError) as raised:
        action()
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (lambda: Classifier(max_iter=100), "has no parameter 'max_iter'; the limit is max_passes for linear methods"),
        (lambda: Classifier(tol=1e-4), "has no parameter 'tol'; the tolerance of linear methods is eps"),
        (lambda: Parabel(n_jobs=4), "Parabel has no parameter 'n_jobs'; set the number of threads with fit"),
        (lambda: Parabel().fit(Dataset.from_matrix(np.eye(4), np.eye(4)), run=4), "run=4 is invalid; expected a Run"),
        (lambda: Classifier().fit(TEXTS, TAGS).highlight(TEST[0], run=4), "run=4 is invalid; expected a Run"),
    ],
)
def test_hints_name_the_equivalent_of_other_libraries(action, sentence):
    with pytest.raises(XmtcError) as raised:
        action()
    assert sentence in str(raised.value)


class TestFeatureScale:
    X = np.random.default_rng(0).exponential(size=(60, 8)) * np.arange(1, 9)
    LABELS = X.argmax(axis=1)[:, None] + 10

    def stored_scaling(self, tmp_path, X, method, **parameters):
        """Return whether the model folder has a view that scales features to unit length."""
        Classifier(method, **parameters).fit(X, self.LABELS, run=Run(threads=1)).save(tmp_path / "model")
        return Classifier.load(tmp_path / "model").tagger_.views["columns"].unit_length

    @pytest.mark.parametrize("method", ["fastxml", "pfastrexml"])
    def test_features_stay_as_they_are(self, method, tmp_path):
        assert not self.stored_scaling(tmp_path, self.X, method)
        assert self.stored_scaling(tmp_path, self.X, method, unit_length=True)

    @pytest.mark.parametrize("method", ["parabel", "bonsai", "plt", "dismec", "proxml", "ppd_sparse", "sleec"])
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the L1 penalty of unscaled features
    def test_methods_whose_authors_scale_features_do(self, method, tmp_path):
        assert self.stored_scaling(tmp_path, self.X, method)
        assert not self.stored_scaling(tmp_path, self.X, method, unit_length=False)
        assert Classifier(method).get_params()["unit_length"]

    def test_a_single_column_keeps_its_values(self, tmp_path):
        x = np.repeat([[1.0], [10.0]], 30, axis=0)
        assert not self.stored_scaling(tmp_path, x, "parabel")
        classifier = Classifier(calibrate=False).fit(x, np.repeat(["low", "high"], 30))
        assert classifier.predict([[1.0], [10.0]]).tolist() == ["low", "high"]

    def test_the_log_says_what_was_done(self, caplog):
        with caplog.at_level("INFO", "xmtc"):
            Classifier("parabel").fit(self.X, self.LABELS)
            Classifier("fastxml", n_trees=1).fit(self.X, self.LABELS)
        said = [record.getMessage() for record in caplog.records if "features" in record.getMessage()]
        assert ["scaled to unit length" in each for each in said] == [True, False]
        assert "kept as they are; unit_length=true scales them" in said[1]


def as_frame(array, **how):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(array, columns=BINARIZER.classes_, **how)


class TestIndicatorOutput:
    @pytest.mark.parametrize("make", [np.asarray, csr_array, csr_matrix, as_frame], ids=lambda make: make.__name__)
    def test_predictions_have_the_type_of_the_labels(self, make, tmp_path):
        classifier = Classifier(min_df=1).fit(TEXTS, make(Y))
        classifier.save(tmp_path / "model")
        for each in (classifier, Classifier.load(tmp_path / "model")):
            found = each.predict(TEST)
            assert found.shape == TEST_Y.shape
            assert issparse(found) == issparse(make(Y))
            assert hasattr(found, "columns") == hasattr(make(Y), "columns")
            array = found.toarray() if issparse(found) else np.asarray(found)
            assert (array == (each.predict_proba(TEST) >= 0.5)).all()
            assert (array == (each.decision_function(TEST) >= 0)).all()
            assert (array & TEST_Y).sum() > 10  # few scores are above 0.5 before they are calibrated

    def test_columns_keep_their_order_and_number(self):
        wide = np.zeros((len(Y), Y.shape[1] + 3), int)
        wide[:, 12:0:-1] = Y[:, :12]  # in reverse order, with empty columns at both ends
        wide[:, 14 : 14 + Y.shape[1] - 12] = Y[:, 12:]
        classifier = Classifier(min_df=1).fit(TEXTS, wide)
        assert classifier.classes_.tolist() == list(range(wide.shape[1]))
        assert classifier.predict_proba(TEXTS).shape == wide.shape
        ranked = classifier.rank(TEXTS, k=1)
        assert np.take_along_axis(wide, ranked.labels, axis=1).mean() > 0.9
        assert classifier.predict_proba(TEXTS)[:, [0, 13]].max() == 0
        assert classifier.rank(TEXTS, k=wide.shape[1]).k == wide.shape[1]
        assert classifier.tagger_.frequencies.tolist() == wide.sum(axis=0).tolist()
        assert classifier.evaluate(TEXTS, wide, "P@1")["P@1"] == pytest.approx(
            np.take_along_axis(wide, ranked.labels, axis=1).mean()
        )

    def test_predicted_frame_keeps_columns_and_index(self):
        pandas = pytest.importorskip("pandas")
        texts = pandas.Series(TEST, index=[f"d{i}" for i in range(len(TEST))])
        found = Classifier(min_df=1).fit(pandas.Series(TEXTS), as_frame(Y)).predict(texts)
        assert found.columns.tolist() == BINARIZER.classes_.tolist()
        assert found.index.tolist() == texts.index.tolist()

    def test_predict_k_labels_of_an_indicator(self):
        classifier = Classifier(min_df=1).fit(TEXTS, Y)
        assert set(classifier.predict(TEST, k=3).sum(axis=1)) == {3}
        for each in (classifier, Classifier(min_df=1).fit(TEXTS, TAGS)):
            with pytest.raises(XmtcError, match="k=0 is not positive"):
                each.predict(TEST, k=0)

    def test_names_are_predicted_for_names(self):
        assert all(isinstance(name, str) for row in Classifier().fit(TEXTS, TAGS).predict(TEST) for name in row)
        numbers = [[int(name[-2:]) for name in row] for row in TAGS]
        classifier = Classifier().fit(TEXTS, numbers)
        assert classifier.classes_.dtype.kind == "i"
        assert all(isinstance(name, (int, np.integer)) for row in classifier.predict(TEST) for name in row)
        assert classifier.explain(TEST[0], classifier.predict(TEST)[0][0])

    def test_rank_returns_indices_of_classes(self):
        for y in (TAGS, Y, csr_array(Y)):
            classifier = Classifier(min_df=1).fit(TEXTS, y)
            ranked, tags = classifier.rank(TEST, k=3), classifier.predict_labels(TEST, k=3)
            assert [[tag.label for tag in row] for row in tags] == classifier.classes_[ranked.labels].tolist()

    def test_dense_scores_beyond_memory_are_rejected(self, monkeypatch):
        classifier = Classifier(min_df=1).fit(TEXTS, csr_array(np.hstack([Y] * 4)))
        monkeypatch.setattr(indicators, "get_memory_limit", lambda: 1000)
        with pytest.raises(XmtcError, match=r"60 documents × \d+ labels take .* GiB.*predict_proba\(X, k=100\)"):
            classifier.predict_proba(TEST)
        with pytest.raises(XmtcError, match="more than half of the memory"):
            classifier.decision_function(TEST)
        assert issparse(classifier.predict(TEST))
        with pytest.raises(XmtcError, match="more than half of the memory"):
            classifier.predict(TEST, threshold=0.0)  # all labels of all documents, although sparse
        best = classifier.predict_proba(TEST, k=3)
        assert issparse(best)
        assert np.diff(best.indptr).tolist() == [3] * len(TEST)

    def test_sparse_scores_equal_dense_scores(self):
        classifier = Classifier(min_df=1).fit(TEXTS, Y)
        dense, best = classifier.predict_proba(TEST), classifier.predict_proba(TEST, k=4).toarray()
        assert (best[best > 0] == dense[best > 0]).all()
        assert (np.sort(dense, axis=1)[:, -4:] == np.sort(best, axis=1)[:, -4:]).all()

    def test_search_continues_until_all_labels_above_the_threshold_are_found(self):
        classifier = Classifier("dismec", min_df=1).fit(TEXTS, np.hstack([Y] * 4))
        found = classifier.predict(TEST, threshold=0.0001)
        assert (found == (classifier.predict_proba(TEST) >= 0.0001)).all()
        assert found.sum(axis=1).max() > INITIAL_SEARCH_LABELS


class TestScikitLearnTools:
    @pytest.mark.parametrize("average", ["micro", "macro", "samples"])
    @pytest.mark.filterwarnings("ignore:.*is ill-defined")
    def test_f1_by_name(self, average):
        scores = cross_validate(Classifier(min_df=1), TEXTS, Y, cv=KFold(2), scoring=f"f1_{average}")["test_score"]
        for (train, test), score in zip(KFold(2).split(TEXTS), scores, strict=True):
            classifier = Classifier(min_df=1).fit([TEXTS[i] for i in train], Y[train])
            answer = classifier.predict_proba([TEXTS[i] for i in test]) >= 0.5
            assert score > 0
            assert score == pytest.approx(f1_score(Y[test], answer, average=average, zero_division=0))

    def test_average_precision_by_name(self):
        kept = Y[:, Y.sum(axis=0) >= 15]
        found = cross_validate(Classifier(min_df=1), TEXTS, kept, cv=2, scoring="average_precision")
        assert found["test_score"].min() > 0.7

    def test_roc_auc(self):
        kept = Y[:, Y.sum(axis=0) >= 15]
        found = cross_validate(Classifier(min_df=1), TEXTS, kept, cv=2, scoring="roc_auc", error_score="raise")
        assert found["test_score"].min() > 0.8

    def test_roc_auc_of_two_labels(self):
        kept = Y[:, np.argsort(-Y.sum(axis=0))[:2]]
        found = cross_validate(Classifier(min_df=1), TEXTS, kept, cv=2, scoring="roc_auc", error_score="raise")
        assert found["test_score"].min() > 0.8

    def test_label_ranking_average_precision(self):
        scorer = make_scorer(label_ranking_average_precision_score, response_method="predict_proba")
        found = cross_validate(Classifier(min_df=1), TEXTS, Y, cv=2, scoring=scorer, error_score="raise")
        assert found["test_score"].min() > 0.8

    def test_calibration_and_out_of_fold_predictions(self):
        scores = cross_val_predict(Classifier(min_df=1), TEXTS, Y, cv=2, method="predict_proba")
        assert scores.shape == Y.shape
        right, mean = calibration_curve(Y.ravel(), scores.ravel(), n_bins=2)
        assert right[1] > right[0]
        assert mean[1] > mean[0]

    def test_is_classifier_after_fit_on_an_indicator(self):
        assert not is_classifier(Classifier().fit(TEXTS, TAGS))
        assert is_classifier(Classifier().fit(TEXTS, Y))
        GridSearchCV(Classifier(min_df=1), {"n_trees": [1]}, cv=2).fit(TEXTS, TAGS)  # label lists, and cv as a number

    def test_pipeline_sets_parameters_of_members(self):
        strip = FunctionTransformer(lambda texts: [text.strip() for text in texts])
        pipeline = make_pipeline(strip, Classifier("consensus", members=("parabel", "plt")))
        pipeline.set_params(classifier__parabel__n_trees=1).fit(TEXTS, Y)
        assert trained_parameters(pipeline[-1])["members"][0]["parameters"]["n_trees"] == 1
        assert pipeline.predict_proba(TEST).shape == TEST_Y.shape

    def test_partial_fit_of_a_classifier_that_kept_nothing_names_the_alternative(self):
        with pytest.raises(XmtcError, match="has not kept its training documents"):
            Classifier().fit(TEXTS, TAGS).partial_fit(TEXTS, TAGS)


class TestCorpus:
    @pytest.fixture
    def path(self, tmp_path):
        pandas = pytest.importorskip("pandas")
        path = tmp_path / "corpus.jsonl"
        pandas.DataFrame({"text": TEXTS, "labels": TAGS}).to_json(path, orient="records", lines=True)
        return path

    def test_fit_predict_and_evaluate_accept_a_corpus(self, path):
        corpus = open_corpus(path)
        classifier = Classifier(min_df=1).fit(corpus)
        assert classifier.predict(corpus) == Classifier(min_df=1).fit(TEXTS, TAGS).predict(TEXTS)
        assert classifier.evaluate(corpus, metrics="P@1") == classifier.evaluate(TEXTS, TAGS, "P@1")
        assert classifier.score(corpus) == classifier.score(TEXTS, TAGS)
        assert classifier.evaluate(list(corpus)) == classifier.evaluate(corpus)
        with pytest.raises(XmtcError, match="Found y together with a corpus"):
            classifier.fit(corpus, TAGS)
        with pytest.raises(XmtcError, match="Found no labels to compare with"):
            classifier.evaluate(TEXTS)

    def test_validation_corpus_stops_training(self, path):
        pytest.importorskip("torch")
        from xmtc.methods.attention.xml_rnn import XMLRNN

        classifier = Classifier("xml_rnn", **XMLRNN.quick_parameters | {"epochs": 1}).fit(
            TEXTS, TAGS, valid=open_corpus(path)
        )
        assert len(classifier.predict(TEST)) == len(TEST)
        with pytest.raises(XmtcError, match="expected \\(texts, labels\\) or a corpus"):
            classifier.fit(TEXTS, TAGS, valid=TEXTS)


def test_validation_labels_can_be_an_indicator():
    classifier = Classifier("consensus", members=("parabel", "dismec"), calibrated=True, min_df=1)
    found = classifier.fit(TEXTS, Y, valid=(TEST, TEST_Y)).predict_proba(TEST)
    assert (found == classifier.fit(TEXTS, Y, valid=(TEST, csr_array(TEST_Y))).predict_proba(TEST)).all()
    with pytest.raises(XmtcError, match=r"y has \d+ columns, but there are \d+ labels; expected one for each"):
        classifier.fit(TEXTS, Y, valid=(TEST, TEST_Y[:, 1:]))


class TestSampleWeight:
    WEIGHTS = np.r_[np.ones(100), np.zeros(100)]

    @pytest.mark.parametrize("make", [np.asarray, list, lambda values: pytest.importorskip("pandas").Series(values)])
    def test_documents_with_weight_0_are_ignored(self, make):
        weighted = Classifier(min_df=1).fit(TEXTS, TAGS, make(self.WEIGHTS))
        alone = Classifier(min_df=1).fit(TEXTS[:100], TAGS[:100])
        assert weighted.score(TEXTS[:100], TAGS[:100]) == weighted.score(TEXTS, TAGS, sample_weight=self.WEIGHTS)
        assert weighted.score(TEST, TEST_TAGS) == pytest.approx(alone.score(TEST, TEST_TAGS), abs=0.05)
        assert weighted.score(TEST, TEST_TAGS) < Classifier(min_df=1).fit(TEXTS, TAGS).score(TEST, TEST_TAGS)

    def test_search_passes_sample_weights(self):
        search = GridSearchCV(Classifier(min_df=1), {"n_trees": [1]}, cv=KFold(2)).fit(
            TEXTS, Y, sample_weight=np.ones(len(TEXTS))
        )
        assert search.best_score_ > 0.8

    @pytest.mark.parametrize(
        ("weights", "sentence"),
        [
            (np.ones(3), "The weights have shape (3,) and type float64; expected one number for each of the 200"),
            (np.full(200, -1), "The weight of document 0 is -1; expected 0, or a finite number"),
            (np.full(200, np.nan), "The weight of document 0 is nan; expected 0, or a finite number"),
            (np.zeros(200), "All documents have zero weight"),
            (["heavy"] * 200, "expected one number for each of the 200 documents"),
        ],
    )
    def test_invalid_weights_are_rejected(self, weights, sentence):
        with pytest.raises(XmtcError) as raised:
            Classifier().fit(TEXTS, TAGS, weights)
        assert sentence in str(raised.value)

    def test_method_without_weights_raises(self):
        pytest.importorskip("torch")
        with pytest.raises(XmtcError, match="XMLRNN does not support document weights; omit sample_weight, or use"):
            Classifier("xml_rnn").fit(TEXTS, TAGS, np.ones(len(TEXTS)))


def test_repr_is_one_line():
    classifier = Classifier("consensus", members=("parabel", "plt"), min_df=1).fit(TEXTS, TAGS)
    assert repr(classifier) == "Classifier('consensus', members=('parabel', 'plt'), min_df=1)"
    assert repr(classifier.tagger_) == "Tagger(consensus, 40 labels, 320 tfidf features, trained on 200 documents)"
    assert repr(classifier.tagger_.model).endswith("rule='noisy-or', models=<2 of TreeModel>)")
    assert repr(classifier.tagger_.labels).startswith("StringIndex(text=<uint8 (")
    assert repr(Run()) == "Run()"
    assert repr(Run(threads=2, progress=True)) == "Run(threads=2, progress=True)"
    (found,) = classifier.highlight(TEXTS[0], k=1)
    assert repr(found).startswith(f"Highlight({found.label!r} ")
    assert len(repr(found)) < 120
