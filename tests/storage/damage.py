"""Logs made by a whole broker, and the ways in which a disk may ruin them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.storage.support import Loop
from zbus.core.model.message import Message
from zbus.core.persistence.replay import recover
from zbus.core.topics.topic import Topic
from zbus.storage.format.batch import Kind, decode_chunk, iterate
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.files import OpenMode, OsFiles
from zbus.storage.local.segment import walk_file
from zbus.storage.local.worker import Job
from zbus.testing.world import World

VERSION_1 = Path(__file__).parent.parent / "data/version-1"
"""A data directory in `log`, and what it holds in `expected.json`."""


class AtOnce:
    """A worker that does its jobs when they come."""

    def __init__(self, name: str) -> None:
        self.name = name

    def submit(self, job: Job) -> None:
        job()

    def stop(self) -> None:
        pass


def fail(text: str) -> None:
    raise AssertionError(text)


class Disk:
    """A world over files; closing it leaves a data directory behind."""

    def __init__(self, data_dir: Path, segment_bytes: int = 4096) -> None:
        posted: list[Callable[[], None]] = []
        self.posted = posted
        self.journal = LocalJournal(data_dir, self.post, fail, reserve_bytes=0, worker=AtOnce)
        self._world: World | None = None
        self.world = self._world = World(self.journal, segment_bytes_max=segment_bytes)
        for call in posted:
            self.world.posted.append(call)
        self.client = self.world.connect()

    def post(self, call: Callable[[], None]) -> None:
        if getattr(self, "_world", None) is None:
            self.posted.append(call)
        else:
            self.world.posted.append(call)

    def get(self, target: str, *lines: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        head = [f"GET {target} HTTP/1.1", "host: x", *lines, f"content-length: {len(body)}", "", ""]
        reply = self.client.request("\r\n".join(head).encode() + body)
        return reply.status, reply.headers, reply.body

    def close(self) -> None:
        self.world.flush()
        self.journal.close()


class Killed(Exception):
    """The process ended in the middle of a call to the disk."""


class Dying(OsFiles):
    """Ends the process at the `last`-th call that changes something: half-way through a write."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.left = last

    def _count(self) -> bool:
        self.left -= 1
        if self.left < 0:
            raise Killed
        return self.left == 0

    def _die(self, last: bool) -> None:
        if last:
            raise Killed

    def write(self, file: int, data: bytes, position: int) -> None:
        last = self._count()
        super().write(file, data[: len(data) // 2] if last else data, position)
        self._die(last)

    def rename(self, path: Path, target: Path) -> None:
        last = self._count()
        super().rename(path, target)
        self._die(last)

    def remove(self, path: Path) -> None:
        last = self._count()
        super().remove(path)
        self._die(last)

    def make_directory(self, path: Path) -> bool:
        last = self._count()
        made = super().make_directory(path)
        self._die(last)
        return made

    def open(self, path: Path, mode: OpenMode) -> int:
        last = mode != "read" and self._count()
        file = super().open(path, mode)
        if last:
            self.close(file)
        self._die(last)
        return file


def write_logs(data_dir: Path, seed: int = 1, messages: int = 120) -> None:
    """Two topics, one of two partitions; groups with and without acks; many small segments."""
    chance = random.Random(seed)
    disk = Disk(data_dir)
    disk.get("/orders?cmd=declare&partitions=2")
    disk.get("/orders/acked?cmd=declare&group_mask=64&group_ack_timeout=1000")
    disk.get("/events?cmd=declare")
    for number in range(messages):
        body = b"zbus %d " % number * chance.randrange(1, 30)
        disk.get("/orders?cmd=produce", f"id: o-{number}", f"key: k{number % 7}", body=body)
        if number % 3 == 0:
            disk.get("/events?cmd=produce", f"id: e-{number}", body=body)
        if number % 2:
            _, headers, _ = disk.get("/orders/acked?cmd=consume&timeout=1")
            if "offset" in headers and chance.random() < 0.7:
                place = f"offset={headers['offset']}&partition={headers.get('partition', 0)}"
                disk.get(f"/orders/acked?cmd=ack&{place}")
        if number % 5 == 0:
            disk.get("/events?cmd=consume&timeout=1")
    disk.close()


def intact(data_dir: Path) -> dict[tuple[str, str, int], Message]:
    """All messages by topic directory, partition and offset, of directories in order."""
    found: dict[tuple[str, str, int], Message] = {}
    for path in sorted(data_dir.glob("*/*/*.log")):
        run = iterate(path.read_bytes())
        for batch in run:
            if batch.header.kind is Kind.DATA:
                for offset, message in enumerate(
                    decode_chunk(batch).messages(), batch.header.base_offset
                ):
                    found[path.parent.parent.name, path.parent.name, offset] = message
        assert run.position == path.stat().st_size, run.reason
    return found


def places(data_dir: Path) -> list[tuple[Path, int, int, Kind, int, int]]:
    """File, start, stop, kind and offsets of every batch."""
    files = OsFiles()
    found: list[tuple[Path, int, int, Kind, int, int]] = []
    for path in sorted(data_dir.glob("*/*/*.log")):
        for at, header, _ in walk_file(files, path):
            found.append(
                (path, at, at + header.length, header.kind, header.base_offset, header.end_offset)
            )
    return found


def started(data_dir: Path) -> list[Topic]:
    """What a broker finds."""
    loop = Loop()
    journal = loop.local(data_dir)
    try:
        return recover(journal)[0]
    finally:
        journal.close()
