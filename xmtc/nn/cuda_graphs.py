"""Steps of an encoder as CUDA graphs: captured once for each shape that batches have, then replayed. Otherwise a CPU
needs longer to ask for the thousands of small products of a step than a GPU to compute them."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn

from xmtc.errors import XmtcError

SUPPORTED_ENCODERS = (
    "bert",
    "mpnet",
)  # of encoders, which were tried; XLNet cannot be: it copies from the CPU in every step
MIN_SHAPE_COUNT = 3  # times that a shape is seen before it is worth a graph
MAX_GRAPHS = 8  # graphs: each holds memory for the gradients of all weights


class CudaGraphs:
    """Computes what a module does in training, of ids (n_docs, width) and where tokens stand among them. Gradients lie
    in memory of the graph until the next step: it is not for gradients that are added up over several."""

    def __init__(self, module: nn.Module):
        self.module, self.shape_counts, self.pool = module, Counter[tuple[int, ...]](), torch.cuda.graph_pool_handle()
        self.graphs: dict[tuple[int, ...], nn.Module] = {}
        # Gradients arrive in the stream of a graph, which costs nothing.
        getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", lambda _: None)(False)

    def __call__(self, ids: Tensor, mask: Tensor) -> Tensor:
        shape = tuple(ids.shape)
        self.shape_counts[shape] += 1
        if shape not in self.graphs and self.shape_counts[shape] >= MIN_SHAPE_COUNT and len(self.graphs) < MAX_GRAPHS:
            self.graphs[shape] = self.capture(ids, mask)
        return self.graphs.get(shape, self.module)(ids, mask)

    def capture(self, ids: Tensor, mask: Tensor) -> nn.Module:
        """A capture that fails leaves PyTorch's memory and random numbers in a state that nothing should go on from:
        it ends the training."""
        dtype, mixes = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
        wrapped, sample = ModuleWrapper(self.module).train(), (ids.clone(), mask.clone())
        try:
            with torch.random.fork_rng([ids.device]), torch.autocast("cuda", dtype, mixes, cache_enabled=False):
                torch.cuda.make_graphed_callables(wrapped, sample, allow_unused_input=True, pool=self.pool)
        except RuntimeError as error:
            why = str(error).strip().partition("\n")[0].rstrip(".")
            raise XmtcError(
                f"The encoder's steps cannot be captured as CUDA graphs ({why}); set cuda_graphs=false."
            ) from error
        return wrapped


class ModuleWrapper(nn.Module):
    """A module under a name of its own: a graph takes the place of its `forward`."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.module(ids, mask)
