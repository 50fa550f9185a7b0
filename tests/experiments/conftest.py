"""Tests of the repository's experiments, which an installed wheel does not have."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("experiments.rows") else ["test_*.py"]
