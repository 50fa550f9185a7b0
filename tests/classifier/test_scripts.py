"""Programs that use xmtc: methods of the main script, the first compilation, and sets of labels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CORPUS = """
from xmtc import Classifier
texts, tags = ["apples and pears", "the moon", "pears", "moon and stars"] * 5, [["fruit"], ["space"]] * 10
"""
OWN_METHOD = """
from dataclasses import dataclass
from xmtc.methods.label_tree.parabel import Parabel

@dataclass(frozen=True, kw_only=True)
class Mine(Parabel):
    "Own method."
"""


def run(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(CORPUS + code)
    return subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=os.environ | environment, capture_output=True, text=True
    )


def test_method_of_the_main_script_is_loaded_only_by_the_same_script(tmp_path):
    load = "print(Classifier.load('model').predict(['pears'], k=1))"
    trained = run(tmp_path, f"{OWN_METHOD}\nClassifier(Mine()).fit(texts, tags).save('model')\n{load}")
    assert trained.stdout == "[['fruit']]\n", trained.stderr
    assert run(tmp_path, OWN_METHOD + load).stdout == "[['fruit']]\n"
    error = run(tmp_path, load).stderr
    assert "model was trained by __main__:Mine, a class that another program defined in its main script" in error
    assert "import that module here and in the training program" in error


@pytest.mark.parametrize("is_silenced", [False, True])
def test_first_fit_reports_compilation_once(is_silenced, tmp_path):
    code = "import logging; logging.getLogger('xmtc').setLevel(logging.ERROR)" if is_silenced else ""
    code += "\nfor _ in range(2):\n    Classifier().fit(texts, tags)"
    cache = str(tmp_path / "cache")
    first, later = (run(tmp_path, code, NUMBA_CACHE_DIR=cache).stderr for _ in range(2))
    assert first.count("compiling kernels for their first use") == (0 if is_silenced else 1)
    assert "compiling" not in later


def test_sets_of_labels_have_the_same_fingerprint_in_every_process(tmp_path):
    code = "sets = [{'a', 'b', 'c', tag} for [tag] in tags]\n"
    code += "print(Classifier().fit(texts, sets).tagger_.about['data'])"
    first, *others = (run(tmp_path, code, PYTHONHASHSEED=str(seed)).stdout for seed in range(3))
    assert first.startswith("blake2b:")
    assert others == [first, first]
