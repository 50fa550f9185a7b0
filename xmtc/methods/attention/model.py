"""The trained form of AttentionXML and XML-RNN: one network for every level of a label tree, or a single one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.base.dataset import Dataset, Tokens
from xmtc.base.method import Explanation, Model
from xmtc.base.predictions import NO_LABEL, Predictions
from xmtc.base.run import Run
from xmtc.methods.attention.network import Encoder, LabelAttention, MaxPooling, Network
from xmtc.nn.batches import Batch, Corpus
from xmtc.nn.devices import device_of, mixed, working
from xmtc.nn.weights import Weights

POOLINGS = ATTENTION, MAX = "attention", "max"
DOCS, DOCS_ON_GPU = 64, 512  # predicted at a time, at most
MOST_NUMBERS = {"cpu": 2**27, "cuda": 2**31}  # of one tensor in a prediction


@dataclass(frozen=True)
class Shape:
    """The sizes of a network."""

    n_words: int
    dimension: int
    hidden: int
    layers: tuple[int, ...]
    pooling: str  # one of POOLINGS

    def on_paper(self, n_labels: int) -> Network:
        """The network without memory for its weights, which are to come from elsewhere."""
        with torch.device("meta"):
            return self.network(n_labels)

    def network(self, n_labels: int, word_dropout: float = 0.0, dropout: float = 0.0, sparse: bool = False) -> Network:
        encoder = Encoder(self.n_words, self.dimension, self.hidden, word_dropout, dropout)
        if self.pooling == MAX:
            return Network(encoder, MaxPooling(n_labels, 2 * self.hidden, self.layers))
        return Network(encoder, LabelAttention(n_labels, 2 * self.hidden, self.layers, sparse))


@dataclass(frozen=True)
class Level:
    """The network for the nodes of a level, and which of them are the children of which node above."""

    n_nodes: int
    weights: Weights
    children: NDArray[np.int32]  # (n_nodes above, most children), filled up with NO_LABEL


@dataclass(frozen=True)
class AttentionModel(Model):
    """P(label) = Π P(node | node above) down the tree (Algorithm 4); in a single level, P(label)."""

    n_labels: int
    n_words: int
    shape: Shape
    n_candidates: int  # nodes of a level whose children are looked at: C
    levels: tuple[Level, ...]

    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        assert data.tokens is not None
        found: Predictions | None = None
        for number, level in enumerate(self.levels):
            width = k if number == len(self.levels) - 1 else self.n_candidates
            found = predict_level(self._network(number, run), level.children, data.tokens, found, width, run)
        assert found is not None
        return found

    def explain(self, document: Dataset, label: int) -> Explanation:
        """How much attention the label pays to each word, all in all 1; without attention, what it adds."""
        assert document.tokens is not None
        run = Run(device="cpu")
        network = self._network(len(self.levels) - 1, run)
        corpus = Corpus(document.tokens, torch.device("cpu"))
        batch = corpus.batch(np.array([0]))
        with torch.no_grad(), working(run, corpus.device):
            states, is_word = network.encoder(batch), batch.is_word()
            weights = network.head.weights_of_words(states, is_word, label)[: batch.longest].numpy()
        words = np.unique(document.tokens.ids)
        total = np.array([weights[document.tokens.ids == word].sum() for word in words], np.float32)
        order = np.argsort(-total, kind="stable")
        return Explanation(words[order].astype(np.int32), total[order], places=weights.astype(np.float32))

    def check(self) -> None:
        sizes = [1, *(level.n_nodes for level in self.levels)]
        sound = self.shape.n_words == self.n_words and self.n_candidates >= 1 and sizes[-1] == self.n_labels
        if not sound or not self.levels or self.shape.pooling not in POOLINGS:
            raise ValueError("its network is not for its words and labels")
        for level, n_above in zip(self.levels, sizes[:-1], strict=True):
            children = level.children
            if children.ndim != 2 or len(children) != n_above or not children.size:
                raise ValueError("the levels of its label tree do not fit together")
            if children.min() < NO_LABEL or children.max() >= level.n_nodes:
                raise ValueError("a node of its label tree has children that are not there")
            level.weights.check(self.shape.on_paper(level.n_nodes))

    def _network(self, number: int, run: Run) -> Network:
        """The network of a level, built at its first use on a device."""
        device = device_of(run)
        built = self.__dict__.setdefault("_built", {})
        if (number, device) not in built:
            level = self.levels[number]
            network = level.weights.into(self.shape.on_paper(level.n_nodes))
            built[number, device] = network.to(device).eval()
        return built[number, device]


@torch.inference_mode()
def predict_level(
    network: Network, children: np.ndarray, tokens: Tokens, above: Predictions | None, k: int, run: Run
) -> Predictions:
    """The k best nodes of a level: among all, or among the children of those found above, whose scores multiply."""
    device = next(network.parameters()).device
    corpus, k = Corpus(tokens, device), min(k, network.n_labels)
    labels, scores = np.full((corpus.n_docs, k), NO_LABEL, np.int32), np.zeros((corpus.n_docs, k), np.float32)
    table = torch.from_numpy(children.astype(np.int64)).to(device)
    with run.progress("predicting", corpus.n_docs) as progress, working(run, device):
        for docs in corpus.by_length(docs_at_once(network, table, above, device)):
            batch = corpus.batch(docs)
            with mixed(device):
                best = (
                    best_of_all(network, batch, k)
                    if above is None
                    else best_of_children(network, batch, above, table, k)
                )
            for array, tensor in zip((labels, scores), best, strict=True):
                array[batch.docs, : tensor.shape[1]] = tensor.cpu().numpy()
            progress.advance(len(docs))
    return Predictions(labels, scores)


def docs_at_once(network: Network, children: Tensor, above: Predictions | None, device: torch.device) -> int:
    """Documents of a prediction step: every label, or candidate, has a row of its own in each of them."""
    n_rows = network.n_labels if above is None else above.k * children.shape[1]
    most = MOST_NUMBERS.get(device.type, MOST_NUMBERS["cpu"]) // (n_rows * network.head.width)
    return max(1, min(most, DOCS_ON_GPU if device.type == "cuda" else DOCS))


def best_of_all(network: Network, batch: Batch, k: int) -> tuple[Tensor, Tensor]:
    best = network(batch).float().topk(k)
    return best.indices, best.values.sigmoid()


def best_of_children(
    network: Network, batch: Batch, above: Predictions, children: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    nodes = torch.from_numpy(above.labels[batch.docs].astype(np.int64)).to(children.device)
    candidates, known = children_of(nodes, children)
    parents = torch.from_numpy(above.scores[batch.docs]).to(children.device).repeat_interleave(children.shape[1], 1)
    scores = (network(batch, candidates).float().sigmoid() * parents).masked_fill(~known, -1.0)
    best = scores.topk(min(k, scores.shape[1]))
    found = candidates.gather(1, best.indices).masked_fill(best.values < 0, NO_LABEL)
    return found, best.values.clamp(min=0)


def children_of(nodes: Tensor, children: Tensor) -> tuple[Tensor, Tensor]:
    """The children of each document's nodes, and which of these places are taken; NO_LABEL has none."""
    candidates = children[nodes.clamp(min=0)].masked_fill((nodes == NO_LABEL)[..., None], NO_LABEL).flatten(1)
    return candidates.clamp(min=0), candidates != NO_LABEL
