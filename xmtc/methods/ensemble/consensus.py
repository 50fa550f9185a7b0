"""Consensus: models of several methods, combined by noisy-or P = 1 − Π (1 − P_i).

Paper: You, Dai, Zhang, Mamitsuka, Zhu: AttentionXML, first version (arXiv:1811.01727), equation 9, which combines
AttentionXML and Parabel. A label that one member is certain of is certain.

Differs from the paper as follows. It combines any number of any methods, optionally by their mean (`rule=mean`). P_i is
0 for labels beyond the 100 best of a member, or beyond as many as requested if more. Labels with the same value of
equation 9, for example if a member gives 1, are ranked by the mean of the members' log-odds. Differs from `ensemble` in
that it has several methods once instead of one method several times. An explanation is by the
members that found the label, weighted by their shares of the score.

The parameter `calibrated` is an addition. Equation 9 assumes that scores are probabilities and that the members' errors
are independent; it gives 0.9 where 60% are correct.

On the command line, `-p members=parabel,plt -p parabel.n_trees=1` names the members and sets their parameters; the
second member of the same name is `parabel-2`. A member may be an ensemble: `-p members=ensemble,parabel -p
ensemble.member=attention_xml -p ensemble.attention_xml.hidden=128`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xmtc.core.hyperparameters import ParameterSet, param
from xmtc.errors import XmtcError
from xmtc.methods import as_method
from xmtc.methods.ensemble.combination_rules import NOISY_OR, RULES
from xmtc.methods.ensemble.members import MEMBER_VIEWS_PARAM, CombinedMethod, parse_member_views


@dataclass(frozen=True)
class Consensus(CombinedMethod):
    """Models of several methods, combined by noisy-or (You et al., 2018, equation 9).

    Examples
    --------
    >>> from xmtc import Classifier
    >>> from xmtc.methods import Consensus, DiSMEC, Parabel
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> method = Consensus([Parabel(n_trees=1), DiSMEC()])
    >>> classifier = Classifier(method).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    quick_parameters: ClassVar[dict[str, Any]] = {"members": ("parabel", "dismec"), "parabel.max_leaf": 8}

    members: tuple[Any, ...] = param(("attention_xml", "parabel"), "Methods of the members.", kind=ParameterSet)
    rule: str = param(
        NOISY_OR, "Rule that combines the members' scores: noisy-or, 1 − Π (1 − P_i), or their mean.", choices=RULES
    )
    calibrated: bool = param(
        False,
        "Calibrate the combined score on documents that are held out of training; also the members' scores, if that "
        "improves the ranking.",
    )
    member_views: tuple[str, ...] = MEMBER_VIEWS_PARAM

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "members", tuple(map(as_method, self.members)))
        if len(self.members) < 2:
            raise XmtcError(
                f"Consensus: found {len(self.members)} members, expected at least two, such as attention_xml,parabel."
            )
        parse_member_views(self.members, self.member_views)
