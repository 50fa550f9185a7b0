"""Tests of stems and character n-grams against reference implementations, of explanations, and of analyzer=auto."""

from __future__ import annotations

import json
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import make_planted_corpus
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from test_damaged_models import set_about_value
from test_features import run as xmtc

from xmtc import Classifier, Tagger, XmtcError
from xmtc.analyzer_selection import (
    AnalyzerRace,
    AnalyzerTrial,
    SampleFeatures,
    TextSample,
    TextSpool,
    count_and_sample,
    count_terms,
    estimate_trends,
    has_word_order,
    is_significant,
    list_candidates,
    select_analyzer,
    select_corpus_analyzer,
    select_known_terms,
    split_folds,
)
from xmtc.core.dataset import Bag, Dataset
from xmtc.core.run import Run
from xmtc.data.batch import Texts, concatenate_bytes
from xmtc.data.corpus import open_corpus
from xmtc.data.document import Document
from xmtc.data.in_memory import to_documents
from xmtc.data.label_collector import LabelCollector
from xmtc.explain.word_weights import weigh_words
from xmtc.features.tfidf import AnalyzedTfidf, JoinedTfidf, Tfidf
from xmtc.features.word_counts import TermCounts, WordCounts, expand_counts
from xmtc.features.words import FittedStems, Words
from xmtc.labels.vectors import LabelVectors
from xmtc.text.analyzers import CharNgramAnalyzer, StemAnalyzer, get_analyzer, split_word_chunks
from xmtc.text.languages import detect_language, measure_unspaced_share
from xmtc.text.string_index import StringIndex
from xmtc.text.tokenizer import Tokenizer

ANALYZERS = [
    "words",
    "words:1-2",
    "snowball:english",
    "simplemma:en",
    "grams",
    "grams:2-4",
    "words+grams",
    "snowball:english+grams",
    "chars",
    "chars:2-4",
    "words:1-2+chars",
]
TEXTS = ["The libraries lend books", "a library lends a book", "bookshops sell books", "shops: selling!", "", "?!"]
LETTERS = st.text(st.sampled_from("abcäöß é1_東京ที่中"), max_size=30)


def reference_grams(word: str, shortest: int, longest: int) -> list[str]:
    """Return the expected character n-grams; those that begin with a Han character are shorter."""
    padded = f" {word} "
    result = []
    for begin in range(len(padded)):
        first = padded[1] if begin == 0 else padded[begin]
        low, high = (1, 3) if first in "東京中" else (shortest, longest)
        low = max(low, 2) if padded[begin] == " " else low
        lengths = [n for n in range(low, high + 1) if begin + n <= len(padded)]
        result += [padded[begin : begin + n] for n in lengths]
        if begin == 0 and len(padded) < low:
            result.append(padded)
    return result


def terms_of(analyzer, words: list[str]) -> list[list[str]]:
    pieces = analyzer.analyze(*concatenate_bytes([word.encode() for word in words]))
    terms = StringIndex(pieces.text, pieces.ends, np.empty(0, np.int32)).words()
    assert len(set(terms)) == len(terms)
    return [[terms[i] for i in pieces.numbers[a:b]] for a, b in zip(pieces.starts, pieces.starts[1:], strict=False)]


@settings(max_examples=200, deadline=None)
@given(LETTERS, st.integers(1, 4), st.integers(0, 3))
def test_grams_equal_the_reference(text, shortest, more):
    words = list(dict.fromkeys(text.split()))
    result = terms_of(CharNgramAnalyzer(shortest, shortest + more), words)
    assert [Counter(grams) for grams in result] == [
        Counter(reference_grams(w, shortest, shortest + more)) for w in words
    ]


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("abcäöß é1_"), min_size=1, max_size=40), st.integers(2, 4), st.integers(0, 3))
def test_grams_equal_scikit_learn(text, shortest, more):
    count = CountVectorizer(analyzer="char_wb", ngram_range=(shortest, shortest + more)).build_analyzer()
    grams = terms_of(CharNgramAnalyzer(shortest, shortest + more), list(dict.fromkeys(text.lower().split())))
    assert Counter(gram for word in grams for gram in word) == Counter(count(" ".join(dict.fromkeys(text.split()))))


@settings(max_examples=100, deadline=None)
@given(LETTERS.filter(str.strip))
def test_spans_of_grams_contain_their_characters(text):
    word = text.split()[0]
    padded = f" {word} "
    for begin, end, gram in CharNgramAnalyzer().locate_terms(word):
        assert 0 <= begin < end <= len(word)
        assert gram.strip() == word[begin:end]
        assert gram in padded
    assert Counter(gram for _, _, gram in CharNgramAnalyzer().locate_terms(word)) == Counter(
        reference_grams(word, 3, 5)
    )


