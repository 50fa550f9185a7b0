"""Rank of this process among those that torchrun or Ray Train started together."""

from __future__ import annotations

import os


def is_single_process() -> bool:
    """Return True unless torchrun or Ray Train started several processes for this training."""
    return os.environ.get("WORLD_SIZE", "1") == "1"


def is_first_process() -> bool:
    """Return True in the one process that prints, notifies and writes for the whole group."""
    return is_single_process() or os.environ.get("RANK", "0") == "0"
