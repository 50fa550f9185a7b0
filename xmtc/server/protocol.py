"""Limits of one HTTP connection that uvicorn lacks: size of the request head, pipelining, timeouts for slow clients."""

from __future__ import annotations

from collections import deque
from typing import Any

MAX_REQUEST_HEAD_BYTES = 2**16  # request line and headers; also the framing between two chunks of a body
SLICE_BYTES = 2**14  # parsed at a time; a head exceeds its limit by less than this
MAX_PIPELINED_REQUESTS = 100  # requests queued behind an unanswered one on the same connection
MAX_HEADERS = 100
SMALL_HEAD_BYTES = 2**13  # always accepted
ALL_HEADS_BYTES = 2**25  # unfinished heads of all connections; above it, heads larger than SMALL_HEAD_BYTES are refused
FREE_CHUNKS, MEAN_CHUNK_BYTES = 1000, 16  # chunks that any body may have; further chunks need this mean size
CHECKS_PER_TIMEOUT = 4  # timeout checks of a connection per timeout
SPARE_CONNECTIONS = 100  # accepted above the limit, to answer them with 503

HEAD_TOO_LARGE_MESSAGE = (
    b"The head of the request has more than 100 headers or 65,536 bytes; send fewer or shorter headers."
)
HEAD_TOO_LARGE_RESPONSE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(HEAD_TOO_LARGE_MESSAGE), HEAD_TOO_LARGE_MESSAGE)
)


def limited_protocol(protocol: Any, seconds: float) -> Any:
    """Return a subclass of one of uvicorn's HTTP protocols with limits and timeouts.

    Parameters
    ----------
    protocol
        `HttpToolsProtocol` or `H11Protocol`. The parser of the latter limits heads itself.
    seconds
        Timeout for receiving a request head, and for sending a response.
    """
    limits = (HeadLimits,) if hasattr(protocol, "on_headers_complete") else (H11Timeouts,)
    return type("LimitedProtocol", (*limits, protocol), {"seconds": seconds, "all_heads": ByteTotal()})


class ByteTotal:
    """Bytes of the unfinished heads of all connections, and their limit."""

    n_bytes = 0
    limit = ALL_HEADS_BYTES


class Timeouts:
    """Mixin that closes connections of slow clients, and connections above the limit."""

    seconds: float
    state_start: float  # start of the current state: waiting for a head, or responding
    check_timer: Any = None
    unanswered_cycles: deque[Any]  # uvicorn reports a disconnect only to the last one
    cycle: Any
    loop: Any
    transport: Any

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)  # type: ignore[misc]
        limit = self.limit_concurrency  # type: ignore[attr-defined]
        self.state_start, self.unanswered_cycles = self.loop.time(), deque()
        if limit and len(self.connections) > limit + SPARE_CONNECTIONS:  # type: ignore[attr-defined]
            transport.abort()
        else:
            self.check_timer = self.loop.call_later(self.seconds / CHECKS_PER_TIMEOUT, self.check_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.check_timer is not None:
            self.check_timer.cancel()
        self.notify_requests()
        super().connection_lost(exc)  # type: ignore[misc]

    def notify_requests(self) -> None:
        """Notify the application that the client has disconnected."""
        for cycle in self.unanswered_cycles:
            cycle.disconnected = True
            cycle.message_event.set()
        self.flow.resume_writing()  # type: ignore[attr-defined]

    def abort(self) -> None:
        self.notify_requests()
        self.transport.abort()

    def on_response_complete(self) -> None:
        self.state_start = self.loop.time()
        if self.unanswered_cycles:
            self.unanswered_cycles.popleft()
        super().on_response_complete()  # type: ignore[misc]

    @property
    def is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def check_timeout(self) -> None:
        """Close the connection if the client is too slow."""
        self.check_timer = self.loop.call_later(self.seconds / CHECKS_PER_TIMEOUT, self.check_timeout)
        if self.loop.time() - self.state_start < self.seconds:
            return
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.abort()  # close() would wait for the client to read everything
        elif not self.is_answering:
            self.transport.close()


class H11Timeouts(Timeouts):
    def data_received(self, data: bytes) -> None:
        if self.is_answering:
            self.state_start = self.loop.time()
        super().data_received(data)  # type: ignore[misc]


class HeadLimits(Timeouts):
    """Mixin for httptools, whose parser has no limits."""

    n_framing = 0  # bytes received since the last complete head or chunk
    is_in_head = True
    has_many_headers = False
    n_chunks = n_body = 0  # chunks and bytes of the current body
    all_heads: ByteTotal
    headers: list[Any]
    pipeline: Any

    def set_framing(self, n_bytes: int) -> None:
        self.all_heads.n_bytes += n_bytes - self.n_framing
        self.n_framing = n_bytes

    @property
    def has_large_head(self) -> bool:
        is_scarce = self.all_heads.n_bytes > self.all_heads.limit
        return self.n_framing > (SMALL_HEAD_BYTES if is_scarce else MAX_REQUEST_HEAD_BYTES)

    @property
    def has_small_chunks(self) -> bool:
        """True if the body consists of too many tiny chunks; each takes about a microsecond in the event loop."""
        return self.n_chunks > FREE_CHUNKS + self.n_body / MEAN_CHUNK_BYTES

    def connection_lost(self, exc: Exception | None) -> None:
        self.set_framing(0)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), SLICE_BYTES):
            part = data[start : start + SLICE_BYTES] if len(data) > SLICE_BYTES else data
            self.set_framing(self.n_framing + len(part))
            super().data_received(part)  # type: ignore[misc]
            if self.transport.is_closing():
                return
            if self.has_large_head:
                self.refuse_head()
                return
            if len(self.pipeline) > MAX_PIPELINED_REQUESTS or self.has_small_chunks:
                self.abort()
                return

    def send_400_response(self, msg: str) -> None:
        if self.has_many_headers:
            self.refuse_head()
        else:
            super().send_400_response(msg)  # type: ignore[misc]

    def refuse_head(self) -> None:
        if self.is_answering:
            self.abort()
        else:
            self.transport.write(HEAD_TOO_LARGE_RESPONSE)
            self.transport.close()

    # Callbacks of httptools.

    def on_message_begin(self) -> None:
        self.is_in_head, self.n_chunks, self.n_body = True, 0, 0
        super().on_message_begin()  # type: ignore[misc]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.is_in_head:  # trailers after a body are ignored
            if len(self.headers) == MAX_HEADERS:
                self.has_many_headers = True
                raise ValueError("too many headers")  # makes uvicorn call send_400_response
            super().on_header(name, value)  # type: ignore[misc]

    def on_headers_complete(self) -> None:
        self.set_framing(0)
        self.is_in_head, self.state_start = False, self.loop.time()
        super().on_headers_complete()  # type: ignore[misc]
        self.unanswered_cycles.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self.set_framing(0)
        self.n_chunks += 1
        self.n_body += len(body)
        super().on_body(body)  # type: ignore[misc]
