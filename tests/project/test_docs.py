"""Examples of the README and the docs are executed.

The language of a fence says how: `bash` and `python` are run page by page, from top to bottom; `console` and `py`
cannot be run here, and NOT_RUN counts them with the reason; `text`, `json`, `toml` and `math` are only displayed.
"""

from __future__ import annotations

import json
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from unittest.mock import patch

import pytest
from planted import make_planted_corpus
from typer.testing import CliRunner

from xmtc.cli import app
from xmtc.evaluation import METRIC_FAMILIES

ROOT = Path(__file__).parents[2]
if not (ROOT / "README.md").exists():
    pytest.skip("the pages are in the checkout alone", allow_module_level=True)

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN, SHOWN, NOT_RUN_HERE = {"bash", "python"}, {"text", "json", "toml", "math"}, {"console", "py"}

# Number of fences of a page that are not run, and the reason.
NOT_RUN = {
    "README.md": (1, "make, which sets up a virtual environment"),
    "docs/explanation/aplc-xlnet.md": (1, "a GPU, and encoders to download"),
    "docs/how-to/bring-your-own-method.md": (
        1,
        "a method that is not in the table; tests/methods/test_plugin_methods.py runs it",
    ),
    "docs/results/accuracy.md": (1, "measured: minutes, corpora"),
    "docs/how-to/export-a-model.md": (1, "ONNX; tests/export/test_export.py runs it"),
    "docs/how-to/explain.md": (1, "measured: minutes, word vectors to download, Chromium"),
    "docs/how-to/predictions-as-a-spreadsheet.md": (1, "records of a library; tests/output/test_marc.py runs it"),
    "docs/how-to/scores.md": (
        2,
        "more documents than these pages have; tests/scores/test_calibration.py and test_quality.py",
    ),
    "docs/how-to/combine-models.md": (1, "an endpoint; tests/classifier/test_reranking.py has one on loopback"),
    "docs/how-to/keep-alive.md": (3, "new texts, a service and nginx; tests/scores/test_drift.py runs xmtc drift"),
    "docs/how-to/review.md": (1, "a service; tests/server/test_desk.py and tests/browser/test_desk.py run it"),
    "docs/how-to/serve.md": (
        5,
        "services and Docker; run by test_process.py, test_container.py, test_monitoring.py, test_opentelemetry.py",
    ),
    "docs/how-to/share-a-model.md": (
        3,
        "the Hugging Face Hub, tests/hub/test_hub.py runs one on loopback; MLflow, tests/export/test_mlflow.py runs it",
    ),
    "docs/how-to/use-a-cluster.md": (4, "several machines; tests/cluster/test_ray_cluster.py has several nodes on one"),
    "docs/how-to/performance.md": (2, "a GPU, and vectors and encoders to download; several processes"),
    "docs/how-to/vectors-and-encoders.md": (6, "vectors and encoders to download"),
    "docs/how-to/vocabularies.md": (1, "vocabularies that are not in the repository"),
    "docs/how-to/watch-a-training.md": (
        2,
        "TensorBoard and MLflow; run by tests/core/test_history.py",
    ),
    "docs/reference/corpora.md": (1, "measured: minutes, corpora and manual pages"),
    "docs/results/serving.md": (1, "measured: minutes, a corpus that is not in the repository"),
    "docs/tutorial/first-tagger.md": (1, "installs"),
    "docs/tutorial/library.md": (
        2,
        "a corpus that is not in the repository, and a service; run by tests/slow/test_journeys.py",
    ),
}
# Minimum number of executed fences of each kind, so that a loss is noticed.
LEAST_COMMANDS, LEAST_PROGRAMS, LEAST_OUTPUTS = 67, 21, 6


