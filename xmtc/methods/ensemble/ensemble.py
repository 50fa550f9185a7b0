"""Ensemble: models of one method that differ in their seeds, averaged. AttentionXML is an ensemble of three trees, each
of which is AttentionXML-1: the scores of the 100 best labels of each are added up (You, Zhang, Wang, Dai, Mamitsuka,
Zhu, NeurIPS 2019).

Differs from the authors' code in: the mean instead of the sum, which ranks alike and stays a probability. Differs from
`consensus` in: one method many times instead of many methods once. A member that does not name a label gives it 0;
asked for more than 100 labels, each member names as many as are asked for. `calibrated` is ours.

Member i has the seed that numpy's `SeedSequence((seed, i))` yields first, so that ensembles of different seeds have no
member in common. On the command line, `-p member=plt -p plt.arity=8` sets the members' parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import ParameterSet, param
from xmtc.core.method import LabelName, Method, Model
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.methods import as_method
from xmtc.methods.ensemble.combination_rules import MEAN
from xmtc.methods.ensemble.members import collect_views, find_held_out_rows, fit_members, merge_label_names


@dataclass(frozen=True)
class Ensemble(Method):
    """Models of one method that differ in their seeds, averaged (as in You et al., NeurIPS 2019)."""

    quick_parameters: ClassVar[dict[str, Any]] = {"n_members": 2, "parabel.max_leaf": 8, "parabel.n_trees": 1}

    rule: ClassVar[str] = MEAN  # how answers become one

    member: Any = param("parabel", "method of the members", kind=ParameterSet)
    n_members: int = param(3, "how many models, each with a seed of its own", low=1, high=1000, search=(2, 5))
    seed: int = param(0, "seed of the members' seeds", low=0, high=2**32 - 1)
    calibrated: bool = param(False, "make a probability of the mean score, by documents held out of training")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "member", as_method(self.member))
        name, seeds = type(self.member).__name__, [field for field in fields(self.member) if field.name == "seed"]
        if not seeds:
            raise XmtcError(f"Ensemble: {name} has no seed, so its members would not differ; choose another method.")
        if self.member.seed != seeds[0].default:
            raise XmtcError(f"Ensemble: its members must not share seed={self.member.seed}; set its own seed instead.")

    @property
    def required_views(self) -> tuple[str, ...]:  # type: ignore[override]  # what its members read
        return collect_views([self.member])

    @property
    def is_exact(self) -> bool:  # type: ignore[override]
        return self.member.is_exact

    @property
    def has_cluster_support(self) -> bool:  # type: ignore[override]
        return self.member.has_cluster_support

    @property
    def has_weight_support(self) -> bool:  # type: ignore[override]
        """Where the member does; a calibration has no use for them."""
        return self.member.has_weight_support and not self.calibrated

    @property
    def members(self) -> list[Method]:
        """The members before training."""
        return [replace(self.member, seed=seed) for seed in self.seeds]

    @property
    def seeds(self) -> list[int]:
        """One for each member, none of which another seed is likely to share."""
        return [int(np.random.SeedSequence((self.seed, i)).generate_state(1)[0]) for i in range(self.n_members)]

    @property
    def has_own_calibration(self) -> bool:  # type: ignore[override]
        return self.calibrated

    @property
    def has_label_name_input(self) -> bool:  # type: ignore[override]
        return self.member.has_label_name_input

    def list_label_names(self, labels: Sequence[str]) -> list[LabelName]:
        return merge_label_names([self.member], labels)

    def select_held_out_rows(self, data: Dataset) -> np.ndarray | None:
        return find_held_out_rows(self.members, data)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> Model:
        return fit_members(self, self.members, self.rule, data, valid, run, self.calibrated)
