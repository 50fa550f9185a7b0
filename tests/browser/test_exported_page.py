"""Exported web page in Chromium, opened as a file, against the model."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
from exported_models import CASES, texts, train

from xmtc.export import export_model


@pytest.fixture(scope="module", params=CASES, ids=CASES.keys())
def tagger(request):
    return train(**CASES[request.param])


@pytest.fixture
def open_page(browser, tmp_path):
    """Open an exported model as a file; assert that nothing is requested and no script fails."""
    wrong, contexts = [], []

    def open_model(tagger, **options):
        arrays = export_model(tagger, tmp_path / "page.html", "web", **options)
        context = browser.new_context(offline=True)
        contexts.append(context)
        page = context.new_page()
        address = (tmp_path / "page.html").as_uri()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text))
        page.on("request", lambda asked: asked.url.startswith(address) or wrong.append(asked.url))
        page.goto(address)
        page.wait_for_selector("body.ready")
        return page, arrays

    yield open_model
    for context in contexts:
        context.close()
    assert not wrong


def test_page_predicts_as_its_arrays(tagger, open_page):
    page, arrays = open_page(tagger)
    X = tagger.transform(texts()).X
    expected = tagger.to_tags(arrays.predict(X, tagger.model.n_labels, 7))
    for row, (text, tags) in enumerate(zip(texts(), expected, strict=True)):
        features = page.evaluate("text => xmtc.features(text)", text)
        assert [column for column, _ in features] == X[[row]].indices.tolist(), text
        np.testing.assert_allclose([value for _, value in features], X[[row]].data, rtol=1e-5)
        answer = page.evaluate("text => xmtc.predict(text, 7)", text)
        np.testing.assert_allclose([tag["score"] for tag in answer], [tag.score for tag in tags], atol=1e-4)
        assert [tag["label"] for tag in answer[:1]] == [tag.label for tag in tags[:1]]


def test_every_character_is_read_as_by_the_model(open_page):
    """Each assigned code point stands in a word; the page normalises, lowers and splits it as the tokenizer does."""
    tagger = train(analyzer="words+chars", method="dismec")
    page, _ = open_page(tagger)
    codes = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Co", "Cs")]
    assert len(codes) > 100_000
    differs = []
    for begin in range(0, len(codes), 4000):
        text = " ".join(f"kirja{chr(c)}talo {chr(c)}öljy kone{chr(c)}" for c in codes[begin : begin + 4000])
        features = page.evaluate("text => xmtc.features(text)", text)
        own = tagger.transform([text]).X
        if [column for column, _ in features] != own.indices.tolist():
            differs.append(begin)
        else:
            np.testing.assert_allclose([value for _, value in features], own.data, rtol=1e-5)
    assert not differs


def test_text_is_labelled_while_it_is_typed(open_page):
    tagger = train(max_leaf=8)
    page, _ = open_page(tagger)
    assert page.inner_text("#status") == "Enter a text."
    page.fill("#text", "talo1 talo1 öljy5")
    exhaustive = replace(tagger, model=tagger.model.to_exhaustive())
    (tags,) = exhaustive.predict_labels(["talo1 talo1 öljy5"], k=5)
    assert tags[0].label in page.locator("#labels li").first.inner_text()
    page.fill("#k", "2")
    assert page.locator("#labels li").count() == 2
    page.fill("#text", "zzzz")
    assert page.inner_text("#status") == "No known word in the text."


def test_a_small_page_has_fewer_weights(open_page, tmp_path):
    tagger = train(max_leaf=8)
    _, whole = open_page(tagger)
    size = (tmp_path / "page.html").stat().st_size
    _, pruned = open_page(tagger, max_mb=(size - 500) / 1e6)
    assert (tmp_path / "page.html").stat().st_size <= size - 500
    assert 0 < pruned.weights.nnz < whole.weights.nnz


def test_policy_forbids_every_connection(open_page):
    page, _ = open_page(train(max_leaf=8))
    policy = page.get_attribute("meta[http-equiv]", "content")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
