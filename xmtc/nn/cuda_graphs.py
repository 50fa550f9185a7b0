"""CUDA graphs of an encoder's training steps, captured once per batch shape and then replayed.

Without graphs, launching the thousands of small kernels of a step takes the CPU longer than the GPU needs to run them.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn

from xmtc.errors import XmtcError

# Model types that were tested. XLNet copies from the CPU in every step, so it cannot be captured.
SUPPORTED_ENCODERS = ("bert", "mpnet")
MIN_SHAPE_COUNT = 3  # occurrences of a batch shape before it is captured
MAX_GRAPHS = 8  # each graph holds memory for the gradients of all weights


class CudaGraphs:
    """Replacement for a module's forward pass in training, with inputs ids and mask of shape (n_docs, width).

    Gradients stay in the graph's memory until the next step, so gradient accumulation is not supported.
    """

    def __init__(self, module: nn.Module):
        self.module, self.shape_counts, self.pool = module, Counter[tuple[int, ...]](), torch.cuda.graph_pool_handle()
        self.graphs: dict[tuple[int, ...], nn.Module] = {}
        # Gradients arrive on the graph's stream, which is harmless here.
        getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", lambda _: None)(False)

    def __call__(self, ids: Tensor, mask: Tensor) -> Tensor:
        shape = tuple(ids.shape)
        self.shape_counts[shape] += 1
        if shape not in self.graphs and self.shape_counts[shape] >= MIN_SHAPE_COUNT and len(self.graphs) < MAX_GRAPHS:
            self.graphs[shape] = self.capture(ids, mask)
        return self.graphs.get(shape, self.module)(ids, mask)

    def capture(self, ids: Tensor, mask: Tensor) -> nn.Module:
        """Capture a graph for this shape, or raise XmtcError.

        A failed capture leaves PyTorch's allocator and random state undefined, so training cannot continue.
        """
        dtype, uses_autocast = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
        wrapped, sample = ModuleWrapper(self.module).train(), (ids.clone(), mask.clone())
        try:
            with torch.random.fork_rng([ids.device]), torch.autocast("cuda", dtype, uses_autocast, cache_enabled=False):
                torch.cuda.make_graphed_callables(wrapped, sample, allow_unused_input=True, pool=self.pool)
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise XmtcError(
                f"The encoder's training steps cannot be captured as CUDA graphs ({reason}); set cuda_graphs=false."
            ) from error
        return wrapped


class ModuleWrapper(nn.Module):
    """Wrapper whose `forward` is replaced by a graph, so that the wrapped module keeps its own."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.module(ids, mask)
