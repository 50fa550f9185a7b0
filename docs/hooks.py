"""Pages that write themselves: every method's page from its dataclass, the start page from the README, the changes
from the CHANGELOG. One file and one line in METHODS are all a new method's documentation needs."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields
from pathlib import Path

from mkdocs.structure.files import File

from xmtc.base.params import expected
from xmtc.evaluation import MEASURES
from xmtc.features import VIEWS, view_class
from xmtc.methods import METHODS, method_class

ROOT = Path(__file__).parent.parent


def on_files(files, config):
    pages = {
        "index.md": (ROOT / "README.md").read_text().replace("](docs/", "]("),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(),
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(),
        "methods.md": methods_page(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown, **_):
    return markdown.replace("{{ measures }}", measures_table())


def measures_table() -> str:
    rows = [f"| `{m.usage}` | {m.description} |" for m in MEASURES.values()]
    return "\n".join(["| name | what it says |", "|---|---|", *rows])


def methods_page() -> str:
    parts = ["# Methods", "Each is a line of `xmtc methods`; parameters are set with `-p name=value` or as keywords."]
    for name in METHODS:
        method = method_class(name)
        parts += [f"## {name}", inspect.getdoc(sys.modules[method.__module__]) or "", table(method)]
    for view in map(view_class, VIEWS):
        parts += [f"## {view.title}", (inspect.getdoc(view) or "").partition("\n\nParameters\n")[0], table(view)]
    return "\n\n".join(parts)


def table(recipe) -> str:
    rows = [f"| `{f.name}` | `{f.default!r}` | {f.metadata['help']} | {expected(f)} |" for f in fields(recipe)]
    return "\n".join(["| parameter | default | what it does | takes |", "|---|---|---|---|", *rows])
