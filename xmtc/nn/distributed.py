"""Several processes, one network, as torchrun starts them: each takes its share of every batch, and PyTorch's own
DistributedDataParallel adds up the gradients. Without torchrun nothing of this is used."""

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
    """Meet the processes that torchrun has started beside this one, if it has."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)


def rank_and_size() -> tuple[int, int]:
    """The rank of this process, and the world size: how many have joined."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def wrap_network(network: nn.Module, uses_all_parameters: bool = True) -> nn.Module:
    """The network, or one that computes the same and whose gradients are the mean over the processes; where a step does
    not use all of it, each must find out what it has used."""
    return (
        DistributedDataParallel(network, find_unused_parameters=not uses_all_parameters)
        if rank_and_size()[1] > 1
        else network
    )


def shard_batch(docs: np.ndarray) -> np.ndarray:
    """This process's part of a batch; all of it if there is not a document for everyone."""
    rank, world_size = rank_and_size()
    return docs if len(docs) < world_size else docs[rank::world_size]


def compute_loss_scale(docs: np.ndarray) -> int:
    """What a sum over each one's share counts, so that the mean over processes is the sum over all."""
    world_size = rank_and_size()[1]
    return 1 if len(docs) < world_size else world_size


def average_over_processes(value: Tensor) -> float:
    """Over the processes, each of which has its own."""
    world_size = rank_and_size()[1]
    if world_size > 1:
        value = value.clone()
        dist.all_reduce(value)
    return value.item() / world_size


def broadcast_from_main(value: float) -> float:
    """What the first process says: whoever stops or goes on, all must."""
    if rank_and_size()[1] == 1:
        return value
    message = torch.tensor([value], dtype=torch.float64, device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.broadcast(message, 0)
    return float(message)


@contextmanager
def main_process_first() -> Iterator[None]:
    """The first process goes before the others, as where files are written that they will find."""
    rank, world_size = rank_and_size()
    if world_size > 1 and rank > 0:
        dist.barrier()
    yield
    if world_size > 1 and rank == 0:
        dist.barrier()
