"""xmtc vocab: vocabularies of concepts, label names and label filters of models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import (
    AllowOption,
    CorpusOptions,
    DenyOption,
    JsonOption,
    LanguageOption,
    ModelOutputOption,
    ModelPath,
    QuietOption,
    open_corpus_input,
    report_rejects,
    with_corpus_options,
)
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.data.corpus import Corpus
    from xmtc.tagger import Tagger
    from xmtc.vocabulary import Vocabulary
    from xmtc.vocabulary.changes import LabelChange, LabelMigration

app = typer.Typer(help="Import and search vocabularies, and attach them to models.", no_args_is_help=True)

VocabularyPath = Annotated[
    str, typer.Argument(metavar="VOCAB", help="Vocabulary: a folder of `xmtc vocab import`, a SKOS file or a table.")
]
ConceptArgument = Annotated[str, typer.Argument(metavar="NAME", help="URI, id, notation or name of a concept.")]
MAX_SHOWN_LABELS = 5
MIN_MATCHED_SHARE = 0.5  # of labels; fewer are probably those of another vocabulary


@app.command("import")
def import_(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FILE... OUT", help="SKOS files or tables, and the vocabulary folder to write."),
    ],
    input_format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="turtle, xml, nt, json-ld, tsv or csv; by default from the file name."),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(metavar="CODE", help="Language of names without one; a table yso-fi.tsv has fi in its name."),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Convert SKOS (Turtle, RDF/XML, N-Triples, JSON-LD) or tables (TSV, CSV) to a vocabulary folder."""
    import time

    from xmtc.core.progress import hide_progress, show_progress
    from xmtc.errors import XmtcError
    from xmtc.vocabulary import import_files
    from xmtc.vocabulary.vocabulary import VOCABULARY_FOLDER

    *paths, output = sources
    if not paths:
        raise XmtcError(f"Found only {output}; expected at least one vocabulary file and the folder to write.")
    start = time.perf_counter()
    VOCABULARY_FOLDER.check_target(output)
    vocabulary = import_files(paths, input_format, language, hide_progress if quiet else show_progress)
    vocabulary.save(output)
    if not quiet:
        seconds = time.perf_counter() - start
        echo(
            f"{output}: {describe_vocabulary(vocabulary)} in {seconds:.1f} s. Next: xmtc vocab stats {output}", err=True
        )


@app.command()
def stats(vocab: VocabularyPath, json: JsonOption = False) -> None:
    """Print the number of concepts, names, languages and links, and the schemes and collections."""
    from json import dumps

    from xmtc.errors import escape_controls, escape_json_controls
    from xmtc.vocabulary.statistics import compute_statistics, list_groups

    vocabulary = open_vocabulary(vocab)
    numbers, groups = compute_statistics(vocabulary), list_groups(vocabulary)
    if json:
        description = numbers | {"groups": [group._asdict() for group in groups]}
        echo(escape_json_controls(dumps(description, indent=2, ensure_ascii=False)))
        return
    width = max(map(len, numbers))
    for name, number in numbers.items():
        echo(f"{escape_controls(name):<{width}}  {number:>10,}")
    for group in groups:
        name = "" if group.name is None else f"{escape_controls(group.name)} "
        echo(f"{group.kind} {name}<{escape_controls(group.uri)}>: {group.concepts:,} concepts")


@app.command()
def find(
    vocab: VocabularyPath,
    label: ConceptArgument,
    language: LanguageOption = None,
    part: Annotated[bool, typer.Option("--part", help="Also find concepts with NAME as a part of a name.")] = False,
) -> None:
    """Print URI, notations and name of matching concepts, best match first, separated by tabs."""
    from xmtc.errors import XmtcError, escape_controls

    vocabulary = open_vocabulary(vocab, language)
    concepts = vocabulary.find_all(label)
    if part:
        concepts = list(dict.fromkeys([*concepts, *vocabulary.find_containing(label)]))
    if not concepts:
        hint = "expected another part of a name." if part else "--part finds names that contain it."
        raise XmtcError(f"{vocab} has no concept {label!r}; {hint}")
    for concept in concepts:
        cells = (
            vocabulary.uri(concept),
            " ".join(vocabulary.notations(concept)),
            vocabulary.name(concept, language) or "",
        )
        echo("\t".join(map(escape_controls, cells)))


