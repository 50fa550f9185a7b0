"""xmtc demo: corpus, training and evaluation in under a minute, on docstrings of installed packages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import ThreadsOption, make_run
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.data.document import Document
    from xmtc.tagger import Tag


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="Folder for the corpus and the model.")
    ] = Path("xmtc-demo"),
    method: Annotated[str, typer.Option("-m", "--method", metavar="NAME", help="Method to train.")] = "parabel",
    threads: ThreadsOption = 0,
) -> None:
    """Train and evaluate a model on the docstrings of Python, NumPy, SciPy and scikit-learn."""
    import time

    from xmtc.cli.evaluate import format_metrics
    from xmtc.data.corpus import open_corpus_writer
    from xmtc.data.demo_corpus import build_demo_documents, split_demo_documents
    from xmtc.pipeline import Pipeline

    run = make_run(threads)
    echo("1. Corpus: docstrings of the standard library, NumPy, SciPy and scikit-learn")
    train, test = split_demo_documents(build_demo_documents())
    output.mkdir(parents=True, exist_ok=True)
    for name, documents in (("train", train), ("test", test)):
        with open_corpus_writer(output / f"{name}.jsonl") as add:
            for document in documents:
                add(document)
        n_labels = len({label for document in documents for label in document.labels})
        echo(f"   {output / name}.jsonl: {len(documents):,} documents, {n_labels:,} labels")

    echo(f"\n2. Training: {method}")
    start = time.perf_counter()
    trained = Pipeline.from_parameters(method).fit(train, run=run)
    trained.save(output / "model")
    echo(f"   {output / 'model'}: {time.perf_counter() - start:.1f} s")

    echo(f"\n3. Metrics on {len(test):,} test documents, in percent")
    echo(indent_lines(format_metrics(trained.evaluate(test, run=run))))

    echo("\n4. Predictions for five test documents")
    for document in test[:: len(test) // 5][:5]:
        print_document(document, trained.predict_labels([document.text], k=max(5, len(document.labels)), run=run)[0])

    echo("\n5. Next")
    for line in list_next_commands(output):
        echo(f"   {line}")


def indent_lines(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())


def print_document(document: Document, tags: list[Tag]) -> None:
    """Print a document with its true and predicted labels; correct predictions are marked."""
    start = " ".join(document.text.split())[:90]
    predicted = ", ".join(f"{'✓' if tag.label in document.labels else ' '}{tag.label} {tag.score:.2f}" for tag in tags)
    echo(f"   {document.id}: {start}…\n      true:      {', '.join(document.labels)}\n      predicted: {predicted}")


def list_next_commands(output: Path) -> list[str]:
    return [
        f"xmtc predict {output / 'model'} {output / 'test.jsonl'} -k 3 | head -3",
        f"xmtc evaluate {output / 'model'} {output / 'test.jsonl'} P@1 R@10 coverage@5",
        f"xmtc data stats {output / 'train.jsonl'}",
        "xmtc train YOUR-CORPUS.jsonl -m parabel -o YOUR-MODEL",
        "xmtc methods",
    ]
