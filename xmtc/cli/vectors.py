"""xmtc vectors: the word vectors that have a name."""

from __future__ import annotations

from xmtc.cli.streams import echo


def vectors() -> None:
    """List the word vectors that can be had by name, and which of them are in the cache."""
    from xmtc.text.vector_packages import VECTOR_PACKAGES, cached_path

    for name, package in VECTOR_PACKAGES.items():
        path = cached_path(name)
        where = str(path) if path.exists() else f"not yet fetched; {package.tool} package {package.name}"
        echo(f"{name:12} {package.n_words:,} words of {package.dimensions} numbers, {package.description} ({where})")
    echo("\nAny file in the format of GloVe, word2vec or fastText does as well: give its path.")
