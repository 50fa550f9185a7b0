"""Parsing of `labels feature:value feature:value …` lines, for the sparse and svmlight formats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xmtc.data.records import BadRecord, quote_text

MAX_FEATURE_VALUE = float(np.finfo(np.float32).max)
MAX_FEATURE_COLUMN = int(np.iinfo(np.int32).max)


def split_line(line: str) -> tuple[str, list[str]]:
    """Return the comma-separated labels and the features; no labels if the line starts with a blank or a feature."""
    words = line.split()
    if not words or line[0].isspace() or ":" in words[0]:
        return "", words
    return words[0], words[1:]


def parse_labels(joined: str, parse_label: Callable[[str], int]) -> list[str]:
    """Return the distinct label numbers as names."""
    labels = [str(parse_label(label)) for label in joined.split(",")] if joined else []
    return labels if len(set(labels)) == len(labels) else list(dict.fromkeys(labels))


def parse_features(words: list[str], n_features: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return columns (int32, ascending) and values (float32) of `feature:value` words."""
    try:
        if "_" in "".join(words):
            raise ValueError("Python would read 1_0 as 10")
        pairs = [word.split(":") for word in words]
        columns = np.array([int(column) for column, _ in pairs], dtype=np.int64)
        values = np.array([float(value) for _, value in pairs])
    except (ValueError, OverflowError):
        raise BadRecord(_describe_malformed_feature(words)) from None

    if len(words) == 0:
        return columns.astype(np.int32), values.astype(np.float32)
    if not np.abs(values).max() <= MAX_FEATURE_VALUE:  # this form also refuses nan
        word = words[int(np.argmin(np.abs(values) <= MAX_FEATURE_VALUE))]
        raise BadRecord(f"found the value {quote_text(word)}, expected a finite number")
    if not (columns[1:] > columns[:-1]).all():
        columns, values = _sort_features(columns, values)
    _check_range(columns, n_features)
    return columns.astype(np.int32), values.astype(np.float32)


def _sort_features(columns: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(columns, kind="stable")
    columns, values = columns[order], values[order]
    repeated = columns[1:][columns[1:] == columns[:-1]]
    if len(repeated):
        raise BadRecord(f"the feature {repeated[0]} occurs twice, expected each feature once")
    return columns, values


def _check_range(columns: np.ndarray, n_features: int | None) -> None:
    end = MAX_FEATURE_COLUMN if n_features is None else n_features
    if columns[0] < 0 or columns[-1] >= end:
        column = columns[0] if columns[0] < 0 else columns[-1]
        limit = "that fits in 32 bits" if n_features is None else f"below the header's {n_features}"
        raise BadRecord(f"found the feature {column}, expected a number from 0 on {limit}")


def _describe_malformed_feature(words: list[str]) -> str:
    for word in words:
        column, colon, value = word.partition(":")
        if not colon:
            return f"found {quote_text(word)} without a colon, expected feature:value"
        if not (column.removeprefix("-").isdecimal() and column.isascii()):
            return f"found the feature {quote_text(word)}, expected a whole number before the colon"
        if len(column) > len(str(MAX_FEATURE_COLUMN)):
            return f"found the feature {quote_text(word)}, expected a number that fits in 32 bits"
        try:
            float(value.replace("_", "?"))
        except ValueError:
            return f"found {quote_text(word)}, expected a number after the colon"
    return "the features cannot be read, expected feature:value"
