"""The measures, one file per kind, in the order in which they are listed. See xmtc/evaluation/registry.py."""

from xmtc.evaluation.measures import ranked, propensity_scored, coverage, calibration, thresholded, curves  # noqa: I001

__all__ = ["calibration", "coverage", "curves", "propensity_scored", "ranked", "thresholded"]
