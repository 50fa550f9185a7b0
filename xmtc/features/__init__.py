"""Views: feature representations of documents. See `xmtc.features.view` for the base classes."""

from xmtc.features.view import FEATURES, TEXTS, FittedView, View
from xmtc.features.views import (
    VIEW_REGISTRY,
    VIEWS,
    FittedViews,
    Views,
    as_repeatable,
    extract_contents,
    fit_view,
    is_batchable,
    list_views,
    mark_known_documents,
    resolve_view,
    select_views,
    sort_views,
    transform,
    view_class,
)

__all__ = [
    "FEATURES",
    "TEXTS",
    "VIEWS",
    "VIEW_REGISTRY",
    "FittedView",
    "FittedViews",
    "View",
    "Views",
    "as_repeatable",
    "extract_contents",
    "fit_view",
    "is_batchable",
    "list_views",
    "mark_known_documents",
    "resolve_view",
    "select_views",
    "sort_views",
    "transform",
    "view_class",
]
