"""The weights of a network as plain arrays, the form in which they are saved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from xmtc.storage.form import Form, array


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
