"""AttentionXML on real corpora, as run on a machine with a GPU and without the corpora: words go there as numbers.

python experiments/attention.py prepare eurlex57k --out carry/eurlex57k.npz.xz
python experiments/attention.py speed carry/eurlex57k.npz.xz
python experiments/attention.py train experiments/attention-flat.json --out results.json --keep kept
python experiments/combine.py eurlex57k kept --of attention=flat-0,flat-1,flat-2 --out combined.json
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    CORPORA,
    PARTS,
    first_words,
    from_numbers,
    learn,
    numbers_of,
    pack,
    read_texts,
    unpack,
)

from xmtc.base.dataset import Dataset
from xmtc.methods import method_class


def prepare(args: argparse.Namespace) -> None:
    """Words of train, dev and test as numbers, word vectors, labels: everything a training needs, in one file."""
    from xmtc.features.words import Words
    from xmtc.nn.vectors import vectors_of_tokens

    found: dict[str, Any] = {}
    for part, texts, Y in read_texts(args.corpora / args.data):
        if part == "train":
            fitted, tokens = Words(max_words=args.words).fit(texts)
            vectors = vectors_of_tokens(tokens, args.vectors, corpus_dimension=args.corpus_dimension)
            found["vectors"] = vectors.astype(np.float16)
        else:
            tokens = fitted.transform(texts)
        found |= numbers_of(part, tokens, Y)
    pack(args.out, found)


def read(path: Path) -> tuple[dict[str, Dataset], np.ndarray]:
    """The parts of a corpus, and the word vectors to start from."""
    found, parts = unpack(path), {}
    for part in PARTS:
        tokens, Y = from_numbers(part, found)
        parts[part] = Dataset({"words": tokens}, Y)
    return parts, found["vectors"].astype(np.float32)


def shortened(data: Dataset, words: int) -> Dataset:
    """Only the first words of every document."""
    return replace(data, views={"words": first_words(data.tokens("words"), words)})


def starting_from(vectors: np.ndarray, kind: Any) -> Any:
    """A recurrent method whose word vectors are given as numbers: words that are numbers have none in any file."""

    class Started(kind):
        def first_vectors(self, *_: Any) -> np.ndarray:
            return vectors

    return Started


def train(args: argparse.Namespace) -> None:
    """Train the jobs of a JSON file side by side: an LSTM keeps a GPU waiting most of the time. They draw from the same
    random numbers, so that their seeds tell them apart but do not repeat them."""
    import torch

    jobs, results = json.loads(args.jobs.read_text()), []
    files = {file: read(Path(file)) for file in {job["file"] for job in jobs}}

    def work(job: dict[str, Any]) -> None:
        stream = torch.cuda.stream(torch.cuda.Stream()) if torch.cuda.is_available() else nullcontext()
        with stream:
            (parts, vectors), only = files[job["file"]], job.get("only", {})
            parts = {part: shortened(data, only.get("words", 10**9)) for part, data in parts.items()}
            kind = starting_from(vectors[:, : only.get("columns")], method_class(job["method"]))
            method = kind(**job["settings"])
            results.append({"job": job, **learn(method, job["name"], parts, args.keep)})
            if args.out:
                args.out.write_text(json.dumps(results, indent=1))

    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(jobs)) as pool:
        running = []
        for job in jobs:
            running.append(pool.submit(work, job))
            time.sleep(args.apart)  # so that each draws its first weights undisturbed
        for training in running:
            training.result()


def speed(args: argparse.Namespace) -> None:
    """Where the time of a training step goes."""
    from attention_speed import million, table

    parts, vectors = read(args.file)
    table(parts["train"], vectors.shape[1], args.batches)
    million()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("prepare")
    make.add_argument("data")
    make.add_argument("--out", type=Path, required=True)
    make.add_argument("--words", type=int, default=60_000)
    make.add_argument("--vectors", default="glove-100d")
    make.add_argument(
        "--corpus-dimension", type=int, default=0, help="numbers that the corpus adds to each word's vector"
    )
    make.add_argument("--corpora", type=Path, default=CORPORA)
    make.set_defaults(run=prepare)
    fit = commands.add_parser("train")
    fit.add_argument(
        "jobs",
        type=Path,
        help='JSON: [{"file": ..., "method": ..., "settings": {...}, "name": ..., "only": {...}}, ...]',
    )
    fit.add_argument("--apart", type=float, default=8.0, help="seconds between the begins of trainings")
    fit.add_argument("--out", type=Path)
    fit.add_argument("--keep", type=Path, help="folder for the best labels of every document")
    fit.set_defaults(run=train)
    time_it = commands.add_parser("speed")
    time_it.add_argument("file", type=Path)
    time_it.add_argument("--batches", type=int, nargs="+", default=[40, 200, 400, 800])
    time_it.set_defaults(run=speed)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
