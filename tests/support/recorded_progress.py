"""Progress that records what a run reports."""

from __future__ import annotations


class RecordedProgress:
    """Factory and context manager of itself: title and total of the last stage, sum of steps, and statuses."""

    def __init__(self) -> None:
        self.title, self.total, self.steps = "", None, 0.0
        self.statuses: list[str] = []

    def __call__(self, title: str, total: float | None = None) -> RecordedProgress:
        self.title, self.total = title, total
        return self

    def __enter__(self) -> RecordedProgress:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def advance(self, steps: float = 1) -> None:
        self.steps += steps

    def set_status(self, status: str) -> None:
        self.statuses.append(status)
