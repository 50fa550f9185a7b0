"""Description of tf-idf features for readers without xmtc."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from xmtc.errors import XmtcError
from xmtc.features.tfidf import AnalyzedTfidf, FittedTfidf, JoinedTfidf
from xmtc.tagger import Tagger
from xmtc.text.analyzers import CharNgramAnalyzer, get_analyzer
from xmtc.text.normalisation import normalize_text


@dataclass(frozen=True)
class TextFeatures:
    """Tf-idf features: settings of each part, and its terms and idf weights by column."""

    parts: list[dict[str, Any]]
    terms: list[list[str]]
    idf: np.ndarray  # (n_features,) float64, of all parts one after the other


def describe_features(tagger: Tagger) -> TextFeatures:
    """Return the tf-idf features of a model; raise XmtcError if another program cannot compute the same features."""
    tagger.check()
    view = tagger.views.get("tfidf") if len(tagger.views) == 1 else None
    if isinstance(view, FittedTfidf):
        parts: tuple[FittedTfidf, ...] = (view,)
    elif isinstance(view, JoinedTfidf):
        parts = view.parts
    else:
        raise XmtcError(
            f"The features of this model ({' and '.join(tagger.views)}) cannot be exported: only tf-idf features of "
            "texts can, without dense=. Format onnx takes the features of any linear model."
        )
    settings = [describe_part(part) for part in parts]
    return TextFeatures(settings, [part.vocabulary.words() for part in parts], np.concatenate([p.idf for p in parts]))


def describe_part(part: FittedTfidf) -> dict[str, Any]:
    """Return the settings of one analyzer."""
    tokenizer, grams = part.tokenizer, None
    if tokenizer.pattern:
        raise XmtcError(
            "Features with tokens=names or token_pattern= cannot be exported: they need regular expressions of RE2. "
            "Train with tokens=words, or export with format onnx, which takes features."
        )
    if isinstance(part, AnalyzedTfidf):
        analyzer = get_analyzer(part.analyzer)
        if not isinstance(analyzer, CharNgramAnalyzer):
            raise XmtcError(
                f"Features with analyzer={part.analyzer} cannot be exported: they need a stemmer. Train with "
                "analyzer=words, words:1-2 or words+chars, or export with format onnx, which takes features."
            )
        grams = [analyzer.min_n, analyzer.max_n]
    return {
        "lowercase": tokenizer.lowercase,
        "min_chars": tokenizer.min_chars,
        "unit": tokenizer.unit,
        "ngrams": tokenizer.ngrams,
        "skip": tokenizer.skip,
        "stop_words": [normalize_text(word, tokenizer.lowercase) for word in tokenizer.stop_words],
        "grams": grams,
        "sublinear_tf": part.sublinear_tf,
    }
