"""Processes that train one network together, begun by Ray Train: it places them, gives them the variables that torchrun
gives (RANK, WORLD_SIZE, LOCAL_RANK ...), has them meet, and begins them anew where one has died."""

from __future__ import annotations

import os
import pickle
import traceback
from _thread import interrupt_main
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from tempfile import TemporaryDirectory
from threading import Thread
from types import ModuleType
from typing import Any, NamedTuple

from xmtc.cluster.driver_calls import call_driver
from xmtc.cluster.transfer import unpack_value
from xmtc.cluster.worker import check_version
from xmtc.cluster.worker_group import WorkerGroup, is_single_process, list_machines, shrink_worker_group
from xmtc.errors import MissingExtra

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
