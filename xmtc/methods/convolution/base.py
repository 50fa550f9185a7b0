"""What XML-CNN and Bow-CNN share: regions of words become numbers, which are pooled over chunks of the text, and a flat
output layer reads labels off them. Here are pooling, training, the trained form and its explanation."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import dropout

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import Explanation
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.nn import distributed
from xmtc.nn.batch_norm import BatchNorm
from xmtc.nn.batches import LabelLoader, TokenBatch, TokenLoader
from xmtc.nn.devices import get_network_device, mixed_precision, move_to_device, use_torch_settings
from xmtc.nn.label_clusters import compute_label_log_odds
from xmtc.nn.method import WordNetworkMethod
from xmtc.nn.network import (
    Design,
    LabelNetwork,
    NetworkModel,
    TrainedNetwork,
    Weights,
    get_device_limit,
    predict_with_network,
)
from xmtc.nn.output_losses import CrossEntropyLoss, PositiveLabels, compute_output_loss
from xmtc.nn.training import fit_network, prepare_training

VIEW = "words"
MAX_TENSOR_ELEMENTS = {"cpu": 2**25, "cuda": 2**30}  # of one tensor in an answer
POOLINGS = MAX, MEAN = "max", "mean"
MAX_UNSCALED_WIDTH = 512  # numbers that labels read, normalised; where there are more, each is as much smaller


class ConvolutionalNetwork(LabelNetwork):
    """Words → regions → pooled → hidden → labels. A subclass has an `embedding` and `pooled`."""

    embedding: nn.Embedding
    n_maps: int  # numbers of a region

    def __init__(self, width: int, design: ConvolutionalDesign, dropout: float):
        super().__init__()
        self.n_labels, self.output, self.dropout = design.n_labels, nn.Linear(width, design.n_labels), dropout
        self.output_norm = BatchNorm(width) if design.output_norm else None

    @abstractmethod
    def pool_features(self, words: Tensor, batch: TokenBatch) -> Tensor:
        """(n_docs, width) what there is to know of the texts, from the vectors of the batch's words, (n_tokens, d)."""

    def encode(self, words: Tensor, batch: TokenBatch) -> Tensor:
        """(n_docs, width) what labels are read off. After a ReLU all numbers are positive and much alike in all texts:
        a step of Adam would move a label's logit of every text at once, and the more so the rarer the label is. As it
        moves every weight by the rate, a logit moves the more the more numbers there are; many are made small."""
        pooled = self.pool_features(words, batch)
        if self.output_norm is not None:
            pooled = self.output_norm(pooled.float())  # bf16 has too few digits for a mean
            pooled = pooled * min(1.0, MAX_UNSCALED_WIDTH / pooled.shape[1])
        return dropout(pooled, self.dropout, self.training)

    def embed_words(self, batch: TokenBatch) -> Tensor:
        """(n_tokens, d) the vectors of the batch's words."""
        return self.embedding(batch.ids)

    def forward(self, batch: TokenBatch) -> Tensor:
        return self.output(self.encode(self.embed_words(batch), batch))

    def batch_size(self, loader: TokenLoader) -> int:
        numbers = max(self.n_labels, loader.max_length * self.n_maps)
        return max(
            1,
            min(get_device_limit(MAX_TENSOR_ELEMENTS, get_network_device(self)) // numbers, super().batch_size(loader)),
        )

    def predict_top_k(self, batch: TokenBatch, k: int) -> tuple[Tensor, Tensor]:
        with mixed_precision(batch.ids.device):
            hidden = self.encode(self.embed_words(batch), batch)
        top = self.output(hidden.float()).topk(min(k, self.n_labels))  # bf16 has too few digits to rank by
        return top.indices, top.values.sigmoid()

    @torch.no_grad()
    def initialise_biases(self, Y: csr_array) -> None:
        """Before it has learnt anything, every label has the probability that it has among these documents."""
        self.output.bias.copy_(compute_label_log_odds(Y))


class NetworkWithLoss(nn.Module):
    """A network while it is trained. A forward pass gives the loss: binary cross-entropy, summed over labels."""

    def __init__(self, network: ConvolutionalNetwork):
        super().__init__()
        self.network = network

    def forward(self, batch: TokenBatch, rows: Tensor, labels: Tensor) -> Tensor:
        """rows and labels: those of the batch's documents, in the order of the documents."""
        hidden, output = self.network.encode(self.network.embed_words(batch), batch), self.network.output
        return compute_output_loss(
            CrossEntropyLoss(),
            hidden,
            output.weight,
            output.bias,
            PositiveLabels.from_pairs(rows, labels, batch.n_docs),
        )


def compute_chunk_offsets(lengths: Tensor, n_chunks: int) -> Tensor:
    """(n_docs, n_chunks + 1) where the chunks of texts of so many regions begin, and where the last ends: all about
    equally long, and each text's own, so that an answer does not depend on the others of its batch."""
    steps = torch.arange(n_chunks + 1, device=lengths.device)
    return -(-steps * lengths[:, None] // n_chunks)


def max_pool_chunks(regions: Tensor, lengths: Tensor, n_chunks: int) -> Tensor:
    """(n_docs, n_maps, n_chunks) the largest of each map in each chunk, of (n_docs, n_maps, width); 0 where a text is
    so short that a chunk is empty."""
    begins = compute_chunk_offsets(lengths, n_chunks)
    first, end = begins[:, :-1], begins[:, 1:]
    with torch.no_grad():
        most = -(-regions.shape[2] // n_chunks) + 1
        places = first[..., None] + torch.arange(most, device=lengths.device)
        places = places.minimum(end[..., None] - 1).clamp(min=0)  # what stands twice changes no maximum
        n_docs, n_maps, _ = regions.shape
        spread = regions.gather(2, places.view(n_docs, 1, -1).expand(-1, n_maps, -1)).view(n_docs, n_maps, n_chunks, -1)
        winners = places[:, None].expand(-1, n_maps, -1, -1).gather(3, spread.argmax(3, keepdim=True))[..., 0]
    return regions.gather(2, winners).masked_fill((first == end)[:, None], 0.0)


def mean_pool_chunks(regions: Tensor, lengths: Tensor, n_chunks: int) -> Tensor:
    """(n_docs, n_chunks, n_maps) the mean of each map in each chunk, of (n_docs, width, n_maps)."""
    begins = compute_chunk_offsets(lengths, n_chunks)
    first, end = begins[:, :-1, None], begins[:, 1:, None]
    place = torch.arange(regions.shape[1], device=lengths.device)
    within = ((place >= first) & (place < end)).to(regions.dtype)
    return (within / (end - first).clamp(min=1)).to(regions.dtype) @ regions


def count_tokens(batch: TokenBatch) -> Tensor:
    """(n_docs,) how many words each document has; sizes are how many have a first, a second word and so on."""
    counts = np.searchsorted(-batch.step_sizes.numpy(), -np.arange(1, batch.n_docs + 1), side="right")
    return move_to_device(counts, batch.ids.device)


@dataclass(frozen=True, kw_only=True)
class ConvolutionalDesign(Design):
    """The sizes that both networks have."""

    n_words: int
    n_labels: int
    maps: int  # numbers of a region, or of each filter width
    chunks: int
    output_norm: bool = False  # of what labels read; older folders have none

    @abstractmethod
    def build(self, word_dropout: float = 0.0, dropout: float = 0.0) -> ConvolutionalNetwork: ...

    def loader(self, data: Dataset, device: torch.device) -> TokenLoader:
        return TokenLoader(data.tokens(VIEW), device)

    def check(self) -> None:
        if min(self.n_words, self.n_labels, self.maps, self.chunks) < 1:
            raise ValueError("its network is none")


@dataclass(frozen=True, kw_only=True)
class ConvolutionalModel(NetworkModel):
    """σ(logit) of every label."""

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """What each word adds to the label's logit: its vector times the gradient there, which is all of it as long as
        no other region becomes the largest, or positive."""
        device, tokens = torch.device("cpu"), document.tokens(VIEW)
        network = self.network.load_on(device)
        batch = self.network.design.loader(document, device).load_batch(np.array([0]))
        with use_torch_settings(Run(device="cpu"), device), torch.enable_grad():
            words = network.embed_words(batch).detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(network.output(network.hidden(words, batch))[0, label], words)
        weights = (gradient * words.detach()).sum(1).numpy()
        return Explanation.from_occurrences(VIEW, tokens.ids, weights, per_token=True)

    def check(self) -> None:
        design = self.network.design
        if not isinstance(design, ConvolutionalDesign):
            raise ValueError("its network is of another kind")
        if self.views != {VIEW: design.n_words} or self.n_labels != design.n_labels:
            raise ValueError("its network is not for its words and labels")
        super().check()


@dataclass(frozen=True)
class ConvolutionalMethod(WordNetworkMethod):
    """A network over regions of words. A subclass says which."""

    batch: int = param(100, "documents of a step", low=1)
    average_from: int = param(5, "pass from which on weights are averaged", low=0)
    word_dropout: float = param(0.2, "share of the words' numbers that a step leaves out", low=0.0, high=0.99)
    dropout: float = param(
        0.5, "share of the numbers before the last layer that a step leaves out", low=0.0, high=0.99, search=(0.2, 0.7)
    )
    output_norm: bool = param(
        True, "normalise what labels read over a batch; without, as in the papers, many rare labels are hardly learnt"
    )

    def load_initial_vectors(self, data: Dataset, run: Run) -> np.ndarray | None:
        """Of words, to start from; None where the network has its own."""
        return None

    @abstractmethod
    def build_design(self, data: Dataset, vectors: np.ndarray | None) -> ConvolutionalDesign:
        """The sizes of the network for this data, and for the word vectors that it starts from, if any."""

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> ConvolutionalModel:
        vectors = self.load_initial_vectors(data, run)
        data, valid, device = prepare_training(
            self, data, valid, run, seed=self.seed, share=self.held_out, vectors=vectors
        )
        assert data.Y is not None
        design = self.build_design(data, vectors)
        design.check_memory(device)
        with use_torch_settings(run, device, self.seed):
            network = design.build(self.word_dropout, self.dropout)
        if vectors is not None:
            network.embedding.weight.data = torch.from_numpy(np.array(vectors, np.float32))
        network.initialise_biases(data.Y)
        self.train(network.to(device), design, data, valid, run)
        trained = TrainedNetwork(design=design, weights=Weights.from_network(network))
        return ConvolutionalModel(n_labels=data.n_labels, views=data.sizes, network=trained)

    def train(
        self, network: ConvolutionalNetwork, design: ConvolutionalDesign, data: Dataset, valid: Dataset | None, run: Run
    ) -> None:
        """The best nDCG@5 of held-out documents stays."""
        assert data.Y is not None
        device = get_network_device(network)
        loader, labels = design.loader(data, device), LabelLoader(data.Y, device)
        held_out = None if valid is None else design.loader(valid, device)
        judged = NetworkWithLoss(network)
        forward = distributed.wrap_network(judged)

        def loss(docs: np.ndarray) -> Tensor:
            batch = loader.load_batch(distributed.shard_batch(docs))
            with mixed_precision(device):
                return forward(batch, *labels.label_pairs(batch.docs))

        def answer(run: Run) -> Predictions:
            assert held_out is not None
            return predict_with_network(network, held_out, 5, run)

        Y, plan = None if valid is None else valid.Y, self.make_training_options()
        fit_network(judged, loader=loader, loss=loss, predict=answer, Y=Y, plan=plan, batch=self.batch, run=run)
