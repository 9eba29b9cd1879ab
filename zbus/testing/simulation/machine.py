"""A computer with a disk, and the broker on it, which may be started, stopped and killed.

Broker, dialect, connections, loop and journal are the real ones. What they stand on is not: sockets
are `network`, the disk is `zbus.testing.disk`, time is `now_ms`, and the journal's threads are
workers with jobs that run when the test says so. Nothing waits, and nothing happens by itself.
"""

from __future__ import annotations

import itertools
from collections import deque
from pathlib import Path
from random import Random
from typing import cast

import attrs

from zbus.config import Config
from zbus.core.api import Broker, Topic, recover
from zbus.dialects.adf.settings import AdfSettings
from zbus.dialects.semq.settings import SemqSettings
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.server.assembly import Assembly, Kind, make_broker, restore
from zbus.server.loop.clock import Clock
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.worker import Job
from zbus.storage.port import Journal, JournalError
from zbus.testing.disk import Disk
from zbus.testing.late import LateJournal
from zbus.testing.simulation.network import ROOM_BYTES, Connection, Post, Ready, Socket

EPOCH_MS = 1_800_000_000_000
"""When a simulation begins."""

DATA_DIR = Path("/data")

_TURNS_MAX = 10_000
_DRAIN_STEP_MS = 50


