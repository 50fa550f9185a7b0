"""Campaign with extreme values of every parameter of every method and view, through Python and the command line.

    python -m tests.campaigns.parameters --minutes 2 --seed 0

Allowed is a training whose answers are finite, ranked and distinct, or a refusal in one sentence (XmtcError; of the
command, exit status 2). All else is a finding: another exception, a warning about numbers, too much memory or time.
Every case runs in a process of its own, with little memory and for a limited time. The seed decides the order."""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from xmtc import METHODS, Classifier, XmtcError
from xmtc.core.hyperparameters import ParameterSet, get_bounds, get_value_type, is_multi_valued, to_short_repr
from xmtc.core.predictions import NO_LABEL, Predictions
from xmtc.core.run import Run
from xmtc.errors import MissingExtra
from xmtc.features import TEXTS, view_class
from xmtc.methods import method_class
from xmtc.parameters import collect_all_parameters
from xmtc.tagger import Tagger
from xmtc.testing import make_planted_corpus

HERE = Path(__file__).resolve().parents[1]
N_DOCS, N_COLUMNS = 60, 50
MEMORY = 6 * 2**30  # bytes of address space: PyTorch alone takes some
SECONDS = 60.0  # for one case on a busy machine
IN_COMMANDS = 0.1  # share of cases that use the command

NAN, INF = float("nan"), float("inf")
STRANGE: list[Any] = [
    None, NAN, INF, -INF, "", "x", "0", b"1", [], (), {}, [1], object, 2**64, -(10**30), 10**5000, 1j,
]  # fmt: skip
WHOLE: list[Any] = [
    0, -1, 1, 2, 3, 7, 100, 10**6, 10**9, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), 2.0, 2.5, True, np.int8(3), *STRANGE,
]  # fmt: skip
NUMBERS: list[Any] = [
    0.0, -0.0, 1e-300, 5e-324, 1e-30, 1e-6, 0.5, 1, 1.5, 1e3, 1e6, 1e9, 1e30, 1e300, -1.0, np.float32(0.1), *STRANGE,
]  # fmt: skip
TEXT: list[Any] = [
    "", " ", "x", "x" * 100_000, "\0", "\ud800", "nan", "/", "/dev/null", ".", "..", "é", "a\nb", 1, 0.5, *STRANGE,
]  # fmt: skip
TRUTH: list[Any] = [True, False, 0, 1, 2, np.True_, "true", "no", *STRANGE]
SEVERAL: list[Any] = [
    (), (0,), (1,), (-1,), (10**9,), (10**9, 10**9), (NAN,), (INF,), ("x",), (None,), [2, 2], (1,) * 500, (1e-300, 1.0),
]  # fmt: skip
OF_KIND: dict[Any, list[Any]] = {int: WHOLE, float: NUMBERS, bool: TRUTH, str: TEXT}
METHOD_VALUES = ["", "parabel", "nothing", "ensemble", method_class, *STRANGE]

SCALES = [0.0, 1e-45, 1e-38, 1e-20, 1.0, 1e6, 1e14, 1e20, 3e38, 1e300, NAN, INF]
CALLS: dict[str, list[Any]] = {
    "k": WHOLE,
    "threshold": NUMBERS,
    "threads": WHOLE,
    "device": ["nonsense", "cpu:99", "cuda:99", "cuda:-1", "meta", *TEXT],
    "weight": NUMBERS,
    "weights": [1e-12, 1e12, 1e-45, 3e38, 1e300, 0.0, NAN, INF, -1.0],
    "scale": SCALES,
    "raw scale": SCALES,
    "raw scales": SCALES,
}


@dataclass(frozen=True)
class ParameterCase:
    method: str
    name: str
    value: Any
    way: str  # texts, columns, call or command

    def __str__(self) -> str:
        return f"{self.method} {self.way} {self.name}={to_short_repr(self.value)}"


def get_quick_parameters(method: str) -> dict[str, Any]:
    """Return fast parameters of a method; methods that read an encoder are skipped without one."""
    kind = method_class(method)
    one_pass = {"epochs": 1} if "epochs" in {field.name for field in fields(kind)} else {}
    if not {"subwords", "dense"}.intersection(kind().required_views):
        return kind.quick_parameters | one_pass
    sys.path.append(str(HERE))
    from tiny_encoders import tiny

    name = "encoder" if "subwords" in kind().required_views else "sentence_encoder"
    return {name: tiny("bert"), **kind.quick_parameters, **one_pass}


