"""The replicated engine: lanes are subjects of one JetStream stream, which one owner writes.

    append          queues messages; nothing is sent
    commit          sends what is queued as one atomic batch, one at a time (`committer`)
    read, open      direct gets of any replica, checked against what this owner knows (`reading`)
    trim, remove    purges, one at a time, when nothing else is to be done

The shard has an *owner*: who wrote the newest message of the subject `o`. A claim takes the place
of the only batch that a former owner may have in flight, so nothing of it is stored afterwards.

Everything here runs on the broker's thread; the stream has a thread of its own. `fail` is called
when nothing may be acknowledged any more: another owner claimed the shard, or the stream has less
than was confirmed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

import msgspec

from zbus.storage.format.batch import Batch, BatchHeader, Kind, require_link
from zbus.storage.jetstream.committer import Committer, Entry, Failure
from zbus.storage.jetstream.lane import (
    BEGIN,
    CHECKSUM,
    EPOCH,
    PIECE,
    PIECES,
    SEGMENTS,
    TOPIC,
    JetLane,
    checksum_of,
    encode_segments,
    make_document,
)
from zbus.storage.jetstream.ownership import CERTAIN_MS, Claimed
from zbus.storage.jetstream.reading import Opening, Reading
from zbus.storage.jetstream.stream import Outcome, Outgoing, Stream, StreamState, Unreachable
from zbus.storage.jetstream.subjects import (
    CHECKPOINT,
    DATA,
    SNAPSHOT,
    STATE,
    Subjects,
    encode_name,
)
from zbus.storage.port import (
    CommitDone,
    Found,
    JournalError,
    JournalFull,
    Lane,
    OpenDone,
    ReadDone,
    Verdict,
    Verdicts,
    of_lanes,
)

TIMEOUT_MS: Final = 15_000
LOOK_MS: Final = 250
RENEW_MS: Final = 1_000
RENEWALS_KEPT: Final = 256
RESERVE_BYTES: Final = 64 << 20
MESSAGE_SPARE_BYTES: Final = 64 << 10
"""Room for the header lines of a message."""

_UNLIMITED: Final = 1 << 62

_VERDICTS: Final = {Outcome.NO_ROOM: Verdict.FULL}
_TEXTS: Final = {
    Failure.TAKEN: "another broker has taken over this shard",
    Failure.WENT_BACK: "the stream has less than was confirmed; messages may be lost",
    Failure.BROKEN: "the stream gave an answer that cannot be",
}


class _Append(Entry):
    """An append of one lane, or of none: then it is about the shard."""

    __slots__ = ("batches", "kinds", "lane")

    def __init__(
        self,
        lane: JetLane | None,
        make: Callable[[int], list[Outgoing]],
        batches: Sequence[Batch] = (),
        count: int = 1,
        stored: Callable[[int], None] | None = None,
        *,
        again: bool = False,
    ) -> None:
        super().__init__(make, count, _size(batches), stored, again=again)
        self.lane = lane
        self.batches = batches


class _Barrier:
    """A commit that waits; `verdicts` are of lanes that failed before or meanwhile."""

    __slots__ = ("done", "lanes", "verdicts")

    def __init__(self, lanes: Collection[Lane], verdicts: Verdicts, done: CommitDone) -> None:
        self.lanes = frozenset(lanes)
        self.verdicts: dict[Lane, Verdict] = dict(verdicts)
        self.done: CommitDone | None = done

    def fire(self) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(self.verdicts)


class JetStreamJournal:
    """See above."""

    late = True

    def __init__(
        self,
        stream: Stream,
        subjects: Subjects,
        claimed: Claimed,
        fail: Callable[[str], None],
        *,
        timeout_ms: int = TIMEOUT_MS,
        reserve_bytes: int = RESERVE_BYTES,
        observe_commit: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`claimed`: the shard is this owner's (`zbus.storage.jetstream.ownership`)."""
        self._stream = stream
        self._subjects = subjects
        self._claimed = claimed
        self._epoch = str(claimed.owner.epoch)
        self._fail = fail
        self._timeout_ms = timeout_ms
        self._reserve_bytes = reserve_bytes
        self.verdicts: dict[Lane, Verdict] = {}
        self._lanes: dict[Lane, JetLane] = {}  # by name in lower case
        self._removed: dict[Lane, int] = {}  # sequence before which nothing of it counts
        self._barriers: deque[_Barrier] = deque()
        self._purges: deque[tuple[str, int]] = deque()
        self._purging = False
        self._closed = self._released = False
        self._room = _UNLIMITED  # bytes that messages may still take
        self._owner = claimed.owner
        self._renewals = 0
        self.state = StreamState(claimed.sequence, 0, 0)
        """As it was heard last."""
        self._committer = Committer(
            stream, claimed.sequence, claimed.sent_ms, self._refused, self._failed, observe_commit
        )
        self.failure: Failure | None = None
        self._certain_ms = stream.now_ms()  # when it was so last, as far as was looked
        stream.later(LOOK_MS, self._look)

    # -- writing ------------------------------------------------------------------------------

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        if self._closed or self.failure is not None:
            raise JournalError("the journal has failed or is closed, and takes nothing more")
        known = self._lanes.get(_key(lane))
        if after != (0 if known is None else known.last_crc):
            self.verdicts[lane] = Verdict.CONFLICT
        if lane in self.verdicts:
            return
        require_link(batches, after)
        size = _size(batches)
        if known is None and batches[0].header.kind is not Kind.CHECKPOINT:
            raise JournalError(f"{lane} is new and must begin with a checkpoint")
        refusable = known is None or any([batch.header.kind is Kind.DATA for batch in batches])
        if refusable and size > self._room:
            raise JournalFull("the stream is full, but for acknowledgements")
        self._room -= size
        if known is None:
            known = self._lanes[_key(lane)] = JetLane(lane)
            known.first = batches[0].header.base_offset
        known.last_crc = batches[-1].header.crc
        known.end = max(known.end, batches[-1].header.end_offset)
        parts = _parts(batches)
        most = self._stream.message_bytes_max - MESSAGE_SPARE_BYTES
        make = partial(self._messages, known, parts, most)
        count = sum([-(-_size(part) // most) for _, part in parts])
        self._committer.add(_Append(known, make, batches, count))

    def continue_lane(self, lane: Lane, header: BatchHeader) -> None:
        """Let the lane take this batch next, which begins a segment: a log is copied, and what the
        batch follows is not there."""
        known = self._lanes.get(_key(lane))
        if known is None:
            known = self._lanes[_key(lane)] = JetLane(lane)
            known.first = header.base_offset
        known.last_crc = header.previous_crc

    def lanes(self) -> dict[Lane, JetLane]:
        """All lanes, by names as they are written."""
        return {lane.name: lane for lane in self._lanes.values()}

    def _messages(
        self, lane: JetLane, parts: Sequence[tuple[str, Sequence[Batch]]], most: int, sequence: int
    ) -> list[Outgoing]:
        """An append as messages of `most` bytes, of which the first will have this sequence."""
        made: list[Outgoing] = []
        for kind, part in parts:
            headers = {EPOCH: self._epoch}
            header = part[0].header
            if kind == CHECKPOINT:
                headers[TOPIC] = encode_name(lane.name[0])
                headers[SEGMENTS] = encode_segments(lane.segments_before(header.base_offset))
                lane.begin_segment(header.base_offset, sequence + len(made), header.time_ms)
            elif kind == SNAPSHOT:
                headers[BEGIN] = str(lane.size)
            lane.size += _size(part)
            if kind == DATA:
                lane.note(header.base_offset, sequence + len(made))
            body = b"".join([batch.raw for batch in part])
            more = range(most, len(body), most)
            if more:
                headers[PIECES] = str(len(more) + 1)
            if len(headers) > 1:
                headers[CHECKSUM] = checksum_of(headers, body[:most])
            subject = self._subjects.lane(lane.name, kind)
            made.append(Outgoing(subject, headers, body[:most]))
            # Those are on a subject whose newest message nobody takes for a beginning.
            subject = self._subjects.lane(lane.name, DATA if kind == DATA else STATE)
            for number, at in enumerate(more, 1):
                piece = body[at : at + most]
                numbered = {EPOCH: self._epoch, PIECE: str(number)}
                numbered[CHECKSUM] = checksum_of(numbered, piece)
                made.append(Outgoing(subject, numbered, piece))
        return made

    def commit(self, lanes: Collection[Lane], synced: bool, done: CommitDone) -> None:
        if self.failure is not None:
            return
        barrier = _Barrier(lanes, of_lanes(self.verdicts, lanes), done)
        self._committer.push()
        self._barriers.append(barrier)
        self._committer.when_settled(self._settled)

    def _settled(self) -> None:
        """All that the oldest commit waits for is stored or refused."""
        self._barriers.popleft().fire()
        self._maintain()

    def _refused(self, entries: Sequence[Entry], outcome: Outcome, text: str) -> None:
        """Nothing of these is stored: their lanes have failed, and are opened again."""
        self._give_up(entries, _VERDICTS.get(outcome, Verdict.LOST))
        if outcome is Outcome.NO_ROOM:
            self._room = 0

    def _give_up(self, entries: Collection[Entry], verdict: Verdict) -> None:
        lanes = {entry.lane for entry in entries if isinstance(entry, _Append) and entry.lane}
        names = {lane.name for lane in lanes}
        for name in names:
            self.verdicts.setdefault(name, verdict)
        for barrier in self._barriers:
            for name in barrier.lanes & names:
                barrier.verdicts.setdefault(name, verdict)
        self._committer.drop(lambda entry: isinstance(entry, _Append) and entry.lane in lanes)

    def _failed(self, failure: Failure, text: str) -> None:
        self.failure = failure
        self._fail(f"{_TEXTS[failure]} ({text})")

    # -- reading ------------------------------------------------------------------------------

    def read(self, lane: Lane, offset: int, bytes_max: int, done: ReadDone) -> None:
        known = self._lanes.get(_key(lane))
        if known is None:
            done(JournalError(f"there is no {lane} to read"))
            return
        self._committer.push()
        # What is appended later is not waited for: with each commit there would be more of it.
        part = known, offset, known.end, bytes_max
        self._committer.when_settled(partial(self._read, *part, done))

    def _read(self, lane: JetLane, offset: int, end: int, bytes_max: int, done: ReadDone) -> None:
        offset = max(offset, lane.first)
        if offset >= end:
            done(b"")
            return
        subject = self._subjects.lane(lane.name, DATA)
        Reading(self._stream, lane, subject, offset, end, bytes_max, done).ask()

    def open(self, lanes: Collection[Lane] | None, found: Found, done: OpenDone) -> None:
        self._committer.push()
        self._committer.when_settled(partial(self._open, lanes, found, done))

    def _open(self, lanes: Collection[Lane] | None, found: Found, done: OpenDone) -> None:
        former = dict(self._lanes)

        def opened(lane: Lane, known: JetLane | None) -> None:
            before = self._lanes.pop(_key(lane), None) or former.get(_key(lane))
            if known is not None:
                if before is not None:  # what was trimmed may not be purged yet
                    known.trim(before.first)
                    known.first = max(known.first, before.first)
                self._lanes[_key(lane)] = known
            if lanes is None and (sequence := self._removed.get(_key(lane), 0)):
                # Its owner may not have come to it, and what says so is purged by the next removal.
                self._purge(self._subjects.lane(lane, "*"), sequence)
            self.verdicts.pop(lane, None)

        if lanes is None:
            self.verdicts.clear()
            self._lanes.clear()
        last = self._committer.last
        removed = self._removed
        Opening(self._stream, self._subjects, last, removed, opened, found, done).start(lanes)

    # -- removing -----------------------------------------------------------------------------

    def trim(self, lane: Lane, before: int) -> None:
        known = self._lanes.get(_key(lane))
        if known is not None:
            self._committer.when_settled(partial(self._trim, known, before))

    def _trim(self, lane: JetLane, before: int) -> None:
        sequence = lane.trim(before)
        if sequence and self._lanes.get(_key(lane.name)) is lane:
            self._purge(self._subjects.lane(lane.name, "*"), sequence)
            self._maintain()

    def remove(self, lanes: Collection[Lane], done: Callable[[], None]) -> None:
        self._remove([lane for lane in lanes if _key(lane) in self._lanes])
        self._committer.push()
        self._committer.when_settled(done)  # a removal settles only when it is stored

    def _remove(self, lanes: Sequence[Lane]) -> None:
        """Written in the same order as all else, so a lane of that name may begin at once."""
        if not lanes:
            return
        for lane in lanes:
            del self._lanes[_key(lane)]
            self.verdicts.pop(lane, None)
        body = msgspec.json.encode([[topic.lower(), partition] for topic, partition in lanes])

        def stored(sequence: int) -> None:
            for lane in lanes:
                self._removed[_key(lane)] = sequence
                self._purge(self._subjects.lane(lane, "*"), sequence)
            self._purge(self._subjects.removed, sequence)  # by then all before it are purged

        document = make_document(self._subjects.removed, self._epoch, body)
        self._committer.add(_Append(None, lambda _: [document], stored=stored, again=True))

    def _purge(self, subject: str, before: int) -> None:
        self._purges.append((subject, before))

    def _maintain(self) -> None:
        """One purge at a time: it keeps appends waiting for up to 50 ms."""
        if self._purging or not self._purges or self._closed or self._barriers:
            return
        subject, before = self._purges[0]
        self._purging = True
        self._stream.purge(subject, before, self._purged)

    def _purged(self, done: bool) -> None:
        self._purging = False
        if done:
            self._purges.popleft()
            self._maintain()

    # -- upkeep -------------------------------------------------------------------------------

    def upkeep(self, now_ms: int) -> None:
        """How full the stream is, and what is to be purged."""
        if self._closed or self.failure is not None:
            return
        self._stream.state(self._measured)
        self._maintain()

    def _measured(self, state: StreamState | Unreachable) -> None:
        if isinstance(state, StreamState):
            self.state = state
            if state.first > self._owner.kept and not self._committer.stopped:
                text = f"it begins at {state.first}: somebody purged it"
                self._committer.stop(Failure.WENT_BACK, text)
            free = state.bytes_max - self._reserve_bytes - state.bytes_used
            self._room = free if state.bytes_max else _UNLIMITED

    # -- ownership ----------------------------------------------------------------------------

    @property
    def sequence(self) -> int:
        """Of the newest message that is confirmed."""
        return self._committer.last

    @property
    def unconfirmed_ms(self) -> int:
        """How long ago the last append was sent that is confirmed."""
        return self._stream.now_ms() - self._committer.confirmed_ms

    @property
    def is_certain(self) -> bool:
        """No other owner can deliver anything now. If not, this one must say nothing."""
        alive = self.failure is None and not self._closed and not self._released
        return alive and self.unconfirmed_ms < CERTAIN_MS

    @property
    def is_late(self) -> bool:
        """It was not certain for so long that what waits has failed. Servers may confirm all, and
        each append too late to be certain by it."""
        uncertain_ms = self._stream.now_ms() - self._certain_ms
        return max(self.unconfirmed_ms, uncertain_ms) >= self._timeout_ms

    @property
    def is_quiet(self) -> bool:
        """The former owner may still deliver messages: this one must not."""
        return self._stream.now_ms() < self._claimed.quiet_until_ms

    def when_quiet_ends(self, call: Callable[[], None]) -> None:
        self._stream.later(max(0, self._claimed.quiet_until_ms - self._stream.now_ms()), call)

    def figures(self) -> dict[str, int | bool]:
        """What an operator wants to know of it."""
        return {
            "epoch": self._claimed.owner.epoch,
            "sequence": self.sequence,
            "unconfirmedMs": self.unconfirmed_ms,
            "inDoubt": self._committer.in_doubt,
            "bytes": self.state.bytes_used,
            "bytesMax": self.state.bytes_max,
        }

    def _look(self) -> None:
        """A few times a second: stay certain when nothing is written, and give up what is in doubt
        for too long."""
        if self._closed or self._released or self.failure is not None:
            return
        self._stream.later(LOOK_MS, self._look)
        committer, unconfirmed_ms = self._committer, self.unconfirmed_ms
        if self.is_certain:
            self._certain_ms = self._stream.now_ms()
        if self.is_late:
            self._give_up(committer.outstanding(), Verdict.LOST)
            for barrier in list(self._barriers):  # who hears of it may commit
                barrier.fire()
        if unconfirmed_ms >= RENEW_MS:
            if not committer.outstanding():
                committer.add(_Append(None, self._renewal, stored=self._renewed))
            committer.push()  # also what is appended and not committed yet

    def _renewal(self, sequence: int) -> list[Outgoing]:
        owner = self._owner
        if self._renewals >= RENEWALS_KEPT:
            owner = msgspec.structs.replace(owner, kept=sequence)
        return [owner.encode(self._subjects)]

    def _renewed(self, sequence: int) -> None:
        self._renewals += 1
        if self._renewals > RENEWALS_KEPT:  # this one says that it is kept
            self._renewals = 0
            self._owner = msgspec.structs.replace(self._owner, kept=sequence)
            self._purge(self._subjects.owner, sequence)

    def release(self, done: Callable[[bool], None], *, is_complete: bool = True) -> None:
        """Give the shard up, so that the next owner need not wait: nothing is said from now on. Of
        a copy: whether everything is there. `done` hears whether that is stored."""
        self._released = True
        if self.failure is not None:
            done(False)
            return
        left = msgspec.structs.replace(self._owner, left=True, quiet=self.is_quiet)
        if is_complete:
            left = msgspec.structs.replace(left, copying="", copied=left.copying)
        answers: list[int] = []
        encoded = [left.encode(self._subjects)]
        self._committer.add(_Append(None, lambda _: encoded, stored=answers.append))
        self._committer.push()
        self._committer.when_settled(lambda: done(bool(answers)))

    def close(self) -> None:
        """Everything that was committed is stored already; the rest nobody waits for."""
        self._closed = True
        self._committer.stopped = True
        self._stream.close()


def _key(lane: Lane) -> Lane:
    return lane[0].lower(), lane[1]


def _parts(batches: Sequence[Batch]) -> list[tuple[str, Sequence[Batch]]]:
    """An append as parts by kind: where recovery may begin there is a message of its own."""
    parts: list[tuple[str, list[Batch]]] = []
    for batch in batches:
        header = batch.header
        if header.kind is Kind.CHECKPOINT:
            parts.append((CHECKPOINT, [batch]))
        elif header.is_whole_state:
            parts.append((SNAPSHOT, [batch]))
        elif parts and parts[-1][0] in (DATA, STATE):
            before = DATA if DATA in (parts[-1][0], _kind(batch)) else STATE
            parts[-1] = before, [*parts[-1][1], batch]
        else:
            parts.append((_kind(batch), [batch]))
    return list(parts)


def _size(batches: Sequence[Batch]) -> int:
    return sum([len(batch.raw) for batch in batches])


def _kind(batch: Batch) -> str:
    return DATA if batch.header.kind is Kind.DATA else STATE
