"""Work that several processes of a cluster do together, as torchrun would start them: what happens of it on the machine
where the command was typed. Ray Train (`launching`) has a process of its own there, so that this one can answer what
the others ask, and leave when it is told to."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import shorten
from types import ModuleType
from typing import Any, NoReturn

import xmtc
from xmtc.cluster.connection import connect
from xmtc.cluster.driver_calls import CallQueue, start_local_actor
from xmtc.cluster.ray_train import FAILURE_CALL, MAX_RESTARTS, DriverCall, Launcher, WorkerSpec
from xmtc.cluster.scheduling import get_first_line, raise_task_error
from xmtc.cluster.transfer import get_session_id, pack_value
from xmtc.cluster.worker_group import WorkerGroup, list_machines, plan_worker_group
from xmtc.errors import XmtcError

POLL_SECONDS = 1.0  # seconds after which to see whether all are done
MAX_ERROR_CHARACTERS = 200  # of what Ray Train says
SHUTDOWN_SECONDS = 10.0  # seconds that Ray Train has to end its workers, and to take away what it has on the cluster


def run_in_worker_group(
    address: str,
    work: Callable[[DriverCall, str], Any],
    answer: Callable[..., Any],
    device: str = "auto",
    n_workers: int = 0,
) -> Any:
    """What `work` comes to in the first of several processes, each of which is handed a function that asks, and its
    device: whatever is asked, `answer` says here. What either raises is raised here, and ends all."""
    ray = connect(address)
    team = plan_worker_group(list_machines(ray), device, n_workers)
    parcel = pack_value(work, get_session_id(ray))
    desk = start_local_actor(ray, CallQueue)
    errand = WorkerSpec(xmtc.__version__, os.getcwd(), team.device, desk, parcel.content, parcel.arrays)
    with launch_workers(ray, errand, team) as done:
        asked = desk.next.remote()
        while not ray.wait([done], timeout=0)[0]:
            if asked in ray.wait([asked, done], timeout=POLL_SECONDS)[0]:
                answer_call(ray, desk, ray.get(asked), answer)
                asked = desk.next.remote()
        return get_outcome(ray, done, team)


@contextmanager
def launch_workers(ray: ModuleType, errand: WorkerSpec, team: WorkerGroup) -> Iterator[Any]:
    """Ray Train at work, and the place of what will come of it; whoever leaves ends it, and with it its workers."""
    launcher = start_local_actor(ray, Launcher)
    done = launcher.train.remote(errand, team)
    try:
        yield done
    finally:
        errand.call_queue.close.remote()
        ray.wait([done], timeout=SHUTDOWN_SECONDS)
        ray.kill(launcher)
        ray.kill(errand.call_queue)


def answer_call(ray: ModuleType, desk: Any, asked: tuple[int, list[Any]], answer: Callable[..., Any]) -> None:
    number, (place,) = asked
    try:
        question = ray.get(place)
    except ray.exceptions.RayError:  # who asked has died meanwhile
        return
    if question[0] == FAILURE_CALL:
        raise_worker_error(*question[1:])
    ray.get(desk.answer.remote(number, [ray.put(answer(*question))]))


def raise_worker_error(error: bytes, trace: str) -> NoReturn:
    """As it was raised there; with where, if it is nobody's mistake."""
    failure = pickle.loads(error)
    if not isinstance(failure, XmtcError):
        failure.add_note(f"On a machine of the cluster:\n{trace}")
    raise failure from None


def get_outcome(ray: ModuleType, done: Any, team: WorkerGroup) -> Any:
    try:
        return pickle.loads(ray.get(done))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, XmtcError):
            raise_task_error(error)
        raise XmtcError(
            f"The cluster did not finish the training by {team.description}, though it was begun {MAX_RESTARTS + 1} times "
            f"({get_last_line(error.cause)}); look whether its machines run out of memory, are of the same xmtc, Python, "
            "Ray and PyTorch, and reach each other. With --checkpoint, the same command goes on from what is kept."
        ) from None
    except ray.exceptions.RayError as error:
        raise XmtcError(f"Ray Train has died ({get_first_line(error)}); repeat the command.") from None


def get_last_line(error: Any) -> str:
    """What Ray Train says at last, after the traces of those that have failed, in short."""
    found = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return shorten(found, MAX_ERROR_CHARACTERS, placeholder=" …")
