"""Decoding of JSON and form bodies with limits, without blocking the event loop."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import Any, TypeVar, get_type_hints

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile

from xmtc.server.request_errors import RequestError

MAX_INLINE_BYTES = 2**16  # bodies up to this size are decoded in the event loop, in a few milliseconds
MAX_JSON_VALUES = 20_000  # JSON tokens of a body besides its texts; `max_json_values` of its model overrides it
MAX_JSON_KEYS = 100  # keys of the outermost object
MAX_FORM_FIELDS = 100
MAX_PART_HEAD_BYTES, MAX_BOUNDARY_BYTES = 8192, 200
JSON_TOKEN_PATTERN = re.compile(rb'[\[{,:]|"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
PERCENT_PATTERN = re.compile(rb"(?:%[0-9A-Fa-f]{2})+")
PERCENT_CHUNK_BYTES = 2**14  # decoded at a time
JSON_TYPE = "application/json"
URLENCODED_TYPE, MULTIPART_TYPE = "application/x-www-form-urlencoded", "multipart/form-data"

BodyT = TypeVar("BodyT", bound=BaseModel)


class LimitedRequest(Request):
    """Request whose body is decoded before FastAPI reads it."""

    decoded_json: Any = None

    async def json(self) -> Any:
        return self.decoded_json

    async def _get_form(self, **_: Any) -> FormData:  # form() calls it in every version of starlette
        if self._form is None:
            self._form = await read_form_body(self)
        return self._form


class LimitedRoute(APIRoute):
    """Route whose JSON body is validated with limits, in a thread if it is large."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        hints = get_type_hints(self.endpoint)
        model = next((hint for hint in hints.values() if isinstance(hint, type) and issubclass(hint, BaseModel)), None)

        async def handle_limited(request: Request) -> Response:
            limited = LimitedRequest(request.scope, request.receive)
            if model is not None:
                limited.decoded_json = await read_json_body(limited, model)
            elif self.body_field is not None:
                await limited._get_form()  # inside FastAPI all form errors would have the same message
            return await handle(limited)

        return handle_limited


BODY_THREAD = ThreadPoolExecutor(1, "bodies")  # only one, so that the event loop keeps running


