"""Update of a served model from the decisions of a desk, in a child process, and the switch to its result.

The updated model lies beside the served one, as `model.update-3`. The switch exchanges both folders, so that the next
exchange rolls back. Every fifth reviewed document is held out for the comparison of the models and never learnt."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple

from xmtc.core.events import COMMAND
from xmtc.core.progress import Progress, hide_progress
from xmtc.core.run import Run
from xmtc.data.document import Document
from xmtc.errors import XmtcError
from xmtc.maintenance.document_changes import NEW_ROW, DocumentFinder, Feedback
from xmtc.maintenance.update import require_training, update_tagger
from xmtc.review.agreement import collect_feedback, group_decisions
from xmtc.review.store import FAILED, HEARTBEAT_SECONDS, READY, RUNNING, SERVED, ReviewDocument, ReviewStore
from xmtc.storage.atomic import LOCK_SUFFIX, exchange, hold_lock, sync_folder, to_hidden_path
from xmtc.storage.folder import read_stamp
from xmtc.tagger import Tagger

HELD_OUT_EVERY = 5  # of the reviewed documents, by their hash
MIN_HELD_OUT = 10  # documents; metrics of fewer are not reported
METRICS = ("P@1", "P@5", "R@5", "nDCG@5")
NICENESS = 10  # an update has a lower priority than requests


@dataclass(frozen=True)
class UpdateTask:
    """Update to run in a child process."""

    desk: str  # path of the store
    model: str
    folder: str
    number: int
    threads: int = 1
    device: str = "auto"


class ReviewedSplit(NamedTuple):
    """Reviewed documents: those to learn, and those to compare the models with."""

    feedback: list[Feedback]
    learnt: list[tuple[int, int]]  # documents to learn, and their latest decisions
    held_out: list[Document]


def start_update_process(task: UpdateTask) -> SpawnProcess:
    """Start an update and return its process, which ends with this one."""
    process = get_context("spawn").Process(target=run_update, args=(task,), daemon=True)
    process.start()
    return process


def run_update(task: UpdateTask) -> None:
    """Update a model; the store receives the progress and the report."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    store, stop = ReviewStore(task.desk, must_exist=True), threading.Event()
    messages = [""]  # the last one is shown

    def report_progress(title: str, total: float | None = None) -> AbstractContextManager[Progress]:
        messages.append(title)
        return hide_progress(title, total)

    def beat() -> None:
        while not stop.wait(HEARTBEAT_SECONDS):
            store.change_update(task.number, RUNNING, messages[-1])

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    state, message, report = FAILED, "", None
    try:
        report = update_model(task, store, Run(threads=task.threads, device=task.device, progress=report_progress))
        state = READY
    except XmtcError as error:
        message = str(error)
    except Exception as error:
        message = f"Internal error ({type(error).__name__})."
    finally:
        stop.set()
        thread.join()
        store.change_update(task.number, state, message, report)
        store.close()


def update_model(task: UpdateTask, store: ReviewStore, run: Run) -> dict[str, Any]:
    """Write the updated model beside the served one and return a report."""
    stamp, tagger = read_stamp(task.folder), Tagger.load(task.folder)
    split = split_reviewed(task, store, tagger)
    if not split.feedback:
        raise XmtcError("No decision has come since the last update; review documents first.")
    updated = update_tagger(tagger, feedback=split.feedback, run=run)
    entry = {"event": COMMAND, "command": f"update {task.number} of a review desk"}
    target = get_update_folder(task.folder, task.number)
    replace(updated.tagger, history=(*tagger.history, entry)).save(target)
    store.save_learnt(task.number, split.learnt)
    report = updated.report
    return {
        "n_learnt": len(split.learnt),
        "n_held_out": len(split.held_out),
        "summary": str(report),
        "new_labels": list(report.new_labels),
        "removed_labels": list(report.removed_labels),
        **compare_models(tagger, Tagger.load(target), split.held_out, run),
        "base": list(stamp),
        "result": list(read_stamp(target)),
    }


