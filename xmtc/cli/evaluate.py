"""xmtc evaluate: how good a model is on labelled documents."""

from __future__ import annotations

from typing import Annotated

import typer

from xmtc.cli.options import (
    CorpusPath,
    Id,
    InputFormat,
    Labels,
    ModelPath,
    OnError,
    RejectsFile,
    Separator,
    Text,
    Threads,
    make_run,
    open_input,
    report_rejects,
)

SHOWN = ("P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")


def evaluate(
    model: ModelPath,
    corpus: CorpusPath,
    metrics: Annotated[list[str] | None, typer.Argument(metavar="[METRIC]…", help="such as P@1 nDCG@5 PSP@3")] = None,
    json: Annotated[bool, typer.Option("--json", help="print a JSON object of fractions")] = False,
    propensity_a: Annotated[float, typer.Option(help="A of the propensity model, for PSP")] = 0.55,
    propensity_b: Annotated[float, typer.Option(help="B of the propensity model, for PSP")] = 1.5,
    threads: Threads = 0,
    input_format: InputFormat = None,
    text: Text = "text",
    labels: Labels = "labels",
    id: Id = "id",
    separator: Separator = None,
    on_error: OnError = "stop",
    rejects: RejectsFile = None,
) -> None:
    """Print metrics of a model on a labelled corpus, in percent."""
    from json import dumps

    from xmtc.labels.propensity import Propensity
    from xmtc.metrics import max_k
    from xmtc.tagger import Tagger

    names = metrics or list(SHOWN)
    max_k(names)  # refuses unknown metrics before the work
    source = open_input(corpus, input_format, (text, labels, id, separator), on_error, rejects)
    propensity = Propensity(propensity_a, propensity_b)
    result = Tagger.load(model).evaluate(source, names, propensity, make_run(threads))
    if json:  # a group without labels has no value: nan, which JSON does not know
        typer.echo(dumps({name: None if value != value else value for name, value in result.items()}))
    else:
        typer.echo(metric_table(result))
    report_rejects(source)


def metric_table(result: dict[str, float]) -> str:
    """Metrics in percent, those of one kind on one line."""
    lines: dict[str, list[str]] = {}
    for name, value in result.items():
        lines.setdefault(name.partition("@")[0], []).append(f"{name} {100 * value:6.2f}")
    return "\n".join("   ".join(cells) for cells in lines.values())
