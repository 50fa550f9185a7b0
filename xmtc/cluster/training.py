"""Training of one network by several processes of a Ray cluster, started by Ray Train.

Workers call the driver, the process that the user started, to show progress, notify callbacks, and load and save the
checkpoint. The calls go through `CallQueue`, an actor that holds only references to the object store."""

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
from typing import Any, NamedTuple

import xmtc
from xmtc.cluster.connection import connect
from xmtc.cluster.scheduling import POLL_SECONDS, get_first_line, raise_remote_error, raise_task_error
from xmtc.cluster.transfer import get_session_id, pack_value, unpack_value
from xmtc.cluster.worker import check_version
from xmtc.cluster.worker_group import WorkerGroup, list_machines, plan_worker_group, shrink_worker_group
from xmtc.core.process_rank import is_single_process
from xmtc.core.remote_run import DriverCall
from xmtc.errors import MissingExtra, XmtcError, format_install_command

MAX_RESTARTS = 3  # of the whole group, after one of its processes has died
START_TIMEOUT_SECONDS = 20  # for the cluster to start the workers
SHUTDOWN_SECONDS = 10.0  # for Ray Train to stop its workers and to remove its files
MAX_ERROR_CHARACTERS = 200  # of Ray Train's error message
FAILURE_CALL = "failed"  # request with which a worker reports an exception
# Environment of Ray Train's process. Workers keep their working directory.
RAY_TRAIN_VARIABLES = {
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(START_TIMEOUT_SECONDS),
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


class CallQueue:
    """Ray actor that passes calls of the workers to the driver, and its results back."""

    def __init__(self) -> None:
        self.call_ids = count()
        self.queue: asyncio.Queue[tuple[int, list[Any]]] = asyncio.Queue()
        self.pending: dict[int, asyncio.Future[list[Any]]] = {}
        self.closed = asyncio.Event()

    async def call(self, request: list[Any]) -> list[Any]:
        """Wait for the driver's result of a request."""
        call_id = next(self.call_ids)
        self.pending[call_id] = asyncio.get_running_loop().create_future()
        await self.queue.put((call_id, request))
        try:
            return await self.pending[call_id]
        finally:
            del self.pending[call_id]

    async def take_call(self) -> tuple[int, list[Any]]:
        """Wait for the next call, and return its id and request."""
        return await self.queue.get()

    async def set_result(self, call_id: int, result: list[Any]) -> None:
        if call_id in self.pending:  # the caller may have died
            self.pending[call_id].set_result(result)

    async def close(self) -> None:
        self.closed.set()

    async def wait_until_closed(self) -> None:
        await self.closed.wait()


def start_local_actor(ray: ModuleType, kind: type) -> Any:
    """Start an actor on this machine or, for a ray:// client, on the machine that it is connected to."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(kind).remote()


def call_driver(call_queue: Any, *request: Any) -> Any:
    """Return the driver's result of a request.

    Request and result stay in the object store, since they may hold gigabytes of weights; the queue gets references."""
    import ray

    (result,) = ray.get(call_queue.call.remote([ray.put(request)]))
    return ray.get(result)


class WorkerSpec(NamedTuple):
    """Arguments of every worker."""

    version: str  # of xmtc on the driver
    folder: str  # working directory of the driver
    device: str
    call_queue: Any
    work: bytes  # pickled function
    arrays: list[Any]  # Ray references of its arrays


class Launcher:
    """Ray actor in whose process Ray Train runs."""

    def train(self, spec: WorkerSpec, group: WorkerGroup) -> bytes:
        """Return the pickled result of the first worker; if machines are lost, a smaller group continues."""
        import ray

        train, trainer = import_ray_train()
        Thread(target=interrupt_when_closed, args=(spec.call_queue,), daemon=True).start()
        for attempt in range(MAX_RESTARTS + 1):
            with TemporaryDirectory() as folder:  # Ray Train's default is in the user's home directory
                options = build_trainer_options(train, group, folder)
                try:
                    return trainer(partial(run_worker, spec), **options).fit().return_value
                except SystemExit:  # the driver has closed the queue, and needs no result
                    return b""
                except train.ControllerError:
                    if attempt == MAX_RESTARTS:
                        raise
            group = shrink_worker_group(group, list_machines(ray))
        raise AssertionError("the last attempt returns or raises")


def import_ray_train() -> tuple[ModuleType, Any]:
    """Return the module ray.train and the class TorchTrainer."""
    os.environ |= RAY_TRAIN_VARIABLES
    try:
        return import_module("ray.train"), import_module("ray.train.torch").TorchTrainer
    except ImportError as error:
        raise MissingExtra(
            f"A network on a cluster needs Ray Train and PyTorch ({error}): {format_install_command('neural,cluster')}"
        ) from None


def interrupt_when_closed(call_queue: Any) -> None:
    """Wait until the queue is closed, then interrupt the main thread like Ctrl-C, which stops Ray Train."""
    import ray

    ray.get(call_queue.wait_until_closed.remote())
    interrupt_main()


def build_trainer_options(train: ModuleType, group: WorkerGroup, folder: str) -> dict[str, Any]:
    resources = {"CPU": group.n_cpus} | ({"GPU": 1} if group.has_gpus else {})
    scaling = train.ScalingConfig(
        num_workers=group.n_workers,
        use_gpu=group.has_gpus,
        resources_per_worker=resources,
        placement_strategy="SPREAD",
    )
    # A failure before the start is due to missing resources; Launcher.train counts those.
    failures = train.FailureConfig(max_failures=MAX_RESTARTS, controller_failure_limit=0)
    return {"scaling_config": scaling, "run_config": train.RunConfig(storage_path=folder, failure_config=failures)}


def run_worker(spec: WorkerSpec) -> bytes:
    """Return the pickled result of the work, in a worker whose process group Ray Train has set up."""
    import ray

    try:
        check_version(spec.version)
        with suppress(OSError):  # relative paths work if the machines share the working directory
            os.chdir(spec.folder)
        work = unpack_value(spec.work, ray.get(spec.arrays))
        return pickle.dumps(work(partial(call_driver, spec.call_queue), spec.device), protocol=5)
    except Exception as error:
        if not is_peer_failure(error):
            # The call never returns: the driver raises the error and stops all workers.
            call_driver(spec.call_queue, FAILURE_CALL, pickle_error(error), traceback.format_exc())
        raise


def is_peer_failure(error: Exception) -> bool:
    """Return True if another worker may have died, after which Ray Train restarts the group.

    Ray has its own errors for it; PyTorch raises a plain RuntimeError."""
    import ray

    is_memory_error = type(error).__name__ == "OutOfMemoryError"
    is_torch_error = isinstance(error, RuntimeError) and not is_single_process() and not is_memory_error
    return is_torch_error or isinstance(error, ray.exceptions.RayError)


def pickle_error(error: Exception) -> bytes:
    """Return a pickled exception, or a RuntimeError with its message if it cannot be pickled."""
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return content


def run_in_worker_group(
    address: str,
    work: Callable[[DriverCall, str], Any],
    handle: Callable[..., Any],
    device: str = "auto",
    n_workers: int = 0,
) -> Any:
    """Run a function in several processes of a cluster and return the result of the first.

    Exceptions of `work` and of `handle` stop all workers and are raised here.

    Parameters
    ----------
    address : str
        Address of the cluster.
    work : callable
        Function of `call_driver` and a device.
    handle : callable
        Function that handles the workers' requests in this process.
    device : str, default="auto"
        auto or cpu.
    n_workers : int, default=0
        Number of processes; 0 is one per GPU or, without GPUs, one per machine.
    """
    ray = connect(address)
    group = plan_worker_group(list_machines(ray), device, n_workers)
    packed = pack_value(work, get_session_id(ray))
    call_queue = start_local_actor(ray, CallQueue)
    spec = WorkerSpec(xmtc.__version__, os.getcwd(), group.device, call_queue, packed.content, packed.arrays)
    with launch_workers(ray, spec, group) as outcome:
        next_call = call_queue.take_call.remote()
        while not ray.wait([outcome], timeout=0)[0]:
            if next_call in ray.wait([next_call, outcome], timeout=POLL_SECONDS)[0]:
                answer_call(ray, call_queue, ray.get(next_call), handle)
                next_call = call_queue.take_call.remote()
        return get_outcome(ray, outcome, group)


@contextmanager
def launch_workers(ray: ModuleType, spec: WorkerSpec, group: WorkerGroup) -> Iterator[Any]:
    """Start Ray Train and yield the reference of its result; stop it and its workers on exit."""
    launcher = start_local_actor(ray, Launcher)
    outcome = launcher.train.remote(spec, group)
    try:
        yield outcome
    finally:
        spec.call_queue.close.remote()
        ray.wait([outcome], timeout=SHUTDOWN_SECONDS)
        ray.kill(launcher)
        ray.kill(spec.call_queue)


def answer_call(ray: ModuleType, call_queue: Any, call: tuple[int, list[Any]], handle: Callable[..., Any]) -> None:
    call_id, (request_ref,) = call
    try:
        request = ray.get(request_ref)
    except ray.exceptions.RayError:  # the caller has died
        return
    if request[0] == FAILURE_CALL:
        error, trace = request[1:]
        raise_remote_error(pickle.loads(error), trace)
    ray.get(call_queue.set_result.remote(call_id, [ray.put(handle(*request))]))


def get_outcome(ray: ModuleType, outcome: Any, group: WorkerGroup) -> Any:
    try:
        return pickle.loads(ray.get(outcome))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, XmtcError):
            raise_task_error(error)
        raise XmtcError(
            f"The cluster did not finish the training by {group.description} in {MAX_RESTARTS + 1} attempts "
            f"({get_last_line(error.cause)}); check that its machines have enough memory and the same versions of "
            "xmtc, Python, Ray and PyTorch, and reach each other. With --checkpoint, the same command resumes it."
        ) from None
    except ray.exceptions.RayError as error:
        raise XmtcError(f"Ray Train has died ({get_first_line(error)}); repeat the command.") from None


def get_last_line(error: Any) -> str:
    """Return the last line of Ray Train's message, which follows the tracebacks of the workers, shortened."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return shorten(line, MAX_ERROR_CHARACTERS, placeholder=" …")
