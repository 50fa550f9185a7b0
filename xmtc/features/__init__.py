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
from xmtc.data.batch import DocumentBatch
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.features.view import FEATURES, TEXTS, FittedView, View

__all__ = [
    "FEATURES",
    "TEXTS",
    "VIEWS",
    "FittedView",
    "View",
    "fit",
    "list_views",
    "mark_known_documents",
    "select_views",
    "transform",
    "view_class",
]

VIEWS = {
    "columns": "xmtc.features.columns:Columns",
    "tfidf": "xmtc.features.tfidf:Tfidf",
    "words": "xmtc.features.words:Words",
    "subwords": "xmtc.features.subwords:Subwords",
    "names": "xmtc.features.names:Names",
}
VIEW_REGISTRY = Registry("view", View, VIEWS, group="xmtc.views", hint="`xmtc.features.VIEWS`")

Views = dict[str, View]
FittedViews = dict[str, FittedView]


def view_class(name: str) -> type[View]:
    return VIEW_REGISTRY.find(name)


def list_views(content: str) -> tuple[str, ...]:
    """The names of all views of texts, or of features."""
    return tuple(name for name in VIEW_REGISTRY.names() if view_class(name).input_kind == content)


def select_views(view_names: Iterable[str], content: str = TEXTS, subject: str = "The method") -> dict[str, type[View]]:
    """The views that a method reads, of a corpus of texts or of features."""
    names = (resolve_view(name, content, subject) for name in view_names)
    return {name: view_class(name) for name in names}


def resolve_view(name: str, content: str, who: str) -> str:
    """A view, or the one that takes its place where a corpus holds something else than it is made from."""
    if view_class(name).input_kind == content:
        return name
    for other in list_views(content):
        if view_class(other).replaced_view == name:
            return other
    wanted = view_class(name).input_kind
    raise XmtcError(f"{who} reads {name}, but the corpus holds {content}; give it {wanted}, or choose a linear method.")


def sort_views(names: Iterable[str]) -> tuple[str, ...]:
    """Each once, in the order of the table; where models were combined, `tfidf-2` comes after `tfidf`."""
    known = VIEW_REGISTRY.names()

    def rank(name: str) -> tuple[int, str]:
        kind = name.partition("-")[0]
        return (known.index(kind) if kind in known else len(known)), name

    return tuple(sorted(set(names), key=rank))


def fit(
    views: Mapping[str, View],
    documents: Iterable[Document | DocumentBatch],
    run: Run = Run(),
    choose: Callable | None = None,
    names: Sequence[str] = (),
) -> tuple[FittedViews, Dataset]:
    """Learn views from documents, or from the names of labels, and show the same documents. `choose` is asked by those
    that leave something open."""
    fitted: FittedViews = {}
    shown: dict[str, Bag | Tokens] = {}
    documents = as_repeatable(documents, len(views))
    for name, view in views.items():
        given: dict[str, Any] = {"choose": choose} if view.has_analyzer_callback else {}
        given |= {"names": names} if view.is_fitted_on_label_names else {}
        fitted[name], shown[name] = view.fit(extract_contents(documents, view.input_kind), run, **given)
    return fitted, Dataset(shown)


def transform(fitted: Mapping[str, FittedView], documents: Iterable[Document], run: Run = Run()) -> Dataset:
    """New documents in views that were learnt."""
    held = as_repeatable(documents, len(fitted))
    return Dataset(
        {name: view.transform(extract_contents(held, view.input_kind), run) for name, view in fitted.items()}
    )


def mark_known_documents(fitted: Mapping[str, FittedView], data: Dataset) -> np.ndarray:
    """(n_docs,) bool: of which documents at least one view knows a word."""
    return reduce(np.logical_or, (view.mark_known_documents(data.views[name]) for name, view in fitted.items()))


def is_batchable(views: Mapping[str, View]) -> bool:
    """Whether what is learnt from documents may be learnt from batches of them."""
    return len(views) == 1 and all(view.has_batch_support and view.input_kind == TEXTS for view in views.values())


def as_repeatable(documents: Iterable[Document | DocumentBatch], times: int) -> Iterable[Document | DocumentBatch]:
    """A stream passes through one view as it is; several views each pass over the documents, which are held for it."""
    return documents if times == 1 else list(documents)


def extract_contents(documents: Iterable[Document | DocumentBatch], content: str) -> Iterator[Any]:
    """What a view is made from: the text of each document, or its features; of a batch, all texts at once."""
    for document in documents:
        if isinstance(document, DocumentBatch):
            yield document.texts
            continue
        if (document.features is None) != (content == TEXTS):
            found, wanted = (FEATURES, TEXTS) if content == TEXTS else (TEXTS, FEATURES)
            raise XmtcError(
                f"Document {document.id!r} holds {found}, but this model reads {wanted}; give it a corpus of {wanted}."
            )
        yield document.text if content == TEXTS else document.features
