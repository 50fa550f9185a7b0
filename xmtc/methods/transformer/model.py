"""The trained form of APLC-XLNet: a fine-tuned encoder and its output layer. It needs neither the folder that the
encoder came from nor a hub."""

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
from xmtc.methods.transformer.encoder_states import StateLoader
from xmtc.methods.transformer.label_attention import LabelWiseAttention
from xmtc.methods.transformer.network import MAX_BATCH_DOCUMENTS, TextEncoder, TransformerNetwork
from xmtc.nn.batches import TokenLoader
from xmtc.nn.devices import move_to_device, use_torch_settings
from xmtc.nn.label_clusters import ClusterLayout, LabelClusters
from xmtc.nn.network import Design, NetworkModel, get_device_limit, get_network_device
from xmtc.storage.form import array

VIEW = "subwords"
ATTENTION = "attention"  # in place of pooling: each label looks at the subwords by itself
MAX_GRADIENT_POINTS = 1000  # of explanations
TRIAL_SUBWORDS = 40  # subwords of the text that a loaded model is tried on


@dataclass(frozen=True, kw_only=True)
class TransformerDesign(Design):
    has_buffers: ClassVar[bool] = True

    encoder: str  # its configuration, as transformers writes it: JSON
    pooling: str  # one of POOLINGS, or ATTENTION
    hidden: int  # d
    sizes: tuple[int, ...]  # labels of each cluster
    factor: int  # q
    biases: bool  # of the clusters' labels

    def build(self, encoder: object = None, dropout: float = 0.0, untouched_tails: bool = True) -> TransformerNetwork:
        """With this encoder, or one that has yet to learn everything."""
        text = TextEncoder(encoder or build_encoder(self.encoder), self.pooling)
        clusters = ClusterLayout(self.sizes, self.hidden, self.factor)
        if self.pooling == ATTENTION:
            return TransformerNetwork(text, LabelWiseAttention(clusters, self.biases), dropout)
        return TransformerNetwork(text, LabelClusters(clusters, self.biases, untouched_tails), dropout)

    def build_without_weights(self, n_weights: int) -> TransformerNetwork:
        """No deeper than there are names of weights, whatever its configuration says."""
        try:
            with torch.device("meta"):
                return self.build(build_encoder(self.encoder, n_weights))
        except Exception as error:  # what libraries raise where a configuration is none has many names
            raise ValueError(f"its encoder cannot be built: {first_sentence(error)}") from None

    def loader(self, data: Dataset, device: torch.device) -> TokenLoader:
        return TokenLoader(data.tokens(VIEW), device)

    def check(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError("its clusters are not those of its labels")
        if self.pooling == ATTENTION and len(self.sizes) > 1:
            raise ValueError("its labels attend by themselves, but are in clusters")
        if self.pooling not in (*POOLINGS, ATTENTION) or self.hidden < 1 or self.factor < 1:
            raise ValueError("its network is none")


@dataclass(frozen=True, kw_only=True)
class TransformerModel(NetworkModel):
    """P(label), or P(tail) P(label | tail): eq. 2."""

    order: np.ndarray = array(np.int32)  # (n_labels,) labels from the most frequent to the rarest, as the network's
    gradient_points: int  # of explanations: at which gradients are taken

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        return restore_label_ids(super()._predict(data, k, run), self.order)

    def _explain(self, document: Dataset, label: int) -> Explanation:
        """What each subword adds to the label's logit, by the gradients on the way to it."""
        device, ids = torch.device("cpu"), document.tokens(VIEW).ids
        network, rank = self.network.load_on(device), int(np.flatnonzero(self.order == label)[0])
        with use_torch_settings(Run(device="cpu"), device):
            weights = network.compute_integrated_gradients(
                torch.from_numpy(ids.astype(np.int64)), rank, self.gradient_points
            )
        return Explanation.from_occurrences(VIEW, ids, weights.numpy(), per_token=True)

    def max_lengths(self) -> dict[str, int]:
        longest = self._build_without_weights().encoder.max_length
        return {} if longest is None else {VIEW: longest}

    def check(self) -> None:
        if not 1 <= self.gradient_points <= MAX_GRADIENT_POINTS:
            raise ValueError(f"its explanations take {self.gradient_points} points")
        if not np.array_equal(np.sort(self.order), np.arange(self.n_labels)):
            raise ValueError("its order of labels does not name each once")
        self.network.design_as(TransformerDesign)
        super().check()
        network = self._build_without_weights()
        if network.n_labels != self.n_labels:
            raise ValueError("its clusters are not those of its labels")
        n_subwords = len(network.encoder.model.get_input_embeddings().weight)
        if list(self.views) != [VIEW] or self.views[VIEW] > n_subwords:
            raise ValueError("its encoder is not for its subwords")
        self._check_forward_pass(network.encoder.max_length)

    def _check_forward_pass(self, longest: int | None) -> None:
        """What an encoder's configuration asks for may fail only when it is run: with padding, and by gradients."""
        network: Any = self.network() if torch.cuda.is_available() else self.network.load_on(torch.device("cpu"))
        ids = torch.zeros(2, min(TRIAL_SUBWORDS, longest or TRIAL_SUBWORDS), dtype=torch.long)
        mask = torch.ones_like(ids, dtype=torch.bool)
        mask[1, 1:] = False
        try:
            with torch.no_grad():
                read = network.as_head_input(network.encoder(ids, mask), mask)
                found = [network.head.predict_top_k(network.apply_hidden_layer(read), 1)[1]]
            found.append(network.compute_integrated_gradients(ids[0], 0, 1))
        except Exception as error:  # what transformers and PyTorch raise there has many names
            raise ValueError(f"its encoder fails at a text: {first_sentence(error)}") from None
        if not all(numbers.isfinite().all() for numbers in found):
            raise ValueError("its encoder answers a text with what are no numbers")

    def _build_without_weights(self) -> TransformerNetwork:
        return self.network.design_as(TransformerDesign).build_without_weights(len(self.network.weights.arrays))


def restore_label_ids(found: Predictions, order: np.ndarray) -> Predictions:
    """Predictions of labels that are numbered by their frequency, with the numbers that the labels have; none where
    scores are no numbers."""
    labels = np.where(found.labels == NO_LABEL, NO_LABEL, order[found.labels])
    return Predictions.from_valid_arrays(labels.astype(np.int32), found.scores)


@torch.no_grad()
def encode_documents(network: TransformerNetwork, run: Run, loader: TokenLoader, name: str) -> StateLoader:
    """What the encoder says of every document, to be read again and again; kept in the checkpoint."""
    device, kept = get_network_device(network), run.checkpoint.load_piece(name)
    if kept is not None:
        return StateLoader(torch.from_numpy(kept["states"]).to(device))
    network.eval()
    states = torch.empty(loader.n_docs, network.encoder.width, device=device)
    with run.stage("encoding texts", loader.n_docs) as progress, use_torch_settings(run, device):
        for docs in loader.batches_by_length(get_device_limit(MAX_BATCH_DOCUMENTS, device)):
            batch = loader.load_batch(docs)
            states[move_to_device(batch.docs, device)] = network.compute_float32_states(batch)
            progress.advance(len(docs))
    run.checkpoint.save_piece(name, {"states": states.cpu().numpy()})
    return StateLoader(states)
