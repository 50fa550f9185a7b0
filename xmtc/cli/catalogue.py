"""xmtc data list and xmtc data get: data sets that have a name, and whether the files that are here are theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.streams import echo

if TYPE_CHECKING:
    from xmtc.data.catalogue import CatalogueEntry

DataSetNameArgument = Annotated[str, typer.Argument(metavar="NAME", help="a name that `xmtc data list` shows")]
DataSetFolderOption = Annotated[
    Path | None, typer.Option("-o", "--output", help="folder that has, or will have, the data set's folder (the cache)")
]


def list_data_sets(output: DataSetFolderOption = None) -> None:
    """List the data sets of the papers, and others, that xmtc knows by name; which are here."""
    from xmtc.data.catalogue import find_train_test_pairs, load_catalogue, locate_corpus_folder

    for found in load_catalogue().values():
        place = locate_corpus_folder(found, output)
        where = str(place) if find_train_test_pairs(place) else "not here"
        echo(f"{found.name:15} {format_data_set_sizes(found)}: {found.about} ({where})")
    echo("\n`xmtc data get NAME` says where one is to be had, and checks the files once they are here.")


def format_data_set_sizes(found: CatalogueEntry) -> str:
    """As the first source that tells has them."""
    known = {
        key: entry[key] for entry in reversed(found.published) for key in ("train", "test", "labels") if key in entry
    }
    documents = f"{known['train']:,} + {known['test']:,} documents" if "train" in known else "documents not told"
    return f"{documents}, {known['labels']:,} labels" if "labels" in known else documents


def get(
    name: DataSetNameArgument,
    output: DataSetFolderOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="count nothing, where the files are large")] = False,
) -> None:
    """Say where a data set is to be had and where to put it; once it is there, check it against what was published."""
    from xmtc.data.catalogue import find_catalogue_entry, find_train_test_pairs, locate_corpus_folder
    from xmtc.errors import XmtcError

    found = find_catalogue_entry(name)
    place = locate_corpus_folder(found, output)
    print_data_set(found)
    forms = find_train_test_pairs(place)
    if not forms:
        raise XmtcError(
            f"{found.name} is not here, and xmtc fetches no data sets; put it into {place} as {format_expected_files(found)}, and "
            "repeat the command."
        )
    for train, test in forms:
        echo(f"\n{train} and {test.name}:")
        if not quick:
            print_checks(found, train, test)
        print_train_commands(found, train, test)


def print_data_set(found: CatalogueEntry) -> None:
    echo(f"{found.name}: {found.about}. {format_data_set_sizes(found)}.")
    echo(f"From {found.source}. Licence: {found.licence}.")
    if found.note:
        echo(found.note)


def format_expected_files(found: CatalogueEntry) -> str:
    """What its files are to be called, by what is in them."""
    features = "train.txt and test.txt (features, in the repository's own format)"
    texts = "train.jsonl and test.jsonl (texts; of two files, `xmtc data convert texts.txt,labels.txt train.jsonl`)"
    return {"texts": texts, "features": features}.get(found.content, f"{features} or {texts}")


def print_checks(found: CatalogueEntry, train: Path, test: Path) -> None:
    """Print what is here beside what was published."""
    from xmtc.core.progress import show_progress
    from xmtc.data.catalogue import compare_counts, compute_counts
    from xmtc.storage.cache import compute_path_sha256

    counts, is_text = compute_counts(train, test, show_progress), "txt" not in train.name
    for title, here, published, agrees in compare_counts(found, counts):
        if not (is_text and title == "features"):
            echo(f"  {'' if agrees else 'differs: '}{title}: {here}; published: {published}")
    known = [path for path in (train, test) if path.name in found.sha256]
    if changed := [path.name for path in known if compute_path_sha256(path) != found.sha256[path.name]]:
        echo(f"  differs: the checksum of {' and '.join(changed)}: other files than those that xmtc knows")
    elif known:
        echo("  checksums: as xmtc knows them")


def print_train_commands(found: CatalogueEntry, train: Path, test: Path) -> None:
    """Print how to train on it: with the presets that are its own, and with what needs none."""
    kind = "features" if "txt" in train.name else "texts"
    presets = found.presets.get(kind, {})
    for method, preset in presets.items():
        echo(f"  xmtc train {train} -m {method} -p preset={preset} -o model")
    if "parabel" not in presets:
        echo(f"  xmtc train {train} -m parabel -o model")
    propensity = "" if found.propensity == "default" else f" --propensity {found.propensity}"
    echo(f"  xmtc evaluate model {test} P@1 P@3 P@5 PSP@5{propensity}")
