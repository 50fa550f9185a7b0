"""Demo corpus: parsing of Python sources, and properties of the whole corpus."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from xmtc.data import demo_corpus as demo
from xmtc.data.demo_corpus import (
    DocumentedObject,
    as_document,
    build_demo_documents,
    parse_documented_objects,
    parse_section_names,
    split_demo_documents,
)
from xmtc.data.document import Document

SOURCE = '''
"""A module."""

def zoom(x, n=None, /, *args, axis=-1, **kwargs):
    """Zoom in on `x` with pkg.Zoom.

    Zoom, ZOOM and zoomed.

    Parameters
    ----------
    x, n : array
        See: below.

    See Also
    --------
    pkg.linalg.solve : Solve.
        fine : not an entry
    :func:`~scipy.fft.czt`, fftn
    `rotate`
    Many others, of course: too many.

    Notes
    -----
    other : thing
    """

async def wait(): "Waits."

def _private(hidden):
    """Not for users."""

def bare(y): ...

if True:
    class Lens:
        """A lens."""
        def __init__(self, focus, *, _cache=None): ...
        def _inner(self): "Nothing."
        @classmethod
        def turn(cls, angle):
            """Turn by an angle."""
'''

ADDED = '''
add_newdoc("pkg._core", "array",
    """
    array(object, dtype)

    Parameters
    ----------
    object, dtype : anything
    """)
add_newdoc("pkg._core", "array", ("sort", "Sorts."))
add_newdoc("pkg._core", "array", [("T", "Transposed."), ("_flags", "Hidden.")])
add_newdoc("pkg._core", "made", "At run " + when)
add_newdoc("gamma", "The function.")
add_other("pkg._core", "other", "Other.")
'''


def test_public_objects_with_a_docstring() -> None:
    found = {item.name: item for item in parse_documented_objects(SOURCE, "pkg._zoom")}
    assert list(found) == ["pkg._zoom.zoom", "pkg._zoom.wait", "pkg._zoom.Lens", "pkg._zoom.Lens.turn"]
    assert found["pkg._zoom.zoom"].arguments == ["x", "n", "axis"]
    assert found["pkg._zoom.Lens"] == ("pkg._zoom.Lens", "pkg._zoom", "A lens.", ["self", "focus", "_cache"])


def test_labels_are_sorted_and_exclude_the_own_name() -> None:
    zoom, _, lens, turn = map(as_document, parse_documented_objects(SOURCE, "pkg._zoom"))
    assert zoom.id == "pkg._zoom.zoom"
    assert zoom.text.startswith(" in on `x` with .\n\n,  and zoomed.\n\nParameters")
    assert zoom.labels == ["axis", "czt", "fftn", "n", "pkg", "rotate", "solve", "x"]
    assert lens == Document("pkg._zoom.Lens", "A .", ["focus", "pkg"])
    assert turn == Document("pkg._zoom.Lens.turn", " by an angle.", ["angle", "pkg"])


def test_sections_of_docstrings_are_parsed() -> None:
    docstring = next(parse_documented_objects(SOURCE, "pkg")).docstring
    assert parse_section_names(docstring, "Parameters") == ["x", "n"]
    assert parse_section_names(docstring, "See Also") == ["pkg.linalg.solve", "scipy.fft.czt", "fftn", "rotate"]
    assert parse_section_names(docstring, "Notes") == ["other"]
    assert parse_section_names(docstring, "Raises") == []


def test_documentation_of_compiled_functions() -> None:
    found = list(parse_documented_objects(ADDED, "pkg.special._add_newdocs"))
    assert [item.name for item in found] == [
        "pkg._core.array",
        "pkg._core.array.sort",
        "pkg._core.array.T",
        "pkg.special.gamma",
    ]
    assert found[0].module == "pkg._core"
    assert found[0].arguments == ["object", "dtype"]
    assert found[3] == DocumentedObject("pkg.special.gamma", "pkg.special", "The function.", [])
    assert list(parse_documented_objects(ADDED, "pkg.elsewhere")) == []


def test_invalid_source_is_skipped() -> None:
    assert list(parse_documented_objects("def f(:\n", "m")) == []
    assert [item.name for item in parse_documented_objects('def f():\n    "A \\d."\n', "m")] == [
        "m.f"
    ]  # warns when imported


def write_function(path: Path, name: str, words: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'def {name}(x):\n    """{words * demo.MIN_WORDS}"""\n')


def test_files_and_docstrings_are_selected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.sysconfig, "get_path", lambda name: str(tmp_path))
    write_function(tmp_path / "wave.py", "read", "sound ")
    write_function(tmp_path / "email/__init__.py", "parse", "letter ")
    write_function(tmp_path / "email/_policy.py", "twin", "private ")
    write_function(tmp_path / "audio.py", "copied", "sound ")
    write_function(tmp_path / "tests/helper.py", "check", "test ")
    write_function(tmp_path / "site-packages/other.py", "thing", "foreign ")
    write_function(tmp_path / "not-a-module.py", "script", "script ")
    (tmp_path / "short.py").write_text('def brief():\n    """Too short."""\n')
    (tmp_path / "notes.txt").write_text("no source")
    found = build_demo_documents(("no_such_package",))
    assert [(document.id, document.labels) for document in found] == [
        ("audio.copied", ["audio", "x"]),
        ("email.parse", ["email", "x"]),
    ]


@pytest.fixture(scope="module")
def corpus() -> list[Document]:
    return build_demo_documents()


@pytest.mark.integration
def test_corpus_has_the_expected_size(corpus: list[Document]) -> None:
    tags = Counter(tag for document in corpus for tag in document.labels)
    assert 3_000 <= len(corpus) <= 6_000
    assert 3_500 <= len(tags) <= 6_000
    assert 4 <= tags.total() / len(corpus) <= 9
    assert 150 <= sum(len(document.text.split()) for document in corpus) / len(corpus) <= 350
    assert {"numpy", "scipy", "sklearn", "asyncio"} <= set(tags)


@pytest.mark.integration
def test_every_document_has_text_and_labels(corpus: list[Document]) -> None:
    for document in corpus:
        own_name = document.id.rpartition(".")[2]
        assert not re.search(rf"\b{own_name}\b", document.text, re.IGNORECASE), document.id
        assert document.labels, document.id
        assert document.labels == sorted(set(document.labels)), document.id
        assert all(tag.isidentifier() and not tag.startswith("_") for tag in document.labels), document.id


@pytest.mark.integration
def test_documents_are_sorted_and_unique(corpus: list[Document]) -> None:
    names = [document.id for document in corpus]
    assert names == sorted(set(names))
    assert len({document.text for document in corpus}) == len(corpus)


@pytest.mark.integration
def test_known_documents(corpus: list[Document]) -> None:
    tags = {document.id.rpartition(".")[2]: document.labels for document in corpus}
    assert {"numpy", "type1", "type2", "can_cast"} <= set(tags["promote_types"])  # compiled
    assert {"scipy", "special"} <= set(tags["wrightomega"])
    assert {"sklearn", "linear_model", "C", "penalty", "SGDClassifier"} <= set(tags["LogisticRegression"])


@pytest.mark.integration
def test_corpus_of_numpy_is_reproducible(
    corpus: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo.sysconfig, "get_path", lambda name: str(tmp_path))
    again = {document.id: document for document in build_demo_documents(("numpy",))}
    before = [document for document in corpus if document.id.startswith("numpy.")]
    assert [again[document.id] for document in before] == before


@pytest.mark.integration
def test_split_is_stored(corpus: list[Document]) -> None:
    train, test = split_demo_documents(corpus, seed=3, share=0.25)
    assert len(test) == round(len(corpus) / 4)
    assert sorted(document.id for document in train + test) == [document.id for document in corpus]
    assert split_demo_documents(corpus, seed=3, share=0.25) == (train, test)
    assert split_demo_documents(corpus, seed=4, share=0.25)[1] != test
    assert len(split_demo_documents(corpus)[1]) == round(len(corpus) / 5)