def test_splitting_words_in_chunks_gives_the_same_grams(monkeypatch):
    words = [f"word{i}" for i in range(50)]
    whole = terms_of(CharNgramAnalyzer(), words)
    monkeypatch.setattr("xmtc.text.analyzers.split_word_chunks.__defaults__", (40,))
    assert len(split_word_chunks(np.arange(0, 300, 6))) > 5
    assert terms_of(CharNgramAnalyzer(), words) == whole
    assert terms_of(CharNgramAnalyzer(), []) == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, 4), st.integers(1, 3)), max_size=5), st.data())
def test_word_counts_become_term_counts(documents, data):
    of_word = [data.draw(st.lists(st.integers(0, 5), max_size=4)) for _ in range(5)]
    starts = np.concatenate([[0], np.cumsum([len(terms) for terms in of_word])])
    numbers = np.array([term for terms in of_word for term in terms], np.int32)
    batch = TermCounts(
        np.concatenate([[0], np.cumsum([len(words) for words in documents])]).astype(np.int64),
        np.array([word for words in documents for word in words], np.int32),
        np.array([n for words in documents for n in words.values()], np.int32),
    )
    result = expand_counts(batch, starts, numbers, 6)
    for i, words in enumerate(documents):
        expected = Counter()
        for word, n in words.items():
            expected.update({term: n * often for term, often in Counter(of_word[word]).items()})
        here = slice(result.starts[i], result.starts[i + 1])
        assert dict(zip(result.terms[here].tolist(), result.counts[here].tolist(), strict=True)) == dict(expected)


def test_tfidf_of_grams_equals_scikit_learn():
    fitted, shown = Tfidf(analyzer="grams", min_chars=1).fit(TEXTS)
    reference = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, min_df=2)
    marked = ["".join(c if c.isalnum() else " " for c in text) for text in TEXTS]
    expected = reference.fit_transform(marked)
    columns = [reference.vocabulary_[gram] for gram in fitted.vocabulary.words()]
    assert sorted(columns) == list(range(expected.shape[1]))
    np.testing.assert_allclose(shown.matrix.toarray(), expected[:, columns].toarray(), atol=1e-6)


RAW_TEXTS = [
    "C++ and C# (also .NET 4.8), e-mail:\u00a0don't\x1cstop!",
    "c++, .net 4.8; E-Mail — don’t…\u3000stop",
    "x y 1.2.3\t\n  x-ray",
    "X ÉTÉ naïve straße x\u2028y 1.2.3",
    "(x) 🙂 42% 42 % e-mail \U000f0000 \U000f0000",
    "🙂 c# don't 1.2.3",
    "  ",
    "",
]


@pytest.mark.parametrize("analyzer", ["chars", "chars:2-4", "chars:1-1", "chars:5-8"])
def test_chars_are_scikit_learns_char_wb_on_the_raw_text(analyzer):
    lengths = tuple(map(int, (analyzer.partition(":")[2] or "3-5").split("-")))
    reference = TfidfVectorizer(analyzer="char_wb", ngram_range=lengths, sublinear_tf=True, min_df=2)
    expected = reference.fit_transform(RAW_TEXTS)
    fitted, bag = Tfidf(analyzer=analyzer, stop_words="english", min_chars=3).fit(RAW_TEXTS)
    # a single space is not a term: scikit-learn has it twice for every word
    columns = [reference.vocabulary_[gram] for gram in fitted.vocabulary.words()]
    others = sorted(set(range(expected.shape[1])) - set(columns))
    assert others == ([reference.vocabulary_[" "]] if lengths[0] == 1 else [])
    if not others:
        np.testing.assert_allclose(bag.matrix.toarray(), expected[:, columns].toarray(), atol=1e-6)
        unseen = ["C# isn't .net 5", "mail?"]
        expected = reference.transform(unseen)[:, columns].toarray()
        np.testing.assert_allclose(fitted.transform(unseen).matrix.toarray(), expected, atol=1e-6)


def test_each_analyzer_of_a_join_reads_its_own_tokens():
    texts = RAW_TEXTS * 2
    view = Tfidf(stop_words="english", ngram_min_lift=0)
    joined, bag = view.replace(analyzer="words:1-2+chars").fit(texts)
    words, word_bag = view.replace(analyzer="words:1-2").fit(texts)
    chars, _ = Tfidf(analyzer="chars").fit(texts)
    assert joined.parts[0].vocabulary.words() == words.vocabulary.words()
    assert joined.parts[1].vocabulary.words() == chars.vocabulary.words()
    assert {" c++", ".net"} <= set(chars.vocabulary.words())
    assert {"net", "ray"} <= set(words.vocabulary.words())
    assert any(" " in word for word in words.vocabulary.words())
    expected = word_bag.matrix.toarray() * 0.5**0.5
    has_both = np.diff(bag.matrix.indptr) > 0
    np.testing.assert_allclose(bag.matrix[:, : words.size].toarray()[has_both], expected[has_both], atol=1e-6)
    np.testing.assert_allclose(joined.transform(texts).matrix.toarray(), bag.matrix.toarray(), atol=1e-6)


