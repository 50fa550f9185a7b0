"""Measure costs of APLC-XLNet that no command of xmtc measures. Trainings and evaluations are in aplc-*.toml.

python experiments/aplc.py equations --out experiments/results/aplc-equations.json    what eqs. 9 and 14 say; no GPU
python experiments/aplc.py cost --out cost.json
python experiments/aplc.py speed FOLDER --out speed.json
python experiments/aplc.py explain MODEL test.jsonl.gz --out explained.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import CORPORA, TrainingLog, read_texts
from scipy.sparse import csr_array

from xmtc.core.dataset import Dataset, Tokens
from xmtc.methods import method_class

# Clusters of labels as in Table 3: number of labels, clusters, width.
COSTS = ((4_000, 2, 768), (25_000, 2, 768), (100_000, 3, 768), (670_000, 4, 512))
LABELS, FACTOR = 5, 2  # of a document under Zipf's law; q
REAL = ("cve-libraries", "eurlex57k", "tibkat-gnd-en")


def compute_equations(args: argparse.Namespace) -> None:
    """Compute eqs. 9 and 14 for equal clusters under Zipf's law, and for corpora in two clusters."""
    from xmtc.nn.label_clusters import ClusterLayout, compute_cluster_sizes, find_document_clusters, order_by_frequency

    found = []
    for n_labels, n_clusters, width in COSTS:
        sizes = compute_cluster_sizes(n_labels, (1.0,) * n_clusters)
        of_clusters = np.add.reduceat(make_zipf_probabilities(n_labels), np.cumsum((0, *sizes))[:-1])
        row = {"data": "Zipf", "labels": n_labels, "clusters": n_clusters, "width": width}
        found += [row | predict_cost(sizes, 1 - (1 - of_clusters) ** LABELS, batch) for batch in args.batches]
    for name in REAL:
        _, _, Y = next(read_texts(args.corpora / name))
        sizes = compute_cluster_sizes(Y.shape[1], (1.0, 1.0))
        by_rank = csr_array(Y[:, order_by_frequency(np.bincount(Y.indices, minlength=Y.shape[1]))])
        looks = find_document_clusters(ClusterLayout(sizes, 1, FACTOR), by_rank).mean(0)
        row = {"data": name, "labels": Y.shape[1], "clusters": 2}
        found += [row | predict_cost(sizes, looks, batch) for batch in args.batches]
    args.out.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")


def make_zipf_probabilities(n_labels: int) -> np.ndarray:
    """Return the probability of each label."""
    shares = 1 / np.arange(1, n_labels + 1)
    return shares / shares.sum()


def predict_cost(sizes: Sequence[int], documents: np.ndarray, batch: int) -> dict[str, Any]:
    """Compute eqs. 9 and 14 for the fractions of documents with a label in each cluster.

    In eq. 14, p_i is the probability that a batch has a label in the cluster; then all of the batch is counted. The
    authors and this package compute only documents that have one, so their fraction replaces p_i.
    """
    narrow = np.array(sizes) / FACTOR ** np.arange(len(sizes))
    batches = 1 - (1 - documents) ** batch

    def compute_reduction(shares: np.ndarray) -> float:
        return round(float(sum(sizes) / (sizes[0] + (shares * narrow)[1:].sum())), 2)

    return {
        "batch": batch,
        "documents": [round(float(share), 3) for share in documents[1:]],
        "p_i": [round(float(share), 3) for share in batches[1:]],
        "eq. 9": compute_reduction(np.ones(len(sizes))),
        "eq. 14": compute_reduction(batches),
        "by documents": compute_reduction(documents),
    }


def compare_cost(args: argparse.Namespace) -> None:
    """Compare label clusters with a flat linear layer: parameters, time and memory of a step. Labels follow Zipf's law,
    five per document; `equations` prints the predictions of eqs. 9 and 14."""
    import torch

    from xmtc.nn.label_clusters import ClusterLayout, LabelClusters, compute_cluster_sizes

    results = []
    for n_labels, n_clusters, width in COSTS:
        rng = np.random.default_rng(0)
        labels = torch.from_numpy(rng.choice(n_labels, args.batch * LABELS, p=make_zipf_probabilities(n_labels)))
        rows = torch.arange(args.batch).repeat_interleave(LABELS)
        sizes = compute_cluster_sizes(n_labels, (1.0,) * n_clusters)
        measured = {}
        for name, clusters in {
            "flat": ClusterLayout((n_labels,), width, FACTOR),
            "aplc": ClusterLayout(sizes, width, FACTOR),
        }.items():
            torch.manual_seed(0)
            head = LabelClusters(clusters).to(args.device)
            measured[name] = measure_step(head, width, rows, labels, args) | {
                "parameters": sum(p.numel() for p in head.parameters())
            }
            del head
        row = {"labels": n_labels, "clusters": n_clusters, "width": width, "documents": args.batch}
        results.append(row | measured)
        print(json.dumps(results[-1]), flush=True)
        args.out.write_text(json.dumps(results, indent=1) + "\n")


