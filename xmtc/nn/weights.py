"""The weights of a network as plain arrays, the form in which they are saved."""

from __future__ import annotations

from dataclasses import dataclass

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

    def into(self, network: nn.Module) -> nn.Module:
        """The network, with these weights."""
        state = {name: torch.from_numpy(np.array(array)) for name, array in zip(self.names, self.arrays, strict=True)}
        try:
            network.load_state_dict(state)
        except RuntimeError:
            raise ValueError("its weights are not those of its network") from None
        return network
