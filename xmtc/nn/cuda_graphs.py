"""Steps of an encoder as CUDA graphs: recorded once for each shape that batches have, then replayed. Otherwise a CPU
needs longer to ask for the thousands of small products of a step than a GPU to compute them."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn

from xmtc.errors import XmtcError

KINDS = ("bert", "mpnet")  # of encoders, which were tried; XLNet cannot be: it copies from the CPU in every step
OFTEN = 3  # times that a shape is seen before it is worth a recording
MOST = 8  # recordings: each holds memory for the gradients of all weights


class Recordings:
    """Computes what a module does in training, of ids (n_docs, width) and where words stand among them. Gradients lie
    in memory of the recording until the next step: it is not for gradients that are added up over several."""

    def __init__(self, module: nn.Module):
        self.module, self.seen, self.pool = module, Counter[tuple[int, ...]](), torch.cuda.graph_pool_handle()
        self.recorded: dict[tuple[int, ...], nn.Module] = {}
        # Gradients arrive in the stream of a recording, which costs nothing.
        getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", lambda _: None)(False)

    def __call__(self, ids: Tensor, is_word: Tensor) -> Tensor:
        shape = tuple(ids.shape)
        self.seen[shape] += 1
        if shape not in self.recorded and self.seen[shape] >= OFTEN and len(self.recorded) < MOST:
            self.recorded[shape] = self.record(ids, is_word)
        return self.recorded.get(shape, self.module)(ids, is_word)

    def record(self, ids: Tensor, is_word: Tensor) -> nn.Module:
        """A recording that fails leaves PyTorch's memory and random numbers in a state that nothing should go on from:
        it ends the training."""
        dtype, mixes = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
        alone, given = Alone(self.module).train(), (ids.clone(), is_word.clone())
        try:
            with torch.random.fork_rng([ids.device]), torch.autocast("cuda", dtype, mixes, cache_enabled=False):
                torch.cuda.make_graphed_callables(alone, given, allow_unused_input=True, pool=self.pool)
        except RuntimeError as error:
            why = str(error).strip().partition("\n")[0].rstrip(".")
            raise XmtcError(f"The encoder's steps cannot be recorded ({why}); set recording=false.") from error
        return alone


class Alone(nn.Module):
    """A module under a name of its own: a recording takes the place of its `forward`."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, ids: Tensor, is_word: Tensor) -> Tensor:
        return self.module(ids, is_word)
