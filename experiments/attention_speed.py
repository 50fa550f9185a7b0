"""Measure the parts of a training step of AttentionXML on a GPU.

python experiments/attention_speed.py ../shared/data/eurlex57k/train.jsonl.gz
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np
import torch

from xmtc.core.dataset import Dataset, Tokens
from xmtc.data.corpus import open_corpus
from xmtc.errors import XmtcError
from xmtc.methods.attention.level_training import binary_cross_entropy
from xmtc.methods.attention.model import RecurrentDesign
from xmtc.nn.batches import LabelLoader, TokenLoader
from xmtc.nn.devices import mixed_precision
from xmtc.nn.training import TrainingOptions, TrainingState
from xmtc.pipeline import Pipeline

PLAN = TrainingOptions(epochs=1, rate=1e-3, average_from=99, average_every=99, patience=9, seed=0)


def measure_milliseconds(work: Callable[[], object], repeats: int = 12) -> float:
    """Return the median of several runs after two warm-up runs."""
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return float(np.median(times[2:]))


def print_table(data: Dataset, dimension: int, sizes: list[int]) -> None:
    """Print a row for each batch size: the parts of a step, the whole step, and memory."""
    device = torch.device("cuda")
    torch.set_float32_matmul_precision("high")
    loader, labels = TokenLoader(data.tokens("words"), device), LabelLoader(data.Y, device)
    longest = np.flatnonzero(loader.lengths == loader.lengths.max())
    design = RecurrentDesign(
        n_words=data.sizes["words"],
        dimension=dimension,
        hidden=256,
        layers=(256,),
        pooling="attention",
        n_labels=data.n_labels,
    )
    for size in sizes:
        print_line(design, loader, labels, longest[:size], device)


def print_line(
    design: RecurrentDesign, loader: TokenLoader, labels: LabelLoader, docs: np.ndarray, device: torch.device
) -> None:
    torch.cuda.reset_peak_memory_stats()
    network = design.build(0.2, 0.5).to(device).train()
    state = TrainingState(network, PLAN)
    batch = loader.load_batch(docs)
    targets = labels.targets(batch.docs)
    with torch.no_grad():
        states = network.encoder(batch).clone()
    states.requires_grad_(True)

    def encode() -> None:
        with mixed_precision(device):
            network.encoder(batch).sum().backward()

    def run_attention() -> None:
        with mixed_precision(device):
            binary_cross_entropy(network.head(states, batch.make_mask()), targets).backward()

    def run_step() -> None:
        batch = loader.load_batch(docs)
        with mixed_precision(device):
            state.step(binary_cross_entropy(network(batch), labels.targets(batch.docs)))

    run_step()
    parts = {
        "data": measure_milliseconds(lambda: loader.load_batch(docs)),
        "LSTM": measure_milliseconds(encode),
        "attention and head": measure_milliseconds(run_attention),
        "optimiser": measure_milliseconds(lambda: [optimiser.step() for optimiser in state.optimisers]),
        "step": measure_milliseconds(run_step),
    }
    times = "  ".join(f"{name} {value:.1f}" for name, value in parts.items())
    memory = torch.cuda.max_memory_allocated() / 1e9
    rate = len(docs) / parts["step"] * 1000
    print(
        f"batch {len(docs)} x {batch.max_length} words, ms: {times}; {rate:.0f} documents/s, {memory:.1f} GB",
        flush=True,
    )


def measure_million_labels(
    n_labels: int = 1_000_000, n_candidates: int = 1280, n_docs: int = 200, n_words: int = 250
) -> None:
    """Measure a step of the lowest level of a tree with a million labels, with the paper's sizes for Amazon-670K."""
    device = torch.device("cuda")
    torch.cuda.reset_peak_memory_stats()
    rng = np.random.default_rng(0)
    offsets = np.arange(n_docs + 1, dtype=np.int64) * n_words
    tokens = Tokens(rng.integers(0, 400_000, n_docs * n_words).astype(np.int32), offsets, 400_000)
    design = RecurrentDesign(
        n_words=400_000, dimension=300, hidden=512, layers=(512, 256), pooling="attention", n_labels=n_labels
    )
    network = design.build(0.2, 0.5, sparse=True).to(device).train()
    state, batch = TrainingState(network, PLAN), TokenLoader(tokens, device).load_batch(np.arange(n_docs))
    candidates = torch.randint(n_labels, (n_docs, n_candidates), device=device)
    targets = (torch.rand(n_docs, n_candidates, device=device) < 0.005).float()

    def run_step() -> None:
        with mixed_precision(device):
            state.step(binary_cross_entropy(network(batch, candidates), targets))

    run_step()
    took, memory = measure_milliseconds(run_step), torch.cuda.max_memory_allocated() / 1e9
    sizes = f"{n_labels} labels, {n_candidates} candidates, batch {n_docs} x {n_words} words"
    print(f"{sizes}: {took:.1f} ms, {memory:.1f} GB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="training documents")
    parser.add_argument("--dimension", type=int, default=100, help="numbers of a word's vector")
    parser.add_argument("--batches", type=int, nargs="+", default=[40, 200, 400, 800])
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("There is no GPU here, and this measures one.")
    try:
        data = Pipeline.from_parameters("attention_xml").prepare(open_corpus(args.corpus)).data
    except XmtcError as error:
        sys.exit(str(error))
    print_table(data, args.dimension, args.batches)
    measure_million_labels()


if __name__ == "__main__":
    main()