class Worker:
    """Keeps jobs until they are run. See `zbus.storage.local.worker`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.jobs: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def stop(self) -> None:
        self.run()

    def run(self, count: int | None = None) -> None:
        """Run that many jobs, or all."""
        while self.jobs and count != 0:
            self.jobs.popleft()()
            if count is not None:
                count -= 1


class VirtualClock(Clock):
    """Stands still unless it is moved."""

    def __init__(self, now_ms: int) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms

    def received_ms(self) -> int:
        return self.time_ms

    def ahead_ms(self) -> int:
        return 0

    def drift_ms(self) -> int:
        return 0


@attrs.frozen(slots=False, kw_only=True)
class Options(Config):
    """All options of a broker, unchecked: small ones are limits that are met."""

    reserve_bytes: int = 64 << 10
    memory_bytes_max: int = 16 << 20
    late: bool = False  # what became of an append is known later, and may be bad

    def __attrs_post_init__(self) -> None:
        pass


class Process:
    """One run of the broker, from its start to its end, however that comes."""

    def __init__(
        self,
        disk: Disk,
        clock: VirtualClock,
        options: Options,
        name: str,
        random: Random,
        kind: Kind = Broker,
    ) -> None:
        """Raises JournalError if the broker cannot start with what is on the disk."""
        self.clock = clock
        self.failure = ""
        self.workers: list[Worker] = []
        self._name = name
        self.post = Post()
        self.late: LateJournal | None = None
        topics, time_ms = self._recover(disk, options)
        clock.time_ms = max(clock.time_ms, time_ms)
        serial = itertools.count(1)
        self.broker = make_broker(
            self.journal,
            (f"{name}-{number}".encode() for number in serial),
            options,
            segment_bytes=options.segment_bytes,
            memory_bytes_max=options.memory_bytes_max,
            kind=kind,
        )
        settings = options.part(ZbusSettings)
        self._assembly = Assembly(
            self.broker,
            settings={
                "native": settings,
                "adf": options.part(AdfSettings),
                "semq": attrs.evolve(options.part(SemqSettings), secret=name.encode()),
            },
            wire_limits=options,
        )
        self.ready = Ready(random.shuffle)
        self.loop = self._assembly.loop(
            self.post, clock, options, options, self._upkeep, self.ready
        )
        self._open()
        restore(self.broker, topics, clock.time_ms, self._answered)

    def _recover(self, disk: Disk, options: Options) -> tuple[list[Topic], int]:
        """Open the journal: all topics, and the latest time that they know of."""
        self.files = LocalJournal(
            DATA_DIR,
            self.post.post,
            self._fail,
            disk,
            reserve_bytes=options.reserve_bytes,
            worker=self._worker,
            may_sync=lambda: self.loop.may_sync,
            clock_s=lambda: self.clock.time_ms / 1000,
        )
        found = recover(self.files)
        if options.late:
            self.late = LateJournal(self.post.post, self.files)
        self.journal: Journal = self.late or self.files
        return found

    def _open(self) -> None:
        """Make more ways into it, before it has its topics."""

    def _upkeep(self) -> None:
        self.journal.upkeep(self.clock.time_ms)

    def _answered(self) -> bool:
        """The engine answers before the loop runs, if it has something to do."""
        if not self.works and not self.post.signalled:
            return False
        self.work()
        self.post.run()
        return True

    def work(self) -> None:
        """All that was asked of the disk is done."""
        if self.late is not None:
            self.late.run()
        for worker in self.workers:
            worker.run()

    @property
    def works(self) -> bool:
        """Something was asked of the disk."""
        asked = self.late is not None and self.late.waiting
        return bool(asked) or any(worker.jobs for worker in self.workers)

    def _worker(self, name: str) -> Worker:
        worker = Worker(name)
        self.workers.append(worker)
        return worker

    def _fail(self, text: str) -> None:
        self.failure = text
        self.loop.fail(text)

    def accept(self, number: int, room_bytes: int) -> Connection:
        """A client connects."""
        sock = Socket(number, room_bytes)
        self.loop.now_ms = self.clock.time_ms  # of its own it has a time from its first turn on
        self._assembly.welcome(
            self.loop,
            cast("object", sock),  # type: ignore[arg-type]  # all of a socket that is used
            b"session-%028d" % number,
            f"127.0.0.1:{1_024 + number}",
        )
        return Connection(sock, f"connection {number}")

    def turn(self) -> None:
        """One turn of the loop over what is ready."""
        loop = self.loop
        loop.now_ms = self.clock.time_ms
        loop.turn(self.ready.wait(0, loop.limits.tick_events_max))

    def is_due(self) -> bool:
        due_ms = self.broker.next_due()
        return due_ms is not None and due_ms <= self.clock.time_ms

    def close(self) -> None:
        """The end of a process that ends by itself."""
        self.loop.close()
        self.journal.close()


class Machine:
    """Methods that need a running broker raise AssertionError without one."""

    def __init__(
        self,
        random: Random,
        *,
        disk: Disk | None = None,
        now_ms: int = EPOCH_MS,
        options: Options | None = None,
        kind: Kind = Broker,
    ) -> None:
        """`kind` is a broker that is listened to."""
        self.random = random
        self._kind = kind
        self.disk = Disk() if disk is None else disk
        self.clock = VirtualClock(now_ms)
        self.options = options or Options()
        self.process: Process | None = None
        self.starts = 0
        self._connected = 0
        self._sockets: list[Socket] = []

    @property
    def now_ms(self) -> int:
        return self.clock.time_ms

    @property
    def running(self) -> Process:
        assert self.process is not None, "the broker does not run"
        return self.process

    @property
    def broker(self) -> Broker:
        return self.running.broker

    # -- life of the broker -------------------------------------------------------------------

    def start(self) -> None:
        """Start the broker. Raises JournalError if it cannot."""
        assert self.process is None, "the broker runs already"
        self.starts += 1
        try:
            self.process = self._begin(f"run-{self.starts}")
        except JournalError:
            self.disk = self.disk.kill()
            raise

    def _begin(self, name: str) -> Process:
        return Process(self.disk, self.clock, self.options, name, self.random, self._kind)

    def stop(self) -> None:
        """The broker is asked to stop, and does."""
        process = self.running
        process.loop.stop()
        end_ms = self.now_ms + process.loop.limits.drain_timeout_ms
        while self.now_ms < end_ms:
            self._work()
            self.turn()
            if self.process is None or process.loop.drained():
                break
            # What is left may wait for the disk, or for clients that take nothing.
            self.clock.time_ms += 1 if process.post.signalled else _DRAIN_STEP_MS
        self._exit()

    def kill(self) -> None:
        """The broker dies at once. What it wrote is in the page cache, so it stays."""
        self._vanish()
        self.disk = self.disk.kill()

    def power_cut(self) -> None:
        """Broker and page cache are gone; of what was not synced, any legal part stays."""
        self._vanish()
        self.disk = self.disk.crash(self.random)

    def _vanish(self) -> None:
        self.process = None
        for sock in self._sockets:
            sock.broken = True
        self._sockets.clear()

    def _exit(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.close()
        self._sockets.clear()
        self.disk = self.disk.kill()

    # -- what happens to it -------------------------------------------------------------------

    def connect(self, room_bytes: int = ROOM_BYTES) -> Connection:
        """A new connection."""
        self._connected += 1
        connection = self.running.accept(self._connected, room_bytes)
        self._sockets.append(connection.socket)
        return connection

    def turn(self) -> None:
        """One turn of the broker. If its journal failed in it, the broker has ended."""
        process = self.running
        process.turn()
        self._sockets = [sock for sock in self._sockets if not (sock.closed or sock.broken)]
        if process.loop.failure:
            self._exit()

    def _work(self) -> None:
        self.running.work()

    def settle(self) -> None:
        """Syncs and reads end, and the broker turns, until nothing is left to do at this time."""
        for _ in range(_TURNS_MAX):
            process = self.process
            if process is None:
                return
            self._work()
            self.turn()
            if self.process is not process:
                return
            busy = process.post.signalled or process.ready.wait(0, 1) or process.is_due()
            if not (busy or process.works):
                return
        raise AssertionError("the broker does not come to rest")

    def advance(self, ms: int) -> None:
        """Let time pass, stopping wherever the broker has something to do."""
        end_ms = self.now_ms + ms
        self.settle()
        while self.process is not None:
            due_ms = self.broker.next_due()
            if due_ms is None or due_ms > end_ms:
                break
            self.clock.time_ms = max(self.now_ms, due_ms)
            self.settle()
        self.jump(end_ms - self.now_ms)
        if self.process is not None:
            self.settle()

    def jump(self, ms: int) -> None:
        """Time passes while the broker does nothing: it was suspended."""
        self.clock.time_ms += ms