@app.command()
def show(
    vocab: VocabularyPath,
    label: ConceptArgument,
    language: LanguageOption = None,
    json: JsonOption = False,
) -> None:
    """Print names, broader and narrower concepts of a concept."""
    from json import dumps

    from xmtc.errors import XmtcError, escape_controls, escape_json_controls
    from xmtc.vocabulary import NO_CONCEPT
    from xmtc.vocabulary.statistics import describe_concept

    vocabulary = open_vocabulary(vocab, language)
    concept = vocabulary.find(label)
    if concept == NO_CONCEPT:
        raise XmtcError(f"{vocab} has no concept {label!r}; expected a URI, an id, a notation or a name.")
    description = describe_concept(vocabulary, concept, language)
    if json:
        echo(escape_json_controls(dumps(description, indent=2, ensure_ascii=False)))
        return
    for name, value in description.items():
        for item in value if isinstance(value, list) else [value]:
            echo(f"{name}: {escape_controls(str(item))}")


@app.command()
def attach(
    model: ModelPath,
    vocab: VocabularyPath,
    language: LanguageOption = None,
    allow: AllowOption = None,
    deny: DenyOption = None,
    output: ModelOutputOption = None,
    quiet: QuietOption = False,
) -> None:
    """Store a vocabulary of the labels, and optionally a label filter, in a model.

    Changes MODEL in place unless -o is given.
    """
    from xmtc.model_folder import check_target, read_stamp
    from xmtc.tagger import Tagger

    target = Path(model) if output is None else output
    check_target(target)
    stamp = read_stamp(model)
    tagger = Tagger.load(model).with_vocabulary(open_vocabulary(vocab, language, quiet), language)
    check_matches(tagger, vocab)
    if allow or deny:
        tagger = tagger.with_filter(allow or [], deny or [])
        report_empty_filters(tagger, allow, deny)
    report_problems(tagger)
    tagger.save(target, expected_stamp=stamp if output is None else ())
    if not quiet:
        report_label_filter(target, tagger)


@app.command()
def filter(
    model: ModelPath,
    allow: AllowOption = None,
    deny: DenyOption = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the filter of the model instead.")] = False,
    output: ModelOutputOption = None,
) -> None:
    """Restrict the labels that a model predicts; an existing filter is replaced.

    Changes MODEL in place unless -o is given.
    """
    from xmtc.errors import XmtcError
    from xmtc.model_folder import check_target, read_stamp
    from xmtc.tagger import Tagger

    if clear == bool(allow or deny):
        problem = "both --clear and a filter" if clear else "no filter"
        raise XmtcError(f"Found {problem}; give --allow or --deny, or --clear to remove the filter of the model.")
    target = Path(model) if output is None else output
    check_target(target)
    stamp = read_stamp(model)
    tagger = Tagger.load(model).with_filter(allow or [], deny or [])
    report_empty_filters(tagger, allow, deny)
    tagger.save(target, expected_stamp=stamp if output is None else ())
    report_label_filter(target, tagger)


@app.command()
def check(model: ModelPath) -> None:
    """Print labels that the vocabulary of a model lacks or has deprecated: label, documents, problem."""
    from xmtc.errors import XmtcError, escape_controls
    from xmtc.tagger import Tagger

    tagger = Tagger.load(model)
    if tagger.concepts is None:
        raise XmtcError(f"{model} has no vocabulary; attach one with `xmtc vocab attach {model} VOCAB`.")
    tagger.check()
    for problem in tagger.concepts.problems():
        label, n_docs = tagger.labels[problem.label], tagger.frequencies[problem.label]
        replaced = " ".join(tagger.concepts.vocabulary.uri(concept) for concept in problem.replacements)
        why = "deprecated" if problem.is_deprecated else "not in the vocabulary"
        echo("\t".join(map(escape_controls, (label, str(n_docs), why, replaced))))
    report_problems(tagger)


@app.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Older version: a vocabulary folder or file.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Newer version.")],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Table to write (.tsv or .csv), a mapping to edit."),
    ] = None,
) -> None:
    """Print the changes between two versions of a vocabulary: change, old, new, names, candidates of a split."""
    from xmtc.errors import escape_controls
    from xmtc.vocabulary.changes import compare_vocabularies, write_changes

    changes = compare_vocabularies(open_vocabulary(old), open_vocabulary(new))
    if output is None:
        for change in changes:
            echo("\t".join(map(escape_controls, change.cells())))
    else:
        write_changes(output, changes)
    report_counts("concept", Counter(change.change for change in changes))


