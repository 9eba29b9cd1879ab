"""Stores appends in order, one atomic batch of the stream at a time (`scale.md`, 4.2 and 4.3).

A batch is stored only if the stream ends where this owner thinks. With one batch in flight, ever,
a new owner's claim takes the place of the only batch that may still be under way.

An answer that does not come leaves the batch *in doubt*: it may be stored now or later. It is sent
again with the same bytes under the same condition, so that one copy at most is stored. What ends
the doubt is the stream's last sequence, as a leader says it that heard of a replica lately.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from zbus.storage.jetstream.stream import (
    Got,
    Outcome,
    Outgoing,
    Published,
    Stream,
    StreamState,
    Unreachable,
)

BATCH_MESSAGES_MAX: Final = 900
BATCH_BYTES_MAX: Final = 4 << 20
AGAIN_MS: Final = 20
"""A batch that was refused, with nothing in its place: a copy of it is under way."""
DOUBT_MS: Final = 100
"""How often a leader is asked how far the stream is."""
REFUSED_MS: Final = 500
"""What must be stored is sent again after this time, as to a stream that is full."""
DELETED_TIMES: Final = 30
"""A server that has just started may not know a stream yet; this often in a row is no mistake."""

log = logging.getLogger("zbus")


class Failure(enum.Enum):
    """Why nothing more can be stored by this owner."""

    TAKEN = "another owner has claimed the shard"
    WENT_BACK = "the stream has less than was confirmed"
    BROKEN = "the stream answered what cannot be"


class Entry:
    """One append: messages that are stored together. `make` gives them once it is known where the
    first of them will be, by sequence; they may be refused there. `stored` gets the sequence where
    they are. With `again` it is sent until it is stored, before all that came later."""

    __slots__ = ("again", "dropped", "make", "messages", "number", "size", "stored")

    def __init__(
        self,
        make: Callable[[int], Sequence[Outgoing]],
        count: int,
        size: int,
        stored: Callable[[int], None] | None = None,
        *,
        again: bool = False,
    ) -> None:
        self.make = make
        self.stored = stored
        self.again = again
        self.messages = count
        self.size = size
        self.number = 0
        self.dropped = False


class Committer:
    """See above. Everything runs on the broker's thread."""

    def __init__(
        self,
        stream: Stream,
        last: int,
        sent_ms: int,
        refused: Callable[[Sequence[Entry], Outcome, str], None],
        fail: Callable[[Failure, str], None],
        observe: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`last` is the sequence of this owner's claim, and `sent_ms` when it was sent. `refused`
        gets the entries of a batch of which nothing is stored; `observe` the seconds that each
        batch took."""
        self._stream = stream
        self.last = last
        self._refused = refused
        self._fail = fail
        self._observe = observe
        self._pending: deque[Entry] = deque()
        self._flying: list[Entry] = []
        self._sent: list[Outgoing] = []
        self._count = 0  # of entries, ever
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._sent_ms = 0  # when the batch in flight was sent first: any copy may be the stored one
        self.confirmed_ms = sent_ms
        """When the newest batch that is confirmed was sent, on the clock of the stream."""
        self.in_doubt = False
        self._deleted = 0  # how often in a row there was said to be no such stream
        self.stopped = False

    def add(self, entry: Entry) -> None:
        """Store this behind all others, with the next batch."""
        self._count += 1
        entry.number = self._count
        self._pending.append(entry)

    def when_settled(self, done: Callable[[], None]) -> None:
        """Call this once each entry so far is stored or refused."""
        if self._settled() >= self._count:
            done()
        else:
            self._waiting.append((self._count, done))

    def _settled(self) -> int:
        first = self._flying or self._pending
        return first[0].number - 1 if first else self._count

    def push(self) -> None:
        """Send what is pending, unless a batch is in flight."""
        if self._flying or self.stopped:
            return
        count = size = 0
        while self._pending:
            entry = self._pending[0]
            if entry.dropped:
                self._pending.popleft()
                continue
            full = (
                count + entry.messages > BATCH_MESSAGES_MAX or size + entry.size > BATCH_BYTES_MAX
            )
            if full and count:
                break
            self._flying.append(self._pending.popleft())
            self._sent += entry.make(self.last + count + 1)
            count += entry.messages
            size += entry.size
        if self._flying:
            self._sent_ms = self._stream.now_ms()
            self._send()
        else:
            self._report()

    def outstanding(self) -> list[Entry]:
        """What is not settled yet."""
        return [*self._flying, *self._pending]

    def drop(self, unwanted: Callable[[Entry], bool]) -> None:
        """Do not send these any more, as far as they are pending."""
        for entry in self._pending:
            entry.dropped = entry.dropped or unwanted(entry)
        while self._pending and self._pending[0].dropped:
            self._pending.popleft()

    def _send(self) -> None:
        self._stream.publish(self._sent, self.last, self._answered)

    def _answered(self, answer: Published) -> None:
        if self.stopped:
            return
        if answer.outcome is None:
            if answer.sequence == self.last + len(self._sent):
                self._done()
            else:
                self.stop(Failure.BROKEN, f"sequence {answer.sequence} was confirmed")
        elif answer.outcome is Outcome.WRONG_SEQUENCE:
            self._look()
        elif answer.outcome is Outcome.UNKNOWN:
            self._doubt(answer.text)
            self._stream.later(DOUBT_MS, self._ask)
        else:
            flying = self._land()
            again = [entry for entry in flying if entry.again]
            self._pending.extendleft(reversed(again))
            refused = [entry for entry in flying if not entry.again]
            self._refused(refused, answer.outcome, answer.text)
            self._report()
            if again:
                self._stream.later(REFUSED_MS, self.push)
            else:
                self.push()

    def _done(self) -> None:
        at = self.last + 1
        self.last += len(self._sent)
        self.confirmed_ms = self._sent_ms
        self._observe((self._stream.now_ms() - self._sent_ms) / 1_000)
        for entry in self._land():
            if entry.stored is not None:
                entry.stored(at)
            at += entry.messages
        self._report()
        self.push()

    def _land(self) -> list[Entry]:
        flying, self._flying, self._sent = self._flying, [], []
        if self.in_doubt:
            self.in_doubt = False
            log.info("write settled", extra={"after_ms": self._stream.now_ms() - self._sent_ms})
        return flying

    def _report(self) -> None:
        settled = self._settled()
        while self._waiting and self._waiting[0][0] <= settled:
            self._waiting.popleft()[1]()

    # -- doubt ------------------------------------------------------------------------------

    def _doubt(self, why: str) -> None:
        """It is not known whether the batch in flight is stored, or will be."""
        if not self.in_doubt:
            self.in_doubt = True
            log.warning("write in doubt", extra={"sequence": self.last + 1, "why": why})

    def _ask(self) -> None:
        if not self.stopped:
            self._stream.state(self._heard)

    def _heard(self, state: StreamState | Unreachable) -> None:
        if self.stopped:
            return
        self._deleted = self._deleted + 1 if isinstance(state, Unreachable) and state.deleted else 0
        if self._deleted >= DELETED_TIMES:
            self.stop(Failure.WENT_BACK, "it was deleted")
        elif isinstance(state, Unreachable):
            self._stream.later(DOUBT_MS, self._ask)
        elif state.last < self.last:
            self.stop(Failure.WENT_BACK, f"it ends at {state.last}, and {self.last} was confirmed")
        elif state.last == self.last:
            self._send()
        else:
            self._look()

    def _look(self) -> None:
        """What is behind the last message of this owner?"""
        self._stream.get(self.last + 1, self._found)

    def _found(self, got: Got) -> None:
        if self.stopped:
            return
        if isinstance(got, Unreachable):
            self._stream.later(DOUBT_MS, self._look)
        elif not got.found:
            self._doubt("another copy of it is under way")
            self._stream.later(AGAIN_MS, self._ask)
        else:
            there, mine = got.found[0], self._sent[0]
            own = (there.subject, there.body) == (mine.subject, mine.body)
            if own and all(there.headers.get(name) == text for name, text in mine.headers.items()):
                self._done()
            else:
                self.stop(Failure.TAKEN, f"{there.subject} is at {there.sequence}")

    def stop(self, failure: Failure, text: str) -> None:
        """Nothing more is stored by this owner."""
        self.stopped = True
        self._fail(failure, text)
