"""How good predictions are. A metric is its published name, the same everywhere: `P@5`, `nDCG@5`, `macro-F1@0.5`.

docs/reference/metrics.md has the formulas; xmtc/evaluation/registry.py says how a measure is declared."""

from xmtc.evaluation import metrics as measures  # noqa: F401  (the declarations fill the table)
from xmtc.evaluation.evaluate import evaluate, per_document
from xmtc.evaluation.metric_names import (
    AT_DECISION,
    DEFAULT,
    RANKING,
    Metric,
    are_at_decision,
    are_hierarchical,
    max_k,
    parse_metric,
)
from xmtc.evaluation.ranked_results import Judged, judge
from xmtc.evaluation.registry import DEPTH, MEASURES, SCORE, At, K, Measure, measure
from xmtc.labels.propensity import PROPENSITIES, Propensity

__all__ = [
    "AT_DECISION",
    "DEFAULT",
    "DEPTH",
    "MEASURES",
    "PROPENSITIES",
    "RANKING",
    "SCORE",
    "At",
    "Judged",
    "K",
    "Measure",
    "Metric",
    "Propensity",
    "are_at_decision",
    "are_hierarchical",
    "evaluate",
    "judge",
    "max_k",
    "measure",
    "parse_metric",
    "per_document",
]
