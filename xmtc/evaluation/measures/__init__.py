"""The measures, one file per kind, in the order in which they are listed. See xmtc/evaluation/registry.py."""

from xmtc.evaluation.measures import (  # noqa: I001
    ranked,
    propensity_scored,
    coverage,
    calibration,
    thresholded,
    curves,
    hierarchical,
)

__all__ = ["calibration", "coverage", "curves", "hierarchical", "propensity_scored", "ranked", "thresholded"]
