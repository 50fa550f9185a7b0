"""Tests of updates that train only the classifiers that a change affects."""

from __future__ import annotations

import numpy as np
import pytest
from planted import make_planted_corpus

from xmtc import Document, Run, train
from xmtc.maintenance.document_changes import Feedback
from xmtc.maintenance.update import update_tagger

ONE = Run(threads=1)
SETTINGS = {
    "parabel": {"max_leaf": 6, "n_trees": 2},
    "bonsai": {"max_leaf": 6, "n_trees": 1},
    "plt": {"max_leaf": 6},
    "dismec": {},
    "proxml": {},
    "ppd_sparse": {},
}


def make_documents(n: int, seed: int, prefix: str = "d") -> list[Document]:
    texts, labels = make_planted_corpus(n, seed=seed)
    return [Document(f"{prefix}{i}", text, own) for i, (text, own) in enumerate(zip(texts, labels, strict=True))]


@pytest.fixture(scope="module", params=SETTINGS)
def kept(request):
    return train(make_documents(400, 0), request.param, run=ONE, keep_training=True, **SETTINGS[request.param])


TEST = make_documents(100, 9)


def ndcg(tagger) -> float:
    return tagger.evaluate(TEST, ["nDCG@5"], run=ONE)["nDCG@5"]


def parse_counts(training: str) -> tuple[int, int]:
    trained, _, n = training.partition(" classifiers")[0].replace(",", "").partition(" of ")
    return int(trained), int(n)


def test_a_small_update_trains_few_classifiers_and_is_as_good_as_all(kept):
    new = make_documents(8, 1, "n")
    updated = update_tagger(kept, new, run=ONE)
    trained, n = parse_counts(updated.report.training)
    assert 0 < trained < n
    everything = update_tagger(kept, new, rebuild=True, run=ONE)
    assert ndcg(updated.tagger) >= ndcg(everything.tagger) - 0.02
    assert updated.tagger.training.n_changed == 8
    assert len(updated.tagger.training.pending)


def test_the_result_does_not_depend_on_threads_and_is_loaded_again(kept, tmp_path):
    new = make_documents(8, 1, "n")
    for name, threads in (("one", 1), ("two", 2)):
        first = update_tagger(kept, new, run=Run(threads=threads)).tagger
        update_tagger(first, make_documents(5, 2, "m"), run=Run(threads=threads)).tagger.save(tmp_path / name)
    for file in ("about.json", "arrays.safetensors", "training.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_labels_come_and_go(kept):
    text = "zebra zebras striped"
    new = [Document(f"z{i}", text, ["zebra", kept.labels[0]]) for i in range(3)]
    gone = kept.labels[5]
    updated = update_tagger(kept, new, remove_labels=[gone], run=ONE).tagger
    updated.model.check()
    assert "zebra" in [tag.label for tag in updated.predict_labels([text], k=2, run=ONE)[0]]
    assert gone not in updated.labels.words()
    assert {tag.label for tags in updated.predict_labels([d.text for d in TEST], 5, run=ONE) for tag in tags} <= set(
        updated.labels.words()
    )
    last = update_tagger(updated, remove_labels=["zebra"], run=ONE).tagger
    assert ndcg(last) >= ndcg(kept) - 0.05


def test_a_corrected_document_and_a_rejected_label_change_the_answer(kept):
    document = make_documents(400, 0)[7]
    wrong = document.labels[0]
    before = dict(kept.predict_labels([document.text], k=30, run=ONE)[0])[wrong]
    updated = update_tagger(kept, feedback=[Feedback(document._replace(labels=[]), [wrong])], run=ONE).tagger
    after = dict(updated.predict_labels([document.text], k=30, run=ONE)[0]).get(wrong, 0.0)
    assert after <= before
    assert np.array_equal(np.sort(updated.training.rejected), [updated.find_label(wrong)])


def test_many_changes_train_all_classifiers(kept):
    updated = update_tagger(kept, make_documents(60, 1, "n"), run=ONE)
    assert updated.report.training.startswith("Trained again on the stored documents.")
    assert updated.tagger.training.n_changed == 0
