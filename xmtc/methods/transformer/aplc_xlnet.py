"""APLC-XLNet: a pretrained transformer, fine-tuned, with Adaptive Probabilistic Label Clusters as its output layer. Ye,
Chen, Wang, Davison: Pretrained Generalized Autoregressive Model with Adaptive Probabilistic Label Clusters for Extreme
Multi-label Text Classification (ICML 2020).

Any encoder of Hugging Face's transformers will do (`-p encoder=`, see `xmtc encoders`); XLNet is the paper's. Its
state of a text goes through one hidden layer (tanh, dropout) to the clusters: labels sorted by frequency, of which the
most frequent are the head (`clusters`, `proportions`, `factor`). `clusters=1` is a flat linear output layer.

Follows the authors' code where the paper is silent: tanh and dropout 0.1 after the hidden layer, layer normalisation in
the clusters, AdamW without weight decay, gradients clipped at norm 1; and in a term of the loss for each tail that a
document has no label in, which eq. 5 does not have (`untouched_tails`). Differs from both in: labels have biases, which
begin with their frequencies; the loss is a sum; the rates of hidden layer and clusters are 20 and 10 times as large;
documents are held out, of which nDCG@5 is looked at after every pass, and the best pass is kept (a `preset` has what
the paper has of all four); texts of about the same length are padded together, not all to the longest; tails that
cannot reach the best k labels are not computed in a prediction, which changes no answer; `encoder_rate=0` leaves the
encoder as it is; `pooling=attention` has each label attend to the subwords by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import Presets, param
from xmtc.core.method import Method
from xmtc.core.predictions import Predictions
from xmtc.core.run import Run
from xmtc.data.splits import VALID_SHARE
from xmtc.errors import XmtcError
from xmtc.features.encoders.loading import POOLINGS, config_of, pretrained, save_memory, usual_pooling
from xmtc.methods.transformer.model import (
    ATTENTION,
    MOST_POINTS,
    VIEW,
    TransformerDesign,
    TransformerModel,
    in_own_numbers,
    load_states,
)
from xmtc.methods.transformer.network import ClusteredTransformer
from xmtc.methods.transformer.states import AnyLoader
from xmtc.nn import distributed
from xmtc.nn.cuda_graphs import KINDS as GRAPHED
from xmtc.nn.cuda_graphs import CudaGraphs
from xmtc.nn.devices import device_of, mixed, working
from xmtc.nn.fit import HELD_OUT, begin, fit_network, rows_to_stop_by
from xmtc.nn.label_clusters import by_frequency, cut, n_terms
from xmtc.nn.network import TrainedNetwork, predict_with
from xmtc.nn.token_batches import LabelRows, TokenLoader
from xmtc.nn.training import Plan
from xmtc.nn.weights import Weights

AUTO = "auto"
LOSSES = SUM, MEAN = "sum", "mean"
PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16}

# Tables 2 and 3, section 5, and, where these are silent, the authors' code: dropout, clip and untouched_tails.
PAPER = {
    "hidden": 768, "clusters": 2, "factor": 2, "biases": False, "dropout": 0.1, "loss": "mean", "untouched_tails": True,
    "encoder_rate": 5e-5, "hidden_rate": 1e-4, "head_rate": 2e-3, "warm_up": 0.0, "clip": 1.0, "held_out": 0.0,
}  # fmt: skip
THIRDS = (0.33, 0.33, 0.34)
PRESETS: Presets = {
    "EURLex-4k": PAPER | {"max_subwords": 512, "batch": 12, "epochs": 8},
    "AmazonCat-13k": PAPER | {"max_subwords": 192, "batch": 48, "epochs": 8},
    "Wiki10-31k": PAPER | {"max_subwords": 512, "batch": 12, "epochs": 6, "encoder_rate": 1e-5, "head_rate": 1e-3},
    "Wiki-500k": PAPER | {"max_subwords": 256, "batch": 64, "epochs": 12, "clusters": 3, "proportions": THIRDS},
    "Amazon-670k": PAPER | {"max_subwords": 128, "batch": 32, "epochs": 25, "clusters": 4, "hidden": 512},
}


@dataclass(frozen=True)
class APLCXLNet(Method):
    """A pretrained transformer with labels in clusters by their frequency (Ye et al., ICML 2020)."""

    reads: ClassVar[tuple[str, ...]] = (VIEW,)
    presets: ClassVar[Presets] = PRESETS
    is_exact: ClassVar[bool] = False
    spreads: ClassVar[bool] = True
    in_processes: ClassVar[bool] = True
    tiny: ClassVar[dict[str, Any]] = {
        "pooling": "mean", "max_subwords": 40, "loss": "sum", "epochs": 12, "batch": 32, "encoder_rate": 0.002,
        "hidden_rate": 0.01, "head_rate": 0.02, "patience": 12,
    }  # fmt: skip

    pooling: str = param(
        "auto",
        "state of a text: of its first subword, its last, or their mean (auto: the encoder's usual one); attention: "
        "each label looks at the subwords by itself, which is ours and wants clusters=1",
        choices=(AUTO, *POOLINGS, ATTENTION),
    )  # fmt: skip
    hidden: int = param(0, "width of the hidden layer (d); 0: the encoder's", low=0)
    clusters: int = param(2, "clusters of labels, equally large; 1: a flat linear output layer", low=1, high=10_000)
    proportions: tuple[float, ...] = param(
        (), "shares of the labels in head and tails, such as 0.7,0.2,0.1, in place of equal `clusters`", kind=float
    )
    factor: int = param(2, "by which each tail is narrower inside than the cluster before (q)", low=1)
    biases: bool = param(True, "labels have biases, which begin with their frequencies; not in the paper")
    dropout: float = param(0.1, "share of the hidden layer's numbers that a step leaves out", low=0.0, high=0.99)
    loss: str = param("sum", "of the loss's terms: their sum, per document, or mean, as in the paper", choices=LOSSES)
    untouched_tails: bool = param(
        True, "the loss has a term for each tail that a document has no label in: the authors' code, not eq. 5"
    )
    batch: int = param(12, "documents of a step", low=1)
    accumulation_steps: int = param(
        1, "parts that a step's documents are cut into, one after the other, to save memory", low=1
    )
    gradient_checkpointing: bool = param(
        False, "compute states of the encoder twice instead of keeping them, to save memory"
    )
    cuda_graphs: bool = param(
        True,
        "on a GPU, capture the encoder's steps once for each shape and replay them, which is faster: BERT and MPNet, "
        "without accumulation, checkpointing and several processes",
    )
    epochs: int = param(8, "passes over the documents at most; the rates fall to 0 at the end of the last", low=1)
    encoder_rate: float = param(
        5e-5,
        "learning rate of the encoder; 0: it stays as it is, and reads each text once",
        low=0.0,
        high=10.0,
        search=(1e-5, 2e-4),
        log=True,
    )
    hidden_rate: float = param(2e-3, "learning rate of the hidden layer", low=0.0, high=10.0)
    head_rate: float = param(2e-2, "learning rate of the clusters", low=0.0, high=10.0, search=(2e-3, 5e-2), log=True)
    warm_up: float = param(0.0, "share of the steps in which the rates rise, before they fall", low=0.0, high=1.0)
    clip: float = param(1.0, "norm that gradients are scaled down to", low=1e-6, high=1e9)
    patience: int = param(3, "passes without a better nDCG@5 after which training ends", low=1)
    held_out: float = param(VALID_SHARE, HELD_OUT, low=0.0, high=0.9)
    minutes: float = param(0.0, "begin no further pass after so many minutes (0: no limit)", low=0.0)
    precision: str = param("fp32", "numbers of the saved weights: fp32, or fp16, half as large", choices=(*PRECISIONS,))
    gradient_points: int = param(
        16, "points of integrated gradients in explanations; 1: input × gradient", low=1, high=MOST_POINTS
    )
    seed: int = param(0, "seed of the first weights and the order of documents", low=0, high=2**32 - 1)
    preset: str = param(
        "", "a data set of the paper, whose settings stand where none are given", choices=("", *PRESETS)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0 < share < inf for share in self.proportions):
            raise XmtcError(
                f"APLCXLNet: proportions={self.proportions} does not fit; expected shares such as 0.7,0.2,0.1."
            )
        if self.pooling == ATTENTION and (len(self.shares) > 1 or not self.encoder_rate):
            raise XmtcError(
                f"APLCXLNet: pooling=attention does not fit {len(self.shares)} clusters and "
                f"encoder_rate={self.encoder_rate}; expected clusters=1 and an encoder that learns."
            )

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the labels, in each cluster."""
        return self.proportions or (1.0,) * self.clusters

    def held_out_of(self, data: Dataset) -> np.ndarray | None:
        return rows_to_stop_by(data, self.seed, self.held_out)

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> TransformerModel:
        data, valid, _ = begin(self, data, valid, run, seed=self.seed, share=self.held_out)
        assert data.Y is not None
        order = by_frequency(np.bincount(data.Y.indices, minlength=data.n_labels))
        network, design = self.network(data, run)
        self.train(network, order, data, valid, run)
        weights = Weights.of(network, PRECISIONS[self.precision])
        return TransformerModel(
            n_labels=data.n_labels,
            views=data.sizes,
            network=TrainedNetwork(design=design, weights=weights),
            order=order,
            gradient_points=self.gradient_points,
        )

    def network(self, data: Dataset, run: Run) -> tuple[ClusteredTransformer, TransformerDesign]:
        """The pretrained encoder, and beside it what has yet to learn everything."""
        source, device = data.tokens(VIEW).encoder, device_of(run)
        with working(run, device, self.seed):
            model = pretrained(source)
            design = TransformerDesign(
                encoder=config_of(model),
                pooling=usual_pooling(source, model) if self.pooling == AUTO else self.pooling,
                hidden=self.hidden or model.config.hidden_size,
                sizes=cut(data.n_labels, self.shares),
                factor=self.factor,
                biases=self.biases,
            )
            design.check_room(device)
            network = design.build(model, self.dropout, self.untouched_tails)
        check_length(network, data)
        if self.gradient_checkpointing and self.encoder_rate:
            save_memory(model)
        return network.to(device), design

    def train(
        self, network: ClusteredTransformer, order: np.ndarray, data: Dataset, valid: Dataset | None, run: Run
    ) -> None:
        assert data.Y is not None
        device = device_of(run)
        loader, held_out = self.loaders(network, data, valid, run)
        network.encoder.requires_grad_(self.encoder_rate > 0)
        sorted_Y = csr_array(data.Y[:, order])
        labels = LabelRows(sorted_Y, torch.device("cpu"))
        terms = n_terms(network.head.clusters, sorted_Y, self.untouched_tails)
        network.graphs = CudaGraphs(network.encoder) if self.uses_graphs(network, device) else None
        if self.biases:
            network.head.begin_with_frequencies(sorted_Y)
        forward = distributed.shared(network, uses_all=False)  # tails without a label in the batch are not used

        def loss(docs: np.ndarray) -> Iterator[Tensor]:
            divisor = terms[docs].sum() if self.loss == MEAN else len(docs)
            for part in np.array_split(docs, min(self.accumulation_steps, len(docs))):
                batch = loader.batch(distributed.share(part))
                with mixed(device):
                    total = forward(batch, *labels.pairs(batch.docs))
                yield total * float(distributed.weight(part) / divisor)

        def answer(run: Run) -> Predictions:
            assert held_out is not None
            return in_own_numbers(predict_with(network, held_out, 5, run), order)

        fit_network(
            network,
            loader=loader,
            loss=loss,
            answer=answer,
            Y=None if valid is None else valid.Y,
            plan=self.plan(loader.n_docs),
            batch=self.batch,
            run=run,
        )
        network.graphs = None

    def loaders(
        self, network: ClusteredTransformer, data: Dataset, valid: Dataset | None, run: Run
    ) -> tuple[AnyLoader, AnyLoader | None]:
        """Documents to learn from, and those that are held out, if any; where the encoder learns nothing, what it says
        of them."""
        device = device_of(run)
        seen = TokenLoader(data.tokens(VIEW), device, few_widths=self.uses_graphs(network, device))
        held_out = None if valid is None else TokenLoader(valid.tokens(VIEW), device)
        if self.encoder_rate:
            return seen, held_out
        states = load_states(network, run, seen, "states")
        return states, held_out and load_states(network, run, held_out, "states-held-out")

    def uses_graphs(self, network: ClusteredTransformer, device: torch.device) -> bool:
        """Whether the encoder's steps are captured as CUDA graphs."""
        can = network.encoder.model.config.model_type in GRAPHED and device.type == "cuda" and self.encoder_rate > 0
        alone = distributed.rank_and_size()[1] == self.accumulation_steps == 1
        return self.cuda_graphs and can and alone and not self.gradient_checkpointing

    def plan(self, n_docs: int) -> Plan:
        """Discriminative rates (section 4.1) that rise and fall (section 4.2)."""
        n_steps = self.epochs * ceil(n_docs / self.batch)
        return Plan(
            epochs=self.epochs,
            rate=self.head_rate,
            average_from=self.epochs,  # never
            average_every=1,
            patience=self.patience,
            seed=self.seed,
            seconds=60 * self.minutes or inf,
            rates=(
                ("encoder.", self.encoder_rate),
                *((name, self.hidden_rate) for name in ("hidden.", "head.attention.")),
            ),
            clip_at=self.clip,
            n_steps=n_steps,
            warm_up=int(self.warm_up * n_steps),
        )


def check_length(network: ClusteredTransformer, data: Dataset) -> None:
    """Refuse texts that are longer than the encoder has positions for."""
    found, longest = int(data.tokens(VIEW).lengths.max()), network.encoder.longest
    if longest is not None and found > longest:
        raise XmtcError(
            f"Texts have up to {found} subwords, but the encoder has positions for {longest}; "
            f"set max_subwords={longest}."
        )
