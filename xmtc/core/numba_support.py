"""Compiled functions: `kernel` lets other threads work beside it; `fast_kernel` also takes numbers to be finite and may
fuse multiplications with additions. It may not reorder sums: whether the compiler's code does so depends on where the
arrays happen to lie in memory, and the same seed must give the same bytes.

The first command after an installation waits for the compiler, so kernels are written to be compiled quickly: loops
over arrays that NumPy makes outside, one type for each argument, and counters that begin as np.int64(0) where a helper
takes them, because numba takes a plain 0 for a type of its own. What NumPy does well in one call (sorting, masks,
slices) is done outside: inside a kernel, a sort or the assignment to a slice takes longer to compile than a page of
loops.

What was compiled is kept between runs, beside the source or in the user's cache. Where neither can be written to, as in
a container that is read-only, it is kept in a temporary folder of this user's own, or else compiled in every run."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba import njit
from numba.core import cgutils, event, types
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys
from numba.cpython import hashing  # noqa: F401 (the last names that compiled code may ask for)
from numba.extending import intrinsic

NUMBA_CONFIG: Any = numba.config
JIT_OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}  # nobody calls kernels from C
FASTMATH_FLAGS = {"nnan", "ninf", "nsz", "arcp", "contract", "afn"}  # all of fastmath but "reassoc"
PREFETCH_READ, PREFETCH_LOCALITY, PREFETCH_DATA_CACHE = 0, 3, 1  # how LLVM numbers what can be fetched
COMPILE_NOTICE_SECONDS = 0.5  # seconds of compiling that nobody needs to be told of


def kernel(function: Callable) -> Any:
    """Says that it is exact, because a function that says nothing becomes what the first to call it is."""
    return compile_kernel(function, fastmath=False)


def fast_kernel(function: Callable) -> Any:
    return compile_kernel(function, fastmath=FASTMATH_FLAGS)


def compile_kernel(function: Callable, **options: Any) -> Any:
    found: Any = njit(**JIT_OPTIONS, **options)(function)
    try:
        found._cache = KernelCache(function)
    except RuntimeError:  # numba found no folder that it can write to
        folder = create_private_folder()
        if folder is not None and folder != NUMBA_CONFIG.CACHE_DIR:
            NUMBA_CONFIG.CACHE_DIR = folder
            return compile_kernel(function, **options)
    return found


class KernelCache(FunctionCache):
    """Compiled code on disk, as numba keeps it (`cache=True`). Before it is loaded, numba's own readies its compiler,
    which takes longer than all else that it does at a start; nothing is compiled then, and what compiles does so
    itself."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


@intrinsic
def prefetch_element(typing_context, array, index):
    """In a kernel, have the processor fetch array[index] of a C-contiguous array while it goes on: what is read from
    memory in no order costs most where it is waited for. Nothing happens where there is no such place."""

    def generate(context, builder, signature, arguments):
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        fetch = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, fetch, "llvm.prefetch.p0")
        place = builder.bitcast(builder.gep(view.data, [arguments[1]]), byte)
        builder.call(function, [place, word(PREFETCH_READ), word(PREFETCH_LOCALITY), word(PREFETCH_DATA_CACHE)])
        return context.get_dummy_value()

    return types.void(array, index), generate


def create_private_folder() -> str | None:
    """A temporary folder that nobody else can write to, because what lies in it will be executed. None where that
    cannot be made sure of, as on Windows, whose folders do not say whose they are."""
    if not hasattr(os, "getuid"):
        return None
    try:
        folder = Path(tempfile.gettempdir()) / f"xmtc-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return str(folder) if is_ours else None


def register_compile_callback(tell: Callable[[], None]) -> None:
    """Have `tell` called once, when this process has been compiling for a while and goes on. What was compiled by an
    earlier one is only loaded."""
    event.register("numba:compile", CompileListener(tell))


class CompileListener(event.Listener):
    """Adds up the time. Kernels are compiled one after the other, and inside of each the functions that it calls."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self.callback, self.has_notified = tell, False
        self.seconds, self.start_time, self.depth = 0.0, 0.0, 0

    def on_start(self, event: Any) -> None:
        if self.depth == 0:
            self.start_time = time.perf_counter()
        self.depth += 1
        if not self.has_notified and self.seconds + time.perf_counter() - self.start_time > COMPILE_NOTICE_SECONDS:
            self.has_notified = True
            self.callback()

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.seconds += time.perf_counter() - self.start_time
