"""Model of APLC-XLNet: a fine-tuned encoder and its output layer.

The model contains the encoder; it needs neither the pretrained encoder's folder nor the Hugging Face Hub.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from xmtc.core.dataset import Dataset
from xmtc.core.method import Explanation
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.features.encoders.catalogue import first_sentence
from xmtc.features.encoders.model_loader import POOLINGS, build_encoder
from xmtc.methods.transformer.label_attention import LabelWiseAttention
from xmtc.methods.transformer.network import TransformerNetwork
from xmtc.nn.batches import TokenLoader
from xmtc.nn.devices import use_torch_settings
from xmtc.nn.label_clusters import ClusterLayout, LabelClusters
from xmtc.nn.network import Design, NetworkModel, check_positive
from xmtc.nn.text_encoder import TextEncoder
from xmtc.storage.form import array

VIEW = "subwords"
ATTENTION = "attention"  # label-wise attention instead of pooling
MAX_GRADIENT_POINTS = 1000  # of integrated gradients
TRIAL_SUBWORDS = 40  # length of the text that checks a loaded model


@dataclass(frozen=True, kw_only=True)
class TransformerDesign(Design):
    """Design of encoder, hidden layer and output layer."""

    has_buffers: ClassVar[bool] = True

    encoder: str  # configuration of transformers, JSON
    pooling: str  # one of POOLINGS, or ATTENTION
    hidden: int  # d
    sizes: tuple[int, ...]  # number of labels in each cluster
    factor: int  # q
    biases: bool  # of the output layer

    def build(self, encoder: object = None, dropout: float = 0.0, untouched_tails: bool = True) -> TransformerNetwork:
        """Return the network with the given encoder, or with a randomly initialised one."""
        text = TextEncoder(encoder or build_encoder(self.encoder), self.pooling)
        clusters = ClusterLayout(self.sizes, self.hidden, self.factor)
        if self.pooling == ATTENTION:
            return TransformerNetwork(text, LabelWiseAttention(clusters, self.biases), dropout)
        return TransformerNetwork(text, LabelClusters(clusters, self.biases, untouched_tails), dropout)

    def build_without_weights(self, n_weights: int) -> TransformerNetwork:
        """Return the network on the meta device; `n_weights` limits the depth of a damaged configuration."""
        try:
            with torch.device("meta"):
                return self.build(build_encoder(self.encoder, n_weights))
        except Exception as error:  # transformers raises many types for invalid configurations
            raise ValueError(f"its encoder cannot be built: {first_sentence(error)}") from None

    def loader(self, data: Dataset, device: torch.device) -> TokenLoader:
        return TokenLoader(data.tokens(VIEW), device)

    def check(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"its label clusters have the sizes {self.sizes}; expected at least 1")
        if self.pooling == ATTENTION and len(self.sizes) > 1:
            raise ValueError(f"its network has pooling=attention and {len(self.sizes)} clusters; expected 1 cluster")
        if self.pooling not in (*POOLINGS, ATTENTION):
            expected = ", ".join((*POOLINGS, ATTENTION))
            raise ValueError(f"its network has pooling={self.pooling!r}; expected one of {expected}")
        check_positive(hidden=self.hidden, factor=self.factor)


@dataclass(frozen=True, kw_only=True)
class TransformerModel(NetworkModel):
    """Model with P(label) for the head and P(tail) P(label | tail) for tails (eq. 2)."""

    order: np.ndarray = array(np.int32)  # (n_labels,) labels by decreasing frequency: label number of each output
    gradient_points: int  # of integrated gradients in explanations

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        return restore_label_ids(super()._predict(data, k, run), self.order)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """Return each subword's contribution to the label's logit (integrated gradients)."""
        device, ids = torch.device("cpu"), document.tokens(VIEW).ids
        network, rank = self.network.load_on(device), int(np.flatnonzero(self.order == label)[0])
        with use_torch_settings(Run(device="cpu"), device):
            ids_tensor = torch.from_numpy(ids.astype(np.int64))
            weights = network.compute_integrated_gradients(ids_tensor, rank, self.gradient_points)
        return Explanation.from_occurrences(VIEW, ids, weights.numpy(), per_token=True)

    def max_lengths(self) -> dict[str, int]:
        max_length = self._build_without_weights().encoder.max_length
        return {} if max_length is None else {VIEW: max_length}

    def check(self) -> None:
        if not 1 <= self.gradient_points <= MAX_GRADIENT_POINTS:
            raise ValueError(f"gradient_points={self.gradient_points}; expected 1 to {MAX_GRADIENT_POINTS}")
        if not np.array_equal(np.sort(self.order), np.arange(self.n_labels)):
            raise ValueError("its label order is not a permutation of its labels")
        self.network.design_as(TransformerDesign)
        super().check()
        network = self._build_without_weights()
        if network.n_labels != self.n_labels:
            raise ValueError(f"its label clusters have {network.n_labels} labels; expected {self.n_labels}")
        n_subwords = len(network.encoder.model.get_input_embeddings().weight)
        if list(self.views) != [VIEW] or self.views[VIEW] > n_subwords:
            raise ValueError(f"its encoder has {n_subwords} subwords; expected the views {self.views}")
        self._check_forward_pass(network.encoder.max_length)

    def _check_forward_pass(self, max_length: int | None) -> None:
        """Raise ValueError if prediction with padding or an explanation fails.

        Some errors in an encoder's configuration appear only when the encoder runs.
        """
        network: Any = self.network() if torch.cuda.is_available() else self.network.load_on(torch.device("cpu"))
        ids = torch.zeros(2, min(TRIAL_SUBWORDS, max_length or TRIAL_SUBWORDS), dtype=torch.long)
        mask = torch.ones_like(ids, dtype=torch.bool)
        mask[1, 1:] = False
        try:
            with torch.no_grad():
                features = network.apply_hidden_layer(network.as_head_input(network.encoder(ids, mask), mask))
                _, scores = network.head.predict_top_k(features, 1)
            weights = network.compute_integrated_gradients(ids[0], 0, 1)
        except Exception as error:  # transformers and PyTorch raise many types
            raise ValueError(f"its encoder fails on a text: {first_sentence(error)}") from None
        if not (scores.isfinite().all() and weights.isfinite().all()):
            raise ValueError("its encoder returns values that are not finite")

    def _build_without_weights(self) -> TransformerNetwork:
        return self.network.design_as(TransformerDesign).build_without_weights(len(self.network.weights.arrays))


def restore_label_ids(predictions: Predictions, order: np.ndarray) -> Predictions:
    """Return predictions with label numbers instead of frequency ranks."""
    labels = np.where(predictions.labels == NO_LABEL, NO_LABEL, order[predictions.labels])
    return Predictions.from_valid_arrays(labels.astype(np.int32), predictions.scores)
