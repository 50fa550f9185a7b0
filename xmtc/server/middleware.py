"""ASGI middleware: host check, authentication, size limits, timeouts and the request log."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from xmtc.review.store import Person
from xmtc.server import log
from xmtc.server.hosts import HostCheck, parse_headers
from xmtc.server.metrics import Metrics
from xmtc.server.request_errors import RequestError, busy_error, encode_error, request_error_from
from xmtc.server.request_memory import ACCOUNT_KEY, MemoryBudget, RequestMemory
from xmtc.server.settings import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HTTP_METHODS = frozenset(("GET", "HEAD", "POST", "OPTIONS"))
OPEN_PATHS = ("/", "/desk", "/healthz", "/readyz")  # need no token, like the files of the page, which asks for it
STATIC_PREFIX = "/static/"
PERSON_KEY = "xmtc_person"  # of the scope: the Person of the request's token
MAX_QUERY_FIELDS = 100
RESPONSE_CHUNK_BYTES = 2**16  # larger response bodies are sent in chunks of this size
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
RESPONSE_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
ENCODED_HEADERS = [(name.encode(), value.encode()) for name, value in RESPONSE_HEADERS.items()]


class Reply:
    """Response to one request; adds the security headers."""

    def __init__(self, send: Send, account: RequestMemory, path: str) -> None:
        self._send, self.account, self.path = send, account, path
        self._start: Message | None = None  # sent when memory for the body is reserved
        self._is_refused = False
        self.status = 0  # 0 until the response has started
        self.n_bytes = 0

    async def send(self, message: Message) -> None:
        if self._is_refused:
            return
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message.get("headers", ())}
            missing = [pair for pair in ENCODED_HEADERS if pair[0] not in present]
            self._start = {**message, "headers": [*message.get("headers", ()), *missing]}
            return
        body = message.get("body", b"")
        is_large = len(body) > RESPONSE_CHUNK_BYTES
        if is_large:
            try:
                self.account.cover_answer(len(body))
            except RequestError as error:
                self._is_refused = True
                if not self.status:
                    await self._write_error(error)
                return
        if self._start is not None:
            start, self._start = self._start, None
            self.status = start["status"]
            await self._send(start)
        self.n_bytes += len(body)
        if is_large:
            await self._send_in_chunks(message, memoryview(body))
        else:
            await self._send(message)

    async def _send_in_chunks(self, message: Message, body: memoryview) -> None:
        """Send a large body as fast as the client reads it, so that a timeout can free it."""
        for start in range(0, len(body), RESPONSE_CHUNK_BYTES):
            end = start + RESPONSE_CHUNK_BYTES
            more = end < len(body) or message.get("more_body", False)
            await self._send({**message, "body": bytes(body[start:end]), "more_body": more})

    async def send_error(self, error: RequestError) -> None:
        """Respond with an error, unless the response has started: then the server closes the connection."""
        if not self.status and not self._is_refused:
            await self._write_error(error)

    async def _write_error(self, error: RequestError) -> None:
        self.status, body, content_type = encode_error(error, self.path)
        self.n_bytes = len(body)
        headers = {"content-type": content_type, "content-length": str(len(body)), **error.headers}
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self._send(
            {"type": "http.response.start", "status": self.status, "headers": [*encoded, *ENCODED_HEADERS]}
        )
        await self._send({"type": "http.response.body", "body": body})


class RequestMiddleware:
    """Middleware that refuses requests that are not allowed, too large or too slow, and logs every request."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        metrics: Metrics,
        memory: MemoryBudget,
        find_person: Callable[[str], Person | None] | None = None,
    ) -> None:
        self.find_person = find_person  # by the token; None without a review desk
        self.app, self.settings, self.limits, self.metrics = app, settings, settings.limits, metrics
        self.running_by_client: Counter[str] = Counter()  # running requests by client address
        self.memory = memory
        self.hosts = HostCheck(settings)
        self.token = None if settings.token is None else settings.token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, account = time.perf_counter(), RequestMemory(self.memory)
        scope[ACCOUNT_KEY] = account
        reply, body = Reply(send, account, scope["path"]), RequestBody(self.limits.body, account)
        client = scope["client"][0] if scope.get("client") else ""
        self.running_by_client[client] += 1
        self.metrics.running.inc()
        try:
            await self._handle(scope, receive, reply, body, client)
        finally:
            self.metrics.running.dec()
            self.running_by_client[client] -= 1
            if not self.running_by_client[client]:
                del self.running_by_client[client]
            account.close()
            self._log(scope, reply, body.size, client, time.perf_counter() - start)

    async def _handle(self, scope: Scope, receive: Receive, reply: Reply, body: RequestBody, client: str) -> None:
        try:
            async with asyncio.timeout(self.limits.seconds):
                self._check(scope, client)
                if scope["method"] == "POST":
                    receive = await body.read(scope, receive)
                await self.app(scope, receive, reply.send)
        except TimeoutError:
            if body.is_read:
                timeout_error = busy_error(
                    f"The request took longer than {self.limits.seconds:g} seconds; send less at once, or retry later."
                )
            else:
                timeout_error = RequestError(
                    408, f"The request body did not arrive within {self.limits.seconds:g} seconds."
                )
            await reply.send_error(timeout_error)
        except ClientDisconnected:
            pass
        except Exception as error:
            request_error = request_error_from(error)
            if request_error.status == 500:
                log.write_event("failure", **log.describe_exception(error))
            await reply.send_error(request_error)

    def _check(self, scope: Scope, client: str) -> None:
        """Raise RequestError if the request line or the headers are not allowed."""
        headers = parse_headers(scope["headers"])
        self.hosts.check(headers, scope.get("http_version", "1.1"))
        if scope["method"] not in HTTP_METHODS:
            raise RequestError(405, "Method not allowed; use GET or POST.", headers={"Allow": "GET, HEAD, POST"})
        if scope.get("query_string", b"").count(b"&") >= MAX_QUERY_FIELDS:
            raise RequestError(400, f"The query string has more than {MAX_QUERY_FIELDS} fields; send fewer.")
        is_open = scope["path"] in OPEN_PATHS or scope["path"].startswith(STATIC_PREFIX)
        if not is_open and not self._is_authenticated(scope, headers):
            message = "This service requires a token; send it as `Authorization: Bearer TOKEN`."
            raise RequestError(401, message, headers={"WWW-Authenticate": "Bearer"})
        if self.limits.per_client and self.running_by_client[client] > self.limits.per_client:
            message = f"More than {self.limits.per_client} concurrent requests from one address; retry in a moment."
            raise RequestError(429, message, retry_seconds=1)

    def _is_authenticated(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        """Return True if the token is that of the service or of a person, whom the routes find in the scope."""
        if self.token is None and self.find_person is None:
            return True
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not token:
            return False
        if self.token is not None and hmac.compare_digest(token, self.token):
            return True
        person = None if self.find_person is None else self.find_person(token.decode("latin-1"))
        scope[PERSON_KEY] = person
        return person is not None

    def _log(self, scope: Scope, reply: Reply, n_bytes: int, client: str, seconds: float) -> None:
        route, method = get_route(scope), scope["method"] if scope["method"] in HTTP_METHODS else "other"
        status = reply.status or 499  # 499: the client closed the connection
        self.metrics.requests.labels(route, method, status).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        if self.settings.access_log:
            details = scope.get("xmtc", {})  # set by Service.find_model: model, number of texts
            milliseconds = round(1000 * seconds, 2)
            sizes = {"bytes_in": n_bytes, "bytes_out": reply.n_bytes}
            log.write_event(
                "request", method=method, route=route, **details, status=status, ms=milliseconds, **sizes, client=client
            )


class ClientDisconnected(Exception):
    """The client closed the connection before the whole request arrived."""


class RequestBody:
    """Body of one request, held in memory until the request ends."""

    def __init__(self, max_bytes: int, account: RequestMemory) -> None:
        self.max_bytes, self.account, self.size, self.is_read = max_bytes, account, 0, True

    async def read(self, scope: Scope, receive: Receive) -> Receive:
        """Read the whole body; return a `receive` function that replays it to the application."""
        parts = []
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not declared.isdigit() or len(declared) > 18 or int(declared) > self.max_bytes:
            raise too_large_error(self.max_bytes)
        self.account.check_room(int(declared))
        self.is_read = False
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            part = message.get("body", b"")
            self.size += len(part)
            if self.size > self.max_bytes:
                raise too_large_error(self.max_bytes)
            self.account.reserve(len(part))
            parts.append(part)
            more = message.get("more_body", False)
        self.is_read = True
        messages: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]
        parts.clear()

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        return replay


def too_large_error(max_bytes: int) -> RequestError:
    return RequestError(413, f"The request is larger than {max_bytes:,} bytes; send less at a time.")


def get_route(scope: Scope) -> str:
    """Return the path pattern of a request. The path itself is not logged, because the client chooses it."""
    pattern = getattr(scope.get("route"), "path", None)
    return pattern or (STATIC_PREFIX if scope["path"].startswith(STATIC_PREFIX) else "none")