async def run_in_body_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function that decodes or encodes a large body outside the event loop."""
    return await asyncio.get_running_loop().run_in_executor(BODY_THREAD, partial(function, *arguments))


async def run_in_thread_if_large(function: Callable[..., Any], body: bytes, *arguments: Any) -> Any:
    if len(body) <= MAX_INLINE_BYTES:
        return function(body, *arguments)
    return await run_in_body_thread(function, body, *arguments)


async def read_json_body(request: Request, model: type[BodyT]) -> BodyT:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON_TYPE and not (content_type.startswith("application/") and content_type.endswith("+json")):
        raise RequestError(415, f"Found Content-Type {content_type[:50] or 'unknown'!r}, expected {JSON_TYPE}.")
    n_texts = request.app.state.service.settings.limits.texts
    max_values = getattr(model, "max_json_values", MAX_JSON_VALUES + 2 * n_texts)
    return await run_in_thread_if_large(validate_json, await request.body(), model, max_values)


def validate_json(body: bytes, model: type[BodyT], max_values: int) -> BodyT:
    """Return the validated object of a JSON body. Raise RequestError for the first error."""
    value = decode_json(body, max_values)
    if isinstance(value, dict) and len(value) > MAX_JSON_KEYS:
        raise RequestError(422, f"Found {len(value):,} fields, expected only {', '.join(model.model_fields)}.")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise RequestError(422, format_validation_error(first)) from None


def decode_json(body: bytes, max_values: int) -> Any:
    """Return the value of a JSON text. Raise RequestError if it is invalid or has too many values.

    The values are counted before decoding: the decoder cannot be interrupted, and would create 10 million objects from
    a body of 32 MB.
    """
    for number, _ in enumerate(JSON_TOKEN_PATTERN.finditer(body)):
        if number > max_values:
            raise RequestError(413, f"The request has more than {max_values:,} values; send less at a time.")
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=reject_constant)
    except json.JSONDecodeError as error:
        reason = f"syntax error at character {error.pos}"
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except (ValueError, RecursionError):  # thousands of digits, or deep nesting
        reason = "a number is too long, or lists are nested too deeply"
    raise RequestError(422, f"The request is not valid JSON: {reason}; expected an object with a text.")


def reject_constant(name: str) -> None:
    raise RequestError(422, f"The request is not valid JSON: {name} is not a JSON number.")


def format_validation_error(error: Any) -> str:
    """Return the field and the message of a pydantic error, without the invalid value."""
    field = ".".join(str(part) for part in error["loc"] if part not in ("body", "constrained-float"))[:100]
    return f"{field}: {error['msg']}." if field else f"{error['msg']}."


async def read_form_body(request: Request) -> FormData:
    header = request.headers.get("content-type", "")
    content_type = header.partition(";")[0].strip().lower()
    body = await request.body()
    if content_type == URLENCODED_TYPE:
        return await run_in_thread_if_large(parse_urlencoded, body)
    if content_type == MULTIPART_TYPE:
        return await run_in_thread_if_large(partial(parse_multipart, header=header), body)
    if not body:
        return FormData()
    raise RequestError(415, f"Found Content-Type {content_type[:50] or 'unknown'!r}, expected a form.")


def parse_urlencoded(body: bytes) -> FormData:
    if body.count(b"&") >= MAX_FORM_FIELDS:
        raise RequestError(413, f"The form has more than {MAX_FORM_FIELDS} fields.")
    pairs = [pair.partition(b"=") for pair in body.split(b"&") if pair]
    return FormData([(decode_percent(name), decode_percent(value)) for name, _, value in pairs])


def decode_percent(value: bytes) -> str:
    """Decode a percent-encoded value in chunks; urllib would create an object per character."""
    parts, start, value = [], 0, value.replace(b"+", b" ")
    while start < len(value):
        end = start + PERCENT_CHUNK_BYTES
        end = next((i for i in (end - 2, end - 1) if value[i : i + 1] == b"%"), end)  # keeps an escape in one chunk
        parts.append(
            PERCENT_PATTERN.sub(lambda escape: bytes.fromhex(escape[0].replace(b"%", b"").decode()), value[start:end])
        )
        start = end
    return b"".join(parts).decode(errors="replace")


def parse_multipart(body: bytes, header: str) -> FormData:
    """Return the fields and files of a multipart/form-data body.

    The body is in memory, so it is split at its boundaries. The streaming parser of python-multipart needs a second per
    megabyte of line ends, and writes files to the disk.
    """
    boundary = parse_options_header(header)[1].get(b"boundary", b"")
    if not boundary or len(boundary) > MAX_BOUNDARY_BYTES:
        raise invalid_form_error("the Content-Type header has no valid boundary")
    if body.count(b"\r\n--" + boundary) > MAX_FORM_FIELDS:
        raise RequestError(413, f"The form has more than {MAX_FORM_FIELDS} fields and files.")
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if not parts or not parts[-1].startswith(b"--"):
        raise invalid_form_error("its last boundary is missing")
    return FormData([parse_form_field(part) for part in parts[:-1]])


def parse_form_field(part: bytes) -> tuple[str, str | UploadFile]:
    """Return the name and the value of one part of a form."""
    head, separator, content = part.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    if not separator or lines[0].strip() or len(head) > MAX_PART_HEAD_BYTES:
        raise invalid_form_error("the headers of a part are invalid")
    pairs = [line.partition(b":") for line in lines[1:]]
    headers = Headers(raw=[(name.strip().lower(), value.strip()) for name, _, value in pairs])
    options = parse_options_header(headers.get("content-disposition", ""))[1]
    if b"name" not in options:
        raise invalid_form_error("a part has no name")
    name = options[b"name"].decode(errors="replace")
    if b"filename" not in options:
        return name, content.decode(errors="replace")
    file = SpooledTemporaryFile(max_size=len(content) + 1)  # noqa: SIM115  # in memory; FastAPI closes it
    file.write(content)
    file.seek(0)
    filename = options[b"filename"].decode(errors="replace")
    return name, UploadFile(file, size=len(content), filename=filename, headers=headers)  # type: ignore[arg-type]


def invalid_form_error(reason: str) -> RequestError:
    return RequestError(400, f"The form is invalid: {reason}; expected a valid {MULTIPART_TYPE} body.")
