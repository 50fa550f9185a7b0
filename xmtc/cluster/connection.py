"""Connection to a Ray cluster; `auto` starts one on this machine if none is running."""

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
from xmtc.storage.atomic import describe_error

AUTO = "auto"
CLIENT_SCHEME = "ray://"
ADDRESS_PATTERN = re.compile(rf"(?:{CLIENT_SCHEME})?(?P<host>[^\s:/]+):(?P<port>\d{{1,5}})")
CONNECT_TIMEOUT_SECONDS = 10.0  # for an address to answer
INIT_OPTIONS: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}  # workers' output is not shown
RETRY_VARIABLE = "RAY_NUM_REDIS_GET_RETRIES", "1"  # each try at a port that is not Ray takes 40 seconds
NO_DASHBOARD = {"include_dashboard": False}  # for a cluster that this process starts
AUTH_MODE_VARIABLE, AUTH_TOKEN_VARIABLE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"  # Ray reads them when it is imported
CURRENT_CLUSTER_FILE = Path("ray", "ray_current_cluster")  # Ray's file with the address of the cluster on this machine


def check_address(address: Any) -> None:
    """Raise XmtcError for a malformed address, without network access."""
    if not isinstance(address, str) or not (address in ("", AUTO) or ADDRESS_PATTERN.fullmatch(address)):
        raise XmtcError(
            f"cluster={address!r} is invalid; expected auto, host:port (such as head:6379) or ray://host:port."
        )


def connect(address: str) -> ModuleType:
    """Return the ray module, connected to the cluster; an existing connection is kept."""
    check_address(address)
    if address != AUTO:
        os.environ.setdefault(*RETRY_VARIABLE)  # Ray reads it when it is imported
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
    """Return True if `auto` refers to a running cluster, by RAY_ADDRESS or Ray's own file."""
    folder = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    return "RAY_ADDRESS" in os.environ or any((root / CURRENT_CLUSTER_FILE).exists() for root in (folder, Path("/tmp")))


def require_token() -> None:
    """Require a token for the cluster that this process starts.

    Ray listens on all interfaces and runs the code of everybody who connects. If Ray is imported already, its mode is
    fixed and stays as the caller has set it."""
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
    """Raise XmtcError if nothing answers at the address; Ray itself would wait for minutes."""
    match = ADDRESS_PATTERN.fullmatch(address)
    assert match is not None
    try:
        socket.create_connection((match["host"], int(match["port"])), CONNECT_TIMEOUT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise XmtcError(
            f"No cluster answers at {address} ({describe_error(error)}); start one there with `ray start --head`, "
            "which prints its address, or use --cluster auto."
        ) from None


def join(ray: ModuleType, address: str) -> None:
    """Connect to the cluster; `auto` uses RAY_ADDRESS, a cluster on this machine, or a new one."""
    try:
        if address == AUTO:
            ray.init(**INIT_OPTIONS, **NO_DASHBOARD)
        else:
            ray.init(address, **INIT_OPTIONS)
    except ImportError as error:
        raise XmtcError(f"{CLIENT_SCHEME} addresses need the Ray client ({error}): pip install 'ray[client]'") from None
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise XmtcError(
            f"Connecting to the cluster {address} failed ({reason}); expected Ray of the same version there. If it "
            "requires a token, set RAY_AUTH_MODE=token and provide Ray's token on this machine."
        ) from None


@contextmanager
def preserve_signal_handler() -> Iterator[None]:
    """Restore our SIGTERM handler, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
