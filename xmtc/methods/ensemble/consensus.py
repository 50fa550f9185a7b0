"""Consensus: models of several methods, of which one that is sure is enough: P = 1 − Π (1 − P_i). You, Dai, Zhang,
Mamitsuka, Zhu: AttentionXML, first version (arXiv:1811.01727), eq. 9, for AttentionXML and Parabel.

Differs from the paper in: any methods, any number of them; their mean, if wished (`rule=mean`); P_i is 0 for labels
beyond the 100 best of a member (beyond as many as are asked for, if more); labels for which eq. 9 is equal, as it is
where a member gives 1, rank by the mean of the members' log-odds. Differs from `ensemble` in: many methods
once instead of one method many times. It explains with the mean of its members' explanations; where some read tf-idf
and others words, of those that read tf-idf.
`calibrated` is ours: eq. 9 takes scores for probabilities of members that err alone, and says 0.9 where 0.6 are right.

On the command line, `-p members=parabel,plt -p parabel.n_trees=1` names the members and sets their parameters; the
second of a name is `parabel-2`. A member may be an ensemble: `-p members=ensemble,parabel -p
ensemble.member=attention_xml -p ensemble.attention_xml.hidden=128`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import ParameterSet, param
from xmtc.core.method import LabelName, Method, Model
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.methods import as_method
from xmtc.methods.ensemble.combination_rules import NOISY_OR, RULES
from xmtc.methods.ensemble.members import collect_views, find_held_out_rows, fit_members, merge_label_names


@dataclass(frozen=True)
class Consensus(Method):
    """Models of several methods, of which one that is sure is enough (You et al., 2018, eq. 9)."""

    quick_parameters: ClassVar[dict[str, Any]] = {"members": ("parabel", "dismec"), "parabel.max_leaf": 8}

    members: tuple[Any, ...] = param(("attention_xml", "parabel"), "methods of the members", kind=ParameterSet)
    rule: str = param(
        NOISY_OR, "how answers become one: one that is sure is enough (noisy-or), or their mean", choices=RULES
    )
    calibrated: bool = param(
        False,
        "make a probability of the score, by documents held out of training; of the members' too, if that ranks better",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "members", tuple(map(as_method, self.members)))
        if len(self.members) < 2:
            raise XmtcError(
                f"Consensus: found {len(self.members)} members, expected at least two, such as attention_xml,parabel."
            )

    @property
    def required_views(self) -> tuple[str, ...]:  # type: ignore[override]  # what its members read
        return collect_views(self.members)

    @property
    def is_exact(self) -> bool:  # type: ignore[override]
        return all(member.is_exact for member in self.members)

    @property
    def has_cluster_support(self) -> bool:  # type: ignore[override]
        return any(member.has_cluster_support for member in self.members)

    @property
    def has_weight_support(self) -> bool:  # type: ignore[override]
        """Where all members do; a calibration has no use for them."""
        return all(member.has_weight_support for member in self.members) and not self.calibrated

    @property
    def has_own_calibration(self) -> bool:  # type: ignore[override]
        return self.calibrated

    @property
    def has_label_name_input(self) -> bool:  # type: ignore[override]
        return any(member.has_label_name_input for member in self.members)

    def list_label_names(self, labels: Sequence[str]) -> list[LabelName]:
        return merge_label_names(self.members, labels)

    def select_held_out_rows(self, data: Dataset) -> np.ndarray | None:
        return find_held_out_rows(self.members, data)

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> Model:
        return fit_members(self, self.members, self.rule, data, valid, run, self.calibrated)
