"""What is answered where nothing else can be: a status, and one sentence for a person."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from xmtc.errors import XmtcError

ANNIF_PREFIX = "/v1/projects"  # where its interface is
RETRY_SECONDS = 1  # seconds after which a client may come again


class RequestError(Exception):
    """Ends a request with a status and a sentence."""

    def __init__(
        self, status: int, message: str, retry_seconds: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = dict(headers or {}) | ({} if retry_seconds is None else {"Retry-After": str(retry_seconds)})


def busy_error(message: str) -> RequestError:
    return RequestError(503, message, RETRY_SECONDS)


def unknown_model_error(name: str, names: Mapping[str, Any]) -> RequestError:
    return RequestError(404, f"There is no model {name[:100]!r} here; there are {', '.join(names)}.")


def request_error_from(error: Exception) -> RequestError:
    """An XmtcError is about what was asked; of anything else nobody outside learns more than that it happened."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, XmtcError):
        return RequestError(422, str(error))
    return RequestError(500, "Something went wrong here, which the log of the service says more about.")


def encode_error(refused: RequestError, path: str) -> tuple[int, bytes, str]:
    """The status, the body and its type: as Annif puts them where its interface was asked."""
    status, message = refused.status, refused.message
    if not path.startswith(ANNIF_PREFIX):
        return status, json.dumps({"error": {"status": status, "message": message}}).encode(), "application/json"
    status = 400 if status == 422 else status
    problem = {"detail": message, "status": status, "title": HTTPStatus(status).phrase, "type": "about:blank"}
    return status, json.dumps(problem).encode(), "application/problem+json"
