"""Rules of the architecture: layers, cycles, light imports, torch only in neural modules. See ARCHITECTURE.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "xmtc"
of_the_checkout = pytest.mark.skipif(not ROOT.exists(), reason="the rules are about the sources in the checkout")

# From the bottom up. A module imports modules of its own layer and of the layers below.
LAYERS = [
    {"errors", "core", "storage", "cluster"},
    {"data", "text", "labels", "vocabulary"},
    {"features", "linear", "nn", "evaluation"},
    {"methods"},
    {
        "classifier",
        "pipeline",
        "tagger",
        "model_folder",
        "hub",
        "mlflow",
        "parameters",
        "analyzer_selection",
        "name_documents",
        "training_plan",
        "reranking",
        "maintenance",
        "scores",
        "explain",
        "export",
    },
    {"analysis", "output", "review", "testing"},
    {"cli", "server", "__main__"},
]
# Modules that may import PyTorch and transformers outside of functions.
NEURAL = ("nn/", "methods/attention/", "methods/autoencoder/", "methods/convolution/", "methods/transformer/")
NEURAL += tuple(f"methods/matcher/{name}.py" for name in ("projection", "fine_tuning", "fine_tuned_model"))
NEURAL += tuple(f"features/encoders/{name}.py" for name in ("model_loader", "mpnet", "export", "sentence_vectors"))
HEAVY = ("torch", "transformers", "ray", "fastapi", "uvicorn", "mcp", "prometheus_client", "optuna")
SERVING = ("fastapi", "uvicorn", "mcp", "prometheus_client")  # allowed in server/
LAYER = {package: number for number, packages in enumerate(LAYERS) for package in packages}
FILES = sorted(ROOT.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def without_type_checking(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    return tree


def list_imports(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


@of_the_checkout
@pytest.mark.parametrize(
    "path", [p for p in FILES if p.name != "__init__.py" or p.parent != ROOT], ids=lambda p: str(p.relative_to(ROOT))
)
def test_imports_point_down(path):
    package = package_of(path)
    used = {name.split(".")[1] for name in list_imports(ast.parse(path.read_text())) if name.startswith("xmtc.")}
    for other in used & set(LAYER) - {package}:
        assert LAYER[other] <= LAYER[package], f"{package} may not import {other}"


@of_the_checkout
def test_no_two_modules_import_each_other():
    """Imports inside functions count; those for type checkers alone do not."""
    modules = {module_name(path): path for path in FILES}
    graph = {}
    for module, path in modules.items():
        names = list_imports(without_type_checking(ast.parse(path.read_text())))
        graph[module] = {name for name in names if name in modules and modules[name].name != "__init__.py"} - {module}
    TopologicalSorter(graph).prepare()


@of_the_checkout
@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_networks_import_torch(path):
    here = path.relative_to(ROOT).as_posix()
    if not here.startswith(NEURAL):
        outside = [node for node in ast.parse(path.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        used = {name.split(".")[0] for node in outside for name in list_imports(node)}
        used -= set(SERVING) if here.startswith("server/") else set()
        assert not used & set(HEAVY), f"{here} may not import {used & set(HEAVY)}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_functions_stay_short(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
            assert node.end_lineno - body[0].lineno < 60, f"{node.name} is long"  # without signature and docstring


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_xmtc_is_light():
    assert not {"numpy", "numba", "sklearn", *HEAVY} & modules_after("import xmtc")


def test_linear_methods_do_not_import_torch():
    assert not set(HEAVY) & modules_after("import xmtc.classifier, xmtc.methods.label_tree.parabel")


def test_the_command_starts_without_heavy_imports():
    assert not {"numpy", "numba", "scipy", "sklearn", "pyarrow", *HEAVY} & modules_after("import xmtc.cli")


def test_files_are_fetched_without_heavy_imports():
    assert not {"numpy", "numba", "scipy", "pyarrow", *HEAVY} & modules_after("import xmtc.data.file_prefetch")


def test_only_the_module_of_the_requested_command_is_imported():
    begin = "from xmtc.cli import build_app, select_commands;"
    found = modules_after(f"{begin} build_app(select_commands(['info', 'train']))")
    assert "xmtc.cli.info" in found
    assert not {"xmtc.cli.train", "xmtc.cli.data"} & found
    assert {"xmtc.cli.train", "xmtc.cli.data"} <= modules_after(f"{begin} build_app(select_commands(['trian']))")


@of_the_checkout
def test_names_of_xmtc_cli_differ_from_its_modules():
    """Importing the module would replace the name."""
    files = {path.stem for path in (ROOT / "cli").glob("*.py")}
    tree = ast.parse((ROOT / "cli" / "__init__.py").read_text())
    assert not files & {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