def test_words_1_2_is_the_parameter_ngrams():
    texts = make_planted_corpus(100, seed=3)[0]
    one, bag = Tfidf(analyzer="words:1-2").fit(texts)
    two, same = Tfidf(analyzer="words", ngrams=2).fit(texts)
    assert one.vocabulary.words() == two.vocabulary.words()
    assert (bag.matrix != same.matrix).nnz == 0


def test_explanations_of_chars_mark_words_without_punctuation():
    text = "Ask (Anna): e-mail .NET, now!"
    fitted, _ = Tfidf(analyzer="words+chars", min_df=1).fit([text, "other words"])
    spans = fitted.spans(text)
    assert [text[span.begin : span.end] for span in spans] == ["Ask", "Anna", "e-mail", ".NET", "now"]
    assert [span.word for span in spans] == ["ask", "anna", "e-mail", ".net", "now"]
    shares = Counter()
    for span in spans:
        assert len(span.numbers) == len(span.shares) == len(span.parts)
        assert all(span.begin <= begin <= end <= span.end for begin, end in span.parts)
        shares.update(dict(zip(span.numbers, [0] * len(span.numbers), strict=True)))
        for number, share in zip(span.numbers, span.shares, strict=True):
            shares[number] += share
    assert set(shares) == set(fitted.transform([text]).matrix.indices.tolist())
    assert list(shares.values()) == pytest.approx([1] * len(shares))


def test_a_sample_of_texts_is_uniform_and_does_not_depend_on_batches():
    texts = [f"text {i}" for i in range(3000)]
    drawn = []
    for contents in (texts, [Texts.from_strings(texts[:1700]), *texts[1700:]]):
        sample = TextSample(600)
        assert list(sample.collect(contents)) == contents
        drawn.append(sample.draw())
    documents, sampled = drawn[0]
    assert sampled == [texts[i] for i in documents] == drawn[1][1]
    assert len(set(documents.tolist())) == 600
    assert abs(documents.mean() - 1500) < 150
    assert (np.diff(documents) < 0).any()  # in random order


def test_a_stream_is_read_again_from_a_spool(tmp_path):
    for workdir in (None, tmp_path):
        spool = TextSpool(workdir)
        seen = [text for batch in spool.collect(iter(RAW_TEXTS)) for text in batch]
        assert seen == [text for batch in spool for text in batch] == RAW_TEXTS


@pytest.mark.parametrize("analyzer", ANALYZERS)
def test_transform_equals_training_for_any_number_of_threads(analyzer):
    texts = make_planted_corpus(200, seed=3)[0] + TEXTS
    one, shown = Tfidf(analyzer=analyzer).fit(texts, Run(threads=1))
    batches = [Texts.from_strings(texts[i : i + 20]) for i in range(0, len(texts), 20)]
    two, again = Tfidf(analyzer=analyzer).fit(iter(batches), Run(threads=2))
    assert (shown.matrix != again.matrix).nnz == 0
    assert (two.transform(batches).matrix != shown.matrix).nnz == 0
    assert one.size == two.size == shown.size
    assert [one.term(i) for i in range(one.size)] == shown.vocabulary.words() == again.vocabulary.words()
    lengths = np.sqrt((shown.matrix**2).sum(axis=1))
    assert lengths.max() == pytest.approx(1, abs=1e-5)
    assert one.transform([]).matrix.shape == (0, one.size)
    one.check()


def test_each_distinct_word_is_stemmed_once():
    stemmed = []

    def stem(word: str) -> str:
        stemmed.append(word)
        return word.rstrip("s")

    analyzer = StemAnalyzer(stem)
    assert terms_of(analyzer, ["books", "book", "books shops"]) == [["book"], ["book"], ["book shop"]]
    terms_of(analyzer, ["books", "shops"])
    assert Counter(stemmed) == {"book": 1, "books": 2, "shops": 2}  # alone, and in a run of words


def test_inflected_forms_share_a_stem():
    fitted, shown = Tfidf(analyzer="snowball:english").fit(TEXTS)
    assert {"book", "librari", "lend"} <= set(fitted.vocabulary.words())
    assert shown.weight_scale == 1
    runs, _ = Tfidf(analyzer="snowball:english", ngrams=2, min_df=1, ngram_min_df=1, ngram_min_lift=0).fit(TEXTS)
    assert {"librari lend", "lend book"} <= set(runs.vocabulary.words())
    assert Tfidf(analyzer="simplemma:en", min_df=1).fit(TEXTS)[0].vocabulary.find("library") >= 0


