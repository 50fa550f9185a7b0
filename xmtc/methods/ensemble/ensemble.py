"""Ensemble: models of one method that differ in their seeds, averaged. AttentionXML is an ensemble of three trees, each
of which is AttentionXML-1: the scores of the 100 best labels of each are added up (You, Zhang, Wang, Dai, Mamitsuka,
Zhu, NeurIPS 2019).

Differs from the authors' code in: the mean instead of the sum, which ranks alike and stays a probability. Differs from
`consensus` in: one method many times instead of many methods once. A member that does not name a label gives it 0;
asked for more than 100 labels, each member names as many as are asked for.

Member i has the seed that numpy's `SeedSequence((seed, i))` yields first, so that ensembles of different seeds have no
member in common. `-p settings="n_trees=1 C=2"` sets the members' other parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from xmtc.base.dataset import Dataset
from xmtc.base.method import Method
from xmtc.base.params import param
from xmtc.base.run import Run
from xmtc.errors import XmtcError
from xmtc.methods import method_class
from xmtc.methods.ensemble.members import fit_together, member, parsed, read_together
from xmtc.methods.ensemble.model import MEAN, Combination


@dataclass(frozen=True)
class Ensemble(Method):
    """Models of one method that differ in their seeds, averaged (as in You et al., NeurIPS 2019)."""

    reads = ()  # what the members read, once they are known

    of: str = param("parabel", "method of the members")
    members: int = param(3, "how many models, each with a seed of its own", low=1, search=(2, 5))
    settings: str = param("", "parameters of the members, such as n_trees=1 C=2")
    seed: int = param(0, "seed of the members' seeds", low=0, high=2**32 - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "reads", read_together(self.recipes))

    @property
    def recipes(self) -> list[Method]:
        """The members before training."""
        settings = parsed(self.settings)
        if "seed" not in {field.name for field in fields(method_class(self.of))}:
            raise XmtcError(f"Ensemble: {self.of} has no seed, so its members would not differ; choose another method.")
        if "seed" in dict(settings):
            raise XmtcError("Ensemble: settings cannot set seed, which its members must not share; set its own seed.")
        return [member(self.of, settings, seed=seed) for seed in self.seeds]

    @property
    def seeds(self) -> list[int]:
        """One for each member, none of which another seed is likely to share."""
        return [int(np.random.SeedSequence((self.seed, i)).generate_state(1)[0]) for i in range(self.members)]

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> Combination:
        return fit_together(self, self.recipes, MEAN, data, valid, run)
