"""Reading of lanes. Any replica may answer, so an answer counts only if it has what must be there.

What one replica gives damaged is asked of another; only what no attempt gives whole is damage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from zbus.documents import NOT_JSON
from zbus.storage.errors import JournalDamage, JournalError
from zbus.storage.format.batch import (
    HEADER_BYTES,
    Kind,
    check,
    read_header,
    split_whole,
)
from zbus.storage.format.checkpoint import topic_name
from zbus.storage.jetstream.lane import (
    BEGIN,
    PIECES,
    SEGMENTS,
    TOPIC,
    JetLane,
    Pieces,
    decode_segments,
    is_intact,
)
from zbus.storage.jetstream.stream import Got, Stored, Stream, SubjectNames, Unreachable
from zbus.storage.jetstream.subjects import (
    CHECKPOINT,
    DATA,
    SNAPSHOT,
    STATE,
    Subjects,
    decode_topic,
)
from zbus.storage.jetstream.wire import decode_number
from zbus.storage.port import Found, Lane, OpenDone, ReadDone, StoredLane
from zbus.storage.segments import Segments

ATTEMPTS: Final = 50
PAUSE_MS: Final = 40
LANES_AT_ONCE: Final = 8
LANES_IN_A_QUESTION: Final = 32
PORTION_BYTES: Final = 4 << 20
PORTION_MESSAGES: Final = 1_000


class Reading:
    """DATA batches of a lane from an offset on, to `end` at least, if they are not too many."""

    def __init__(
        self,
        stream: Stream,
        lane: JetLane,
        subject: str,
        offset: int,
        end: int,
        bytes_max: int,
        done: ReadDone,
    ) -> None:
        self._stream = stream
        self._lane = lane
        self._subject = subject
        self._offset = offset
        self._until = end
        self._bytes_max = bytes_max
        self._done = done
        self._attempts = 0
        self._batches: list[bytes] = []
        self._size = 0
        self._skip_bytes = 0  # what is wanted may be far behind the first answer
        self._is_full = False
        self._pieces = Pieces(lane.place(offset))
        self._end = offset  # the offset behind what was found

    def ask(self) -> None:
        size = min(max(self._bytes_max - self._size, self._skip_bytes, 1), PORTION_BYTES)
        place = self._subject, self._pieces.sequence
        self._stream.read(*place, PORTION_MESSAGES, size, self._got)

    def _got(self, got: Got) -> None:
        if isinstance(got, Unreachable):
            self._again(got.text)
        elif problem := self._pieces.take(got.found, self._take):
            self._again(problem)
        elif self._is_full or self._end >= self._until:
            self._done(b"".join(self._batches))
        elif got.found:
            self._attempts = 0
            self._skip_bytes = 0 if self._batches else PORTION_BYTES
            self.ask()
        else:
            self._again("a replica does not have it yet")

    def _take(self, message: Stored) -> bool:
        """Keep what is wanted of it; whether that is enough."""
        first = True
        for header, raw in split_whole(message.body):
            if header.kind is not Kind.DATA:
                continue
            if first:
                self._lane.note(header.base_offset, message.sequence)
                first = False
            if header.end_offset <= self._offset:
                continue
            if self._batches and self._size + len(raw) > self._bytes_max:
                self._is_full = True
                break
            self._batches.append(raw)
            self._size += len(raw)
            self._end = header.end_offset
        self._is_full = self._is_full or (bool(self._batches) and self._size >= self._bytes_max)
        return self._is_full

    def _again(self, why: str) -> None:
        self._attempts += 1
        if self._attempts >= ATTEMPTS:
            name, partition = self._lane.name
            self._done(JournalError(f"cannot read {name} {partition} from the stream: {why}"))
        else:
            self._stream.later(PAUSE_MS, self.ask)


Opened = Callable[[Lane, JetLane | None], None]
"""Receives what is known of a lane from now on; None: there is no such lane."""


class Opening:
    """Finds lanes, and gives each as soon as it is read."""

    def __init__(
        self,
        stream: Stream,
        subjects: Subjects,
        last: int,
        removed: dict[Lane, int],
        opened: Opened,
        found: Found,
        done: OpenDone,
    ) -> None:
        """`last`: the sequence up to which the stream is read."""
        self._stream = stream
        self._subjects = subjects
        self._last = last
        self._removed = removed
        self._opened = opened
        self._found = found
        self._done: OpenDone | None = done
        self._attempts = 0
        self._questions: deque[list[Lane]] = deque()
        self._wanted: deque[_LaneOpening] = deque()
        self._open = 0
        self._asking = False
        self._removed_last = self._removed_read = 0

    def start(self, lanes: Collection[Lane] | None) -> None:
        if lanes is None:
            self._ask_removed()
        else:
            self._plan(list(lanes))

    # -- which there are ----------------------------------------------------------------------

    def _ask_removed(self) -> None:
        self._removed_read = 0
        subjects = [self._subjects.removed, self._subjects.owner]
        self._stream.newest(subjects, self._got_newest_removed)

    def _got_newest_removed(self, got: Got) -> None:
        if isinstance(got, Unreachable) or got.known < self._last:
            text = got.text if isinstance(got, Unreachable) else "a replica is behind"
            self._again(text, self._ask_removed)
            return
        removed = [one.sequence for one in got.found if one.subject == self._subjects.removed]
        self._removed_last = max(removed, default=0)
        self._read_removed()

    def _read_removed(self) -> None:
        if self._removed_read >= self._removed_last:
            self._ask_subjects()
            return
        subject, sequence = self._subjects.removed, self._removed_read + 1
        self._stream.read(subject, sequence, PORTION_MESSAGES, PORTION_BYTES, self._got_removed)

    def _got_removed(self, got: Got) -> None:
        if isinstance(got, Unreachable) or not got.found:
            text = got.text if isinstance(got, Unreachable) else "a replica is behind"
            self._again(text, self._ask_removed)
            return
        for message in got.found:
            try:
                lanes = msgspec.json.decode(message.body, type=list[Lane])
            except NOT_JSON:
                lanes = None
            if lanes is None or not is_intact(message):
                self._again(f"sequence {message.sequence} is damaged", self._ask_removed)
                return
            self._removed_read = message.sequence
            for topic, partition in lanes:
                key = topic, partition
                self._removed[key] = max(self._removed.get(key, 0), message.sequence)
        self._read_removed()

    def _ask_subjects(self) -> None:
        self._stream.subjects(self._subjects.checkpoints, self._got_subjects)

    def _got_subjects(self, got: SubjectNames | Unreachable) -> None:
        if isinstance(got, Unreachable) or got.known < self._last:
            text = got.text if isinstance(got, Unreachable) else "a replica is behind"
            self._again(text, self._ask_subjects)
            return
        lanes = [self._subjects.lane_of(subject) for subject in got.names]
        self._plan(sorted([lane for lane in lanes if lane is not None]))

    def _plan(self, lanes: Sequence[Lane]) -> None:
        for at in range(0, len(lanes), LANES_IN_A_QUESTION):
            self._questions.append(list(lanes[at : at + LANES_IN_A_QUESTION]))
        self._go_on()

    def _go_on(self) -> None:
        while self._wanted and self._open < LANES_AT_ONCE:
            self._open += 1
            self._wanted.popleft().ask()
        if self._asking or len(self._wanted) >= LANES_AT_ONCE:
            return
        if self._questions:
            self._asking = True
            self._ask_newest()
        elif not self._open and not self._wanted:
            self._end(None)

    # -- where each begins --------------------------------------------------------------------

    def _ask_newest(self) -> None:
        kinds = CHECKPOINT, SNAPSHOT, DATA, STATE
        lanes = self._questions[0]
        subjects = [self._subjects.lane(lane, kind) for lane in lanes for kind in kinds]
        subjects.append(self._subjects.owner)  # never without an answer: it says how far it knows
        self._stream.newest(subjects, self._got_newest)

    def _got_newest(self, got: Got) -> None:
        if isinstance(got, Unreachable):
            self._again(got.text, self._ask_newest)
            return
        if got.known < self._last:
            self._again("a replica is behind", self._ask_newest)
            return
        newest: dict[Lane, dict[str, Stored]] = {}
        for message in got.found:
            lane = self._subjects.lane_of(message.subject)
            kind = self._subjects.kind_of(message.subject)
            if lane is not None and message.sequence > self._removed.get(lane, 0):
                newest.setdefault(lane, {})[kind] = message
                if not is_intact(message):
                    self._again(f"sequence {message.sequence} is damaged", self._ask_newest)
                    return
        self._attempts = 0
        for asked in self._questions.popleft():
            there = newest.get((asked[0].lower(), asked[1]), {})
            if CHECKPOINT in there:
                self._wanted.append(_LaneOpening(self, asked, there))
            else:
                self._opened(asked, None)
        self._asking = False
        self._go_on()

    # -- one lane -----------------------------------------------------------------------------

    def read(self, lane: Lane, sequence: int, done: Callable[[Got], None]) -> None:
        subject = self._subjects.lane(lane, "*")
        self._stream.read(subject, sequence, PORTION_MESSAGES, PORTION_BYTES, done)

    def oldest(self, lane: Lane, after: int, done: Callable[[Got], None]) -> None:
        self._stream.read(self._subjects.lane(lane, DATA), after, 1, 1, done)

    def removed(self, lane: Lane) -> int:
        return self._removed.get((lane[0].lower(), lane[1]), 0)

    def lane_done(self, lane: JetLane, begin: int, batches: list[bytes]) -> None:
        self._open -= 1
        if self._done is None:
            return
        try:
            self._opened(lane.name, lane)
            self._found(
                StoredLane(lane.name, lane.first, batches, begin, lane.stored_segments(), True)
            )
        except JournalError as error:
            self._end(error)
            return
        self._go_on()

    def failed(self, error: JournalError) -> None:
        self._end(error)

    def later(self, call: Callable[[], None]) -> None:
        self._stream.later(PAUSE_MS, call)

    def _again(self, why: str, ask: Callable[[], None]) -> None:
        self._attempts += 1
        if self._attempts >= ATTEMPTS:
            self._end(JournalError(f"cannot read the stream {self._subjects.stream}: {why}"))
        else:
            self.later(ask)

    def _end(self, problem: JournalError | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(problem)


class _LaneOpening:
    """Reads a lane from its newest checkpoint or snapshot to its end."""

    def __init__(self, opening: Opening, name: Lane, newest: dict[str, Stored]) -> None:
        self._opening = opening
        self._name = name
        self._checkpoint = newest[CHECKPOINT]
        start = max(
            [newest[kind] for kind in (CHECKPOINT, SNAPSHOT) if kind in newest],
            key=lambda message: message.sequence,
        )
        self._last = max(message.sequence for message in newest.values())
        self._has_data = DATA in newest
        self._lane = JetLane(name)
        self._begin = 0
        self._batches: list[bytes] = []
        self._pieces = Pieces(start.sequence)
        self._attempts = 0

    def ask(self) -> None:
        """Take what is known already, or read on."""
        if not self._batches:
            try:
                self._start()
            except (JournalDamage, ValueError) as error:
                self._opening.failed(JournalDamage(f"lane {self._name}: {error}"))
                return
        self._read_on()

    def _read_on(self) -> None:
        self._opening.read(self._name, self._pieces.sequence, self._got)

    def _start(self) -> None:
        checkpoint, lane = self._checkpoint, self._lane
        header = read_header(checkpoint.body)
        name = decode_topic(checkpoint.headers.get(TOPIC, ""))
        if not name:  # early brokers did not write it
            name = topic_name(memoryview(checkpoint.body)[HEADER_BYTES:])
        if name is not None:
            lane.name = name, self._name[1]
        lane.segments = Segments(decode_segments(checkpoint.headers.get(SEGMENTS, "")))
        lane.begin_segment(header.base_offset, checkpoint.sequence, header.time_ms)

    def _got(self, got: Got) -> None:
        if isinstance(got, Unreachable):
            self._again(JournalError(got.text))
        elif problem := self._pieces.take(got.found, self._take):
            self._again(JournalDamage(problem))
        elif self._pieces.sequence > self._last:
            self._find_first()
        elif got.found:
            self._attempts = 0
            self._read_on()
        else:
            self._again(JournalError("a replica is behind"))

    def _take(self, message: Stored) -> None:
        lane, previous = self._lane, self._lane.last_crc if self._batches else None
        if not self._batches:
            self._begin = decode_number(message.headers.get(BEGIN, "0"))
            lane.size = self._begin
        found = split_whole(message.body, previous)
        if self._batches and found[0].header.kind is Kind.CHECKPOINT:
            # A segment began meanwhile: a copy reads beside the owner.
            self._checkpoint, self._batches, self._begin = message, [], 0
            self._start()
        for header, raw in found:
            self._batches.append(raw)
            lane.size += len(raw)
            lane.last_crc = header.crc
            lane.end = max(lane.end, header.end_offset)
        first = found[0].header
        if first.kind is Kind.DATA:
            lane.note(first.base_offset, message.sequence)

    def _find_first(self) -> None:
        """The oldest message that is left; without any the newest segment has none either."""
        lane = self._lane
        if not self._has_data:
            lane.first = lane.segments[-1].base
            self._finish()
            return
        after = self._opening.removed(self._name) + 1
        self._opening.oldest(self._name, after, self._got_first)

    def _got_first(self, got: Got) -> None:
        if isinstance(got, Unreachable) or not got.found:
            text = got.text if isinstance(got, Unreachable) else "a replica is behind"
            self._again(JournalError(text), self._find_first)
            return
        message = got.found[0]
        try:
            if PIECES not in message.headers:
                check(message.body)
            elif not is_intact(message):
                raise JournalDamage("the checksum of a piece is wrong")
            first = read_header(message.body)  # of STATE in front of DATA it is the same offset
        except JournalDamage as error:
            why = f"sequence {message.sequence} of the stream: {error}"
            self._again(JournalDamage(why), self._find_first)
            return
        self._lane.trim(first.base_offset)
        self._lane.first = self._lane.segments[0].base
        self._finish()

    def _finish(self) -> None:
        self._opening.lane_done(self._lane, self._begin, self._batches)

    def _again(self, why: JournalError, ask: Callable[[], None] | None = None) -> None:
        self._attempts += 1
        if self._attempts >= ATTEMPTS:
            self._opening.failed(why)
        else:
            self._opening.later(ask or self._read_on)
