"""What a server needs of its engine, and the default one: files of this machine. The other is
`zbus.server.process.replicated`.

An engine here is what a server needs beyond the storage port: how to recover, which identity and
clock the data has, how full it is, whether this process may still speak for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from zbus.config import Config
from zbus.core.api import Topic, recover
from zbus.server.exits import EXIT_FAILED, CannotStart
from zbus.server.loop.clock import Clock, boot_id, read_note, write_note
from zbus.server.loop.mailbox import Mailbox
from zbus.server.loop.silence import Ownership
from zbus.server.process.shards import check_shards
from zbus.server.watch.system_stats import Space, SystemStats
from zbus.storage.local.directory import read_identity
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.files import Files, OsFiles, reason
from zbus.storage.local.reserve import SharedReserves
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import Journal, JournalError

if TYPE_CHECKING:
    from zbus.server.process.nodes import Nodes

_PROGRESS_EVERY_S: Final = 2.0
_WARMERS: Final = 8

Fail = Callable[[str], None]

MaySync = Callable[[], bool]
"""Whether a quick sync in this turn of the loop costs others little."""

log = logging.getLogger("zbus")


class Engine(Protocol):
    """See above."""

    @property
    def ownership(self) -> Ownership | None:
        """Whether this process may speak; None: always."""

    mailbox: Mailbox
    """Through which it answers."""
    durability: str
    """What the levels `disk` and `os` are worth here; empty: what they say."""
    where: str
    """Where the data is, for people."""

    @property
    def nodes(self) -> Nodes | None:
        """The cluster that this process is of; None: there is none."""

    def open(self, fail: Fail, observe_sync: Callable[[float], None], may_sync: MaySync) -> Journal:
        """Raises CannotStart."""

    def recover(self) -> tuple[list[Topic], int]:
        """All topics, and the latest time that they know of. Raises CannotStart."""

    def clock(self, time_ms: int) -> Clock: ...

    def identity(self) -> str:
        """A random id of the data; empty if it has none."""

    def space(self) -> Space | None:
        """How much room there is; None if that is not known."""

    def figures(self) -> dict[str, Any]:
        """What is known of a remote engine, as `stats` shows it."""

    def when_quiet_ends(self, call: Callable[[], None]) -> bool:
        """Whether messages must not be delivered yet; then `call` is called when they may."""

    def upkeep(self, now_ms: int) -> None:
        """Called once a second."""

    def exit_code(self) -> int:
        """Of the process, after the journal failed."""

    def close(self) -> None: ...


class Progress:
    """Tells how far opening is, if it takes long."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + _PROGRESS_EVERY_S

    def report(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next_s:
            self._next_s = now + _PROGRESS_EVERY_S
            log.info("opening", extra={"topics": f"{done} of {total}"})


class FileEngine:
    """A data directory."""

    ownership = nodes = None
    durability = ""

    def __init__(
        self,
        config: Config,
        mailbox: Mailbox,
        gauges: SystemStats,
        files: Files | None,
        reserve_bytes: int,
        segments_max: int,
        reserves: SharedReserves | None = None,
    ) -> None:
        self._config = config
        self.mailbox = mailbox
        self._gauges = gauges
        self._given_files = files
        self._files: Files = files or OsFiles()
        self._reserve_bytes = reserve_bytes
        self._segments_max = segments_max
        self._reserves = reserves
        self._journal: LocalJournal | None = None
        self.where = str(config.data_dir.resolve())

    def open(self, fail: Fail, observe_sync: Callable[[float], None], may_sync: MaySync) -> Journal:
        check_shards(self._config.data_dir, 1)
        try:
            self._journal = journal = LocalJournal(
                self._config.data_dir,
                self.mailbox.post,
                fail,
                self._given_files,
                reserve_bytes=self._reserve_bytes,
                reserves=self._reserves,
                open_segments_max=self._segments_max,
                progress=Progress().report,
                warmers=_WARMERS,
                observe_sync=observe_sync,
                may_sync=may_sync,
            )
        except (JournalError, OSError) as error:
            raise self._cannot_start(error) from None
        return journal

    def recover(self) -> tuple[list[Topic], int]:
        assert self._journal is not None
        try:
            return recover(self._journal)
        except (JournalError, OSError) as error:
            raise self._cannot_start(error) from None

    def _cannot_start(self, error: JournalError | OSError) -> CannotStart:
        if isinstance(error, JournalError):
            return CannotStart(str(error))
        data_dir = self._config.data_dir
        return CannotStart(f"cannot read {data_dir}: {reason(error, data_dir)}")

    def clock(self, time_ms: int) -> Clock:
        """It goes on with the time of the run before, if the machine has counted on since."""
        data_dir, boot = self._config.data_dir, boot_id()
        clock = Clock(time_ms, zero_ms=read_note(self._files, data_dir, boot))
        write_note(self._files, data_dir, boot, clock.zero_ms)
        return clock

    def identity(self) -> str:
        return read_identity(OsFiles(), self._config.data_dir)

    def space(self) -> Space | None:
        return self._gauges.disk(self._config.data_dir)

    def figures(self) -> dict[str, Any]:
        return {}

    def when_quiet_ends(self, call: Callable[[], None]) -> bool:
        return False

    def upkeep(self, now_ms: int) -> None:
        assert self._journal is not None
        self._journal.upkeep(now_ms)

    def exit_code(self) -> int:
        return EXIT_FAILED

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


class NoEngine:
    """Of a process that keeps no messages, and passes on all that it is asked."""

    ownership = None
    durability = ""
    where = ""
    nodes: Nodes | None = None

    def __init__(self) -> None:
        self.mailbox = Mailbox()

    def open(self, fail: Fail, observe_sync: Callable[[float], None], may_sync: MaySync) -> Journal:
        return MemoryJournal()

    def recover(self) -> tuple[list[Topic], int]:
        return [], 0

    def clock(self, time_ms: int) -> Clock:
        return Clock(time_ms)

    def identity(self) -> str:
        return ""

    def space(self) -> Space | None:
        return None

    def figures(self) -> dict[str, Any]:
        return {}

    def when_quiet_ends(self, call: Callable[[], None]) -> bool:
        return False

    def upkeep(self, now_ms: int) -> None:
        pass

    def exit_code(self) -> int:
        return EXIT_FAILED

    def close(self) -> None:
        pass
