"""Figures of each label as rows of a table, for spreadsheets and programs: `xmtc evaluate --per-label`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse import csr_array

from xmtc.analysis.report.figures import compute_label_statistics
from xmtc.analysis.report.shown import as_label_record, format_label_counts
from xmtc.core.predictions import Predictions
from xmtc.evaluation import to_ranked_results
from xmtc.output import Column, Record
from xmtc.tagger import Tagger

COUNT_COLUMNS = [Column(name, int) for name in ("training_documents", "support", "given", "right")]
SHARE_COLUMNS = [Column(name, float) for name in ("precision", "recall", "f1")]


def make_label_columns(tagger: Tagger) -> list[Column]:
    """Labels have a column of names only where there are names."""
    names = [Column("name", str)] if tagger.concepts is not None else []
    return [Column("label", str), *names, *COUNT_COLUMNS, *SHARE_COLUMNS, Column("given_in_its_place", str)]


def iter_label_records(tagger: Tagger, assigned: Predictions, Y: csr_array, unseen: Sequence[str]) -> Iterator[Record]:
    """Of each label that documents have or are given, the most frequent first; `unseen` are those that the columns of
    Y have beyond the tagger's own."""
    labels = [*tagger.labels.words(), *unseen]
    trained = np.append(tagger.frequencies, np.zeros(len(unseen), np.int64))
    for each in compute_label_statistics(to_ranked_results(assigned, Y), trained):
        is_named = tagger.concepts is not None and each.label_id < len(tagger.labels)
        yield {
            "label": labels[each.label_id],
            "name": tagger.label_name(labels[each.label_id]) if is_named else None,
            **as_label_record(each),
            "given_in_its_place": format_label_counts((labels[other], n) for other, n in each.confused_with),
        }
