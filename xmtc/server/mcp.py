"""Tools for assistants, by the Model Context Protocol: tag a text, and explain a tag. They are spoken to over standard
input and output, by whoever has started the process."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

import xmtc
from xmtc.base.run import Run
from xmtc.errors import XmtcError
from xmtc.server.batching import Question
from xmtc.server.explaining import placed_words
from xmtc.server.models import Opened
from xmtc.server.settings import Settings

WORDS = 20  # of an explanation: an assistant reads all of them


def in_a_sentence(tool: Callable[..., Any]) -> Callable[..., Any]:
    """What is wrong with a question is told to who has asked it."""

    @wraps(tool)
    def told(*arguments: Any, **named: Any) -> Any:
        try:
            return tool(*arguments, **named)
        except XmtcError as error:
            raise ToolError(str(error)) from None

    return told


def serve(settings: Settings) -> None:
    server(settings).run("stdio")


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

    def chosen(model: str | None, text: str) -> Opened:
        if (model or first) not in models:
            raise XmtcError(f"There is no model {model!r} here; there are {', '.join(models)}.")
        if len(text) > settings.limits.text:
            raise XmtcError(f"Found a text of {len(text):,} characters, expected {settings.limits.text:,} at most.")
        return models[model or first]

    @tools.tool()
    @in_a_sentence
    def tag(
        text: str, k: int = 5, model: str | None = None, language: str | None = None, decide: bool = False
    ) -> dict[str, Any]:
        """The labels that fit a text best, with their names and scores between 0 and 1, best first: k, or, with
        `decide`, as many as the model has learnt to give."""
        opened = chosen(model, text)
        with turn:
            tags = opened.answer([text], Question(min(k, settings.limits.k), decide=decide, language=language))[0]
        return {"tags": [{"label": tag.label, "name": tag.name or tag.label, "score": tag.score} for tag in tags]}

    @tools.tool()
    @in_a_sentence
    def explain(text: str, label: str, model: str | None = None) -> dict[str, Any]:
        """The words of a text that speak for a label, and, with weights below 0, those against it."""
        opened = chosen(model, text)
        with turn:
            found = opened.tagger.highlight(text, label, n=len(text), run=opened.run)[0]
        words = [{"word": word["word"], "weight": word["weight"]} for word in placed_words(found)[:WORDS]]
        return {"label": found.label, "name": found.name or found.label, "score": found.score, "words": words}

    @tools.tool()
    @in_a_sentence
    def labels(search: str, model: str | None = None, limit: int = 20) -> dict[str, Any]:
        """Labels of the model by any of their names."""
        return {"labels": chosen(model, search).search(search, limit=min(limit, 1000))}

    return tools
