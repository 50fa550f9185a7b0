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
from xmtc.data.splits import VALIDATION_SHARE, sample_labelled_rows, train_valid_split
from xmtc.evaluation import evaluate
from xmtc.nn import distributed
from xmtc.nn.devices import choose_thread_count, get_network_device, select_device, use_torch_settings
from xmtc.nn.network import Loader
from xmtc.nn.training import TrainingOptions, run_training_loop

HELD_OUT_HELP = (
    "share of the documents, at most 4,000, that decide when to stop, where no others are given; 0: learn from all, to "
    "the last pass, and, unless calibrate=false, a second time without some, to tell what scores mean"
)
STOPPING_METRIC = "nDCG@5"  # of held-out documents, by which the best pass is known


def prepare_training(
    method: Method,
    data: Dataset,
    valid: Dataset | None,
    run: Run,
    *,
    seed: int,
    share: float = VALIDATION_SHARE,
    vectors: np.ndarray | None = None,
) -> tuple[Dataset, Dataset | None, torch.device]:
    """Hold documents out, unless there are others to stop by or none are wanted (share=0); meet the other processes;
    claim the checkpoint for this training, whose word vectors may have come from a file that has changed since."""
    if valid is not None or share:
        data, valid = train_valid_split(data, valid, seed, share)
    device = select_device(run)
    distributed.join_process_group(device)
    if run.checkpoint.folder:
        with distributed.main_process_first():
            held_out = valid.fingerprint() if valid else ""
            run.checkpoint.claim(f"{method} {data.fingerprint()} {held_out} {fingerprint_array(vectors)}")
    return data, valid, device


def select_stopping_rows(data: Dataset, seed: int, share: float) -> np.ndarray | None:
    """The documents that `begin` holds out where no others are given, if any."""
    return sample_labelled_rows(data, seed, share) if share else None


def fingerprint_array(vectors: np.ndarray | None) -> str:
    """The same for the same numbers alone."""
    if vectors is None:
        return ""
    return f"{vectors.shape} {hashlib.blake2b(np.ascontiguousarray(vectors).data, digest_size=16).hexdigest()}"


def fit_network(
    network: nn.Module,
    *,
    loader: Loader,
    loss: Callable[[np.ndarray], Tensor | Iterator[Tensor]],
    predict: Callable[[Run], Predictions],
    Y: csr_array | None,
    plan: TrainingOptions,
    batch: int,
    run: Run,
    name: str = "network",
) -> None:
    """Train a network in batches of the loader's documents. `loss` is that of document numbers; `answer` predicts the
    labels of the held-out documents, whose true ones are Y. Without any, the last pass is the best."""

    def batches(rng: np.random.Generator) -> Iterator[np.ndarray]:
        return loader.shuffled_batches(batch, rng)

    def score() -> float:
        if Y is None:
            return 0.0  # of equal scores the last stays
        return evaluate(predict(run.without_output()), Y, [STOPPING_METRIC])[STOPPING_METRIC]

    if Y is None:
        plan = replace(plan, look_every=0)  # the weights after the last step stay, not those of the last look
    threads = choose_thread_count(run, network, batch)
    with use_torch_settings(run, get_network_device(network), plan.seed, threads):
        run_training_loop(
            network, batches, loss, score, plan, loader.n_docs, run, name, "" if Y is None else STOPPING_METRIC
        )
