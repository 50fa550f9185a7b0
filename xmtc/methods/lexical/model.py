"""The trained form of Lexical: names to look for, and what it means to find one."""

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
    automaton: AhoCorasickAutomaton
    evidence: MatchClassifier

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        docs, labels, scores = self._score_labels(self._tokens(data))
        return rank_scored_pairs(docs, labels, scores, data.n_docs, min(k, self.n_labels))

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """The words of its names share the score of a label; one that is not named has none to show."""
        (view,), tokens = self.views, self._tokens(document)
        _, labels, scores = self._score_labels(tokens)
        is_named = self.automaton.mark_name_tokens(tokens, label)
        score = scores[labels == label].sum()
        return Explanation.from_occurrences(view, tokens.ids, is_named * score / max(is_named.sum(), 1), per_token=True)

    def _tokens(self, data: Dataset) -> Tokens:
        (view,) = self.views
        return data.tokens(view)

    def _score_labels(self, tokens: Tokens) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Documents, labels and scores of everything that is answered."""
        found = self.automaton.find_matches(tokens, self.n_labels)
        scores = self.evidence.predict_probabilities(found, tokens.lengths).astype(np.float32)
        labels, shares = self.evidence.default_labels()
        if not len(labels):
            return found.docs, found.labels, scores

        docs, given = np.repeat(np.arange(tokens.n_docs), len(labels)), np.tile(labels, tokens.n_docs)
        named = found.docs.astype(np.int64) * self.n_labels + found.labels
        left = ~np.isin(docs * self.n_labels + given, named)
        parts = ((found.docs, docs[left]), (found.labels, given[left]), (scores, np.tile(shares, tokens.n_docs)[left]))
        docs, labels, scores = map(np.concatenate, parts)
        return docs, labels, scores

    def check(self) -> None:
        self.automaton.check_sizes(self.n_labels)
        self.evidence.check_sizes(self.n_labels)


def rank_scored_pairs(docs: np.ndarray, labels: np.ndarray, scores: np.ndarray, n_docs: int, k: int) -> Predictions:
    """The k best labels of each document; equal ones rank by label number."""
    order = np.lexsort((labels, -scores, docs))
    docs = docs[order]
    ranks = np.arange(len(docs)) - np.searchsorted(docs, docs)
    kept = ranks < k
    top, top_scores = np.full((n_docs, k), NO_LABEL, np.int32), np.zeros((n_docs, k), np.float32)
    top[docs[kept], ranks[kept]] = labels[order][kept]
    top_scores[docs[kept], ranks[kept]] = scores[order][kept]
    return Predictions.from_valid_arrays(top, top_scores)
