"""Pulls that wait. A WebSocket may have hundreds of thousands, so its own hold little."""

from __future__ import annotations

from zbus.core.api import BrokerError, Delivered, Empty, EmptyReason, Outcome, Pull
from zbus.dialects.adf import actions
from zbus.dialects.adf.forms import LENGTH_MAX
from zbus.dialects.adf.queues import messageid
from zbus.dialects.adf.request import AdfRequest, HttpAsked
from zbus.dialects.adf.scope import Held, Scope
from zbus.edge.connection import Connection
from zbus.edge.http_reply import LatePull


def encoded(
    asked: AdfRequest, scope: Scope, id: bytes, peer: Connection, outcome: Outcome
) -> bytes:
    """The reply to a pull; from here on `scope` knows what it was given."""
    del scope[id]
    if isinstance(outcome, Delivered):
        group = outcome.group
        index, chunk, at, _, attempts = outcome.pieces[0]
        offset, body = chunk.first + at, chunk.bodies[at]
        partition = group.topic.partitions[index]
        if len(body) > asked.form.body_bytes_max:  # put by others, or pushed as JSON
            asked.context.broker.lose(group, partition, offset, peer.id)
            return asked.form.failed(id, actions.BODY_TOO_LONG)
        scope[id] = Held(group, partition, offset, attempts, peer.id)
        first = asked.context.settings.adf_first_duplications
        duplications = min(max(attempts - 1, 0) + first, LENGTH_MAX)
        return asked.form.message(id, body, duplications, messageid(partition, offset))
    if isinstance(outcome, BrokerError):
        return asked.form.failed(id, actions.text_of(outcome))
    assert isinstance(outcome, Empty)
    stopping = outcome.reason is EmptyReason.STOPPING
    return asked.form.failed(id, actions.SERVER_BUSY if stopping else actions.TIMEOUT)


class FramePull(Pull):
    """Of a WebSocket: it is answered when it is served, whatever was asked before it."""

    __slots__ = ("asked", "id", "scope")

    session: Connection

    def __init__(self, asked: AdfRequest, peer: Connection, id: bytes, scope: Scope) -> None:
        super().__init__(peer, asked.wants)
        self.asked = asked
        self.id = id
        self.scope = scope
        peer.open_tickets += 1
        peer.open_waits += 1

    def settle(self, outcome: Outcome) -> None:
        peer = self.session
        peer.open_tickets -= 1
        peer.open_waits -= 1
        super().settle(outcome)

    def answer(self, outcome: Outcome) -> None:
        peer = self.session
        peer.write(encoded(self.asked, self.scope, self.id, peer, outcome))


class HttpPull(LatePull):
    """Of HTTP."""

    __slots__ = ("reply", "requestid", "scope")

    asked: HttpAsked

    def __init__(self, asked: HttpAsked, peer: Connection, id: bytes, scope: Scope) -> None:
        self.reply = asked.context.leases.asked(peer, id)
        super().__init__(asked, peer, asked.wants, asked.lines)
        self.requestid = id
        self.scope = scope

    def answer(self, outcome: Outcome) -> None:
        peer, id = self.peer, self.requestid
        message = encoded(self.asked, self.scope, id, peer, outcome)
        held = self.scope.get(id)
        if isinstance(held, Held):
            self.reply.held = held
            self.asked.context.leases.began(id, self.asked.lease_ms)
        self.respond_late(message)
        if self.data is None and self.reply.mark < 0:
            self.written()

    def written(self) -> None:
        self.reply.mark = self.peer.output_mark()

    def drop(self) -> None:
        super().drop()
        del self.scope[self.requestid]
