"""Where compiled functions are kept, that they work where nothing can be kept, and that who waits is told why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from xmtc.core import numba_support as compiled
from xmtc.core.numba_support import CompileListener, create_private_folder, prefetch_element

# As on a read-only file system: numba asks this function whether it may write to a folder.
CODE = """
import tempfile
allowed = {allowed!r}
write = tempfile.TemporaryFile
def TemporaryFile(*words, dir=None, **options):
    if dir and not (allowed and str(dir).startswith(allowed)):
        raise PermissionError(dir)
    return write(*words, dir=dir, **options)
tempfile.TemporaryFile = TemporaryFile

import numpy as np
from xmtc.core.numba_support import fast_kernel
from xmtc.text.string_index import StringIndex, hash_bytes
words = StringIndex.from_strings(["fish", "water"])
print(words.find_packed(words.text, words.ends), hash_bytes._cache.cache_path)
"""


@pytest.mark.parametrize("is_allowed", [True, False])
def test_without_a_place_for_compiled_code(is_allowed: bool, tmp_path: Path) -> None:
    code = CODE.format(allowed=str(tmp_path) if is_allowed else "")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    found, _, place = done.stdout.strip().partition("] ")
    assert found == "[0 1"
    assert place.startswith(str(tmp_path / f"xmtc-{os.getuid()}")) == is_allowed


def test_what_is_kept_is_loaded_without_the_compiler(tmp_path: Path) -> None:
    """Which is half of numba: its part for arrays stands for it."""
    code = "import sys\nfrom xmtc.text.string_index import StringIndex"
    code += "\nwords = StringIndex.from_strings(['fish', 'water'])"
    code += "\nprint(words.find_packed(words.text, words.ends), 'numba.np.npyimpl' in sys.modules)"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for is_compiled in (True, False):
        found = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        assert found == f"[0 1] {is_compiled}\n"


def test_kept_code_and_new_code_work_together(tmp_path: Path) -> None:
    """A kernel that is compiled calls one that was loaded."""
    kernels = "@kernel\ndef twice(x):\n    return 2 * x\n\n\n@kernel\ndef more(x):\n    return twice(x) + 1\n"
    (tmp_path / "kernels.py").write_text(f"from xmtc.core.numba_support import kernel\n\n\n{kernels}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    for called, expected in (("twice(3)", "6"), ("twice(3), more(4)", "6 9"), ("more(4), twice(3)", "9 6")):
        code = f"from kernels import more, twice; print({called})"
        assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == f"{expected}\n"


def test_no_temporary_folder_where_nobody_can_tell_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "getuid")  # as on Windows
    assert create_private_folder() is None


def test_the_temporary_folder_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = create_private_folder()
    assert folder == create_private_folder() == str(tmp_path / f"xmtc-{os.getuid()}")
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    Path(folder).chmod(0o777)
    assert create_private_folder() is None  # anybody could have put code there
    Path(folder).rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    Path(folder).symlink_to(tmp_path / "elsewhere")
    assert create_private_folder() is None


def test_no_temporary_folder_where_users_have_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.getuid")
    assert create_private_folder() is None


def test_long_compiling_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, told = 0.0, []
    monkeypatch.setattr(compiled.time, "perf_counter", lambda: seconds)
    listener = CompileListener(lambda: told.append(seconds))
    for _ in range(20):  # kernels, of a tenth of a second each; half of it goes into a function that they call
        listener.on_start(None)
        seconds += 0.05
        listener.on_start(None)
        seconds += 0.05
        listener.on_end(None)
        listener.on_end(None)
        seconds += 10  # of other work
    assert len(told) == 1
    assert listener.seconds == pytest.approx(2)
    assert told[0] == pytest.approx(50.55)


def test_commands_say_that_they_compile_and_later_ones_do_not(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(
        '{"text": "fish swim", "labels": ["a"]}\n{"text": "fish fly", "labels": []}\n'
    )
    command = [sys.executable, "-m", "xmtc", "train", "corpus.jsonl", "-o", "model", "-p", "min_df=1"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    first, second = (
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stderr
        for _ in range(2)
    )
    assert first.count("compiling") == 1
    assert "compiling" not in second


@njit
def fetch_and_sum(numbers, ahead):
    """Places before the first and after the last are asked for, too."""
    total = 0
    for i in range(len(numbers)):
        prefetch_element(numbers, i + ahead)
        total += numbers[i]
    return total


@pytest.mark.parametrize("ahead", [0, 8, -8, 2**20])
def test_what_is_fetched_changes_nothing(ahead: int) -> None:
    assert fetch_and_sum(np.arange(100), ahead) == 4950
    assert "llvm.prefetch" in next(iter(fetch_and_sum.inspect_llvm().values()))
