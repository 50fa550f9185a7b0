"""APLC-XLNet on real corpora, as run on a machine with a GPU and without the corpora or a network. Subwords go there as
numbers, encoders in parts (`xmtc encoders export` and `join`).

python experiments/aplc.py prepare eurlex57k --out carry/aplc.npz.xz
python experiments/aplc.py cost --out cost.json
python experiments/aplc.py speed FOLDER --out speed.json
python experiments/aplc.py explain MODEL test.jsonl.gz --out explained.json
python experiments/aplc.py train experiments/aplc-eurlex57k.json carry/aplc.npz.xz --out results.json --keep kept
python experiments/combine.py eurlex57k kept --of aplc=mpnet --of attention=flat-0,flat-1 --out combined.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    CORPORA,
    PARTS,
    Log,
    first_words,
    from_numbers,
    learn,
    numbers_of,
    pack,
    read_texts,
    unpack,
)
from scipy.sparse import csr_array

from xmtc.base.dataset import Dataset, Tokens
from xmtc.encoders.catalogue import find_encoder
from xmtc.methods import method_class

# MiniLM and MPNet cut texts alike; MPNet's ids are four larger, and its <s> and </s> are not [CLS] and [SEP].
AFTER_BERT, SPECIAL = 4, {0: 101, 2: 102}

# Labels in clusters as in Table 3: number of labels, clusters, width.
COSTS = ((4_000, 2, 768), (25_000, 2, 768), (100_000, 3, 768), (670_000, 4, 512))


def prepare(args: argparse.Namespace) -> None:
    """MPNet's subwords of all parts as numbers, and labels."""
    from xmtc.features.subwords import Subwords

    found: dict[str, Any] = {}
    for part, texts, Y in read_texts(args.corpora / args.data):
        if part == "train":
            fitted, tokens = Subwords("mpnet-base", args.subwords).fit(texts)
        else:
            tokens = fitted.transform(texts)
        found |= numbers_of(part, tokens, Y)
    pack(args.out, found)


def read(path: Path, encoder: str, subwords: int) -> dict[str, Dataset]:
    """For an encoder in a folder; of a corpus without dev, a fifth of the training documents."""
    found, parts = unpack(path), {}
    is_mpnet = json.loads((Path(encoder) / "config.json").read_text())["model_type"] == "mpnet"
    for part in PARTS:
        if f"{part}_ids" in found:
            tokens, Y = from_numbers(part, found)
            tokens = shortened(replace(tokens, encoder=encoder), subwords)
            tokens = tokens if is_mpnet else as_bert(tokens)
            parts[part] = Dataset({"subwords": tokens}, Y)
    if "dev" not in parts:
        order = np.random.default_rng(0).permutation(parts["train"].n_docs)
        n, whole = len(order) // 5, parts["train"]
        parts |= {"train": whole.rows(np.sort(order[n:])), "dev": whole.rows(np.sort(order[:n]))}
    return parts


def shortened(tokens: Tokens, most: int) -> Tokens:
    """The first subwords and the special token at the end."""
    found = first_words(tokens, most)
    found.ids[found.offsets[1:] - 1] = tokens.ids[tokens.offsets[1:] - 1]
    return found


def as_bert(tokens: Tokens) -> Tokens:
    ids = tokens.ids - AFTER_BERT
    for mpnet, bert in SPECIAL.items():
        ids[tokens.ids == mpnet] = bert
    return replace(tokens, ids=ids, size=tokens.size - AFTER_BERT - 1)


def work(given: tuple[dict[str, Any], Path, Path | None, bool]) -> dict[str, Any]:
    job, file, keep, on_test = given
    parts = read(file, find_encoder(job["encoder"]), job.get("subwords", 512))
    method = method_class("aplc_xlnet")(**job["settings"])
    return {"job": job, **learn(method, job["name"], parts, keep, PARTS[1:] if on_test else ("dev",))}


def train(args: argparse.Namespace) -> None:
    """Train the jobs of a JSON file, several at a time. Settings are chosen by the figures of dev."""
    jobs, results = json.loads(args.jobs.read_text()), []
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        for result in pool.map(work, [(job, args.file, args.keep, args.test) for job in jobs]):
            results.append(result)
            args.out.write_text(json.dumps(results, indent=1) + "\n")


