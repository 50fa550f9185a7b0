"""Statistics of a vocabulary, and descriptions of its groups and concepts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from xmtc.vocabulary.vocabulary import ALTERNATIVE, COLLECTION, HIDDEN, NOTATION, PREFERRED, SCHEME, Vocabulary

NAME_KIND_TITLES = {PREFERRED: "preferred names", ALTERNATIVE: "alternative names", HIDDEN: "hidden names"}
GROUP_KIND_TITLES = {SCHEME: "scheme", COLLECTION: "collection"}


class VocabularyGroup(NamedTuple):
    """Scheme or collection with its number of concepts."""

    kind: str
    uri: str
    name: str | None
    concepts: int


def compute_statistics(vocabulary: Vocabulary) -> dict[str, int]:
    """Return counts of concepts, names and links by title."""
    terms, links = vocabulary.terms, vocabulary.broader
    counts_by_title = {"concepts": len(vocabulary), "deprecated": int(vocabulary.deprecated.sum())}
    counts_by_title["deprecated with a replacement"] = int((np.diff(vocabulary.replacements.ends) > 0).sum())
    for kind, title in NAME_KIND_TITLES.items():
        counts = np.bincount(terms.languages[terms.kinds == kind], minlength=len(vocabulary.languages))
        for code, count in zip(vocabulary.languages, counts.tolist(), strict=True):
            if count:
                counts_by_title[f"{title} ({code or 'no language'})"] = count
    counts_by_title["notations"] = int((terms.kinds == NOTATION).sum())
    counts_by_title["broader links"] = len(links.to)
    counts_by_title["concepts with nothing above"] = int((np.diff(links.ends) == 0).sum())
    return counts_by_title


def list_groups(vocabulary: Vocabulary) -> list[VocabularyGroup]:
    """Return the schemes and collections in the order of the file."""
    kinds, sizes = vocabulary.group_kinds.tolist(), np.diff(vocabulary.members.ends).tolist()
    uris = vocabulary.groups.words()
    return [
        VocabularyGroup(GROUP_KIND_TITLES[kinds[i]], uris[i], vocabulary.group_name(i), sizes[i])
        for i in range(len(vocabulary.groups))
    ]


def describe_concept(vocabulary: Vocabulary, concept: int, language: str | None = None) -> dict[str, Any]:
    """Return all statements about a concept; other concepts are named in a language."""

    def name_all(others: list[int]) -> list[str]:
        return [f"{vocabulary.name(i, language) or ''} <{vocabulary.uri(i)}>".strip() for i in others]

    names = vocabulary.names(concept)
    titles = {PREFERRED: "name", ALTERNATIVE: "alternative", HIDDEN: "hidden"}
    description: dict[str, Any] = {"uri": vocabulary.uri(concept), "notation": vocabulary.notations(concept)}
    for kind, title in titles.items():
        description[title] = [
            f"{name.text} ({name.language})" if name.language else name.text for name in names if name.kind == kind
        ]
    description["broader"] = name_all(vocabulary.broader[concept])
    description["ancestors"] = name_all(vocabulary.ancestors(concept))
    description["narrower"] = name_all(vocabulary.narrower[concept])
    groups = vocabulary.groups_of[concept]
    description["groups"] = [vocabulary.group_name(i, language) or vocabulary.groups[i] for i in groups]
    description["deprecated"] = bool(vocabulary.deprecated[concept])
    description["replaced by"] = name_all(vocabulary.replacements[concept])
    return {name: value for name, value in description.items() if value or name == "deprecated"}
