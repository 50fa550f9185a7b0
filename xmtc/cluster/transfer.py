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

LARGE = 1 << 18  # bytes, from which on an array is sent by itself
SENT: dict[tuple[str, int], tuple[weakref.ref, Any]] = {}  # by cluster session and array: its place in the store


class Parcel(NamedTuple):
    """Something pickled, and the places of the arrays that it refers to by number."""

    content: bytes
    arrays: list[Any]


def session_of(ray: ModuleType) -> str:
    """Another one each time that this process joins a cluster: jobs are numbered, but in all clusters from 1 on."""
    context = ray.get_runtime_context()
    return f"{context.get_node_id()} {context.get_job_id()}"


def packed(value: Any, session: str) -> Parcel:
    import ray
    from ray.cloudpickle import Pickler

    arrays: list[Any] = []

    class Packer(Pickler):
        def persistent_id(self, found: Any) -> int | None:
            if not isinstance(found, np.ndarray) or found.nbytes < LARGE or found.dtype.hasobject:
                return None
            arrays.append(place_of(found, session, ray.put))
            return len(arrays) - 1

        def reducer_override(self, found: Any) -> Any:
            """Compiled functions go by their names, and are not compiled there if they were before."""
            return found.__qualname__ if hasattr(found, "py_func") else super().reducer_override(found)

    stream = io.BytesIO()
    Packer(stream, protocol=5).dump(value)
    return Parcel(stream.getvalue(), arrays)


def place_of(array: np.ndarray, session: str, put: Any) -> Any:
    """Where an array lies in the object store; it is put there at its first use, and leaves when it is forgotten
    here."""
    key = session, id(array)
    known = SENT.get(key)
    if known is None or known[0]() is not array:
        forget = weakref.ref(array, lambda _: SENT.pop(key, None))
        known = SENT[key] = forget, put(np.asarray(array))
    return known[1]


def unpacked(content: bytes, arrays: Sequence[np.ndarray]) -> Any:
    class Unpacker(pickle.Unpickler):
        def persistent_load(self, number: int) -> np.ndarray:
            return as_sent(arrays[number])

    return Unpacker(io.BytesIO(content)).load()


def as_sent(array: np.ndarray) -> np.ndarray:
    """The same memory, not marked as read-only."""
    return np.asarray(Unmarked(array))


class Unmarked:
    """Holds the array whose memory it lends."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}
