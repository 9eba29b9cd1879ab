"""Who may write a shard: the owner named by the newest message of the subject `o` (`scale.md`,
sections 4.4 and 6). A claim is an append under the condition that nothing came meanwhile, so one of
several who claim at once is stored.

An owner is *certain* for a while after it sent the last append that was confirmed. Later another
one may have claimed the shard, and it says nothing until the next append is confirmed. A new owner
delivers nothing for a little longer than that, unless the former one said that it left. One that
left while it had to be quiet itself says that, too: the one before it may still be certain. So two
never deliver at once, whatever their clocks show.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from zbus.documents import NOT_JSON
from zbus.storage.jetstream.lane import is_intact, make_document
from zbus.storage.jetstream.stream import (
    Got,
    Outgoing,
    Published,
    Stored,
    Stream,
    StreamState,
    SubjectNames,
    Unreachable,
)
from zbus.storage.jetstream.subjects import Subjects
from zbus.storage.port import JournalError

PAUSE_MS: Final = 100
NAMELESS_TIMES: Final = 30
"""So often it is looked again for an owner's message, which a server may not have yet."""
CERTAIN_MS: Final = 1_750
QUIET_MS: Final = 2_000


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of the subject `o`."""

    epoch: int
    node: str = ""
    address: str = ""  # where clients reach it
    random: str = ""
    left: bool = False  # it stopped; whoever comes need not wait
    copying: str = ""  # the data of which a copy is not complete: no broker serves it
    copied: str = ""  # the data of which it is a copy that no broker has owned yet
    kept: int = 0  # sequence of a message that no broker has removed: if it is gone, more is
    shard: int = 0
    quiet: bool = False  # if it left: an owner before it may still deliver messages

    def encode(self, subjects: Subjects) -> Outgoing:
        return make_document(subjects.owner, self.epoch, msgspec.json.encode(self))


class WentBack(JournalError):
    """The stream has less than its owner said was confirmed."""


class Claimed(NamedTuple):
    """The claim is stored: everything before it is history, and nothing of a former owner comes
    behind it."""

    owner: Owner
    sequence: int
    sent_ms: int  # on the clock of the stream
    quiet_until_ms: int  # nothing is delivered before


class Claim:
    """Claims a shard, however often that has to be tried."""

    def __init__(
        self,
        stream: Stream,
        subjects: Subjects,
        node: str,
        address: str,
        is_free: Callable[[Owner | None], bool],
        done: Callable[[Claimed | Owner | JournalError | None], None],
        copying: str = "",
        confirmed: Callable[[], int] = lambda: 0,
        all_have_left: Callable[[Owner], bool] = lambda owner: owner.left and not owner.quiet,
    ) -> None:
        """`is_free` decides whether the shard may be taken from its owner. `done` gets that owner
        if not: another one may have come first. It gets a JournalError for a stream that is not
        as a broker left it. `copying`: it is claimed to be filled with a copy of this data. It is
        not claimed if it ends before what `confirmed` gives: a shorter copy must not win. If
        `all_have_left`, neither that owner nor one before it delivers anything any more, so there
        is no need to be quiet."""
        self._stream = stream
        self._subjects = subjects
        self._is_free = is_free
        self._confirmed = confirmed
        self._all_have_left = all_have_left
        self._done = done
        self._former: Owner | None = None
        self._state = StreamState(0, 0, 0)
        self._owner = Owner(0, node, address, copying=copying, shard=subjects.shard)
        self._sent_ms = 0
        self._nameless_times = self._shorter_times = 0
        self.problem = ""
        """Why it is tried again."""

    def start(self) -> None:
        # First how far the stream is, then who owns it as far as that: what comes behind it makes
        # the claim fail.
        self._stream.state(self._heard)

    def _heard(self, state: StreamState | Unreachable) -> None:
        if isinstance(state, Unreachable):
            self._again(state.text)
        elif state.last < self._confirmed():
            self._shorter(state.last)
        else:
            self._shorter_times = 0
            self._state = state
            self._stream.newest([self._subjects.owner], self._found)

    def _found(self, got: Got) -> None:
        last = self._state.last
        if isinstance(got, Unreachable):
            self._again(got.text)
        elif not got.found and last:
            self._nameless(last)
        elif got.found and got.known < last:
            self._again("a replica is behind")
        elif got.found:
            self._nameless_times = 0
            self._read(got.found[0])
        else:
            self._judge(None)

    def _read(self, found: Stored) -> None:
        if not is_intact(found):
            self._again(f"sequence {found.sequence} of the stream is damaged in a replica")
            return
        try:
            former = msgspec.json.decode(found.body, type=Owner)
        except NOT_JSON as error:
            place = f"sequence {found.sequence} of the stream {self._subjects.stream}"
            self._done(JournalError(f"{place} is no message of a broker: {error}"))
            return
        if former.random and former.random == self._owner.random:
            self._claimed(found.sequence)  # the answer to the claim was lost
        else:
            self._judge(former)

    def _judge(self, former: Owner | None) -> None:
        self._former = former
        if not self._is_free(former):
            self._done(former)
        elif former is not None and not self._goes_on(former):
            self._check_copy(former)
        else:
            self._publish()

    def _goes_on(self, former: Owner) -> bool:
        """Whether it is served, or a copy goes on that was interrupted; of several shards some may
        be complete by then."""
        mine = self._owner.copying
        return former.copying == mine or (bool(mine) and former.copied == mine)

    def _check_copy(self, former: Owner) -> None:
        """What is not complete is not served, and nothing is copied to what others have filled."""
        stream = self._subjects.stream
        if former.copying:
            text = f"the stream {stream} holds an unfinished copy"
            advice = "run the same `zbus copy` again, or delete the stream"
            self._done(JournalError(f"{text} of {former.copying}: {advice}"))
        else:
            self._stream.subjects(self._subjects.checkpoints, self._found_lanes)

    def _found_lanes(self, found: SubjectNames | Unreachable) -> None:
        if isinstance(found, Unreachable):
            self._again(found.text)
        elif found.known < self._state.last:
            self._again("a replica is behind")
        elif found.names:
            text = f"the stream {self._subjects.stream} holds messages already"
            self._done(JournalError(f"{text}; a copy needs a new one: choose another name"))
        else:
            self._publish()

    def _publish(self) -> None:
        former, state = self._former, self._state
        if former is not None and state.first > former.kept > 0:
            text = f"the stream {self._subjects.stream} begins at {state.first}, and its owner"
            self._done(
                JournalError(f"{text} kept what begins at {former.kept}: somebody purged it")
            )
            return
        epoch = 1 if self._former is None else self._former.epoch + 1
        random = os.urandom(8).hex()
        kept = former.kept if former is not None and former.kept else state.last + 1
        self._owner = msgspec.structs.replace(self._owner, epoch=epoch, random=random, kept=kept)
        self._sent_ms = self._stream.now_ms()
        self._stream.publish([self._owner.encode(self._subjects)], state.last, self._answered)

    def _shorter(self, last: int) -> None:
        """A leader that was chosen just now may not know all yet."""
        self._shorter_times += 1
        text = f"the stream {self._subjects.stream} ends at {last}, and its owner had confirmed"
        text = f"{text} {self._confirmed()}; messages may be lost"
        if self._shorter_times < NAMELESS_TIMES:
            self._again(text)
        else:
            self._done(WentBack(text))

    def _nameless(self, last: int) -> None:
        """It has messages, and none says who owns it. Another one may claim it just now."""
        self._nameless_times += 1
        text = f"the stream {self._subjects.stream} ends at {last} and has no message of an owner"
        if self._nameless_times < NAMELESS_TIMES:
            self._again(text)
        else:
            self._done(JournalError(f"{text}: somebody purged it, or it is not of zbus"))

    def _answered(self, answer: Published) -> None:
        if answer.outcome is None:
            self._claimed(answer.sequence)
        else:
            self._again(answer.text)

    def _claimed(self, sequence: int) -> None:
        needs_quiet = self._former is not None and not self._all_have_left(self._former)
        now_ms = self._stream.now_ms()
        quiet_until_ms = now_ms + QUIET_MS if needs_quiet else now_ms
        self._done(Claimed(self._owner, sequence, self._sent_ms, quiet_until_ms))

    def _again(self, why: str) -> None:
        self.problem = why
        self._stream.later(PAUSE_MS, self.start)
