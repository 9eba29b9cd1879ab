"""A fault at every call of the operating system, one run for each.

Whatever fails, and whether it fails once or from then on: the broker goes on, or refuses clearly,
or ends with a text; nothing is acknowledged that was not synced; a sync that failed is not tried
again; and a broker that starts on that disk, after a kill and after a power cut, has everything
that was acknowledged.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections import Counter
from random import Random

import pytest

from tests.limits import checked
from tests.simulation.stack import Stack, TopicBook, check
from zbus.storage.local.files import Files
from zbus.storage.port import JournalError, JournalFull
from zbus.testing.disk import Disk, Operation, ShortWrite

STEPS = 34
SEED = 61  # its workload makes all fourteen calls; if it does not any more, another one does
SYNCS = frozenset(("sync", "sync_all", "sync_directory"))
SPACE = frozenset(("open", "write", "allocate", "rename", "make_directory"))
"""Calls for which a full disk, or too many open files, are told by JournalFull."""


def error_of(kind: str, operation: Operation) -> Exception | None:
    """What the operation raises; None if this does not happen to it."""
    name = operation.name
    if name == "close":
        return None  # what a close says is never heard: see OsFiles
    if kind in ("EIO", "EINTR"):
        return OSError(getattr(errno, kind), os.strerror(getattr(errno, kind)))
    if kind == "ENOSPC":
        if name in SPACE:
            return JournalFull(os.strerror(errno.ENOSPC))
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if name in SYNCS else None
    if kind == "EMFILE":
        if name == "open":
            return JournalFull(os.strerror(errno.EMFILE))
        return OSError(errno.EMFILE, "") if name == "sync_directory" else None
    assert kind in ("short ENOSPC", "short EIO")
    if name != "write":
        return None
    error = JournalFull("full") if kind == "short ENOSPC" else OSError(errno.EIO, "broken")
    return ShortWrite(operation.size // 2, error)


KINDS = ("EIO", "ENOSPC", "EINTR", "EMFILE", "short ENOSPC", "short EIO")


class Run:
    """The workload over a disk that fails from operation `index` on, or only there."""

    def __init__(self, kind: str = "EIO", index: int | None = None, once: bool = True) -> None:
        self.kind = kind
        self.index = index
        self.once = once
        self.hit = False  # the fault happened
        self.random = Random(SEED)
        self.serials = itertools.count()
        self.retried: list[str] = []
        self.failed_syncs: Counter[str] = Counter()
        self.names: list[str] = []
        self.books: dict[str, TopicBook] = {}
        self.disk = Disk()
        self.disk.faults = self.fault
        self.end = "went on"
        self.text = "why it did not"
        self.stack: Stack | None = None

    def fault(self, operation: Operation) -> None:
        index = len(self.names)
        self.names.append(operation.name)
        if operation.name in SYNCS and self.failed_syncs[str(operation.path)]:
            self.retried.append(f"{operation.name} of {operation.path}")
        if self.index is None or index < self.index or (self.once and index > self.index):
            return
        error = error_of(self.kind, operation)
        if error is not None:
            self.hit = True
            if operation.name in SYNCS:
                self.failed_syncs[str(operation.path)] += 1
            raise error

    def work(self) -> None:
        """Two lives; the second finds an unfinished write."""
        if not self.live(STEPS):
            return
        self.disk = self.disk.kill()
        logs = [path for path in self.disk.list_all() if path.suffix == ".log"]
        if logs:
            self.disk.write_file(logs[-1], self.disk.read_file(logs[-1]) + b"zbus and no more")
        self.live(STEPS // 2)

    def live(self, steps: int) -> bool:
        """One life of a broker; False if it came to a bad end."""
        self.disk.faults = self.fault
        try:
            self.stack = stack = Stack(
                self.disk,
                self.random,
                books=self.books,
                serials=self.serials,
                segment_bytes=900,
                reserve_bytes=2000,
            )
        except (JournalError, OSError) as error:
            self.end, self.text = "did not start", str(error)
            return False
        try:
            for number in range(steps):
                stack.step()
                if number == steps - 10:
                    stack.settle()
                    stack.turn(stack.purge_topic)
                if number == steps - 14:
                    stack.settle()
                    stack.turn(stack.remove_topic)
                if stack.failures:
                    break
            else:
                stack.settle()
        except JournalError as error:
            self.end, self.text = "ended", str(error)
        self.leave(stack)
        if stack.failures:
            assert len(stack.failures) == 1, stack.failures
            self.end, self.text = "failed", stack.failures[0]
        return self.end == "went on"

    def leave(self, stack: Stack) -> None:
        """As the server ends: what is posted still runs, then the journal is closed."""
        stack.work()
        stack.run_posted()
        try:
            stack.journal.close()
        except (JournalError, OSError):
            self.end = "failed to close"  # the process ends anyway
        stack.run_posted()

    def recover(self, seed: int) -> None:
        check(Stack(self.disk.kill(), Random(0), at_once=True), self.books, False)
        for number in range(2):
            disk = self.disk.crash(Random(seed + number))
            check(Stack(disk, Random(0), at_once=True), self.books, True)


def test_the_workload_makes_every_call() -> None:
    run = Run()
    run.work()
    run.recover(1)
    assert run.end == "went on"
    calls = {name for name in vars(Files) if not name.startswith("_")}
    assert len(calls) == 14
    assert set(run.names) == calls


@pytest.mark.parametrize("every", [32, *checked([1])])
@pytest.mark.parametrize("once", [True, False], ids=["once", "from then on"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_every_call(kind: str, once: bool, every: int) -> None:
    """Without `make check` at every 32nd, for each kind at others."""
    whole = Run()
    whole.work()
    broken: list[str] = []
    ends: Counter[str] = Counter()
    for index in range((2 * KINDS.index(kind) + once) % every, len(whole.names), every):
        run = Run(kind, index, once)
        try:
            run.work()
            if not run.hit:
                continue
            assert run.text
            assert not run.retried, run.retried
            run.recover(index)
        except Exception as error:
            broken.append(f"{index} {run.names[index]}: {type(error).__name__}: {error}")
        ends[run.end] += 1
    assert not broken, "\n".join(broken)
    assert sum(ends.values()) * every > 20
