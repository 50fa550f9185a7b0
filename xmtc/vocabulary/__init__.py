"""Vocabularies: concepts with names in several languages, notations, a hierarchy and replacements.

`Vocabulary.load(folder)` opens the output of `xmtc vocab import`; `import_files` imports SKOS files and tables."""

from typing import TYPE_CHECKING, Any

from xmtc.vocabulary.vocabulary import NO_CONCEPT, Vocabulary

if TYPE_CHECKING:
    from xmtc.vocabulary.importer import import_files

__all__ = ["NO_CONCEPT", "Vocabulary", "import_files"]


def __getattr__(name: str) -> Any:
    if name == "import_files":  # imported here, because prediction needs no parsers
        from xmtc.vocabulary.importer import import_files

        return import_files
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