class Fence(NamedTuple):
    language: str
    content: str

    def commands(self) -> list[str]:
        return [line for line in self.content.splitlines() if self.language == "bash" and line.strip()]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def fences(page: Path) -> list[Fence]:
    found = re.findall(r"^```([^\n`]*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [Fence(language.strip(), content) for language, content in found]


FENCES = {name_of(page): fences(page) for page in PAGES}
TO_RUN = [page for page in PAGES if RUN & {fence.language for fence in FENCES[name_of(page)]}]


def blocks(page: Path, language: str) -> list[str]:
    return [fence.content for fence in fences(page) if fence.language == language]


@pytest.fixture(scope="module")
def examples_folder(tmp_path_factory) -> Path:
    """Create a folder with the files that the pages use."""
    folder = tmp_path_factory.mktemp("examples")
    texts, tags = make_planted_corpus(120, seed=0)
    lines = [
        json.dumps({"id": f"d{i}", "text": t, "labels": y}) for i, (t, y) in enumerate(zip(texts, tags, strict=True))
    ]
    for name, part in (("corpus", lines), ("train", lines[:90]), ("test", lines[90:])):
        (folder / f"{name}.jsonl").write_text("\n".join(part) + "\n")
    trained = CliRunner().invoke(app, ["train", str(folder / "train.jsonl"), "-o", str(folder / "model")])
    assert trained.exit_code == 0, trained.output
    return folder


@pytest.mark.parametrize("page", TO_RUN, ids=name_of)
def test_commands_and_programs_of_pages_run(page, examples_folder, tmp_path, monkeypatch):
    folder = tmp_path / "work"
    shutil.copytree(examples_folder, folder)
    monkeypatch.chdir(folder)
    is_exact = made_with() in page.read_text()
    last = ""
    for fence in FENCES[name_of(page)]:
        if fence.language == "python":
            run_program(page, fence.content)
        for command in fence.commands():
            last = run_command(command)
        if fence.language == "text" and last and is_exact:
            assert_shows(fence.content, last)
        if fence.language != "bash":
            last = ""


def made_with() -> str:
    packages = ("numpy", "scipy", "scikit-learn")
    return ", ".join([f"Python {platform.python_version()}", *(f"{each} {version(each)}" for each in packages)])


def run_program(page: Path, program: str) -> None:
    module = sys.modules["page"] = ModuleType("page")  # pages declare dataclasses, which look up their module
    try:
        with patch.dict(METRIC_FAMILIES):  # and a metric
            exec(compile(program, str(page), "exec"), vars(module))
    finally:
        del sys.modules["page"]  # without what the program imported, which must not be imported twice


def run_command(command: str) -> str:
    if not command.startswith("xmtc "):  # a pipe
        script = f'xmtc() {{ {shlex.quote(sys.executable)} -m xmtc "$@"; }}; set -eo pipefail; {command}'
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return done.stdout

    words = shlex.split(command, comments=True)[1:]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, f"{command}\n{result.output}"
    return result.output


def assert_shows(said: str, printed: str) -> None:
    """Compare line by line, without seconds and progress, which depend on the machine; a line of dots matches any
    lines."""
    printed = re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*\n", "", printed, flags=re.MULTILINE)
    without_times = [re.sub(r"\d+\.\d s\b", "… s", text) for text in (said, printed)]
    parts, rest = re.split(r"^…\n", without_times[0], flags=re.MULTILINE), without_times[1]
    for part in filter(None, parts):
        assert part in rest, f"a page says\n{part}\nand the command prints\n{rest}"
        rest = rest.partition(part)[2]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_fence_of_a_page_has_a_known_language(page):
    """Commands are only in fences with a language that is executed or counted."""
    name, found = name_of(page), FENCES[name_of(page)]
    assert {fence.language for fence in found} <= RUN | SHOWN | NOT_RUN_HERE
    assert sum(fence.language in NOT_RUN_HERE for fence in found) == NOT_RUN.get(name, (0, ""))[0]
    assert page.read_text().count("\n```") == 2 * len(found) - page.read_text().startswith("```")
    for fence in found:
        if fence.language in SHOWN:
            assert not re.search(r"^(\$ )?(xmtc|pip|make) ", fence.content, re.MULTILINE)
    outside = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"^    (\$ )?(xmtc|pip|make) ", outside, re.MULTILINE)