@app.command()
@with_corpus_options()
def migrate(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Model folder, or corpus.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Newer version of the vocabulary of its labels.")],
    output: Annotated[str, typer.Option("-o", "--output", metavar="OUT", help="Model folder or corpus to write.")],
    old: Annotated[
        str | None,
        typer.Option(metavar="OLD", help="Older version of the vocabulary; by default that of the model."),
    ] = None,
    mapping: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Table with the columns old and new that overrides NEW (`xmtc vocab diff`)."),
    ] = None,
    language: LanguageOption = None,
    reading: CorpusOptions = CorpusOptions(),
) -> None:
    """Rewrite the labels of a model, without training, or of a corpus for a newer version of their vocabulary.

    Prints what becomes of each label that changes: label, change, new labels. OUT.changes.tsv has the changes of each
    document of a corpus.
    """
    from xmtc.storage.folder import ABOUT_FILE
    from xmtc.vocabulary.changes import LabelMigration, read_mapping

    migration = LabelMigration(
        open_vocabulary(new, language),
        None if old is None else open_vocabulary(old),
        {} if mapping is None else read_mapping(mapping),
    )
    if (Path(source) / ABOUT_FILE).is_file():
        migrate_model(source, migration, Path(output), language)
    else:
        migrate_corpus(open_corpus_input(source, reading), migration, output)


def migrate_model(source: str, migration: LabelMigration, output: Path, language: str | None) -> None:
    from xmtc.maintenance.label_migration import migrate_tagger
    from xmtc.model_folder import check_target
    from xmtc.tagger import Tagger

    check_target(output)
    tagger = Tagger.load(source)
    migrated = migrate_tagger(tagger, migration.new, migration.old, migration.mapping, language)
    migrated.tagger.save(output)
    report_label_changes(migrated.changes)
    echo(f"{output} predicts {len(migrated.tagger.labels):,} labels, {source} {len(tagger.labels):,}.", err=True)


def migrate_corpus(corpus: Corpus, migration: LabelMigration, output: str) -> None:
    """Write the corpus with new labels, and a table of the changes of each document."""
    from xmtc.data.corpus import open_corpus_writer
    from xmtc.data.file_streams import STANDARD_STREAM, open_output
    from xmtc.errors import XmtcError
    from xmtc.vocabulary.changes import UNCHANGED, UNKNOWN, format_row

    corpus.check_not_overwritten(output)
    labels = list(dict.fromkeys(label for document in corpus for label in document.labels))
    changes = {change.label: change for change in migration.migrate(labels)}
    if output == STANDARD_STREAM:
        raise XmtcError("The corpus and the table of its changes are two files; give -o the name of a file.")
    n_docs = n_emptied = 0
    with open_corpus_writer(output, None, corpus) as add, open_output(f"{output}.changes.tsv") as stream:
        stream.write((format_row(("id", "label", "change", "new")) + "\n").encode())
        for document in corpus:
            own = [changes[label] for label in document.labels]
            for change in own:
                if change.change not in (UNCHANGED, UNKNOWN):
                    row = format_row((document.id, change.label, change.change, "|".join(change.new)))
                    stream.write((row + "\n").encode("utf-8", "replace"))
            new_labels = list(dict.fromkeys(label for change in own for label in change.new))
            n_docs, n_emptied = n_docs + 1, n_emptied + (bool(own) and not new_labels)
            add(document._replace(labels=new_labels))
    report_label_changes([*changes.values()])
    lost = f", {n_emptied:,} of them without any label now" if n_emptied else ""
    echo(f"{n_docs:,} documents written to {output}{lost}.", err=True)
    report_rejects(corpus)


def report_label_changes(changes: list[LabelChange]) -> None:
    """Print the labels that change, and their number by change."""
    from xmtc.errors import escape_controls
    from xmtc.vocabulary.changes import SPLIT, UNCHANGED, UNKNOWN

    for change in changes:
        if change.change != UNCHANGED:
            echo("\t".join(map(escape_controls, (change.label, change.change, "|".join(change.new)))))
    report_counts("label", Counter(change.change for change in changes))
    undecided = [change.label for change in changes if change.change == SPLIT and change.new == (change.label,)]
    if undecided:
        shown = ", ".join(map(escape_controls, undecided[:MAX_SHOWN_LABELS]))
        echo(
            f"Decide: {len(undecided):,} labels are split and kept as they are, such as {shown}. Write the new URI in "
            "the column new of a table of `xmtc vocab diff`, and give the table with --mapping.",
            err=True,
        )
    if unknown := [change.label for change in changes if change.change == UNKNOWN]:
        shown = ", ".join(map(escape_controls, unknown[:MAX_SHOWN_LABELS]))
        echo(f"{len(unknown):,} labels are in no vocabulary and are kept, such as {shown}.", err=True)


def report_counts(noun: str, counts: Counter[str]) -> None:
    listed = ", ".join(f"{n:,} {change}" for change, n in counts.items())
    echo(f"{noun.capitalize()}s: {listed or 'no changes'}.", err=True)


def open_vocabulary(path: str, language: str | None = None, quiet: bool = True) -> Vocabulary:
    """Open a vocabulary folder or import a file; raise XmtcError if it has no names in the language."""
    from xmtc.core.progress import hide_progress, show_progress
    from xmtc.vocabulary import Vocabulary, import_files

    if Path(path).is_file():
        vocabulary = import_files([path], None, None, hide_progress if quiet else show_progress)
    else:
        vocabulary = Vocabulary.load(path)
    vocabulary.check_language(language)
    return vocabulary


