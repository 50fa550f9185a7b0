"""Vocabularies: concepts with names in several languages, notations, a hierarchy and replacements.

`Vocabulary.load(folder)` opens the output of `xmtc vocab import`; `import_files` imports SKOS files and tables."""

from xmtc.vocabulary.importer import import_files
from xmtc.vocabulary.vocabulary import NO_CONCEPT, Vocabulary

__all__ = ["NO_CONCEPT", "Vocabulary", "import_files"]
