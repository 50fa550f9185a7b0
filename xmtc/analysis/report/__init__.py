"""What a model does well and where it fails: figures of its answers to labelled documents, and pages that show them."""

from xmtc.analysis.report.statistics import Report, compute_report

__all__ = ["Report", "compute_report"]
