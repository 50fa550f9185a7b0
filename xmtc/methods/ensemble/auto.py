"""Auto: the best training plan within a time budget.

A plan is a method with its parameters: a stacked combination of linear methods on several views of the texts, or one
method if the time is short. `xmtc.training_plan` makes the plan from trials on a sample of the documents, and the model
is that of the planned method. `xmtc train` prints the plan as the command that repeats it, and about.json has it. Two
machines may have different plans, because the members that fit into the budget depend on the speed.

Trained on arrays without texts, the method is a stacked combination of DiSMEC and Bonsai.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from xmtc.core.dataset import Dataset
from xmtc.core.hyperparameters import param
from xmtc.core.method import Method, Model
from xmtc.core.run import Run
from xmtc.methods.ensemble.stacked import Stacked


@dataclass(frozen=True)
class Auto(Method):
    """Best stacked combination of linear methods, or best method, within a time budget.

    Examples
    --------
    >>> from xmtc import Classifier
    >>> texts = ["cats purr softly", "dogs bark loudly", "cats purr and meow", "dogs bark and growl"]
    >>> classifier = Classifier("auto", minutes=1).fit(texts, [["cat"], ["dog"], ["cat"], ["dog"]])
    >>> classifier.predict(["the dogs bark"])
    [['dog', 'cat']]
    """

    quick_parameters: ClassVar[dict[str, Any]] = {"minutes": 20.0}
    has_own_calibration: ClassVar[bool] = True

    minutes: float = param(10.0, "Time budget of the training in minutes.", low=0.1, high=10_000)
    seed: int = param(0, "Random seed of the sample and of the combination.", low=0, high=2**32 - 1)

    @property
    def has_name_documents(self) -> bool:
        return True  # as the planned methods

    def _fit(self, data: Dataset, valid: Dataset | None, run: Run) -> Model:
        return Stacked(seed=self.seed, minutes=self.minutes).fit(data, valid, run)
