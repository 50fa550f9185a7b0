"""Rules for the parameters of every method and the entries of METHODS."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, fields

import numpy as np
import pytest
from typer.testing import CliRunner

from xmtc import METHODS, Classifier, XmtcError
from xmtc.cli import app
from xmtc.core.hyperparameters import ParameterSet, param
from xmtc.errors import MissingExtra
from xmtc.features import VIEWS, view_class
from xmtc.labels.propensity import PROPENSITIES, Propensity
from xmtc.methods import method_class, method_name


@dataclass(frozen=True)
class Soup(ParameterSet):
    n: int = param(3, "plates", low=0)
    salt: float = param(0.5, "grams")
    hot: bool = param(True, "from the stove")
    name: str = param("soup", "what it is called")


def test_values_take_the_type_of_their_default():
    soup = Soup(n=np.float32(4), salt=np.int8(2), hot=np.bool_(False), name=np.str_("stew"))
    assert soup == Soup(4, 2.0, False, "stew")
    assert [type(value) for value in asdict(soup).values()] == [int, float, bool, str]
    assert json.loads(json.dumps(asdict(soup)))["n"] == len(range(soup.n))


@pytest.mark.parametrize(
    "wrong",
    [{"n": value} for value in (2.5, np.nan, np.inf, "3", True, -1, 2**63, 10**400, 1e30, None, 1j)]
    + [{"salt": value} for value in (np.nan, -np.inf, np.float32("inf"), 10**400, "much", False)]
    + [{"hot": 1}, {"name": 7}, {"name": None}],
)
def test_invalid_values_are_rejected(wrong):
    with pytest.raises(XmtcError, match=f"Soup: {next(iter(wrong))}=.* is invalid; expected "):
        Soup(**wrong)


def test_classifier_keeps_parameters_as_passed():
    seven = np.int64(7)
    classifier = Classifier(n_trees=seven)
    assert classifier.get_params()["n_trees"] is seven
    texts, tags = ["red apple", "green pear"] * 2, [["red"], ["green"]] * 2
    assert classifier.fit(texts, tags).tagger_.about["parameters"]["n_trees"] == 7
    assert Classifier(max_passes=5.0).fit(texts, tags).tagger_.about["parameters"]["max_passes"] == 5


def test_propensities_are_checked():
    assert PROPENSITIES["default"] == Propensity() == Propensity(A=0.55, B=1.5)
    for wrong in ({"A": -1}, {"A": np.nan}, {"B": 0}, {"B": -0.5}, {"B": "x"}):
        with pytest.raises(XmtcError, match=r"Propensity: [AB]=.* is invalid; expected a number from"):
            Propensity(**wrong)


@pytest.mark.parametrize("name", METHODS)
def test_parameter_names_do_not_clash(name):
    names = {field.name for field in fields(method_class(name))}
    of_views = {field.name for view in VIEWS for field in fields(view_class(view))}
    assert not names & of_views
    assert not (names | of_views) & {*dir(Classifier), "method", "tagger_"}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_knows_its_name(name):
    assert method_name(method_class(name)()) == name


@pytest.fixture
def broken_methods(tmp_path, monkeypatch):
    """Register a method whose package is not installed and one whose module is broken."""
    (tmp_path / "needs_torch.py").write_text("import torch.nn\n")
    (tmp_path / "is_broken.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(METHODS, "attention_xml", "needs_torch:AttentionXML")


def test_error_names_the_missing_extra(broken_methods, monkeypatch):
    with pytest.raises(MissingExtra) as error:
        method_class("attention_xml")
    assert str(error.value) == "attention_xml needs PyTorch: pip install 'xmtc[neural]'"
    assert isinstance(error.value, XmtcError)
    with pytest.raises(MissingExtra):
        Classifier("attention_xml")
    monkeypatch.setitem(METHODS, "broken", "is_broken:Broken")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        method_class("broken")


def test_methods_command_lists_methods_despite_a_missing_extra(broken_methods):
    shown = CliRunner().invoke(app, ["methods"], catch_exceptions=False).stdout
    assert "parabel " in shown
    assert "attention_xml    attention_xml needs PyTorch: pip install 'xmtc[neural]'" in shown
    assert Classifier(min_df=1).fit(["a text", "b text"], [["a"], ["b"]]).tagger_.about["method"] == "parabel"
