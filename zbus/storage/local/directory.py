"""The data directory itself: made, locked, named by a random id, and distinguished from others.

The id is made once, and a backup knows the directory by it. A restored directory gets one of its
own: from there on its history is another one.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

from zbus.storage.local import naming
from zbus.storage.local.files import Files, make_directories, opened, reason, write_whole
from zbus.storage.port import JournalError, JournalFull

_LOOK_AGAIN_S: Final = 0.05


def take_directory(files: Files, data_dir: Path, wait_s: float = 5.0) -> int:
    """Make the directory if it is missing, and lock it; give the lock. Waits so long for workers of
    a server that was killed."""
    lock = data_dir / naming.LOCK
    try:
        refuse_backup(files, data_dir)
        make_directories(files, data_dir)
        file = files.open(lock, "lock")
        files.truncate(file, 0)
    except BlockingIOError as error:
        owner = owner_of(files, lock)
        if wait_s > 0 and _is_gone(owner):
            time.sleep(_LOOK_AGAIN_S)
            return take_directory(files, data_dir, wait_s - _LOOK_AGAIN_S)
        raise JournalError(f"{data_dir} is in use by another process ({owner})") from error
    except NotADirectoryError as error:
        raise JournalError(f"{data_dir} cannot hold data: it is not a directory") from error
    except OSError as error:
        raise JournalError(f"{data_dir} cannot hold data: {reason(error, data_dir)}") from error
    except JournalFull as error:
        raise JournalError(f"{data_dir} cannot hold data: {error}") from error
    with suppress(JournalFull):  # a full disk is no reason not to start: it may get emptied
        files.write(file, b"pid %-10d\n" % os.getpid(), 0)
    return file


def _is_gone(owner: str) -> bool:
    """The process has ended: only its workers hold the lock, and they are about to end."""
    pid = owner.removeprefix("pid ")
    try:
        os.kill(int(pid) if pid.isdigit() else 0, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is another user's, or none that there can be
        return False
    return False


def make_way(files: Files, data_dir: Path) -> None:
    """Some topics have other directories since their names are files'."""
    for name in naming.TAKEN_LATE:
        with suppress(FileNotFoundError, NotADirectoryError):
            files.list(data_dir / name)
            files.rename(data_dir / name, data_dir / naming.topic_directory(name))
            files.sync_directory(data_dir)


def owner_of(files: Files, lock: Path) -> str:
    """Give what the holder of a lock wrote into it."""
    with opened(files, lock, "read") as file:
        return files.read(file, 40, 0).decode("ascii", "replace").strip() or "pid unknown"


def remove_tree(files: Files, path: Path) -> None:
    """Remove a file, or a directory and all that is in it."""
    with suppress(NotADirectoryError):
        for name in files.list(path):
            remove_tree(files, path / name)
    files.remove(path)


_DIGITS: Final = 32  # hexadecimal


def read_identity(files: Files, data_dir: Path) -> str:
    """Give the id; empty if there is none, as in directories of early versions."""
    try:
        file = files.open(data_dir / naming.IDENTITY, "read")
    except FileNotFoundError:
        return ""
    try:
        text = files.read(file, _DIGITS + 1, 0).decode("ascii", "replace").strip()
    finally:
        files.close(file)
    is_id = len(text) == _DIGITS and set(text) <= set("0123456789abcdef")
    return text if is_id else ""


def make_identity(files: Files, data_dir: Path) -> None:
    """Give the directory an id, durably, if it has none. A full disk puts it off."""
    if read_identity(files, data_dir):
        return
    made, data = data_dir / naming.IDENTITY_UNFINISHED, uuid.uuid4().hex.encode() + b"\n"
    with suppress(JournalFull):
        write_whole(files, data_dir / naming.IDENTITY, made, data)


def refuse_backup(files: Files, data_dir: Path) -> None:
    """Raise JournalError if the directory is a backup: what is in it are not logs."""
    manifest = data_dir / naming.MANIFEST
    with suppress(FileNotFoundError, NotADirectoryError):
        if naming.MANIFEST in files.list(data_dir):
            try:
                files.list(manifest)  # then it is an early version's topic of that name
            except NotADirectoryError:
                raise JournalError(
                    f"{data_dir} is a backup; restore it first: "
                    f"`zbus restore {data_dir} --data-dir NEW`"
                ) from None
