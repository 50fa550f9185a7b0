"""Vocabularies: concepts with names in several languages, notations, a hierarchy, and what replaces deprecated ones.

`xmtc.vocabulary.Vocabulary.load(folder)` opens what `xmtc vocab import` wrote; `import_files` reads SKOS and tables."""

from xmtc.vocabulary.importer import import_files
from xmtc.vocabulary.vocabulary import ABSENT, Vocabulary

__all__ = ["ABSENT", "Vocabulary", "import_files"]
