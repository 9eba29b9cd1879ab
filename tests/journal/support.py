"""What the tests of the engines share: a writer that chains batches, a loop, odd disks."""

from __future__ import annotations

import errno
import queue
from collections.abc import Callable
from pathlib import Path

from zbus.core.chunk import Chunk
from zbus.core.state import GroupChange, StateChange, TopicOptions
from zbus.journal.batch import Batch, Kind, decode_chunk, encode_chunk, encode_state, iterate
from zbus.journal.checkpoint import encode_change
from zbus.journal.local.engine import LocalJournal
from zbus.journal.local.files import OpenMode, OsFiles
from zbus.journal.port import Journal, JournalError, JournalFull, Lane, Verdicts

WAIT_SECONDS = 20.0  # for another thread; only ever waited for in full by a failing test


class Loop:
    """The broker's thread: runs what is posted."""

    def __init__(self) -> None:
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.failures: list[str] = []

    def post(self, call: Callable[[], None]) -> None:
        self.posted.put(call)

    def run_one(self) -> None:
        self.posted.get(timeout=WAIT_SECONDS)()

    def run_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.run_one()

    def local(
        self, data_dir: Path, files: OsFiles | None = None, reserve_bytes: int = 0
    ) -> LocalJournal:
        fail = self.failures.append
        return LocalJournal(data_dir, self.post, fail, files, reserve_bytes=reserve_bytes)

    def commit(self, journal: Journal, *lanes: Lane, synced: bool = True) -> Verdicts:
        """Commit, wait for it, and give what it says."""
        said: list[Verdicts] = []
        journal.commit(lanes, synced, said.append)
        self.run_until(lambda: said)
        return said[0]

    def read(self, journal: Journal, lane: Lane, offset: int, bytes_max: int = 1 << 20) -> bytes:
        answers: list[bytes | JournalError] = []
        journal.read(lane, offset, bytes_max, answers.append)
        self.run_until(lambda: answers)
        answer = answers[0]
        if isinstance(answer, JournalError):
            raise answer
        return answer


class Writer:
    """Makes batches that chain, as the broker does."""

    def __init__(self, lane: Lane = ("orders", 0), last: int = 0, end: int = 0) -> None:
        self.lane = lane
        self.last = last
        self.end = end

    def data(self, *bodies: bytes) -> bytes:
        chunk = Chunk(self.end, 1000)
        for body in bodies:
            chunk.add(b"id", b"", body)
        batch = encode_chunk(chunk, self.last)
        self.last, self.end = batch.header.crc, batch.header.end_offset
        return batch.raw

    def state(self, cursor: int = 1, kind: Kind = Kind.STATE) -> bytes:
        topic = TopicOptions(self.lane[0]) if kind is Kind.CHECKPOINT else None
        change = StateChange(topic, (GroupChange("readers", cursor),))
        return self.seal(kind, encode_change(change))

    def seal(self, kind: Kind, payload: bytes, flags: int = 0) -> bytes:
        batch = encode_state(kind, self.end, 1000, payload, self.last, flags)
        self.last = batch.header.crc
        return batch.raw

    def checkpoint(self) -> bytes:
        return self.state(kind=Kind.CHECKPOINT)

    def append(self, journal: Journal, make: Callable[[], bytes]) -> None:
        """Append what `make` makes; if it is refused, this knows nothing of it either."""
        last, end = self.last, self.end
        batches = make()
        try:
            journal.append(self.lane, last, split(batches))
        except JournalError:
            self.last, self.end = last, end
            raise


def split(batches: bytes) -> list[Batch]:
    return list(iterate(batches))


def bodies(batches: bytes) -> list[bytes]:
    return [body for batch in iterate(batches) for body in decode_chunk(batch).bodies]


def recovered(journal: Journal) -> dict[Lane, list[bytes]]:
    return {stored.lane: list(stored.batches) for stored in journal.lanes()}


def segments(data_dir: Path) -> list[str]:
    """Files of lanes; those on their way out are not."""
    found = [str(path.relative_to(data_dir)) for path in data_dir.glob("*/*/*")]
    return sorted(name for name in found if ".removed-" not in name)


class SmallDisk(OsFiles):
    """Holds `space` bytes for files written through it; writes what fits before it refuses."""

    def __init__(self, space: int) -> None:
        super().__init__()
        self.space = space
        self.written = 0  # bytes, ever
        self.paths: dict[int, Path] = {}

    def open(self, path: Path, mode: OpenMode) -> int:
        file = super().open(path, mode)
        self.paths[file] = path
        return file

    def write(self, file: int, data: bytes, position: int) -> None:
        fits = min(len(data), self.space)
        self.space -= fits
        self.written += fits
        super().write(file, data[:fits], position)
        if fits < len(data):
            raise JournalFull("no space left")

    def truncate(self, file: int, size: int) -> None:
        self.space += max(self.size(file) - size, 0)
        super().truncate(file, size)

    def allocate(self, file: int, size: int) -> None:
        more = size - self.size(file)
        if more > self.space:
            raise JournalFull("no space left")
        self.space -= more
        super().truncate(file, size)

    def rename(self, path: Path, target: Path) -> None:
        self.space += target.stat().st_size if target.is_file() else 0
        super().rename(path, target)

    def remove(self, path: Path) -> None:
        size = path.stat().st_size if path.is_file() else 0
        super().remove(path)
        self.space += size


class BrokenDisk(OsFiles):
    """Fails each call that is named in `broken`."""

    def __init__(self, *broken: str) -> None:
        super().__init__()
        self.broken = set(broken)

    def _try(self, name: str) -> None:
        if name in self.broken:
            raise OSError(errno.EIO, "input/output error")

    def write(self, file: int, data: bytes, position: int) -> None:
        self._try("write")
        super().write(file, data, position)

    def sync(self, file: int) -> None:
        self._try("sync")
        super().sync(file)

    def sync_directory(self, path: Path) -> None:
        self._try("sync_directory")
        super().sync_directory(path)

    def remove(self, path: Path) -> None:
        self._try("remove")
        super().remove(path)
