"""The trained form of AttentionXML and XML-RNN: one network for every level of a label tree, or a single one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation, Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.methods.attention.network import MaxPooling, MultiLabelAttention, RecurrentNetwork
from xmtc.nn.batches import TokenBatch, TokenLoader
from xmtc.nn.devices import mixed_precision, select_device, use_torch_settings
from xmtc.nn.lstm import RecurrentEncoder
from xmtc.nn.network import Design, TrainedNetwork, get_network_device, predict_with_network
from xmtc.storage.form import Form, array

VIEW = "words"
POOLINGS = ATTENTION, OWN_OUTPUT, MAX = "attention", "attention with own output", "max"
MISSING_SCORE = -1.0  # the score of a candidate that is none


@dataclass(frozen=True, kw_only=True)
class RecurrentDesign(Design):
    """The sizes of a network for the nodes of a level, or for all labels."""

    n_words: int
    dimension: int
    hidden: int
    layers: tuple[int, ...]
    pooling: str  # one of POOLINGS
    n_labels: int

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
        sizes = (self.n_words, self.dimension, self.hidden, self.n_labels, *self.layers)
        if self.pooling not in POOLINGS or not self.layers or min(sizes) < 1:
            raise ValueError("its network is none")


@dataclass(frozen=True, kw_only=True)
class TreeLevel(Form):
    """The network for the nodes of a level, and which of them are the children of which node above."""

    network: TrainedNetwork
    children: np.ndarray = array(np.int32, ndim=2)  # (n_nodes above, most children), filled up with NO_LABEL

    @property
    def n_nodes(self) -> int:
        return self.network.design_as(RecurrentDesign).n_labels


@dataclass(frozen=True, kw_only=True)
class AttentionModel(Model):
    """P(label) = Π P(node | node above) down the tree (Algorithm 4); in a single level, P(label)."""

    n_candidates: int  # nodes of a level whose children are looked at: C
    levels: tuple[TreeLevel, ...]

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        device, found = select_device(run), None
        loader = TokenLoader(data.tokens(VIEW), device)
        for level in self.levels:
            width = k if level is self.levels[-1] else self.n_candidates
            found = predict_level(level.network.load_on(device), level.children, loader, found, width, run)
        assert found is not None
        return found

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """How much attention the label pays to each word, all in all 1; without attention, what it adds."""
        device, tokens = torch.device("cpu"), document.tokens(VIEW)
        network = self.levels[-1].network.load_on(device)
        batch = TokenLoader(tokens, device).load_batch(np.array([0]))
        with torch.no_grad(), use_torch_settings(Run(device="cpu"), device):
            states = network.encoder(batch)
            weights = network.head.attribute_words(states, batch.make_mask(), label)[: batch.max_length].numpy()
        return Explanation.from_occurrences(VIEW, tokens.ids, weights, per_token=True)

    def check(self) -> None:
        sizes = [1, *(level.n_nodes for level in self.levels)]
        views = [{VIEW: level.network.design_as(RecurrentDesign).n_words} for level in self.levels]
        if (
            not views
            or any(view != self.views for view in views)
            or self.n_candidates < 1
            or sizes[-1] != self.n_labels
        ):
            raise ValueError("its network is not for its words and labels")
        for level, n_above in zip(self.levels, sizes[:-1], strict=True):
            if len(level.children) != n_above or not level.children.size:
                raise ValueError("the levels of its label tree do not fit together")
            if level.children.min() < NO_LABEL or level.children.max() >= level.n_nodes:
                raise ValueError("a node of its label tree has children that are not there")
            level.network.check()


def predict_level(
    network: RecurrentNetwork,
    children: np.ndarray,
    loader: TokenLoader,
    parent_predictions: Predictions | None,
    k: int,
    run: Run,
) -> Predictions:
    """The k best nodes of a level: among all, or among the children of those found above, whose scores multiply."""
    answering = network if parent_predictions is None else CandidateScorer(network, children, parent_predictions)
    return predict_with_network(answering, loader, k, run)


class CandidateScorer:
    """A network that answers with children of the nodes found above; in the first level, with any node."""

    def __init__(self, network: RecurrentNetwork, children: np.ndarray, above: Predictions | None):
        self.network, self.parent_predictions, self.n_labels = network, above, network.n_labels
        self.children = torch.from_numpy(children.astype(np.int64)).to(get_network_device(network))

    def parameters(self) -> object:
        return self.network.parameters()

    def modules(self) -> object:
        return self.network.modules()

    def batch_size(self, loader: TokenLoader) -> int:
        return self.network.batch_size(
            loader, None if self.parent_predictions is None else self.parent_predictions.k * self.children.shape[1]
        )

    def predict_top_k(self, batch: TokenBatch, k: int) -> tuple[Tensor, Tensor]:
        candidates, scores = self.score_candidates(batch)
        top = scores.topk(min(k, scores.shape[1]))
        return gather_candidates(candidates, top.indices, top.values)

    def score_candidates(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """The candidates, (n_docs, n_candidates), and ẑ of each: its own probability times its parent's ẑ; MISSING
        where there is none."""
        device = self.children.device
        if self.parent_predictions is None:
            with mixed_precision(device):
                scores = self.network(batch).float().sigmoid()
            return torch.arange(self.n_labels, device=device).expand_as(scores), scores

        nodes = torch.from_numpy(self.parent_predictions.labels[batch.docs].astype(np.int64)).to(device)
        parents = torch.from_numpy(self.parent_predictions.scores[batch.docs]).to(device)
        candidates, known = gather_children(nodes, self.children)
        with mixed_precision(device):
            conditional = self.network(batch, candidates).float().sigmoid()
        scores = conditional * parents.repeat_interleave(self.children.shape[1], 1)
        return candidates, scores.masked_fill(~known, MISSING_SCORE)


def gather_candidates(candidates: Tensor, chosen: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The candidates at these places, whose scores these are; NO_LABEL where there is none."""
    return candidates.gather(1, chosen).masked_fill(scores < 0, NO_LABEL), scores.clamp(min=0)


def gather_children(nodes: Tensor, children: Tensor) -> tuple[Tensor, Tensor]:
    """The children of each document's nodes, and which of them are there; NO_LABEL has none."""
    candidates = children[nodes.clamp(min=0)].masked_fill((nodes == NO_LABEL)[..., None], NO_LABEL).flatten(1)
    return candidates.clamp(min=0), candidates != NO_LABEL
