"""Public names of `xmtc` and `xmtc.methods`, `help()` and type checkers."""

from __future__ import annotations

import ast
import doctest
import inspect
import pkgutil
import re
import rlcompleter
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import MultiLabelBinarizer

import xmtc
import xmtc.methods
import xmtc.testing
from xmtc import Classifier, Method, Predictions, Run, XmtcError, evaluate, param
from xmtc.core.checkpoint import Checkpoint
from xmtc.methods import METHODS, method_class

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="some methods need PyTorch")
needs_mypy = pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")


def names_for_type_checkers(module) -> set[str]:
    """Return the names that a module imports under `if TYPE_CHECKING`."""
    body = ast.parse(inspect.getsource(module)).body
    guarded = [node for node in body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for guard in guarded for node in guard.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def output_of(code: str, *options: str) -> str:
    command = [sys.executable, *options, "-c", dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


# the names of xmtc


def test_three_lists_of_names_are_equal():
    assert set(xmtc.__all__) == set(xmtc._MODULE_BY_NAME) == names_for_type_checkers(xmtc)
    for name in xmtc.__all__:
        assert getattr(xmtc, name) is not None


def test_dir_lists_only_public_names():
    shown = output_of(
        "import xmtc, xmtc.cli.train, xmtc.analysis.combine, xmtc.analysis.tune.search; print(*dir(xmtc))"
    ).split()
    assert [name for name in shown if not name.startswith("__")] == sorted(xmtc.__all__)
    assert {"__version__", "__doc__", "__all__"} <= set(shown)


def test_tab_completion():
    completer = rlcompleter.Completer({"xmtc": xmtc})
    found = {name.rstrip("()") for name in completer.attr_matches("xmtc.")}
    assert found == {f"xmtc.{name}" for name in xmtc.__all__}


def test_no_module_hides_a_public_name():
    """Importing a submodule replaces a public name of the package that is equal to the name of the submodule."""
    assert not {module.name for module in pkgutil.iter_modules(xmtc.__path__)} & set(xmtc.__all__)


def test_unknown_name_raises():
    with pytest.raises(AttributeError, match="module 'xmtc' has no attribute 'Clasifier'"):
        _ = xmtc.Clasifier
    with pytest.raises(ImportError, match="cannot import name 'fit'"):
        from xmtc import fit  # noqa: F401


# the names of xmtc.methods


def test_type_checkers_know_every_method():
    assert names_for_type_checkers(xmtc.methods) == {address.partition(":")[2] for address in METHODS.values()}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_imported(name):
    class_name = METHODS[name].partition(":")[2]
    assert class_name in dir(xmtc.methods)
    try:
        found = method_class(name)
    except XmtcError:  # as in an installation without extras
        with pytest.raises(ImportError, match=r"needs PyTorch: pip install 'xmtc\[neural\]'"):
            getattr(xmtc.methods, class_name)
    else:
        assert getattr(xmtc.methods, class_name) is found


def test_methods_are_imported_one_by_one():
    code = """
        import sys
        from xmtc.methods import Parabel
        print(*dir(sys.modules["xmtc.methods"]))
        print(*sys.modules)
    """
    shown, imported = (set(line.split()) for line in output_of(code).splitlines())
    assert "xmtc.methods.label_tree.parabel" in imported
    assert not {"torch", "xmtc.methods.label_tree.bonsai", "xmtc.methods.one_vs_all.dismec"} & imported
    assert "AttentionXML" in shown
    assert not {"label_tree", "Any", "TABLE", "TYPE_CHECKING"} & shown


def test_unknown_method_raises():
    with pytest.raises(AttributeError, match=r"module 'xmtc\.methods' has no attribute 'Parable'"):
        _ = xmtc.methods.Parable


def test_methods_of_other_packages(tmp_path):
    (tmp_path / "others.py").write_text(
        "from xmtc import Method\nclass Theirs(Method): ...\nclass Parabel(Method): ...\n"
    )
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[xmtc.methods]\ntheirs = others:Theirs\nparabel2 = others:Parabel\n")
    code = f"""
        import sys; sys.path.append({str(tmp_path)!r})
        import xmtc.methods
        print("Theirs" in dir(xmtc.methods), "others" in sys.modules)
        from xmtc.methods import Parabel, Theirs
        print(Parabel.__module__, Theirs.__module__)
    """
    assert output_of(code).splitlines() == ["True False", "xmtc.methods.label_tree.parabel others"]


# help()


@pytest.mark.parametrize("name", ["parabel", "dismec", "consensus", pytest.param("aplc_xlnet", marks=needs_torch)])
def test_help_lists_the_parameters(name):
    kind = method_class(name)
    text = inspect.getdoc(kind)
    for parameter in fields(kind):
        assert f"\n{parameter.name} : " in text
        assert f"default {parameter.default!r}\n    {parameter.metadata['help']}" in text
    assert inspect.getdoc(sys.modules[kind.__module__]) in text
    assert text.count("\nParameters\n") == 1


def test_help_has_numpydoc_sections():
    assert inspect.getdoc(Sample).startswith(
        dedent("""\
        One sentence.

        More of it.

        Parameters
        ----------
        C : float, default 1.0
            inherited
        mode : {'a', 'b'}, default 'b'
            chosen
        sizes : tuple of int, default (1, 2)
            several
        member : Method or str, default 'parabel'
            nested

        Notes
        -----
        Public names""")
    )


@dataclass(frozen=True)
class Base(Method):
    """Docstring of the base class."""

    C: float = param(1.0, "inherited")
    mode: str = param("a", "chosen", choices=("a", "b"))


@dataclass(frozen=True)
class Sample(Base):
    """One sentence.

    More of it.
    """

    mode: str = param("b", "chosen", choices=("a", "b"))
    sizes: tuple[int, ...] = param((1, 2), "several")
    member: object = param("parabel", "nested", kind=xmtc.core.hyperparameters.ParameterSet)

    def _fit(self, data, valid, run):
        raise NotImplementedError


def test_methods_work_without_docstrings():
    code = """
        from xmtc.methods import Parabel
        print(Parabel(n_trees=2), Parabel.__doc__)
    """
    assert output_of(code, "-OO").startswith("Parabel(n_trees=2, ")


# evaluate, and Run


PREDICTIONS = Predictions(np.array([[2, 0], [1, 2]], np.int32), np.array([[0.9, 0.2], [0.8, 0.1]], np.float32))
TRUE = np.array([[1, 0, 1], [0, 0, 1]])


@pytest.mark.parametrize(
    "make", [np.asarray, np.asarray(TRUE, bool).astype, sparse.csr_array, sparse.csc_matrix, sparse.coo_array],
    ids=["dense", "bool", "csr_array", "csc_matrix", "coo_array"],
)  # fmt: skip
def test_evaluate_accepts_any_matrix(make):
    Y = make(bool) if make.__name__ == "astype" else make(TRUE)
    assert evaluate(PREDICTIONS, Y, ["P@1", "P@2"]) == {"P@1": 0.5, "P@2": 0.75}
    assert evaluate(PREDICTIONS, Y, "p@2") == {"P@2": 0.75}
    assert list(evaluate(PREDICTIONS, Y)) == ["P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5"]


@pytest.mark.parametrize("Y", [[["a", "b"], ["a"]], TRUE[:, 0], np.array([["a"], ["b"]]), None])
def test_evaluate_error_names_accepted_types(Y):
    with pytest.raises(XmtcError, match=f"Y is a {type(Y).__name__}, expected a matrix of zeros and ones"):
        evaluate(PREDICTIONS, Y)
    with pytest.raises(XmtcError, match="predictions is a list, expected Predictions"):
        evaluate([[2, 0], [1, 2]], TRUE)


def test_evaluate_equals_classifier_evaluate():
    texts, tags = ["red apple", "green apple", "red car", "green car"] * 5, [["11"], ["2", "11"], ["3"], ["2", "3"]] * 5
    classifier = Classifier("parabel", min_df=1).fit(texts, tags)
    Y = MultiLabelBinarizer(classes=classifier.classes_, sparse_output=True).fit_transform(tags)
    found = evaluate(classifier.rank(texts), Y, ["P@1", "nDCG@3"])
    assert found == pytest.approx(classifier.evaluate(texts, tags, ["P@1", "nDCG@3"]))
    assert classifier.evaluate(texts, tags, "P@1") == {"P@1": found["P@1"]}


def test_run_accepts_a_path_as_checkpoint(tmp_path):
    for path in (tmp_path / "parts", str(tmp_path / "parts")):
        assert Run(checkpoint=path).checkpoint == Checkpoint(tmp_path / "parts")
    assert Run().checkpoint == Run(checkpoint=Checkpoint()).checkpoint == Checkpoint()
    tree = ast.parse(dedent(inspect.getsource(Run)))
    (init,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    assert [argument.arg for argument in init.args.args[1:]] == [field.name for field in fields(Run)]


def test_corpus_has_a_readable_repr(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"text": "a", "labels": ["x"]}\n' * 2)
    corpus = xmtc.open_corpus(path)
    assert repr(corpus) == f"Corpus('{path}', format='jsonl')"
    assert [len(list(corpus)) for _ in range(2)] == [2, 2]


# type checkers


def test_package_is_marked_as_typed():
    assert files("xmtc").joinpath("py.typed").is_file()


RIGHT = """
from pathlib import Path

import numpy as np

from xmtc import Classifier, Document, Predictions, Run, Tag, Tagger, evaluate, open_corpus, train
from xmtc.methods import PLT, AttentionXML, Consensus, Parabel

classifier = Classifier(Parabel(n_trees=3), min_df=1).fit(["a text"], [["a"]], run=Run(threads=2, device="cpu"))
names: list[list[str]] = classifier.predict(["a text"], k=3)
predictions: Predictions = classifier.rank(["a text"])
metrics: dict[str, float] = evaluate(predictions, np.eye(2), "P@1") | evaluate(predictions, np.eye(2), ["P@1"])
tagger: Tagger = train(open_corpus("train.jsonl"), "parabel", run=Run(checkpoint="parts"), n_trees=1)
tagger = train([Document("1", "a text", ["a"])], AttentionXML(hidden=64), run=Run(checkpoint=Path("parts")))
tagger = train(open_corpus(Path("train.jsonl")), Consensus(("parabel", PLT(n_trees=2))))
tags: list[list[Tag]] = Tagger.load("model").predict_labels(["a text"])
best: str = tags[0][0].label
"""
WRONG = """
from xmtc import Classifier, Run, evaluate, open_corpus, train
from xmtc.methods import DiSMEC, Parabel, Parable

Parabel(n_tree=3)
Parabel(n_trees="three")
DiSMEC(C="large")
Run(threads="many")
Run(checkpoint=7)
open_corpus(7)
train(7)
evaluate("predictions", [[1]], 7)
reveal_type(Parabel().n_trees)
reveal_type(Run().checkpoint)
reveal_type(Classifier().predict_labels(["a text"]))
reveal_type(train(open_corpus("train.jsonl")))
"""


MYPY = """
[mypy]
strict = true
ignore_missing_imports = true
[mypy-torch.*]
follow_imports = skip
"""  # PyTorch takes half a minute and is in no public type


def mypy(folder: Path, **scripts: str) -> str:
    """Return the output of mypy on a user's script."""
    for name, script in scripts.items():
        (folder / f"{name}.py").write_text(script)
    (folder / "mypy.ini").write_text(MYPY)
    path = str(Path(xmtc.__file__).parent.parent)
    code = f"import sys; sys.path.insert(0, {path!r}); from mypy.main import main; main()"
    command = [sys.executable, "-c", code, "--no-error-summary", *(f"{name}.py" for name in scripts)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)
    assert not done.stderr
    return done.stdout.replace("builtins.", "")


def read_documented_modules() -> dict[str, str]:
    """Return the modules of the page about own methods, and the metric of CONTRIBUTING.md, by file name."""
    root = Path(__file__).parents[2]
    pages = (root / "docs/how-to/bring-your-own-method.md", root / "CONTRIBUTING.md")
    blocks = [block for page in pages for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
    return {f"documented_{number}": block for number, block in enumerate(blocks)}


@needs_mypy
def test_mypy_infers_public_types(tmp_path):
    documented = read_documented_modules()
    said = mypy(tmp_path, right=RIGHT, wrong=WRONG, **documented)
    assert "right.py" not in said
    assert len(documented) >= 3
    assert "documented_" not in said, said
    for number, line in enumerate(WRONG.splitlines(), 1):
        if line and not line.startswith("from xmtc import"):
            assert f"wrong.py:{number}: " in said, line
    assert 'Module "xmtc.methods" has no attribute "Parable"' in said
    assert 'Unexpected keyword argument "n_tree" for "Parabel"' in said
    tags = "list[list[tuple[str, float, fallback=xmtc.tagger.Tag]]]"
    for revealed in ("int", "xmtc.core.checkpoint.Checkpoint", tags, "xmtc.tagger.Tagger"):
        assert f'Revealed type is "{revealed}"' in said


# Docstrings


def iterate_public_objects() -> Iterator[tuple[str, object]]:
    for module in (xmtc, xmtc.testing):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


PUBLIC_OBJECTS = dict(iterate_public_objects())


@pytest.mark.parametrize("name", PUBLIC_OBJECTS)
def test_examples_of_public_names_run(name):
    if name == "xmtc.plot_history":
        pytest.importorskip("matplotlib")
    examples = doctest.DocTestFinder().find(PUBLIC_OBJECTS[name], name)
    runner = doctest.DocTestRunner()
    for example in examples:
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0
    assert any(example.examples for example in examples)


@pytest.mark.parametrize("name", [name for name, value in PUBLIC_OBJECTS.items() if inspect.isfunction(value)])
def test_public_functions_describe_their_parameters(name):
    function = PUBLIC_OBJECTS[name]
    text = inspect.getdoc(function)
    for parameter in inspect.signature(function).parameters.values():
        stars = "*" * ((parameter.kind == parameter.VAR_POSITIONAL) + 2 * (parameter.kind == parameter.VAR_KEYWORD))
        assert re.search(rf"^(.*, )?{re.escape(stars + parameter.name)}(,.*| : .*)?$", text, re.MULTILINE), parameter