def split_reviewed(task: UpdateTask, store: ReviewStore, tagger: Tagger) -> ReviewedSplit:
    """Divide the reviewed documents; those that the served model has learnt with the same decisions are left out."""
    parent = store.get_update(task.model, task.number)["parent"]
    is_chained = parent is not None and store.get_update(task.model, parent)["report"].get("result") == list(
        read_stamp(task.folder)
    )
    learnt_before = store.list_learnt(parent) if is_chained else {}
    decisions = store.list_decisions(task.model)
    latest = {number: group[-1].number for number, group in group_decisions(decisions).items()}
    finder = DocumentFinder(require_training(tagger))
    split = ReviewedSplit([], [], [])
    for document, feedback, reviewed in collect_feedback(store.list_documents(task.model), decisions):
        if is_held_out(document):
            is_unseen = finder.find(feedback.document) == NEW_ROW
            split.held_out.extend([feedback.document] if reviewed.labels and is_unseen else [])
        elif learnt_before.get(document.number) != latest[document.number]:
            split.feedback.append(feedback)
            split.learnt.append((document.number, latest[document.number]))
    return split


def is_held_out(document: ReviewDocument) -> bool:
    """Return True for every fifth document, by the hash of its text."""
    return int(document.hash[:8], 16) % HELD_OUT_EVERY == 0


def compare_models(before: Tagger, after: Tagger, held_out: Sequence[Document], run: Run) -> dict[str, Any]:
    """Return the metrics of both models on held-out documents, and the number of documents with other labels."""
    if len(held_out) < MIN_HELD_OUT:
        return {"before": {}, "after": {}, "n_changed": 0}
    metrics = [
        {name: round(value, 4) for name, value in tagger.evaluate(held_out, METRICS, run=run).items()}
        for tagger in (before, after)
    ]
    texts = [document.text for document in held_out]
    first, second = (
        [[tag.label for tag in tags] for tags in tagger.predict_labels(texts, 5, run=run)] for tagger in (before, after)
    )
    n_changed = sum(one != other for one, other in zip(first, second, strict=True))
    return {"before": metrics[0], "after": metrics[1], "n_changed": n_changed}


def get_update_folder(folder: str | Path, number: int) -> Path:
    """Return the folder of the updated model; after the switch, it has the former model."""
    target = Path(os.path.realpath(folder))
    return target.with_name(f"{target.name}.update-{number}")


def switch_model(store: ReviewStore, model: str, folder: str, number: int) -> None:
    """Serve the result of an update; the model before is kept."""
    update = store.get_update(model, number)
    if update["state"] != READY:
        raise XmtcError(f"Update {number} is {update['state']}; only a finished update can be served.")
    exchange_models(folder, number, update["report"]["base"], update["report"]["result"])
    store.change_update(number, SERVED)


def roll_back(store: ReviewStore, model: str, folder: str, number: int) -> None:
    """Serve the former model again; the result of the update is kept."""
    update = store.get_update(model, number)
    if number != store.find_served_update(model):
        raise XmtcError(f"Update {number} is {update['state']}; only the last served update can be rolled back.")
    exchange_models(folder, number, update["report"]["result"], update["report"]["base"])
    store.change_update(number, READY)


def exchange_models(folder: str, number: int, expected: list[int], wanted: list[int]) -> None:
    """Exchange the served model and that of an update in one step, if the system supports it.

    Nothing is left to do if a process was killed after it has exchanged them."""
    served, other = Path(os.path.realpath(folder)), get_update_folder(folder, number)
    try:
        with hold_lock(to_hidden_path(served, LOCK_SUFFIX)):
            if list(read_stamp(served)) == wanted:
                return
            if list(read_stamp(served)) != expected:
                raise XmtcError(f"The model {served.name} has been replaced since this update; start a new one.")
            if not read_stamp(other):
                raise XmtcError(f"The folder {other.name} is missing; start a new update.")
            if not exchange(other, served):
                aside = to_hidden_path(served, f"exchange-{number}")
                os.replace(served, aside)
                os.replace(other, served)
                os.replace(aside, other)
            sync_folder(served.parent)
    except OSError as error:
        raise XmtcError(f"The folders of {served.name} cannot be exchanged ({error.strerror or error}).") from None