def test_pages_install_from_a_clone():
    """xmtc is in no package index; only the overview shows how to add an extra to an installation."""
    told = [name_of(page) for page in PAGES if "pip install 'xmtc[" in page.read_text()]
    assert told == ["docs/how-to/index.md"]


def test_number_of_executed_fences_has_not_decreased():
    found = [fence for page in FENCES.values() for fence in page]
    assert sum(len(fence.commands()) for fence in found) >= LEAST_COMMANDS
    assert sum(fence.language == "python" for fence in found) >= LEAST_PROGRAMS
    tutorial = FENCES["docs/tutorial/first-tagger.md"]
    assert sum(a.language == "bash" and b.language == "text" for a, b in pairwise(tutorial)) >= LEAST_OUTPUTS


def test_figures_of_other_pages_are_in_the_results():
    """P@1 and seconds that a page quotes are in a results page, with the command."""
    pages = [page for page in (ROOT / "docs" / "results").glob("*.md") if page.name != "reproduced.md"]
    measured = set(figures("".join(page.read_text() for page in pages)))  # this page also has published figures
    quoting = {ROOT, ROOT / "docs" / "explanation", ROOT / "docs" / "how-to"}
    quoted = {name_of(page): set(figures(page.read_text())) for page in PAGES if page.parent in quoting}
    assert sum(map(len, quoted.values())) > 10  # the README has fifteen
    assert not {name: missing for name, found in quoted.items() if (missing := found - measured)}


def figures(text: str) -> list[str]:
    """Return numbers with two decimals in prose and tables."""
    prose = re.sub(r"^```.*?^```$|`[^`]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"(?<![\w.])\d+\.\d\d(?![\w.]*\d)", prose)


@pytest.mark.parametrize(("number", "name"), [(0, "centroid.py"), (2, "letters.py")])
def test_page_on_own_methods_shows_tested_code(number, name):
    """tests/methods/test_plugin_methods.py and tests/features/test_custom_view.py test the code."""
    page = ROOT / "docs" / "how-to" / "bring-your-own-method.md"
    assert blocks(page, "python")[number] == (ROOT / "tests" / "support" / name).read_text()


def test_readme_example_prints_its_output():
    namespace: dict = {}
    block = blocks(ROOT / "README.md", "python")[0]
    exec(block.partition('classifier.save("model")')[0], namespace)
    best = namespace["classifier"].predict_labels(["stars over the pears"], k=2)[0]
    said = re.findall(r"label='(\w+)', score=(0\.\d\d)", block)
    assert said
    assert [(tag.label, f"{tag.score:.4f}"[:4]) for tag in best] == said


def test_reference_contains_every_option():
    hooks = pytest.importorskip("mkdocs") and runpy.run_path(str(ROOT / "docs" / "hooks.py"))
    sections = dict(
        re.findall(r"^## xmtc ([^\n]+)\n(.*?)(?=^## |\Z)", hooks["commands_part"](), re.MULTILINE | re.DOTALL)
    )
    assert {"train", "data split", "pretrained fetch"} <= sections.keys()
    for name, section in sections.items():
        shown = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"}).output
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown)) - {"--help"}
        assert options <= set(re.findall(r"--[a-z][a-z-]+", section)), name


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "explanation").glob("*.md")), ids=lambda page: page.stem)
def test_explanations_have_at_most_600_words(page):
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    words = re.sub(r"\$`.*?`\$", "x", prose, flags=re.DOTALL).split()
    assert sum(any(map(str.isalnum, word)) for word in words) <= 600


def test_formulas_are_converted_to_mathml():
    hooks = pytest.importorskip("latex2mathml") and runpy.run_path(str(ROOT / "docs" / "hooks.py"))
    formulas: list[str] = []
    marked = hooks["with_formulas"]("With $`x_i`$:\n\n```math\n\\frac{1}{2}\n```\n", formulas)
    assert marked == "With ⟦1⟧:\n\n⟦0⟧\n"
    assert "<mfrac>" in formulas[0]
    assert "<msub>" in formulas[1]
