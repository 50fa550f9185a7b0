"""Errors that end a request with an HTTP status and a message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from xmtc.errors import XmtcError

ANNIF_PREFIX = "/v1/projects"  # paths whose errors have Annif's format
RETRY_SECONDS = 1  # Retry-After of busy_error


class RequestError(Exception):
    """Error that ends a request with an HTTP status and a message."""

    def __init__(
        self, status: int, message: str, retry_seconds: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = dict(headers or {}) | ({} if retry_seconds is None else {"Retry-After": str(retry_seconds)})


def busy_error(message: str) -> RequestError:
    return RequestError(503, message, RETRY_SECONDS)


def unknown_model_error(name: str, names: Mapping[str, Any]) -> RequestError:
    return RequestError(404, f"Unknown model {name[:100]!r}; expected one of {', '.join(names)}.")


def request_error_from(error: Exception) -> RequestError:
    """Return the RequestError for any exception: 422 for an XmtcError, 500 without details for an unexpected one."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, XmtcError):
        return RequestError(422, str(error))
    return RequestError(500, "Internal error; see the log of the service.")


def encode_error(error: RequestError, path: str) -> tuple[int, bytes, str]:
    """Return the status, body and content type of an error, in Annif's format for paths of its API."""
    status, message = error.status, error.message
    if not path.startswith(ANNIF_PREFIX):
        return status, json.dumps({"error": {"status": status, "message": message}}).encode(), "application/json"
    status = 400 if status == 422 else status
    problem = {"detail": message, "status": status, "title": HTTPStatus(status).phrase, "type": "about:blank"}
    return status, json.dumps(problem).encode(), "application/problem+json"
