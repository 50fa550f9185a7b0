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
    arrays: tuple[np.ndarray, ...]  # float32, or all of them float16

    @classmethod
    def of(cls, network: nn.Module, precision: torch.dtype = torch.float32) -> Weights:
        state = network.state_dict()
        return cls(tuple(state), tuple(tensor.to(precision).cpu().numpy() for tensor in state.values()))

    def into(self, network: Any) -> Any:
        """A network without memory of its own, with these weights in float32."""
        pairs = zip(self.names, self.arrays, strict=True)
        state = {name: torch.from_numpy(np.array(array, np.float32)) for name, array in pairs}
        network.load_state_dict(state, assign=True)
        return network

    def check(self, network: nn.Module) -> None:
        """Refuse weights that are not those of a network."""
        wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
        found = {name: array.shape for name, array in zip(self.names, self.arrays, strict=True)}
        kinds = {array.dtype for array in self.arrays}
        if wanted != found or kinds not in ({np.dtype(np.float32)}, {np.dtype(np.float16)}):
            raise ValueError("its weights are not those of its network")
