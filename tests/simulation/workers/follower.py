"""Those that read without an end: WebSockets, and streams of events."""

from __future__ import annotations

from random import Random
from typing import Final
from urllib.parse import quote

import msgspec

from tests.conformance.websocket_client import handshake
from tests.simulation.workers.book import Book, Place, TopicBook
from tests.wire.websocket_frames import frame
from zbus.testing.simulation.network import Connection
from zbus.wire.websocket import CLOSE, PING, PONG, TEXT

HANDSHAKE: Final = handshake()


def framed(message: bytes) -> bytes:
    """A request as a message of a WebSocket."""
    return frame(TEXT, message)


class Framed(Connection):
    """A WebSocket, each message of which is one of HTTP: what comes is given without its frames."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.socket, connection.name)
        self._frames = bytearray()
        self._open = False

    def receive(self, bytes_max: int | None = None) -> bytes:
        came, found = self._frames, b""
        came += super().receive(bytes_max)
        if not self._open:
            end = came.find(b"\r\n\r\n")
            if end < 0:
                return b""
            if not came.startswith(b"HTTP/1.1 101 "):
                found = bytes(came)  # it is refused
                came.clear()
                return found
            del came[: end + 4]
            self._open = True
        while len(came) >= 2:
            size, at = came[1], 2
            if size >= 126:
                at = 4 if size == 126 else 10
                size = int.from_bytes(came[2:at], "big")
            if len(came) < max(at, at + size):
                break
            kind, payload = came[0] & 0x0F, bytes(came[at : at + size])
            del came[: at + size]
            if kind == PING:
                self.send(frame(PONG, payload))
            elif kind != CLOSE:
                found += payload
        return found


class Follower:
    """A client that follows a topic: all that is put comes, once and in order."""

    def __init__(self, number: int, topic: TopicBook, book: Book, before: str) -> None:
        """`before`: the topic that it asks about on its connection before it follows."""
        self.name = f"follower {number}"
        self.topic = topic
        self.book = book
        self.before = before
        self.last: dict[int, int] = {}  # offsets, by partition
        self.last_id = ""
        self.reads = True
        self.slow = self.killed = self.excused = False
        self.refusals = 0
        self.begins_ms = 0  # when it connects again

    def connect(self, connection: Connection, excused: bool) -> None:
        """Once more, from where it was."""
        self.excused = excused
        self.connection = connection
        self.killed = self.slow = False
        self.asked = self.book.next()
        self._came = bytearray()
        self.heads = 1 + bool(self.before)
        headers = ["host: 10.0.0.1:15555", "accept: text/event-stream"]
        headers.append(f"last-event-id: {self.last_id}" if self.last_id else "from: earliest")
        lines = [
            f"GET /{quote(self.topic.name)}?cmd=consume&envelope=json HTTP/1.1",
            *headers,
            "",
            "",
        ]
        if self.before:
            before = f"GET /{quote(self.before)}?cmd=query HTTP/1.1\r\nhost: 10.0.0.1:15555\r\n\r\n"
            connection.send(before.encode())
            self._lines = "\r\n".join(lines).encode()
        else:
            connection.send("\r\n".join(lines).encode())

    def move(self, random: Random, everything: bool = False) -> None:
        """What has come is read."""
        if not (everything or (self.reads and random.random() < 0.9)):
            return
        few = None if everything or random.random() < 0.8 else random.randint(1, 400)
        self._came += self.connection.receive(few)
        while self.heads:
            head, found, rest = bytes(self._came).partition(b"\r\n\r\n")
            if not found:
                return
            if not head.startswith(b"HTTP/1.1 200 "):
                self.refused(head)
                return
            size = 0
            for line in head.split(b"\r\n"):
                if line.startswith(b"content-length: "):
                    size = int(line[16:])
            if len(rest) < size:
                return
            self._came[:] = rest[size:]
            self.heads -= 1
            if self.heads:
                self.connection.send(self._lines)
        *events, rest = bytes(self._came).split(b"\n\n")
        self._came[:] = rest
        for event in events:
            self._take(dict(line.partition(b": ")[::2] for line in event.split(b"\n")))

    def refused(self, head: bytes) -> None:
        """It is not served: a worker is gone, or there are too many."""
        status = head.split()[1]
        self.book.check(status in (b"503", b"429"), f"{self.name} is answered {head!r}")
        self.connection.reset()
        self.refusals += 1
        self.begins_ms = self.book.now_ms() + 1_000

    def _take(self, event: dict[bytes, bytes]) -> None:
        if b"id" in event:
            self.last_id = event[b"id"].decode()
        if event.get(b"event"):
            self.book.check(event[b"event"] == b"end", f"{self.name} is told {event}")
            return
        if b"data" not in event:
            return
        data = msgspec.json.decode(event[b"data"])
        place: Place = data.get("partition", 0), data["offset"]
        expected = self.last.get(place[0], -1) + 1
        name = f"{self.name} of {self.topic.name}"
        self.book.check(place[1] == expected, f"{name} got {place} instead of {expected}")
        self.book.found(self.topic, place, data["body"])
        self.last[place[0]] = place[1]

    def missing(self) -> list[Place]:
        """What is there and did not come."""
        return [place for place in self.topic.places if place[1] > self.last.get(place[0], -1)]
