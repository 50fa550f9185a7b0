"""Methods of other packages: found through an entry point or passed as an instance, checked, saved with the name of
their package, and rejected before training if they cannot be saved."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from centroid import Centroid
from commands import lines_of
from test_damaged_models import set_about_value

from xmtc import Classifier, Dataset, Method, Model, Run, Tagger, XmtcError, array, param, train
from xmtc.data.in_memory import to_documents
from xmtc.storage.form import Form
from xmtc.testing import check_method, make_planted_corpus

TRAIN = make_planted_corpus(200, seed=1)


def test_method_instance_passes_the_conformance_tests():
    check_method(Centroid(power=2.0))


def test_method_instance_is_accepted():
    classifier = Classifier(Centroid(power=2.0), min_df=1).fit(*TRAIN)
    assert classifier.tagger_.about["parameters"] == {"power": 2.0}
    assert classifier.get_params()["power"] == 2.0
    assert classifier.set_params(power=3.0).fit(*TRAIN).tagger_.about["parameters"] == {"power": 3.0}
    tagger = train(to_documents(*TRAIN), Centroid(), min_df=1)
    assert tagger.about["method"] == "centroid:Centroid"
    with pytest.raises(XmtcError, match="Centroid is a class; give an instance, such as Centroid"):
        Classifier(Centroid)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Create a folder with an installed package `centroids`, which adds the method `centroid`."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "centroids").mkdir()
    source = Path(__file__).parents[1] / "support" / "centroid.py"
    (folder / "centroids" / "__init__.py").write_text(source.read_text())
    info = folder / "xmtc_centroids-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: xmtc-centroids\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[xmtc.methods]\ncentroid = centroids:Centroid\n")
    (info / "RECORD").write_text("centroids/__init__.py,,\n")
    (info / "top_level.txt").write_text("centroids\n")
    return folder


def xmtc(*words, path: Path | None = None) -> subprocess.CompletedProcess:
    """Run the command in its own process, with or without a folder of packages."""
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from xmtc.cli import main; main()"
    command = [sys.executable, "-c", code, str(path or ""), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_installed_package_adds_a_method(site, tmp_path):
    (tmp_path / "train.jsonl").write_text(lines_of(100, seed=0))
    command = ("train", tmp_path / "train.jsonl", "-m", "centroid", "-o", tmp_path / "model", "-p", "power=2")
    assert "There is no method 'centroid'" in xmtc(*command).stderr
    assert (
        "centroid         Cosine similarity to the mean of the documents of each label."
        in xmtc("methods", path=site).stdout
    )
    assert "power" in xmtc("methods", "centroid", path=site).stdout
    done = xmtc(*command, path=site)
    assert done.returncode == 0, done.stderr
    about = json.loads((tmp_path / "model" / "about.json").read_text())
    assert (about["method"], about["package"], about["parameters"]) == ("centroid", "xmtc-centroids", {"power": 2.0})
    assert about["parts"]["model"]["form"] == "centroids:CentroidModel"
    done = xmtc("evaluate", tmp_path / "model", tmp_path / "train.jsonl", path=site)
    assert done.stdout.startswith("P@1")
    without = xmtc("evaluate", tmp_path / "model", tmp_path / "train.jsonl")
    assert without.returncode == 2
    assert without.stderr == (
        f"xmtc: {tmp_path / 'model'} was trained by centroid of xmtc-centroids, which is not installed; install that "
        "package (pip install xmtc-centroids), or import it first.\n"
    )


def test_model_folder_imports_nothing(site, tmp_path):
    """A module is not imported because a folder names it."""
    Classifier("parabel").fit(*TRAIN).save(tmp_path / "model")
    (site / "hostile.py").write_text("raise SystemExit('imported')\n")
    for place in ("hostile:Form", "os:system", "xmtc.cli:main", "xmtc.nothing:Here", "xmtc.core.method:Model", 7, "x"):
        set_about_value(tmp_path / "model", "parts.model.form", place)
        done = xmtc("predict", tmp_path / "model", "-", path=site)
        assert (done.returncode, "is damaged" in done.stderr) == (2, True), done.stderr


@dataclass(frozen=True, kw_only=True)
class UnsavableModel(Model):
    """Model with a field that cannot be saved."""

    result: dict

    def _predict(self, data, k, run):
        raise NotImplementedError

    def _explain(self, document, label):
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Untyped(UnsavableModel):
    result: np.ndarray = field(default_factory=lambda: np.zeros(3))


class NoDataclass(Form):
    pass


def method_leaving(model) -> Method:
    @dataclass(frozen=True)
    class Leaves(Method):
        def _fit(self, data: Dataset, valid: Dataset | None, run: Run):
            raise AssertionError("nothing is trained")

    Leaves._fit.__annotations__["return"] = model
    Leaves.__qualname__ = "Leaves"
    return Leaves()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (UnsavableModel, "UnsavableModel.result is a <class 'dict'>, which a model folder cannot hold"),
        (Untyped, "Untyped.result is an array whose type is not stated: use array(np.float32)"),
        (NoDataclass, "NoDataclass is not a dataclass derived from xmtc.Form or xmtc.Model"),
        (dict, "dict is not a dataclass derived from"),
    ],
)
def test_unsavable_method_is_rejected_before_training(model, message):
    with pytest.raises(XmtcError) as error:
        Classifier(method_leaving(model)).fit(*TRAIN)
    assert str(error.value).startswith("The model of Leaves cannot be saved: ")
    assert message in str(error.value)


def test_method_defined_in_a_function_is_rejected():
    @dataclass(frozen=True)
    class Inner(Method):
        def _fit(self, data, valid, run):
            raise AssertionError("nothing is trained")

    with pytest.raises(XmtcError, match="Inner is defined inside a function, so a saved model cannot be loaded"):
        Classifier(Inner()).fit(*TRAIN)


def test_incomplete_methods_cannot_be_instantiated():
    @dataclass(frozen=True)
    class NoFit(Method):
        power: float = param(1.0, "nothing")

    @dataclass(frozen=True, kw_only=True)
    class NoPredict(Model):
        weights: np.ndarray = array(np.float32)

    with pytest.raises(TypeError, match="abstract"):
        NoFit()
    with pytest.raises(TypeError, match="abstract"):
        NoPredict(n_labels=1, views={}, weights=np.zeros(1, np.float32))


def test_model_of_an_imported_module_is_loaded(tmp_path):
    Classifier(Centroid()).fit(*TRAIN).save(tmp_path / "model")
    assert Tagger.load(tmp_path / "model").predict_labels(TRAIN[0][:1])
    code = dedent(
        """
        import sys
        from xmtc import Tagger, XmtcError
        try:
            Tagger.load(sys.argv[1])
        except XmtcError as error:
            print(error)
        """
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True, check=True)
    assert "was trained by centroid:Centroid of centroid, which is not installed" in done.stdout
