"""How functions and what they work on travel. Large arrays go to the object store by themselves, each once, however
many functions and items hold it; a machine has one copy, which all of its workers read. Everything else is pickled.

Arrays arrive as they were sent, to be written to as far as NumPy knows: compiled code would take arrays that are
read-only for another type, and be compiled again. Nobody may write to them, as with threads, which share them too."""

from __future__ import annotations

import io
import pickle
import weakref
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

MIN_SHARED_ARRAY_BYTES = 1 << 18  # bytes, from which on an array is sent by itself
SENT_ARRAYS: dict[tuple[str, int], tuple[weakref.ref, Any]] = {}  # by cluster session and array: its place in the store


class PackedValue(NamedTuple):
    """Something pickled, and the places of the arrays that it refers to by number."""

    content: bytes
    arrays: list[Any]


def get_session_id(ray: ModuleType) -> str:
    """Another one each time that this process joins a cluster: jobs are numbered, but in all clusters from 1 on."""
    context = ray.get_runtime_context()
    return f"{context.get_node_id()} {context.get_job_id()}"


def pack_value(value: Any, session: str) -> PackedValue:
    import ray
    from ray.cloudpickle import Pickler

    arrays: list[Any] = []

    class Packer(Pickler):
        def persistent_id(self, found: Any) -> int | None:
            if not isinstance(found, np.ndarray) or found.nbytes < MIN_SHARED_ARRAY_BYTES or found.dtype.hasobject:
                return None
            arrays.append(put_array(found, session, ray.put))
            return len(arrays) - 1

        def reducer_override(self, found: Any) -> Any:
            """Compiled functions go by their names, and are not compiled there if they were before."""
            return found.__qualname__ if hasattr(found, "py_func") else super().reducer_override(found)

    stream = io.BytesIO()
    Packer(stream, protocol=5).dump(value)
    return PackedValue(stream.getvalue(), arrays)


def put_array(array: np.ndarray, session: str, put: Any) -> Any:
    """Where an array lies in the object store; it is put there at its first use, and leaves when it is forgotten
    here."""
    key = session, id(array)
    known = SENT_ARRAYS.get(key)
    if known is None or known[0]() is not array:
        forget = weakref.ref(array, lambda _: SENT_ARRAYS.pop(key, None))
        known = SENT_ARRAYS[key] = forget, put(np.asarray(array))
    return known[1]


def unpack_value(content: bytes, arrays: Sequence[np.ndarray]) -> Any:
    class Unpacker(pickle.Unpickler):
        def persistent_load(self, number: int) -> np.ndarray:
            return as_writable(arrays[number])

    return Unpacker(io.BytesIO(content)).load()


def as_writable(array: np.ndarray) -> np.ndarray:
    """The same memory, not marked as read-only."""
    return np.asarray(WritableView(array))


class WritableView:
    """Holds the array whose memory it lends."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}
