"""Model of Lexical: an automaton that finds label names, and a classifier of the matches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xmtc.core.dataset import Dataset, Tokens
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.methods.lexical.automaton import AhoCorasickAutomaton
from xmtc.methods.lexical.match_classifier import MatchClassifier


@dataclass(frozen=True, kw_only=True)
class LexicalModel(Model):
    """Probabilities of the labels whose names occur in a document."""

    automaton: AhoCorasickAutomaton
    evidence: MatchClassifier

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        docs, labels, scores = self._score_labels(self._tokens(data))
        return rank_scored_pairs(docs, labels, scores, data.n_docs, min(k, self.n_labels))

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Divide the label's score equally among the words of its names in the document."""
        (view,), tokens = self.views, self._tokens(document)
        _, labels, scores = self._score_labels(tokens)
        is_named = self.automaton.mark_name_tokens(tokens, label)
        score = scores[labels == label].sum()
        return Explanation.from_occurrences(view, tokens.ids, is_named * score / max(is_named.sum(), 1), per_token=True)

    def _tokens(self, data: Dataset) -> Tokens:
        (view,) = self.views
        return data.tokens(view)

    def _score_labels(self, tokens: Tokens) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return documents, labels and scores of all matches, and of the default labels in every document."""
        matches = self.automaton.find_matches(tokens, self.n_labels)
        scores = self.evidence.predict_probabilities(matches, tokens.lengths).astype(np.float32)
        defaults, shares = self.evidence.default_labels()
        if not len(defaults):
            return matches.docs, matches.labels, scores

        docs, labels = np.repeat(np.arange(tokens.n_docs), len(defaults)), np.tile(defaults, tokens.n_docs)
        matched_pairs = matches.docs.astype(np.int64) * self.n_labels + matches.labels
        is_unmatched = ~np.isin(docs * self.n_labels + labels, matched_pairs)
        return (
            np.concatenate([matches.docs, docs[is_unmatched]]),
            np.concatenate([matches.labels, labels[is_unmatched]]),
            np.concatenate([scores, np.tile(shares, tokens.n_docs)[is_unmatched]]),
        )

    def check(self) -> None:
        self.automaton.check_sizes(self.n_labels)
        self.evidence.check_sizes(self.n_labels)


def rank_scored_pairs(docs: np.ndarray, labels: np.ndarray, scores: np.ndarray, n_docs: int, k: int) -> Predictions:
    """Return the k labels with the highest scores for each document; ties are broken by label number."""
    order = np.lexsort((labels, -scores, docs))
    docs = docs[order]
    ranks = np.arange(len(docs)) - np.searchsorted(docs, docs)
    is_top = ranks < k
    top_labels, top_scores = np.full((n_docs, k), NO_LABEL, np.int32), np.zeros((n_docs, k), np.float32)
    top_labels[docs[is_top], ranks[is_top]] = labels[order][is_top]
    top_scores[docs[is_top], ranks[is_top]] = scores[order][is_top]
    return Predictions.from_valid_arrays(top_labels, top_scores)
