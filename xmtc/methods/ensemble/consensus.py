"""Consensus: models of several methods, of which one that is sure is enough: P = 1 − Π (1 − P_i). You, Dai, Zhang,
Mamitsuka, Zhu: AttentionXML, first version (arXiv:1811.01727), eq. 9, for AttentionXML and Parabel.

Differs from the paper in: any methods, any number of them; P_i is 0 for labels beyond the 100 best of a member (beyond
as many as are asked for, if more). Differs from `ensemble` in: many methods once instead of one method many times. It
explains with the mean of its members' explanations; where some read tf-idf and others words, of those that read tf-idf.
`calibrated` is ours: eq. 9 takes scores for probabilities, and a member that is too sure of itself drowns the others.

`-p settings="parabel.n_trees=1 attention_xml.epochs=10"` sets the members' parameters. A member may be an ensemble:
`-p methods=ensemble,parabel -p settings="ensemble.of=attention_xml 'ensemble.settings=hidden=128 epochs=10'"`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xmtc.base.dataset import Dataset
from xmtc.base.method import Method
from xmtc.base.params import param
from xmtc.base.run import Run
from xmtc.data.splits import train_valid_split
from xmtc.errors import XmtcError
from xmtc.methods.ensemble.calibrated import calibrated
from xmtc.methods.ensemble.members import fit_together, member, parsed, read_together
from xmtc.methods.ensemble.model import DEPTH, NOISY_OR, Combination

SEED = 0  # of which documents are held out, where none are given


@dataclass(frozen=True)
class Consensus(Method):
    """Models of several methods, of which one that is sure is enough (You et al., 2018, eq. 9)."""

    reads = ()  # what the members read, once they are known

    methods: str = param("attention_xml,parabel", "methods of the members")
    settings: str = param("", "parameters of the members, such as parabel.n_trees=1 attention_xml.epochs=10")
    calibrated: bool = param(
        False, "first make probabilities of the members' scores, by documents held out of training"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "reads", read_together(self.recipes))

    @property
    def recipes(self) -> list[Method]:
        """The members before training."""
        names = [name.strip() for name in self.methods.split(",")]
        if len(names) < 2 or len(set(names)) < len(names):
            raise XmtcError(
                f"Consensus: methods={self.methods!r} does not fit; expected at least two different ones, such as "
                "attention_xml,parabel."
            )
        settings: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
        for name, value in parsed(self.settings):
            method, _, parameter = name.partition(".")
            if method not in settings or not parameter:
                raise XmtcError(
                    f"Consensus: settings has {name!r}, which is no member's; expected METHOD.name=value, where METHOD "
                    f"is one of {', '.join(names)}."
                )
            settings[method].append((parameter, value))
        return [member(name, settings[name]) for name in names]

    def fit(self, data: Dataset, valid: Dataset | None = None, run: Run = Run()) -> Combination:
        if not self.calibrated:
            return fit_together(self, self.recipes, NOISY_OR, data, valid, run)
        data, valid = train_valid_split(data, valid, SEED)
        found = fit_together(self, self.recipes, NOISY_OR, data, valid, run)
        return replace(found, models=tuple(calibrated(model, valid, DEPTH, run) for model in found.models))