def list_values(field: Field) -> list[Any]:
    """Yield the extreme and the invalid values of a parameter."""
    low, high, choices = get_bounds(field)
    edges = [bound for bound in (low, high) if bound is not None]
    edges += [edge + step for edge in edges for step in (-1, 1)]
    kind = get_value_type(field)
    values = METHOD_VALUES if kind is ParameterSet else OF_KIND[kind]
    if is_multi_valued(field):
        values = [*SEVERAL, *((value,) for value in edges), *values]
    return [*edges, *choices, *values]


def make_cases(seed: int) -> list[ParameterCase]:
    """Yield all cases in an order that depends only on the seed, methods and parameters alternating."""
    rng, found = random.Random(seed), []
    for method in METHODS:
        with suppress(MissingExtra):
            known = collect_all_parameters(method, get_quick_parameters(method))
            of_columns = {field.name for field in fields(view_class("columns"))}
            for name, (field, _) in known.items():
                for value in list_values(field):
                    way = "columns" if name in of_columns else "command" if rng.random() < IN_COMMANDS else TEXTS
                    found.append(ParameterCase(method, name, value, way))
            found += [ParameterCase(method, name, value, "call") for name, values in CALLS.items() for value in values]
    rng.shuffle(found)
    return found


def run_case(case: ParameterCase, folder: Path) -> str:
    """Run a case and return its outcome; the caller judges exceptions."""
    if case.way == "command":
        return train_by_command(case, folder)
    train: Callable[[ParameterCase], tuple[Classifier, Any, Predictions]] = (
        call_with_argument if case.way == "call" else train_with_parameter
    )
    classifier, documents, answer = train(case)
    check(answer, len(documents) if isinstance(documents, list) else documents.shape[0])
    classifier.save(folder / "model")
    Tagger.load(folder / "model").check()
    return "trained"


def stop_after_epoch(event: Any) -> bool:
    """Stop the training of a network after its first epoch."""
    return True


def train_with_parameter(case: ParameterCase) -> tuple[Classifier, Any, Predictions]:
    """Train with one extreme parameter."""
    texts, labels = make_planted_corpus(N_DOCS, seed=0)
    documents = texts if case.way == TEXTS else make_matrix(1.0)
    given = get_quick_parameters(case.method) | {case.name: case.value}
    if case.way != TEXTS:
        given.pop("max_subwords", None)
    run = Run(threads=1, device="cpu", callbacks=stop_after_epoch)
    classifier = Classifier(case.method, **given).fit(documents, labels, run=run)
    return classifier, documents, classifier.rank(documents, 5, Run(threads=1, device="cpu"))


def make_matrix(scale: float, mixed: bool = False) -> csr_array:
    """Return documents as rows of signs times a scale; if mixed, every other row consists of ones."""
    rng = np.random.default_rng(0)
    values = rng.choice([-1.0, 0.0, 0.0, 1.0], (N_DOCS, N_COLUMNS))
    scales = np.where(np.arange(N_DOCS) % 2 & mixed, 1.0, scale)[:, None]
    return csr_array(np.multiply(values, scales, out=np.zeros_like(values), where=values != 0))


def call_with_argument(case: ParameterCase) -> tuple[Classifier, Any, Predictions]:
    """Train and predict with an extreme argument other than a parameter."""
    labels, name, value = make_planted_corpus(N_DOCS, seed=0)[1], case.name, case.value
    of_features = "scale" in name or "weight" in name
    documents = make_matrix(value, name == "raw scales") if "scale" in name else make_matrix(1.0)
    views = method_class(case.method)().required_views
    if not of_features or {"words", "subwords", "dense"}.intersection(views):
        documents = make_planted_corpus(N_DOCS, seed=0)[0]
    weights = {"weight": [value] * N_DOCS, "weights": [value, *[1.0] * (N_DOCS - 1)]}.get(name)
    set_up = {name: value} if name in ("threads", "device") else {}
    given = get_quick_parameters(case.method) | ({"unit_length": False} if name.startswith("raw") else {})

    run = Run(**({"threads": 1, "device": "cpu"} | set_up), callbacks=stop_after_epoch)
    classifier = Classifier(case.method, **given).fit(documents, labels, sample_weight=weights, run=run)
    answer = classifier.rank(documents, value if name == "k" else 5, Run(**({"threads": 1, "device": "cpu"} | set_up)))
    return classifier, documents, answer.apply_threshold(value) if name == "threshold" else answer


