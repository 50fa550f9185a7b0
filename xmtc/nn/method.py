"""Base class of methods that train a network on word sequences."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import Method
from xmtc.data.splits import VALIDATION_SHARE
from xmtc.nn.training import HELD_OUT_HELP, TrainingOptions, select_stopping_rows

# Below both, as on `cve-libraries`, linear methods are more accurate; above one of them, AttentionXML is equal on
# `eurlex57k` and better on `tibkat-gnd-en` (docs/results/accuracy.md).
MAX_SMALL_DOCUMENTS, MAX_SMALL_FREQUENCY = 30_000, 20


@dataclass(frozen=True)
class WordNetworkMethod(Method):
    """Training hyper-parameters of networks on word sequences."""

    required_views: ClassVar[tuple[str, ...]] = ("words",)
    is_exact: ClassVar[bool] = False
    has_cluster_support: ClassVar[bool] = True
    has_multiprocess_support: ClassVar[bool] = True

    batch: int = param(200, "Batch size (documents per step).", low=1)
    epochs: int = param(30, "Maximum number of epochs.", low=1)
    rate: float = param(0.002, "Learning rate of Adam.", low=1e-8, high=10.0, search=(5e-4, 1e-2), log=True)
    decay: float = param(1.0, "Factor of the learning rate after every epoch.", low=0.01, high=1.0)
    average_from: int = param(10, "Epoch from which weights are averaged.", low=0)
    average_every: int = param(20, "Steps between two averaged weights.", low=1)
    average_over: int = param(75, "Window of the moving average of weights; 0 averages all equally (SWA).", low=0)
    look_every: int = param(0, "Steps between two validations (nDCG@5); 0 validates after every epoch.", low=0)
    patience: int = param(5, "Validations without a better nDCG@5 before training stops.", low=1)
    held_out: float = param(VALIDATION_SHARE, HELD_OUT_HELP, low=0.0, high=0.9)
    minutes: float = param(0.0, "Minutes after which no further epoch begins; 0 sets no limit.", low=0.0)
    seed: int = param(0, "Seed of all random numbers.", low=0, high=2**32 - 1)

    def select_held_out_rows(self, data: Dataset) -> np.ndarray | None:
        return select_stopping_rows(data, self.seed, self.held_out)

    def warn_of_small_corpus(self, data: Dataset) -> None:
        """Log a warning if linear methods are more accurate on corpora with so few documents and so many labels."""
        assert data.Y is not None
        n_labels = max(1, int((np.bincount(data.Y.indices, minlength=1) > 0).sum()))
        frequency = data.Y.nnz / n_labels
        if data.n_docs < MAX_SMALL_DOCUMENTS and frequency < MAX_SMALL_FREQUENCY:
            logging.getLogger("xmtc").warning(
                "The corpus has %s documents and %s labels with %.1f documents each, too few for %s: a linear method "
                "such as dismec will be better.",
                f"{data.n_docs:,}", f"{n_labels:,}", frequency, type(self).__name__,
            )  # fmt: skip

    def make_training_options(self, **changes: Any) -> TrainingOptions:
        """Return the training options of these hyper-parameters; keywords add to or replace them."""
        return TrainingOptions(
            epochs=self.epochs,
            rate=self.rate,
            decay=self.decay,
            patience=self.patience,
            max_seconds=60 * self.minutes or inf,
            average_from=self.average_from,
            average_every=self.average_every,
            average_over=self.average_over or inf,
            look_every=self.look_every,
            **({"seed": self.seed} | changes),
        )