def measure_step(head: Any, width: int, rows: Any, labels: Any, args: argparse.Namespace) -> dict[str, float]:
    """Return median milliseconds of the loss with gradients (in total and on the GPU), of AdamW's step, and peak
    megabytes."""
    import torch

    from xmtc.nn.devices import mixed_precision

    device = torch.device(args.device)
    features = torch.randn(int(rows.max()) + 1, width, device=device, requires_grad=True)
    optimiser = torch.optim.AdamW(head.parameters(), 1e-3, weight_decay=0.0, fused=device.type == "cuda")

    def gradients() -> None:
        optimiser.zero_grad(set_to_none=True)
        with mixed_precision(device):
            loss = head(features, rows, labels)
        loss.backward()

    def predict() -> None:
        head.best(features.detach(), 5)

    found = {
        "gradients_ms": measure_milliseconds(gradients, device),
        "adamw_ms": measure_milliseconds(optimiser.step, device),
    }
    if device.type == "cuda":
        found["gradients_on_gpu_ms"] = measure_gpu_milliseconds(gradients)
        torch.cuda.reset_peak_memory_stats()
        gradients()
        optimiser.step()
        found["memory_mb"] = round(torch.cuda.max_memory_allocated() / 1e6)
    return found | {"best_5_ms": measure_milliseconds(predict, device)}


def measure_milliseconds(act: Callable[[], object], device: Any, repeats: int = 30) -> float:
    import torch

    times = []
    for _ in range(repeats + 5):
        begin = time.perf_counter()
        act()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - begin))
    return round(float(np.median(times[5:])), 3)


def measure_gpu_milliseconds(act: Callable[[], object], repeats: int = 10) -> float:
    """Return the milliseconds of GPU computation without idle time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(repeats):
            act()
    return round(sum(event.self_device_time_total for event in seen.key_averages()) / 1000 / repeats, 3)


def measure_speed(args: argparse.Namespace) -> None:
    """Measure documents per second in training and prediction with texts of 512 subwords, and the parts of a step."""
    import torch

    from xmtc.core.run import Run

    results = []
    for encoder in args.encoders:
        for batch in args.batches:
            rng, n_docs = np.random.default_rng(0), batch * args.steps
            ids = rng.integers(1000, 30_000, n_docs * args.subwords).astype(np.int32)
            tokens = Tokens(ids, np.arange(n_docs + 1) * args.subwords, 30_500, encoder=str(encoder))
            labels, ends = rng.integers(0, 4000, 5 * n_docs), np.arange(n_docs + 1) * 5
            Y = csr_array((np.ones(5 * n_docs, np.float32), labels, ends), shape=(n_docs, 4000))
            data = Dataset({"subwords": tokens}, Y)
            valid = data.select_rows(np.arange(batch))
            method = method_class("aplc_xlnet")(batch=batch, epochs=args.epochs, **args.settings)
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            log = TrainingLog(f"{encoder.name} {batch}")
            model = method.fit(data, valid, Run(progress=log, device=args.device))
            trained = n_docs / min(np.diff([seconds for seconds, _ in log.statuses]))
            memory = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0
            for _ in range(2):  # the first step builds the network and selects kernels
                begin = time.perf_counter()
                model.predict(data, 5, Run(device=args.device))
                predict_cost = n_docs / (time.perf_counter() - begin)
            found = {"encoder": encoder.name, "batch": batch, "trained_per_s": round(trained), "GB": round(memory, 1)}
            results.append(found | {"predicted_per_s": round(predict_cost)} | args.settings)
            print(results[-1], flush=True)
            args.out.write_text(json.dumps(results, indent=1) + "\n")


def measure_explanation_error(args: argparse.Namespace) -> None:
    """Measure the error of the sum of integrated gradients for the best label, by their number of points."""
    import torch

    from xmtc import Tagger
    from xmtc.data.corpus import open_corpus

    tagger, results = Tagger.load(args.model), []
    network = tagger.model.network.load_on(torch.device("cpu"))
    encoder = network.encoder
    for _, document in zip(range(args.documents), open_corpus(str(args.corpus)), strict=False):
        data = tagger.transform([document])
        ids = torch.from_numpy(data.tokens("subwords").ids.astype(np.int64))
        best = int(np.flatnonzero(tagger.model.order == tagger.model.predict(data, 1).labels[0, 0])[0])
        without = torch.where(encoder.mask_special_tokens(len(ids)), ids, encoder.padding)
        are = torch.ones(1, len(ids), dtype=torch.bool)
        pooled = [encoder.pooled(are, inputs_embeds=encoder.vectors(each)[None]) for each in (ids, without)]
        whole, nothing = (network.head.logit(network.after(each), best).item() for each in pooled)
        found = {n: network.compute_integrated_gradients(ids, best, n).sum().item() for n in (1, 8, 16, 32)}
        results.append({n: round(100 * abs(total / (whole - nothing) - 1), 2) for n, total in found.items()})
        print(results[-1], flush=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    said = commands.add_parser("equations")
    said.add_argument("--batches", type=int, nargs="+", default=[12, 32, 256])
    said.add_argument("--corpora", type=Path, default=CORPORA)
    said.set_defaults(run=compute_equations)
    head = commands.add_parser("cost")
    head.add_argument("--batch", type=int, default=32)
    head.add_argument("--device", default="cuda")
    head.set_defaults(run=compare_cost)
    fast = commands.add_parser("speed")
    fast.add_argument("encoders", type=Path, nargs="+", help="folders")
    fast.add_argument("--batches", type=int, nargs="+", default=[12, 32, 64])
    fast.add_argument("--subwords", type=int, default=512)
    fast.add_argument("--steps", type=int, default=30)
    fast.add_argument("--epochs", type=int, default=3)
    fast.add_argument("--settings", type=json.loads, default={})
    fast.add_argument("--device", default="auto")
    fast.set_defaults(run=measure_speed)
    told = commands.add_parser("explain")
    told.add_argument("model", type=Path)
    told.add_argument("corpus", type=Path)
    told.add_argument("--documents", type=int, default=4)
    told.set_defaults(run=measure_explanation_error)
    for command in (said, head, fast, told):
        command.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
