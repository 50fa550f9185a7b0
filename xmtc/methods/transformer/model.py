"""The trained form of APLC-XLNet: a fine-tuned encoder and its output layer. It needs neither the folder that the
encoder came from nor a hub."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.base.dataset import Dataset
from xmtc.base.method import Explanation, Model
from xmtc.base.predictions import NO_LABEL, Predictions
from xmtc.base.run import Run
from xmtc.encoders.catalogue import first_sentence
from xmtc.encoders.loading import POOLINGS, TextEncoder, built
from xmtc.methods.transformer.clusters import Clusters, LabelClusters
from xmtc.methods.transformer.network import ClusteredTransformer
from xmtc.methods.transformer.states import AnyBatch, States
from xmtc.nn.batches import Corpus
from xmtc.nn.devices import device_of, mixed, moved, working
from xmtc.nn.weights import Weights

DOCS = {"cpu": 32, "cuda": 256}  # read at a time, at most
MOST_NUMBERS = {"cpu": 2**26, "cuda": 2**30}  # scores of a cluster in a step of prediction
MOST_STEPS = 1000  # of explanations


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
        return predict_with(self._network(run), self.order, Corpus(data.subwords, device_of(run)), k, run)

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
def predict_with(
    network: ClusteredTransformer, order: np.ndarray, corpus: Corpus | States, k: int, run: Run
) -> Predictions:
    """The k best labels. The encoder computes in bf16 where there is a GPU for it, the output layer in float32, or TF32
    there."""
    device, k = next(network.parameters()).device, min(k, len(order))
    labels, scores = np.full((corpus.n_docs, k), NO_LABEL, np.int32), np.zeros((corpus.n_docs, k), np.float32)
    most = of_device(MOST_NUMBERS, device) // max(network.head.clusters.sizes)
    with run.progress("predicting", corpus.n_docs) as progress, working(run, device):
        for docs in corpus.by_length(max(1, min(most, of_device(DOCS, device)))):
            batch = corpus.batch(docs)
            found, probabilities = network.head.best(network.after(state_of(network, batch)), k)
            best = found.cpu().numpy()
            # none where its scores are no numbers
            labels[batch.docs] = np.where(best == NO_LABEL, NO_LABEL, order[best])
            scores[batch.docs] = probabilities.cpu().numpy()
            progress.advance(len(docs))
    return Predictions(labels, scores)


@torch.no_grad()
def states_of(network: ClusteredTransformer, run: Run, corpus: Corpus, piece: str) -> States:
    """What the encoder says of every document, to be read again and again; a piece of the checkpoint."""
    device, kept = next(network.parameters()).device, run.checkpoint.recall(piece)
    if kept is not None:
        return States(torch.from_numpy(kept["states"]).to(device))
    network.eval()
    states = torch.empty(corpus.n_docs, network.encoder.width, device=device)
    with run.progress("encoding texts", corpus.n_docs) as progress, working(run, device):
        for docs in corpus.by_length(of_device(DOCS, device)):
            batch = corpus.batch(docs)
            states[moved(batch.docs, device)] = state_of(network, batch)
            progress.advance(len(docs))
    run.checkpoint.keep(piece, {"states": states.cpu().numpy()})
    return States(states)


def of_device(limits: dict[str, int], device: torch.device) -> int:
    return limits.get(device.type, limits["cpu"])


def state_of(network: ClusteredTransformer, batch: AnyBatch) -> Tensor:
    with mixed(next(network.parameters()).device):
        return network.pooled(batch).float()
