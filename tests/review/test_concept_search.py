"""Search over all concepts of a vocabulary, beside a plain search over all names."""

from __future__ import annotations

import random

import pytest

from xmtc import Classifier, Run
from xmtc.review.concept_search import EQUAL, INSIDE, START, WORD_START, ConceptSearch, find_label_form
from xmtc.vocabulary import import_files
from xmtc.vocabulary.vocabulary import normalize_name

SYLLABLES = ("ka", "lo", "mi", "tu", "re", "san", "vä", "no", "pel", "ti")


def make_tagger(folder, n_concepts, labels, seed=0, languages=("en", "fi", "sv")):
    """Train a model that knows three of many concepts."""
    chosen = random.Random(seed)

    def name():
        words = ["".join(chosen.choices(SYLLABLES, k=chosen.randint(2, 4))) for _ in range(chosen.randint(1, 3))]
        return " ".join(words)

    columns = [f"{kind}_{language}" for language in languages for kind in ("label", "altlabel")]
    lines = ["\t".join(["uri", *columns])]
    lines += ["\t".join([f"http://x.org/c{i}", *(name() for _ in columns)]) for i in range(n_concepts)]
    table = folder / "concepts.tsv"
    table.write_text("\n".join(lines) + "\n")
    texts = [f"word{i % 3} text" for i in range(30)]
    classifier = Classifier("parabel", calibrate=False).fit(
        texts, [[labels[i % 3]] for i in range(30)], run=Run(threads=1)
    )
    classifier.attach(import_files([str(table)]), "en")
    return classifier.tagger_


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    labels = ["http://x.org/c1", "http://x.org/c2", "outside"]
    return ConceptSearch(make_tagger(tmp_path_factory.mktemp("search"), 3000, labels))


def rank_plainly(search, wanted):
    """Return the rank of each item that matches, by reading all names."""
    ranks = {}
    for item, name in search._list_names():
        name = normalize_name(name)
        if wanted in name:
            inside = WORD_START if b" " + wanted in name else INSIDE
            rank = EQUAL if name == wanted else START if name.startswith(wanted) else inside
            ranks[item] = min(ranks.get(item, (INSIDE, 1 << 30)), (rank, len(name)))
    return ranks


@pytest.mark.parametrize("text", ["kalomi", "vä", "Loka MITU", "pelti no", "zz", "k", "outside", "c2999"])
def test_search_equals_a_plain_search(search, text):
    expected = rank_plainly(search, normalize_name(text))
    found = list(dict.fromkeys(search.index.items[i] for i in search.index.rank_names(normalize_name(text))))
    assert set(found) <= set(expected)
    if len(expected) <= 1000:  # fewer names than a scan looks at
        assert set(found) == set(expected)
        ranks = [expected[item] for item in found]
        assert [rank for rank, _ in ranks] == sorted(rank for rank, _ in ranks) or text in ("vä", "k")
    results = search.search(text, limit=20)
    assert len(results) == min(20, len(expected))
    if expected:
        best = min(expected.values())
        first = search.labels.size + 2 if results[0].label == "outside" else int(results[0].uri.rpartition("c")[2])
        assert expected[first][0] == best[0]


def test_unknown_concepts_have_labels_like_the_known_ones(search):
    assert search.form == "uri"
    known = search.describe_label("http://x.org/c1")
    unknown = search.describe_label("http://x.org/c7", "fi")
    assert (known.is_known, unknown.is_known) == (True, False)
    assert unknown.name == search.tagger.concepts.vocabulary.name(7, "fi")
    assert search.search("http://x.org/c7")[0].label == "http://x.org/c7"
    assert search.search("outside")[0] == ("outside", "outside", [], True, "outside")
    assert search.describe_label("never seen") == ("never seen", "never seen", [], False, "never seen")


def test_labels_by_name_are_offered_by_name(tmp_path):
    tagger = make_tagger(tmp_path, 50, ["a", "b", "c"])
    vocabulary = tagger.concepts.vocabulary
    named = make_tagger(tmp_path, 50, [vocabulary.name(i) for i in range(3)])
    assert find_label_form(named) == "name"
    search = ConceptSearch(named)
    assert search.find_label("http://x.org/c9") == vocabulary.name(9)
    assert search.find_label("http://elsewhere.org/x") == "http://elsewhere.org/x"


def test_filter_limits_the_results(search):
    found = search.search(
        search.tagger.concepts.vocabulary.name(5)[:2], limit=100, allow=["http://x.org/c5", "outside"]
    )
    assert [match.uri for match in found] == ["http://x.org/c5"]
    assert [match.label for match in search.search("outside", allow=["outside"])] == ["outside"]