def test_word_sequences_can_be_stemmed():
    fitted, tokens = Words(analyzer="snowball:english").fit(TEXTS)
    assert isinstance(fitted, FittedStems)
    stems = [fitted.term(i) for i in fitted.transform(["libraries lend unheard books"]).ids]
    assert stems == ["librari", "lend", "(unknown words)", "book"]
    assert np.array_equal(fitted.transform(TEXTS).ids, tokens.ids)
    assert [(s.word, s.numbers) for s in fitted.spans("Library books")] == [("library", (0,)), ("books", (1,))]
    plain, _ = Words(analyzer="words+grams").fit(TEXTS)  # next to words, n-grams are for the other views
    assert plain.vocabulary.words() == Words().fit(TEXTS)[0].vocabulary.words()
    for wrong in ("grams", "words+snowball:english"):
        with pytest.raises(XmtcError, match="cannot be used for sequences of words"):
            Words(analyzer=wrong)


def test_next_to_words_frequent_grams_are_dropped_and_their_number_is_limited():
    texts = [f"common rare{i % 30}" for i in range(60)]
    grams = Tfidf(analyzer="words+grams").fit(texts)[0].parts[1].vocabulary.words()
    assert " com" not in grams
    assert any(gram.endswith("17 ") for gram in grams)
    assert " com" in Tfidf(analyzer="grams").fit(texts)[0].vocabulary.words()
    assert Tfidf(analyzer="grams", max_grams=7).fit(texts)[0].size == 7
    assert Tfidf(analyzer="words+grams", max_grams=7).fit(texts)[0].parts[1].size == 7
    assert Tfidf(analyzer="words+grams", max_features=5).fit(texts)[0].size == 10
    alike, _ = Tfidf(analyzer="words+grams").fit(["same text"] * 50)  # all of them occur in every document
    assert alike.parts[1].size > 0


def test_labels_are_clustered_by_words_if_there_are_enough():
    texts = [*TEXTS[:4], *TEXTS[:4]]
    _, shown = Tfidf(analyzer="words+grams").fit(texts)
    words, plain = Tfidf(analyzer="words").fit(texts)
    assert shown.n_cluster_columns == words.size
    assert 0 < shown.weight_scale < 0.7
    assert shown.select_rows(np.array([0, 1])).n_cluster_columns == words.size
    Y = csr_array(np.eye(8, 2, dtype=np.float32))
    vectors = LabelVectors.from_documents(Dataset({"tfidf": shown}, Y)).matrix
    expected = LabelVectors.from_documents(Dataset({"tfidf": plain}, Y)).matrix
    np.testing.assert_allclose(vectors.toarray(), expected.toarray(), atol=1e-6)
    _, new = Tfidf(analyzer="words+grams", min_df=1).fit(TEXTS)  # most words occur once
    assert new.n_cluster_columns == 0


def test_pruning_threshold_depends_on_expected_weights():
    X, Y = (
        Tfidf(min_df=1).fit(make_planted_corpus(100, seed=1)[0])[1].matrix,
        csr_array(np.eye(100, 9, dtype=np.float32)),
    )
    from xmtc.methods.label_tree.parabel import Parabel

    for fineness, threshold in ((1.0, 0.1), (0.25, 0.025)):
        (tree,) = Parabel(n_trees=1).fit(Dataset({"tfidf": Bag(X, weight_scale=fineness)}, Y)).trees
        weights = np.abs(np.concatenate([tree.slot_weights(0, slot)[1] for slot in range(9)]))
        assert threshold <= weights[weights > 0].min() < 2 * threshold


@pytest.mark.parametrize("analyzer", ANALYZERS[1:])
def test_model_is_trained_saved_loaded_and_explained(analyzer, tmp_path):
    texts, tags = make_planted_corpus(300, seed=1)
    classifier = Classifier("parabel", analyzer=analyzer, max_leaf=8).fit(texts, tags)
    assert classifier.evaluate(*make_planted_corpus(80, seed=2), ["P@1"])["P@1"] > 0.9
    classifier.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model", verify=True)
    assert loaded.get_params()["analyzer"] == analyzer
    np.testing.assert_array_equal(loaded.rank(texts).scores, classifier.rank(texts).scores)
    text, label = texts[0], tags[0][0]
    highlight = loaded.highlight(text, label)[0]
    assert "".join(piece.text for piece in highlight.pieces) == text
    explanation = loaded.tagger_.model.explain(loaded.tagger_.transform(to_documents([text])), number(loaded, label))
    weighed = weigh_words(text, loaded.tagger_.views, explanation)
    assert sum(word.weight for word in weighed) == pytest.approx(float(explanation.weights.sum()), abs=1e-4)
    assert all(word in text.lower() for word, _ in loaded.explain(text, label))


