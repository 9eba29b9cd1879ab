"""The smallest dialect: `POST /toy/<topic>` puts, `GET /toy/<topic>` waits for a message.

It shows what a dialect has to say for itself, and that all the rest is done for it. Its topics and
groups are declared by others.
"""

from __future__ import annotations

from zbus.core.api import Delivered, Empty, Outcome, Stored, make_row, topic_unknown
from zbus.dialects.zbus.request.header_lines import plain
from zbus.edge.access import Needs
from zbus.edge.connection import Connection, Plan
from zbus.edge.dialect import Parts
from zbus.edge.guard import Answer
from zbus.edge.http_reply import TEXT, HttpDialect, PlainHead, PlainPull, PlainReply, Tell
from zbus.edge.places import AtTopic, Place
from zbus.wire.heads.heads import Head
from zbus.wire.target import split_target

WAIT_MS = 30_000


class ToyDialect(HttpDialect):
    prefixes = frozenset((b"toy",))

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def read(self, head: Head) -> ToyRequest:
        return ToyRequest(head, self.parts)


class ToyRequest(PlainHead):
    def __init__(self, head: Head, parts: Parts) -> None:
        super().__init__(head, parts.guard)
        segments = split_target(head.target)[0]
        self.broker = parts.broker
        self.topic = segments[1].decode("latin-1") if len(segments) == 2 else ""
        self.puts = head.method == b"POST"

    def changes(self) -> bool:
        return True  # a pull takes a message, too

    def needs(self) -> Needs:
        return Needs("produce" if self.puts else "consume", self.topic, (self.topic,))

    def place(self) -> Place:  # which process does it, if a server has several
        return AtTopic(self.topic) if self.topic else None

    def plan(self) -> Plan:
        if not self.topic or self.head.method not in (b"GET", b"POST"):
            return Tell(self, Answer(400, "400: POST or GET /toy/<topic>", TEXT))
        return self

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        topic = self.broker.topic(self.topic)
        if topic is None or not topic.groups:
            PlainReply(self, peer).settle(topic_unknown(self.topic))
        elif self.puts:
            partition, id = topic.partitions[0], self.broker.new_id()
            self.broker.put(partition, ToyPut(self, peer), make_row(id, b"", body))
        else:
            group = next(iter(topic.groups.values()))
            self.broker.pull(group, ToyPull(self, peer), self.broker.now_ms + WAIT_MS)


class ToyPut(PlainReply):
    __slots__ = ()

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Stored):
            self.respond(200, TEXT, b"%d" % self.offset)
        else:
            super().answer(outcome)


class ToyPull(PlainPull):
    __slots__ = ()

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Delivered):
            _, chunk, at, _, _ = outcome.pieces[0]
            self.respond(200, plain(chunk.headers[at]), chunk.bodies[at])
        elif isinstance(outcome, Empty):
            self.respond(204)
        else:
            super().answer(outcome)
