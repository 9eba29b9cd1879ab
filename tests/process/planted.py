"""Brokers with a bug: `python -m tests.process.planted <bug> serve ...`.

A campaign that finds nothing has shown nothing unless it finds what is there. Each function here
breaks one promise, in the way a programmer might.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import attrs

from zbus.cli import main
from zbus.core.cursor import journal
from zbus.core.cursor.backlog import Backlog
from zbus.core.cursor.state import Completion, Entries, EntryState, GroupChange, Origin
from zbus.core.persistence import replay
from zbus.core.topics.open_completions import OpenCompletions
from zbus.storage.local.files import OsFiles


def write_behind() -> None:
    """A reply leaves before the write: what a file was given last is kept back."""
    kept: dict[int, tuple[bytes, int]] = {}
    write, read, close = OsFiles.write, OsFiles.read, OsFiles.close

    def flush(self: OsFiles, file: int) -> None:
        for open_file in [file] if file in kept else []:
            write(self, open_file, *kept.pop(open_file))

    def late_write(self: OsFiles, file: int, data: bytes, position: int) -> None:
        flush(self, file)
        kept[file] = (data, position)

    def flushed_read(self: OsFiles, file: int, count: int, position: int) -> bytes:
        for open_file in list(kept):
            flush(self, open_file)
        return read(self, file, count, position)

    def flushed_close(self: OsFiles, file: int) -> None:
        flush(self, file)
        close(self, file)

    OsFiles.write = late_write  # type: ignore[method-assign]
    OsFiles.read = flushed_read  # type: ignore[method-assign]
    OsFiles.close = flushed_close  # type: ignore[method-assign]


def forget_acks() -> None:
    """A restart forgets acknowledgements out of order."""
    apply = journal.apply

    def apply_less(backlog: Backlog, change: GroupChange) -> None:
        left = [entry for entry in change.entries if entry.state is not EntryState.DONE]
        apply(backlog, attrs.evolve(change, entries=Entries.of(*left)))

    journal.apply = apply_less


def skip() -> None:
    """A restart goes on one message too far."""
    apply = journal.apply

    def apply_more(backlog: Backlog, change: GroupChange) -> None:
        apply(backlog, attrs.evolve(change, cursor=change.cursor + 1))

    journal.apply = apply_more


def impatient() -> None:
    """Delays and leases end 0.3 s early."""
    wake, next_wake = Backlog.wake, Backlog.next_wake

    def wake_early(
        self: Backlog, now_ms: int, end: int, expire: Callable[[list[int]], None] | None = None
    ) -> int:
        return wake(self, now_ms + 300, end, expire)

    def too_soon(self: Backlog) -> int:
        return max(0, next_wake(self) - 300)

    Backlog.wake = wake_early  # type: ignore[method-assign]
    Backlog.next_wake = too_soon  # type: ignore[method-assign]


def forget_settlements() -> None:
    """A restart does not know what was stored along with an ack that was not written yet."""

    def nothing(stored: Iterable[Completion], end: int) -> None:
        pass

    OpenCompletions.found = nothing  # type: ignore[method-assign]


def half_moves() -> None:
    """A restart believes each partition, and not partition 0, where a group was put."""

    def stay(backlog: Backlog, key: str, origin: Origin, index: int, here: object) -> None:
        pass

    replay._begin = stay


BUGS = {bug.__name__: bug for bug in (write_behind, forget_acks, skip, impatient)}
OF_CHANGES = {bug.__name__: bug for bug in (forget_settlements, half_moves)}

if __name__ == "__main__":
    (BUGS | OF_CHANGES)[sys.argv.pop(1)]()
    main(prog_name="zbus")
