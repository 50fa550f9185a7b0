"""Entry point of the experiments: `python -m experiments COMMAND`, from the root of the repository."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from experiments.commands import SHARED_DATA_FOLDER, ExperimentContext
from experiments.datasets import (
    CatalogueEntry,
    compare_counts,
    compute_counts,
    find_catalogue_entry,
    find_train_test_pairs,
    get_corpora_folder,
    load_catalogue,
    locate_corpus_folder,
)
from experiments.known_words import write_known_words
from experiments.noise import write_noisy_corpus
from experiments.packing import find_open_rows, format_run_commands, pack_rows
from experiments.page import build_sections, render_page, render_table_markdown
from experiments.rows import find_table, list_tables, load_experiment
from experiments.runner import ExperimentOutcome, run_missing_rows
from xmtc.analysis.result_files import describe_environment, list_gpus, load_results
from xmtc.cli.help import PlainCommand, PlainGroup
from xmtc.cli.options import parse_time_limit
from xmtc.cli.streams import echo
from xmtc.core.progress import show_progress
from xmtc.data.corpus import open_corpus
from xmtc.errors import XmtcError
from xmtc.storage.atomic import atomic_file
from xmtc.storage.cache import compute_path_sha256

app = typer.Typer(
    help="Run the experiments of the papers, and get their data.",
    cls=PlainGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

TablesArgument = Annotated[list[str], typer.Argument(metavar="TABLE...", help="TOML files or names of tables.")]
DataOption = Annotated[Path | None, typer.Option(help="Folder of the corpora.")]
ResultsOption = Annotated[Path | None, typer.Option(help="Folder of the results.")]
DatasetFolderOption = Annotated[Path | None, typer.Option("-o", "--output", help="Folder of the data sets.")]


@app.command(cls=PlainCommand)
def run(
    tables: TablesArgument,
    only: Annotated[list[str] | None, typer.Option(help="Row to run, by its name (repeatable).")] = None,
    data: DataOption = None,
    work: Annotated[Path, typer.Option(help="Folder of the models.")] = Path("build/experiments"),
    results: ResultsOption = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of rows run at a time.")] = 1,
    param: Annotated[list[str] | None, typer.Option("-p", "--param", help="NAME=VALUE (repeatable).")] = None,
    device: Annotated[str | None, typer.Option(help="Device of every command: cpu, cuda, cuda:1.")] = None,
    threads: Annotated[int | None, typer.Option(min=0, help="Threads of every command.")] = None,
    time_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time limit of a training, such as 90s, 10m or 2h.")
    ] = None,
    machine: Annotated[str | None, typer.Option(help="Description of the machine in the results.")] = None,
    commit: Annotated[str | None, typer.Option(help="Commit in the results, where git is missing.")] = None,
) -> None:
    """Run the rows of tables that have no current result."""
    if wrong := [pair for pair in param or [] if "=" not in pair]:
        raise XmtcError(f"--param {wrong[0]} must be NAME=VALUE.")
    values = {"--device": device, "--threads": None if threads is None else str(threads)}
    options = tuple(word for name, value in values.items() if value for word in (name, value))
    is_complete = True
    for name in tables:
        experiment = load_experiment(find_table(name))
        context = replace(
            make_context(experiment.path, data, work, results),
            overrides=dict(pair.split("=", 1) for pair in param or []),
            options=options,
            limit_seconds=None if time_limit is None else parse_time_limit(time_limit),
            environment=describe_environment(machine, commit),
            has_gpu=bool(device or list_gpus()),
        )
        is_complete &= report_outcome(run_missing_rows(experiment, only or [], jobs, context, print_progress))
    if not is_complete:
        raise typer.Exit(1)


@app.command(cls=PlainCommand)
def table(tables: TablesArgument, data: DataOption = None, results: ResultsOption = None) -> None:
    """Print the stored results of tables in Markdown."""
    for name in tables:
        experiment = load_experiment(find_table(name))
        context = make_context(experiment.path, data, Path(), results)
        echo(render_table_markdown(experiment, load_results(context.get_results_path(experiment.name))))


@app.command(cls=PlainCommand)
def report(
    output: Annotated[Path, typer.Argument(metavar="FILE.md", help="Markdown page to write.")],
    tables: Annotated[list[str] | None, typer.Argument(metavar="[TABLE...]", help="Tables (all).")] = None,
    data: DataOption = None,
    results: ResultsOption = None,
) -> None:
    """Write a page of published and measured figures, commands and missing rows."""
    paths = [find_table(name) for name in tables or []] or list_tables()
    with atomic_file(output) as file:
        file.write(make_report(paths, output.absolute().parent, data, results).encode())
    echo(f"{output} written from {len(paths)} tables.", err=True)


@app.command(cls=PlainCommand)
def pack(
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write.")],
    tables: TablesArgument,
    only: Annotated[list[str] | None, typer.Option(help="Row to pack, by its name (repeatable).")] = None,
    data: DataOption = None,
    results: ResultsOption = None,
    max_words: Annotated[int, typer.Option(min=1, help="Maximum number of words with vectors.")] = 500_000,
) -> None:
    """Copy corpora and word vectors of rows without a result, for a machine without a network."""
    for name in tables:
        experiment = load_experiment(find_table(name))
        context = make_context(experiment.path, data, Path("models"), results)
        package = pack_rows(find_open_rows(experiment.rows, only or [], context), context, target, max_words)
        if not package.rows:
            echo(f"{name}: no open row whose corpus is here.", err=True)
            continue
        echo(f"{name}: {len(package.rows)} rows, {package.n_bytes / 2**20:.1f} MiB.", err=True)
        if package.encoders:
            echo(f"Not packed: {', '.join(package.encoders)}; see `xmtc pretrained export`.", err=True)
        for command in format_run_commands(name, package, target, only or []):
            echo(command)


@app.command(cls=PlainCommand)
def noise(
    source: Annotated[str, typer.Argument(metavar="CORPUS", help="Corpus to read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="File to write.")],
    rate: Annotated[float, typer.Option(help="Probability that a label (with flip: a cell) changes.")],
    kind: Annotated[str, typer.Option(help="missing, swap or flip.")] = "missing",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")] = 0,
) -> None:
    """Write a copy of a corpus with random label noise."""
    counts = write_noisy_corpus(open_corpus(source), target, rate, kind, seed)
    echo(
        f"{counts.n_docs:,} documents written to {target}: {counts.n_removed:,} of {counts.n_labels:,} labels removed, "
        f"{counts.n_added:,} wrong labels added; {counts.n_unlabelled:,} documents without labels.",
        err=True,
    )


@app.command(cls=PlainCommand)
def names(
    target: Annotated[Path, typer.Argument(metavar="NAMES.tsv", help="File to write.")],
    sources: Annotated[list[str], typer.Argument(metavar="CORPUS...", help="Corpora to read.")],
) -> None:
    """Write the labels of corpora as their own names, for methods that read label names."""
    labels = sorted({label for source in sources for document in open_corpus(source) for label in document.labels})
    target.write_text("id\tname\n" + "".join(f"{label}\t{label}\n" for label in labels), encoding="utf-8")
    echo(f"{len(labels):,} names written to {target}.", err=True)


@app.command(cls=PlainCommand)
def words(
    source: Annotated[str, typer.Argument(metavar="CORPUS", help="Corpus of texts to read.")],
    vocabulary: Annotated[Path, typer.Argument(metavar="WORDS.txt", help="Words with a feature, one per line.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="File to write.")],
) -> None:
    """Write a copy of a corpus with only the words that have a bag-of-words feature."""
    known = vocabulary.read_text(encoding="utf-8").split()
    n_removed = write_known_words(open_corpus(source), known, target)
    echo(
        f"{target} written without {n_removed:,} words that are not among the {len(known):,} of {vocabulary}.", err=True
    )


@app.command(cls=PlainCommand)
def datasets(output: DatasetFolderOption = None) -> None:
    """List the data sets of the papers and where they are here."""
    for entry in load_catalogue().values():
        folder = locate_corpus_folder(entry, output)
        place = str(folder) if find_train_test_pairs(folder) else "not here"
        echo(f"{entry.name:15} {format_sizes(entry)}: {entry.about} ({place})")


@app.command(cls=PlainCommand)
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a data set.")],
    output: DatasetFolderOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Skip counting documents and labels.")] = False,
) -> None:
    """Print where to get a data set; check local files against the published counts."""
    entry = find_catalogue_entry(name)
    folder = locate_corpus_folder(entry, output)
    echo(f"{entry.name}: {entry.about}. {format_sizes(entry)}.")
    echo(f"From {entry.source}. Licence: {entry.licence}.")
    if entry.note:
        echo(entry.note)
    pairs = find_train_test_pairs(folder)
    if not pairs:
        raise XmtcError(
            f"{entry.name} is not in {folder}. Download it, store it there as {format_expected_files(entry)}, and run "
            "the command again."
        )
    for train, test in pairs:
        echo(f"\n{train} and {test.name}:")
        if not quick:
            print_checks(entry, train, test)
        print_train_commands(entry, train, test)


def make_report(paths: list[Path], folder: Path, data: Path | None = None, results: Path | None = None) -> str:
    """Return the report of tables; links are relative to `folder`."""
    sections = []
    for path in paths:
        experiment, context = load_experiment(path), make_context(path, data, Path(), results)
        stored = load_results(context.get_results_path(experiment.name))
        sections.append(build_sections(experiment, stored, context))
    return render_page(sections, folder)


def make_context(path: Path, data: Path | None, work: Path, results: Path | None) -> ExperimentContext:
    """Return the context of a table; corpora are beside the checkout or in the cache unless `data` is given."""
    beside = Path(os.path.normpath(path.resolve().parent.parent / SHARED_DATA_FOLDER))
    folders = (beside, get_corpora_folder()) if data is None else (Path(os.path.normpath(data)),)
    return ExperimentContext(folders, work, results or path.parent / "results")


def print_progress(line: str) -> None:
    echo(line, err=": failed: " in line)


def report_outcome(outcome: ExperimentOutcome) -> bool:
    """Print the rows that were reused or skipped; return True if all rows have results."""
    if outcome.reused:
        echo(f"Rows with stored results: {len(outcome.reused)}; `table` prints them.", err=True)
    for reason in dict.fromkeys(outcome.skipped.values()):
        names = [name for name, why in outcome.skipped.items() if why == reason]
        echo(f"Not run: {', '.join(names)}: {reason}", err=True)
    return not outcome.failed and not outcome.skipped


def format_sizes(entry: CatalogueEntry) -> str:
    """Format the sizes as the first source that publishes them has them."""
    known = {key: each[key] for each in reversed(entry.published) for key in ("train", "test", "labels") if key in each}
    documents = f"{known['train']:,} + {known['test']:,} documents" if "train" in known else "size unknown"
    return f"{documents}, {known['labels']:,} labels" if "labels" in known else documents


def format_expected_files(entry: CatalogueEntry) -> str:
    features = "train.txt and test.txt (features, in the format of the XMC repository)"
    texts = "train.jsonl and test.jsonl (texts; from two files: `xmtc data convert texts.txt,labels.txt train.jsonl`)"
    return {"texts": texts, "features": features}.get(entry.content, f"{features} or {texts}")


def print_checks(entry: CatalogueEntry, train: Path, test: Path) -> None:
    """Print local and published counts, and whether checksums agree."""
    counts, is_text = compute_counts(train, test, show_progress), "txt" not in train.name
    for title, here, published, agrees in compare_counts(entry, counts):
        if not (is_text and title == "features"):
            echo(f"  {'' if agrees else 'differs: '}{title}: {here}; published: {published}")
    known = [path for path in (train, test) if path.name in entry.sha256]
    if changed := [path.name for path in known if compute_path_sha256(path) != entry.sha256[path.name]]:
        echo(f"  differs: checksum of {' and '.join(changed)}")
    elif known:
        echo("  checksums agree")


def print_train_commands(entry: CatalogueEntry, train: Path, test: Path) -> None:
    """Print commands that train with the presets of the data set, and with Parabel."""
    presets = entry.presets.get("features" if "txt" in train.name else "texts", {})
    for method, preset in presets.items():
        vectors = " -p vectors=glove.840B.300d.txt" if method in ("attention_xml", "xml_rnn") else ""
        echo(f"  xmtc train {train} -m {method} -p preset={preset}{vectors} -o model")
    if "parabel" not in presets:
        echo(f"  xmtc train {train} -m parabel -o model")
    propensity = "" if entry.propensity == "default" else f" --propensity {entry.propensity}"
    echo(f"  xmtc evaluate model {test} P@1 P@3 P@5 PSP@5{propensity}")


def main() -> None:
    try:
        app()
    except XmtcError as error:
        echo(f"experiments: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
