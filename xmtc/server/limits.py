"""ASGI middleware around the whole application: hosts, authentication, size limits, timeouts, and the request log."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from xmtc.server import log
from xmtc.server.hosts import HostCheck, single_headers
from xmtc.server.memory import ACCOUNT, Account, Memory
from xmtc.server.metrics import Metrics
from xmtc.server.refusals import Refused, busy, in_json, of_error
from xmtc.server.settings import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

METHODS = frozenset(("GET", "HEAD", "POST", "OPTIONS"))
WITHOUT_TOKEN = ("/", "/healthz", "/readyz")  # and the files of the page, which asks for the token
STATIC = "/static/"
MAX_QUERY_FIELDS = 100
PIECE_BYTES = 2**16  # of an answer that are handed to the connection at a time
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Reply:
    """Answer to one request, with the headers that all answers have."""

    def __init__(self, send: Send, account: Account, path: str) -> None:
        self._send, self.account, self.path = send, account, path
        self._start: Message | None = None  # held until the body is known to have room
        self._is_refused = False
        self.status = 0  # until it has begun
        self.n_bytes = 0

    async def send(self, message: Message) -> None:
        if self._is_refused:
            return
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message.get("headers", ())}
            own = [pair for pair in ENCODED if pair[0] not in given]
            self._start = {**message, "headers": [*message.get("headers", ()), *own]}
            return
        body = message.get("body", b"")
        is_large = len(body) > PIECE_BYTES
        if is_large:
            try:
                self.account.cover_answer(len(body))
            except Refused as refused:
                self._is_refused = True
                if not self.status:
                    await self._send_error(refused)
                return
        if self._start is not None:
            start, self._start = self._start, None
            self.status = start["status"]
            await self._send(start)
        self.n_bytes += len(body)
        if is_large:
            await self._send_in_pieces(message, memoryview(body))
        else:
            await self._send(message)

    async def _send_in_pieces(self, message: Message, body: memoryview) -> None:
        """Send a large body as fast as the client reads it, so that a timeout can free it."""
        for begin in range(0, len(body), PIECE_BYTES):
            end = begin + PIECE_BYTES
            more = end < len(body) or message.get("more_body", False)
            await self._send({**message, "body": bytes(body[begin:end]), "more_body": more})

    async def refuse(self, refused: Refused) -> None:
        """Answer with an error, unless an answer has begun: then the connection is closed in the middle of it."""
        if not self.status and not self._is_refused:
            await self._send_error(refused)

    async def _send_error(self, refused: Refused) -> None:
        self.status, body, kind = in_json(refused, self.path)
        self.n_bytes = len(body)
        headers = {"content-type": kind, "content-length": str(len(body)), **refused.headers}
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": self.status, "headers": [*encoded, *ENCODED]})
        await self._send({"type": "http.response.body", "body": body})


class RequestLimits:
    """Middleware that refuses requests which are not allowed, too large or too slow, and logs every request."""

    def __init__(self, app: App, settings: Settings, metrics: Metrics, memory: Memory) -> None:
        self.app, self.settings, self.limits, self.metrics = app, settings, settings.limits, metrics
        self.running: Counter[str] = Counter()  # requests by address
        self.memory = memory
        self.hosts = HostCheck(settings)
        self.token = None if settings.token is None else settings.token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, account = time.perf_counter(), Account(self.memory)
        scope[ACCOUNT] = account
        reply, body = Reply(send, account, scope["path"]), Body(self.limits.body, account)
        client = scope["client"][0] if scope.get("client") else ""
        self.running[client] += 1
        self.metrics.running.inc()
        try:
            await self._answer(scope, receive, reply, body, client)
        finally:
            self.metrics.running.dec()
            self.running[client] -= 1
            if not self.running[client]:
                del self.running[client]
            account.close()
            self._log(scope, reply, body.size, client, time.perf_counter() - begin)

    async def _answer(self, scope: Scope, receive: Receive, reply: Reply, body: Body, client: str) -> None:
        try:
            async with asyncio.timeout(self.limits.seconds):
                self._check(scope, client)
                if scope["method"] == "POST":
                    receive = await body.read(scope, receive)
                await self.app(scope, receive, reply.send)
        except TimeoutError:
            if body.is_read:
                late = busy(f"This took longer than {self.limits.seconds:g} seconds; ask for less, or again later.")
            else:
                late = Refused(408, f"The request had not arrived after {self.limits.seconds:g} seconds.")
            await reply.refuse(late)
        except ClientDisconnected:
            pass
        except Exception as error:
            refused = of_error(error)
            if refused.status == 500:
                log.event("failure", **log.failure(error))
            await reply.refuse(refused)

    def _check(self, scope: Scope, client: str) -> None:
        """Raise Refused if the head of a request says that it must not be answered."""
        headers = single_headers(scope["headers"])
        self.hosts.check(headers, scope.get("http_version", "1.1"))
        if scope["method"] not in METHODS:
            raise Refused(405, "Only GET and POST are known here.", headers={"Allow": "GET, HEAD, POST"})
        if scope.get("query_string", b"").count(b"&") >= MAX_QUERY_FIELDS:
            raise Refused(400, f"Found more than {MAX_QUERY_FIELDS} fields in the query of the address.")
        is_open = scope["path"] in WITHOUT_TOKEN or scope["path"].startswith(STATIC)
        if self.token is not None and not is_open:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self.token):
                message = "This service needs a token; send it as `Authorization: Bearer TOKEN`."
                raise Refused(401, message, headers={"WWW-Authenticate": "Bearer"})
        if self.limits.per_client and self.running[client] > self.limits.per_client:
            raise Refused(429, f"More than {self.limits.per_client} requests at a time from one address.", retry=1)

    def _log(self, scope: Scope, reply: Reply, n_bytes: int, client: str, seconds: float) -> None:
        route, method = route_of(scope), scope["method"] if scope["method"] in METHODS else "other"
        status = reply.status or 499  # the client had left
        self.metrics.requests.labels(route, method, status).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        if self.settings.access_log:
            asked = scope.get("xmtc", {})  # added by the application: the model, the number of texts
            took = round(1000 * seconds, 2)
            sizes = {"bytes_in": n_bytes, "bytes_out": reply.n_bytes}
            log.event("request", method=method, route=route, **asked, status=status, ms=took, **sizes, client=client)


class ClientDisconnected(Exception):
    """The client has closed the connection before its request had arrived."""


class Body:
    """Body of one request, held in memory until the request has ended."""

    def __init__(self, max_bytes: int, account: Account) -> None:
        self.max_bytes, self.account, self.size, self.is_read = max_bytes, account, 0, True

    async def read(self, scope: Scope, receive: Receive) -> Receive:
        """Read the whole body; return a function that gives it to the application."""
        parts = []
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not declared.isdigit() or len(declared) > 18 or int(declared) > self.max_bytes:
            raise too_large(self.max_bytes)
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
                raise too_large(self.max_bytes)
            self.account.reserve(len(part))
            parts.append(part)
            more = message.get("more_body", False)
        self.is_read = True
        whole: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]
        parts.clear()

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        return replay


def too_large(max_bytes: int) -> Refused:
    return Refused(413, f"The request is larger than {max_bytes:,} bytes; send less at a time.")


def route_of(scope: Scope) -> str:
    """Return the pattern of an address. The address itself is not logged, because a client chooses it."""
    found = getattr(scope.get("route"), "path", None)
    return found or (STATIC if scope["path"].startswith(STATIC) else "none")
