"""What the verbs of this dialect are given: the dialect around them, and the request."""

from __future__ import annotations

from typing import Final, Protocol

from zbus.core.api import Broker
from zbus.dialects.mqcloud.ids import Ids
from zbus.dialects.mqcloud.locks import Locks
from zbus.dialects.mqcloud.registry import Registry
from zbus.dialects.mqcloud.replies import FAILED, JSON, Reply, encode
from zbus.dialects.mqcloud.settings import MqcloudSettings
from zbus.edge.access import Needs
from zbus.edge.connection import Connection, Plan
from zbus.edge.guard import Answer, Guard
from zbus.edge.http_reply import PlainHead, Tell
from zbus.wire.heads.heads import Head

BROKER: Final = "zbus"
"""`brokerName`: there is one."""

_CLIENT_LENGTH_MAX: Final = 64


class Context(Protocol):
    """One broker, and what the requests of this dialect share around it."""

    broker: Broker
    settings: MqcloudSettings
    registry: Registry
    locks: Locks
    ids: Ids


class Request(PlainHead):
    """A head of this dialect, as its verbs know it."""

    operation: str = ""  # that a token must be granted

    def __init__(self, head: Head, guard: Guard, dialect: Context) -> None:
        super().__init__(head, guard)
        self.dialect = dialect

    def reply(self, peer: Connection) -> Reply:
        return Reply(self, peer)

    def forbid(self, why: str, known: bool) -> Plan:
        text = why or ("this token may not do that" if known else "this needs a known token")
        body = encode({"status": FAILED, "message": f"403: {text}"}).decode()
        return Tell(self, Answer(403, body, JSON))

    def may(self, peer: Connection, topic: str, group: str = "", whole: bool = False) -> bool:
        """Whether the caller may do this to the topic, or to `whole` of it, which is all its
        groups, and make it to produce into; if not it is answered."""
        grant = peer.grant
        groups = (group,) if group else ()
        also = None
        if self.operation == "produce" and self.dialect.broker.topic(topic) is None:
            also = Needs("declare", topic)
        if grant is None or Needs(self.operation, topic, groups, whole, also=also).met_by(grant):
            return True
        self.forbid("", known=True).run(peer, b"", b"")
        return False

    def client_ip(self, peer: Connection, given: bytes) -> str:
        """The address of the client, or what it gives as such: it is only shown to people."""
        if address := given.strip():
            return address.decode("utf-8", "replace")[:_CLIENT_LENGTH_MAX]
        return peer.address.rpartition(":")[0]
