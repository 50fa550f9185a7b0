"""Maintenance of trained taggers: newer versions of their vocabulary."""
