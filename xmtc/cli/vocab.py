"""xmtc vocab: vocabularies of concepts, and what they do for a model: names of its labels, and filters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.options import AllowOption, DenyOption, LanguageOption, ModelPath, QuietOption
from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.tagger import Tagger
    from xmtc.vocabulary import Vocabulary

app = typer.Typer(help="Import vocabularies, look into them, and attach them to models.", no_args_is_help=True)

VocabularyPath = Annotated[
    str, typer.Argument(metavar="VOCAB", help="folder of `xmtc vocab import`, or a SKOS file or table")
]
MAX_SHOWN_LABELS = 5  # labels with a problem that are named


@app.command("import")
def import_(
    sources: Annotated[
        list[str], typer.Argument(metavar="VOCAB… OUT", help="SKOS files or tables, and the folder to write")
    ],
    format: Annotated[
        str | None, typer.Option(help="turtle, xml, nt, json-ld, tsv or csv (told from the name if left out)")
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="of names that do not say theirs (a table yso-fi.tsv says fi by its name)")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Make a vocabulary folder of SKOS (Turtle, RDF/XML, N-Triples, JSON-LD) or of tables (TSV, CSV)."""
    import time

    from xmtc.core.progress import hide_progress, show_progress
    from xmtc.errors import XmtcError
    from xmtc.vocabulary import import_files
    from xmtc.vocabulary.vocabulary import VOCABULARY_FOLDER

    *paths, output = sources
    if not paths:
        raise XmtcError(f"Found only {output}; expected the file of a vocabulary and the folder to write.")
    start = time.perf_counter()
    VOCABULARY_FOLDER.check_target(output)
    found = import_files(paths, format, language, hide_progress if quiet else show_progress)
    found.save(output)
    if not quiet:
        seconds = time.perf_counter() - start
        echo(f"{output}: {describe_vocabulary(found)} in {seconds:.1f} s. Next: xmtc vocab stats {output}", err=True)


@app.command()
def stats(
    vocab: VocabularyPath, json: Annotated[bool, typer.Option("--json", help="print a JSON object")] = False
) -> None:
    """Print how many concepts, names, languages and links a vocabulary has, and its schemes and collections."""
    from json import dumps

    from xmtc.errors import escape_controls, escape_json_controls
    from xmtc.vocabulary.statistics import compute_statistics, list_groups

    found = open_vocabulary(vocab)
    numbers, groups = compute_statistics(found), list_groups(found)
    if json:
        listed = [group._asdict() for group in groups]
        echo(escape_json_controls(dumps(numbers | {"groups": listed}, indent=2, ensure_ascii=False)))
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
    label: Annotated[str, typer.Argument(metavar="NAME", help="URI, id, notation or name")],
    language: LanguageOption = None,
    part: Annotated[bool, typer.Option("--part", help="also concepts with NAME within a name of theirs")] = False,
) -> None:
    """Print the concepts that are called so, the closest first: URI, notations and name, with tabs between them."""
    from xmtc.errors import XmtcError, escape_controls

    found = open_vocabulary(vocab, language)
    concepts = found.find_all(label)
    if part:
        concepts = list(dict.fromkeys([*concepts, *found.find_containing(label)]))
    if not concepts:
        hint = "expected another part of a name." if part else "--part looks for names that contain it."
        raise XmtcError(f"{vocab} has no concept {label!r}; {hint}")
    for concept in concepts:
        cells = (found.uri(concept), " ".join(found.notations(concept)), found.name(concept, language) or "")
        echo("\t".join(map(escape_controls, cells)))


@app.command()
def show(
    vocab: VocabularyPath,
    label: Annotated[str, typer.Argument(metavar="NAME", help="URI, id, notation or name")],
    language: LanguageOption = None,
    json: Annotated[bool, typer.Option("--json", help="print a JSON object")] = False,
) -> None:
    """Print all that a vocabulary says of a concept: names in all languages, what is above and below it."""
    from json import dumps

    from xmtc.errors import XmtcError, escape_controls, escape_json_controls
    from xmtc.vocabulary import NO_CONCEPT
    from xmtc.vocabulary.statistics import describe_concept

    found = open_vocabulary(vocab, language)
    concept = found.find(label)
    if concept == NO_CONCEPT:
        raise XmtcError(f"{vocab} has no concept {label!r}; expected a URI, an id, a notation or a name.")
    said = describe_concept(found, concept, language)
    if json:
        echo(escape_json_controls(dumps(said, indent=2, ensure_ascii=False)))
        return
    for name, value in said.items():
        for each in value if isinstance(value, list) else [value]:
            echo(f"{name}: {escape_controls(str(each))}")


@app.command()
def attach(
    model: ModelPath,
    vocab: VocabularyPath,
    language: LanguageOption = None,
    allow: AllowOption = None,
    deny: DenyOption = None,
    quiet: QuietOption = False,
) -> None:
    """Let a model know what its labels are called; it keeps the vocabulary, and any filter, in its folder."""
    from xmtc.model_folder import read_stamp
    from xmtc.tagger import Tagger

    opened = read_stamp(model)
    tagger = Tagger.load(model).with_vocabulary(open_vocabulary(vocab, language, quiet), language)
    if allow or deny:
        tagger = tagger.with_filter(allow or [], deny or [])
        report_empty_filters(tagger, allow, deny)
    report_problems(tagger)
    tagger.save(model, expected_stamp=opened)
    if not quiet:
        report_label_filter(model, tagger)


