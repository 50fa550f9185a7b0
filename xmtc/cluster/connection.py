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

from xmtc.errors import XmtcError, missing_extra

AUTO = "auto"
CLIENT = "ray://"
ADDRESS = re.compile(rf"(?:{CLIENT})?(?P<host>[^\s:/]+):(?P<port>\d{{1,5}})")
PATIENCE = 10.0  # seconds within which an address must answer
USUAL: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}  # what workers print is nobody's news
ASK_ONCE = "RAY_NUM_REDIS_GET_RETRIES", "1"  # whoever answers there but is no Ray: each time takes 40 seconds
NO_DASHBOARD = {"include_dashboard": False}  # of a cluster that begins and ends with us
MODE, TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"  # Ray reads them when it is imported
CURRENT = Path("ray", "ray_current_cluster")  # Ray's file with the address of the cluster on this machine


def check_address(address: Any) -> None:
    """Refuse what can be no address, without a look at the network."""
    if not isinstance(address, str) or not (address in ("", AUTO) or ADDRESS.fullmatch(address)):
        raise XmtcError(
            f"cluster={address!r} is no cluster; expected auto, host:port (such as head:6379) or ray://host:port."
        )


def connect(address: str) -> ModuleType:
    """Ray, joined to the cluster; as it is where this process has joined one already."""
    check_address(address)
    if address != AUTO:
        os.environ.setdefault(*ASK_ONCE)  # Ray looks for it when it is imported
    elif not joins_existing():
        require_token()
    ray = imported_ray()
    if not ray.is_initialized():
        if address != AUTO:
            knock(address)
        with signals_kept():
            join(ray, address)
    return ray


def joins_existing() -> bool:
    """Return True if `auto` means a cluster that runs already, named by RAY_ADDRESS or by Ray's own file."""
    folder = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    return "RAY_ADDRESS" in os.environ or any((place / CURRENT).exists() for place in (folder, Path("/tmp")))


def require_token() -> None:
    """Protect a cluster that this process is about to start: Ray listens on all interfaces and runs the code of
    everybody who connects. If Ray is imported already, its mode is fixed and stays as the caller has set it."""
    if "ray" not in sys.modules and MODE not in os.environ:
        os.environ[MODE] = "token"
        os.environ.setdefault(TOKEN, secrets.token_hex(32))


def imported_ray() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise missing_extra("A cluster", error) from None
    return ray


def knock(address: str) -> None:
    """Ray itself would wait for minutes for a machine that is not there."""
    found = ADDRESS.fullmatch(address)
    assert found is not None
    try:
        socket.create_connection((found["host"], int(found["port"])), PATIENCE).close()
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
            ray.init(**USUAL, **NO_DASHBOARD)
        else:
            ray.init(address, **USUAL)
    except ImportError as error:
        raise XmtcError(f"{CLIENT} addresses need more of Ray ({error}): pip install 'ray[client]'") from None
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise XmtcError(
            f"The cluster {address} cannot be joined ({reason}); expected a Ray of the same version there. Where it "
            "asks for a token, set RAY_AUTH_MODE=token, and have Ray's token on this machine."
        ) from None


@contextmanager
def signals_kept() -> Iterator[None]:
    """Ray puts a handler of its own in the place of ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, ours)
