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
from xmtc.cluster.driver_calls import Desk, actor_here
from xmtc.cluster.ray_train import AGAIN, FAILED, Ask, Errand, Launcher
from xmtc.cluster.scheduling import raise_again, reason
from xmtc.cluster.transfer import packed, session_of
from xmtc.cluster.worker_group import Team, machines, team_of
from xmtc.errors import XmtcError

LOOK = 1.0  # seconds after which to see whether all are done
MOST_LETTERS = 200  # of what Ray Train says
FAREWELL = 10.0  # seconds that Ray Train has to end its workers, and to take away what it has on the cluster


def together(
    address: str, work: Callable[[Ask, str], Any], answer: Callable[..., Any], device: str = "auto", n_wanted: int = 0
) -> Any:
    """What `work` comes to in the first of several processes, each of which is handed a function that asks, and its
    device: whatever is asked, `answer` says here. What either raises is raised here, and ends all."""
    ray = connect(address)
    team = team_of(machines(ray), device, n_wanted)
    parcel = packed(work, session_of(ray))
    desk = actor_here(ray, Desk)
    errand = Errand(xmtc.__version__, os.getcwd(), team.device, desk, parcel.content, parcel.arrays)
    with launched(ray, errand, team) as done:
        asked = desk.next.remote()
        while not ray.wait([done], timeout=0)[0]:
            if asked in ray.wait([asked, done], timeout=LOOK)[0]:
                reply(ray, desk, ray.get(asked), answer)
                asked = desk.next.remote()
        return outcome(ray, done, team)


@contextmanager
def launched(ray: ModuleType, errand: Errand, team: Team) -> Iterator[Any]:
    """Ray Train at work, and the place of what will come of it; whoever leaves ends it, and with it its workers."""
    launcher = actor_here(ray, Launcher)
    done = launcher.train.remote(errand, team)
    try:
        yield done
    finally:
        errand.desk.close.remote()
        ray.wait([done], timeout=FAREWELL)
        ray.kill(launcher)
        ray.kill(errand.desk)


def reply(ray: ModuleType, desk: Any, asked: tuple[int, list[Any]], answer: Callable[..., Any]) -> None:
    number, (place,) = asked
    try:
        question = ray.get(place)
    except ray.exceptions.RayError:  # who asked has died meanwhile
        return
    if question[0] == FAILED:
        raise_here(*question[1:])
    ray.get(desk.answer.remote(number, [ray.put(answer(*question))]))


def raise_here(error: bytes, trace: str) -> NoReturn:
    """As it was raised there; with where, if it is nobody's mistake."""
    failure = pickle.loads(error)
    if not isinstance(failure, XmtcError):
        failure.add_note(f"On a machine of the cluster:\n{trace}")
    raise failure from None


def outcome(ray: ModuleType, done: Any, team: Team) -> Any:
    try:
        return pickle.loads(ray.get(done))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, XmtcError):
            raise_again(error)
        raise XmtcError(
            f"The cluster did not finish the training by {team.in_words}, though it was begun {AGAIN + 1} times "
            f"({last_line(error.cause)}); look whether its machines run out of memory, are of the same xmtc, Python, "
            "Ray and PyTorch, and reach each other. With --checkpoint, the same command goes on from what is kept."
        ) from None
    except ray.exceptions.RayError as error:
        raise XmtcError(f"Ray Train has died ({reason(error)}); repeat the command.") from None


def last_line(error: Any) -> str:
    """What Ray Train says at last, after the traces of those that have failed, in short."""
    found = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return shorten(found, MOST_LETTERS, placeholder=" …")