@app.command()
def filter(
    model: ModelPath,
    allow: AllowOption = None,
    deny: DenyOption = None,
    clear: Annotated[bool, typer.Option("--clear", help="let the model answer with all its labels again")] = False,
) -> None:
    """Decide which labels a model may answer, from now on; a filter that it has is replaced."""
    from xmtc.errors import XmtcError
    from xmtc.model_folder import read_stamp
    from xmtc.tagger import Tagger

    if clear == bool(allow or deny):
        found = "both --clear and a filter" if clear else "no filter"
        raise XmtcError(f"Found {found}; give --allow or --deny, or --clear to take the model's filter away.")
    opened = read_stamp(model)
    tagger = Tagger.load(model).with_filter(allow or [], deny or [])
    report_empty_filters(tagger, allow, deny)
    tagger.save(model, expected_stamp=opened)
    report_label_filter(model, tagger)


@app.command()
def check(model: ModelPath) -> None:
    """Print the labels of a model that its vocabulary does not have or has deprecated: label, documents, and why."""
    from xmtc.errors import XmtcError, escape_controls
    from xmtc.tagger import Tagger

    tagger = Tagger.load(model)
    if tagger.concepts is None:
        raise XmtcError(f"{model} has no vocabulary; `xmtc vocab attach {model} VOCAB` gives it one.")
    tagger.check()
    for problem in tagger.concepts.problems():
        label, n_docs = tagger.labels[problem.label], tagger.frequencies[problem.label]
        replaced = " ".join(tagger.concepts.vocabulary.uri(each) for each in problem.replacements)
        why = "deprecated" if problem.is_deprecated else "not in the vocabulary"
        echo("\t".join(map(escape_controls, (label, str(n_docs), why, replaced))))
    report_problems(tagger)


def open_vocabulary(path: str, language: str | None = None, quiet: bool = True) -> Vocabulary:
    """A vocabulary folder, or a file that is imported on the way; with names in a language."""
    from xmtc.core.progress import hide_progress, show_progress
    from xmtc.vocabulary import Vocabulary, import_files

    is_file = Path(path).is_file()
    found = (
        import_files([path], None, None, hide_progress if quiet else show_progress)
        if is_file
        else Vocabulary.load(path)
    )
    found.check_language(language)
    return found


def describe_vocabulary(vocabulary: Vocabulary) -> str:
    languages = ", ".join(code for code in vocabulary.languages if code)
    return f"{len(vocabulary):,} concepts with names in {languages or 'no stated language'}"


def report_empty_filters(tagger: Tagger, allow: list[str] | None, deny: list[str] | None) -> None:
    """Say which entries of a filter do nothing, because the model has no label of them."""
    from xmtc.errors import escape_controls
    from xmtc.vocabulary.label_filters import find_empty_entries

    for option, entries in (("--allow", allow), ("--deny", deny)):
        for entry in find_empty_entries(entries or [], tagger.labels, tagger.concepts):
            echo(f"{option} {escape_controls(entry)} does nothing: the model has no label of it.", err=True)


def report_label_filter(model: str, tagger: Tagger) -> None:
    n_allowed = len(tagger.labels) if tagger.allowed is None else int(tagger.allowed.sum())
    echo(f"{model} may answer with {n_allowed:,} of its {len(tagger.labels):,} labels.", err=True)


def report_problems(tagger: Tagger) -> None:
    """Say which labels are not in the vocabulary, and which it has deprecated."""
    assert tagger.concepts is not None
    n_found = int((tagger.concepts.concepts >= 0).sum())
    echo(f"{n_found:,} of {len(tagger.labels):,} labels are in the vocabulary.", err=True)
    for line in format_problems(tagger):
        echo(line, err=True)


def format_problems(tagger: Tagger) -> Iterator[str]:
    from xmtc.errors import escape_controls

    assert tagger.concepts is not None
    problems, vocabulary = list(tagger.concepts.problems()), tagger.concepts.vocabulary
    unknown = [escape_controls(tagger.labels[problem.label]) for problem in problems if not problem.is_deprecated]
    deprecated = [problem for problem in problems if problem.is_deprecated]
    if unknown:
        yield f"Not in it: {shorten_list(unknown)}"
    replaced = []
    for problem in deprecated:
        instead = " and ".join(escape_controls(vocabulary.name(i) or vocabulary.uri(i)) for i in problem.replacements)
        name = escape_controls(tagger.concepts.name(problem.label) or tagger.labels[problem.label])
        replaced.append(f"{name} (replaced by {instead})" if instead else name)
    if replaced:
        yield f"Deprecated: {shorten_list(replaced)}"


def shorten_list(names: list[str]) -> str:
    """The first of several, and how many more there are."""
    more = len(names) - MAX_SHOWN_LABELS
    return ", ".join(names[:MAX_SHOWN_LABELS]) + (
        f", and {more:,} more; `xmtc vocab check MODEL` lists all" if more > 0 else ""
    )
