"""Changes between two versions of a vocabulary, and what becomes of labels of the older one.

A concept of the older version has successors in the newer one: itself if it is not deprecated, else what replaces it
(`dct:isReplacedBy`) or matches it (`skos:exactMatch`), also over several steps."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xmtc.data.file_streams import display_name, open_output, read_lines
from xmtc.errors import XmtcError, truncate_text
from xmtc.vocabulary.vocabulary import (
    NO_CONCEPT,
    NOTATION,
    PREFERRED,
    Vocabulary,
    local_id,
    normalize_name,
    strip_brackets,
)

RENAMED, MOVED, REPLACED, MERGED, SPLIT = "renamed", "moved", "replaced", "merged", "split"
DEPRECATED, REMOVED, ADDED = "deprecated", "removed", "added"
UNCHANGED, UNKNOWN = "unchanged", "unknown"  # further states of labels
CHANGE_COLUMNS = ("change", "old", "new", "old_name", "new_name", "candidates")
URI_SEPARATOR = "|"  # between URIs in a cell
MAX_SHOWN_LABELS = 3  # in an error message


class ConceptChange(NamedTuple):
    """Change of a concept; a row of a mapping file."""

    change: str
    old: str  # URI or id; empty for an added concept
    new: tuple[str, ...] = ()  # URIs or ids; empty for a split, whose successors are the candidates
    old_name: str = ""
    new_name: str = ""
    candidates: tuple[str, ...] = ()

    def cells(self) -> list[str]:
        new, candidates = URI_SEPARATOR.join(self.new), URI_SEPARATOR.join(self.candidates)
        return [self.change, self.old, new, self.old_name, self.new_name, candidates]


class LabelChange(NamedTuple):
    """Labels that replace a label; none if it is dropped."""

    label: str
    change: str
    new: tuple[str, ...]


def find_successors(uri: str, old_aliases: Iterable[str], new: Vocabulary) -> list[int]:
    """Return the concepts of a vocabulary, without deprecated ones, that a URI stands for now, ascending."""
    frontier = [new.find_uri(uri), *new.aliases.find(uri), *map(new.find_uri, old_aliases)]
    itself, visited, found = frontier[0], set(), set()
    if itself != NO_CONCEPT and not new.deprecated[itself]:
        return [itself]
    while frontier:
        concept = frontier.pop()
        if concept == NO_CONCEPT or concept in visited:
            continue
        visited.add(concept)
        if not new.deprecated[concept]:
            found.add(concept)
            continue
        frontier += new.replacements[concept] + new.aliases.find(new.uri(concept))
        frontier += map(new.find_uri, new.alias_uris.get(concept, []))
    return sorted(found)


def compare_vocabularies(old: Vocabulary, new: Vocabulary) -> list[ConceptChange]:
    """Return the changes from an older to a newer version, those of the old concepts first.

    Raises
    ------
    XmtcError
        If no concept of the old version has a successor.
    """
    current = [concept for concept in range(len(old)) if not old.deprecated[concept]]
    successors = {i: find_successors(old.uri(i), old.alias_uris.get(i, ()), new) for i in current}
    if not any(successors.values()):
        raise no_match_error(old.uris.words(), new)
    n_origins = Counter(found[0] for found in successors.values() if len(found) == 1)
    changes = [change for i in current for change in compare_concept(old, i, new, successors[i], n_origins)]
    reached = {concept for found in successors.values() for concept in found}
    for concept in range(len(new)):
        is_new = concept not in reached and old.find_uri(new.uri(concept)) == NO_CONCEPT
        if is_new and not new.deprecated[concept]:
            name = new.name(concept) or ""
            changes.append(ConceptChange(ADDED, "", (new.uri(concept),), "", name))
    return changes


def compare_concept(
    old: Vocabulary, concept: int, new: Vocabulary, successors: list[int], n_origins: Mapping[int, int]
) -> Iterator[ConceptChange]:
    """Yield the changes of one old concept."""
    uri, name = old.uri(concept), old.name(concept) or ""
    new_uris = tuple(map(new.uri, successors))
    if not successors:
        change = REMOVED if new.find_uri(uri) == NO_CONCEPT else DEPRECATED
        yield ConceptChange(change, uri, (), name)
    elif len(successors) > 1:
        yield ConceptChange(SPLIT, uri, (), name, "", new_uris)
    else:
        new_name = get_name_like(new, successors[0], old, concept)
        if successors[0] != new.find_uri(uri) or new_uris[0] != uri:
            change = MERGED if n_origins[successors[0]] > 1 else REPLACED
            yield ConceptChange(change, uri, new_uris, name, new_name)
            return
        if list_preferred_names(old, concept) != list_preferred_names(new, successors[0]):
            yield ConceptChange(RENAMED, uri, new_uris, name, new_name)
        if list_broader_uris(old, concept) != list_broader_uris(new, successors[0]):
            yield ConceptChange(MOVED, uri, new_uris, name, new_name)


def get_name_like(new: Vocabulary, concept: int, old: Vocabulary, old_concept: int) -> str:
    """Return the name of a concept in the language in which the old vocabulary names its concept, if there is one."""
    codes = [name.language for name in old.names(old_concept) if name.text == old.name(old_concept)]
    language = codes[0] if codes and new.has_language(codes[0]) else None
    return new.name(concept, language) or ""


def list_preferred_names(vocabulary: Vocabulary, concept: int) -> set[tuple[str, str]]:
    return {(name.language, name.text) for name in vocabulary.names(concept) if name.kind == PREFERRED}


def list_broader_uris(vocabulary: Vocabulary, concept: int) -> set[str]:
    return set(map(vocabulary.uri, vocabulary.broader[concept]))


def write_changes(path: str, changes: Iterable[ConceptChange]) -> None:
    """Write changes as a table: tabs, or commas if the name ends in .csv."""
    with open_output(path) as stream:
        delimiter = "," if path.endswith(".csv") else "\t"
        for cells in (CHANGE_COLUMNS, *(change.cells() for change in changes)):
            stream.write((format_row(cells, delimiter) + "\n").encode("utf-8", "replace"))


def format_row(cells: Sequence[str], delimiter: str = "\t") -> str:
    """Return a row of a table; tabs and line breaks of a tab-separated cell become spaces."""
    if delimiter == "\t":
        return "\t".join(" ".join(cell.split()) for cell in cells)
    return delimiter.join('"' + cell.replace('"', '""') + '"' for cell in cells)


def read_mapping(path: str) -> dict[str, tuple[str, ...]]:
    """Return the new URIs or labels of each old one, from a table with the columns `old` and `new`.

    A row of an undecided split, without `new`, says nothing; other rows without `new` drop the label."""
    lines = [line.decode("utf-8-sig", "replace").rstrip("\r\n") for line in read_lines(path)]
    first = lines[0] if lines else ""
    delimiter = "\t" if "\t" in first else ";" if first.count(";") > first.count(",") else ","
    rows = (row for row in csv.reader(lines, delimiter=delimiter) if any(map(str.strip, row)))
    header = [cell.strip().lower() for cell in next(rows, [])]
    if not {"old", "new"} <= set(header):
        raise XmtcError(
            f"{display_name(path)} has the columns {', '.join(header) or 'of nothing'}; expected `old` and `new` among "
            "them, as `xmtc vocab diff` writes."
        )
    mapping: dict[str, tuple[str, ...]] = {}
    for row in rows:
        cells = dict(zip(header, map(str.strip, row), strict=False))
        new = tuple(strip_brackets(uri) for uri in cells.get("new", "").split(URI_SEPARATOR) if uri.strip())
        if cells.get("old") and (new or cells.get("change") != SPLIT):
            mapping[strip_brackets(cells["old"])] = new
    return mapping


@dataclass
class LabelMigration:
    """Labels of an older vocabulary, rewritten for a newer one.

    Parameters
    ----------
    new : Vocabulary
        Newer version.
    old : Vocabulary, optional
        Older version, which finds labels that are names, and tells removed concepts from unknown labels.
    mapping : mapping of str to tuple of str
        New URIs or labels of old ones, which override those of the vocabularies; none drops the label.
    """

    new: Vocabulary
    old: Vocabulary | None = None
    mapping: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def migrate(self, labels: Sequence[str]) -> list[LabelChange]:
        """Return what becomes of each label; raise XmtcError if none of them is in a vocabulary or in the mapping."""
        changes = [self.migrate_label(label) for label in labels]
        if all(change.change == UNKNOWN for change in changes):
            raise no_match_error(labels, self.new)
        n_origins = Counter(new for change in changes for new in change.new)
        return [
            change._replace(change=MERGED)
            if change.change == REPLACED and any(n_origins[new] > 1 for new in change.new)
            else change
            for change in changes
        ]

    def migrate_label(self, label: str) -> LabelChange:
        vocabulary, concept = self.find(label)
        uri = strip_brackets(label) if vocabulary is None else vocabulary.uri(concept)
        for key in (strip_brackets(label), uri):
            if key in self.mapping:
                new = tuple(self.express_uri(other, label, vocabulary, concept) for other in self.mapping[key])
                return LabelChange(label, describe_decision(label, new), new)
        aliases = () if vocabulary is None or vocabulary is self.new else vocabulary.alias_uris.get(concept, ())
        successors = find_successors(uri, aliases, self.new)
        if len(successors) > 1:
            return LabelChange(label, SPLIT, (label,))
        if successors:
            new_label = self.express(successors[0], label, vocabulary, concept)
            is_same = self.new.find_uri(uri) == successors[0]
            return LabelChange(label, describe_successor(label, new_label, is_same), (new_label,))
        if vocabulary is None:
            return LabelChange(label, UNKNOWN, (label,))
        return LabelChange(label, REMOVED if self.new.find_uri(uri) == NO_CONCEPT else DEPRECATED, ())

    def find(self, label: str) -> tuple[Vocabulary | None, int]:
        """Return the vocabulary that has a label, the older one first, and its concept."""
        for vocabulary in (self.old, self.new):
            if vocabulary is not None and (concept := vocabulary.find(label)) != NO_CONCEPT:
                return vocabulary, concept
        return None, NO_CONCEPT

    def express_uri(self, uri: str, label: str, vocabulary: Vocabulary | None, concept: int) -> str:
        """Return a URI of the mapping in the form of the label that it replaces; other texts are labels themselves."""
        target = self.new.find_uri(uri)
        return uri if target == NO_CONCEPT else self.express(target, label, vocabulary, concept)

    def express(self, target: int, label: str, vocabulary: Vocabulary | None, concept: int) -> str:
        """Return a new concept in the form of an old label: URI, id, prefixed id, notation or name."""
        uri = self.new.uri(target)
        if vocabulary is None or vocabulary.find_uri(strip_brackets(label)) == concept:
            return f"<{uri}>" if label.startswith("<") else uri
        if vocabulary.uri(concept) == uri and vocabulary is self.new:
            return label
        prefix, colon, local = label.rpartition(":")
        if local_id(vocabulary.uri(concept)) == local:
            return f"{prefix}{colon}{local_id(uri)}"
        if label in vocabulary.notations(concept):
            notations = self.new.notations(target)
            return label if label in notations else (notations or [uri])[0]
        return self.express_name(target, label, vocabulary, concept)

    def express_name(self, target: int, label: str, vocabulary: Vocabulary, concept: int) -> str:
        """Return the name of a new concept in the language of an old label; the label itself if that is still one of
        its other names."""
        wanted = normalize_name(label)
        names = [name for name in vocabulary.names(concept) if normalize_name(name.text) == wanted]
        is_preferred = any(name.kind == PREFERRED for name in names)
        kinds = {name.kind for name in self.new.names(target) if normalize_name(name.text) == wanted}
        if PREFERRED in kinds or (kinds - {NOTATION} and not is_preferred):
            return label
        language = names[0].language if names and self.new.has_language(names[0].language) else None
        return self.new.name(target, language) or self.new.uri(target)


def describe_successor(label: str, new_label: str, is_same: bool) -> str:
    """Return the change of a label with one successor."""
    if is_same:
        return UNCHANGED if label == new_label else RENAMED
    return REPLACED


def describe_decision(label: str, new: tuple[str, ...]) -> str:
    """Return the change of a label of the mapping."""
    if not new:
        return REMOVED
    if len(new) > 1:
        return SPLIT
    return UNCHANGED if new == (label,) else REPLACED


def no_match_error(labels: Sequence[str], new: Vocabulary) -> XmtcError:
    shown, concepts = (", ".join(map(truncate_text, words[:MAX_SHOWN_LABELS])) for words in (labels, new.uris.words()))
    return XmtcError(
        f"None of the {len(labels):,} labels or concepts has a successor in the new vocabulary: they are such as "
        f"{shown}, its concepts such as {concepts}. Give the newer version of the same vocabulary, or a mapping file."
    )