def cost(args: argparse.Namespace) -> None:
    """Label clusters against a flat linear layer: parameters, time and memory of a step, beside what eqs. 9 and 14
    predict of them. Labels follow Zipf's law, five to a document."""
    import torch

    from xmtc.nn.clusters import Clusters, LabelClusters, cut

    results = []
    for n_labels, n_clusters, width in COSTS:
        rng = np.random.default_rng(0)
        shares = 1 / np.arange(1, n_labels + 1)
        labels = torch.from_numpy(rng.choice(n_labels, args.batch * 5, p=shares / shares.sum()))
        rows = torch.arange(args.batch).repeat_interleave(5)
        sizes = cut(n_labels, (1.0,) * n_clusters)
        measured = {}
        for name, clusters in {"flat": Clusters((n_labels,), width, 2), "aplc": Clusters(sizes, width, 2)}.items():
            torch.manual_seed(0)
            head = LabelClusters(clusters).to(args.device)
            measured[name] = step_of(head, width, rows, labels, args) | {
                "parameters": sum(p.numel() for p in head.parameters())
            }
            del head
        edges = np.cumsum(sizes)
        which = np.searchsorted(edges, labels.numpy(), side="right").reshape(args.batch, 5)
        accessed = [float((which == i).any(1).mean()) for i in range(1, n_clusters)]
        narrow = [size / 2**i for i, size in enumerate(sizes)]
        results.append({
            "labels": n_labels, "clusters": n_clusters, "width": width, "documents": args.batch, **measured,
            "documents with a label in each tail": [round(share, 3) for share in accessed],
            "eq. 9": round(n_labels / sum(narrow), 2),
            "eq. 14": round(n_labels / (sizes[0] + sum(p * n for p, n in zip(accessed, narrow[1:], strict=True))), 2),
        })  # fmt: skip
        print(json.dumps(results[-1]), flush=True)
        args.out.write_text(json.dumps(results, indent=1) + "\n")


def step_of(head: Any, width: int, rows: Any, labels: Any, args: argparse.Namespace) -> dict[str, float]:
    """Median milliseconds of the loss and its gradients, as a whole and on the GPU alone, and of AdamW's step; the most
    memory of both, in megabytes."""
    import torch

    from xmtc.nn.devices import mixed

    device = torch.device(args.device)
    features = torch.randn(int(rows.max()) + 1, width, device=device, requires_grad=True)
    optimiser = torch.optim.AdamW(head.parameters(), 1e-3, weight_decay=0.0, fused=device.type == "cuda")

    def gradients() -> None:
        optimiser.zero_grad(set_to_none=True)
        with mixed(device):
            loss = head(features, rows, labels)
        loss.backward()

    def predict() -> None:
        head.best(features.detach(), 5)

    found = {"gradients_ms": timed(gradients, device), "adamw_ms": timed(optimiser.step, device)}
    if device.type == "cuda":
        found["gradients_on_gpu_ms"] = computed(gradients)
        torch.cuda.reset_peak_memory_stats()
        gradients()
        optimiser.step()
        found["memory_mb"] = round(torch.cuda.max_memory_allocated() / 1e6)
    return found | {"best_5_ms": timed(predict, device)}


def timed(act: Callable[[], object], device: Any, repeats: int = 30) -> float:
    import torch

    times = []
    for _ in range(repeats + 5):
        begin = time.perf_counter()
        act()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - begin))
    return round(float(np.median(times[5:])), 3)