def number(classifier: Classifier, label: str) -> int:
    return classifier.tagger_.labels.find(label)


def test_explanation_contains_words_and_their_parts():
    forms = ["kirjasto", "kirjaston", "kirjastossa", "kirjastoja"], ["auto", "auton", "autossa", "autoja"]
    texts = [f"tämä {forms[i % 2][i // 2 % 4]} täällä" for i in range(80)]
    tags = [["lib" if i % 2 == 0 else "car"] for i in range(80)]
    stems = Classifier("dismec", analyzer="snowball:finnish").fit(texts, tags)
    assert stems.explain("Kirjastoissa oli kirjastoja", "lib")[0][0] in ("kirjastoissa", "kirjastoja")
    grams = Classifier("dismec", analyzer="grams").fit(texts, tags)
    found = grams.highlight("Superkirjastolle!", "lib")[0]  # a compound that does not occur in training
    assert [piece.text for piece in found.pieces] == ["Superkirjastolle", "!"]
    begin, end = found.parts[0]
    assert found.pieces[0].text[begin:end] in "kirjasto"
    assert grams.explain("Superkirjastolle!", "lib")[0][0] == "superkirjastolle"


PLANTED = {
    "chinese": ("图书馆 足球赛 红楼梦 计算机", "我们今天去了 他们昨天看见 关于 的新消息，很多人 在城市里"),
    "japanese": ("図書館 サッカー 電車 料理", "私は昨日 を見ました。 について話す とても好きです、 この町の"),
    "thai": ("ห้องสมุด ฟุตบอล รถไฟ อาหาร", "วันนี้เราไป เมื่อวานเขาเห็น เกี่ยวกับ ที่เมืองนี้ ข่าวใหม่ของ"),
}


@pytest.mark.parametrize("language", PLANTED)
def test_grams_are_the_default_for_scripts_without_spaces(language):
    subjects, others = (words.split() for words in PLANTED[language])
    rng = np.random.default_rng(0)

    def document(subject: str) -> str:
        before, after = rng.choice(others, 2)
        return f"{before}{subject}{after}"

    chosen = rng.integers(0, 4, 240)
    texts, tags = [document(subjects[i]) for i in chosen], [[f"label-{i}"] for i in chosen]
    classifier = Classifier("parabel").fit(texts[:200], tags[:200])
    assert classifier.tagger_.about["chosen"]["analyzer"] == "chars"
    assert "scripts without spaces between words" in classifier.tagger_.about["chosen"]["because"]
    assert classifier.evaluate(texts[200:], tags[200:], ["P@1"])["P@1"] > 0.9
    words = Classifier("parabel", analyzer="words").fit(texts[:200], tags[:200])
    assert words.evaluate(texts[200:], tags[200:], ["P@1"])["P@1"] < 0.9
    text = document(subjects[0])
    found = classifier.highlight(text, "label-0")[0]
    strongest = max(range(len(found.pieces)), key=lambda number: found.pieces[number].weight)
    begin, end = found.parts[strongest]
    assert found.pieces[strongest].text[begin:end] in subjects[0]


