"""What becomes of connections when a process forks.

A child that wrote to the socket of its parent would mix its requests into the parent's, with the
same ids, and each would read answers of the other. So in the child, before anything else runs
there, every connection is replaced: its file descriptor becomes a socket that is connected to
nothing, and its owner is asked, by `forked`, to begin anew or to refuse. Nothing is sent and
nothing is shut down on the connection, which stays the parent's. The locks of the parent are not
taken: another of its threads may have held them, and that thread does not exist in the child.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import NoReturn, Protocol, SupportsIndex
from weakref import WeakSet


class Forkable(Protocol):
    """Owner of a connection, or of something that lives in one process."""

    def forked(self, parent: int) -> None:
        """This is a child of the process `parent`, and nothing else runs yet."""


_living: WeakSet[Forkable] = WeakSet()
_pid = os.getpid()


def follow_forks(owner: Forkable) -> None:
    """Call its `forked` in children, as long as it lives."""
    _living.add(owner)


def disown(fd: int) -> None:
    """Let go of an inherited connection. The number stays in use, by a socket that leads nowhere:
    objects of the parent that are still around may close it, poll it and write to it."""
    if fd < 0:
        return
    with suppress(OSError):
        os.close(fd)  # first, so that there is a free one for sure
    nowhere = socket.socket(socket.AF_UNIX)
    if nowhere.fileno() == fd:
        nowhere.detach()
    else:
        os.dup2(nowhere.fileno(), fd, inheritable=False)
        nowhere.close()


def require_own(what: str, parent: int) -> None:
    """Raise RuntimeError if it was inherited; `parent` is the process it belongs to, or 0."""
    if parent:
        raise RuntimeError(
            f"this {what} belongs to process {parent}, which forked this one: make a new {what} in"
            f" this process ({os.getpid()})"
        )


class Unpicklable:
    """What has a connection cannot be sent to another process, nor copied."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} has a connection and cannot be pickled or copied: give the"
            " other process the URL and connect there"
        )


def _after_fork_in_child() -> None:
    global _pid
    parent, _pid = _pid, os.getpid()
    for owner in list(_living):
        try:
            owner.forked(parent)
        except Exception:  # the others must not keep their connections for that
            import logging  # here: it takes a while, and is rarely needed

            log = logging.getLogger("zbus.client")
            log.exception("a connection of process %d could not be replaced in this child", parent)


os.register_at_fork(after_in_child=_after_fork_in_child)
