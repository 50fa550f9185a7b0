"""Every method through the shared suite of `xmtc.testing`, and the suite through methods that break it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from xmtc import METHODS, testing
from xmtc.errors import MissingExtra, XmtcError
from xmtc.methods import method_class
from xmtc.methods.one_vs_all.dismec import DiSMEC
from xmtc.testing import CHECKS, Case, check_method

ONE = testing.ONE_THREAD

# one representation for all labels has it harder
LEAST_P1 = {"xml_rnn": 0.95, "c2ae": 0.96, "aplc_xlnet": 0.96}


def quick(name: str) -> dict[str, Any]:
    """A method's parameters for this suite; one that reads subwords needs an encoder."""
    try:
        method = method_class(name)
    except MissingExtra as missing:
        pytest.skip(str(missing))
    if method.reads != ("subwords",):
        return method.tiny
    from tiny_encoders import tiny

    return {"encoder": tiny("bert", 128), **method.tiny}


@cache
def case(name: str) -> Case:
    return Case(name, quick(name), LEAST_P1.get(name, 0.98))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", METHODS)
def test_methods(name, check):
    check(case(name))


def test_a_method_as_it_is_passes():
    check_method(DiSMEC(C=2.0))


@dataclass(frozen=True)
class Repeats(DiSMEC):
    """Names its best label twice."""

    def fit(self, data, valid=None, run=ONE):
        return Spoilt.around(super().fit(data, valid, run), lambda found: replace(found, labels=twice(found.labels)))


@dataclass(frozen=True)
class Guesses(DiSMEC):
    """Has seen another truth."""

    def fit(self, data, valid=None, run=ONE):
        return super().fit(replace(data, Y=data.Y[::-1]), valid, run)


class Spoilt:
    @staticmethod
    def around(model, spoil):
        genuine = model.predict
        object.__setattr__(model, "predict", lambda data, k=5, run=ONE: spoil(genuine(data, k, run)))
        return model


def twice(labels: np.ndarray) -> np.ndarray:
    return np.where(np.arange(labels.shape[1]) == 1, labels[:, :1], labels)


@pytest.mark.parametrize(("method", "broken"), [(Repeats(), "named twice"), (Guesses(), "P@1 is 0.0")])
def test_the_suite_finds_what_is_broken(method, broken):
    with pytest.raises((AssertionError, XmtcError), match=broken):
        check_method(method)
