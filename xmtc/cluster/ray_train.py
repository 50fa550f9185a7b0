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

from xmtc.cluster.driver_calls import ask
from xmtc.cluster.transfer import unpacked
from xmtc.cluster.worker import check_version
from xmtc.cluster.worker_group import Team, is_alone, left_of, machines
from xmtc.errors import MissingExtra

AGAIN = 3  # times that all are begun anew after one of them has died
PATIENCE = 20  # seconds within which they must find room
FAILED = "failed"  # what a process says before it gives up
# Of Ray Train's process. Workers are to stay in the folder that they are in.
SETTINGS = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(PATIENCE), "RAY_CHDIR_TO_TRIAL_DIR": "0"}

Ask = Callable[..., Any]


class Errand(NamedTuple):
    """What every process needs to know."""

    version: str  # of xmtc
    folder: str  # where the command was typed
    device: str
    desk: Any
    work: bytes
    arrays: list[Any]  # their places


class Launcher:
    """An actor: the process in which Ray Train runs."""

    def train(self, errand: Errand, team: Team) -> bytes:
        """What comes of the work, pickled. Where machines are gone for good, those that are left go on."""
        import ray

        train, trainer = ray_train()
        Thread(target=interrupt_when_closed, args=(errand.desk,), daemon=True).start()
        for times in range(AGAIN + 1):
            with TemporaryDirectory() as folder:  # which Ray Train would have in the home of the user
                try:
                    return trainer(partial(process, errand), **configured(train, team, folder)).fit().return_value
                except SystemExit:  # it was told to stop: nobody waits for this
                    return b""
                except train.ControllerError:
                    if times == AGAIN:
                        raise
            team = left_of(team, machines(ray))
        raise AssertionError("the last of several attempts returns or raises")


def ray_train() -> tuple[ModuleType, Any]:
    """Ray Train, and what trains networks of PyTorch there."""
    os.environ |= SETTINGS
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


def configured(train: ModuleType, team: Team, folder: str) -> dict[str, Any]:
    each = {"CPU": team.n_cpus} | ({"GPU": 1} if team.has_gpus else {})
    scaling = train.ScalingConfig(
        num_workers=team.n_workers, use_gpu=team.has_gpus, resources_per_worker=each, placement_strategy="SPREAD"
    )
    # what fails before they have begun is about room, and is counted above
    failures = train.FailureConfig(max_failures=AGAIN, controller_failure_limit=0)
    return {"scaling_config": scaling, "run_config": train.RunConfig(storage_path=folder, failure_config=failures)}


def process(errand: Errand) -> bytes:
    """One of those that train together, where Ray Train has set the variables and they have met."""
    import ray

    try:
        check_version(errand.version)
        with suppress(OSError):  # names of files mean the same where all see that folder
            os.chdir(errand.folder)
        work = unpacked(errand.work, ray.get(errand.arrays))
        return pickle.dumps(work(partial(ask, errand.desk), errand.device), protocol=5)
    except Exception as error:
        if not is_anothers(error):
            ask(errand.desk, FAILED, pickled(error), traceback.format_exc())  # never answered: this ends all
        raise


def is_anothers(error: Exception) -> bool:
    """Whether it may be raised because another process has died: by Ray, or by PyTorch, which has no error of its own
    for that. Ray Train then begins all of them anew."""
    import ray

    is_memory = type(error).__name__ == "OutOfMemoryError"
    is_torchs = isinstance(error, RuntimeError) and not is_alone() and not is_memory
    return is_torchs or isinstance(error, ray.exceptions.RayError)


def pickled(error: Exception) -> bytes:
    """Some errors cannot be sent; then what they say can."""
    try:
        pickle.loads(found := pickle.dumps(error))
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return found
