"""xmtc demo: the whole of it in under a minute, on text that every machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.options import ThreadsOption, make_run
from xmtc.cli.streams import echo


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="folder for the corpus and the model")] = Path(
        "xmtc-demo"
    ),
    method: Annotated[str, typer.Option("-m", "--method", help="method to train")] = "parabel",
    threads: ThreadsOption = 0,
) -> None:
    """Tag the documentation of Python, numpy, scipy and scikit-learn: build the corpus, train, evaluate, look."""
    import time

    from xmtc.cli.evaluate import format_metrics
    from xmtc.data.corpus import open_corpus_writer
    from xmtc.data.demo_corpus import build_demo_documents, split_demo_documents
    from xmtc.pipeline import Pipeline

    run = make_run(threads)
    echo("1. A corpus from the docstrings of Python's standard library, numpy, scipy and scikit-learn")
    train, test = split_demo_documents(build_demo_documents())
    output.mkdir(parents=True, exist_ok=True)
    for name, documents in (("train", train), ("test", test)):
        with open_corpus_writer(output / f"{name}.jsonl") as add:
            for document in documents:
                add(document)
        n_labels = len({label for document in documents for label in document.labels})
        echo(f"   {output / name}.jsonl: {len(documents):,} documents, {n_labels:,} tags")

    echo(f"\n2. Training {method}")
    start = time.perf_counter()
    trained = Pipeline.from_parameters(method).fit(train, run=run)
    trained.save(output / "model")
    echo(f"   {output / 'model'}: {time.perf_counter() - start:.1f} s")

    echo(f"\n3. How good it is on the {len(test):,} documents it has not seen, in percent")
    echo(indent_lines(format_metrics(trained.evaluate(test, run=run))))

    echo("\n4. Five of them")
    for document in test[:: len(test) // 5][:5]:
        print_document(document, trained.predict_labels([document.text], k=max(5, len(document.labels)), run=run)[0])

    echo("\n5. Next")
    for line in list_next_commands(output):
        echo(f"   {line}")


def indent_lines(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())


def print_document(document, tags) -> None:
    """One document with its true tags and the predicted ones, the right ones marked."""
    true, first = set(document.labels), " ".join(document.text.split())[:90]
    found = ", ".join(f"{'✓' if tag.label in true else ' '}{tag.label} {tag.score:.2f}" for tag in tags)
    echo(f"   {document.id}: {first}…\n      true:      {', '.join(document.labels)}\n      predicted: {found}")


def list_next_commands(output: Path) -> list[str]:
    return [
        f"xmtc predict {output / 'model'} {output / 'test.jsonl'} -k 3 | head -3",
        f"xmtc evaluate {output / 'model'} {output / 'test.jsonl'} P@1 R@10 coverage@5",
        f"xmtc data stats {output / 'train.jsonl'}",
        "xmtc train YOUR-CORPUS.jsonl -m parabel -o YOUR-MODEL",
        "xmtc methods",
    ]
