"""Joining a cluster, or beginning one on this machine where there is none."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from xmtc.errors import XmtcError, as_missing_extra

AUTO = "auto"
CLIENT_SCHEME = "ray://"
ADDRESS_PATTERN = re.compile(rf"(?:{CLIENT_SCHEME})?(?P<host>[^\s:/]+):(?P<port>\d{{1,5}})")
CONNECT_TIMEOUT_SECONDS = 10.0  # seconds within which an address must answer
INIT_OPTIONS: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}  # what workers print is nobody's news
RETRY_VARIABLE = "RAY_NUM_REDIS_GET_RETRIES", "1"  # whoever answers there but is no Ray: each time takes 40 seconds
NO_DASHBOARD = {"include_dashboard": False}  # of a cluster that begins and ends with us
AUTH_MODE_VARIABLE, AUTH_TOKEN_VARIABLE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"  # Ray reads them when it is imported
CURRENT_CLUSTER_FILE = Path("ray", "ray_current_cluster")  # Ray's file with the address of the cluster on this machine


def check_address(address: Any) -> None:
    """Refuse what can be no address, without a look at the network."""
    if not isinstance(address, str) or not (address in ("", AUTO) or ADDRESS_PATTERN.fullmatch(address)):
        raise XmtcError(
            f"cluster={address!r} is invalid; expected auto, host:port (such as head:6379) or ray://host:port."
        )


def connect(address: str) -> ModuleType:
    """Ray, joined to the cluster; as it is where this process has joined one already."""
    check_address(address)
    if address != AUTO:
        os.environ.setdefault(*RETRY_VARIABLE)  # Ray looks for it when it is imported
    elif not has_running_cluster():
        require_token()
    ray = import_ray()
    if not ray.is_initialized():
        if address != AUTO:
            check_reachable(address)
        with preserve_signal_handler():
            join(ray, address)
    return ray


def has_running_cluster() -> bool:
    """Return True if `auto` means a cluster that runs already, named by RAY_ADDRESS or by Ray's own file."""
    folder = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    return "RAY_ADDRESS" in os.environ or any(
        (place / CURRENT_CLUSTER_FILE).exists() for place in (folder, Path("/tmp"))
    )


def require_token() -> None:
    """Protect a cluster that this process is about to start: Ray listens on all interfaces and runs the code of
    everybody who connects. If Ray is imported already, its mode is fixed and stays as the caller has set it."""
    if "ray" not in sys.modules and AUTH_MODE_VARIABLE not in os.environ:
        os.environ[AUTH_MODE_VARIABLE] = "token"
        os.environ.setdefault(AUTH_TOKEN_VARIABLE, secrets.token_hex(32))


def import_ray() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise as_missing_extra("A cluster", error) from None
    return ray


def check_reachable(address: str) -> None:
    """Ray itself would wait for minutes for a machine that is not there."""
    found = ADDRESS_PATTERN.fullmatch(address)
    assert found is not None
    try:
        socket.create_connection((found["host"], int(found["port"])), CONNECT_TIMEOUT_SECONDS).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise XmtcError(
            f"No cluster answers at {address} ({why}); begin one there with `ray start --head`, which prints the "
            "address to join, or give --cluster auto."
        ) from None


def join(ray: ModuleType, address: str) -> None:
    """`auto` joins the cluster that RAY_ADDRESS names or that runs on this machine, or begins one here."""
    try:
        if address == AUTO:
            ray.init(**INIT_OPTIONS, **NO_DASHBOARD)
        else:
            ray.init(address, **INIT_OPTIONS)
    except ImportError as error:
        raise XmtcError(f"{CLIENT_SCHEME} addresses need more of Ray ({error}): pip install 'ray[client]'") from None
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise XmtcError(
            f"The cluster {address} cannot be joined ({reason}); expected a Ray of the same version there. Where it "
            "asks for a token, set RAY_AUTH_MODE=token, and have Ray's token on this machine."
        ) from None


@contextmanager
def preserve_signal_handler() -> Iterator[None]:
    """Ray puts a handler of its own in the place of ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, ours)
