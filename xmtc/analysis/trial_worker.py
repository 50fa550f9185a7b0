"""Child process of a trial: `python -m xmtc.analysis.trial_worker ANSWER_FILE`.

Reads one JSON request from standard input, calls the task that it names, and writes a JSON answer to ANSWER_FILE: an
empty object, or an object with the reason of the failure under "error". Exit status 2 means such a failure.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from xmtc.analysis.compare.saved_predictions import SavedPredictions
from xmtc.analysis.trials import FAILURE_STATUS, is_out_of_memory
from xmtc.core.hyperparameters import UnparsedValue
from xmtc.core.progress import print_to_stderr
from xmtc.core.run import Run
from xmtc.data.corpus import Corpus, open_corpus
from xmtc.data.layout import Layout, Notifier
from xmtc.data.records import Fields
from xmtc.errors import XmtcError
from xmtc.features import FEATURES, TEXTS
from xmtc.pipeline import Pipeline
from xmtc.tagger import Tagger


def train(request: Mapping[str, Any]) -> None:
    """Train a method with `xmtc train`'s defaults and save the model to request["output"]."""
    corpus = open_request_corpus(request["corpus"], request["reading"])
    parameters: dict[str, Any] = {name: UnparsedValue(value) for name, value in request["parameters"]}
    content = TEXTS
    if corpus.has_features:
        content, parameters = FEATURES, {"n_columns": corpus.n_features or 0} | parameters
    pipeline = Pipeline.from_parameters(request["method"], content, parameters)
    pipeline.fit(corpus, None, make_run(request)).save(request["output"])


def predict(request: Mapping[str, Any]) -> None:
    """Save a model's predictions for labelled documents to request["output"]."""
    tagger = Tagger.load(request["model"])
    documents = list(open_request_corpus(request["corpus"], request["reading"], tagger.about.get("reading", {})))
    SavedPredictions.from_tagger(tagger, documents, run=make_run(request)).save(Path(request["output"]))


TASKS: dict[str, Callable[[Mapping[str, Any]], None]] = {"train": train, "predict": predict}


def run_task(request: Mapping[str, Any]) -> str:
    """Run the task of a request; return the reason of an expected failure, or an empty string."""
    try:
        TASKS[request["task"]](request)
    except XmtcError as error:
        return str(error)
    except OSError as error:
        return f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return "Not enough memory; use fewer documents or a smaller model."
    return ""


def make_run(request: Mapping[str, Any]) -> Run:
    return Run(request["threads"], False, device=request["device"])


def open_request_corpus(
    path: str | list[str], reading: Mapping[str, Any], saved_reading: Mapping[str, Any] | None = None
) -> Corpus:
    """Open a corpus as the command line does: `reading` holds the reading options that were set."""
    saved = saved_reading or {}
    names = {name: reading.get(name) or saved.get(name) for name in ("text", "labels", "id", "separator")}
    return open_corpus(
        path,
        "text" if reading.get("whole") else reading.get("input_format"),
        Fields(**{name: value for name, value in names.items() if value is not None}),
        on_error=reading.get("on_error", "stop"),
        layout=Layout(
            reading.get("delimiter"),
            reading.get("encoding"),
            reading.get("sheet"),
            bool(reading.get("recursive") or saved.get("recursive")),
        ),
        layout_hint=Layout(saved.get("delimiter"), saved.get("encoding"), saved.get("sheet")),
        notifier=Notifier(print_to_stderr, bool(reading.get("strict"))),
    )


def exit_on_signal(number: int, frame: Any) -> NoReturn:
    """End with an exception, so that incomplete files are removed."""
    sys.exit(128 + number)


def main() -> None:
    signal.signal(signal.SIGTERM, exit_on_signal)
    os.environ["PYTHONSAFEPATH"] = "1"  # further children import nothing from the working directory
    answer_path, request = Path(sys.argv[1]), json.load(sys.stdin)
    failure = run_task(request)
    answer_path.write_text(json.dumps({"error": failure} if failure else {}), encoding="utf-8")
    sys.exit(FAILURE_STATUS if failure else 0)


if __name__ == "__main__":
    main()
