"""The door of a service: who may come in, how much they may bring, how long they may stay, and what is written down
about it. It stands around the whole application, so that nothing gets past it."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from xmtc.server import log
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
ALL_BODIES = 8  # times the largest, that may be held together
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
    """What is sent back: with the headers that all answers have, and remembered for the log."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0  # until it has begun
        self.n_bytes = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = {name.lower() for name, _ in message.get("headers", ())}
            own = [pair for pair in ENCODED if pair[0] not in given]
            message = {**message, "headers": [*message.get("headers", ()), *own]}
        elif message["type"] == "http.response.body":
            self.n_bytes += len(message.get("body", b""))
        await self._send(message)

    async def refuse(self, refused: Refused, path: str) -> None:
        if self.status:  # too late: the connection is closed in the middle, and the client knows that it was
            return
        status, body, kind = in_json(refused, path)
        headers = {"content-type": kind, "content-length": str(len(body)), **refused.headers}
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})
        await self.send({"type": "http.response.body", "body": body})


class Door:
    def __init__(self, app: App, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.limits, self.metrics = app, settings, settings.limits, metrics
        self.running: Counter[str] = Counter()  # requests by address
        self.n_bytes = 0  # of bodies that are held
        self.hosts = frozenset(settings.allowed_hosts)
        self.token = None if settings.token is None else settings.token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, reply, body = time.perf_counter(), Reply(send), Body(self)
        client = scope["client"][0] if scope.get("client") else ""
        self.running[client] += 1
        self.metrics.running.inc()
        try:
            await self._let_in(scope, receive, reply, body, client)
        finally:
            self.metrics.running.dec()
            self.running[client] -= 1
            if not self.running[client]:
                del self.running[client]
            self.n_bytes -= body.size
            self._write_down(scope, reply, body.size, client, time.perf_counter() - begin)

    async def _let_in(self, scope: Scope, receive: Receive, reply: Reply, body: Body, client: str) -> None:
        path = scope["path"]
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
            await reply.refuse(late, path)
        except Gone:
            pass
        except Exception as error:
            refused = of_error(error)
            if refused.status == 500:
                log.event("failure", **log.failure(error))
            await reply.refuse(refused, path)

    def _check(self, scope: Scope, client: str) -> None:
        headers = {name: value for name, value in scope["headers"] if name in (b"host", b"authorization")}
        if self.hosts and host_in(headers.get(b"host", b"")) not in self.hosts:
            raise Refused(421, "This service does not answer under that name; `xmtc serve --allow-host` adds names.")
        if scope["method"] not in METHODS:
            raise Refused(405, "Only GET and POST are known here.", headers={"Allow": "GET, HEAD, POST"})
        is_open = scope["path"] in WITHOUT_TOKEN or scope["path"].startswith(STATIC)
        if self.token is not None and not is_open:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self.token):
                said = "This service needs a token; send it as `Authorization: Bearer TOKEN`."
                raise Refused(401, said, headers={"WWW-Authenticate": "Bearer"})
        if self.limits.per_client and self.running[client] > self.limits.per_client:
            raise Refused(429, f"More than {self.limits.per_client} requests at a time from one address.", retry=1)

    def _write_down(self, scope: Scope, reply: Reply, n_bytes: int, client: str, seconds: float) -> None:
        route, method = route_of(scope), scope["method"] if scope["method"] in METHODS else "other"
        status = reply.status or 499  # the client had left
        self.metrics.requests.labels(route, method, status).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        if self.settings.access_log:
            asked = scope.get("xmtc", {})  # what the application adds: the model, how many texts
            took = round(1000 * seconds, 2)
            sizes = {"bytes_in": n_bytes, "bytes_out": reply.n_bytes}
            log.event("request", method=method, route=route, **asked, status=status, ms=took, **sizes, client=client)


class Gone(Exception):
    """The client has left before its request had arrived."""


class Body:
    """What a client brings, held until its request has ended."""

    def __init__(self, door: Door) -> None:
        self.door, self.size, self.is_read = door, 0, True

    async def read(self, scope: Scope, receive: Receive) -> Receive:
        """Read it whole, and give it on from memory."""
        most, parts = self.door.limits.body, []
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > most:
            raise too_large(most)
        self.is_read = False
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            part = message.get("body", b"")
            self.size += len(part)
            self.door.n_bytes += len(part)
            if self.size > most:
                raise too_large(most)
            if self.door.n_bytes > ALL_BODIES * most:
                raise busy("Too much is being sent here at a time; send it again in a moment.")
            parts.append(part)
            more = message.get("more_body", False)
        self.is_read = True
        whole: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        return replay


def too_large(most: int) -> Refused:
    return Refused(413, f"The request is larger than {most:,} bytes; send less at a time.")


def host_in(header: bytes) -> str:
    """The name without the port."""
    host = header.decode("latin-1").lower()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def route_of(scope: Scope) -> str:
    """The pattern of an address; what a client has made up is in no log."""
    found = getattr(scope.get("route"), "path", None)
    return found or (STATIC if scope["path"].startswith(STATIC) else "none")
