"""Where networks are computed, and in which precision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from xmtc.core.run import Run
from xmtc.errors import XmtcError

# Multiplications of a matrix product for each thread, a tenth of a millisecond: with fewer it gains too little.
MIN_MULTIPLICATIONS_PER_THREAD = 4_000_000


def select_device(run: Run) -> torch.device:
    if run.device == "auto":
        return local_cuda_device() if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(run.device)
        torch.zeros(1, device=device).item()
        return local_cuda_device() if device == torch.device("cuda") else device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise XmtcError(f"The device {run.device!r} cannot be used ({str(error).splitlines()[0]}); try cpu.") from None


def local_cuda_device() -> torch.device:
    """This process's GPU: the first, or the one for its number among those that torchrun has started here."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def move_to_device(numbers: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """On the device. From pinned memory, a GPU takes them when it comes to them, and nobody waits until it does."""
    found = torch.as_tensor(numbers)
    if device.type == "cuda" and found.device.type == "cpu":
        return found.pin_memory().to(device, non_blocking=True)
    return found.to(device)


def mixed_precision(device: torch.device) -> torch.autocast:
    """bf16 for large products on GPUs that have it, float32 elsewhere."""
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.autocast(device.type, torch.bfloat16, enabled=has_bf16)


def choose_thread_count(run: Run, network: nn.Module, n_docs: int) -> int:
    """As many as the run says; where it leaves that open, no more than the largest product of a batch has work for. The
    threads of PyTorch meet after every product: if one of them is late, because its CPU is busy, all others wait."""
    if run.threads or get_network_device(network).type != "cpu":
        return get_torch_threads(run)
    weights = (
        weight.numel()
        for module in network.modules()
        if not isinstance(module, nn.Embedding | nn.EmbeddingBag)  # whose rows are looked up, not multiplied
        for weight in module.parameters(recurse=False)
        if weight.ndim > 1
    )
    return max(1, min(get_torch_threads(run), n_docs * max(weights, default=0) // MIN_MULTIPLICATIONS_PER_THREAD))


def get_torch_threads(run: Run) -> int:
    """The run's, or, where it does not say, what PyTorch has been told or takes by itself, if there are as many."""
    return run.threads or min(torch.get_num_threads(), run.n_threads)


def get_network_device(network: nn.Module) -> torch.device:
    """The device that a network is on."""
    return next(network.parameters()).device


@contextmanager
def use_torch_settings(
    run: Run, device: torch.device, seed: int | None = None, threads: int | None = None
) -> Iterator[None]:
    """Use the run's threads, or so many; if a seed is given, random numbers of our own. Leave both as they were."""
    before, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(threads or get_torch_threads(run))
    torch.set_float32_matmul_precision("high")  # TF32 where bf16 is not used
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(before)
        torch.set_float32_matmul_precision(precision)