def computed(act: Callable[[], object], repeats: int = 10) -> float:
    """Milliseconds that a GPU computes, without those in which it waits for the CPU to ask."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(repeats):
            act()
    return round(sum(event.self_device_time_total for event in seen.key_averages()) / 1000 / repeats, 3)


def speed(args: argparse.Namespace) -> None:
    """Documents per second of training and prediction, of texts of 512 subwords; and where a step's time goes."""
    import torch

    from xmtc.base.run import Run

    results = []
    for encoder in args.encoders:
        for batch in args.batches:
            rng, n_docs = np.random.default_rng(0), batch * args.steps
            ids = rng.integers(1000, 30_000, n_docs * args.subwords).astype(np.int32)
            tokens = Tokens(ids, np.arange(n_docs + 1) * args.subwords, 30_500, encoder=str(encoder))
            labels, ends = rng.integers(0, 4000, 5 * n_docs), np.arange(n_docs + 1) * 5
            Y = csr_array((np.ones(5 * n_docs, np.float32), labels, ends), shape=(n_docs, 4000))
            data = Dataset({"subwords": tokens}, Y)
            valid = data.rows(np.arange(batch))
            method = method_class("aplc_xlnet")(batch=batch, epochs=args.epochs, **args.settings)
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            log = Log(f"{encoder.name} {batch}")
            model = method.fit(data, valid, Run(progress=log, device=args.device))
            trained = n_docs / min(np.diff([seconds for seconds, _ in log.news]))
            memory = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0
            for _ in range(2):  # the first time, it builds the network and chooses kernels
                begin = time.perf_counter()
                model.predict(data, 5, Run(device=args.device))
                predicted = n_docs / (time.perf_counter() - begin)
            found = {"encoder": encoder.name, "batch": batch, "trained_per_s": round(trained), "GB": round(memory, 1)}
            results.append(found | {"predicted_per_s": round(predicted)} | args.settings)
            print(results[-1], flush=True)
            args.out.write_text(json.dumps(results, indent=1) + "\n")


def explain(args: argparse.Namespace) -> None:
    """How far explanations of the best label are from adding up to what the words of a text make of its logit, by the
    number of points of integrated gradients."""
    import torch

    from xmtc import Tagger
    from xmtc.data.corpus import open_corpus

    tagger, results = Tagger.load(args.model), []
    network = tagger.model.network.on(torch.device("cpu"))
    encoder = network.encoder
    for _, document in zip(range(args.documents), open_corpus(str(args.corpus)), strict=False):
        data = tagger.read([document])
        ids = torch.from_numpy(data.tokens("subwords").ids.astype(np.int64))
        best = int(np.flatnonzero(tagger.model.order == tagger.model.predict(data, 1).labels[0, 0])[0])
        without = torch.where(encoder.is_special(len(ids)), ids, encoder.padding)
        are = torch.ones(1, len(ids), dtype=torch.bool)
        pooled = [encoder.pooled(are, inputs_embeds=encoder.vectors(each)[None]) for each in (ids, without)]
        whole, nothing = (network.head.logit(network.after(each), best).item() for each in pooled)
        found = {n: network.parts_of_logit(ids, best, n).sum().item() for n in (1, 8, 16, 32)}
        results.append({n: round(100 * abs(total / (whole - nothing) - 1), 2) for n, total in found.items()})
        print(results[-1], flush=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("prepare")
    make.add_argument("data")
    make.add_argument("--subwords", type=int, default=512)
    make.add_argument("--corpora", type=Path, default=CORPORA)
    make.set_defaults(run=prepare)
    fit = commands.add_parser("train")
    fit.add_argument("jobs", type=Path, help='JSON: [{"name", "encoder", "subwords", "settings"}, ...]')
    fit.add_argument("file", type=Path)
    fit.add_argument("--keep", type=Path, help="folder for the best labels of every document")
    fit.add_argument("--test", action="store_true", help="final figures; else of dev alone")
    fit.add_argument("--workers", type=int, default=1)
    fit.set_defaults(run=train)
    head = commands.add_parser("cost")
    head.add_argument("--batch", type=int, default=32)
    head.add_argument("--device", default="cuda")
    head.set_defaults(run=cost)
    fast = commands.add_parser("speed")
    fast.add_argument("encoders", type=Path, nargs="+", help="folders")
    fast.add_argument("--batches", type=int, nargs="+", default=[12, 32, 64])
    fast.add_argument("--subwords", type=int, default=512)
    fast.add_argument("--steps", type=int, default=30)
    fast.add_argument("--epochs", type=int, default=3)
    fast.add_argument("--settings", type=json.loads, default={})
    fast.add_argument("--device", default="auto")
    fast.set_defaults(run=speed)
    told = commands.add_parser("explain")
    told.add_argument("model", type=Path)
    told.add_argument("corpus", type=Path)
    told.add_argument("--documents", type=int, default=4)
    told.set_defaults(run=explain)
    for command in (make, fit, head, fast, told):
        command.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
