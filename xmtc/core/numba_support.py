"""Functions compiled with numba.

`kernel` releases the GIL. `fast_kernel` also assumes finite numbers and allows fused multiply-add. It does not allow
reordered sums: their result depends on the alignment of arrays in memory, and the same seed must give the same bytes.

The first command after an installation waits for the compiler, so kernels are written to compile quickly: loops over
arrays that are allocated outside, one type per argument, and counters that start as np.int64(0) where they are passed
to a helper, because numba gives the literal 0 a type of its own. Sorting, masks and slices are done in NumPy outside:
inside a kernel, each takes longer to compile than a page of loops.

Compiled code is cached beside the source or in the user's cache directory. If neither is writable, as in a read-only
container, a private temporary directory is used, or else every process compiles anew."""

from __future__ import annotations

import functools
import logging
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
from numba.cpython import hashing  # noqa: F401 (registers names that compiled code refers to)
from numba.extending import intrinsic

NUMBA_CONFIG: Any = numba.config
JIT_OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}  # kernels are not called from C
FASTMATH_FLAGS = {"nnan", "ninf", "nsz", "arcp", "contract", "afn"}  # all of fastmath but "reassoc"
PREFETCH_READ, PREFETCH_LOCALITY, PREFETCH_DATA_CACHE = 0, 3, 1  # arguments of llvm.prefetch
COMPILE_NOTICE = "xmtc: compiling kernels for their first use, which takes some seconds once ..."
COMPILE_NOTICE_SECONDS = 0.5  # compilation time before the callback


def kernel(function: Callable) -> Any:
    """Compile a function with exact arithmetic.

    `fastmath=False` is explicit, because otherwise a helper inherits the mode of its first caller."""
    return compile_kernel(function, fastmath=False)


def fast_kernel(function: Callable) -> Any:
    """Compile a function that assumes finite numbers and may fuse multiplications with additions."""
    return compile_kernel(function, fastmath=FASTMATH_FLAGS)


def compile_kernel(function: Callable, **options: Any) -> Any:
    dispatcher: Any = njit(**JIT_OPTIONS, **options)(function)
    try:
        dispatcher._cache = KernelCache(function)
    except RuntimeError:  # numba found no writable cache directory
        folder = create_private_folder()
        if folder is not None and folder != NUMBA_CONFIG.CACHE_DIR:
            NUMBA_CONFIG.CACHE_DIR = folder
            return compile_kernel(function, **options)
    return dispatcher


class KernelCache(FunctionCache):
    """Numba's on-disk cache (`cache=True`) without the initialisation of the compiler before a load.

    That initialisation dominates the start of a process, and is not needed if nothing is compiled."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


@intrinsic
def prefetch_element(typing_context, array, index):
    """Prefetch element `index` of a C-contiguous array, counted over all its axes, into the CPU cache, inside a kernel;
    any index is safe."""

    def generate(context, builder, signature, arguments):
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        fetch = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, fetch, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(view.data, [arguments[1]]), byte)
        builder.call(function, [address, word(PREFETCH_READ), word(PREFETCH_LOCALITY), word(PREFETCH_DATA_CACHE)])
        return context.get_dummy_value()

    return types.void(array, index), generate


def create_private_folder() -> str | None:
    """Return a temporary directory that only this user can access, because its content is executed.

    Return None if ownership cannot be verified, as on Windows."""
    if not hasattr(os, "getuid"):
        return None
    try:
        folder = Path(tempfile.gettempdir()) / f"xmtc-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.lstat()
    except OSError:
        return None
    is_private = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o077
    return str(folder) if is_private else None


def register_compile_callback(callback: Callable[[], None]) -> None:
    """Call a function once, when this process has compiled for COMPILE_NOTICE_SECONDS and continues to."""
    event.register("numba:compile", CompileListener(callback))


@functools.cache
def log_compilation() -> None:
    """Log one line when kernels have to be compiled, as a warning, which Python shows if logging is not set up."""
    register_compile_callback(lambda: logging.getLogger("xmtc").warning(COMPILE_NOTICE))


class CompileListener(event.Listener):
    """Listener that measures the total compilation time; events nest for the functions that a kernel calls."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback, self.has_notified = callback, False
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
