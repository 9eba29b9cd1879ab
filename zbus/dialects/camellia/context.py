"""What the verbs of this dialect are given: the dialect around them, and the request."""

from __future__ import annotations

from typing import Protocol

from zbus.core.api import Broker
from zbus.dialects.camellia.health import Health
from zbus.dialects.camellia.monitor import Monitor
from zbus.dialects.camellia.parking import Parking
from zbus.dialects.camellia.queues import Queues
from zbus.dialects.camellia.replies import JSON, Reply, framework_error
from zbus.dialects.camellia.settings import CamelliaSettings
from zbus.edge.access import Needs
from zbus.edge.connection import Connection
from zbus.edge.guard import Guard
from zbus.edge.http_reply import PlainHead, PlainReply
from zbus.wire.heads.heads import Head


class Context(Protocol):
    """One broker, and what the requests of this dialect share around it."""

    broker: Broker
    settings: CamelliaSettings
    queues: Queues
    monitor: Monitor
    parking: Parking
    health: Health


class Request(PlainHead):
    """A head of this dialect, as its verbs know it."""

    operation: str | None = None  # that a token must be granted; None = no token is asked for

    def __init__(self, head: Head, guard: Guard, dialect: Context) -> None:
        super().__init__(head, guard)
        self.dialect = dialect

    def may(self, peer: Connection, topic: str) -> bool:
        """Whether the caller may do this to the topic; if not it is answered."""
        grant, operation = peer.grant, self.operation
        if grant is None or operation is None:
            return True
        groups = () if operation == "produce" else (topic,)
        also = None
        if operation == "produce" and self.dialect.queues.find(topic) is None:
            also = Needs("declare", topic)
        if Needs(operation, topic, groups, also=also).met_by(grant):
            return True
        self.forbid("", known=True).run(peer, b"", b"")
        return False

    def reply(self, peer: Connection, empty: str = "") -> Reply:
        """A ticket; `empty` is the key that is null in a refusal."""
        reply = Reply(self, peer)
        reply.empty = empty
        return reply

    def refuse_early(self, peer: Connection, status: int, text: str, lines: bytes = b"") -> None:
        """What the original's framework would refuse."""
        path = self.head.target.partition(b"?")[0]
        body = framework_error(status, text, path, self.dialect.broker.now_ms)
        PlainReply(self, peer).respond(status, JSON + lines, body)
