"""xmtc train: a corpus in, a model folder out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.options import (
    ClusterOption,
    CorpusOptions,
    CorpusPaths,
    DeviceOption,
    LanguageOption,
    LogJsonOption,
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
    from xmtc.data.corpus import Corpus
    from xmtc.pipeline import Pipeline
    from xmtc.tagger import Tagger


@with_corpus_options()
@with_corpus_prefetch
def train(
    corpus: CorpusPaths,
    output: Annotated[Path, typer.Option("-o", "--output", help="model folder to write; a model there is replaced")],
    method: Annotated[str, typer.Option("-m", "--method", help="method, one of `xmtc methods`")] = "parabel",
    parameter: Annotated[
        list[str] | None, typer.Option("-p", help="name=value of a hyper-parameter; repeatable")
    ] = None,
    valid: Annotated[str | None, typer.Option(help="corpus that decides when to stop, or what scores mean")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="folder to keep finished parts in, and to go on from")] = None,
    workdir: Annotated[
        Path | None, typer.Option(help="folder for what memory cannot hold: tf-idf of texts, models as they grow")
    ] = None,
    threads: ThreadsOption = 0,
    device: DeviceOption = "auto",
    cluster: ClusterOption = "",
    workers: WorkersOption = 0,
    reading: CorpusOptions = CorpusOptions(),
    quiet: QuietOption = False,
    log_json: LogJsonOption = None,
    vocab: Annotated[
        str | None, typer.Option(help="vocabulary of the labels: folder of `xmtc vocab import`, SKOS file or table")
    ] = None,
    language: LanguageOption = None,
) -> None:
    """Train a tagger on a corpus of labelled documents."""
    import time
    from dataclasses import replace

    from xmtc import model_folder as store
    from xmtc.core.process_rank import is_first_process

    start = time.perf_counter()
    check_workers(workers, cluster)
    run = make_run(threads, quiet, checkpoint, device, log_json, workdir, cluster, workers)
    store.check_target(output)
    check_language_option(language, vocab)
    vocabulary = None if vocab is None else open_vocabulary(vocab, language, quiet)
    source = open_corpus_input(corpus, reading, quiet=quiet)
    checked = open_corpus_input(valid, replace(reading, rejects=None), quiet=quiet) if valid else None
    pipeline = add_vocabulary_parameter(build_pipeline(method, parameter or [], source), vocab)
    if workdir is not None:
        check_workdir_option(workdir, pipeline, method)
    if cluster and not quiet:
        warn_single_machine(pipeline, method)
    with report_checkpoint_on_interrupt(run.checkpoint):
        trained = pipeline.fit(source, checked, run)
    if not is_first_process():  # of those that torchrun has started: it saves
        return
    if vocabulary is not None:
        trained = trained.with_vocabulary(vocabulary, language)
        report_problems(trained)
    save_model(trained, output, run.checkpoint)
    run.checkpoint.remove()
    report_rejects(source)
    if checked is not None:
        report_rejects(checked)
    if not quiet:
        print_training_summary(trained, output, method, time.perf_counter() - start)


def check_workers(workers: int, cluster: str) -> None:
    from xmtc.errors import XmtcError

    if workers and not cluster:
        raise XmtcError("--workers are those of a cluster, and there is no --cluster; give both, or use torchrun.")


def check_language_option(language: str | None, vocab: str | None) -> None:
    from xmtc.errors import XmtcError

    if language is not None and vocab is None:
        raise XmtcError(
            "--language names labels with the names of a vocabulary, and there is no --vocab; of texts in another "
            "language, -p analyzer=snowball:german and the like take care."
        )


@contextmanager
def report_checkpoint_on_interrupt(checkpoint: Checkpoint) -> Iterator[None]:
    """Whoever stops a training with a checkpoint hears that it was not for nothing."""
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint.is_claimed:
            echo(f"Stopped. The same command goes on from what {checkpoint.folder} has.", err=True)
        raise


def warn_single_machine(pipeline: Pipeline, method: str) -> None:
    """What a cluster is no help for."""
    if not pipeline.method.has_cluster_support:
        echo(f"{method} trains on one machine: there is nothing in it that a cluster could share.", err=True)


def print_training_summary(trained: Tagger, output: Path, method: str, seconds: float) -> None:
    """Say what was trained, and what was found out meanwhile."""
    if chosen := trained.about.get("chosen"):
        echo(f"analyzer={chosen['analyzer']}: {chosen['because']}.", err=True)
    echo(f"Scores are {trained.about['scores']['are']}: {trained.about['scores']['because']}.", err=True)
    echo(
        f"{output}: {method} trained on {describe_training_data(trained)} in {seconds:.1f} s. "
        f"Next: xmtc evaluate {output} TEST-CORPUS",
        err=True,
    )


def check_workdir_option(workdir: Path, pipeline: Pipeline, method: str) -> None:
    """Refuse, before the work, a folder that cannot be worked in, or that nothing would be written to."""
    from xmtc.errors import XmtcError
    from xmtc.storage.disk_arrays import check_workdir

    if not (pipeline.method.has_workdir_support or any(view.uses_workdir for view in pipeline.views.values())):
        raise XmtcError(
            f"--workdir is for tf-idf made of texts and for label trees, and {method} reads {', '.join(pipeline.views)}"
            " of this corpus; leave it out, or choose parabel, or a linear method and a corpus of texts."
        )
    check_workdir(workdir)


def save_model(trained: Tagger, output: Path, checkpoint: Checkpoint) -> None:
    """Write the model. Where that fails, the training was not for nothing: its pieces stay, or the model is saved in a
    temporary folder."""
    import tempfile

    from xmtc.errors import XmtcError

    try:
        trained.save(output)
    except XmtcError as error:
        if checkpoint.is_claimed:
            again = (
                f"Nothing is lost: repeat the command with the same --checkpoint {checkpoint.folder} and another -o."
            )
            raise XmtcError(f"{error} {again}") from None
        place = Path(tempfile.mkdtemp(prefix="xmtc-")) / "model"
        try:
            trained.save(place)
        except XmtcError:
            place.parent.rmdir()
            raise error from None
        raise XmtcError(f"{error} Meanwhile the trained model was saved to {place}; move it from there.") from None


def parse_parameters(parameters: list[str]) -> dict[str, UnparsedValue]:
    """The -p name=value options of a command."""
    from xmtc.core.hyperparameters import UnparsedValue
    from xmtc.errors import XmtcError

    values: dict[str, UnparsedValue] = {}
    for parameter in parameters:
        name, equals, value = parameter.partition("=")
        if not equals:
            raise XmtcError(f"-p {parameter} has no value; expected -p name=value.")
        values[name] = UnparsedValue(value)
    return values


def build_pipeline(method: str, parameters: list[str], source: Corpus) -> Pipeline:
    """A method and its views, set by -p options, for what a corpus holds."""
    from xmtc.features import FEATURES, TEXTS
    from xmtc.pipeline import Pipeline

    values: dict[str, Any] = dict(parse_parameters(parameters))
    if not source.has_features:
        return Pipeline.from_parameters(method, TEXTS, values)
    return Pipeline.from_parameters(method, FEATURES, {"n_columns": source.n_features or 0} | values)


def add_vocabulary_parameter(pipeline: Pipeline, vocab: str | None) -> Pipeline:
    """The same with the vocabulary of --vocab for methods that look for names, where -p gives them no other."""
    wanted = [name for name, (_, value) in pipeline.parameters.items() if name.endswith("vocabulary") and not value]
    return pipeline.with_parameters(dict.fromkeys(wanted, vocab)) if vocab and wanted else pipeline


def describe_training_data(tagger: Tagger) -> str:
    """What a tagger was trained on, in words."""
    about = tagger.about
    sizes = [
        f"{about['n_labels']:,} labels",
        *(f"{size:,} {get_size_unit(view)}" for view, size in about["sizes"].items()),
    ]
    return f"{about['n_docs']:,} documents with {' and '.join(sizes)}"


def get_size_unit(view: str) -> str:
    """What the size of a view counts."""
    from xmtc.features import view_class

    return view_class(view).unit
