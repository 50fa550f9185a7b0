"""The trained form of APLC-XLNet: a fine-tuned encoder and its output layer. It needs neither the folder that the
encoder came from nor a hub."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from xmtc.data.dataset import Dataset, Tokens
from xmtc.method import Explanation, Model
from xmtc.nn.batches import Corpus
from xmtc.nn.clusters import Clusters, LabelClusters
from xmtc.nn.devices import device_of, mixed, working
from xmtc.nn.encoder import POOLINGS, TextEncoder, built
from xmtc.nn.transformer import ClusteredTransformer
from xmtc.nn.weights import Weights
from xmtc.predictions import NO_LABEL, Predictions
from xmtc.run import Run
from xmtc.text.encoder_packages import first_sentence

DOCS, DOCS_ON_GPU = 32, 256  # predicted at a time, at most
MOST_STEPS = 1000  # of explanations
MOST_NUMBERS = {"cpu": 2**26, "cuda": 2**30}  # scores of a cluster in a step of prediction


@dataclass(frozen=True)
class Design:
    """What the network is, without its weights."""

    encoder: str  # its configuration, as transformers writes it: JSON
    pooling: str  # one of POOLINGS
    hidden: int  # d
    sizes: tuple[int, ...]  # labels of each cluster
    factor: int  # q
    biases: bool  # of the clusters' labels

    def network(self, encoder: object = None, dropout: float = 0.0) -> ClusteredTransformer:
        """With the encoder given, or one that has yet to learn everything."""
        text = TextEncoder(encoder or built(self.encoder), self.pooling)
        clusters = Clusters(self.sizes, self.hidden, self.factor)
        return ClusteredTransformer(text, LabelClusters(clusters, self.biases), dropout)

    def on_paper(self, n_names: int) -> ClusteredTransformer:
        """Without memory for its weights, for names and shapes alone: no more layers than there are names."""
        try:
            with torch.device("meta"):
                return self.network(built(self.encoder, n_names))
        except Exception as error:  # what libraries raise where a configuration is none has many names
            raise ValueError(f"its encoder cannot be built: {first_sentence(error)}") from None


@dataclass(frozen=True)
class TransformerModel(Model):
    """P(label), or P(tail) P(label | tail): eq. 2."""

    n_labels: int
    n_subwords: int
    design: Design
    order: NDArray[np.int32]  # (n_labels,) labels from the most frequent to the rarest, as the output layer has them
    weights: Weights
    steps: int  # of explanations: points at which gradients are taken

    def predict(self, data: Dataset, k: int = 5, run: Run = Run()) -> Predictions:
        assert data.subwords is not None
        return predict_with(self._network(run), self.order, data.subwords, k, run)

    def explain(self, document: Dataset, label: int) -> Explanation:
        """What each subword adds to the label's logit, by the gradients on the way to it."""
        assert document.subwords is not None
        run, ids = Run(device="cpu"), document.subwords.ids
        network, place = self._network(run), int(np.flatnonzero(self.order == label)[0])
        with working(run, torch.device("cpu")):
            places = network.parts_of_logit(torch.from_numpy(ids.astype(np.int64)), place, self.steps).numpy()
        numbers, which = np.unique(ids, return_inverse=True)
        total = np.bincount(which, places, len(numbers)).astype(np.float32)
        order = np.argsort(-total, kind="stable")
        return Explanation(numbers[order].astype(np.int32), total[order], places.astype(np.float32))

    def check(self) -> None:
        design = self.design
        if not design.sizes or min(design.sizes) < 1 or sum(design.sizes) != self.n_labels:
            raise ValueError("its clusters are not those of its labels")
        if not 1 <= self.steps <= MOST_STEPS:
            raise ValueError(f"its explanations take {self.steps} steps")
        if design.pooling not in POOLINGS or design.hidden < 1 or design.factor < 1:
            raise ValueError("its network is none")
        if not np.array_equal(np.sort(self.order), np.arange(self.n_labels)):
            raise ValueError("its order of labels does not name each once")
        network = design.on_paper(len(self.weights.names))
        if len(network.encoder.model.get_input_embeddings().weight) < self.n_subwords:
            raise ValueError("its encoder is not for its subwords")
        self.weights.check(network)
        if not all(np.isfinite(array).all() for array in self.weights.arrays):
            raise ValueError("some of its weights are no numbers")

    @property
    def longest(self) -> int | None:
        """Subwords of a text that its encoder can tell the places of; None where there is no limit."""
        return self.design.on_paper(len(self.weights.names)).encoder.longest

    def _network(self, run: Run) -> ClusteredTransformer:
        """The network, built at its first use on a device."""
        device = device_of(run)
        networks = self.__dict__.setdefault("_built", {})
        if device not in networks:
            with torch.random.fork_rng([]):  # the weights that it begins with are random, and at once replaced
                network = self.design.network()
            # explanations take gradients, but of what the network reads
            networks[device] = self.weights.into(network).to(device).eval().requires_grad_(False)
        return networks[device]


@torch.inference_mode()
def predict_with(network: ClusteredTransformer, order: np.ndarray, tokens: Tokens, k: int, run: Run) -> Predictions:
    """The k best labels. The encoder computes in bf16 where there is a GPU for it, the output layer in float32."""
    device = next(network.parameters()).device
    corpus, k = Corpus(tokens, device), min(k, len(order))
    labels, scores = np.full((corpus.n_docs, k), NO_LABEL, np.int32), np.zeros((corpus.n_docs, k), np.float32)
    most = MOST_NUMBERS.get(device.type, MOST_NUMBERS["cpu"]) // max(network.head.clusters.sizes)
    at_once = max(1, min(most, DOCS_ON_GPU if device.type == "cuda" else DOCS))
    with run.progress("predicting", corpus.n_docs) as progress, working(run, device):
        for docs in corpus.by_length(at_once):
            batch = corpus.batch(docs)
            with mixed(device):
                pooled = network.pooled(batch)
            found, probabilities = network.head.best(network.after(pooled.float()), k)
            labels[batch.docs], scores[batch.docs] = order[found.cpu().numpy()], probabilities.cpu().numpy()
            progress.advance(len(docs))
    return Predictions(labels, scores)
