"""Vocabularies: concepts with names in several languages, notations, a hierarchy, and what replaces deprecated ones.

`xmtc.vocabulary.Vocabulary.load(folder)` opens what `xmtc vocab import` wrote; `import_files` reads SKOS and tables."""

from xmtc.vocabulary.importer import import_files
from xmtc.vocabulary.vocabulary import NO_CONCEPT, Vocabulary

__all__ = ["NO_CONCEPT", "Vocabulary", "import_files"]
