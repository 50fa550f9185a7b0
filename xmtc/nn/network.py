"""Base classes of networks and their models.

A trained network consists of a design (the architecture and its sizes) and weights; a model folder stores both. The
PyTorch module is built at its first use on a device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from xmtc.core.dataset import Dataset
from xmtc.core.memory import check_fits
from xmtc.core.method import Model
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.nn.devices import choose_thread_count, get_network_device, select_device, use_torch_settings
from xmtc.storage.form import Form, array

MAX_BATCH_DOCUMENTS = 512  # default batch size of predictions
WEIGHT_COPIES = 5  # in training: the weights, their gradients, two moments of Adam, and the best weights so far


class Loader(Protocol):
    """Source of batches of documents on a device."""

    @property
    def n_docs(self) -> int: ...

    def load_batch(self, docs: np.ndarray) -> Any: ...

    def shuffled_batches(self, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]: ...

    def batches_by_length(self, size: int) -> Iterator[np.ndarray]: ...


class LabelNetwork(nn.Module):
    """Base class of networks that score labels.

    `forward` of a subclass returns logits (n_docs, n_labels) of a batch, or the subclass overrides `predict_top_k`.
    """

    n_labels: int

    def batch_size(self, loader: Any) -> int:
        """Return the number of documents per batch in predictions, limited by memory."""
        return MAX_BATCH_DOCUMENTS

    def predict_top_k(self, batch: Any, k: int) -> tuple[Tensor, Tensor]:
        """Return the k best labels of every document and their probabilities, each of shape (n_docs, k).

        Scores are float32, because bf16 is too imprecise for ranking.
        """
        top = self(batch).float().topk(min(k, self.n_labels))
        return top.indices, top.values.sigmoid()


@dataclass(frozen=True, kw_only=True)
class Design(Form, ABC):
    """Architecture of a network and its sizes, without weights."""

    # True if the network has tensors that are not in its state dict, such as position tables.
    has_buffers: ClassVar[bool] = False

    @abstractmethod
    def build(self) -> LabelNetwork:
        """Return the network with random initial weights."""

    @abstractmethod
    def loader(self, data: Dataset, device: torch.device) -> Loader:
        """Return a loader of the documents in the representation that this network reads."""

    def build_without_weights(self, n_weights: int) -> LabelNetwork:
        """Return the network on the meta device: names and shapes of its weights, without memory."""
        with torch.device("meta"):
            return self.build()

    def check_memory(self, device: torch.device) -> None:
        """Raise XmtcError if training this network would exceed the memory of the device."""
        n_weights = count_weights(self)
        needed = WEIGHT_COPIES * 4 * n_weights
        available = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
        check_fits(needed, f"A network of {n_weights:,} weights", "reduce its layers, words or features", available)


def check_positive(**sizes: int) -> None:
    """Raise ValueError if a size of a network is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"its network has {name}={size}; expected at least 1")


def count_weights(design: Design) -> int:
    """Return the number of weights, or 2**63 if it exceeds 64 bits."""
    try:
        with torch.device("meta"):
            return sum(weight.numel() for weight in design.build().state_dict().values())
    except (RuntimeError, OverflowError, TypeError):
        return 2**63


D = TypeVar("D", bound=Design)


@dataclass(frozen=True, kw_only=True)
class TrainedNetwork(Form):
    """Design and weights of a network."""

    design: Design
    weights: Weights

    def load_on(self, device: torch.device) -> Any:
        """Return the network in evaluation mode; it is built once per device."""
        # The cache is not a dataclass field, because fields are saved.
        built = self.__dict__.setdefault("_built", {})
        if device not in built:
            built[device] = self._build().to(device).eval().requires_grad_(False)
        return built[device]

    def __call__(self, device: str = "cpu") -> LabelNetwork:
        """Return a new PyTorch module with these weights, for inspection or further training."""
        return self._build().to(device).eval()

    def _build(self) -> LabelNetwork:
        if self.design.has_buffers:
            with torch.random.fork_rng([]):  # keeps the caller's random state
                network = self.design.build()
        else:
            network = self.build_without_weights()
        self.weights.load_into(network)
        return network

    def build_without_weights(self) -> LabelNetwork:
        return self.design.build_without_weights(len(self.weights.arrays))

    def design_as(self, kind: type[D]) -> D:
        """Return the design, or raise ValueError if a damaged folder has a design of another class."""
        if not isinstance(self.design, kind):
            raise ValueError(f"its network is a {type(self.design).__name__}; expected a {kind.__name__}")
        return self.design

    def check(self) -> None:
        self.design.check()
        self.weights.check_fits(self.build_without_weights())


@dataclass(frozen=True, kw_only=True)
class NetworkModel(Model):
    """Base class of models that consist of one network; `model.network()` returns the PyTorch module.

    A subclass implements `explain` and extends `check` by what its design must satisfy.
    """

    network: TrainedNetwork

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        device = select_device(run)
        return predict_with_network(self.network.load_on(device), self.network.design.loader(data, device), k, run)

    def check(self) -> None:
        self.network.check()


@torch.inference_mode()
def predict_with_network(network: LabelNetwork, loader: Loader, k: int, run: Run) -> Predictions:
    """Return the k best labels of all documents of the loader."""
    device, k = get_network_device(network), min(k, network.n_labels)
    labels = np.full((loader.n_docs, k), NO_LABEL, np.int32)
    scores = np.zeros((loader.n_docs, k), np.float32)

    size = network.batch_size(loader)
    threads = choose_thread_count(run, network, min(size, loader.n_docs))
    with run.stage("predicting", loader.n_docs) as progress, use_torch_settings(run, device, threads=threads):
        for docs in loader.batches_by_length(size):
            batch = loader.load_batch(docs)
            top_labels, top_scores = network.predict_top_k(batch, k)
            labels[batch.docs, : top_labels.shape[1]] = top_labels.cpu().numpy()
            scores[batch.docs, : top_scores.shape[1]] = top_scores.cpu().numpy()
            progress.advance(len(docs))
    if np.isnan(scores).any():
        raise XmtcError(
            "The network's scores are not finite: its training diverged, or feature values are very large; scale the "
            "features, or train again with a lower learning rate."
        )
    return Predictions.from_valid_arrays(labels, scores)


@dataclass(frozen=True)
class Weights(Form):
    """Weights of a network by their names in PyTorch's state dict."""

    arrays: dict[str, np.ndarray] = array(np.float32, np.float16, ndim=None)

    @classmethod
    def from_network(cls, network: nn.Module, precision: torch.dtype = torch.float32) -> Weights:
        return cls({name: tensor.to(precision).cpu().numpy() for name, tensor in network.state_dict().items()})

    def load_into(self, network: nn.Module) -> None:
        """Replace the weights of the network by these, in float32."""
        state = {name: torch.from_numpy(np.array(array, np.float32)) for name, array in self.arrays.items()}
        network.load_state_dict(state, assign=True)

    def check_fits(self, network: nn.Module) -> None:
        """Raise ValueError unless names, shapes and types are those of the network."""
        expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
        shapes = {name: array.shape for name, array in self.arrays.items()}
        for name in sorted(expected.keys() | shapes.keys()):
            if expected.get(name) != shapes.get(name):
                raise ValueError(
                    f"its weights do not fit its network: {name} has shape {shapes.get(name)}; "
                    f"expected {expected.get(name)}"
                )
        dtypes = sorted({str(array.dtype) for array in self.arrays.values()})
        if len(dtypes) != 1:
            raise ValueError(f"its weights have the types {', '.join(dtypes)}; expected one type")
