"""Accounting of the memory of request and response bodies."""

from __future__ import annotations

from xmtc.server.request_errors import busy_error

ACCOUNT_KEY = "xmtc.account"  # key in the ASGI scope
MAX_ANSWERS_SHARE = 0.75  # share of the memory for large responses; the rest remains for small ones


class MemoryBudget:
    """Memory limit of all bodies, and the bytes in use."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0


class RequestMemory:
    """Memory of one request; released when the response is sent or dropped."""

    def __init__(self, memory: MemoryBudget) -> None:
        self.memory, self.used = memory, 0
        self.n_reserved_for_answer = 0  # bytes of the response that are already reserved

    def check_room(self, n_bytes: int, share: float = 1.0) -> None:
        """Raise RequestError if `n_bytes` do not fit into a share of the memory."""
        if self.memory.used + n_bytes > share * self.memory.limit:
            raise busy_error("Too much memory is in use by other requests; retry in a moment.")

    def reserve(self, n_bytes: int) -> None:
        self.check_room(n_bytes)
        self._add(n_bytes)

    def reserve_answer(self, n_bytes: int) -> None:
        """Reserve memory for a response of at most `n_bytes`."""
        self.check_room(n_bytes, MAX_ANSWERS_SHARE)
        self._add(n_bytes)
        self.n_reserved_for_answer += n_bytes

    def shrink_answer(self, n_bytes: int) -> None:
        """Release the reserved memory that a response of `n_bytes` does not need."""
        self._add(min(0, n_bytes - self.n_reserved_for_answer))
        self.n_reserved_for_answer = min(self.n_reserved_for_answer, n_bytes)

    def share_answer(self, n_bytes: int) -> None:
        """Reserve nothing for a response whose bytes all requests share."""
        self.n_reserved_for_answer = n_bytes

    def cover_answer(self, n_bytes: int) -> None:
        """Reserve the memory that a response of `n_bytes` needs in addition."""
        if n_bytes > self.n_reserved_for_answer:
            self.reserve_answer(n_bytes - self.n_reserved_for_answer)

    def close(self) -> None:
        self._add(-self.used)

    def _add(self, n_bytes: int) -> None:
        self.memory.used += n_bytes
        self.used += n_bytes
