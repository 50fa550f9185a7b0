"""Values of a review of a document."""

import numpy as np
import pytest

from xmtc import Document, Run, train
from xmtc.review.estimates import estimate_values

ONE = Run(threads=1)
DOCUMENTS = [
    Document(str(i), f"{words} {i}", [label])
    for i in range(20)
    for label, words in (("cat", "purr meow paw tail"), ("dog", "bark growl paw tail"))
]


@pytest.mark.parametrize(("method", "parameters"), [("parabel", {"min_df": 1}), ("fasttext", {"epochs": 5})])
def test_uncertainty_is_the_number_of_known_words_times_the_missing_score(method, parameters):
    tagger = train(DOCUMENTS, method, run=ONE, analyzer="words", **parameters) if method == "parabel" else train(
        DOCUMENTS, method, run=ONE, **parameters
    )  # fmt: skip
    texts = ["purr meow zzz", "purr meow paw tail purr", "zzz"]
    scores = tagger.predict(tagger.transform(texts, ONE), 2, ONE).scores.clip(0, 1).mean(axis=1)
    n_words = np.array([2, 4, 0])
    values = [value.uncertainty for value in estimate_values(tagger, texts, ONE)]
    assert values == pytest.approx(n_words * (1 - scores), abs=1e-6)


def test_rare_labels_and_disagreement():
    rare = [Document(f"r{i}", f"fly wing {i}", ["bird"]) for i in range(3)]
    tagger = train([*DOCUMENTS, *rare], "consensus", run=ONE, min_df=1, members=("parabel", "dismec"))
    common, unusual = estimate_values(tagger, ["purr meow", "fly wing"], ONE)
    assert unusual.rare > common.rare
    assert 0 <= common.disagreement <= 1
