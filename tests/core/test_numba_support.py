"""Cache of compiled functions, compilation without a cache, and the message about long compilation."""

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

# Simulate a read-only file system: Numba calls this function to test whether a folder is writable.
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


@pytest.mark.integration
@pytest.mark.parametrize("is_allowed", [True, False])
def test_kernels_compile_without_a_writable_cache(is_allowed: bool, tmp_path: Path) -> None:
    code = CODE.format(allowed=str(tmp_path) if is_allowed else "")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    result, _, place = done.stdout.strip().partition("] ")
    assert result == "[0 1"
    assert place.startswith(str(tmp_path / f"xmtc-{os.getuid()}")) == is_allowed


@pytest.mark.integration
def test_cached_kernels_load_without_the_compiler(tmp_path: Path) -> None:
    """The array support of Numba is imported only by the compiler."""
    code = "import sys\nfrom xmtc.text.string_index import StringIndex"
    code += "\nwords = StringIndex.from_strings(['fish', 'water'])"
    code += "\nprint(words.find_packed(words.text, words.ends), 'numba.np.npyimpl' in sys.modules)"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for is_compiled in (True, False):
        result = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        assert result == f"[0 1] {is_compiled}\n"


@pytest.mark.integration
def test_new_kernels_call_cached_kernels(tmp_path: Path) -> None:
    kernels = "@kernel\ndef twice(x):\n    return 2 * x\n\n\n@kernel\ndef more(x):\n    return twice(x) + 1\n"
    (tmp_path / "kernels.py").write_text(f"from xmtc.core.numba_support import kernel\n\n\n{kernels}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    for called, expected in (("twice(3)", "6"), ("twice(3), more(4)", "6 9"), ("more(4), twice(3)", "9 6")):
        code = f"from kernels import more, twice; print({called})"
        assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == f"{expected}\n"


def test_no_temporary_folder_without_user_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "getuid")  # as on Windows
    assert create_private_folder() is None


def test_temporary_folder_belongs_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = create_private_folder()
    assert folder == create_private_folder() == str(tmp_path / f"xmtc-{os.getuid()}")
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    Path(folder).chmod(0o777)
    assert create_private_folder() is None  # other users could have written code there
    Path(folder).rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    Path(folder).symlink_to(tmp_path / "elsewhere")
    assert create_private_folder() is None


def test_no_temporary_folder_with_an_unknown_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.getuid")
    assert create_private_folder() is None


def test_long_compilation_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, reports = 0.0, []
    monkeypatch.setattr(compiled.time, "perf_counter", lambda: seconds)
    listener = CompileListener(lambda: reports.append(seconds))
    for _ in range(20):  # each kernel compiles for 0.1 s, half of it for a function that it calls
        listener.on_start(None)
        seconds += 0.05
        listener.on_start(None)
        seconds += 0.05
        listener.on_end(None)
        listener.on_end(None)
        seconds += 10  # seconds of other work
    assert len(reports) == 1
    assert listener.seconds == pytest.approx(2)
    assert reports[0] == pytest.approx(50.55)


@pytest.mark.integration
def test_only_the_first_command_reports_compilation(tmp_path: Path) -> None:
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
def fetch_and_sum(numbers, distance):
    """Sum an array and prefetch items at this distance, also beyond both ends."""
    total = 0
    for i in range(len(numbers)):
        prefetch_element(numbers, i + distance)
        total += numbers[i]
    return total


@pytest.mark.parametrize("distance", [0, 8, -8, 2**20])
def test_prefetching_does_not_change_the_result(distance: int) -> None:
    assert fetch_and_sum(np.arange(100), distance) == 4950
    assert "llvm.prefetch" in next(iter(fetch_and_sum.inspect_llvm().values()))
