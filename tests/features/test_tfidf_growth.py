"""Tests of tf-idf views that learn words of further documents."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc import Run
from xmtc.features.tfidf import JoinedTfidf, Tfidf
from xmtc.features.tfidf_growth import grow_view, refit_view, spread_columns

ONE = Run(threads=1)
TEXTS = ["red apples and green apples", "green pears", "a red sky", "the sky and the sea", "green sea and red sea"]
NEW = ["purple plums and red plums", "a purple sea"]


@pytest.mark.parametrize("analyzer", ["words", "snowball:english", "words+grams:3-3", "words:1-2", "grams:3-3"])
def test_new_words_are_columns_and_old_ones_stay(analyzer):
    view, bag = Tfidf(min_df=1, analyzer=analyzer, ngram_min_df=2).fit(TEXTS, ONE)
    grown, columns = grow_view(view, NEW, len(TEXTS) + len(NEW))
    grown.check()
    assert [grown.term(int(i)) for i in columns] == [view.term(i) for i in range(view.size)]
    added = {grown.term(i) for i in set(range(grown.size)) - set(columns.tolist())}
    expected = {"snowball:english": {"purpl", "plum"}, "grams:3-3": set()}.get(analyzer, {"purple", "plums"})
    assert added == expected
    spread = spread_columns(bag, columns, grown.size)
    assert abs(spread.matrix - grown.transform(TEXTS, ONE).matrix).max() < 1e-6
    assert spread.n_cluster_columns == 0 or spread.n_cluster_columns <= grown.size


@pytest.mark.parametrize("analyzer", ["words", "snowball:english", "words+grams:3-3"])
def test_refitted_weights_are_those_of_a_fit_on_all_texts(analyzer):
    recipe = Tfidf(min_df=1, analyzer=analyzer)
    view, bag = recipe.fit(TEXTS, ONE)
    grown, columns = grow_view(view, NEW, len(TEXTS) + len(NEW))
    old, new = spread_columns(bag, columns, grown.size), grown.transform(NEW, ONE)
    refitted, together = refit_view(grown, old.copy_with(matrix=sp.csr_array(sp.vstack([old.matrix, new.matrix]))))
    refitted.check()
    assert np.allclose(np.sqrt((together.matrix**2).sum(axis=1)), 1, atol=1e-6)
    if isinstance(view, JoinedTfidf):
        return  # unknown n-grams of the new texts stay unknown
    expected_view, expected = recipe.fit(TEXTS + NEW, ONE)
    order = [refitted.vocabulary.find(expected_view.term(i)) for i in range(expected_view.size)]
    assert sorted(order) == list(range(refitted.size))
    assert np.allclose(refitted.idf[order], expected_view.idf)
    assert abs(together.matrix[:, order] - expected.matrix).max() < 1e-5


def test_words_of_forgotten_documents_leave_the_vocabulary():
    view, bag = Tfidf(min_df=1).fit(TEXTS, ONE)
    refitted, _ = refit_view(view, bag.select_rows(np.array([0, 2, 3, 4])))
    assert "pears" not in refitted.vocabulary.words()
    assert "apples" in refitted.vocabulary.words()


def test_other_views_and_no_texts_change_nothing():
    view, bag = Tfidf(min_df=1).fit(TEXTS, ONE)
    assert grow_view(view, [], 5).view is view
    assert grow_view(view, TEXTS, 10).view is view
    assert spread_columns(bag, np.arange(view.size), view.size) is bag
