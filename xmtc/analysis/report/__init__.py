"""Report on a model: statistics of its predictions for labelled documents, and files that show them."""

from xmtc.analysis.report.statistics import Report, compute_report

__all__ = ["Report", "compute_report"]
