"""Data-parallel training with the processes that torchrun starts.

Each process computes the gradients of its share of every batch; DistributedDataParallel averages them. Without
torchrun, all functions here do nothing.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def join_process_group(device: torch.device) -> None:
    """Join the process group if torchrun started several processes."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def wrap_network(network: nn.Module, uses_all_parameters: bool = True) -> nn.Module:
    """Return the network, wrapped in DistributedDataParallel if there are several processes."""
    if rank_and_size()[1] == 1:
        return network
    return DistributedDataParallel(network, find_unused_parameters=not uses_all_parameters)


def supports_sparse_gradients() -> bool:
    """Return True in a single process; NCCL cannot reduce sparse gradients."""
    return rank_and_size()[1] == 1


def shard_batch(docs: np.ndarray) -> np.ndarray:
    """Return this process's part of a batch, or the whole batch if it has fewer documents than processes."""
    rank, world_size = rank_and_size()
    return docs if len(docs) < world_size else docs[rank::world_size]


def compute_loss_scale(docs: np.ndarray) -> int:
    """Return the factor by which each process scales a summed loss, so that the mean over processes is the sum."""
    world_size = rank_and_size()[1]
    return 1 if len(docs) < world_size else world_size


def average_over_processes(value: Tensor) -> float:
    """Return the mean of the processes' values."""
    world_size = rank_and_size()[1]
    if world_size > 1:
        value = value.clone()
        dist.all_reduce(value)
    return value.item() / world_size


def broadcast_from_main(value: float) -> float:
    """Return the value of the first process, so that all processes take the same decision."""
    if rank_and_size()[1] == 1:
        return value
    message = torch.tensor([value], dtype=torch.float64, device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.broadcast(message, 0)
    return float(message)


@contextmanager
def main_process_first() -> Iterator[None]:
    """Run the block in the first process before the others, for example to write files that they read."""
    rank, world_size = rank_and_size()
    if world_size > 1 and rank > 0:
        dist.barrier()
    yield
    if world_size > 1 and rank == 0:
        dist.barrier()
