"""The weights of a network as plain arrays, the form in which they are saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn


@dataclass(frozen=True)
class Weights:
    names: tuple[str, ...]
    arrays: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, network: nn.Module) -> Weights:
        state = network.state_dict()
        return cls(tuple(state), tuple(tensor.float().cpu().numpy() for tensor in state.values()))

    def into(self, network: Any) -> Any:
        """A network without memory of its own, with these weights."""
        state = {name: torch.from_numpy(np.array(array)) for name, array in zip(self.names, self.arrays, strict=True)}
        network.load_state_dict(state, assign=True)
        return network

    def check(self, network: nn.Module) -> None:
        """Refuse weights that are not those of a network."""
        wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
        found = {name: array.shape for name, array in zip(self.names, self.arrays, strict=True)}
        if wanted != found or any(array.dtype != np.float32 for array in self.arrays):
            raise ValueError("its weights are not those of its network")
