"""APLC-XLNet: a fine-tuned transformer with Adaptive Probabilistic Label Clusters (APLC) as output layer.

Ye, Chen, Wang, Davison: Pretrained Generalized Autoregressive Model with Adaptive Probabilistic Label Clusters for
Extreme Multi-label Text Classification (ICML 2020).

The encoder is any model of Hugging Face's transformers (see `xmtc pretrained list`); the paper uses XLNet. The
document state (section 3.1) passes a hidden layer of width d (section 3.2) to the clusters (section 3.3, eqs. 2–5).
Labels are sorted by frequency; the most frequent form the head, the others the tails, each narrower than the cluster
before by the factor q (`clusters`, `proportions`, `factor`). `clusters=1` is a flat linear output layer. Encoder,
hidden layer and clusters have different learning rates (section 4.1), which rise and fall linearly (section 4.2, eq.
15).

Where the paper is silent, this module follows the authors' code: tanh and dropout 0.1 after the hidden layer, layer
normalisation in the clusters, AdamW without weight decay, gradients clipped at norm 1. It also follows the code in a
loss term for each tail without a label of the document, which eq. 5 does not have (`untouched_tails`).

Differences from paper and code by default; a preset removes them:

- Labels have biases, which start at the label frequencies.
- The loss is a sum.
- The learning rates of hidden layer and clusters are 20 and 10 times larger.
- Documents are held out; the epoch with the best nDCG@5 is kept.

Differences in all cases:

- Texts of similar length are batched and padded together, not all to the maximum length.
- Predictions skip tails that cannot reach the k best labels, which does not change the result.
- `encoder_rate=0` freezes the encoder; `pooling=attention` is label-wise attention over the subwords.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
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
from xmtc.methods.transformer.encoder_states import EncoderLoader, StateLoader
from xmtc.methods.transformer.model import (
    ATTENTION,
    MAX_GRADIENT_POINTS,
    VIEW,
    TransformerDesign,
    TransformerModel,
    restore_label_ids,
)
from xmtc.methods.transformer.network import MAX_BATCH_DOCUMENTS, TransformerNetwork
from xmtc.nn import distributed
from xmtc.nn.batches import LabelLoader, TokenLoader
from xmtc.nn.cuda_graphs import SUPPORTED_ENCODERS, CudaGraphs
from xmtc.nn.devices import (
    get_device_limit,
    get_network_device,
    mixed_precision,
    move_to_device,
    select_device,
    use_torch_settings,
)
from xmtc.nn.label_clusters import compute_cluster_sizes, count_loss_terms, order_by_frequency
from xmtc.nn.network import Loader, TrainedNetwork, Weights, predict_with_network
from xmtc.nn.training import (
    HELD_OUT_HELP,
    STOPPING_K,
    TrainingOptions,
    Validation,
    fit_network,
    prepare_training,
    select_stopping_rows,
)

AUTO = "auto"
LOSSES = SUM, MEAN = "sum", "mean"
PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16}

# Tables 2 and 3 and section 5; dropout, clip and untouched_tails are from the authors' code.
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
    """Fine-tuned transformer with label clusters by frequency (Ye et al., ICML 2020).

    Examples
    --------
    >>> from xmtc.methods import APLCXLNet
    >>> method = APLCXLNet(proportions=(0.7, 0.2, 0.1))
    >>> method.cluster_shares
    (0.7, 0.2, 0.1)
    """

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
        "Document state: first subword, last subword, or mean (auto: as usual for the encoder); attention: label-wise "
        "attention over subwords, which needs clusters=1.",
        choices=(AUTO, *POOLINGS, ATTENTION),
    )  # fmt: skip
    hidden: int = param(0, "Width of the hidden layer (d); 0 uses the width of the encoder.", low=0)
    clusters: int = param(2, "Number of label clusters of equal size; 1 is a flat output layer.", low=1, high=10_000)
    proportions: tuple[float, ...] = param(
        (), "Shares of the labels in head and tails, such as 0.7,0.2,0.1; replaces `clusters`.", kind=float
    )
    factor: int = param(2, "Factor by which each tail is narrower than the cluster before (q).", low=1)
    biases: bool = param(True, "Biases of labels, initialised by label frequencies; not in the paper.")
    dropout: float = param(0.1, "Dropout rate of the hidden layer.", low=0.0, high=0.99)
    loss: str = param("sum", "Reduction of the loss terms: sum per document, or mean as in the paper.", choices=LOSSES)
    untouched_tails: bool = param(
        True, "Loss term for each tail without a label of the document, as in the authors' code but not in eq. 5."
    )
    batch: int = param(12, "Batch size (documents per step).", low=1)
    accumulation_steps: int = param(
        1, "Number of parts of a batch whose gradients are accumulated, to save memory.", low=1
    )
    gradient_checkpointing: bool = param(False, "Recomputation of encoder states in the backward pass, to save memory.")
    cuda_graphs: bool = param(
        True,
        "CUDA graphs of the encoder's training steps, which are faster; used for BERT and MPNet on one GPU without "
        "accumulation and gradient checkpointing.",
    )
    epochs: int = param(8, "Maximum number of epochs; learning rates fall to 0 at the end of the last.", low=1)
    encoder_rate: float = param(
        5e-5,
        "Learning rate of the encoder; 0 freezes it and encodes each text once.",
        low=0.0,
        high=10.0,
        search=(1e-5, 2e-4),
        log=True,
    )
    hidden_rate: float = param(2e-3, "Learning rate of the hidden layer.", low=0.0, high=10.0)
    head_rate: float = param(2e-2, "Learning rate of the clusters.", low=0.0, high=10.0, search=(2e-3, 5e-2), log=True)
    warm_up: float = param(0.0, "Share of the steps in which learning rates rise.", low=0.0, high=1.0)
    clip: float = param(1.0, "Maximum gradient norm.", low=1e-6, high=1e9)
    patience: int = param(3, "Epochs without a better nDCG@5 before training stops.", low=1)
    held_out: float = param(VALIDATION_SHARE, HELD_OUT_HELP, low=0.0, high=0.9)
    minutes: float = param(0.0, "Minutes after which no further epoch begins; 0 sets no limit.", low=0.0)
    precision: str = param("fp32", "Precision of the saved weights.", choices=(*PRECISIONS,))
    gradient_points: int = param(
        16, "Points of integrated gradients in explanations; 1 is input × gradient.", low=1, high=MAX_GRADIENT_POINTS
    )
    seed: int = param(0, "Seed of all random numbers.", low=0, high=2**32 - 1)
    preset: str = param(
        "", "Data set of the paper whose settings replace the defaults of unset parameters.", choices=("", *PRESETS)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0 < share < inf for share in self.proportions):
            raise XmtcError(
                f"APLCXLNet: proportions={self.proportions} is invalid; expected shares such as 0.7,0.2,0.1."
            )
        if self.pooling == ATTENTION and (len(self.cluster_shares) > 1 or not self.encoder_rate):
            raise XmtcError(
                f"APLCXLNet: pooling=attention does not fit {len(self.cluster_shares)} clusters and "
                f"encoder_rate={self.encoder_rate}; expected clusters=1 and an encoder_rate above 0."
            )

    @property
    def cluster_shares(self) -> tuple[float, ...]:
        """Shares of the labels in each cluster."""
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
        """Return the network, with the pretrained encoder and new hidden and output layers, and its design."""
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
        """Train the network; its labels are the labels of the data in the given order."""
        assert data.Y is not None
        device = select_device(run)
        loader, valid_loader = self.build_loaders(network, data, valid, run)
        network.encoder.requires_grad_(self.encoder_rate > 0)
        sorted_Y = csr_array(data.Y[:, order])
        labels = LabelLoader(sorted_Y, torch.device("cpu"))
        terms = count_loss_terms(network.head.clusters, sorted_Y, self.untouched_tails)
        network.graphs = CudaGraphs(network.encoder) if self.should_use_cuda_graphs(network, device) else None
        if self.biases:
            network.head.initialise_biases(sorted_Y)
        # A step does not use tails without a label in the batch.
        forward = distributed.wrap_network(network, uses_all_parameters=False)
        validation = None
        if valid is not None:
            assert valid_loader is not None
            assert valid.Y is not None
            predict = partial(predict_in_label_order, network, order, valid_loader)
            validation = Validation(predict, valid.Y)

        def loss(docs: np.ndarray) -> Iterator[Tensor]:
            divisor = terms[docs].sum() if self.loss == MEAN else len(docs)
            for part in np.array_split(docs, min(self.accumulation_steps, len(docs))):
                batch = loader.load_batch(distributed.shard_batch(part))
                with mixed_precision(device):
                    total = forward(batch, *labels.label_pairs(batch.docs))
                yield total * float(distributed.compute_loss_scale(part) / divisor)

        options = self.make_training_options(loader.n_docs)
        fit_network(
            network, loader=loader, loss=loss, validation=validation, options=options, batch=self.batch, run=run
        )
        network.graphs = None

    def build_loaders(
        self, network: TransformerNetwork, data: Dataset, valid: Dataset | None, run: Run
    ) -> tuple[EncoderLoader, EncoderLoader | None]:
        """Return loaders of the training and validation documents: subwords, or states of a frozen encoder."""
        device = select_device(run)
        loader = TokenLoader(data.tokens(VIEW), device, has_coarse_widths=self.should_use_cuda_graphs(network, device))
        valid_loader = None if valid is None else TokenLoader(valid.tokens(VIEW), device)
        if self.encoder_rate:
            return loader, valid_loader
        states = encode_documents(network, run, loader, "states")
        if valid_loader is None:
            return states, None
        return states, encode_documents(network, run, valid_loader, "states-held-out")

    def should_use_cuda_graphs(self, network: TransformerNetwork, device: torch.device) -> bool:
        is_supported = network.encoder.model.config.model_type in SUPPORTED_ENCODERS and device.type == "cuda"
        has_single_part = distributed.rank_and_size()[1] == self.accumulation_steps == 1
        is_trained_directly = self.encoder_rate > 0 and not self.gradient_checkpointing
        return self.cuda_graphs and is_supported and has_single_part and is_trained_directly

    def make_training_options(self, n_docs: int) -> TrainingOptions:
        """Return options with discriminative (section 4.1) and slanted triangular learning rates (section 4.2)."""
        n_steps = self.epochs * ceil(n_docs / self.batch)
        return TrainingOptions(
            epochs=self.epochs,
            rate=self.head_rate,
            average_from=self.epochs,  # no averaging
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
    """Raise XmtcError if a text is longer than the encoder's maximum length."""
    length, max_length = int(data.tokens(VIEW).lengths.max()), network.encoder.max_length
    if max_length is not None and length > max_length:
        raise XmtcError(
            f"Texts have up to {length} subwords, but the encoder has positions for {max_length}; "
            f"set max_subwords={max_length}."
        )


def predict_in_label_order(network: TransformerNetwork, order: np.ndarray, loader: Loader, run: Run) -> Predictions:
    """Return the best labels of validation documents with label numbers instead of frequency ranks."""
    return restore_label_ids(predict_with_network(network, loader, STOPPING_K, run), order)


@torch.no_grad()
def encode_documents(network: TransformerNetwork, run: Run, loader: TokenLoader, name: str) -> StateLoader:
    """Return the states of all documents, computed once and kept in the checkpoint under this name."""
    device, kept = get_network_device(network), run.checkpoint.load_piece(name)
    if kept is not None:
        return StateLoader(torch.from_numpy(kept["states"]).to(device))
    network.eval()
    states = torch.empty(loader.n_docs, network.encoder.width, device=device)
    with run.stage("encoding texts", loader.n_docs) as progress, use_torch_settings(run, device):
        for docs in loader.batches_by_length(get_device_limit(MAX_BATCH_DOCUMENTS, device)):
            batch = loader.load_batch(docs)
            states[move_to_device(batch.docs, device)] = network.compute_float32_states(batch)
            progress.advance(len(docs))
    run.checkpoint.save_piece(name, {"states": states.cpu().numpy()})
    return StateLoader(states)