def make_agglutinative_corpus(n: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Return texts whose words are a root and one of many endings; only the root determines the label."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("aeioukstpnlmr"))
    roots = ["".join(np.random.default_rng(i).choice(letters, 6)) for i in range(40)]

    def word(root: str) -> str:
        return root + "".join(rng.choice(letters, rng.integers(2, 5)))

    chosen = rng.integers(0, 40, n)
    return [" ".join(word(roots[j]) for j in (i, (i * 7) % 40)) for i in chosen], [[f"label-{i}"] for i in chosen]


def test_auto_selects_grams_and_reports_it(tmp_path):
    texts, tags = make_agglutinative_corpus(1500, seed=0)
    one, two = (Classifier("parabel").fit(texts, tags, run=Run(threads=threads)) for threads in (1, 2))
    chosen = one.tagger_.about["chosen"]
    assert chosen["analyzer"] == "chars"
    assert "nDCG@5 of 1,500 held-out documents: words " in chosen["because"]
    assert one.tagger_.about == two.tagger_.about
    assert one.get_params()["analyzer"] == "auto"
    lines = (json.dumps({"text": text, "labels": labels}) for text, labels in zip(texts, tags, strict=True))
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    assert (
        select_corpus_analyzer(open_corpus(str(tmp_path / "corpus.jsonl")), Run(threads=1)) == "chars"
    )  # without training
    test = make_agglutinative_corpus(200, seed=1)
    plain = Classifier("parabel", analyzer="words").fit(texts, tags)
    assert one.evaluate(*test, ["P@1"])["P@1"] > plain.evaluate(*test, ["P@1"])["P@1"] + 0.2

    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(texts, tags, strict=True)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    code, message = xmtc("train", tmp_path / "train.jsonl", "-o", tmp_path / "model")
    assert code == 0
    assert f"analyzer=chars: {chosen['because']}." in message
    assert Tagger.load(tmp_path / "model").about["chosen"] == chosen


@pytest.mark.parametrize(
    ("texts", "values", "chosen", "because"),
    [
        (
            ["seven words that say nothing to anybody"] * 10,
            {},
            "words",
            "10 documents are too few to compare analyzers; 1,000 are needed",
        ),
        (
            ["中文的 library"] * 10,
            {},
            "words+chars",
            "30% of the letters belong to scripts without spaces between words",
        ),
        (["中文的书"] * 10, {"ngrams": 2}, "words", "ngrams=2 requires words"),
    ],
)
def test_auto_needs_no_trial(texts, values, chosen, because):
    view = Tfidf(**values)
    counted = count_and_sample(view, texts, Run())
    choice = select_analyzer(view, *counted, LabelCollector(), Run())  # without labels a trial is impossible
    assert choice.analyzer == chosen
    assert choice.reason.startswith(because)


def test_auto_trials_use_a_sample_of_the_labelled_documents():
    texts, tags = make_agglutinative_corpus(2000, seed=0)
    choices = []
    for n_labelled, min_df in ((2000, 60), (999, 2)):
        collector = LabelCollector()
        labels = [*tags[:n_labelled], *[[]] * (2000 - n_labelled)]
        documents = [Document("", text, given) for text, given in zip(texts, labels, strict=True)]
        view = Tfidf(min_df=min_df)
        counted = count_and_sample(view, (document.text for document in collector.collect(documents)), Run())
        choices.append(select_analyzer(view, *counted, collector, Run()))
    assert choices[0].analyzer == "chars"
    assert choices[1].reason == "999 labelled documents are too few to compare analyzers; 1,000 are needed"


def test_a_trial_holds_out_documents_and_names_no_label_twice():
    _, tags = make_agglutinative_corpus(1200, seed=0)
    Y = csr_array(np.eye(41, dtype=np.float32)[[40 if i == 0 else int(tags[i][0][6:]) for i in range(1200)]])
    trial = AnalyzerTrial.from_labels(Y, np.arange(1200) < 300)  # label 40 is only in a held-out document
    assert (trial.held_out.tolist(), trial.train.tolist()) == (list(range(300)), list(range(300, 1200)))
    assert (trial.Y.shape, trial.truth.shape) == ((900, 40), (300, 41))
    assert trial.truth[[0]].indices.tolist() == [40]


def test_every_document_of_a_sample_is_held_out_once():
    _, tags = make_agglutinative_corpus(1001, seed=0)
    folds = split_folds(csr_array(np.eye(40, dtype=np.float32)[[int(tag[0][6:]) for tag in tags]]))
    assert sorted(row for fold in folds for row in fold.held_out.tolist()) == list(range(1001))
    assert all(not set(fold.held_out.tolist()) & set(fold.train.tolist()) for fold in folds)


class FixedTrial:
    """Trial with a given mean nDCG@5 for each analyzer, which records its trainings."""

    def __init__(self, means: dict[str, float]) -> None:
        self.means, self.trained = means, []

    def score(self, features: None, analyzer: str) -> np.ndarray:
        self.trained.append(analyzer)
        return self.means[analyzer] + np.tile([0.1, -0.1] if analyzer == "words" else [-0.1, 0.1], 200)


@pytest.mark.parametrize(
    ("means", "second_fold", "selected"),
    [
        ({"words": 0.50, "words:1-2": 0.40, "words+chars": 0.504, "chars": 0.9}, ["words", "words+chars"], "words"),
        ({"words": 0.50, "words:1-2": 0.50, "words+chars": 0.60, "chars": 0.70}, [], "chars"),
        ({"words": 0.50, "words:1-2": 0.40, "words+chars": 0.40, "chars": 0.40}, [], "words"),
        ({"words": 0.50, "words:1-2": 0.60, "words+chars": 0.60}, ["words", "words:1-2", "words+chars"], "words:1-2"),
    ],
)  # fmt: skip
def test_a_race_of_analyzers_drops_those_that_are_behind(means, second_fold, selected):
    first, second = FixedTrial(means), FixedTrial(means)
    race = AnalyzerRace(None, list(means), {})
    race.run_fold(first)
    race.run_fold(second)
    assert second.trained == second_fold
    assert ("chars" in first.trained) == ("chars" in means and means["words+chars"] >= 0.51)
    assert race.select() == selected


def test_character_ngrams_are_compared_on_the_documents_of_the_same_fold():
    """The documents of the second fold are easier, and words joined with n-grams are no longer tried."""
    first = {"words": 0.2, "words:1-2": 0.4, "words+chars": 0.25, "chars": 0.4}
    second = FixedTrial({name: mean + 0.4 for name, mean in first.items()})
    race = AnalyzerRace(None, list(first), {})
    race.run_fold(FixedTrial(first))
    race.run_fold(second)
    assert second.trained == ["words", "words:1-2", "chars"]


@pytest.mark.parametrize("analyzer", ["words", "words:1-2", "chars"])
def test_held_out_documents_have_the_features_of_a_training_without_them(analyzer):
    texts = [f"red tape {i % 7}x new york {i % 5}y" for i in range(40)] + ["blue tape unseen york"] * 2
    train, held_out = np.arange(40), np.arange(40, 42)
    view = Tfidf(analyzer=analyzer)
    known, transformed = SampleFeatures(view, texts, Run()).divide(analyzer, train, held_out)
    fitted, bag = view.fit(texts[:40])
    assert np.count_nonzero(np.bincount(known.matrix.indices)) == bag.size
    assert np.diff(transformed.matrix.indptr).tolist() == np.diff(fitted.transform(texts[40:]).matrix.indptr).tolist()


def test_terms_that_only_held_out_documents_know_are_left_out():
    bag = Bag([[3, 4, 0, 0], [3, 4, 0, 0], [4, 0, 2, 3], [0, 0, 0, 1]])
    train, held_out = bag.select_rows([0, 1]), bag.select_rows([2, 3])
    known = select_known_terms((train, held_out), count_terms(train), Tfidf())[1].matrix
    assert known.toarray().tolist() == [[1, 0, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("words_per_document", "growth", "expected"),
    [
        (200, 4, [-0.004, 0.003, -0.004, -0.003]),
        (50, 4, [0, 0.0015, 0, -0.003]),
        (200, 0.5, [0, 0, 0, 0]),
    ],
)
def test_gains_change_with_the_number_of_documents(words_per_document, growth, expected):
    candidates = ["words", "snowball:english", "words:1-2", "words+chars", "chars"]
    trends = estimate_trends(candidates, words_per_document, growth)
    assert trends == pytest.approx(dict(zip(candidates[1:], expected, strict=True)))


def test_a_gain_must_be_significant():
    gains = np.tile([0.1, -0.1], 50)
    assert not is_significant(gains + 0.01)
    assert is_significant(gains + 0.02)
    assert not is_significant(np.zeros(100))


def test_long_texts_are_not_compared_with_characters():
    counts = WordCounts.from_texts(Tokenizer(), ["the cat of the house is in the sea"] * 20, Run())
    assert list_candidates(counts, 301) == ["words", "snowball:english", "words:1-2"]
    assert list_candidates(counts, 300)[3:] == ["words+chars", "chars"]


def test_sets_of_words_have_no_pairs():
    assert has_word_order(["the cat is in the house", "a dog", "cats eat fish now"])
    assert not has_word_order(["cat house in is the", "a barking dog eats fish", "a dog"])
    assert has_word_order(["cat", "a dog", ""])  # too short to tell


def test_auto_selects_pairs_of_words_where_only_they_tell_labels_apart():
    rng = np.random.default_rng(0)
    phrases = [["red tape", "blue screen"], ["blue tape", "red screen"], ["grey wall", "white door"]]  # of labels
    drawn = np.column_stack([rng.integers(0, 3, 1200), rng.integers(0, 2, 1200)])
    texts, tags = [phrases[label][i] for label, i in drawn], [[f"label-{label}"] for label, _ in drawn]
    assert Classifier("parabel", calibrate=False).fit(texts, tags).analyzer_ == "words:1-2"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Die Bücherei ist für alle offen, die sich nicht mit dem Lesen zufrieden geben", "german"),
        ("Kirjasto on avoinna kaikille jotka eivät ole vain lukijoita mutta myös muille", "finnish"),
        ("La bibliothèque est ouverte à tous ceux qui ne lisent pas que des livres", "french"),
        ("The library is open to all who are not content with what they have", "english"),
        ("xyzzy plugh frotz", None),
    ],
)
def test_language_is_detected_from_common_words(text, language):
    counted = WordCounts.from_texts(Tokenizer(), [text], Run())
    assert detect_language(counted.text, counted.ends, counted.frequencies) == language


