"""Atomic writes of files and folders.

Content is written under a random temporary name, synced to disk, and then renamed to its target, so that the target is
either complete or unchanged. Locks end with their process, even if it is killed: if the lock of a partial file can be
acquired, its writer is gone."""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None
PARTIAL_SUFFIX, SAVING_SUFFIX, LOCK_SUFFIX = ".part", ".saving", "lock"  # of hidden names
NEW_FOLDER, OLD_FOLDER = "new", "old"
MAX_NAME_BYTES = 200  # of a target's name within a hidden name; file systems allow 255 in all
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # constants of Linux
UNSUPPORTED_ERRNOS = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP)  # not supported here


@contextmanager
def atomic_file(target: Path) -> Iterator[IO[bytes]]:
    """Yield a file that replaces the target on success and is removed on failure."""
    unfinished, file = create_partial_file(target)
    try:
        with file:
            yield file
            file.flush()
            sync(file.fileno())
            if HAS_LOCKS:  # before it is closed and unlocked
                os.replace(unfinished, target)
        if not HAS_LOCKS:  # Windows cannot rename an open file
            os.replace(unfinished, target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def create_partial_file(target: Path) -> tuple[Path, IO[bytes]]:
    """Return the path of a new file beside the target and the file, which is locked while it is open."""
    while True:
        path = to_hidden_path(target, secrets.token_hex(8) + PARTIAL_SUFFIX)
        file = path.open("xb")  # fails if anything exists there, even a link
        with suppress(OSError):  # without locks, nothing is treated as stale
            lock_file(file)
        if is_file_at(file, path):
            return path, file
        file.close()  # another process removed it as stale before the lock


def to_hidden_path(target: Path, ending: str) -> Path:
    """Return the path of a hidden file beside the target, with a hash in place of a long name."""
    is_short = len(os.fsencode(target.name)) <= MAX_NAME_BYTES
    name = target.name if is_short else hashlib.blake2b(os.fsencode(target.name), digest_size=16).hexdigest()
    return target.with_name(f".{name}.{ending}")


def remove_stale_files(target: Path) -> None:
    """Remove partial files of this target whose writers were killed."""
    for path in find_stale_paths(target, PARTIAL_SUFFIX):
        with suppress(OSError), open_without_links(path) as file:  # the file of a running writer is locked
            lock_file(file)
            path.unlink()


def find_stale_paths(target: Path, ending: str) -> list[Path]:
    """Return paths of partial writes of the target, complete or stale; empty if the folder cannot be read."""
    token = "[0-9a-f]{16}"
    pattern = re.compile(re.escape(to_hidden_path(target, "").name) + token + re.escape(ending))
    with suppress(OSError):
        return [target.with_name(name) for name in os.listdir(target.parent) if pattern.fullmatch(name)]
    return []


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a folder that replaces the target on success and is removed on failure.

    A lock makes concurrent writers of one target take turns."""
    with hold_lock(to_hidden_path(target, LOCK_SUFFIX)):
        remove_stale_folders(target)
        holder = to_hidden_path(target, secrets.token_hex(8) + SAVING_SUFFIX)
        holder.mkdir(mode=0o700)
        new, old = holder / NEW_FOLDER, holder / OLD_FOLDER
        try:
            new.mkdir()  # with the permissions of the umask, unlike the private holder
            yield new
            for path in new.iterdir():
                sync_file(path)
            sync_folder(new)
            move_into_place(new, target, old)
            sync_folder(target.parent)
        finally:
            restore_old_folder(old, target)
            shutil.rmtree(holder, ignore_errors=True)


def move_into_place(new: Path, target: Path, old: Path) -> None:
    """Rename the new folder to the target, swapping it with an existing one in a single step if possible."""
    if not target.exists():
        os.replace(new, target)
    elif not exchange(new, target):
        os.replace(target, old)
        os.replace(new, target)


def restore_old_folder(old: Path, target: Path) -> None:
    if old.exists() and not target.exists():
        os.replace(old, target)


def remove_stale_folders(target: Path) -> None:
    """Restore a folder that a killed process moved aside, and remove what it left; the lock must be held."""
    for holder in find_stale_paths(target, SAVING_SUFFIX):
        if holder.is_dir() and not holder.is_symlink():
            restore_old_folder(holder / OLD_FOLDER, target)
            if {path.name for path in holder.iterdir()} <= {NEW_FOLDER, OLD_FOLDER}:
                shutil.rmtree(holder, ignore_errors=True)


def recover_folder(target: Path) -> None:
    """Clean up after a process that was killed while it wrote this folder; ignore errors.

    If the old folder is moved aside, wait for the writer, which may be about to replace it."""
    holders = find_stale_paths(target, SAVING_SUFFIX)
    is_moved = any((holder / OLD_FOLDER).exists() for holder in holders)
    if holders:
        with suppress(OSError), hold_lock(to_hidden_path(target, LOCK_SUFFIX), wait=is_moved) as is_locked:
            if is_locked:
                remove_stale_folders(target)


def open_without_links(path: Path, create: bool = False) -> IO[bytes]:
    """Open a regular file for reading and writing, without following a link."""
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "r+b")


def lock_file(file: IO[bytes], wait: bool = False) -> None:
    """Lock a file until it is closed.

    Raises
    ------
    BlockingIOError
        If another process holds the lock.
    OSError
        If locks are not supported here.
    """
    if fcntl is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_file_at(file: IO[bytes], path: Path) -> bool:
    """Return True if an open file is still at this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except OSError:
        return False


@contextmanager
def hold_lock(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold a lock file; yield False if another process has it and `wait` is False.

    Where locks are not supported, yield True."""
    file = open_locked(path, wait)
    if file is None:
        yield False
        return
    with file:
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)


def open_locked(path: Path, wait: bool = False) -> IO[bytes] | None:
    """Open and lock a file, creating it if needed; return None if another process holds the lock."""
    while True:
        file = open_without_links(path, create=True)
        try:
            lock_file(file, wait)
        except BlockingIOError:
            file.close()
            return None
        except OSError:  # locks are not supported
            return file
        if is_file_at(file, path):
            return file
        file.close()  # its previous owner has removed it


def sync(descriptor: int) -> None:
    """Sync an open file to disk, if supported."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED_ERRNOS:
            raise


def sync_file(path: Path) -> None:
    with path.open("r+b") as file:
        sync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to disk, if supported."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def exchange(one: Path, other: Path) -> bool:
    """Swap two paths atomically; return False if that is not supported."""
    rename = renameat2()
    if rename is None:
        return False
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in UNSUPPORTED_ERRNOS:
        return False
    raise OSError(number, os.strerror(number), str(other))


@functools.cache
def renameat2() -> Callable[..., Any] | None:
    """Return Linux's system call, or None if the C library does not have it."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # TypeError on Windows
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return function


def describe_error(error: BaseException) -> str:
    """Return the reason of a system error, for a message."""
    return getattr(error, "strerror", None) or str(error)
