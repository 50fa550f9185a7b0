"""Server with a small model, and Chromium. Tests are skipped if one of them is missing.

The browser is the one of the system (`chromium`, `google-chrome`), controlled by playwright: `pip install playwright`
is enough. axe-core comes from $AXE_CORE (path of axe.min.js) or from npm.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from library import make_library
from serving import running

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = "axe-core@4.14.0"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> Path:
    pytest.importorskip("fastapi", reason="the server needs xmtc[serve]")
    return make_library(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def server(library: Path) -> Iterator[str]:
    with running(library / "library", "--report", library / "report.html") as service:
        yield f"{service.url}/"


# playwright keeps an event loop running, which prevents other modules from starting their own
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)}")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def wait_until_answered(address: str) -> None:
    """Wait until the server answers, which is shortly after it prints its address."""
    for _ in range(100):
        with suppress(OSError), urlopen(f"{address}healthz", timeout=5):
            return
        time.sleep(0.1)
    raise AssertionError(f"nobody answers at {address}")


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open the page as a new visitor; afterwards, assert that no script failed and no other server was contacted."""
    contexts, wrong = [], []

    def open_page(address: str, ready: bool = True, **settings: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, "locale": "en-GB"} | settings)
        contexts.append(context)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: "Content Security Policy" in said.text and wrong.append(said.text))
        page.on("request", lambda asked: asked.url.startswith((address, "blob:")) or wrong.append(asked.url))
        wait_until_answered(address)
        page.goto(address)
        if ready:
            page.wait_for_selector("body.ready")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture
def page(visit: Callable[..., Any], server: str) -> Any:
    return visit(server)


@pytest.fixture(scope="session")
def axe(tmp_path_factory) -> str:
    """Return the script of axe-core."""
    if "AXE_CORE" in os.environ:
        return Path(os.environ["AXE_CORE"]).read_text()
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("axe-core comes from npm, which is not here; $AXE_CORE may name axe.min.js")
    folder = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", AXE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        pytest.skip(f"npm could not install {AXE}: {done.stderr[-200:]}")
    return (folder / "node_modules/axe-core/axe.min.js").read_text()


@pytest.fixture
def violations(axe: str) -> Callable[[Any], list[str]]:
    """Return violations of WCAG 2.2 AA and of axe's best practices in the current state of the page."""

    def look(page: Any) -> list[str]:
        page.evaluate(axe)
        found = page.evaluate("rules => axe.run({ runOnly: rules }).then(found => found.violations)", RULES)
        return [f"{each['id']}: {node['target']}: {node['failureSummary']}" for each in found for node in each["nodes"]]

    return look
