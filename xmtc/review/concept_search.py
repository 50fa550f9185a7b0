"""Search over the names of all concepts of a vocabulary, also of those that a model has never seen.

All names lie in one string, the shortest first, so that the first matches of a scan are the best of their kind. Names
that equal or start with the search text are found by bisection in their alphabetical order."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from xmtc.core.predictions import NO_LABEL
from xmtc.tagger import Tagger
from xmtc.vocabulary.label_concepts import LabelConcepts
from xmtc.vocabulary.label_filters import select_concept_mask
from xmtc.vocabulary.vocabulary import NO_CONCEPT, Vocabulary, local_id, normalize_name

SEPARATOR, SPACE = b"\n", b" "  # the separator is not in a normalised name
MAX_MATCHES = 2000  # of a scan; a search text with more matches is too short to rank all of them
MAX_OTHER_NAMES = 3
EQUAL, START, WORD_START, INSIDE = range(4)
FORMS: dict[str, Callable[[Vocabulary, int], str | None]] = {
    "uri": Vocabulary.uri,
    "id": lambda vocabulary, concept: local_id(vocabulary.uri(concept)),
    "notation": lambda vocabulary, concept: next(iter(vocabulary.notations(concept)), None),
    "name": Vocabulary.name,
}


class LabelMatch(NamedTuple):
    """Label of the model, or concept that it does not know, with names."""

    label: str
    name: str
    others: list[str]  # further names that contain the search text
    is_known: bool  # to the model
    uri: str


@dataclass(frozen=True)
class NameIndex:
    """Names of items in one string, and their alphabetical order."""

    text: bytes
    starts: np.ndarray  # (n_names + 1,); name i is text[starts[i]:starts[i + 1] - 1]
    items: np.ndarray  # item of each name
    order: np.ndarray  # names in alphabetical order

    @classmethod
    def from_names(cls, names: Sequence[bytes], items: Sequence[int]) -> NameIndex:
        by_length = sorted(range(len(names)), key=lambda number: len(names[number]))
        ordered = [names[number] for number in by_length]
        starts = np.concatenate([[1], 1 + np.cumsum([len(name) + 1 for name in ordered])]).astype(np.int64)
        text = SEPARATOR + SEPARATOR.join(ordered) + SEPARATOR
        order = np.array(sorted(range(len(ordered)), key=ordered.__getitem__), np.int64)
        return cls(text, starts, np.array([items[number] for number in by_length], np.int64), order)

    def __len__(self) -> int:
        return len(self.items)

    def get_name(self, number: int) -> bytes:
        return self.text[self.starts[number] : self.starts[number + 1] - 1]

    def find_starting(self, search: bytes) -> np.ndarray:
        """Return the names that start with a text, the shortest first."""

        def get_key(position: int) -> bytes:
            return self.get_name(int(self.order[position]))

        begin = bisect_left(range(len(self)), search, key=get_key)
        end = bisect_left(range(len(self)), search + b"\xff", lo=begin, key=get_key)
        return np.sort(self.order[begin:end])

    def scan(self, search: bytes) -> np.ndarray:
        """Return the positions of a text, at most MAX_MATCHES, in the shortest names first."""
        positions: list[int] = []
        position = self.text.find(search)
        while position >= 0 and len(positions) < MAX_MATCHES:
            positions.append(position)
            position = self.text.find(search, position + 1)
        return np.array(positions, np.int64)

    def rank_names(self, search: bytes) -> Iterator[int]:
        """Yield names by kind of match (equal, at the start, at the start of a word, inside), then by length."""
        yield from map(int, self.find_starting(search))
        positions = self.scan(search)
        names = np.searchsorted(self.starts, positions, side="right") - 1
        letters_before = np.frombuffer(self.text, np.uint8)[positions - 1]
        is_start = letters_before == SEPARATOR[0]
        is_word_start = letters_before == SPACE[0]
        yield from map(int, names[is_word_start])
        yield from map(int, names[~(is_start | is_word_start)])


class ConceptSearch:
    """Search over the labels of a model and all concepts of its vocabulary."""

    def __init__(self, tagger: Tagger) -> None:
        self.tagger = tagger
        concepts = tagger.concepts
        n_concepts = 0 if concepts is None else len(concepts.vocabulary)
        self.labels = np.full(n_concepts, NO_LABEL, np.int64)  # label of each concept
        if concepts is not None:
            known = np.flatnonzero(concepts.concepts != NO_CONCEPT)[::-1]  # the first label of a concept counts
            self.labels[concepts.concepts[known]] = known
        self.form = find_label_form(tagger)
        names: list[bytes] = []
        items: list[int] = []  # concepts, then labels without a concept
        for item, name in self._list_names():
            normalized = normalize_name(name)
            if normalized:
                names.append(normalized)
                items.append(item)
        self.index = NameIndex.from_names(names, items)

    def _list_names(self) -> Iterator[tuple[int, str]]:
        """Yield all names of concepts, and the labels."""
        concepts = self.tagger.concepts
        n_concepts = len(self.labels)
        if concepts is not None:
            terms = concepts.vocabulary.terms
            owners = np.repeat(np.arange(n_concepts), np.diff(terms.of))
            text, ends = terms.text.tobytes(), terms.ends.tolist()
            for name, owner in enumerate(owners.tolist()):
                yield owner, text[ends[name] : ends[name + 1]].decode(errors="replace")
        for number, label in enumerate(self.tagger.labels.words()):
            concept = NO_CONCEPT if concepts is None else int(concepts.concepts[number])
            yield n_concepts + number if concept == NO_CONCEPT else concept, label

    def search(
        self, search: str, language: str | None = None, limit: int = 20, allow: Sequence[str] = ()
    ) -> list[LabelMatch]:
        """Return the labels and concepts with a name that contains a text, the best match first.

        `allow` limits the results to branches, schemes, collections and single concepts, as in label filters."""
        wanted = normalize_name(search)
        if not wanted:
            return []
        mask = self._select_items(allow) if allow else None
        results: dict[int, LabelMatch] = {}
        names = (int(self.index.items[number]) for number in self.index.rank_names(wanted))
        for item in chain(self._find_by_uri(search.strip()), names):
            if item not in results and (mask is None or mask[item]):
                results[item] = self.describe_item(item, wanted, language)
            if len(results) == limit:
                break
        return list(results.values())

    def _find_by_uri(self, search: str) -> list[int]:
        concepts = self.tagger.concepts
        concept = NO_CONCEPT if concepts is None or "://" not in search else concepts.vocabulary.find_uri(search)
        return [] if concept == NO_CONCEPT else [concept]

    def _select_items(self, allow: Sequence[str]) -> np.ndarray:
        """Return which items the entries of a filter allow."""
        concepts, n_concepts = self.tagger.concepts, len(self.labels)
        mask = np.zeros(n_concepts + len(self.tagger.labels), bool)
        for entry in allow:
            if concepts is not None:
                mask[:n_concepts] |= select_concept_mask(entry, concepts.vocabulary)
            number = self.tagger.labels.find(entry)
            mask[n_concepts + number] |= number != NO_LABEL
        return mask

    def describe_item(self, item: int, search: bytes = b"", language: str | None = None) -> LabelMatch:
        """Return the label and the names of a concept, or of a label without a concept."""
        concepts, n_concepts = self.tagger.concepts, len(self.labels)
        if item >= n_concepts or concepts is None:
            label = self.tagger.labels[item - n_concepts]
            return LabelMatch(label, label, [], True, label)
        vocabulary, number = concepts.vocabulary, int(self.labels[item])
        uri = vocabulary.uri(item)
        label = self.tagger.labels[number] if number != NO_LABEL else FORMS[self.form](vocabulary, item) or uri
        name = vocabulary.name(item, self._pick_language(concepts, language)) or label
        names = dict.fromkeys(each.text for each in vocabulary.names(item))
        others = [each for each in names if each != name and search and search in normalize_name(each)]
        return LabelMatch(label, name, others[:MAX_OTHER_NAMES], number != NO_LABEL, uri)

    def _pick_language(self, concepts: LabelConcepts, language: str | None) -> str | None:
        """Return the language if the vocabulary has it, otherwise the default language."""
        is_known = language is not None and concepts.vocabulary.has_language(language)
        return language if is_known else concepts.language or None

    def find_label(self, uri: str) -> str:
        """Return the label that stands for a URI or name of a concept; the same text for an unknown one."""
        concepts = self.tagger.concepts
        if concepts is None or self.tagger.labels.find(uri) != NO_LABEL:
            return uri
        concept = concepts.vocabulary.find(uri)
        return uri if concept == NO_CONCEPT else self.describe_item(concept).label

    def describe_label(self, label: str, language: str | None = None) -> LabelMatch:
        """Return the names of a label, also of one that the model does not know."""
        concepts = self.tagger.concepts
        concept = NO_CONCEPT if concepts is None else concepts.vocabulary.find(label)
        if concept != NO_CONCEPT:
            return self.describe_item(concept, language=language)._replace(label=label)
        return LabelMatch(label, label, [], self.tagger.labels.find(label) != NO_LABEL, label)


def find_label_form(tagger: Tagger, n_labels: int = 1000) -> str:
    """Return how the labels of a model name their concepts: by URI, id, notation or name."""
    forms: Counter[str] = Counter()
    if tagger.concepts is not None:
        vocabulary = tagger.concepts.vocabulary
        for number in np.flatnonzero(tagger.concepts.concepts != NO_CONCEPT)[:n_labels].tolist():
            label, concept = tagger.labels[number], int(tagger.concepts.concepts[number])
            forms.update([name for name, write in FORMS.items() if write(vocabulary, concept) == label][:1])
    return forms.most_common(1)[0][0] if forms else "uri"
