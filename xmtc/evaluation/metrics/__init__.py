"""Metrics, one module per kind; they are listed in the order of import."""

from xmtc.evaluation.metrics import (  # noqa: I001
    ranked,
    propensity_scored,
    rare_labels,
    calibration,
    thresholded,
    curves,
    hierarchical,
)

__all__ = ["calibration", "curves", "hierarchical", "propensity_scored", "ranked", "rare_labels", "thresholded"]