def describe_vocabulary(vocabulary: Vocabulary) -> str:
    languages = ", ".join(code for code in vocabulary.languages if code)
    return f"{len(vocabulary):,} concepts with names in {languages or 'no language'}"


def report_empty_filters(tagger: Tagger, allow: list[str] | None, deny: list[str] | None) -> None:
    """Print the filter entries that match no label of the model."""
    from xmtc.errors import escape_controls
    from xmtc.vocabulary.label_filters import find_empty_entries, find_unknown_file_entries

    for option, entries in (("--allow", allow), ("--deny", deny)):
        for entry in find_empty_entries(entries or [], tagger.labels, tagger.concepts):
            echo(f"{option} {escape_controls(entry)} matches no label of the model.", err=True)
        for path, lines in find_unknown_file_entries(entries or [], tagger.labels, tagger.concepts).items():
            if lines:
                shown = ", ".join(escape_controls(line) for line in lines[:MAX_SHOWN_LABELS])
                count = "1 entry matches" if len(lines) == 1 else f"{len(lines):,} entries match"
                echo(f"{path}: {count} no label of the model, such as {shown}.", err=True)


def report_label_filter(model: Path, tagger: Tagger) -> None:
    n_allowed = len(tagger.labels) if tagger.allowed is None else int(tagger.allowed.sum())
    echo(f"{model} predicts {n_allowed:,} of its {len(tagger.labels):,} labels.", err=True)


def check_matches(tagger: Tagger, vocab: str) -> None:
    """Raise XmtcError if no label of a model is in its vocabulary."""
    from itertools import islice

    from xmtc.errors import XmtcError, truncate_text

    assert tagger.concepts is not None
    if tagger.concepts.about()["labels_found"]:
        return
    vocabulary = tagger.concepts.vocabulary
    labels, uris = (
        ", ".join(truncate_text(word) for word in islice(words, 3))
        for words in (tagger.labels.words(), vocabulary.uris.words())
    )
    raise XmtcError(
        f"None of the {len(tagger.labels):,} labels of the model is in {vocab}: the labels are such as {labels}, the "
        f"concepts such as {uris}; expected the URI, id, notation or name of a concept as label. Give the vocabulary "
        "that the labels come from; the model is unchanged."
    )


def report_problems(tagger: Tagger) -> None:
    """Print which labels are missing in the vocabulary, which are deprecated, and which have the same concept."""
    from xmtc.errors import escape_controls

    assert tagger.concepts is not None
    n_found = int((tagger.concepts.concepts >= 0).sum())
    echo(f"{n_found:,} of {len(tagger.labels):,} labels are in the vocabulary.", err=True)
    share = n_found / len(tagger.labels)
    if share < MIN_MATCHED_SHARE:
        echo(f"Only {share:.0%} of the labels are in the vocabulary; check that it is the right one.", err=True)
    for labels in tagger.concepts.find_same_concept_labels()[:MAX_SHOWN_LABELS]:
        shown = " and ".join(escape_controls(tagger.labels[label]) for label in labels)
        echo(f"{shown} are labels of one concept; write them in the same way in all files and train again.", err=True)
    for line in format_problems(tagger):
        echo(line, err=True)


def format_problems(tagger: Tagger) -> Iterator[str]:
    from xmtc.errors import escape_controls

    assert tagger.concepts is not None
    problems, vocabulary = list(tagger.concepts.problems()), tagger.concepts.vocabulary
    unknown = [escape_controls(tagger.labels[problem.label]) for problem in problems if not problem.is_deprecated]
    deprecated = [problem for problem in problems if problem.is_deprecated]
    if unknown:
        yield f"Not in the vocabulary: {shorten_list(unknown)}"
    replaced = []
    for problem in deprecated:
        names = [escape_controls(vocabulary.name(i) or vocabulary.uri(i)) for i in problem.replacements]
        name = escape_controls(tagger.concepts.name(problem.label) or tagger.labels[problem.label])
        replaced.append(f"{name} (replaced by {' and '.join(names)})" if names else name)
    if replaced:
        yield f"Deprecated: {shorten_list(replaced)}"


def shorten_list(names: list[str]) -> str:
    """Return the first names, and the number of the others."""
    n_more = len(names) - MAX_SHOWN_LABELS
    shown = ", ".join(names[:MAX_SHOWN_LABELS])
    return f"{shown}, and {n_more:,} more; `xmtc vocab check MODEL` lists all" if n_more > 0 else shown
