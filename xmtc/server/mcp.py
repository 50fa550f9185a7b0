"""Tools for assistants, by the Model Context Protocol: tag a text, explain a tag, search labels. The assistant starts
the process and uses its standard input and output."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, BinaryIO

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

import xmtc
from xmtc.base.run import Run
from xmtc.errors import XmtcError
from xmtc.server import log
from xmtc.server.batching import Question
from xmtc.server.explaining import MOST_CHARACTERS, placed_words
from xmtc.server.models import Opened
from xmtc.server.settings import Settings

WORDS = 20  # of an explanation: an assistant reads all of them
MAX_LABELS, MAX_SEARCH = 1000, 200  # labels of an answer, characters of a search


def in_a_sentence(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool that answers with one sentence if it fails."""

    @wraps(tool)
    def answer(*arguments: Any, **named: Any) -> Any:
        try:
            return tool(*arguments, **named)
        except XmtcError as error:
            raise ToolError(str(error)) from None
        except Exception as error:
            log.event("failure", **log.failure(error))
            raise ToolError("Something went wrong here, which the log of the service says more about.") from None

    return answer


class LimitedLines(io.BufferedIOBase):
    """Standard input that ends when a line is longer than a limit."""

    def __init__(self, stream: BinaryIO, max_bytes: int) -> None:
        self.stream, self.max_bytes = stream, max_bytes
        self.n_bytes = 0  # of the present line

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1) -> bytes:
        data = self.stream.read1(size)  # type: ignore[attr-defined]
        last = data.rfind(b"\n")
        self.n_bytes = self.n_bytes + len(data) if last < 0 else len(data) - last - 1
        if self.n_bytes > self.max_bytes:
            log.event("message refused", message=f"A message is longer than {self.max_bytes:,} bytes.")
            return b""
        return data

    def read(self, size: int | None = -1) -> bytes:
        return self.read1(-1 if size is None else size)


def serve(settings: Settings) -> None:
    """Answer on standard input and output until the client closes them."""
    tools = server(settings)
    with open(os.devnull, "rb") as nothing, os.fdopen(os.dup(0), "rb") as messages:
        os.dup2(nothing.fileno(), 0)  # so that no library and no child process reads messages
        sys.stdin = io.TextIOWrapper(LimitedLines(messages, settings.limits.body), encoding="utf-8")
        tools.run("stdio")


def server(settings: Settings) -> MCPServer:
    run = Run(threads=settings.threads, device=settings.device)
    models = {name: Opened.load(folder, run) for name, folder in settings.models}
    first, turn = next(iter(models)), Lock()  # a network answers one question at a time
    tools = MCPServer(
        "xmtc",
        version=xmtc.__version__,
        instructions=f"Tags texts with labels of a trained model. Models here: {', '.join(models)}.",
        log_level="WARNING",
    )

    def chosen(model: str | None, text: str, most: int = settings.limits.text) -> Opened:
        if (model or first) not in models:
            raise XmtcError(f"There is no model {str(model)[:100]!r} here; there are {', '.join(models)}.")
        if len(text) > most:
            raise XmtcError(f"Found a text of {len(text):,} characters, expected {most:,} at most; shorten it.")
        return models[model or first]

    @tools.tool()
    @in_a_sentence
    def tag(
        text: str, k: int = 5, model: str | None = None, language: str | None = None, decide: bool = False
    ) -> dict[str, Any]:
        """Return the labels that fit a text best, with their names and scores between 0 and 1, best first: k, or, with
        `decide`, as many as the model has learnt to give."""
        opened = chosen(model, text)
        with turn:
            tags = opened.answer([text], Question(min(k, settings.limits.k), decide=decide, language=language))[0]
        return {"tags": [{"label": tag.label, "name": tag.name or tag.label, "score": tag.score} for tag in tags]}

    @tools.tool()
    @in_a_sentence
    def explain(text: str, label: str, model: str | None = None) -> dict[str, Any]:
        """Return the words of a text that speak for a label, and, with weights below 0, those against it."""
        opened = chosen(model, text, MOST_CHARACTERS)
        with turn:
            found = opened.tagger.highlight(text, label, n=len(text), run=opened.run)[0]
        words = [{"word": word["word"], "weight": word["weight"]} for word in placed_words(found)[:WORDS]]
        return {"label": found.label, "name": found.name or found.label, "score": found.score, "words": words}

    @tools.tool()
    @in_a_sentence
    def labels(search: str, model: str | None = None, limit: int = 20) -> dict[str, Any]:
        """Return labels of the model by any of their names."""
        if not 1 <= limit <= MAX_LABELS:
            raise XmtcError(f"Found limit={limit}, expected a number from 1 to {MAX_LABELS:,}.")
        return {"labels": chosen(model, search, MAX_SEARCH).search(search, limit=limit)}

    return tools
