"""Account of the memory that requests and their answers take."""

from __future__ import annotations

from xmtc.server.request_errors import busy_error

ACCOUNT_KEY = "xmtc.account"  # key of the scope of a request
MAX_ANSWERS_SHARE = 0.75  # of the memory; the rest is left for requests with small answers


class MemoryBudget:
    """Bytes of all requests and answers that are held at a time."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0


class RequestMemory:
    """Share of one request in the memory. It is released when the answer has been sent or dropped."""

    def __init__(self, memory: MemoryBudget) -> None:
        self.memory, self.used = memory, 0
        self.n_reserved_for_answer = 0  # bytes of the answer that need no further room

    def check_room(self, n_bytes: int, share: float = 1.0) -> None:
        """Raise Refused if there is no room for that many bytes."""
        if self.memory.used + n_bytes > share * self.memory.limit:
            raise busy_error("Too much is being sent here at a time; send it again in a moment.")

    def reserve(self, n_bytes: int) -> None:
        self.check_room(n_bytes)
        self._add(n_bytes)

    def reserve_answer(self, n_bytes: int) -> None:
        """Reserve room for an answer that has at most that many bytes."""
        self.check_room(n_bytes, MAX_ANSWERS_SHARE)
        self._add(n_bytes)
        self.n_reserved_for_answer += n_bytes

    def shrink_answer(self, n_bytes: int) -> None:
        """Release the part of the reserved room that an answer of that many bytes does not need."""
        self._add(min(0, n_bytes - self.n_reserved_for_answer))
        self.n_reserved_for_answer = min(self.n_reserved_for_answer, n_bytes)

    def share_answer(self, n_bytes: int) -> None:
        """Take no room for an answer, because all requests for it hold the same bytes."""
        self.n_reserved_for_answer = n_bytes

    def cover_answer(self, n_bytes: int) -> None:
        """Reserve what an answer of that many bytes needs beyond the room that it has."""
        if n_bytes > self.n_reserved_for_answer:
            self.reserve_answer(n_bytes - self.n_reserved_for_answer)

    def close(self) -> None:
        self._add(-self.used)

    def _add(self, n_bytes: int) -> None:
        self.memory.used += n_bytes
        self.used += n_bytes
