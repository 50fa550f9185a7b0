"""A training step of Rank-AE with very many labels: seconds and memory.

python experiments/rank_ae_step.py --labels 100000 --device cuda
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset
from xmtc.core.run import Run
from xmtc.methods.autoencoder.rank_ae import RankAE
from xmtc.nn.batches import LabelLoader
from xmtc.nn.devices import mixed_precision, select_device
from xmtc.nn.training import TrainingState


def measure_step(args: argparse.Namespace) -> None:
    """Measure seconds and memory of a training step of 256 documents and 100,000 labels."""
    run = Run(device=args.device)
    device, rng = select_device(run), np.random.default_rng(0)
    n_docs, n_labels, n_features = 256, args.labels, 50_000
    X = csr_array(
        (
            np.full(n_docs * 100, 0.1, np.float32),
            rng.integers(0, n_features, n_docs * 100),
            np.arange(n_docs + 1) * 100,
        ),
        shape=(n_docs, n_features),
    )
    Y = csr_array(
        (np.ones(n_docs * 5, np.float32), rng.integers(0, n_labels, n_docs * 5), np.arange(n_docs + 1) * 5),
        shape=(n_docs, n_labels),
    )
    data = Dataset.from_matrix(X, Y)
    method = RankAE(preset="EUR-Lex")
    design = method.build_design(data, None)
    network = method.build_network(design, None, data, run)
    state, loader, labels = (
        TrainingState(network, method.make_training_options(n_docs)),
        design.loader(data, device),
        LabelLoader(Y, device),
    )
    docs, times = np.arange(n_docs), []
    network.train()
    for _ in range(8):
        begin = time.perf_counter()
        batch = loader.load_batch(docs)
        with mixed_precision(device):
            state.step(network(batch, *labels.label_pairs(batch.docs)))
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    on_gpu = device.type == "cuda"
    memory = (
        torch.cuda.max_memory_allocated() / 1e9 if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    )
    print(f"{device}: {n_docs} documents x {n_labels} labels, {np.median(times[2:]):.4f} s, {memory:.2f} GB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=100_000)
    parser.add_argument("--device", default="auto")
    measure_step(parser.parse_args())


if __name__ == "__main__":
    main()
