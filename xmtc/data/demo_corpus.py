"""Demonstration corpus: the docstrings of Python's standard library, NumPy, SciPy and scikit-learn.

A document is the docstring of a public function, class or method, without the name of the object. Its labels are the
parts of the module path, the argument names and the "See Also" entries. Sources are parsed, never imported.
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

from xmtc.data.document import Document
from xmtc.data.splits import TEST_SHARE, hold_out

PACKAGES = ("numpy", "scipy", "sklearn")
MIN_WORDS = 50  # shorter docstrings have too little content
# Tests, third-party packages, build tools, and modules that newer versions of Python have removed.
SKIPPED_FOLDERS = {
    *("tests", "test", "testing", "site-packages", "dist-packages", "lib-dynload", "externals", "_lib", "__pycache__"),
    *("distutils", "f2py", "_build_utils", "idlelib", "lib2to3", "turtledemo", "ensurepip", "pydoc_data"),
}
IGNORED_ARGUMENTS = {"self", "cls", "args", "kwargs"}


class DocumentedObject(NamedTuple):
    """Public object with a docstring."""

    name: str  # qualified name
    module: str
    docstring: str
    arguments: list[str]


def build_demo_documents(packages: Sequence[str] = PACKAGES) -> list[Document]:
    """Return the documents, ordered by qualified name; the result depends only on the installed packages."""
    objects: dict[str, DocumentedObject] = {}
    for file, module in find_source_files(packages):
        for item in parse_documented_objects(file.read_text(encoding="utf-8", errors="replace"), module):
            if len(item.docstring.split()) >= MIN_WORDS:
                objects.setdefault(item.name, item)

    documents = [as_document(objects[name]) for name in sorted(objects)]
    first_by_text = {document.text: document for document in reversed(documents)}
    return [document for document in documents if document.labels and first_by_text[document.text] is document]


def split_demo_documents(
    documents: Sequence[Document], seed: int = 0, share: float = TEST_SHARE
) -> tuple[list[Document], list[Document]]:
    """Return training and test documents."""
    train, test = hold_out(documents, share, seed)
    return list(train), list(test)


def find_source_files(packages: Sequence[str] = PACKAGES) -> Iterator[tuple[Path, str]]:
    """Yield Python source files and their module names in a fixed order."""
    roots = [("", sysconfig.get_path("stdlib"))]
    for package in packages:
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            roots.append((package, spec.submodule_search_locations[0]))

    for package, root in roots:
        for folder, subfolders, files in os.walk(root):
            subfolders[:] = sorted(name for name in subfolders if name.isidentifier() and name not in SKIPPED_FOLDERS)
            for file in sorted(files):
                stem, ending = os.path.splitext(file)
                is_private = not package and stem.startswith("_") and stem != "__init__"
                if ending == ".py" and stem.isidentifier() and not is_private:
                    path = Path(folder, file)
                    parts = [package, *path.relative_to(root).with_suffix("").parts]
                    yield path, ".".join(part for part in parts if part and part != "__init__")


def parse_documented_objects(source: str, module: str) -> Iterator[DocumentedObject]:
    """Yield the public functions, classes and methods with a docstring in a source text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences
            tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a template, or a file for another version of Python
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
    """Return the argument names of a function or of the constructor of a class."""
    if isinstance(node, ast.ClassDef):
        constructors = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        return get_argument_names(constructors[0]) if constructors else []
    return [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def parse_add_newdoc(call: ast.Call, package: str) -> Iterator[DocumentedObject]:
    """Yield the objects of NumPy's and SciPy's `add_newdoc([module,] name, docstring)` calls for compiled functions.

    The docstring of an attribute is a tuple (attribute, docstring). Arguments are taken from the docstring."""
    if not (isinstance(call.func, ast.Name) and call.func.id == "add_newdoc"):
        return
    try:
        *path, documentation = [ast.literal_eval(argument) for argument in call.args]
    except ValueError:  # computed at run time
        return
    module, owner = path if len(path) > 1 else (package, *path)
    for entry in documentation if isinstance(documentation, list) else [documentation]:
        attribute, docstring = ("", entry) if isinstance(entry, str) else entry
        name = f"{module}.{owner}.{attribute}".rstrip(".")
        if not name.rpartition(".")[2].startswith("_"):
            docstring = cleandoc(docstring)
            yield DocumentedObject(name, module, docstring, parse_section_names(docstring, "Parameters"))


def as_document(item: DocumentedObject) -> Document:
    """Return a document with the docstring without the object's name; labels are sorted."""
    name = item.name.rpartition(".")[2]
    text = re.sub(rf"(?:\b\w+\.)*\b{name}\b", "", item.docstring, flags=re.IGNORECASE)

    see_also = [entry.rpartition(".")[2] for entry in parse_section_names(item.docstring, "See Also")]
    labels = {*item.module.split("."), *item.arguments, *see_also} - IGNORED_ARGUMENTS
    # Private modules are not part of the interface: users know scipy.signal._czt.zoom_fft as scipy.signal.zoom_fft.
    return Document(item.name, text, sorted(label for label in labels if not label.startswith("_")))


def parse_section_names(docstring: str, title: str) -> list[str]:
    """Return the names in a numpydoc section: `name : type` or `name, name`, followed by indented explanations."""
    section = re.search(
        rf"^{title}\n-{{3,}}\n(.*?)(?=\n\S[^\n]*\n-{{3,}}|\Z)", docstring, flags=re.MULTILINE | re.DOTALL
    )
    names = []
    for line in section[1].splitlines() if section else ():
        head = re.sub(r":\w+:(?=`)|[`*~]", "", line).partition(":")[0]
        entries = [entry.strip() for entry in head.split(",")]

        # Indented lines, and lines whose entries are not all names, are explanations.
        if not line.startswith(" ") and all(re.fullmatch(r"[^\W\d][\w.]*", entry) for entry in entries):
            names.extend(entries)
    return names
