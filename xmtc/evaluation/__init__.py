"""How good predictions are. A metric is its published name, the same everywhere: `P@5`, `nDCG@5`, `macro-F1@0.5`.

docs/reference/metrics.md has the formulas; xmtc/evaluation/registry.py says how a measure is declared."""

from xmtc.evaluation import metrics as measures  # noqa: F401  (the declarations fill the table)
from xmtc.evaluation.metric_values import evaluate, evaluate_per_document
from xmtc.evaluation.ranked_results import RankedResults, to_ranked_results
from xmtc.evaluation.registry import (
    DECISION_METRICS,
    DEFAULT_METRICS,
    EVALUATION_DEPTH,
    K_PARAMETER,
    METRIC_FAMILIES,
    RANKING_METRICS,
    SCORE_PARAMETER,
    Metric,
    MetricFamily,
    MetricParameter,
    has_decision_metric,
    has_hierarchical_metric,
    max_k,
    parse_metric,
    register_metric,
)
from xmtc.labels.propensity import PROPENSITIES, Propensity

__all__ = [
    "DECISION_METRICS",
    "DEFAULT_METRICS",
    "EVALUATION_DEPTH",
    "K_PARAMETER",
    "METRIC_FAMILIES",
    "PROPENSITIES",
    "RANKING_METRICS",
    "SCORE_PARAMETER",
    "Metric",
    "MetricFamily",
    "MetricParameter",
    "Propensity",
    "RankedResults",
    "evaluate",
    "evaluate_per_document",
    "has_decision_metric",
    "has_hierarchical_metric",
    "max_k",
    "parse_metric",
    "register_metric",
    "to_ranked_results",
]
