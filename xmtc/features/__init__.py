"""Documents in the views that a method reads. A view is one file here and one line in VIEWS; a union of views is a
mapping of them, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from xmtc.core.dataset import Bag, Dataset, Tokens
from xmtc.core.registry import Registry
from xmtc.core.run import Run
from xmtc.data.batch import Batch
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.features.view import COLUMNS, TEXTS, FittedView, View

__all__ = [
    "COLUMNS",
    "TEXTS",
    "VIEWS",
    "FittedView",
    "View",
    "fit",
    "known",
    "transform",
    "view_class",
    "views_for",
    "views_made_from",
]

VIEWS = {
    "columns": "xmtc.features.columns:Columns",
    "tfidf": "xmtc.features.tfidf:Tfidf",
    "words": "xmtc.features.words:Words",
    "subwords": "xmtc.features.subwords:Subwords",
    "names": "xmtc.features.names:Names",
}
TABLE = Registry("view", View, VIEWS, group="xmtc.views", hint="`xmtc.features.VIEWS`")

Views = dict[str, View]
FittedViews = dict[str, FittedView]


def view_class(name: str) -> type[View]:
    return TABLE.find(name)


def views_made_from(content: str) -> tuple[str, ...]:
    """The names of all views of texts, or of features."""
    return tuple(name for name in TABLE.names() if view_class(name).made_from == content)


def views_for(reads: Iterable[str], content: str = TEXTS, who: str = "The method") -> dict[str, type[View]]:
    """The views that a method reads, of a corpus of texts or of features."""
    names = (or_its_stand_in(name, content, who) for name in reads)
    return {name: view_class(name) for name in names}


def or_its_stand_in(name: str, content: str, who: str) -> str:
    """A view, or the one that takes its place where a corpus holds something else than it is made from."""
    if view_class(name).made_from == content:
        return name
    for other in views_made_from(content):
        if view_class(other).instead_of == name:
            return other
    wanted = view_class(name).made_from
    raise XmtcError(f"{who} reads {name}, but the corpus holds {content}; give it {wanted}, or choose a linear method.")


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Each once, in the order of the table; where models were combined, `tfidf-2` comes after `tfidf`."""
    known = TABLE.names()

    def rank(name: str) -> tuple[int, str]:
        kind = name.partition("-")[0]
        return (known.index(kind) if kind in known else len(known)), name

    return tuple(sorted(set(names), key=rank))


def fit(
    views: Mapping[str, View],
    documents: Iterable[Document | Batch],
    run: Run = Run(),
    choose: Callable | None = None,
    names: Sequence[str] = (),
) -> tuple[FittedViews, Dataset]:
    """Learn views from documents, or from the names of labels, and show the same documents. `choose` is asked by those
    that leave something open."""
    fitted: FittedViews = {}
    shown: dict[str, Bag | Tokens] = {}
    documents = repeatable(documents, len(views))
    for name, view in views.items():
        given: dict[str, Any] = {"choose": choose} if view.may_ask else {}
        given |= {"names": names} if view.learns_from_names else {}
        fitted[name], shown[name] = view.fit(contents(documents, view.made_from), run, **given)
    return fitted, Dataset(shown)


def transform(fitted: Mapping[str, FittedView], documents: Iterable[Document], run: Run = Run()) -> Dataset:
    """New documents in views that were learnt."""
    held = repeatable(documents, len(fitted))
    return Dataset({name: view.transform(contents(held, view.made_from), run) for name, view in fitted.items()})


def known(fitted: Mapping[str, FittedView], data: Dataset) -> np.ndarray:
    """(n_docs,) bool: of which documents at least one view knows a word."""
    return reduce(np.logical_or, (view.known(data.views[name]) for name, view in fitted.items()))


def take_batches(views: Mapping[str, View]) -> bool:
    """Whether what is learnt from documents may be learnt from batches of them."""
    return len(views) == 1 and all(view.takes_batches and view.made_from == TEXTS for view in views.values())


def repeatable(documents: Iterable[Document | Batch], times: int) -> Iterable[Document | Batch]:
    """A stream passes through one view as it is; several views each pass over the documents, which are held for it."""
    return documents if times == 1 else list(documents)


def contents(documents: Iterable[Document | Batch], content: str) -> Iterator[Any]:
    """What a view is made from: the text of each document, or its features; of a batch, all texts at once."""
    for document in documents:
        if isinstance(document, Batch):
            yield document.texts
            continue
        if (document.features is None) != (content == TEXTS):
            found, wanted = (COLUMNS, TEXTS) if content == TEXTS else (TEXTS, COLUMNS)
            raise XmtcError(
                f"Document {document.id!r} holds {found}, but this model reads {wanted}; give it a corpus of {wanted}."
            )
        yield document.text if content == TEXTS else document.features
