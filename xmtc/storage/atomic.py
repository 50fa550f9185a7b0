"""What is written to disk is whole or not there, whatever happens meanwhile: it gets a temporary name that nobody could
have put a link at, is pushed to the disk, and only then takes the place of its target. Locks belong to processes and
end with them, also with a killed one; so whoever gets the lock of something unfinished knows that its maker is gone."""

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
PARTIAL_SUFFIX, SAVING_SUFFIX, LOCK_SUFFIX = ".part", ".saving", "lock"  # how hidden names end
NEW_FOLDER, OLD_FOLDER = "new", "old"
MAX_NAME_BYTES = 200  # bytes of a target's name in a hidden one; systems take 255 in all
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux
UNSUPPORTED_ERRNOS = (
    errno.EINVAL,
    errno.ENOTSUP,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
)  # a file system that has no such thing


@contextmanager
def atomic_file(target: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of the target once everything is written, and vanishes after any failure."""
    unfinished, file = create_partial_file(target)
    try:
        with file:
            yield file
            file.flush()
            sync(file.fileno())
            if HAS_LOCKS:  # before it is closed, and no longer locked
                os.replace(unfinished, target)
        if not HAS_LOCKS:  # after it is closed: Windows renames nothing that is open
            os.replace(unfinished, target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def create_partial_file(target: Path) -> tuple[Path, IO[bytes]]:
    """A new file beside the target, locked as long as it is open."""
    while True:
        path = to_hidden_path(target, secrets.token_hex(8) + PARTIAL_SUFFIX)
        file = path.open("xb")  # fails where anything is there, a link as well
        with suppress(OSError):  # where there are no locks, nothing is taken for a leftover
            lock_file(file)
        if is_file_at(file, path):
            return path, file
        file.close()  # it was taken for one, before the lock


def to_hidden_path(target: Path, ending: str) -> Path:
    """A hidden name beside a target that belongs to it; of a long name, a digest, as names must not grow too long."""
    is_short = len(os.fsencode(target.name)) <= MAX_NAME_BYTES
    name = target.name if is_short else hashlib.blake2b(os.fsencode(target.name), digest_size=16).hexdigest()
    return target.with_name(f".{name}.{ending}")


def remove_stale_files(target: Path) -> None:
    """Remove the unfinished files of this target whose writers were killed."""
    for path in find_stale_paths(target, PARTIAL_SUFFIX):
        with suppress(OSError), open_without_links(path) as file:  # that of a living writer is locked
            lock_file(file)
            path.unlink()


def find_stale_paths(target: Path, ending: str) -> list[Path]:
    """What lies beside a target under the names that unfinished work has; nothing where the folder cannot be read."""
    marks = "[0-9a-f]{16}"
    pattern = re.compile(re.escape(to_hidden_path(target, "").name) + marks + re.escape(ending))
    with suppress(OSError):
        return [target.with_name(name) for name in os.listdir(target.parent) if pattern.fullmatch(name)]
    return []


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A folder that takes the place of the target once everything is written, and vanishes after any failure. Two who
    write to one target do so one after the other."""
    with hold_lock(to_hidden_path(target, LOCK_SUFFIX)):
        remove_stale_folders(target)
        holder = to_hidden_path(target, secrets.token_hex(8) + SAVING_SUFFIX)
        holder.mkdir(mode=0o700)
        new, old = holder / NEW_FOLDER, holder / OLD_FOLDER
        try:
            new.mkdir()  # in the private holder, and yet with the permissions that the umask gives
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
    """In one step, so that there is always one of them at the target; else the old one goes aside first."""
    if not target.exists():
        os.replace(new, target)
    elif not exchange(new, target):
        os.replace(target, old)
        os.replace(new, target)


def restore_old_folder(old: Path, target: Path) -> None:
    if old.exists() and not target.exists():
        os.replace(old, target)


def remove_stale_folders(target: Path) -> None:
    """With the lock of a target: put back what a killed process has moved aside, and remove what it has left."""
    for holder in find_stale_paths(target, SAVING_SUFFIX):
        if holder.is_dir() and not holder.is_symlink():
            restore_old_folder(holder / OLD_FOLDER, target)
            if {path.name for path in holder.iterdir()} <= {NEW_FOLDER, OLD_FOLDER}:
                shutil.rmtree(holder, ignore_errors=True)


def recover_folder(target: Path) -> None:
    """Clear up after a process that was killed while it wrote this folder. One that is alive is left alone, but for the
    moment in which it has moved the old folder aside. Nothing where the place cannot be written to."""
    holders = find_stale_paths(target, SAVING_SUFFIX)
    is_aside = any((holder / OLD_FOLDER).exists() for holder in holders)
    if holders:
        with suppress(OSError), hold_lock(to_hidden_path(target, LOCK_SUFFIX), wait=is_aside) as is_alone:
            if is_alone:
                remove_stale_folders(target)


def open_without_links(path: Path, create: bool = False) -> IO[bytes]:
    """Open a regular file to read and write it, never one that a link leads to."""
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(descriptor, "r+b")


def lock_file(file: IO[bytes], wait: bool = False) -> None:
    """Have a file for oneself until it is closed. BlockingIOError: somebody else has it; any other OSError: there are
    no locks here."""
    if fcntl is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_file_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except OSError:
        return False


@contextmanager
def hold_lock(path: Path, wait: bool = True) -> Iterator[bool]:
    """Alone among those who ask for this lock: a file that is there meanwhile. False, without waiting, where somebody
    else has it; where there are no locks, everybody is taken to be alone."""
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
    """A file, made if it is not there, that is this process's own until it is closed; None where it is another's."""
    while True:
        file = open_without_links(path, create=True)
        try:
            lock_file(file, wait)
        except BlockingIOError:
            file.close()
            return None
        except OSError:  # no locks here
            return file
        if is_file_at(file, path):
            return file
        file.close()  # its last owner has removed it


def sync(descriptor: int) -> None:
    """Push a file to the disk, where there is one."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED_ERRNOS:
            raise


def sync_file(path: Path) -> None:
    with path.open("r+b") as file:
        sync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Push the names in a folder to the disk, where the system lets folders be opened."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step; False where the system or the file system cannot."""
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
    """Linux's call, where the C library has it."""
    try:
        found = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # TypeError: Windows has no library without a name
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return found


def describe_error(error: BaseException) -> str:
    """What the system said, for a sentence."""
    return getattr(error, "strerror", None) or str(error)
