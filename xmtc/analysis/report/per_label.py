"""Figures of each label as rows of a table, for spreadsheets and programs: `xmtc evaluate --per-label`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse import csr_array

from xmtc.analysis.report.figures import label_figures
from xmtc.analysis.report.shown import in_words, plain_figures
from xmtc.core.predictions import Predictions
from xmtc.evaluation import judge
from xmtc.output import Column, Record
from xmtc.tagger import Tagger

COUNTS = [Column(name, int) for name in ("training_documents", "support", "given", "right")]
SHARES = [Column(name, float) for name in ("precision", "recall", "f1")]


def columns(tagger: Tagger) -> list[Column]:
    """Labels have a column of names only where there are names."""
    names = [Column("name", str)] if tagger.concepts is not None else []
    return [Column("label", str), *names, *COUNTS, *SHARES, Column("given_in_its_place", str)]


def label_records(tagger: Tagger, given: Predictions, Y: csr_array, unseen: Sequence[str]) -> Iterator[Record]:
    """Of each label that documents have or are given, the most frequent first; `unseen` are those that the columns of
    Y have beyond the tagger's own."""
    labels = [*tagger.labels.words(), *unseen]
    trained = np.append(tagger.frequencies, np.zeros(len(unseen), np.int64))
    for each in label_figures(judge(given, Y), trained):
        is_named = tagger.concepts is not None and each.number < len(tagger.labels)
        yield {
            "label": labels[each.number],
            "name": tagger.name(labels[each.number]) if is_named else None,
            **plain_figures(each),
            "given_in_its_place": in_words((labels[other], n) for other, n in each.confused_with),
        }
