"""Proximal steps, which make weights sparse."""

from __future__ import annotations

from xmtc.core.numba_support import fast_kernel


@fast_kernel
def soft_threshold(value, penalty):
    """The proximal step of an L1 penalty: towards zero by the penalty, and not beyond."""
    zero = value - value
    return max(value - penalty, zero) + min(value + penalty, zero)
