"""A corpus that every machine already has: the docstrings of Python's standard library, numpy, scipy and scikit-learn.

A document is the docstring of a public function, class or method, without the name of that object. Its tags are the
parts of its module path, its argument names and its "See Also" entries. Sources are parsed, never imported.
"""

from __future__ import annotations

import ast
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from inspect import cleandoc
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmtc.data.document import Document

PACKAGES = ("numpy", "scipy", "sklearn")
MIN_WORDS = 50  # shorter docstrings say too little to be tagged by what they say
# Tests, other people's packages, build tools, and what newer Pythons have dropped.
SKIPPED_FOLDERS = {
    *("tests", "test", "testing", "site-packages", "dist-packages", "lib-dynload", "externals", "_lib", "__pycache__"),
    *("distutils", "f2py", "_build_utils", "idlelib", "lib2to3", "turtledemo", "ensurepip", "pydoc_data"),
}
IGNORED_ARGUMENTS = {"self", "cls", "args", "kwargs"}


class DocumentedObject(NamedTuple):
    """An object with a docstring, as its source has it."""

    name: str  # qualified: module path, class, name
    module: str
    docstring: str
    arguments: list[str]


def build_demo_documents() -> list[Document]:
    """The corpus, ordered by qualified name; the same on every call, and on every machine with the same packages."""
    found: dict[str, DocumentedObject] = {}
    for file, module in find_source_files():
        for item in parse_documented_objects(file.read_text(encoding="utf-8", errors="replace"), module):
            if len(item.docstring.split()) >= MIN_WORDS:
                found.setdefault(item.name, item)

    documents = [as_document(found[name]) for name in sorted(found)]
    first_with = {document.text: document for document in reversed(documents)}  # by text, to leave duplicates out
    return [document for document in documents if document.labels and first_with[document.text] is document]


def split_demo_documents(
    documents: Sequence[Document], seed: int = 0, share: float = 0.2
) -> tuple[list[Document], list[Document]]:
    """Training and test documents: a share of them, drawn at random, is the test."""
    n_test = round(share * len(documents))
    is_test = np.zeros(len(documents), dtype=bool)
    is_test[np.random.default_rng(seed).permutation(len(documents))[:n_test]] = True

    train = [document for document, test in zip(documents, is_test, strict=True) if not test]
    return train, [document for document, test in zip(documents, is_test, strict=True) if test]


def find_source_files() -> Iterator[tuple[Path, str]]:
    """Python sources and the modules they are, in a fixed order."""
    roots = [("", sysconfig.get_path("stdlib"))]
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            roots.append((package, spec.submodule_search_locations[0]))

    for package, root in roots:
        for folder, subfolders, files in os.walk(root):
            subfolders[:] = sorted(name for name in subfolders if name.isidentifier() and name not in SKIPPED_FOLDERS)
            for file in sorted(files):
                stem, ending = os.path.splitext(file)
                is_private = not package and stem.startswith("_") and stem != "__init__"  # behind a public module
                if ending == ".py" and stem.isidentifier() and not is_private:
                    path = Path(folder, file)
                    parts = [package, *path.relative_to(root).with_suffix("").parts]
                    yield path, ".".join(part for part in parts if part and part != "__init__")


def parse_documented_objects(source: str, module: str) -> Iterator[DocumentedObject]:
    """Public functions, classes and methods of a source text that have a docstring."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about other people's escape sequences
            tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a template, or a file for another Python
        return
    yield from iter_documented_objects(tree.body, module, module)


def iter_documented_objects(body: Sequence[ast.stmt], prefix: str, module: str) -> Iterator[DocumentedObject]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            name = f"{prefix}.{node.name}"
            docstring = ast.get_docstring(node)
            if docstring:
                yield DocumentedObject(name, module, docstring, get_argument_names(node))
            if isinstance(node, ast.ClassDef):
                yield from iter_documented_objects(node.body, name, module)
        elif isinstance(node, (ast.If, ast.Try)):
            yield from iter_documented_objects([*node.body, *node.orelse], prefix, module)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and "_add_newdocs" in module:
            yield from parse_add_newdoc(node.value, package=module.rpartition(".")[0])


def get_argument_names(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    """Argument names of a function, or of a class's constructor."""
    if isinstance(node, ast.ClassDef):
        constructors = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        return get_argument_names(constructors[0]) if constructors else []
    return [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def parse_add_newdoc(call: ast.Call, package: str) -> Iterator[DocumentedObject]:
    """Docstrings that numpy and scipy hang on compiled functions: `add_newdoc([module,] name, docstring)`, where the
    docstring of an attribute comes as (attribute, docstring). Their arguments are those the docstring lists."""
    if not (isinstance(call.func, ast.Name) and call.func.id == "add_newdoc"):
        return
    try:
        *path, documentation = [ast.literal_eval(argument) for argument in call.args]
    except ValueError:  # put together at run time
        return
    module, owner = path if len(path) > 1 else (package, *path)
    for entry in documentation if isinstance(documentation, list) else [documentation]:
        attribute, docstring = ("", entry) if isinstance(entry, str) else entry
        name = f"{module}.{owner}.{attribute}".rstrip(".")
        if not name.rpartition(".")[2].startswith("_"):
            docstring = cleandoc(docstring)
            yield DocumentedObject(name, module, docstring, parse_section_names(docstring, "Parameters"))


def as_document(item: DocumentedObject) -> Document:
    """The docstring without the name of the object, and its tags in alphabetical order."""
    name = item.name.rpartition(".")[2]
    text = re.sub(rf"(?:\b\w+\.)*\b{name}\b", "", item.docstring, flags=re.IGNORECASE)

    see_also = [entry.rpartition(".")[2] for entry in parse_section_names(item.docstring, "See Also")]
    tags = {*item.module.split("."), *item.arguments, *see_also} - IGNORED_ARGUMENTS
    # Private parts say how the package is built inside: scipy.signal._czt.zoom_fft is scipy.signal to its users.
    return Document(item.name, text, sorted(tag for tag in tags if not tag.startswith("_")))


def parse_section_names(docstring: str, title: str) -> list[str]:
    """What a numpydoc section lists: `name : type` or `name, name`, with its explanation indented below."""
    section = re.search(
        rf"^{title}\n-{{3,}}\n(.*?)(?=\n\S[^\n]*\n-{{3,}}|\Z)", docstring, flags=re.MULTILINE | re.DOTALL
    )
    names = []
    for line in section[1].splitlines() if section else ():
        head = re.sub(r":\w+:(?=`)|[`*~]", "", line).partition(":")[0]
        entries = [entry.strip() for entry in head.split(",")]

        # An indented line is explanation; so is one whose entries are not all names.
        if not line.startswith(" ") and all(re.fullmatch(r"[^\W\d][\w.]*", entry) for entry in entries):
            names.extend(entries)
    return names
