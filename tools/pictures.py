"""Renew the pictures of the tutorial and the README: `python tools/pictures.py`.

Runs the tutorial's commands in a temporary folder; rich renders the terminal as SVG, Chromium a page as PNG. A picture
of another page of `xmtc explain --html`: `python tools/pictures.py why.html HEIGHT picture.png`.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).parent.parent / "docs" / "images"
TEXT = (
    "Draw random samples from a normal distribution with a given mean and standard deviation. Pass a seed, or a random "
    "number generator, to get the same samples again."
)
CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
COLUMNS = 92


def main() -> None:
    if len(sys.argv) == 4:
        html, height, target = sys.argv[1:]
        return draw_page(Path(html).resolve(), int(height), Path(target))
    with tempfile.TemporaryDirectory() as folder:
        run_xmtc(folder, "demo")
        shown = run_xmtc(
            folder, "explain", "xmtc-demo/model", "--string", TEXT, "-k", "2", "-n", "8", "--html", "why.html"
        )
        draw_terminal(
            f'$ xmtc explain xmtc-demo/model --string "{TEXT}" -k 2 -n 8\n{shown}', IMAGES / "explain-terminal.svg"
        )
        draw_page(Path(folder, "why.html"), 665, IMAGES / "explain-page.png")
        draw_page(Path(folder, "why.html"), 400, IMAGES / "explain.png")  # only the first label


def run_xmtc(folder: str, *words: str) -> str:
    colours = {**os.environ, "FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "xmtc", *words]
    return subprocess.run(command, cwd=folder, env=colours, check=True, capture_output=True, text=True).stdout


def draw_terminal(shown: str, target: Path) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown))
    svg = console.export_svg(title="xmtc explain", unique_id="xmtc")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # fonts from another server
    target.write_text(svg.replace("Fira Code", "ui-monospace, monospace"))


def draw_page(html: Path, height: int, target: Path) -> None:
    with tempfile.TemporaryDirectory() as profile:
        size = [f"--window-size=760,{height}", "--force-device-scale-factor=1.5", "--hide-scrollbars"]
        command = [*CHROMIUM, *size, f"--user-data-dir={profile}", f"--screenshot={target}", html.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
    Image.open(target).convert("RGB").quantize(128).save(target, optimize=True)


if __name__ == "__main__":
    main()
