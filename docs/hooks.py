"""Generated pages and parts of pages of the documentation site.

The start page is the README; architecture, changes, contributing and security are the files of these names. In a page,
`{{ commands }}`, `{{ methods }}`, `{{ measures }}`, `{{ dependencies }}` and `{{ side_by_side }}` are replaced by the
commands with their options, the methods with their parameters, the metrics, the installed packages, and the papers'
figures beside ours. Formulas in GitHub's notation (a
fence named math, or $`…`$) are converted to MathML, which browsers show without scripts.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from typer.main import get_command

from xmtc.analysis.report.files import render_markdown_rows
from xmtc.cli import app
from xmtc.core.hyperparameters import describe_expected
from xmtc.evaluation import METRIC_FAMILIES
from xmtc.features import VIEWS, view_class
from xmtc.methods import METHODS, method_class
from xmtc.name_documents import NameTraining
from xmtc.scores.calibration import Calibration

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
from licences import find_dependencies  # noqa: E402
from schemas import build_schemas  # noqa: E402

from experiments.__main__ import make_report  # noqa: E402
from experiments.page import render_side_by_side  # noqa: E402
from experiments.rows import list_tables  # noqa: E402

MARK = "⟦{}⟧"
OUTSIDE = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


SOURCES = {
    "index": "README",
    "architecture": "ARCHITECTURE",
    "changelog": "CHANGELOG",
    "contributing": "CONTRIBUTING",
    "security": "SECURITY",
}


def on_files(files, config):
    for name, source in SOURCES.items():
        text = (ROOT / f"{source}.md").read_text()
        files.append(File.generated(config, f"{name}.md", content=as_page(text)))
    report = make_report(list_tables(), ROOT / "docs" / "results")
    files.append(File.generated(config, "results/reproduced.md", content=report))
    files.append(File.generated(config, "results/fidelity.md", content=make_fidelity_page()))
    for name, schema in build_schemas().items():
        files.append(File.generated(config, f"reference/schemas/{name}", content=f"{json.dumps(schema, indent=1)}\n"))
    return files


def read_fidelity() -> dict[str, Any]:
    return tomllib.loads((ROOT / "tests" / "project" / "fidelity.toml").read_text(encoding="utf-8"))


def make_fidelity_page() -> str:
    """Return the table of the papers' items, with code and test, one section per paper."""
    table = read_fidelity()
    parts = [
        "# From paper to code and test",
        "Every numbered equation, algorithm, table and figure of the papers, the code that implements it and the test "
        "that holds it: most compare the code with an independent implementation of the formula. Generated from "
        "`tests/project/fidelity.toml`; a test fails if a row names no test or an item has no row. Tests of "
        "`test_published_figures.py` read the text of the papers, which is not in the repository.",
    ]
    for key, paper in table["papers"].items():
        rows = [
            [", ".join(row["items"]), row["what"], f"`{row['code']}`", f"`{row['test']}`", row.get("note", "")]
            for row in table["row"]
            if row["paper"] == key
        ]
        parts += [f"## {paper['title']}", render_markdown_rows(["item", "what", "code", "test", "note"], rows)]
    return "\n\n".join([*parts, ""])


def as_page(text: str) -> str:
    """Convert the links of a top-level file of the repository to links of the site."""
    text = re.sub(r"(\]\(|src=\")docs/", r"\1", text)
    for page, source in SOURCES.items():
        text = text.replace(f"]({source}.md", f"]({page}.md")
    return text


def on_page_markdown(markdown, page, **_):
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]  # it would only have one entry
    written = {
        "measures": measures_table,
        "methods": methods_part,
        "commands": commands_part,
        "dependencies": dependencies_table,
        "side_by_side": lambda: render_side_by_side(read_fidelity()["beside"]),
    }
    for name, write in written.items():
        if f"{{{{ {name} }}}}" in markdown:
            markdown = markdown.replace(f"{{{{ {name} }}}}", write())
    return with_formulas(markdown, page.meta.setdefault("formulas", []))


def on_post_page(output, page, **_):
    found = OUTSIDE.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri} loads an external resource: {found[0]}")
    return output


def with_formulas(markdown: str, formulas: list[str]) -> str:
    """Replace formulas by marks, because Markdown would change them."""

    def block(found: re.Match) -> str:
        formulas.append(f'<div class="math">{convert(found[1].strip(), display="block")}</div>')
        return MARK.format(len(formulas) - 1)

    def inline(found: re.Match) -> str:
        formulas.append(convert(found[1]))
        return MARK.format(len(formulas) - 1)

    markdown = re.sub(r"^```math\n(.*?)^```", block, markdown, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\$`([^`]+)`\$", inline, markdown)


def on_page_content(html, page, **_):
    for number, formula in enumerate(page.meta.pop("formulas", [])):
        mark = MARK.format(number)
        html = html.replace(f"<p>{mark}</p>", formula).replace(mark, formula)
    return html


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measures_table() -> str:
    return table(["name", "description"], [[f"`{m.usage}`", m.description] for m in METRIC_FAMILIES.values()])


def dependencies_table() -> str:
    return table(["package", "version", "licence"], [list(each) for each in find_dependencies()])


def methods_part() -> str:
    parts = []
    for name in METHODS:
        method = method_class(name)
        parts += [f"## {name}", inspect.getdoc(sys.modules[method.__module__]) or "", parameters_table(method)]
    for recipe in (*map(view_class, VIEWS), NameTraining, Calibration):
        description = (inspect.getdoc(recipe) or "").partition("\n\nParameters\n")[0]
        parts += [f"## {recipe.title}", description, parameters_table(recipe)]
    return "\n\n".join(parts)


def parameters_table(recipe) -> str:
    rows = [
        [f"`{f.name}`", f"`{f.default!r}`", f"{f.metadata['help']} ({describe_expected(f)})"] for f in fields(recipe)
    ]
    return table(["parameter", "default", "description (values)"], rows)


def commands_part() -> str:
    parts = []
    for name, command in commands("xmtc", get_command(app)):
        shown = [p for p in command.params if not getattr(p, "hidden", False)]
        usage = " ".join([name, "[OPTIONS]", *(spelling(p) for p in shown if is_argument(p))])
        rows = [[f"`{spelling(p)}`", default(p), p.help or ""] for p in shown]
        parts += [f"## {name}", inspect.cleandoc(command.help or ""), f"```text\n{usage}\n```"]
        parts += [table(["argument or option", "default", "description"], rows)] if rows else []
    return "\n\n".join(parts)


def commands(name: str, command) -> Iterator[tuple[str, Any]]:
    """Yield all commands that can be run, with their full names."""
    inner = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        yield name, command
    for part, each in inner.items():
        yield from commands(f"{name} {part}", each)


def is_argument(parameter) -> bool:
    return parameter.param_type_name == "argument"


def spelling(parameter) -> str:
    if not is_argument(parameter):
        return ", ".join((*parameter.opts, *parameter.secondary_opts))
    name = (parameter.metavar or parameter.name.upper()).strip("[]")
    name += "..." if parameter.nargs == -1 and "..." not in name else ""
    return name if parameter.required else f"[{name}]"


def default(parameter) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    return "" if value in (None, [], "") or value is False or callable(value) else f"`{value}`"
