"""What the README and the docs tell people to type is typed here."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from unittest.mock import patch

import pytest
from planted import planted
from typer.testing import CliRunner

from xmtc.cli import app
from xmtc.evaluation import MEASURES

ROOT = Path(__file__).parent.parent
if not (ROOT / "README.md").exists():
    pytest.skip("the pages are in the checkout alone", allow_module_level=True)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


PYTHON = [(page, block) for page in PAGES for block in blocks(page, "python")]


@pytest.mark.parametrize(("page", "block"), PYTHON, ids=[f"{page.name}-{i}" for i, (page, _) in enumerate(PYTHON)])
def test_python_runs(page, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    with patch.dict(MEASURES):  # a page declares one of its own
        exec(compile(block, str(page), "exec"), namespace)
    assert len(namespace) > 1


@pytest.mark.parametrize(("number", "name"), [(0, "centroid.py"), (1, "letters.py")])
def test_contributing_shows_what_the_tests_use(number, name):
    """tests/test_outside.py and tests/test_own_view.py run them."""
    assert blocks(ROOT / "CONTRIBUTING.md", "python")[number] == Path(__file__).with_name(name).read_text()


def test_the_readmes_example_answers_as_it_says():
    namespace: dict = {}
    block = blocks(ROOT / "README.md", "python")[0]
    exec(block.partition('classifier.save("model")')[0], namespace)
    best = namespace["classifier"].tags(["stars over the pears"], k=2)[0]
    said = re.findall(r"label='(\w+)', score=(0\.\d\d)", block)
    assert [(tag.label, f"{tag.score:.4f}"[:4]) for tag in best] == said


COMMANDS = [
    (page, line)
    for page in PAGES
    for block in blocks(page, "")
    for line in block.splitlines()
    if line.startswith("xmtc ")
]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Path:
    """A folder with the files that the pages speak of."""
    folder = tmp_path_factory.mktemp("workplace")
    texts, tags = planted(120, seed=0)
    lines = [
        json.dumps({"id": f"d{i}", "text": t, "labels": y}) for i, (t, y) in enumerate(zip(texts, tags, strict=True))
    ]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{page.name}: {line}" for page, line in COMMANDS])
def test_commands_run(page, command, workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    words = shlex.split(command, comments=True)[1:]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
