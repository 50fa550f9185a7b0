"""Parameters that train any method on a few hundred documents within a second or two."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from xmtc import testing
from xmtc.errors import MissingExtra
from xmtc.methods import method_class


def quick(name: str) -> dict[str, Any]:
    """Return fast parameters of a method; an encoder for methods of subwords, a vocabulary for methods of names."""
    try:
        method = method_class(name)
    except MissingExtra as missing:
        pytest.skip(str(missing))
    views = method().required_views
    if views == ("names",):
        return {"vocabulary": planted_names(), **method.quick_parameters}
    if not {"subwords", "dense"}.intersection(views):
        return method.quick_parameters
    from tiny_encoders import tiny, tiny_sentence_encoder

    if views == ("dense",):
        encoder = {"sentence_encoder": tiny_sentence_encoder(), "sentence_length": 64}
        names = {"vocabulary": planted_names()} if method.has_label_name_input else {}
        return {**names, **encoder, **method.quick_parameters}

    return {"encoder": tiny("bert", 128), **method.quick_parameters}


@cache
def planted_names() -> str:
    """Write a vocabulary in which the name of each label consists of its own words."""
    rows = ["\t".join(["id", "name", "altLabel"])]
    for label in range(testing.N_LABELS):
        name, *others = testing.planted_words(label)
        rows.append("\t".join([testing.planted_label(label), name, "|".join(others)]))
    path = Path(tempfile.mkdtemp()) / "names.tsv"
    path.write_text("\n".join(rows) + "\n")
    return str(path)
