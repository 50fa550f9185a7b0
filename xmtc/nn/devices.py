"""Devices, numerical precision and threads of PyTorch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from xmtc.core.run import Run
from xmtc.errors import XmtcError

# About a tenth of a millisecond of work; with less per thread, synchronisation costs more than it saves.
MIN_MULTIPLICATIONS_PER_THREAD = 4_000_000


def select_device(run: Run) -> torch.device:
    """Return the device that the run names, or raise XmtcError if it cannot be used."""
    if run.device == "auto":
        return local_cuda_device() if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(run.device)
        torch.zeros(1, device=device).item()
        return local_cuda_device() if device == torch.device("cuda") else device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise XmtcError(f"The device {run.device!r} cannot be used ({reason}); set device to cpu.") from None


def local_cuda_device() -> torch.device:
    """Return the GPU of this process: number LOCAL_RANK under torchrun, otherwise the first."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def move_to_device(values: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """Return a tensor on the device; the copy to a GPU is asynchronous."""
    tensor = torch.as_tensor(values)
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def mixed_precision(device: torch.device) -> torch.autocast:
    """Return an autocast context: bf16 on GPUs that support it, float32 elsewhere."""
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.autocast(device.type, torch.bfloat16, enabled=has_bf16)


def choose_thread_count(run: Run, network: nn.Module, n_docs: int) -> int:
    """Return the run's threads, or if unset, at most as many as the largest matrix product can use.

    PyTorch synchronises its threads after every product, so superfluous threads slow all others down.
    """
    if run.threads or get_network_device(network).type != "cpu":
        return get_torch_threads(run)
    weights = (
        weight.numel()
        for module in network.modules()
        if not isinstance(module, nn.Embedding | nn.EmbeddingBag)  # looked up, not multiplied
        for weight in module.parameters(recurse=False)
        if weight.ndim > 1
    )
    return max(1, min(get_torch_threads(run), n_docs * max(weights, default=0) // MIN_MULTIPLICATIONS_PER_THREAD))


def get_torch_threads(run: Run) -> int:
    """Return the run's threads, or if unset, PyTorch's setting limited to the available CPUs."""
    return run.threads or min(torch.get_num_threads(), run.n_threads)


def get_network_device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device


def get_device_limit(limits: dict[str, int], device: torch.device) -> int:
    """Return the limit for the device type; types that are not listed use the limit for CPUs."""
    return limits.get(device.type, limits["cpu"])


@contextmanager
def use_torch_settings(
    run: Run, device: torch.device, seed: int | None = None, threads: int | None = None
) -> Iterator[None]:
    """Set PyTorch's threads, precision and, if given, random seed; restore all three on exit."""
    previous_threads, previous_precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(threads or get_torch_threads(run))
    torch.set_float32_matmul_precision("high")  # TF32 where bf16 is not used
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(previous_threads)
        torch.set_float32_matmul_precision(previous_precision)
