"""Models that were trained apart, made one: `xmtc combine MODEL MODEL -o BOTH`.

Each keeps the views that it was trained with; those that are the same to the last number are held, and computed, once.
Labels are matched by their names: one that a model does not have, it never names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import xmtc
from xmtc.core.history import add_name_prefix
from xmtc.core.method import Model
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.features import FittedViews
from xmtc.methods.ensemble.calibrated_model import calibrate_combination, strip_calibration
from xmtc.methods.ensemble.combination_rules import NOISY_OR
from xmtc.methods.ensemble.model import CombinedModel, RemappedModel
from xmtc.pipeline import build_labelled_dataset
from xmtc.storage.form import is_equal
from xmtc.tagger import Tagger
from xmtc.text.string_index import StringIndex


def combine(
    taggers: Sequence[Tagger], rule: str = NOISY_OR, valid: Sequence[Document] | None = None, run: Run = Run()
) -> Tagger:
    """One Tagger of several. With documents that none of them has learnt from, its scores become probabilities."""
    if len(taggers) < 2:
        raise XmtcError(f"Found {len(taggers)} models to combine, expected at least two.")
    contents = {view.input_kind for tagger in taggers for view in tagger.views.values()}
    if len(contents) > 1:
        raise XmtcError("Some of the models read texts, others features, and no corpus holds both; combine one kind.")
    run, told = run.record_history()
    labels = StringIndex.from_strings(sorted({name for tagger in taggers for name in tagger.labels.words()}))
    views: FittedViews = {}
    models = []
    for tagger in taggers:
        names = {name: choose_view_name(views, name, view) for name, view in tagger.views.items()}
        views |= {names[name]: view for name, view in tagger.views.items()}
        models.append(adapt_model(tagger, names, labels))

    sizes = {name: view.size for name, view in views.items()}
    together = CombinedModel(n_labels=len(labels), views=sizes, rule=rule, models=tuple(models))
    held_out = None if valid is None else build_labelled_dataset(views, labels, valid, run)
    model = together if held_out is None else calibrate_combination(together, held_out, run)
    about = describe_combination(taggers, rule, None if valid is None else len(valid), sizes, len(labels))
    before = [entry for i, tagger in enumerate(taggers) for entry in add_name_prefix(tagger.history, f"member-{i}")]
    history = (*before, *told)
    combined = Tagger(views, labels, merge_frequencies(taggers, labels), model, about, history=history)
    return attach_vocabulary_and_filter(combined, taggers)


def attach_vocabulary_and_filter(combined: Tagger, taggers: Sequence[Tagger]) -> Tagger:
    """With the first vocabulary among the models; and what one of them may not answer, all together may not."""
    for tagger in taggers:
        if tagger.concepts is not None:
            combined = combined.with_vocabulary(tagger.concepts.vocabulary, tagger.concepts.language)
            break
    denied = {
        label
        for tagger in taggers
        if tagger.allowed is not None
        for label, may in zip(tagger.labels.words(), tagger.allowed, strict=True)
        if not may
    }
    return combined.with_filter(deny=sorted(denied)) if denied else combined


def choose_view_name(views: FittedViews, name: str, view: Any) -> str:
    """The name of the same view, if it is there; else one that is free: tfidf, tfidf-2 ..."""
    number, candidate = 1, name
    while candidate in views and not is_equal(views[candidate], view):
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def adapt_model(tagger: Tagger, names: dict[str, str], labels: StringIndex) -> Model:
    """A tagger's model for the views and labels of all; as it is, where they are its own."""
    model = strip_calibration(tagger.model)  # whose own curve says nothing of all together
    if all(name == here for name, here in names.items()) and is_equal(tagger.labels, labels):
        return model
    return RemappedModel(
        n_labels=len(labels),
        views={names[name]: size for name, size in model.views.items()},
        model=model,
        names=names,
        numbers=labels.find_packed(tagger.labels.text, tagger.labels.ends),
    )


def merge_frequencies(taggers: Sequence[Tagger], labels: StringIndex) -> np.ndarray:
    """How often each label occurred in training; where the trainings differed, in the one that saw it most."""
    found = np.zeros(len(labels), np.int64)
    for tagger in taggers:
        numbers = labels.find_packed(tagger.labels.text, tagger.labels.ends)
        found[numbers] = np.maximum(found[numbers], tagger.frequencies)
    return found


def describe_combination(
    taggers: Sequence[Tagger], rule: str, n_valid: int | None, sizes: dict[str, int], n_labels: int
) -> dict[str, Any]:
    """As a consensus of the same methods would be described."""
    abouts = [tagger.about for tagger in taggers]
    members = [{"method": about["method"], "parameters": about["parameters"]} for about in abouts]
    readings = [about.get("reading", {}) for about in abouts]
    packages = {about.get("package", "xmtc") for about in abouts} - {"xmtc"}
    chosen = [about["chosen"] for about in abouts if "chosen" in about][:1]  # the analyzer, where it was found out
    return {
        "xmtc": xmtc.__version__,
        "method": "consensus",
        "parameters": {"members": members, "rule": rule, "calibrated": n_valid is not None},
        "package": next(iter(sorted(packages)), "xmtc"),
        "views": {name: view for about in abouts for name, view in about["views"].items()},
        "sizes": sizes,
        "n_docs": max(about["n_docs"] for about in abouts),
        "n_labels": n_labels,
        "data": " ".join(dict.fromkeys(about["data"] for about in abouts)),
        "scores": describe_combined_scores(n_valid),
        **({"reading": readings[0]} if readings[0] and readings == readings[:1] * len(readings) else {}),
        **({"chosen": chosen[0]} if chosen else {}),
    }


def describe_combined_scores(n_valid: int | None) -> dict[str, Any]:
    """As of a training: what the score of all together is, and why."""
    if n_valid is None:
        return {"are": "raw", "because": "no documents tell what they mean: give some with --valid"}
    return {"are": "probabilities", "documents": n_valid, "because": f"{n_valid:,} documents tell what they mean"}
