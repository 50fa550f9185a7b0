"""Small linear models of every kind of tf-idf features, and odd Unicode texts, for the tests of exports."""

from __future__ import annotations

import random

from xmtc import Document, Tagger
from xmtc import train as train_tagger

ODD_TEXTS = [
    "",
    "   ",
    "Ääkköset ja Åland: öljyä, hääyöaie; kielitiede_2 — ÄÄKKÖSET",
    "A\u0308a\u0308kko\u0308set nfd and e\u0301te\u0301",
    "ΟΔΥΣΣΕΥΣ Σ σ ΌΣΟΣ ΣΑΣ",
    "İstanbul ıI straße STRASSE ﬁnance ﬀ",
    "हिन्दी भाषा और संस्कृतम्",
    "中文分类 图书馆 日本語の本 한국어 한국",
    "العربيّة مُحَمَّد",
    "ไทย ภาษา",
    "a\u200db zero\u200bwidth soft\u00adhyphen non\u00a0break tab\there\x1fsep\x0bvt",
    "x\U0001f600y \U0001d11e \U00020000\U00020001 \U000e0100mark",
    "lone \ud800 surrogate \udfff end",
    "q" + "\u0301" * 40 + "z marks",
    "a b c dd eee _under_ 1 22 3.14 c++ e-mail ²³ ½ Ⅷ",
    "one two three two one two three four",
]
WORDS = (
    "kirja talo metsä järvi hääyöaie öljy kone tiede koulu musiikki taide 中文 图书 हिन्दी Σας straße ocean book".split()
)


def make_documents(n: int, seed: int = 0) -> list[Document]:
    chosen = random.Random(seed)
    documents = []
    for number in range(n):
        labels = chosen.sample(range(30), 2)
        words = [f"{WORDS[label % len(WORDS)]}{label}" for label in labels for _ in range(3)]
        words += chosen.choices(WORDS, k=6) + chosen.choices(ODD_TEXTS[-1].split(), k=2)
        documents.append(Document(str(number), " ".join(words), [f"label {label}" for label in labels]))
    return documents + [Document(f"odd {i}", text, ["label 0"]) for i, text in enumerate(ODD_TEXTS) if text.strip()]


def train(method: str = "parabel", analyzer: str = "words", **parameters) -> Tagger:
    return train_tagger(make_documents(300), method, analyzer=analyzer, min_df=1, **parameters)


CASES = {
    "parabel": {"max_leaf": 8},
    "one tree": {"max_leaf": 8, "n_trees": 1},
    "plt": {"method": "plt"},
    "dismec": {"method": "dismec"},
    "chars": {"method": "dismec", "analyzer": "words+chars"},
    "bigrams": {"method": "dismec", "analyzer": "words:1-2", "ngram_skip": 2, "stop_words": "one,Two,"},
    "chunks": {"method": "dismec", "tokens": "chunks", "lowercase": False, "sublinear_tf": False},
    "grams": {"method": "dismec", "analyzer": "grams:1-4", "calibrate": False},
}


def texts() -> list[str]:
    return [*ODD_TEXTS, *(document.text for document in make_documents(40, seed=1))]
