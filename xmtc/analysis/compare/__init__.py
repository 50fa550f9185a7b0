"""Comparison of models or methods on the same documents: metrics, significance, agreement and cost."""
