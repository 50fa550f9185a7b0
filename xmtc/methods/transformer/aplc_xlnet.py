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
from xmtc.data.splits import VALIDATION_SHARE
from xmtc.errors import XmtcError
from xmtc.features.encoders.model_loader import (
    POOLINGS,
    choose_pooling,
    dump_config,
    enable_gradient_checkpointing,
    load_encoder,
)
from xmtc.methods.transformer.encoder_states import EncoderLoader
from xmtc.methods.transformer.model import (
    ATTENTION,
    MAX_GRADIENT_POINTS,
    VIEW,
    TransformerDesign,
    TransformerModel,
    encode_documents,
    restore_label_ids,
)
from xmtc.methods.transformer.network import TransformerNetwork
from xmtc.nn import distributed
from xmtc.nn.batches import LabelLoader, TokenLoader
from xmtc.nn.cuda_graphs import SUPPORTED_ENCODERS as GRAPHED
from xmtc.nn.cuda_graphs import CudaGraphs
from xmtc.nn.devices import mixed_precision, select_device, use_torch_settings
from xmtc.nn.label_clusters import compute_cluster_sizes, count_loss_terms, order_by_frequency
from xmtc.nn.network import TrainedNetwork, Weights, predict_with_network
from xmtc.nn.training import HELD_OUT_HELP, TrainingOptions, fit_network, prepare_training, select_stopping_rows

AUTO = "auto"
LOSSES = SUM, MEAN = "sum", "mean"
PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16}

# Tables 2 and 3, section 5, and, where these are silent, the authors' code: dropout, clip and untouched_tails.
PAPER_SETTINGS = {
    "hidden": 768, "clusters": 2, "factor": 2, "biases": False, "dropout": 0.1, "loss": "mean", "untouched_tails": True,
    "encoder_rate": 5e-5, "hidden_rate": 1e-4, "head_rate": 2e-3, "warm_up": 0.0, "clip": 1.0, "held_out": 0.0,
}  # fmt: skip
THIRDS = (0.33, 0.33, 0.34)
PRESETS: Presets = {
    "EURLex-4k": PAPER_SETTINGS | {"max_subwords": 512, "batch": 12, "epochs": 8},
    "AmazonCat-13k": PAPER_SETTINGS | {"max_subwords": 192, "batch": 48, "epochs": 8},
    "Wiki10-31k": PAPER_SETTINGS
    | {"max_subwords": 512, "batch": 12, "epochs": 6, "encoder_rate": 1e-5, "head_rate": 1e-3},
    "Wiki-500k": PAPER_SETTINGS
    | {"max_subwords": 256, "batch": 64, "epochs": 12, "clusters": 3, "proportions": THIRDS},
    "Amazon-670k": PAPER_SETTINGS | {"max_subwords": 128, "batch": 32, "epochs": 25, "clusters": 4, "hidden": 512},
}


