"""What the engine needs of a stream that is kept elsewhere: `zbus.storage.jetstream.nats` does it
over NATS, a simulated cluster of the tests without a network and with faults.

All calls return at once. Answers come through the `post` of the stream's maker, on the broker's
thread, each exactly once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias


class Outgoing(NamedTuple):
    """A message that is to be stored."""

    subject: str
    headers: Mapping[str, str]
    body: bytes


class Stored(NamedTuple):
    """A message of the stream."""

    sequence: int
    subject: str
    headers: Mapping[str, str]
    body: bytes


class Outcome(enum.Enum):
    """Why messages were not stored."""

    WRONG_SEQUENCE = "the stream ends elsewhere"
    NO_ROOM = "the stream is full"
    UNKNOWN = "no answer"  # they may be stored, now or later
    REFUSED = "the stream refuses them"  # by its settings: nothing of them is stored


class Published(NamedTuple):
    """The answer to `publish`: the sequence of the last message, or why there is none."""

    sequence: int
    outcome: Outcome | None = None
    text: str = ""


class StreamState(NamedTuple):
    """What a leader that has heard of a current replica lately says of its stream."""

    last: int  # sequence of the newest message; it stays when that is removed
    bytes_used: int
    bytes_max: int  # 0 = no limit
    first: int = 0  # sequence of the oldest message that is left; `last` + 1 without any


class Unreachable(NamedTuple):
    """A question without a good answer; it may be asked again."""

    text: str
    deleted: bool = False  # the servers say that there is no such stream


class Messages(NamedTuple):
    """Messages that were found, in order."""

    found: list[Stored]
    known: int = 0  # sequence up to which the answering server knows the stream, if it says so


class SubjectNames(NamedTuple):
    """Subjects that have messages."""

    names: list[str]
    known: int  # sequence up to which the answering server knows the stream


Got: TypeAlias = "Messages | Unreachable"


class Stream(Protocol):
    """One stream. Its messages are ordered by sequence, over all subjects."""

    @property
    def message_bytes_max(self) -> int:
        """A body may have as many bytes, headers included."""

    def publish(
        self, messages: Sequence[Outgoing], last: int, done: Callable[[Published], None]
    ) -> None:
        """Store all of these or none, if `last` is the sequence of the newest message."""

    def state(self, done: Callable[[StreamState | Unreachable], None]) -> None:
        """Ask the leader."""

    def get(self, which: int | str, done: Callable[[Got], None]) -> None:
        """Ask the leader for the message of a sequence, or the newest one of a subject; without
        messages if there is none."""

    def newest(self, subjects: Sequence[str], done: Callable[[Got], None]) -> None:
        """The newest message of each of these subjects that has one, by sequence. A replica may
        answer: `known` says how far it is."""

    def read(
        self, subject: str, sequence: int, count: int, size: int, done: Callable[[Got], None]
    ) -> None:
        """Messages of this subject (`*` and `>` stand for tokens) from `sequence` on, at most
        `count`, and as many as fit into `size` bytes but at least one. A replica may answer."""

    def subjects(self, pattern: str, done: Callable[[SubjectNames | Unreachable], None]) -> None:
        """All subjects of this pattern that have messages. A leader that is cut off may answer."""

    def purge(self, subject: str, before: int, done: Callable[[bool], None]) -> None:
        """Remove messages of a subject that are older than sequence `before`; whether that was
        done."""

    def later(self, ms: int, call: Callable[[], None]) -> None:
        """Call this on the broker's thread in a while."""

    def now_ms(self) -> int:
        """A clock that only goes forward, and counts from anything."""

    def close(self) -> None:
        """Let go of connection and thread; nothing is called afterwards."""
