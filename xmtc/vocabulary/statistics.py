"""What a vocabulary holds, and what it says of one concept."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from xmtc.vocabulary.vocabulary import ALTERNATIVE, COLLECTION, HIDDEN, NOTATION, PREFERRED, SCHEME, Vocabulary

NAME_KIND_TITLES = {PREFERRED: "preferred names", ALTERNATIVE: "alternative names", HIDDEN: "hidden names"}
GROUP_KIND_TITLES = {SCHEME: "scheme", COLLECTION: "collection"}


class VocabularyGroup(NamedTuple):
    kind: str
    uri: str
    name: str | None
    concepts: int


def compute_statistics(vocabulary: Vocabulary) -> dict[str, int]:
    """Numbers by what they count."""
    terms, links = vocabulary.terms, vocabulary.broader
    found = {"concepts": len(vocabulary), "deprecated": int(vocabulary.deprecated.sum())}
    found["deprecated with a replacement"] = int((np.diff(vocabulary.replacements.ends) > 0).sum())
    for kind, title in NAME_KIND_TITLES.items():
        counts = np.bincount(terms.languages[terms.kinds == kind], minlength=len(vocabulary.languages))
        for code, count in zip(vocabulary.languages, counts.tolist(), strict=True):
            if count:
                found[f"{title} ({code or 'no language'})"] = count
    found["notations"] = int((terms.kinds == NOTATION).sum())
    found["broader links"] = len(links.to)
    found["concepts with nothing above"] = int((np.diff(links.ends) == 0).sum())
    return found


def list_groups(vocabulary: Vocabulary) -> list[VocabularyGroup]:
    """Schemes and collections, in the order of the file."""
    kinds, sizes = vocabulary.group_kinds.tolist(), np.diff(vocabulary.members.ends).tolist()
    uris = vocabulary.groups.words()
    return [
        VocabularyGroup(GROUP_KIND_TITLES[kinds[i]], uris[i], vocabulary.group_name(i), sizes[i])
        for i in range(len(vocabulary.groups))
    ]


def describe_concept(vocabulary: Vocabulary, concept: int, language: str | None = None) -> dict[str, Any]:
    """All that is said of a concept; others are named in a language."""

    def named(others: list[int]) -> list[str]:
        return [f"{vocabulary.name(i, language) or ''} <{vocabulary.uri(i)}>".strip() for i in others]

    names = vocabulary.names(concept)
    titles = {PREFERRED: "name", ALTERNATIVE: "alternative", HIDDEN: "hidden"}
    said: dict[str, Any] = {"uri": vocabulary.uri(concept), "notation": vocabulary.notations(concept)}
    for kind, title in titles.items():
        said[title] = [
            f"{name.text} ({name.language})" if name.language else name.text for name in names if name.kind == kind
        ]
    said["broader"] = named(vocabulary.broader[concept])
    said["ancestors"] = named(vocabulary.ancestors(concept))
    said["narrower"] = named(vocabulary.narrower[concept])
    groups = vocabulary.groups_of[concept]
    said["groups"] = [vocabulary.group_name(i, language) or vocabulary.groups[i] for i in groups]
    said["deprecated"] = bool(vocabulary.deprecated[concept])
    said["replaced by"] = named(vocabulary.replacements[concept])
    return {name: value for name, value in said.items() if value or name == "deprecated"}
