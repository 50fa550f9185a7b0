"""Ensemble: the mean of several models of one method with different seeds.

Paper: You, Zhang, Wang, Dai, Mamitsuka, Zhu: AttentionXML (NeurIPS 2019). AttentionXML is an ensemble of three trees,
each of which is AttentionXML-1; the scores of the 100 best labels of each tree are added.

Differs from the authors' code in that scores are averaged instead of added, which gives the same ranking and stays a
probability. Differs from `consensus` in that it has one method several times instead of several methods once. A label
that a member does not predict has the score 0; for more than 100 labels, each member predicts as many as requested. The
parameter `calibrated` is an addition.

Member i has the first seed that numpy's `SeedSequence((seed, i))` generates, so ensembles with different seeds have no
member in common. On the command line, `-p member=plt -p plt.arity=8` sets the parameters of the members.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from xmtc.core.hyperparameters import ParameterSet, param
from xmtc.core.method import Method
from xmtc.errors import XmtcError
from xmtc.methods import as_method
from xmtc.methods.ensemble.combination_rules import MEAN
from xmtc.methods.ensemble.members import CombinedMethod


@dataclass(frozen=True)
class Ensemble(CombinedMethod):
    """Mean of several models of one method with different seeds (as in You et al., NeurIPS 2019).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import Ensemble, Parabel
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> method = Ensemble(Parabel(n_trees=1), n_members=2)
    >>> classifier = Classifier(method).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    quick_parameters: ClassVar[dict[str, Any]] = {"n_members": 2, "parabel.max_leaf": 8, "parabel.n_trees": 1}

    rule: ClassVar[str] = MEAN

    member: Any = param("parabel", "Method of the members.", kind=ParameterSet)
    n_members: int = param(3, "Number of members, each with its own seed.", low=1, high=1000, search=(2, 5))
    seed: int = param(0, "Random seed of the members' seeds.", low=0, high=2**32 - 1)
    calibrated: bool = param(False, "Calibrate the mean score on documents that are held out of training.")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "member", as_method(self.member))
        name, seeds = type(self.member).__name__, [field for field in fields(self.member) if field.name == "seed"]
        if not seeds:
            raise XmtcError(
                f"Ensemble: {name} has no seed, so its members would be the same; choose a method with a seed."
            )
        if self.member.seed != seeds[0].default:
            raise XmtcError(
                f"Ensemble: the member has seed={self.member.seed}, which all members would share; set the seed of the "
                "ensemble instead."
            )

    @property
    def members(self) -> list[Method]:
        return [replace(self.member, seed=seed) for seed in self.seeds]

    @property
    def seeds(self) -> list[int]:
        """Seeds of the members, which no other value of `seed` is likely to share."""
        return [int(np.random.SeedSequence((self.seed, i)).generate_state(1)[0]) for i in range(self.n_members)]
