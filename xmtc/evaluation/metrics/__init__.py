"""The measures, one file per kind, in the order in which they are listed. See xmtc/evaluation/registry.py."""

from xmtc.evaluation.metrics import calibration, curves, hierarchical, propensity_scored, ranked, thresholded

__all__ = ["calibration", "curves", "hierarchical", "propensity_scored", "ranked", "thresholded"]
