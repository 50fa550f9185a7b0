"""Metrics, one module per kind; the import order is the order in which they are listed."""

from xmtc.evaluation.metrics import (  # noqa: I001
    ranked,
    propensity_scored,
    calibration,
    thresholded,
    curves,
    hierarchical,
)

__all__ = ["calibration", "curves", "hierarchical", "propensity_scored", "ranked", "thresholded"]
