"""Registry of views, and fitting and transforming with the views that a method reads.

A view is one module of this package and one entry of VIEWS. A method that reads several views gets a mapping from view
name to features."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from xmtc.core.dataset import Bag, Dataset, Tokens
from xmtc.core.registry import Registry
from xmtc.core.run import Run, check_run
from xmtc.data.batch import DocumentBatch
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.features.view import FEATURES, TEXTS, FittedView, View

VIEWS = {
    "columns": "xmtc.features.columns:Columns",
    "tfidf": "xmtc.features.tfidf:Tfidf",
    "words": "xmtc.features.words:Words",
    "subwords": "xmtc.features.subwords:Subwords",
    "names": "xmtc.features.names:Names",
    "dense": "xmtc.features.dense:Dense",
}
VIEW_REGISTRY = Registry("view", View, VIEWS, group="xmtc.views", hint="`xmtc.features.VIEWS`")

VIEW_NUMBER_PATTERN = re.compile(r"(-\d+)+$")  # tfidf-2-2 is of a combination of combinations

Views = dict[str, View]
FittedViews = dict[str, FittedView]


def view_class(name: str) -> type[View]:
    """Return the class of a view; `tfidf-2` is a second view of the kind `tfidf`. The name may be any value."""
    return VIEW_REGISTRY.find(get_view_kind(name) if isinstance(name, str) else name)


def get_view_kind(name: str) -> str:
    """Return the name of a view without its number."""
    return VIEW_NUMBER_PATTERN.sub("", name)


def number_view(kind: str, number: int) -> str:
    """Return the name of the view with this number, from 1, among those of its kind."""
    return kind if number == 1 else f"{kind}-{number}"


def list_views(content: str) -> tuple[str, ...]:
    """Return the names of all views of texts, or of features."""
    names = (*VIEW_REGISTRY.entries, *VIEW_REGISTRY.list_working_plugins())
    return tuple(name for name in names if view_class(name).input_kind == content)


def select_views(view_names: Iterable[str], content: str = TEXTS, subject: str = "The method") -> dict[str, type[View]]:
    """Return the view classes that a method reads from a corpus of texts or of features."""
    names = (resolve_view(name, content, subject) for name in view_names)
    return {name: view_class(name) for name in names}


def resolve_view(name: str, content: str, subject: str) -> str:
    """Return a view's name, or the name of its replacement if the corpus has other content."""
    if view_class(name).input_kind == content:
        return name
    for other in list_views(content):
        if view_class(other).replaced_view == get_view_kind(name):
            return other + name.removeprefix(get_view_kind(name))
    wanted = view_class(name).input_kind
    raise XmtcError(
        f"{subject} reads {name}, but the corpus holds {content}; give a corpus of {wanted}, or choose a linear method."
    )


def sort_views(names: Iterable[str]) -> tuple[str, ...]:
    """Return distinct view names in the order of the registry; `tfidf-2`, of combined models, follows `tfidf`."""
    known = VIEW_REGISTRY.names()

    def rank(name: str) -> tuple[int, str]:
        kind = get_view_kind(name)
        return (known.index(kind) if kind in known else len(known)), name

    return tuple(sorted(set(names), key=rank))


def fit_view(
    view: View, documents: Iterable[Document | DocumentBatch], run: Run = Run(), names: Sequence[str] = ()
) -> tuple[FittedView, Bag | Tokens]:
    """Fit a view on documents, and on label names if it reads them, and return it with the documents' features."""
    options: dict[str, Any] = {"names": names} if view.is_fitted_on_label_names else {}
    return view.fit(extract_contents(documents, view.input_kind), run, **options)


def transform(
    fitted: Mapping[str, FittedView], documents: Iterable[Document | DocumentBatch], run: Run = Run()
) -> Dataset:
    """Return new documents in fitted views."""
    check_run(run)
    documents = as_repeatable(documents, len(fitted))
    return Dataset(
        {name: view.transform(extract_contents(documents, view.input_kind), run) for name, view in fitted.items()}
    )


def mark_known_documents(fitted: Mapping[str, FittedView], data: Dataset) -> np.ndarray:
    """Return which documents have a known word in at least one view, shape (n_docs,)."""
    return reduce(np.logical_or, (view.mark_known_documents(data.views[name]) for name, view in fitted.items()))


def is_batchable(views: Mapping[str, View]) -> bool:
    """Return True if the views can be fitted on batches of documents."""
    return len(views) == 1 and all(view.has_batch_support and view.input_kind == TEXTS for view in views.values())


def as_repeatable(documents: Iterable[Document | DocumentBatch], n_views: int) -> Iterable[Document | DocumentBatch]:
    """Return the stream for a single view, and a list for several views, each of which reads all documents."""
    return documents if n_views == 1 else list(documents)


def extract_contents(documents: Iterable[Document | DocumentBatch], content: str) -> Iterator[Any]:
    """Yield the text or the features of each document; for a batch, all its texts at once."""
    for document in documents:
        if isinstance(document, DocumentBatch):
            yield document.texts
            continue
        if (document.features is None) != (content == TEXTS):
            actual = FEATURES if content == TEXTS else TEXTS
            raise XmtcError(
                f"Document {document.id!r} holds {actual}, but this model reads {content}; give a corpus of {content}."
            )
        yield document.text if content == TEXTS else document.features
