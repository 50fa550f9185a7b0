"""From scores to tags: which of the ranked labels a document gets, and how that is learnt."""

from xmtc.scores.threshold_tuning import Learnt, learn
from xmtc.scores.thresholds import BY, DEEPEST, Decision, Goal, kept, parse_goal

__all__ = ["BY", "DEEPEST", "Decision", "Goal", "Learnt", "kept", "learn", "parse_goal"]