def test_scripts_without_spaces_are_detected():
    assert measure_unspaced_share(np.frombuffer("東京abกข".encode(), np.uint8)) == pytest.approx(4 / 6)
    assert measure_unspaced_share(np.zeros(0, np.uint8)) == 0


def test_stop_words_of_languages():
    fitted, _ = Tfidf(min_df=1, stop_words="german").fit(["Die Bücherei ist für alle", "und nicht für das Buch"])
    assert sorted(fitted.vocabulary.words()) == ["alle", "buch", "bücherei"]
    fitted, _ = Tfidf(min_df=1, stop_words="german", analyzer="grams").fit(["Die Bücherei"])
    assert " die" not in fitted.vocabulary.words()


@pytest.mark.parametrize(
    ("analyzer", "message"),
    [
        ("stems", r"Unknown analyzer 'stems'; expected words, words:1-2"),
        ("", r"Unknown analyzer ''"),
        ("snowball:", r"Unknown analyzer 'snowball:'"),
        ("words:3", r"Unknown analyzer 'words:3'"),
        ("words:2-3", r"Unknown analyzer 'words:2-3'; expected words, words:1-2 \(up to words:1-5\)"),
        ("words:1-6", r"Unknown analyzer 'words:1-6'"),
        ("snowball:finish", r"snowball has no language 'finish'; did you mean finnish\?"),
        ("simplemma:xx", r"simplemma has no language 'xx'; it has ar, "),
        ("grams:5-3", r"'grams:5-3' has no valid n-gram lengths; expected two lengths up to 20"),
        ("grams:", r"'grams:' has no valid n-gram lengths"),
        ("words+words", r"analyzer='words\+words' contains a duplicate"),
    ],
)
def test_invalid_analyzer_is_rejected(analyzer, message):
    with pytest.raises(XmtcError, match=message):
        Tfidf(analyzer=analyzer)


