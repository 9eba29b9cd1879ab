"""Logs in a stream of the replicated engine, to be copied and made by a copy.

A stream that is filled is owned by the copy, and its owner's message says that it is not complete:
no broker serves it before (`zbus.storage.jetstream.ownership`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from zbus.documents import NOT_JSON
from zbus.storage.copying.lanes import Position
from zbus.storage.errors import JournalDamage
from zbus.storage.format.batch import Batch, Kind, split_whole
from zbus.storage.jetstream.engine import TIMEOUT_MS, JetStreamJournal
from zbus.storage.jetstream.lane import JetLane, Pieces, is_intact
from zbus.storage.jetstream.ownership import Claimed, Owner
from zbus.storage.jetstream.reading import ATTEMPTS, PAUSE_MS, Opening
from zbus.storage.jetstream.stream import (
    Messages,
    Stored,
    Stream,
    Unreachable,
)
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.port import JournalError, JournalFull, Lane, Verdict, Verdicts

COMMIT_BYTES: Final = 4 << 20
WAIT_TIMES: Final = 4
"""So many timeouts it may take to open a stream, or to settle what is in doubt."""
_NEVER_MS: Final = 1 << 62
_PORTION_BYTES: Final = 4 << 20
_PORTION_MESSAGES: Final = 1_000

_T = TypeVar("_T")
Ask: TypeAlias = Callable[[Callable[["_T | Unreachable"], None]], None]

Run = Callable[[], None]
"""Waits for something to happen, and runs what was posted."""


class Standing(NamedTuple):
    """The owner of a stream, or the last one, and the sequence of its newest message."""

    owner: Owner | None
    last: int

    @property
    def is_still(self) -> bool:
        """Whether no broker serves it."""
        return self.owner is None or self.owner.left


class StreamSource:
    """A stream. Brokers may go on writing to it."""

    def __init__(
        self, stream: Stream, subjects: Subjects, run: Run, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """A question may be asked again for `timeout_ms`."""
        self._timeout_ms = timeout_ms
        self._stream = stream
        self._subjects = subjects
        self._run = run
        self._lanes: dict[Lane, JetLane] = {}

    def standing(self) -> Standing:
        """Who owns the stream, or did, and where it ends. Raises JournalError for what is no
        owner's message."""
        while True:
            state = self._asked(self._stream.state)
            ask: Ask[Messages] = partial(self._stream.newest, [self._subjects.owner])
            got = self._asked(ask)
            if not got.found:
                return Standing(None, state.last)
            if got.known >= state.last and is_intact(got.found[0]):
                break
            self._pause()
        try:
            owner = msgspec.json.decode(got.found[0].body, type=Owner)
        except NOT_JSON as error:
            raise JournalError(f"{self._subjects.stream} is not of zbus: {error}") from None
        return Standing(owner, state.last)

    def lanes(self) -> Mapping[Lane, Position]:
        last = self._asked(self._stream.state).last
        self._lanes = {}
        ended: list[JournalError | None] = []

        def opened(lane: Lane, known: JetLane | None) -> None:
            if known is not None:
                self._lanes[known.name] = known

        stream, subjects = self._stream, self._subjects
        Opening(stream, subjects, last, {}, opened, lambda stored: None, ended.append).start(None)
        self._wait(ended)
        if ended[0] is not None:
            raise ended[0]
        return self._ends()

    def _ends(self) -> Mapping[Lane, Position]:
        return {name: _end(lane) for name, lane in self._lanes.items()}

    def batches(self, lane: Lane, base: int) -> Iterator[Batch]:
        known = self._lanes[lane]
        end = _end(known)
        bases = [place.base for place in known.segments]
        number = max([number for number, one in enumerate(bases) if one <= base], default=0)
        place, next_offset = Position(), -1
        held: list[Batch] = []  # of a segment without messages: another one may replace it
        for batch in self._all(lane, known.segments[number].sequence):
            header = batch.header
            if header.kind is Kind.CHECKPOINT:
                if not held or held[0].header.base_offset != header.base_offset:
                    yield from held
                held = []
                follows = next_offset in (-1, header.base_offset)
            else:
                follows = header.previous_crc == place.crc
            if not follows:
                raise _changed(lane)
            place, next_offset = place.behind(header), header.end_offset
            if held or header.kind is Kind.CHECKPOINT:
                held.append(batch)
            if not held:
                yield batch
            elif header.kind is Kind.DATA or place == end:
                yield from held
                held = []
            if place == end:
                return

    def _all(self, lane: Lane, sequence: int) -> Iterator[Batch]:
        for batches in self._messages(lane, sequence):
            yield from batches

    def _messages(self, lane: Lane, sequence: int) -> Iterator[list[Batch]]:
        """What messages hold, from there on. Raises JournalError if there are no
        more, and were expected; JournalDamage for one that no replica has whole."""
        subject, pieces, attempts, problem = self._subjects.lane(lane, "*"), Pieces(sequence), 0, ""
        while attempts < ATTEMPTS:
            if attempts:
                self._pause()
            attempts, before = attempts + 1, pieces.sequence
            whole: list[list[Batch]] = []
            portion = self._asked(self._portion(subject, before))
            bad = pieces.take(portion.found, partial(_split, whole))
            if pieces.sequence > before:
                attempts, problem = 0, ""
            problem = bad or problem
            yield from whole
        if problem:
            raise JournalDamage(problem)
        raise _changed(lane)

    def _portion(self, subject: str, sequence: int) -> Ask[Messages]:
        return lambda done: self._stream.read(
            subject, sequence, _PORTION_MESSAGES, _PORTION_BYTES, done
        )

    def _asked(self, ask: Ask[_T]) -> _T:
        """Ask until there is an answer. Raises JournalError if that takes too long."""
        end_ms = self._stream.now_ms() + self._timeout_ms
        while True:
            answers: list[_T | Unreachable] = []
            ask(answers.append)
            self._wait(answers)
            answer = answers[0]
            if not isinstance(answer, Unreachable):
                return answer
            if self._stream.now_ms() >= end_ms:
                name = self._subjects.stream
                if answer.deleted:
                    raise JournalError(f"there is no stream {name}")
                raise JournalError(
                    f"{name} gives no answer in {self._timeout_ms} ms: {answer.text}"
                )
            self._pause()

    def _pause(self) -> None:
        over: list[bool] = []
        self._stream.later(PAUSE_MS, lambda: over.append(True))
        self._wait(over)

    def _wait(self, answers: Collection[object]) -> None:
        end_ms = self._stream.now_ms() + WAIT_TIMES * self._timeout_ms
        while not answers:
            if self._stream.now_ms() >= end_ms:
                name, ms = self._subjects.stream, WAIT_TIMES * self._timeout_ms
                raise JournalError(f"{name} gives no answer in {ms} ms: run the command again")
            self._turn()

    def _turn(self) -> None:
        self._run()


