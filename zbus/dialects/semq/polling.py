"""`semq_poll`: nodes without a connection of their own fetch what is stored for them."""

from __future__ import annotations

from typing import Final

from zbus.core.api import BrokerError, Delivered, Empty, EmptyReason, Outcome, Pull, PullOptions
from zbus.dialects.semq.context import SemqCall, SemqContext, SemqReply
from zbus.dialects.semq.mailboxes import Mailbox
from zbus.dialects.semq.rows import delivery_lines
from zbus.edge.rights import admit_reader
from zbus.semq.protocol.words import Malformed, read_node

POLLS_MAX: Final = 100
"""Of one connection, at a time."""

WAIT_S_MAX: Final = 300

_PASSED_MAX: Final = 100
"""Rows that one poll passes over."""


class Polled(SemqReply):
    """What a poll is answered."""

    __slots__ = ()

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self.respond_refusal(outcome)
        else:
            stopping = isinstance(outcome, Empty) and outcome.reason is EmptyReason.STOPPING
            self.answer_with(503 if stopping else 204, b"")


class Poll(Pull):
    """`semq_poll`: one row, as the answer. It comes again if it is not confirmed within the
    interval: there is no client to ask. What is put by instead is passed over."""

    __slots__ = ("_context", "_left", "_node", "_reply", "_until_ms")

    def __init__(
        self, context: SemqContext, reply: Polled, node: str, until_ms: int, left: int = _PASSED_MAX
    ) -> None:
        super().__init__(reply.peer, PullOptions(lease_ms=context.settings.semq_interval_ms))
        self._context = context
        self._reply = reply
        self._node = node
        self._until_ms = until_ms
        self._left = left
        reply.peer.open_waits += 1

    def ask(self, mailbox: Mailbox) -> None:
        peer = self._reply.peer
        self._context.broker.pull(mailbox.group, self, self._until_ms)
        admit_reader(peer, mailbox.group, peer.asker)

    def settle(self, outcome: Outcome) -> None:
        self._reply.peer.open_waits -= 1
        super().settle(outcome)

    def failed(self, error: Exception) -> None:
        self._reply.failed(error)

    def answer(self, outcome: Outcome) -> None:
        context, mailbox = self._context, self._context.mailboxes.find(self._node)
        if not isinstance(outcome, Delivered) or mailbox is None:
            self._reply.settle(outcome)
            return
        chunk, at = outcome.pieces[0].chunk, outcome.pieces[0].start
        if not context.dead.is_late(chunk.headers[at]):
            lines = b"cmd: semq_deliver\r\n" + delivery_lines(mailbox, chunk, at)
            self._reply.answer_with(200, lines, chunk.bodies[at])
            return
        context.dead.bury(mailbox, chunk, at)
        if self._left:
            again = Poll(context, self._reply, self._node, self._until_ms, self._left - 1)
            again.ask(mailbox)
        else:
            self._reply.answer_with(204, b"")


def poll(call: SemqCall) -> None:
    """`semq_poll`."""
    context, fields = call.context, call.fields
    node = read_node(fields.text("node") or call.source())
    call.refuse_platform(node)
    if call.link is not None:
        raise Malformed(
            "this connection has sent semq_hello: messages are pushed to it, polling is refused"
        )
    wait_s = fields.number("wait", 0, 0, WAIT_S_MAX)
    peer = call.peer
    if peer.open_waits >= POLLS_MAX:
        call.reply().refuse(429, "too-many", f"a connection has at most {POLLS_MAX} polls")
        return

    mailbox = context.mailboxes.ensure(node)
    if isinstance(mailbox, BrokerError):
        call.reply().settle(mailbox)
        return
    reply = Polled(call.asked, peer, call.id)
    Poll(context, reply, node, context.broker.now_ms + wait_s * 1_000).ask(mailbox)
