"""Measure where Rank-AE with the paper's losses errs on a fifth of the training documents of Delicious: P@1 of D(E(y)),
of D(F(x)), and of D(F(x)) with the batch statistics of F(x) in D; and the share of the codes' variance that F explains.

python experiments/rank_ae_codes.py --seed 0 -p dropout=0.2 --code-noise 0.5 --out results/rank_ae-codes.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from common import CORPORA
from delicious_splits import DEV_SHARE, split_at_random
from torch import Tensor, nn

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import UnparsedValue
from xmtc.core.run import Run
from xmtc.data.corpus import open_corpus
from xmtc.features import FEATURES
from xmtc.methods.autoencoder.network import Autoencoder
from xmtc.nn.batches import BagLoader, LabelLoader
from xmtc.nn.training import fit_label_network
from xmtc.pipeline import Pipeline

ONE, CPU = Run(threads=1, device="cpu"), torch.device("cpu")


def add_code_noise(network: Autoencoder, share: float) -> None:
    """Add Gaussian noise, `share` standard deviations of the codes, to the codes that D reads in training."""

    def add_noise(module: nn.Module, codes: tuple[Tensor]) -> Tensor:
        return codes[0] + share * codes[0].detach().std(0) * torch.randn_like(codes[0]) if module.training else codes[0]

    network.predictor.decoder.first.register_forward_pre_hook(add_noise)


def compute_codes(network: Autoencoder, data: Dataset) -> tuple[Tensor, Tensor]:
    """Return F(x) and E(y) of all documents."""
    documents = np.arange(data.n_docs)
    pairs = LabelLoader(data.Y, CPU).label_pairs(documents)
    bag = BagLoader(data.X, CPU).load_batch(documents)
    return network.predictor.features(bag), network.encoder(*pairs, data.n_docs)


def compute_first_precision(network: Autoencoder, codes: Tensor, data: Dataset) -> float:
    first = network.predictor.decoder(codes).argmax(1).numpy()
    return round(100 * float(data.Y.toarray()[np.arange(data.n_docs), first].mean()), 2)


@torch.no_grad()
def measure(network: Autoencoder, train: Dataset, test: Dataset) -> dict[str, float]:
    """Return P@1 of the codes on training and held-out documents."""
    network.eval()
    found, norm = {}, network.predictor.decoder.inner.norm
    for name, data in (("train", train), ("held out", test)):
        x_h, y_h = compute_codes(network, data)
        explained = 1 - (x_h - y_h).square().mean() / (y_h - y_h.mean(0)).square().mean()
        found[f"{name}, D(E(y))"] = compute_first_precision(network, y_h, data)
        found[f"{name}, D(F(x))"] = compute_first_precision(network, x_h, data)
        found[f"{name}, variance explained"] = round(float(explained), 3)
    if norm is not None:
        inner = network.predictor.decoder.first(compute_codes(network, train)[0])
        norm.mean, norm.variance = inner.mean(0), inner.var(0)
        found["held out, D(F(x)), statistics of F(x)"] = compute_first_precision(
            network, compute_codes(network, test)[0], test
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-p", "--param", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--code-noise", type=float, default=0.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpora", type=Path, default=CORPORA)
    args = parser.parse_args()
    given = dict(pair.split("=", 1) for pair in args.param)
    parameters = {"preset": "Delicious", "seed": args.seed}
    parameters |= {key: UnparsedValue(value) for key, value in given.items()}
    pipeline = Pipeline.from_parameters("rank_ae", FEATURES, parameters)
    data = pipeline.prepare(open_corpus(str(args.corpora / "delicious" / "train.txt.gz"))).data
    train, test = split_at_random(data, round(DEV_SHARE * data.n_docs), seed=0)
    method = pipeline.method
    design = method.build_design(train, None)
    network = method.build_network(design, None, train, ONE)
    add_code_noise(network, args.code_noise)
    options, started = method.make_training_options(train.n_docs), time.process_time()
    fit_label_network(network, network.predictor, design, train, None, options=options, batch=method.batch, run=ONE)
    row = {"parameters": given, "code noise": args.code_noise, "seed": args.seed}
    row |= measure(network, train, test) | {"processor s": round(time.process_time() - started)}
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    args.out.write_text(json.dumps([*rows, row], indent=1) + "\n")
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