class StreamTarget(StreamSource):
    """A stream that is filled. The shard has been claimed for that."""

    def __init__(
        self,
        stream: Stream,
        subjects: Subjects,
        claimed: Claimed,
        run: Run,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        super().__init__(stream, subjects, run, timeout_ms)
        self._failures: list[str] = []
        # It is not late while files are read.
        self._journal = JetStreamJournal(
            stream, subjects, claimed, self._failures.append, timeout_ms=_NEVER_MS
        )
        self._pending: dict[Lane, int] = {}  # bytes that are appended and not committed

    def lanes(self) -> Mapping[Lane, Position]:
        self.flush()
        ended: list[JournalError | None] = []
        self._journal.open(None, lambda stored: None, ended.append)
        self._wait(ended)
        if ended[0] is not None:
            raise ended[0]
        self._lanes = self._journal.lanes()
        return self._ends()

    def remove(self, lanes: Collection[Lane]) -> None:
        done: list[bool] = []
        self._journal.remove(lanes, lambda: done.append(True))
        self._wait(done)

    def append(self, lane: Lane, batches: Sequence[Batch]) -> None:
        header = batches[0].header
        if header.kind is Kind.CHECKPOINT:
            # What it follows may be gone: it was trimmed, or an empty segment was replaced.
            self._journal.continue_lane(lane, header)
        self._journal.append(lane, header.previous_crc, batches)
        self._pending[lane] = self._pending.get(lane, 0) + sum([len(one.raw) for one in batches])
        if sum(self._pending.values()) >= COMMIT_BYTES:
            self.flush()

    def flush(self) -> None:
        lanes, self._pending = list(self._pending), {}
        if not lanes:
            return
        answers: list[Verdicts] = []
        self._journal.commit(lanes, True, answers.append)
        self._wait(answers)
        verdicts = set(answers[0].values())
        if Verdict.FULL in verdicts:
            raise JournalFull(f"the stream {self._subjects.stream} is full")
        if verdicts:
            raise JournalError(f"{self._subjects.stream}: {verdicts.pop().value}")
        self._journal.upkeep(0)  # how full it is now

    def finish(self, *, is_complete: bool) -> None:
        """Give the shard up. If the copy is complete, brokers serve it from now on."""
        stored: list[bool] = []
        self._journal.release(stored.append, is_complete=is_complete)
        self._wait(stored)
        if not stored[0]:
            raise JournalFull(f"the stream {self._subjects.stream} is full")

    def _turn(self) -> None:
        if self._failures:
            raise JournalError(self._failures[0])
        super()._turn()


def _split(whole: list[list[Batch]], message: Stored) -> None:
    whole.append(split_whole(message.body))


def _end(lane: JetLane) -> Position:
    return Position(lane.segments[-1].base, lane.size, lane.last_crc)


def _changed(lane: Lane) -> JournalError:
    """The owner trimmed or removed it."""
    text = f"partition {lane[1]} of {lane[0]} changed while it was copied"
    return JournalError(f"{text}: run the command again")