def check(answer: Predictions, n_docs: int) -> None:
    assert answer.n_docs == n_docs, f"{answer.n_docs} answers to {n_docs} documents"
    assert np.isfinite(answer.scores).all(), "scores are not finite"
    assert ((answer.scores >= 0) & (answer.scores <= 1)).all(), "scores are not between 0 and 1"
    for row, scores in zip(answer.labels, answer.scores, strict=True):
        named = row != NO_LABEL
        assert len(set(row[named])) == named.sum(), "a label is named twice"
        assert (np.diff(scores[named]) <= 0).all(), "scores do not fall"


def train_by_command(case: ParameterCase, folder: Path) -> str:
    from typer.testing import CliRunner

    from xmtc.cli import app

    texts, labels = make_planted_corpus(N_DOCS, seed=0)
    lines = (json.dumps({"text": text, "labels": tags}) for text, tags in zip(texts, labels, strict=True))
    corpus, model = folder / "corpus.jsonl", folder / "model"
    corpus.write_text("\n".join(lines) + "\n")
    given = get_quick_parameters(case.method) | {case.name: case.value}
    words = [word for name, value in given.items() for word in ("-p", f"{name}={format_argument(value)}")]
    train = [
        "train",
        str(corpus),
        "-m",
        case.method,
        "-o",
        str(model),
        "--threads",
        "1",
        "--device",
        "cpu",
        "-q",
        *words,
    ]
    for command in (train, ["predict", str(model), str(corpus), "--threads", "1", "--device", "cpu", "-q"]):
        done = CliRunner().invoke(app, command)
        if isinstance(done.exception, XmtcError) or done.exit_code == 2:
            raise XmtcError(str(done.exception))
        if done.exception is not None:
            raise done.exception
    rows = [json.loads(line)["labels"] for line in done.stdout.splitlines()]
    assert len(rows) == N_DOCS, f"{len(rows)} answers to {N_DOCS} documents"
    assert all(np.isfinite(tag["score"]) for row in rows for tag in row), "scores are not finite"
    return "trained by the command"


def format_argument(value: Any) -> str:
    """Return the value as text after -p name=; Python does not write numbers with more than 4,300 digits."""
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    return "9" * 5000 if isinstance(value, int) and value > 10**4000 else str(value)


def run_limited(case: ParameterCase) -> str:
    """Run a case in a process with little memory; return "ok …" or the problem."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", RuntimeWarning)  # numpy's warnings about NaN
    with tempfile.TemporaryDirectory() as folder:
        try:
            return f"ok {run_case(case, Path(folder))}"
        except XmtcError as error:
            sentence = str(error)
            return "ok refused" if 0 < len(sentence) < 5000 else f"a sentence of {len(sentence)} characters"
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__}: {str(error)[:200]} ({Path(last.filename).name}:{last.lineno})"


def run_in_process(case: ParameterCase, seconds: float = SECONDS) -> str:
    """Run a case in its own process and return the outcome."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        try:
            os.write(writer, run_limited(case).encode(errors="replace")[:4000])
        finally:
            os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], seconds)
    if not ready:
        os.kill(child, signal.SIGKILL)
    said = os.read(reader, 4000).decode(errors="replace") if ready else f"takes longer than {seconds:g} seconds"
    os.close(reader)
    _, status = os.waitpid(child, 0)
    return said or f"ended without a word, status {status}"


def warm_up() -> None:
    """Compile and import before other processes start; one thread, because others do not survive a fork."""
    with suppress(ImportError):
        import torch

        torch.set_num_threads(1)
    for method in METHODS:
        for content in (TEXTS, "columns"):
            name, value = ("rule", "mean") if method == "consensus" else ("seed", 0)
            with suppress(XmtcError):  # missing extras, and methods without features as input
                train_with_parameter(ParameterCase(method, name, value, content))


def run_campaign(seed: int, seconds: float, most: int | None = None) -> tuple[int, list[tuple[ParameterCase, str]]]:
    """Return the number of cases and the findings."""
    warm_up()
    begin, tried, findings = time.monotonic(), 0, []
    for case in make_cases(seed)[:most]:
        if time.monotonic() - begin > seconds:
            break
        said, tried = run_in_process(case), tried + 1
        if not said.startswith("ok "):
            findings.append((case, said))
            print(f"FINDING {case}: {said}", flush=True)
    return tried, findings


def main(words: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=2.0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--cases", type=int, help="no more than so many")
    given = options.parse_args(words)
    tried, findings = run_campaign(given.seed, 60 * given.minutes, given.cases)
    n_cases = len(make_cases(given.seed))
    print(f"parameters: {tried:,} of {n_cases:,} cases tried, seed {given.seed}, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
