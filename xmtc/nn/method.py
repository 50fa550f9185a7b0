"""What methods that train a network on words share: how long, how fast, and by which documents they stop."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import Method
from xmtc.data.splits import VALIDATION_SHARE
from xmtc.nn.training import HELD_OUT_HELP, TrainingOptions, select_stopping_rows


@dataclass(frozen=True)
class WordNetworkMethod(Method):
    """A network that reads words in their order. A subclass says what it is."""

    required_views: ClassVar[tuple[str, ...]] = ("words",)
    is_exact: ClassVar[bool] = False
    has_cluster_support: ClassVar[bool] = True
    has_multiprocess_support: ClassVar[bool] = True

    batch: int = param(200, "documents of a step", low=1)
    epochs: int = param(30, "passes over the documents at most", low=1)
    rate: float = param(0.002, "learning rate of Adam", low=1e-8, high=10.0, search=(5e-4, 1e-2), log=True)
    decay: float = param(1.0, "what the learning rate is multiplied by after every pass", low=0.01, high=1.0)
    average_from: int = param(10, "pass from which on weights are averaged", low=0)
    average_every: int = param(20, "steps between weights that are averaged", low=1)
    average_over: int = param(75, "weights in the average, of which older ones fade; 0: all alike, as in SWA", low=0)
    look_every: int = param(0, "steps between looks at nDCG@5 of held-out documents; 0: one after every pass", low=0)
    patience: int = param(5, "looks without a better nDCG@5 after which training ends", low=1)
    held_out: float = param(VALIDATION_SHARE, HELD_OUT_HELP, low=0.0, high=0.9)
    minutes: float = param(0.0, "begin no further pass after so many minutes (0: no limit)", low=0.0)
    seed: int = param(0, "seed of the first weights and the order of documents", low=0, high=2**32 - 1)

    def select_held_out_rows(self, data: Dataset) -> np.ndarray | None:
        return select_stopping_rows(data, self.seed, self.held_out)

    def make_training_options(self, **more: Any) -> TrainingOptions:
        """The plan of these parameters, and whatever else a method wants of it."""
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
            **({"seed": self.seed} | more),
        )
