"""tests/project/fidelity.toml: the items of the papers, with code and the test that holds each."""

from __future__ import annotations

import ast
import runpy
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "docs" / "hooks.py").exists():
    pytest.skip("the documentation is in the checkout alone", allow_module_level=True)

TABLE = tomllib.loads(Path(__file__).with_name("fidelity.toml").read_text(encoding="utf-8"))
KINDS = {"equations": "eq.", "algorithms": "Algorithm", "tables": "Table", "figures": "Fig."}


@cache
def list_definitions(path: Path) -> set[str]:
    """Return the functions, classes, methods (Class::method and method) and constants of a module."""
    names = set[str]()

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.update((node.name, prefix + node.name))
                visit(node.body if isinstance(node, ast.ClassDef) else [], f"{node.name}::")
            elif isinstance(node, ast.Assign):
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return names


@pytest.mark.parametrize("row", TABLE["row"], ids=lambda row: f"{row['paper']}: {', '.join(row['items'])}")
def test_code_and_test_of_a_row_exist(row):
    assert row["paper"] in TABLE["papers"]
    assert row["items"]
    assert row["what"]
    path, _, name = row["code"].partition(":")
    assert (ROOT / path).exists()
    assert not name or name in list_definitions(ROOT / path)
    path, _, name = row["test"].partition("::")
    assert name.rpartition("::")[2].startswith("test_")
    assert name in list_definitions(ROOT / path)


@pytest.mark.parametrize("paper", TABLE["papers"])
def test_every_item_of_a_paper_has_a_row(paper):
    items = [item for row in TABLE["row"] if row["paper"] == paper for item in row["items"]]
    assert len(set(items)) == len(items)
    for kind, title in KINDS.items():
        expected = [f"{title} {number}" for number in range(1, TABLE["papers"][paper].get(kind, 0) + 1)]
        numbered = [item for item in items if item.startswith(title) and item.removeprefix(title).strip().isdigit()]
        assert sorted(numbered) == sorted(expected)


def test_the_page_has_every_row():
    hooks = pytest.importorskip("mkdocs") and runpy.run_path(str(ROOT / "docs" / "hooks.py"))
    page = hooks["make_fidelity_page"]()
    for row in TABLE["row"]:
        assert f"| {', '.join(row['items'])} | {row['what']} | `{row['code']}` | `{row['test']}` |" in page
    assert all(f"## {paper['title']}" in page for paper in TABLE["papers"].values())


def test_papers_and_xmtc_are_side_by_side():
    """Every system has its published figures, and a measured row with seconds, machine and command."""
    hooks = pytest.importorskip("mkdocs") and runpy.run_path(str(ROOT / "docs" / "hooks.py"))
    text = hooks["render_side_by_side"](TABLE["beside"])
    for entry in TABLE["beside"]:
        lines = text.partition(f"**{entry['title']}.**")[2].partition("**")[0].splitlines()
        cells = {
            line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
            for line in lines
            if "|" in line
        }
        for row in entry["rows"]:
            figures, (seconds, machine, command) = cells[row["label"]][:3], cells[row["label"]][3:]
            if row.get("is_published"):
                assert all(float(figure) > 0 for figure in figures)
            elif figures[0] == "not run":
                assert command == f"`python -m experiments run {row['table']} --only '{row['row']}'`"
            else:
                assert seconds
                assert machine
                assert command.startswith("`xmtc train ")
    assert "{{ side_by_side }}" in (ROOT / "docs" / "results" / "papers.md").read_text(encoding="utf-8")
