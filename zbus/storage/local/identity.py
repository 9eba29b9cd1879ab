"""Which data directory this is: a random id, made once, by which a backup knows it from others.

A restored directory gets an id of its own: from there on its history is another one.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

from zbus.storage.local import naming
from zbus.storage.local.files import Files, write_whole
from zbus.storage.port import JournalError, JournalFull

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
