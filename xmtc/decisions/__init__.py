"""From scores to tags: which of the ranked labels a document gets, and how that is learnt."""

from xmtc.decisions.decision import BY, DEEPEST, Decision, Goal, kept, parse_goal
from xmtc.decisions.learning import Learnt, learn

__all__ = ["BY", "DEEPEST", "Decision", "Goal", "Learnt", "kept", "learn", "parse_goal"]
