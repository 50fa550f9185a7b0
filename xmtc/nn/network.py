"""What all trained networks share. A network is a design and weights: the design says what it is, and a model folder
holds both. It is built at its first use on a device, and answers batch by batch."""

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

MAX_BATCH_DOCUMENTS = 512  # answered at a time, if not fewer
WEIGHT_COPIES = 5  # of its weights that a training holds: gradients, two memories of Adam, and the best so far


class Loader(Protocol):
    """Documents on a device, in batches."""

    @property
    def n_docs(self) -> int: ...

    def load_batch(self, docs: np.ndarray) -> Any: ...

    def shuffled_batches(self, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]: ...

    def batches_by_length(self, size: int) -> Iterator[np.ndarray]: ...


class LabelNetwork(nn.Module):
    """A network that answers with labels. A subclass's `forward` gives logits (n_docs, n_labels) of a batch, or it has
    a `best` of its own."""

    n_labels: int

    def batch_size(self, loader: Any) -> int:
        """Documents to answer at a time, so that memory is enough."""
        return MAX_BATCH_DOCUMENTS

    def predict_top_k(self, batch: Any, k: int) -> tuple[Tensor, Tensor]:
        """The k best labels of a batch's documents and their probabilities, in float32: bf16 has too few digits to rank
        by."""
        top = self(batch).float().topk(min(k, self.n_labels))
        return top.indices, top.values.sigmoid()


@dataclass(frozen=True, kw_only=True)
class Design(Form, ABC):
    """What a network is, without its weights: its sizes and choices."""

    # Whether it holds more than its weights, such as tables of positions, and so needs memory before they come.
    has_buffers: ClassVar[bool] = False

    @abstractmethod
    def build(self) -> LabelNetwork:
        """The network with its first, random weights."""

    @abstractmethod
    def loader(self, data: Dataset, device: torch.device) -> Loader:
        """Documents as this network takes them."""

    def build_without_weights(self, n_weights: int) -> LabelNetwork:
        """The network without memory for its weights, of which there are so many: names and shapes alone."""
        with torch.device("meta"):
            return self.build()

    def check_memory(self, device: torch.device) -> None:
        """Refuse to train a network that memory cannot hold, before it is built."""
        n_weights = count_weights(self)
        needed = WEIGHT_COPIES * 4 * n_weights
        what = f"A network of {n_weights:,} weights"
        available = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
        check_fits(needed, what, "give it smaller layers, or fewer words or features", available)


def count_weights(design: Design) -> int:
    """More than there are bytes where PyTorch cannot even name the size."""
    try:
        with torch.device("meta"):
            return sum(weight.numel() for weight in design.build().state_dict().values())
    except (RuntimeError, OverflowError, TypeError):  # sizes beyond 64 bits
        return 2**63


D = TypeVar("D", bound=Design)


@dataclass(frozen=True, kw_only=True)
class TrainedNetwork(Form):
    """A design and its weights."""

    design: Design
    weights: Weights

    def load_on(self, device: torch.device) -> Any:
        """The network, built at its first use on a device."""
        built = self.__dict__.setdefault("_built", {})
        if device not in built:
            built[device] = self._build().to(device).eval().requires_grad_(False)
        return built[device]

    def __call__(self, device: str = "cpu") -> LabelNetwork:
        """The PyTorch module by itself, to be looked at or built on: ready to answer, and apart from the one that this
        model answers with."""
        return self._build().to(device).eval()

    def _build(self) -> LabelNetwork:
        if self.design.has_buffers:
            with torch.random.fork_rng([]):  # the weights that it begins with are random, and at once replaced
                network = self.design.build()
        else:
            network = self.build_without_weights()
        self.weights.load_into(network)
        return network

    def build_without_weights(self) -> LabelNetwork:
        return self.design.build_without_weights(len(self.weights.arrays))

    def design_as(self, kind: type[D]) -> D:
        """The design, which in a damaged folder may be one of another kind of network."""
        if not isinstance(self.design, kind):
            raise ValueError("its network is of another kind")
        return self.design

    def check(self) -> None:
        self.design.check()
        self.weights.check_fits(self.build_without_weights())


@dataclass(frozen=True, kw_only=True)
class NetworkModel(Model):
    """A Model that is one network; `model.network()` is the PyTorch module. A subclass adds `explain`, and to `check`
    what its design has to do with it."""

    network: TrainedNetwork

    def _predict(self, data: Dataset, k: int, run: Run) -> Predictions:
        device = select_device(run)
        return predict_with_network(self.network.load_on(device), self.network.design.loader(data, device), k, run)

    def check(self) -> None:
        self.network.check()


@torch.inference_mode()
def predict_with_network(network: Any, loader: Loader, k: int, run: Run) -> Predictions:
    """The k best labels of every document, by any network that has `batch_size` and `best`."""
    device, k = get_network_device(network), min(k, network.n_labels)
    labels = np.full((loader.n_docs, k), NO_LABEL, np.int32)
    scores = np.zeros((loader.n_docs, k), np.float32)

    size = network.batch_size(loader)
    threads = choose_thread_count(run, network, min(size, loader.n_docs))
    with run.stage("predicting", loader.n_docs) as progress, use_torch_settings(run, device, threads=threads):
        for docs in loader.batches_by_length(size):
            batch = loader.load_batch(docs)
            found, values = network.predict_top_k(batch, k)
            labels[batch.docs, : found.shape[1]] = found.cpu().numpy()
            scores[batch.docs, : found.shape[1]] = values.cpu().numpy()
            progress.advance(len(docs))
    if np.isnan(scores).any():
        raise XmtcError(
            "The network's scores are no numbers: its training has diverged, or features are very large; scale these, "
            "or train it anew with a lower learning rate."
        )
    return Predictions.from_valid_arrays(labels, scores)


def get_device_limit(numbers: dict[str, int], device: torch.device) -> int:
    """A limit of the device: GPUs have more memory than they are given at a time, CPUs less."""
    return numbers.get(device.type, numbers["cpu"])


@dataclass(frozen=True)
class Weights(Form):
    arrays: dict[str, np.ndarray] = array(np.float32, np.float16, ndim=None)  # by the names that PyTorch has for them

    @classmethod
    def from_network(cls, network: nn.Module, precision: torch.dtype = torch.float32) -> Weights:
        return cls({name: tensor.to(precision).cpu().numpy() for name, tensor in network.state_dict().items()})

    def load_into(self, network: nn.Module) -> None:
        """Give a network these weights, in float32, in place of its own."""
        state = {name: torch.from_numpy(np.array(array, np.float32)) for name, array in self.arrays.items()}
        network.load_state_dict(state, assign=True)

    def check_fits(self, network: nn.Module) -> None:
        """Refuse weights that are not those of a network."""
        wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
        found = {name: array.shape for name, array in self.arrays.items()}
        if wanted != found or len({array.dtype for array in self.arrays.values()}) != 1:
            raise ValueError("its weights are not those of its network")