@dataclass(frozen=True)
class APLCXLNet(Method):
    """A pretrained transformer with labels in clusters by their frequency (Ye et al., ICML 2020)."""

    required_views: ClassVar[tuple[str, ...]] = (VIEW,)
    presets: ClassVar[Presets] = PRESETS
    is_exact: ClassVar[bool] = False
    has_cluster_support: ClassVar[bool] = True
    has_multiprocess_support: ClassVar[bool] = True
    quick_parameters: ClassVar[dict[str, Any]] = {
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
    held_out: float = param(VALIDATION_SHARE, HELD_OUT_HELP, low=0.0, high=0.9)
    minutes: float = param(0.0, "begin no further pass after so many minutes (0: no limit)", low=0.0)
    precision: str = param("fp32", "numbers of the saved weights: fp32, or fp16, half as large", choices=(*PRECISIONS,))
    gradient_points: int = param(
        16, "points of integrated gradients in explanations; 1: input × gradient", low=1, high=MAX_GRADIENT_POINTS
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
        if self.pooling == ATTENTION and (len(self.cluster_shares) > 1 or not self.encoder_rate):
            raise XmtcError(
                f"APLCXLNet: pooling=attention does not fit {len(self.cluster_shares)} clusters and "
                f"encoder_rate={self.encoder_rate}; expected clusters=1 and an encoder that learns."
            )

    @property
    def cluster_shares(self) -> tuple[float, ...]:
        """Of the labels, in each cluster."""
        return self.proportions or (1.0,) * self.clusters

    def select_held_out_rows(self, data: Dataset) -> np.ndarray | None:
        return select_stopping_rows(data, self.seed, self.held_out)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> TransformerModel:
        data, valid, _ = prepare_training(self, data, valid, run, seed=self.seed, share=self.held_out)
        assert data.Y is not None
        order = order_by_frequency(np.bincount(data.Y.indices, minlength=data.n_labels))
        network, design = self.build_network(data, run)
        self.train(network, order, data, valid, run)
        weights = Weights.from_network(network, PRECISIONS[self.precision])
        return TransformerModel(
            n_labels=data.n_labels,
            views=data.sizes,
            network=TrainedNetwork(design=design, weights=weights),
            order=order,
            gradient_points=self.gradient_points,
        )

    def build_network(self, data: Dataset, run: Run) -> tuple[TransformerNetwork, TransformerDesign]:
        """The pretrained encoder, and beside it what has yet to learn everything."""
        source, device = data.tokens(VIEW).encoder, select_device(run)
        with use_torch_settings(run, device, self.seed):
            model = load_encoder(source)
            design = TransformerDesign(
                encoder=dump_config(model),
                pooling=choose_pooling(source, model) if self.pooling == AUTO else self.pooling,
                hidden=self.hidden or model.config.hidden_size,
                sizes=compute_cluster_sizes(data.n_labels, self.cluster_shares),
                factor=self.factor,
                biases=self.biases,
            )
            design.check_memory(device)
            network = design.build(model, self.dropout, self.untouched_tails)
        check_length(network, data)
        if self.gradient_checkpointing and self.encoder_rate:
            enable_gradient_checkpointing(model)
        return network.to(device), design

    def train(
        self, network: TransformerNetwork, order: np.ndarray, data: Dataset, valid: Dataset | None, run: Run
    ) -> None:
        assert data.Y is not None
        device = select_device(run)
        loader, held_out = self.build_loaders(network, data, valid, run)
        network.encoder.requires_grad_(self.encoder_rate > 0)
        sorted_Y = csr_array(data.Y[:, order])
        labels = LabelLoader(sorted_Y, torch.device("cpu"))
        terms = count_loss_terms(network.head.clusters, sorted_Y, self.untouched_tails)
        network.graphs = CudaGraphs(network.encoder) if self.should_use_cuda_graphs(network, device) else None
        if self.biases:
            network.head.initialise_biases(sorted_Y)
        forward = distributed.wrap_network(
            network, uses_all_parameters=False
        )  # tails without a label in the batch are not used

        def loss(docs: np.ndarray) -> Iterator[Tensor]:
            divisor = terms[docs].sum() if self.loss == MEAN else len(docs)
            for part in np.array_split(docs, min(self.accumulation_steps, len(docs))):
                batch = loader.load_batch(distributed.shard_batch(part))
                with mixed_precision(device):
                    total = forward(batch, *labels.label_pairs(batch.docs))
                yield total * float(distributed.compute_loss_scale(part) / divisor)

        def answer(run: Run) -> Predictions:
            assert held_out is not None
            return restore_label_ids(predict_with_network(network, held_out, 5, run), order)

        fit_network(
            network,
            loader=loader,
            loss=loss,
            predict=answer,
            Y=None if valid is None else valid.Y,
            plan=self.make_training_options(loader.n_docs),
            batch=self.batch,
            run=run,
        )
        network.graphs = None

    def build_loaders(
        self, network: TransformerNetwork, data: Dataset, valid: Dataset | None, run: Run
    ) -> tuple[EncoderLoader, EncoderLoader | None]:
        """Documents to learn from, and those that are held out, if any; where the encoder learns nothing, what it says
        of them."""
        device = select_device(run)
        seen = TokenLoader(data.tokens(VIEW), device, has_coarse_widths=self.should_use_cuda_graphs(network, device))
        held_out = None if valid is None else TokenLoader(valid.tokens(VIEW), device)
        if self.encoder_rate:
            return seen, held_out
        states = encode_documents(network, run, seen, "states")
        return states, held_out and encode_documents(network, run, held_out, "states-held-out")

    def should_use_cuda_graphs(self, network: TransformerNetwork, device: torch.device) -> bool:
        """Whether the encoder's steps are captured as CUDA graphs."""
        can = network.encoder.model.config.model_type in GRAPHED and device.type == "cuda" and self.encoder_rate > 0
        alone = distributed.rank_and_size()[1] == self.accumulation_steps == 1
        return self.cuda_graphs and can and alone and not self.gradient_checkpointing

    def make_training_options(self, n_docs: int) -> TrainingOptions:
        """Discriminative rates (section 4.1) that rise and fall (section 4.2)."""
        n_steps = self.epochs * ceil(n_docs / self.batch)
        return TrainingOptions(
            epochs=self.epochs,
            rate=self.head_rate,
            average_from=self.epochs,  # never
            average_every=1,
            patience=self.patience,
            seed=self.seed,
            max_seconds=60 * self.minutes or inf,
            rates_by_prefix=(
                ("encoder.", self.encoder_rate),
                *((name, self.hidden_rate) for name in ("hidden.", "head.attention.")),
            ),
            max_gradient_norm=self.clip,
            n_steps=n_steps,
            warmup_steps=int(self.warm_up * n_steps),
        )


def check_length(network: TransformerNetwork, data: Dataset) -> None:
    """Refuse texts that are longer than the encoder has positions for."""
    found, longest = int(data.tokens(VIEW).lengths.max()), network.encoder.max_length
    if longest is not None and found > longest:
        raise XmtcError(
            f"Texts have up to {found} subwords, but the encoder has positions for {longest}; "
            f"set max_subwords={longest}."
        )
