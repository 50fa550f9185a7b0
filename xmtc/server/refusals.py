"""What is answered where nothing else can be: a status, and one sentence for a person."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from xmtc.errors import XmtcError

ANNIF = "/v1/projects"  # where its interface is
RETRY = 1  # seconds after which a client may come again


class Refused(Exception):
    """Ends a request with a status and a sentence."""

    def __init__(
        self, status: int, message: str, retry: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = dict(headers or {}) | ({} if retry is None else {"Retry-After": str(retry)})


def busy(message: str) -> Refused:
    return Refused(503, message, RETRY)


def unknown_model(name: str, names: Mapping[str, Any]) -> Refused:
    return Refused(404, f"There is no model {name[:100]!r} here; there are {', '.join(names)}.")


def of_error(error: Exception) -> Refused:
    """An XmtcError is about what was asked; of anything else nobody outside learns more than that it happened."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, XmtcError):
        return Refused(422, str(error))
    return Refused(500, "Something went wrong here, which the log of the service says more about.")


def in_json(refused: Refused, path: str) -> tuple[int, bytes, str]:
    """The status, the body and its type: as Annif puts them where its interface was asked."""
    status, message = refused.status, refused.message
    if not path.startswith(ANNIF):
        return status, json.dumps({"error": {"status": status, "message": message}}).encode(), "application/json"
    status = 400 if status == 422 else status
    problem = {"detail": message, "status": status, "title": HTTPStatus(status).phrase, "type": "about:blank"}
    return status, json.dumps(problem).encode(), "application/problem+json"
