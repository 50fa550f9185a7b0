"""Rank-AE on real corpora: the paper's Table 2 (Delicious), its ablation (Figure 4) and its noise study (Figure 3).

python experiments/rank_ae.py prepare delicious imdb-meka cve-libraries eurlex57k --out carry/rank_ae.npz.xz
python experiments/rank_ae.py train experiments/rank_ae-delicious.json carry/rank_ae.npz.xz --out results.json
python experiments/rank_ae.py step

Corpora travel as numbers: words and their tf-idf (as float16), labels, and GloVe's vectors where words are known.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from xmtc.base.dataset import Dataset, Tokens
from xmtc.base.run import Run
from xmtc.data.noise import noisy
from xmtc.evaluation import evaluate
from xmtc.methods import method_class

NAMES = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5")
CORPORA = Path(__file__).parents[2] / "shared" / "data"


def prepare(args: argparse.Namespace) -> None:
    """Features, labels and word vectors of several corpora, in one file."""
    from xmtc.nn.vectors import vectors_of_terms

    found: dict[str, np.ndarray] = {}
    for name in args.data:
        parts = read_corpus(CORPORA / name)
        if parts["train"].bag.vocabulary is not None:
            found[f"{name} vectors"] = vectors_of_terms(parts["train"].bag, "glove-100d").astype(np.float16)
        for part, data in parts.items():
            kind = np.uint16 if data.bag.size < 2**16 else np.int32
            found |= {f"{name} {part} columns": data.X.indices.astype(kind), f"{name} {part} rows": data.X.indptr}
            found |= {f"{name} {part} values": data.X.data.astype(np.float16)}
            found |= {f"{name} {part} labels": data.Y.indices.astype(np.uint16), f"{name} {part} ends": data.Y.indptr}
            found |= {f"{name} {part} sizes": np.array([data.bag.size, data.Y.shape[1]])}
            print(name, part, data.X.shape, data.Y.shape, flush=True)
    packed = io.BytesIO()
    np.savez(packed, **found)
    args.out.write_bytes(lzma.compress(packed.getvalue(), preset=3))
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB")


def read_corpus(folder: Path) -> dict[str, Dataset]:
    """Its own features where they come without an order of words, tf-idf elsewhere."""
    from xmtc.data.collect import LabelCollector
    from xmtc.data.corpus import open_corpus
    from xmtc.features import fit, transform
    from xmtc.features.columns import Columns
    from xmtc.features.tfidf import Tfidf

    has_columns = (folder / "train.txt.gz").exists()
    ending, views = ("txt.gz", {"columns": Columns()}) if has_columns else ("jsonl.gz", {"tfidf": Tfidf()})
    parts: dict[str, Dataset] = {}
    for part in ("train", "dev", "test"):
        if (folder / f"{part}.{ending}").exists():
            collector = LabelCollector()
            documents = collector.watch(open_corpus(str(folder / f"{part}.{ending}")))
            if part == "train":
                fitted, data = fit(views, documents, Run())
                names = sorted(collector.numbers)
            else:
                data = transform(fitted, documents, Run())
            parts[part] = replace(data, Y=collector.matrix(names))
    return parts


def load(path: Path, name: str) -> tuple[dict[str, Dataset], np.ndarray | None]:
    """The parts of a corpus, and the vectors of its words to start from, where it has words."""
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as arrays:
        found = {key.removeprefix(f"{name} "): arrays[key] for key in arrays if key.startswith(f"{name} ")}
    parts = {}
    for part in ("train", "dev", "test"):
        if f"{part} sizes" in found:
            n_features, n_labels = found[f"{part} sizes"].tolist()
            rows, ends = found[f"{part} rows"], found[f"{part} ends"]
            n_docs, labels = len(rows) - 1, found[f"{part} labels"].astype(np.int32)
            values, columns = found[f"{part} values"].astype(np.float32), found[f"{part} columns"].astype(np.int32)
            X = csr_array((values, columns, rows), shape=(n_docs, n_features))
            Y = csr_array((np.ones(len(labels), np.float32), labels, ends), shape=(n_docs, n_labels))
            parts[part] = Dataset.from_matrix(X, Y)
    return parts, found["vectors"].astype(np.float32) if "vectors" in found else None


def starting_from(vectors: np.ndarray | None, kind: Any) -> Any:
    """A method whose word vectors, if it starts from any, are given as numbers: columns have none in any file."""
    from xmtc.methods.autoencoder.rank_ae import RankAE

    if vectors is None or not issubclass(kind, RankAE):
        return kind

    class Started(kind):
        def first_vectors(self, data: Dataset, run: Run) -> np.ndarray:
            return vectors if "tfidf" in self.reads else super().first_vectors(data, run)

    return Started


def held_out(train: Dataset, share: float = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]:
    """The part that settings are chosen on, and the rest."""
    order = np.random.default_rng(seed).permutation(train.n_docs)
    n = round(share * train.n_docs)
    return train.rows(np.sort(order[n:])), train.rows(np.sort(order[:n]))


def learn(job: dict[str, Any], parts: dict[str, Dataset], vectors: np.ndarray | None, on_test: bool) -> dict[str, Any]:
    """Train a method; figures are of the test documents, or of a fifth of the training documents held out. Noise is in
    the training documents alone: a fifth of them stays clean and decides when to stop, as in the paper."""
    train, valid = parts["train"], None
    if job.get("documents"):
        train = train.rows(np.sort(np.random.default_rng(0).permutation(train.n_docs)[: job["documents"]]))
    if not on_test:
        train, test = held_out(train)
    else:
        test = parts["test"]
    if "noise" in job:
        train, valid = held_out(train)
        train = replace(train, Y=noisy(train.Y, **job["noise"]))
    method = starting_from(vectors, method_class(job["method"]))(**job["settings"])
    if "words" in method.reads:
        train, valid, test = (as_words(data) for data in (train, valid, test))
    begin = time.perf_counter()
    run = Run(threads=1, device=job.get("device", "auto"))
    model = method.fit(train, valid, run)
    seconds = time.perf_counter() - begin
    figures = evaluate(model.predict(test, 5, run), test.Y, NAMES)
    figures = {name: round(100 * value, 2) for name, value in figures.items()}
    return {"job": job, "seconds": round(seconds, 1), "on": "test" if on_test else "held out", **figures}


def as_words(data: Dataset | None) -> Dataset | None:
    """Features as words, in the order of their columns, for methods that read words: these corpora know no other."""
    if data is None:
        return None
    counts = np.maximum(np.diff(data.X.indptr), 1)  # a document without features is one unknown word
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = np.zeros(offsets[-1], np.int32)
    own = np.repeat(offsets[:-1] - data.X.indptr[:-1], np.diff(data.X.indptr)) + np.arange(data.X.nnz)
    ids[own] = data.X.indices + 1
    return Dataset({"words": Tokens(ids, offsets, data.bag.size + 1)}, data.Y)


def work(given: tuple[dict[str, Any], Path, bool]) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    job, path, on_test = given
    result = learn(job, *load(path, job["data"]), on_test)
    print(job["name"], {name: result[name] for name in NAMES}, result["seconds"], flush=True)
    return result


def train(args: argparse.Namespace) -> None:
    """Jobs of a JSON file, several at a time."""
    jobs = json.loads(args.jobs.read_text())
    results = []
    with ProcessPoolExecutor(args.workers) as pool:
        for result in pool.map(work, [(job, args.file, args.test) for job in jobs]):
            results.append(result)
            args.out.write_text(json.dumps(results, indent=1) + "\n")


def step(args: argparse.Namespace) -> None:
    """A training step of 256 documents and 100,000 labels: seconds and memory."""
    import torch

    from xmtc.nn.batches import LabelRows
    from xmtc.nn.devices import device_of, mixed
    from xmtc.nn.training import State

    run = Run(device=args.device)
    device, rng = device_of(run), np.random.default_rng(0)
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
    data, method = Dataset.from_matrix(X, Y), method_class("rank_ae")(hidden=100, layer=800, average_from=99)
    design = method.design(data, None)
    network = method.network(design, None, data, run)
    state, loader, labels = State(network, method.plan), design.loader(data, device), LabelRows(Y, device)
    docs, times = np.arange(n_docs), []
    network.train()
    for _ in range(8):
        begin = time.perf_counter()
        batch = loader.batch(docs)
        with mixed(device):
            state.step(network(batch, *labels.pairs(batch.docs)))
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
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("prepare")
    make.add_argument("data", nargs="+")
    make.add_argument("--out", type=Path, required=True)
    make.set_defaults(run=prepare)
    fit = commands.add_parser("train")
    fit.add_argument("jobs", type=Path, help='JSON: [{"name", "data", "method", "settings", "noise"}, ...]')
    fit.add_argument("file", type=Path)
    fit.add_argument("--out", type=Path, required=True)
    fit.add_argument("--test", action="store_true", help="final figures; else of a fifth of the training documents")
    fit.add_argument("--workers", type=int, default=2)
    fit.set_defaults(run=train)
    one = commands.add_parser("step")
    one.add_argument("--labels", type=int, default=100_000)
    one.add_argument("--device", default="auto")
    one.set_defaults(run=step)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
