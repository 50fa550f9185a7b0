"""Limits of one HTTP connection that uvicorn does not have: size of a request head, pipelined requests, and timeouts
for clients that send or read too slowly."""

from __future__ import annotations

from collections import deque
from typing import Any

MAX_REQUEST_HEAD_BYTES = 2**16  # request line and headers, and likewise the framing between two pieces of a body
SLICE_BYTES = 2**14  # fed to the parser at a time; the limit of a head is exceeded by less than this
MAX_PIPELINED = 100  # requests that wait for the answer to an earlier one on the same connection
MAX_HEADERS = 100
SMALL_HEAD_BYTES = 2**13  # a head of this size is accepted from every connection
ALL_HEADS_BYTES = 2**25  # unfinished heads of all connections, beyond which larger heads are refused
FREE_CHUNKS, MEAN_CHUNK_BYTES = 1000, 16  # a body may have this many chunks, and more if they have this many bytes
CHECKS_PER_TIMEOUT = 4  # at every connection within the timeout
SPARE_CONNECTIONS = 100  # above the limit, so that some clients are told that the service is busy

HEAD_TOO_LARGE_MESSAGE = (
    b"The head of the request has more than 100 headers or 65,536 bytes; send fewer or shorter headers."
)
HEAD_TOO_LARGE_RESPONSE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(HEAD_TOO_LARGE_MESSAGE), HEAD_TOO_LARGE_MESSAGE)
)


def limited_protocol(protocol: Any, seconds: float) -> Any:
    """Return a subclass of one of uvicorn's HTTP protocols that limits what a connection may take.

    Parameters
    ----------
    protocol
        `HttpToolsProtocol` or `H11Protocol`. The parser of the latter limits heads itself.
    seconds
        Time for a request head to arrive, and for an answer to be read.
    """
    limits = (HeadLimits,) if hasattr(protocol, "on_headers_complete") else (H11Timeouts,)
    return type("LimitedProtocol", (*limits, protocol), {"seconds": seconds, "all_heads": ByteTotal()})


class ByteTotal:
    """Bytes of the unfinished heads of all connections."""

    n_bytes = 0


class Timeouts:
    """Mixin that closes the connections of clients that send or read too slowly, and those beyond the limit."""

    seconds: float
    state_start: float  # start of the present state: waiting for a head, or answering
    check_timer: Any = None
    unanswered_cycles: deque[Any]  # requests; uvicorn tells only the last one of them that the client has left
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
        """Tell the application that nobody reads its answers any more."""
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
        """Close the connection if the client has been too slow."""
        self.check_timer = self.loop.call_later(self.seconds / CHECKS_PER_TIMEOUT, self.check_timeout)
        if self.loop.time() - self.state_start < self.seconds:
            return
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.abort()  # close() would wait until the client has read everything
        elif not self.is_answering:
            self.transport.close()


class H11Timeouts(Timeouts):
    def data_received(self, data: bytes) -> None:
        if self.is_answering:
            self.state_start = self.loop.time()
        super().data_received(data)  # type: ignore[misc]


class HeadLimits(Timeouts):
    """Mixin for httptools, whose parser has no limits."""

    n_framing = 0  # bytes received since the last head or piece of a body was complete
    is_in_head = True
    has_many_headers = False
    n_chunks = n_body = 0  # pieces and bytes of the present body
    all_heads: ByteTotal
    headers: list[Any]
    pipeline: Any

    def set_framing(self, n_bytes: int) -> None:
        self.all_heads.n_bytes += n_bytes - self.n_framing
        self.n_framing = n_bytes

    @property
    def has_large_head(self) -> bool:
        is_scarce = self.all_heads.n_bytes > ALL_HEADS_BYTES
        return self.n_framing > (SMALL_HEAD_BYTES if is_scarce else MAX_REQUEST_HEAD_BYTES)

    @property
    def has_small_chunks(self) -> bool:
        """Each chunk takes the event loop about a microsecond, however small it is."""
        return self.n_chunks > FREE_CHUNKS + self.n_body / MEAN_CHUNK_BYTES

    def connection_lost(self, exc: Exception | None) -> None:
        self.set_framing(0)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        for begin in range(0, len(data), SLICE_BYTES):
            part = data[begin : begin + SLICE_BYTES] if len(data) > SLICE_BYTES else data
            self.set_framing(self.n_framing + len(part))
            super().data_received(part)  # type: ignore[misc]
            if self.transport.is_closing():
                return
            if self.has_large_head:
                self.refuse_head()
                return
            if len(self.pipeline) > MAX_PIPELINED or self.has_small_chunks:
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

    # callbacks of httptools

    def on_message_begin(self) -> None:
        self.is_in_head, self.n_chunks, self.n_body = True, 0, 0
        super().on_message_begin()  # type: ignore[misc]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.is_in_head:  # trailers after a body are ignored
            if len(self.headers) == MAX_HEADERS:
                self.has_many_headers = True
                raise ValueError("too many headers")  # which ends the parser, and has send_400_response called
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
