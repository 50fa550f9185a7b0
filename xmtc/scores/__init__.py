"""Calibration of scores, thresholds that select labels, and their tuning."""

from xmtc.scores.threshold_tuning import TunedThresholds, tune_thresholds
from xmtc.scores.thresholds import (
    MAX_DECISION_DEPTH,
    THRESHOLD_SCOPES,
    LabelSelector,
    ThresholdGoal,
    parse_goal,
    select_labels,
)

__all__ = [
    "MAX_DECISION_DEPTH",
    "THRESHOLD_SCOPES",
    "LabelSelector",
    "ThresholdGoal",
    "TunedThresholds",
    "parse_goal",
    "select_labels",
    "tune_thresholds",
]
