"""Questions of processes elsewhere, answered where the command was typed: what is to be shown, written down or kept is
shown, written down and kept there. A desk between them holds nothing but places in the object store."""

from __future__ import annotations

import asyncio
from itertools import count
from types import ModuleType
from typing import Any


class CallQueue:
    """An actor. Whoever asks waits until the answer is there."""

    def __init__(self) -> None:
        self.call_ids = count()
        self.queue: asyncio.Queue[tuple[int, list[Any]]] = asyncio.Queue()
        self.pending: dict[int, asyncio.Future[list[Any]]] = {}
        self.closed = asyncio.Event()

    async def ask(self, question: list[Any]) -> list[Any]:
        number = next(self.call_ids)
        self.pending[number] = asyncio.get_running_loop().create_future()
        await self.queue.put((number, question))
        try:
            return await self.pending[number]
        finally:
            del self.pending[number]

    async def next(self) -> tuple[int, list[Any]]:
        """A question that nobody has taken yet, when there is one."""
        return await self.queue.get()

    async def answer(self, number: int, answer: list[Any]) -> None:
        if number in self.pending:  # and has not died meanwhile
            self.pending[number].set_result(answer)

    async def close(self) -> None:
        self.closed.set()

    async def until_closed(self) -> None:
        await self.closed.wait()


def start_local_actor(ray: ModuleType, kind: type) -> Any:
    """An actor on this machine, or on that of the cluster which this one is a client of: it lives as long as that."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(kind).remote()


def call_driver(desk: Any, *question: Any) -> Any:
    """What is said to a question where the command was typed. Both stay where they are, and only their places go to the
    desk: a network may have gigabytes of weights."""
    import ray

    (answer,) = ray.get(desk.ask.remote([ray.put(question)]))
    return ray.get(answer)
