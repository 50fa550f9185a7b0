"""xmtc train: a model from a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.help import ADVANCED, PERFORMANCE
from xmtc.cli.history import get_command_entry
from xmtc.cli.options import (
    ClusterOption,
    CorpusOptions,
    CorpusPaths,
    DeviceOption,
    LanguageOption,
    LogJsonOption,
    ParameterOption,
    QuietOption,
    ThreadsOption,
    WorkersOption,
    make_run,
    open_corpus_input,
    report_rejects,
    with_corpus_options,
    with_corpus_prefetch,
)
from xmtc.cli.streams import echo
from xmtc.cli.vocab import open_vocabulary, report_problems

if TYPE_CHECKING:
    from xmtc.core.checkpoint import Checkpoint
    from xmtc.core.hyperparameters import UnparsedValue
    from xmtc.core.run import Run
    from xmtc.data.corpus import Corpus
    from xmtc.pipeline import Pipeline
    from xmtc.tagger import Tagger
    from xmtc.training_plan import TrainingPlan
    from xmtc.vocabulary import Vocabulary


@with_corpus_options()
@with_corpus_prefetch
def train(
    corpus: CorpusPaths,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="MODEL", help="Model folder to write; a model in it is replaced.")
    ],
    method: Annotated[
        str, typer.Option("-m", "--method", metavar="NAME", help="Method; `xmtc methods` lists them.")
    ] = "parabel",
    parameter: ParameterOption = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.1, metavar="N", help="Time budget of method auto, in minutes; 10 by default.")
    ] = None,
    valid: Annotated[
        str | None, typer.Option(metavar="CORPUS", help="Validation corpus for early stopping and calibration.")
    ] = None,
    vocab: Annotated[
        str | None,
        typer.Option(
            metavar="VOCAB", help="Vocabulary of the labels: a folder of `xmtc vocab import`, a SKOS file or a table."
        ),
    ] = None,
    language: LanguageOption = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Checkpoint directory; an interrupted training resumes from it."),
    ] = None,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    workdir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Directory for memory-mapped arrays (training larger than RAM).",
            rich_help_panel=PERFORMANCE,
        ),
    ] = None,
    cluster: ClusterOption = "",
    workers: WorkersOption = 0,
    reading: CorpusOptions = CorpusOptions(),
    keep_training: Annotated[
        bool | None,
        typer.Option(
            help="Training data (ids, features, labels) stored in the model for `xmtc update`; by default up to 200 "
            "MiB.",
            show_default=False,
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
) -> None:
    """Train a model on labelled documents."""
    import time
    from dataclasses import replace

    from xmtc import model_folder
    from xmtc.core.process_rank import is_first_process

    start = time.perf_counter()
    check_workers(workers, cluster)
    run = make_run(threads, quiet, checkpoint, device, log_json, workdir, cluster, workers)
    model_folder.check_target(output)
    check_language_option(language, vocab)
    vocabulary = None if vocab is None else open_vocabulary(vocab, language, quiet)
    source = open_corpus_input(corpus, reading, quiet=quiet)
    valid_source = open_corpus_input(valid, replace(reading, rejects=None), quiet=quiet) if valid else None
    parameters = [*(parameter or []), *as_minutes_parameter(method, minutes)]
    pipeline = add_vocabulary_parameter(build_pipeline(method, parameters, source), vocab)
    check_workdir_option(workdir, pipeline, method)
    if vocabulary is not None and language is None:
        language = detect_name_language(vocabulary, source)
    if cluster and not quiet and not pipeline.method.has_cluster_support:
        echo(f"{method} trains on one machine; --cluster has no effect on its training.", err=True)
    with report_checkpoint_on_interrupt(run.checkpoint):
        if not source.is_pipe:
            pipeline = pipeline.with_plan(source, run)
            if pipeline.plan is not None and not quiet:
                echo(describe_plan(pipeline.plan, corpus), err=True)
        tagger, warning = fit_and_collect_warning(pipeline, source, valid_source, run, keep_training)
    if not is_first_process():  # of the processes that torchrun starts, the first saves the model
        return
    if vocabulary is not None:
        tagger = tagger.with_vocabulary(vocabulary, language)
        report_problems(tagger)
    if warning:
        echo(f"Warning: {warning}", err=True)
    tagger = replace(tagger, history=(*tagger.history, get_command_entry()))
    save_model(tagger, output, run.checkpoint)
    run.checkpoint.remove()
    report_rejects(source)
    if valid_source is not None:
        report_rejects(valid_source)
    if not quiet:
        print_training_summary(tagger, output, method, time.perf_counter() - start)


def detect_name_language(vocabulary: Vocabulary, source: Corpus) -> str | None:
    """Return the language of the texts if the vocabulary has names in it; None for a pipe, which is read once."""
    from xmtc.text.languages import detect_text_language
    from xmtc.vocabulary.label_names import find_language_code

    if source.is_pipe:
        return None
    return find_language_code(vocabulary, detect_text_language(document.text for document in source))


def as_minutes_parameter(method: str, minutes: float | None) -> list[str]:
    """Return --minutes as a -p option."""
    from xmtc.errors import XmtcError

    if minutes is None:
        return []
    if method != "auto":
        raise XmtcError(f"--minutes is the time budget of method auto, and {method} has none; add -m auto.")
    return [f"minutes={minutes}"]


def fit_and_collect_warning(
    pipeline: Pipeline, source: Corpus, valid_source: Corpus | None, run: Run, keep_training: bool | None
) -> tuple[Tagger, str]:
    """Return the trained tagger, and a warning about classifiers that did not converge, or an empty string."""
    from dataclasses import replace
    from functools import partial

    from xmtc.core.events import Convergence, collect_convergence, merge_convergence

    parts: list[Convergence] = []
    run = replace(run, callbacks=(*run.callback_tuple, partial(collect_convergence, parts)))
    tagger = pipeline.fit(source, valid_source, run, keep_training=keep_training)
    return tagger, merge_convergence(parts).warning


def describe_plan(plan: TrainingPlan, corpus: list[str]) -> str:
    """Return the plan of method auto: the command that repeats it, the expected time and the reason."""
    import shlex

    time = f", about {plan.seconds:.0f} s of {60 * plan.minutes:.0f} s" if plan.seconds else ""
    return f"Plan{time}: xmtc train {shlex.join(corpus)} {plan.arguments} -o MODEL\nReason: {plan.reason}."


def check_workers(workers: int, cluster: str) -> None:
    from xmtc.errors import XmtcError

    if workers and not cluster:
        raise XmtcError("--cluster-workers needs --cluster; without a cluster, start the processes with torchrun.")


def check_language_option(language: str | None, vocab: str | None) -> None:
    from xmtc.errors import XmtcError

    if language is not None and vocab is None:
        raise XmtcError(
            "--language is the language of label names and needs --vocab; for texts in another language, set the "
            "analyzer, for example with -p analyzer=snowball:german."
        )


@contextmanager
def report_checkpoint_on_interrupt(checkpoint: Checkpoint) -> Iterator[None]:
    """Print how to resume a training that the user stops."""
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint.is_claimed:
            echo(f"Stopped. Run the same command again to resume from {checkpoint.folder}.", err=True)
        raise


def print_training_summary(tagger: Tagger, output: Path, method: str, seconds: float) -> None:
    from xmtc.features.columns import FittedColumns
    from xmtc.features.names import FittedNames

    if chosen := tagger.about.get("chosen"):
        echo(f"analyzer={chosen['analyzer']}: {chosen['because']}.", err=True)
    if chosen_names := tagger.about.get("chosen_names"):
        echo(describe_name_choice(chosen_names), err=True)
    if isinstance(names := tagger.views.get("names"), FittedNames):
        echo(f"Label names are compared with stemming={names.stemming}.", err=True)
    if isinstance(columns := tagger.views.get("columns"), FittedColumns):
        echo(f"The features of each document were {columns.describe_scaling()}.", err=True)
    scores = tagger.about["scores"]
    echo(f"Scores are {scores['are']}: {scores['because']}.", err=True)
    echo(
        f"{output}: {method} trained on {describe_training_data(tagger)} in {seconds:.1f} s. "
        f"Next: xmtc evaluate {output} CORPUS",
        err=True,
    )


def describe_name_choice(chosen: dict[str, Any]) -> str:
    """Return the entry chosen_names of about.json as a sentence."""
    from xmtc.name_documents import NameChoice, NameScale

    scale = NameScale(chosen["weight"], chosen["length"])
    choice = NameChoice(scale, chosen["because"], chosen.get("names", 0), chosen.get("unseen_labels", 0))
    return str(choice)


def check_workdir_option(workdir: Path | None, pipeline: Pipeline, method: str) -> None:
    """Raise XmtcError if the folder cannot be written, or the method would not use it."""
    from xmtc.errors import XmtcError
    from xmtc.storage.disk_arrays import check_workdir

    if workdir is None:
        return
    if not (pipeline.method.has_workdir_support or any(view.uses_workdir for view in pipeline.views.values())):
        raise XmtcError(
            f"--workdir applies to tf-idf of texts and to label trees, but {method} reads {', '.join(pipeline.views)} "
            "of this corpus; leave it out, or choose parabel, or a linear method and a corpus of texts."
        )
    check_workdir(workdir)


def save_model(tagger: Tagger, output: Path, checkpoint: Checkpoint) -> None:
    """Write the model. If that fails, keep the checkpoint, or save the model in a temporary folder."""
    import tempfile

    from xmtc.errors import XmtcError

    try:
        tagger.save(output)
    except XmtcError as error:
        if checkpoint.is_claimed:
            raise XmtcError(
                f"{error} The checkpoint is kept: repeat the command with --checkpoint {checkpoint.folder} and another "
                "-o."
            ) from None
        place = Path(tempfile.mkdtemp(prefix="xmtc-")) / "model"
        try:
            tagger.save(place)
        except XmtcError:
            place.parent.rmdir()
            raise error from None
        raise XmtcError(f"{error} The trained model was saved to {place} instead; move it from there.") from None


def parse_parameters(parameters: list[str]) -> dict[str, UnparsedValue]:
    """Return the values of -p NAME=VALUE options by name."""
    from xmtc.core.hyperparameters import UnparsedValue
    from xmtc.errors import XmtcError

    values: dict[str, UnparsedValue] = {}
    for parameter in parameters:
        name, equals, value = parameter.partition("=")
        if not equals:
            raise XmtcError(f"-p {parameter} has no value; expected -p NAME=VALUE.")
        values[name] = UnparsedValue(value)
    return values


def build_pipeline(method: str, parameters: list[str], source: Corpus) -> Pipeline:
    """Return the pipeline of a method with -p options, for the texts or features of a corpus."""
    from xmtc.features import FEATURES, TEXTS
    from xmtc.pipeline import Pipeline

    values: dict[str, Any] = dict(parse_parameters(parameters))
    if not source.has_features:
        return Pipeline.from_parameters(method, TEXTS, values)
    return Pipeline.from_parameters(method, FEATURES, {"n_columns": source.n_features or 0} | values)


def add_vocabulary_parameter(pipeline: Pipeline, vocab: str | None) -> Pipeline:
    """Return the pipeline with --vocab as the vocabulary of lexical methods, unless -p sets another."""
    unset = [name for name, (_, value) in pipeline.parameters.items() if name.endswith("vocabulary") and not value]
    return pipeline.with_parameters(dict.fromkeys(unset, vocab)) if vocab and unset else pipeline


def describe_training_data(tagger: Tagger) -> str:
    """Return the sizes of the training data as text."""
    from xmtc.features import view_class

    about = tagger.about
    sizes = [
        f"{about['n_labels']:,} labels",
        *(f"{size:,} {view_class(view).unit}" for view, size in about["sizes"].items()),
    ]
    return f"{about['n_docs']:,} documents with {' and '.join(sizes)}"
