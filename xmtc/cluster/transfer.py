"""Serialisation of functions and items for a Ray cluster.

Large arrays are put into the object store once, however many functions and items refer to them, and each machine has
one copy that its workers share. Everything else is pickled.

Arrays of the object store are read-only, but are marked as writable here, because numba would compile kernels again for
read-only arrays. Workers must not write to them."""

from __future__ import annotations

import io
import pickle
import weakref
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

MIN_SHARED_ARRAY_BYTES = 1 << 18  # smaller arrays are pickled
SENT_ARRAYS: dict[tuple[str, int], tuple[weakref.ref, Any]] = {}  # reference by session and id


class PackedValue(NamedTuple):
    """A pickled value, and Ray references of the arrays that it refers to by number."""

    content: bytes
    arrays: list[Any]


def get_session_id(ray: ModuleType) -> str:
    """Return an id of this connection; job ids alone repeat between clusters."""
    context = ray.get_runtime_context()
    return f"{context.get_node_id()} {context.get_job_id()}"


def pack_value(value: Any, session: str) -> PackedValue:
    import ray
    from ray.cloudpickle import Pickler

    arrays: list[Any] = []

    class Packer(Pickler):
        def persistent_id(self, obj: Any) -> int | None:
            if not isinstance(obj, np.ndarray) or obj.nbytes < MIN_SHARED_ARRAY_BYTES or obj.dtype.hasobject:
                return None
            arrays.append(put_array(obj, session, ray.put))
            return len(arrays) - 1

        def reducer_override(self, obj: Any) -> Any:
            """Pickle compiled functions by name, so that workers load them from numba's cache."""
            return obj.__qualname__ if hasattr(obj, "py_func") else super().reducer_override(obj)

    stream = io.BytesIO()
    Packer(stream, protocol=5).dump(value)
    return PackedValue(stream.getvalue(), arrays)


def put_array(array: np.ndarray, session: str, put: Any) -> Any:
    """Return the Ray reference of an array, which is put into the store once and released with the array."""
    key = session, id(array)
    entry = SENT_ARRAYS.get(key)
    if entry is None or entry[0]() is not array:
        release = weakref.ref(array, lambda _: SENT_ARRAYS.pop(key, None))
        entry = SENT_ARRAYS[key] = release, put(np.asarray(array))
    return entry[1]


def unpack_value(content: bytes, arrays: Sequence[np.ndarray]) -> Any:
    class Unpacker(pickle.Unpickler):
        def persistent_load(self, number: int) -> np.ndarray:
            return as_writable(arrays[number])

    return Unpacker(io.BytesIO(content)).load()


def as_writable(array: np.ndarray) -> np.ndarray:
    """Return a view of the same memory that is marked as writable."""
    return np.asarray(WritableView(array))


class WritableView:
    """Array interface of an array with its read-only flag cleared; keeps the array alive."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}
