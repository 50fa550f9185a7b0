"""Model Context Protocol server with the tools `tag`, `explain` and `labels`, on standard input and output."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from threading import Lock
from typing import Any, BinaryIO, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

import xmtc
from xmtc.core.run import Run
from xmtc.errors import XmtcError
from xmtc.server import log
from xmtc.server.batching import PredictQuery
from xmtc.server.messages import (
    MAX_EXPLAINED_CHARACTERS,
    MAX_LABEL_CHARACTERS,
    MAX_LANGUAGE_CHARACTERS,
    MAX_SEARCH_CHARACTERS,
    encode_explanation,
)
from xmtc.server.models import LoadedModel
from xmtc.server.settings import ServiceLimits, Settings

MAX_TOOL_WORDS = 20  # words per explanation; fewer than over HTTP, because an assistant reads all of them
MAX_FOUND_LABELS = 1000  # labels per search
SURROGATE_PATTERN = re.compile(rb"\\u[dD][89a-fA-F]")
JSON_ESCAPE_PATTERN = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.")  # a surrogate pair is one match


def with_tool_errors(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Return the tool wrapped so that errors become a ToolError with a one-line message."""

    @wraps(tool)
    def answer(*arguments: Any, **named: Any) -> Any:
        try:
            return tool(*arguments, **named)
        except XmtcError as error:
            raise ToolError(str(error)) from None
        except Exception as error:
            log.write_event("failure", **log.describe_exception(error))
            raise ToolError("Internal error; see the log of the service.") from None

    return answer


class LimitedLineReader(io.BufferedIOBase):
    """Binary input stream that ends at a line longer than a limit.

    Lone surrogates in JSON become U+FFFD, because the parser would drop the message without an answer."""

    def __init__(self, stream: BinaryIO, max_bytes: int) -> None:
        self.stream, self.max_bytes = stream, max_bytes

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1) -> bytes:
        """Return the next line; `size` is ignored."""
        line = self.stream.readline(self.max_bytes + 1)
        if len(line) > self.max_bytes:
            log.write_event("message refused", message=f"A message is longer than {self.max_bytes:,} bytes.")
            return b""
        return JSON_ESCAPE_PATTERN.sub(replace_lone_surrogate, line) if SURROGATE_PATTERN.search(line) else line

    def read(self, size: int | None = -1) -> bytes:
        return self.read1(-1 if size is None else size)


def replace_lone_surrogate(escape: re.Match[bytes]) -> bytes:
    is_lone = len(escape[0]) == 6 and SURROGATE_PATTERN.match(escape[0])
    return rb"\ufffd" if is_lone else escape[0]


def serve(settings: Settings) -> None:
    """Serve on standard input and output until the client closes them."""
    tools = create_server(settings)
    with open(os.devnull, "rb") as null, os.fdopen(os.dup(0), "rb") as messages:
        os.dup2(null.fileno(), 0)  # libraries and child processes must not read messages
        sys.stdin = io.TextIOWrapper(LimitedLineReader(messages, settings.limits.body), encoding="utf-8")
        tools.run("stdio")


def check_length(noun: str, value: str | None, max_length: int) -> None:
    if value is not None and len(value) > max_length:
        raise XmtcError(f"Found {noun} of {len(value):,} characters, expected {max_length:,} at most; shorten it.")


def encode_word(text: str, word: dict[str, Any]) -> dict[str, Any]:
    """Return a word with its weight, and the strongest part of its strongest occurrence, if it is a part."""
    strongest = max(range(len(word["spans"])), key=lambda i: abs(word["weights"][i]))
    part = word["parts"][strongest]
    return {"word": word["word"], "weight": word["weight"]} | ({} if part is None else {"part": text[slice(*part)]})


@dataclass(frozen=True)
class ServedModels:
    """Models of the tools. Neural models predict one request at a time, so that callers hold `lock`."""

    by_name: dict[str, LoadedModel]
    limits: ServiceLimits
    lock: Lock = field(default_factory=Lock)

    @classmethod
    def load(cls, settings: Settings) -> ServedModels:
        run = Run(threads=settings.threads, device=settings.device)
        return cls({name: LoadedModel.load(folder, run) for name, folder in settings.models}, settings.limits)

    def find(self, model: str | None, text: str, max_length: int) -> LoadedModel:
        """Return the named model, by default the first one; raise an XmtcError if it is unknown or the text is too
        long."""
        name = model or next(iter(self.by_name))
        if name not in self.by_name:
            raise XmtcError(f"Unknown model {name[:100]!r}; expected one of {', '.join(self.by_name)}.")
        check_length("a text", text, max_length)
        return self.by_name[name]


def create_server(settings: Settings) -> MCPServer:
    models = ServedModels.load(settings)
    tools = MCPServer(
        "xmtc",
        version=xmtc.__version__,
        instructions=f"Tags texts with labels of a trained model. Available models: {', '.join(models.by_name)}.",
        log_level="WARNING",
    )
    add_prediction_tool(tools, models)
    add_explanation_tool(tools, models)
    add_label_tool(tools, models)
    return tools


def add_prediction_tool(tools: MCPServer, models: ServedModels) -> None:
    @tools.tool()
    @with_tool_errors
    def tag(
        text: str,
        k: int = 5,
        model: str | None = None,
        language: str | None = None,
        threshold: float | Literal["tuned"] = 0.0,
    ) -> dict[str, Any]:
        """Return the best k labels of a text, with their names and scores between 0 and 1, best first. `threshold` is
        the minimum score; "tuned" applies the model's tuned thresholds and ignores k."""
        loaded = models.find(model, text, models.limits.text)
        check_length("a language", language, MAX_LANGUAGE_CHARACTERS)
        with models.lock:
            query = PredictQuery(min(k, models.limits.k), threshold, language)
            tags = loaded.predict_labels([text], query)[0]
        return {"tags": [{"label": tag.label, "name": tag.name or tag.label, "score": tag.score} for tag in tags]}


def add_explanation_tool(tools: MCPServer, models: ServedModels) -> None:
    @tools.tool()
    @with_tool_errors
    def explain(text: str, label: str, model: str | None = None) -> dict[str, Any]:
        """Return the words of a text with their weights for a label; negative weights lower its score."""
        loaded = models.find(model, text, MAX_EXPLAINED_CHARACTERS)
        check_length("a label", label, MAX_LABEL_CHARACTERS)
        with models.lock:
            highlight = loaded.tagger.highlight(text, label, n=len(text), run=loaded.run)[0]
        answer = encode_explanation(highlight)
        words = answer["words"][:MAX_TOOL_WORDS]
        return answer | {"words": [encode_word(text, word) for word in words]}


def add_label_tool(tools: MCPServer, models: ServedModels) -> None:
    @tools.tool()
    @with_tool_errors
    def labels(search: str, model: str | None = None, limit: int = 20) -> dict[str, Any]:
        """Search the labels of the model by any of their names."""
        if not 1 <= limit <= MAX_FOUND_LABELS:
            raise XmtcError(f"Found limit={limit}, expected a number from 1 to {MAX_FOUND_LABELS:,}.")
        return {"labels": models.find(model, search, MAX_SEARCH_CHARACTERS).search(search, limit=limit)}
