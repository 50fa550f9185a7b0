"""What the training of every network begins and ends with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from xmtc.core.dataset import Dataset
from xmtc.core.method import Method
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.data.splits import VALID_SHARE, random_rows, train_valid_split
from xmtc.evaluation import evaluate
from xmtc.nn import distributed
from xmtc.nn.devices import device_of, device_with, threads_for, working
from xmtc.nn.network import Loader
from xmtc.nn.training import Plan, train

HELD_OUT = (
    "share of the documents, at most 4,000, that decide when to stop, where no others are given; 0: learn from all, to "
    "the last pass, and, unless calibrate=false, a second time without some, to tell what scores mean"
)
MEASURE = "nDCG@5"  # of held-out documents, by which the best pass is known


def begin(
    method: Method,
    data: Dataset,
    valid: Dataset | None,
    run: Run,
    *,
    seed: int,
    share: float = VALID_SHARE,
    vectors: np.ndarray | None = None,
) -> tuple[Dataset, Dataset | None, torch.device]:
    """Hold documents out, unless there are others to stop by or none are wanted (share=0); meet the other processes;
    claim the checkpoint for this training, whose word vectors may have come from a file that has changed since."""
    if valid is not None or share:
        data, valid = train_valid_split(data, valid, seed, share)
    device = device_of(run)
    distributed.join(device)
    if run.checkpoint.folder:
        with distributed.first_alone():
            held_out = valid.fingerprint() if valid else ""
            run.checkpoint.claim(f"{method} {data.fingerprint()} {held_out} {fingerprint(vectors)}")
    return data, valid, device


def rows_to_stop_by(data: Dataset, seed: int, share: float) -> np.ndarray | None:
    """The documents that `begin` holds out where no others are given, if any."""
    return random_rows(data, seed, share) if share else None


def fingerprint(vectors: np.ndarray | None) -> str:
    """The same for the same numbers alone."""
    if vectors is None:
        return ""
    return f"{vectors.shape} {hashlib.blake2b(np.ascontiguousarray(vectors).data, digest_size=16).hexdigest()}"


def fit_network(
    network: nn.Module,
    *,
    loader: Loader,
    loss: Callable[[np.ndarray], Tensor | Iterator[Tensor]],
    answer: Callable[[Run], Predictions],
    Y: csr_array | None,
    plan: Plan,
    batch: int,
    run: Run,
    name: str = "network",
) -> None:
    """Train a network in batches of the loader's documents. `loss` is that of document numbers; `answer` predicts the
    labels of the held-out documents, whose true ones are Y. Without any, the last pass is the best."""

    def batches(rng: np.random.Generator) -> Iterator[np.ndarray]:
        return loader.shuffled(batch, rng)

    def score() -> float:
        if Y is None:
            return 0.0  # of equal scores the last stays
        return evaluate(answer(run.without_output()), Y, [MEASURE])[MEASURE]

    if Y is None:
        plan = replace(plan, look_every=0)  # the weights after the last step stay, not those of the last look
    threads = threads_for(run, network, batch)
    with working(run, device_with(network), plan.seed, threads):
        train(network, batches, loss, score, plan, loader.n_docs, run, name, "" if Y is None else MEASURE)
