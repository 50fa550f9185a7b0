"""Every method passes the conformance tests of `xmtc.testing`, and broken methods fail them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from planted import make_planted_corpus
from quick_methods import quick

from xmtc import METHODS, testing
from xmtc.core.events import Pass
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.features import select_views
from xmtc.methods import method_class
from xmtc.methods.one_vs_all.dismec import DiSMEC
from xmtc.pipeline import train
from xmtc.testing import CHECKS, MethodCase, check_method

ONE = testing.ONE_THREAD

# a single code for all labels learns them less well
LEAST_P1 = {"xml_rnn": 0.95, "c2ae": 0.96, "aplc_xlnet": 0.96}


@cache
def case(name: str) -> MethodCase:
    return MethodCase(name, quick(name), LEAST_P1.get(name, 0.98))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", METHODS)
def test_methods_pass_the_conformance_tests(name, check):
    check(case(name))


@pytest.mark.parametrize("name", METHODS)
def test_training_without_held_out_documents_uses_all_documents_and_epochs(name):
    parameters = quick(name)
    if not hasattr(method_class(name), "held_out"):
        pytest.skip("holds no documents out")
    texts, tags = make_planted_corpus(60, 1)
    documents = [Document("", *both) for both in zip(texts, tags, strict=True)]
    stages, passes = [], []

    @contextmanager
    def progress(title, total=None):
        stages.append((title, total))
        yield SimpleNamespace(advance=lambda steps=1: None, set_status=lambda news: None)

    watch = lambda event: passes.append(event) if isinstance(event, Pass) else None  # noqa: E731
    few = parameters | {"held_out": 0.0, "epochs": 3, "patience": 1}
    tagger = train(documents, name, run=replace(ONE, progress=progress, callbacks=watch), **few)
    trainings = [total for title, total in stages if title == "training"]
    assert trainings
    assert set(trainings) == {3 * 60}
    assert [done.number for done in passes] == [1, 2, 3] * len(trainings)
    assert not any(done.metrics for done in passes)
    again = train(documents, name, run=ONE, **few | {"patience": 9})
    same = tagger.predict(documents[:5], 5).scores == again.predict(documents[:5], 5).scores
    assert same.all()


@pytest.mark.parametrize("name", METHODS)
def test_presets_contain_known_parameters(name):
    quick(name)
    method = method_class(name)
    if not method.presets:
        pytest.skip("has none")
    for name, values in method.presets.items():
        reads = method(**{key: value for key, value in values.items() if key == "input"}).required_views
        known = {field.name for kind in (method, *select_views(reads).values()) for field in fields(kind)}
        assert set(values) <= known, name


def test_method_instance_passes():
    check_method(DiSMEC(C=2.0))


@dataclass(frozen=True)
class Repeats(DiSMEC):
    """Predicts its best label twice."""

    def _fit(self, data, valid, run):
        return Spoilt.around(
            super()._fit(data, valid, run), lambda result: replace(result, labels=twice(result.labels))
        )


@dataclass(frozen=True)
class Guesses(DiSMEC):
    """Trained on other labels."""

    def _fit(self, data, valid, run):
        return super()._fit(replace(data, Y=data.Y[::-1]), valid, run)


class Spoilt:
    @staticmethod
    def around(model, spoil):
        genuine = model.predict
        object.__setattr__(model, "predict", lambda data, k=5, run=ONE: spoil(genuine(data, k, run)))
        return model


def twice(labels: np.ndarray) -> np.ndarray:
    return np.where(np.arange(labels.shape[1]) == 1, labels[:, :1], labels)


@pytest.mark.parametrize(("method", "broken"), [(Repeats(), "twice"), (Guesses(), "P@1 is 0.0")])
def test_conformance_tests_detect_broken_methods(method, broken):
    with pytest.raises((AssertionError, XmtcError), match=broken):
        check_method(method)
