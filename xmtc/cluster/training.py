"""Questions of processes elsewhere, answered where the command was typed: what is to be shown, written down or kept is
shown, written down and kept there. A desk between them holds nothing but places in the object store."""

from __future__ import annotations

import asyncio
import os
import pickle
import traceback
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import count
from tempfile import TemporaryDirectory
from textwrap import shorten
from threading import Thread
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import xmtc
from xmtc.cluster.connection import connect
from xmtc.cluster.scheduling import get_first_line, raise_task_error
from xmtc.cluster.transfer import get_session_id, pack_value, unpack_value
from xmtc.cluster.worker import check_version
from xmtc.cluster.worker_group import (
    WorkerGroup,
    is_single_process,
    list_machines,
    plan_worker_group,
    shrink_worker_group,
)
from xmtc.errors import MissingExtra, XmtcError


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


MAX_RESTARTS = 3  # times that all are begun anew after one of them has died
START_TIMEOUT_SECONDS = 20  # seconds within which they must find room
FAILURE_CALL = "failed"  # what a process says before it gives up
# Of Ray Train's process. Workers are to stay in the folder that they are in.
RAY_TRAIN_VARIABLES = {
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(START_TIMEOUT_SECONDS),
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}

DriverCall = Callable[..., Any]


class WorkerSpec(NamedTuple):
    """What every process needs to know."""

    version: str  # of xmtc
    folder: str  # where the command was typed
    device: str
    call_queue: Any
    work: bytes
    arrays: list[Any]  # their places


class Launcher:
    """An actor: the process in which Ray Train runs."""

    def train(self, errand: WorkerSpec, team: WorkerGroup) -> bytes:
        """What comes of the work, pickled. Where machines are gone for good, those that are left go on."""
        import ray

        train, trainer = import_ray_train()
        Thread(target=interrupt_when_closed, args=(errand.call_queue,), daemon=True).start()
        for times in range(MAX_RESTARTS + 1):
            with TemporaryDirectory() as folder:  # which Ray Train would have in the home of the user
                try:
                    return (
                        trainer(partial(run_worker, errand), **build_trainer_options(train, team, folder))
                        .fit()
                        .return_value
                    )
                except SystemExit:  # it was told to stop: nobody waits for this
                    return b""
                except train.ControllerError:
                    if times == MAX_RESTARTS:
                        raise
            team = shrink_worker_group(team, list_machines(ray))
        raise AssertionError("the last of several attempts returns or raises")


def import_ray_train() -> tuple[ModuleType, Any]:
    """Ray Train, and what trains networks of PyTorch there."""
    os.environ |= RAY_TRAIN_VARIABLES
    try:
        return import_module("ray.train"), import_module("ray.train.torch").TorchTrainer
    except ImportError as error:
        raise MissingExtra(
            f"A network on a cluster needs Ray Train and PyTorch ({error}): pip install 'xmtc[neural,cluster]'"
        ) from None


def interrupt_when_closed(desk: Any) -> None:
    """As Ctrl-C would, which is how Ray Train is told to stop."""
    import ray

    ray.get(desk.until_closed.remote())
    interrupt_main()


def build_trainer_options(train: ModuleType, team: WorkerGroup, folder: str) -> dict[str, Any]:
    each = {"CPU": team.n_cpus} | ({"GPU": 1} if team.has_gpus else {})
    scaling = train.ScalingConfig(
        num_workers=team.n_workers, use_gpu=team.has_gpus, resources_per_worker=each, placement_strategy="SPREAD"
    )
    # what fails before they have begun is about room, and is counted above
    failures = train.FailureConfig(max_failures=MAX_RESTARTS, controller_failure_limit=0)
    return {"scaling_config": scaling, "run_config": train.RunConfig(storage_path=folder, failure_config=failures)}


def run_worker(errand: WorkerSpec) -> bytes:
    """One of those that train together, where Ray Train has set the variables and they have met."""
    import ray

    try:
        check_version(errand.version)
        with suppress(OSError):  # names of files mean the same where all see that folder
            os.chdir(errand.folder)
        work = unpack_value(errand.work, ray.get(errand.arrays))
        return pickle.dumps(work(partial(call_driver, errand.call_queue), errand.device), protocol=5)
    except Exception as error:
        if not is_peer_failure(error):
            call_driver(
                errand.call_queue, FAILURE_CALL, pickle_error(error), traceback.format_exc()
            )  # never answered: this ends all
        raise


def is_peer_failure(error: Exception) -> bool:
    """Whether it may be raised because another process has died: by Ray, or by PyTorch, which has no error of its own
    for that. Ray Train then begins all of them anew."""
    import ray

    is_memory = type(error).__name__ == "OutOfMemoryError"
    is_torchs = isinstance(error, RuntimeError) and not is_single_process() and not is_memory
    return is_torchs or isinstance(error, ray.exceptions.RayError)


def pickle_error(error: Exception) -> bytes:
    """Some errors cannot be sent; then what they say can."""
    try:
        pickle.loads(found := pickle.dumps(error))
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return found


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
