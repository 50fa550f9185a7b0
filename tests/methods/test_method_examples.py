"""The examples in the docstrings of methods and of xmtc.methods run as written."""

from __future__ import annotations

import doctest

import pytest

from xmtc import METHODS, methods
from xmtc.errors import MissingExtra
from xmtc.methods import as_method, method_class, method_name


@pytest.mark.parametrize("name", METHODS)
def test_examples_of_methods(name):
    try:
        method = method_class(name)
    except MissingExtra as missing:
        pytest.skip(str(missing))
    check_examples(method, method.__name__)


@pytest.mark.parametrize("function", [as_method, method_class, method_name])
def test_examples_of_functions(function):
    check_examples(function, function.__name__)


def check_examples(subject: object, name: str) -> None:
    runner = doctest.DocTestRunner()
    examples = doctest.DocTestFinder(recurse=False).find(subject, name, module=methods)
    for example in examples:
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0
    assert any(example.examples for example in examples), f"{name} has no example"
