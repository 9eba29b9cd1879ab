"""Tools for testing an engine: a writer that chains batches, and the broker's thread."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection

from zbus.core.api import Chunk, GroupChange, StateChange, TopicOptions
from zbus.storage.format.batch import Batch, Kind, decode_chunk, encode_chunk, encode_state, iterate
from zbus.storage.format.checkpoint import encode_change
from zbus.storage.port import Journal, JournalError, Lane, StoredLane, Verdicts

WAIT_SECONDS = 20.0  # for another thread; only ever waited for in full by a failing test


class Bench:
    """The broker's thread: runs what is posted. An engine is made with its `post`, and its
    `failures.append` as what to call when nothing may be acknowledged any more."""

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

    def commit(self, journal: Journal, *lanes: Lane, synced: bool = True) -> Verdicts:
        """Commit, wait for it, and give what it says."""
        verdicts: list[Verdicts] = []
        journal.commit(lanes, synced, verdicts.append)
        self.run_until(lambda: verdicts)
        return verdicts[0]

    def read(self, journal: Journal, lane: Lane, offset: int, bytes_max: int = 1 << 20) -> bytes:
        answers: list[bytes | JournalError] = []
        journal.read(lane, offset, bytes_max, answers.append)
        self.run_until(lambda: answers)
        answer = answers[0]
        if isinstance(answer, JournalError):
            raise answer
        return answer

    def stored(self, journal: Journal, lanes: Collection[Lane] | None = None) -> list[StoredLane]:
        """Open these lanes (None: all), and give what is found, with its batches in lists."""
        found: list[StoredLane] = []
        answers: list[JournalError | None] = []

        def keep(stored: StoredLane) -> None:
            found.append(stored._replace(batches=list(stored.batches)))

        journal.open(lanes, keep, answers.append)
        self.run_until(lambda: answers)
        if (problem := answers[0]) is not None:
            raise problem
        return found

    def recovered(
        self, journal: Journal, lanes: Collection[Lane] | None = None
    ) -> dict[Lane, list[bytes]]:
        """Open these lanes (None: all), and give their batches from the newest checkpoint on."""
        return {stored.lane: list(stored.batches) for stored in self.stored(journal, lanes)}


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
    """`Bench.recovered`, of an engine that answers at once."""
    return Bench().recovered(journal)


def stored_lanes(journal: Journal) -> list[StoredLane]:
    """All lanes, of an engine that answers at once and whose batches can be read later."""
    found: list[StoredLane] = []
    answers: list[JournalError | None] = []
    journal.open(None, found.append, answers.append)
    (problem,) = answers
    if problem is not None:
        raise problem
    return found
