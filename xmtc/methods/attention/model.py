"""Model of AttentionXML and XML-RNN: one network per level of a label tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.methods.attention.network import MaxPooling, MultiLabelAttention, RecurrentNetwork
from xmtc.nn.batches import TokenBatch, TokenLoader
from xmtc.nn.devices import get_network_device, mixed_precision, select_device, use_torch_settings
from xmtc.nn.lstm import RecurrentEncoder
from xmtc.nn.network import Design, LabelNetwork, TrainedNetwork, check_positive, predict_with_network
from xmtc.storage.form import Form, array

VIEW = "words"
POOLINGS = ATTENTION, OWN_OUTPUT, MAX = "attention", "attention with own output", "max"
MISSING_SCORE = -1.0  # score of padding among the candidates


@dataclass(frozen=True, kw_only=True)
class RecurrentDesign(Design):
    """Design of the network of one level of a label tree."""

    n_words: int
    dimension: int
    hidden: int
    layers: tuple[int, ...]
    pooling: str  # one of POOLINGS
    n_labels: int  # nodes of the level

    def build(
        self,
        word_dropout: float = 0.0,
        dropout: float = 0.0,
        sparse: bool = False,
        whole_word_dropout: float = 0.0,
    ) -> RecurrentNetwork:
        sizes = self.n_words, self.dimension, self.hidden
        encoder = RecurrentEncoder(*sizes, word_dropout, dropout, whole_word_dropout)
        if self.pooling == MAX:
            return RecurrentNetwork(encoder, MaxPooling(self.n_labels, 2 * self.hidden, self.layers))
        own_output = self.pooling == OWN_OUTPUT
        return RecurrentNetwork(
            encoder, MultiLabelAttention(self.n_labels, 2 * self.hidden, self.layers, sparse, own_output)
        )

    def loader(self, data: Dataset, device: torch.device) -> TokenLoader:
        return TokenLoader(data.tokens(VIEW), device)

    def check(self) -> None:
        if self.pooling not in POOLINGS:
            raise ValueError(f"its network has pooling={self.pooling!r}; expected one of {', '.join(POOLINGS)}")
        check_positive(n_words=self.n_words, dimension=self.dimension, hidden=self.hidden, n_labels=self.n_labels)
        if not self.layers or min(self.layers) < 1:
            raise ValueError(f"its network has layers={self.layers}; expected sizes of at least 1")


@dataclass(frozen=True, kw_only=True)
class TreeLevel(Form):
    """Network of one level, and the children of every node of the level above."""

    network: TrainedNetwork
    children: np.ndarray = array(np.int32, ndim=2)  # (n_parents, max children), padded with NO_LABEL

    @property
    def n_nodes(self) -> int:
        return self.network.design_as(RecurrentDesign).n_labels


@dataclass(frozen=True, kw_only=True)
class AttentionModel(Model):
    """Model with P(label) = Π P(node | parent) along the path to the label (Algorithm 4)."""

    n_candidates: int  # C: nodes of a level whose children are candidates
    levels: tuple[TreeLevel, ...]

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        device, predictions = select_device(run), None
        loader = TokenLoader(data.tokens(VIEW), device)
        for level in self.levels:
            n_nodes = k if level is self.levels[-1] else self.n_candidates
            predictions = predict_level(
                level.network.load_on(device), level.children, loader, predictions, n_nodes, run
            )
        assert predictions is not None
        return predictions

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return the label's attention to each word (sum 1), or with max pooling, contributions to the logit."""
        device, tokens = torch.device("cpu"), document.tokens(VIEW)
        network = self.levels[-1].network.load_on(device)
        batch = TokenLoader(tokens, device).load_batch(np.array([0]))
        with torch.no_grad(), use_torch_settings(Run(device="cpu"), device):
            states = network.encoder(batch)
            weights = network.head.attribute_words(states, batch.make_mask(), label)[: batch.max_length].numpy()
        return Explanation.from_occurrences(VIEW, tokens.ids, weights, per_token=True)

    def check(self) -> None:
        if not self.levels or self.n_candidates < 1:
            raise ValueError(
                f"it has {len(self.levels)} levels and n_candidates={self.n_candidates}; expected at least 1"
            )
        sizes = [1, *(level.n_nodes for level in self.levels)]
        if sizes[-1] != self.n_labels:
            raise ValueError(f"its last network has {sizes[-1]} labels; expected {self.n_labels}")
        for level, n_parents in zip(self.levels, sizes[:-1], strict=True):
            n_words = level.network.design_as(RecurrentDesign).n_words
            if self.views != {VIEW: n_words}:
                raise ValueError(f"its network reads {n_words} words; expected the views {self.views}")
            if len(level.children) != n_parents or not level.children.size:
                raise ValueError(f"a level of its label tree has {len(level.children)} parents; expected {n_parents}")
            if level.children.min() < NO_LABEL or level.children.max() >= level.n_nodes:
                raise ValueError(f"its label tree has children outside 0 to {level.n_nodes - 1}")
            level.network.check()


