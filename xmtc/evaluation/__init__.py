"""Metrics by their published names, such as `P@5`, `nDCG@5` and `macro-F1@0.5`.

docs/reference/metrics.md has the formulas; xmtc/evaluation/registry.py shows how to register a metric.
"""

from xmtc.evaluation import metrics  # noqa: F401  (registers the metrics)
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
