"""Followers for tests: what they are told is a list, and they can refuse to take it."""

from __future__ import annotations

from tests.core.support import Box, Reader
from zbus.core.fanout.subscribers import Subscriber
from zbus.core.model.chunk import Chunk
from zbus.core.model.errors import BrokerError
from zbus.core.topics.outcomes import Outcome
from zbus.core.topics.topic import Topic


class Lines:
    """A form that a test can read: `partition:offset body place`, one line a message."""

    def __init__(self) -> None:
        self.encoded = 0

    def encode(self, topic: Topic, index: int, chunk: Chunk, at: int, position: list[int]) -> bytes:
        self.encoded += 1
        place = ",".join(map(str, position)).encode()
        return b"%d:%d %b %b\n" % (index, chunk.first + at, chunk.bodies[at], place)

    def encode_gap(self, count: int, position: list[int]) -> bytes:
        return b"gap %d %b\n" % (count, ",".join(map(str, position)).encode())


class Listener(Subscriber):
    """Takes what it is told, `room` bytes at most until it is resumed."""

    def __init__(self, session: Reader, room: int = 1 << 30) -> None:
        super().__init__(session, self._hear)
        self.heard = b""
        self.begun = False
        self.left = False
        self.room = room
        self.ended: BrokerError | None = None

    def _hear(self, data: bytes) -> None:
        assert self.begun
        assert self.open
        assert not self.session.stalled, "told to somebody who takes nothing"
        self.heard += data
        self.room -= len(data)
        if self.room < 0:
            self.session.stalled = True

    def begin(self, position: list[int]) -> None:
        assert not self.begun
        self.begun = True

    def leave(self) -> None:
        self.open = False
        self.left = True

    def answer(self, outcome: Outcome) -> None:
        assert isinstance(outcome, BrokerError)
        self.ended = outcome

    @property
    def lines(self) -> list[bytes]:
        return self.heard.splitlines()

    @property
    def bodies(self) -> list[bytes]:
        """Of the messages, without the gaps."""
        return [line.split(b" ")[1] for line in self.lines if not line.startswith(b"gap")]

    @property
    def place(self) -> list[int]:
        """Where it would begin again."""
        return [int(part) for part in self.lines[-1].rsplit(b" ", 1)[1].split(b",")]


def follow(
    box: Box,
    form: Lines,
    position: list[int] | None = None,
    *,
    topic: str = "T",
    only: int | None = None,
    filter: str = "",
    since_ms: int | None = None,
    room: int = 1 << 30,
) -> Listener:
    """A new session that follows."""
    partitions = box.topic(topic).partitions
    if only is not None:
        partitions = [partitions[only]]
    listener = Listener(box.session(), room)
    box.broker.follow(listener, form, partitions, filter, position, since_ms)
    return listener