def predict_level(
    network: Any,
    children: np.ndarray,
    loader: TokenLoader,
    parent_predictions: Predictions | None,
    k: int,
    run: Run,
) -> Predictions:
    """Return the k best nodes of a level: among all, or among the children of the parents (Algorithm 4)."""
    scorer = network if parent_predictions is None else CandidateScorer(network, children, parent_predictions)
    return predict_with_network(scorer, loader, k, run)


class CandidateScorer(LabelNetwork):
    """Network that scores the children of predicted parents; without parents, all nodes of the first level."""

    def __init__(self, network: Any, children: np.ndarray, parents: Predictions | None):
        super().__init__()
        self.network, self.parent_predictions, self.n_labels = network, parents, network.n_labels
        self.children_table = torch.from_numpy(children.astype(np.int64)).to(get_network_device(network))

    def batch_size(self, loader: TokenLoader) -> int:
        if self.parent_predictions is None:
            return self.network.batch_size(loader)
        return self.network.batch_size(loader, self.parent_predictions.k * self.children_table.shape[1])

    def predict_top_k(self, batch: TokenBatch, k: int) -> tuple[Tensor, Tensor]:
        candidates, scores = self.score_candidates(batch)
        top = scores.topk(min(k, scores.shape[1]))
        return gather_candidates(candidates, top.indices, top.values)

    def score_candidates(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Return the candidates and their scores ẑ, each of shape (n_docs, n_candidates).

        ẑ is the node's conditional probability times ẑ of its parent, and MISSING_SCORE for padding.
        """
        device = self.children_table.device
        if self.parent_predictions is None:
            with mixed_precision(device):
                scores = self.network(batch).float().sigmoid()
            return torch.arange(self.n_labels, device=device).expand_as(scores), scores

        parents = torch.from_numpy(self.parent_predictions.labels[batch.docs].astype(np.int64)).to(device)
        parent_scores = torch.from_numpy(self.parent_predictions.scores[batch.docs]).to(device)
        candidates, exists = gather_children(parents, self.children_table)
        with mixed_precision(device):
            conditional = self.network(batch, candidates).float().sigmoid()
        scores = conditional * parent_scores.repeat_interleave(self.children_table.shape[1], 1)
        return candidates, scores.masked_fill(~exists, MISSING_SCORE)


def gather_candidates(candidates: Tensor, columns: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the candidates in these columns with their scores; NO_LABEL replaces padding."""
    return candidates.gather(1, columns).masked_fill(scores < 0, NO_LABEL), scores.clamp(min=0)


def gather_children(nodes: Tensor, children: Tensor) -> tuple[Tensor, Tensor]:
    """Return the children of each document's nodes and a mask that is False at padding."""
    candidates = children[nodes.clamp(min=0)].masked_fill((nodes == NO_LABEL)[..., None], NO_LABEL).flatten(1)
    return candidates.clamp(min=0), candidates != NO_LABEL