def test_grams_are_not_cut_from_runs_of_words():
    for analyzer in ("grams", "chars"):
        with pytest.raises(XmtcError, match=f"ngrams=2 has no effect on analyzer={analyzer}, whose terms are parts of"):
            Tfidf(analyzer=analyzer, ngrams=2)
    fitted, _ = Tfidf(analyzer="words+grams", ngrams=2, min_df=1, ngram_min_df=1, ngram_min_lift=0).fit(TEXTS)
    assert [part.tokenizer.ngrams for part in fitted.parts] == [2, 1]


@pytest.mark.parametrize("name", ["snowballstemmer", "simplemma"])
def test_missing_extra_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    get_analyzer.cache_clear()
    with pytest.raises(XmtcError, match=rf"needs {name}: pip install 'xmtc\[languages\]'"):
        Tfidf(analyzer="snowball:english" if name == "snowballstemmer" else "simplemma:en")
    get_analyzer.cache_clear()


@pytest.mark.parametrize(
    ("analyzer", "place", "value"),
    [
        ("grams", "analyzer", "klingon"),
        ("grams", "analyzer", "grams:9-1"),
        ("words+grams", "parts", []),
        ("words+grams", "parts.0.tokenizer.min_chars", 3),
        ("chars", "tokenizer.unit", "syllables"),
    ],
)
def test_damaged_analyzer_is_rejected(analyzer, place, value, tmp_path):
    Classifier("parabel", analyzer=analyzer, max_leaf=8).fit(*make_planted_corpus(60, seed=1)).save(tmp_path / "model")
    set_about_value(tmp_path / "model", f"parts.views.mapping.tfidf.{place}", value)
    with pytest.raises(XmtcError, match="is damaged"):
        Tagger.load(tmp_path / "model").predict_labels(["text"])


def test_analyzer_determines_the_fitted_class():
    assert isinstance(Tfidf(analyzer="grams", min_df=1).fit(TEXTS)[0], AnalyzedTfidf)
    both, _ = Tfidf(analyzer="words+grams", min_df=1).fit(TEXTS)
    assert isinstance(both, JoinedTfidf)
    assert both.column_offsets == [0, both.parts[0].size]


def test_documents_of_one_language_are_selected(tmp_path):
    texts = ["Kirjasto on avoinna kaikille lukijoille joka päivä", "The library is open to every reader each day"]
    lines = [json.dumps({"text": text, "labels": ["a"]}) for text in [*texts, texts[0]]]
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    code, message = xmtc("data", "language", tmp_path / "all.jsonl", tmp_path / "fi.jsonl", "--only", "fi")
    assert code == 0
    assert f"2 of 3 documents are in fi and were written to {tmp_path / 'fi.jsonl'}; omitted: en 1." in message
    assert [json.loads(line)["text"] for line in (tmp_path / "fi.jsonl").open()] == [texts[0]] * 2
    code, message = xmtc("data", "language", tmp_path / "all.jsonl", tmp_path / "xx.jsonl", "--only", "finnish")
    assert "py3langid does not support the language 'finnish'; expected one of " in message
    assert not (tmp_path / "xx.jsonl").exists()
