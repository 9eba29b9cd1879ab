"""An endpoint of SEMQ: what happens changes the database, and then something is to be done.

A step is one transaction (`zbus.semq.endpoint.events`). All that it wants said waits for the
commit: so a row is written before it is sent, and before it is confirmed, whatever ends in between
(specification, section 10). A step that cannot be committed has not happened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from zbus.semq.endpoint.context import Context, EndpointOptions
from zbus.semq.endpoint.events import (
    Came,
    Closed,
    Done,
    Effect,
    Event,
    Frame,
    Happened,
    Left,
    Manage,
    Opened,
    Refused,
    Submit,
    Submitted,
    Take,
    Unreachable,
)
from zbus.semq.endpoint.inbox import Inbox
from zbus.semq.endpoint.inquiries import Asking
from zbus.semq.endpoint.links import Link, Links
from zbus.semq.endpoint.managing import Managing, problem_of
from zbus.semq.endpoint.outbox import ROW_BYTES, Outbox
from zbus.semq.endpoint.received_ids import ReceivedIds
from zbus.semq.endpoint.schema import StoreError, prepare
from zbus.semq.protocol.words import PLATFORM, Level, Malformed, read_envelope, read_node

__all__ = ["Endpoint", "EndpointOptions", "StoreError"]

_RETRY_MS: Final = 1_000
"""What could not be written is tried again that much later."""

_BACKWARDS_MS: Final = 1_000
"""A clock that went back by more than this was set."""

_DUES: Final = """
SELECT min(next_time) FROM tb_0030 WHERE next_time IS NOT NULL
UNION ALL SELECT min(next_time) FROM tb_0031 WHERE ss_status = 'SS_SENT'
UNION ALL SELECT min(next_time) FROM tb_0031 WHERE ss_status = 'SS_ACK_FWD'
UNION ALL SELECT min(next_time) FROM tb_0031 WHERE ss_status = 'SS_ACK'
UNION ALL SELECT min(next_time) FROM tb_0031 WHERE ss_status = 'SS_INIT' AND next_time > ?
UNION ALL SELECT min(expires) FROM tb_0031 INDEXED BY tb_0031_expires
  WHERE expires > 0 AND ss_status IN ('SS_INIT', 'SS_SENT', 'SS_ACK_FWD')
"""
"""When something is due for a row: each part is one look into an index."""


class Endpoint:
    """`renewed`: the database is not what this node has had last, but for instance
    a backup; its messages are of a new epoch. Raises StoreError if it cannot be used."""

    def __init__(
        self,
        database: sqlite3.Connection,
        options: EndpointOptions,
        random: Random,
        renewed: bool = False,
    ) -> None:
        epoch = prepare(database, random, options.node, renewed)
        self._database = database
        self._options = options
        self._context = context = Context(database, options, random, epoch)
        self._links = Links(context)
        self._ledger = ReceivedIds(context)
        try:
            self._outbox = Outbox(context, self._links)
            self._inbox = Inbox(context, self._links, self._ledger)
        except sqlite3.Error as error:
            raise StoreError(f"the database cannot be used: {error}") from error
        self._asking = Asking(context, self._links, self._outbox, self._inbox)
        self._managing = Managing(context, self._links, self._outbox, self._inbox)
        self._due_ms: int | None = None
        self._commands: dict[str, Callable[[Link, str, Frame], None]] = {
            "semq_send": self._message,
            "semq_deliver": self._message,
            "semq_ack": lambda _, node, frame: self._asking.acked(node, frame.fields),
            "semq_reack": lambda _, node, frame: self._asking.reacked(node, frame.fields),
            "semq_inquiry": lambda _, node, frame: self._asking.asked(node, frame.fields),
            "semq_inquiry_resp": lambda _, node, frame: self._asking.answered(node, frame.fields),
            "semq_presence": self._presence,
        }
        self._handlers: dict[type, Callable[..., None]] = {
            Opened: self._links.opened,
            Came: self._came,
            Closed: lambda event: self._lost(self._links.closed(event.link)),
            Unreachable: lambda event: self._links.failed(event.node),
            Submit: self._submit,
            Take: self._inbox.take,
            Left: lambda event: self._inbox.left(event.holder),
            Done: lambda event: self._inbox.done(event.ask, event.row),
            Manage: self._managing.do,
        }

    @property
    def epoch(self) -> str:
        """Of its messages: 16 hexadecimal digits."""
        return self._context.epoch

    def next_due(self) -> int | None:
        """When a step is due though nothing has happened: milliseconds of the clock of
        `step`. None: never."""
        return self._due_ms

    def step(self, now_ms: int, events: Sequence[Event]) -> list[Effect]:
        """All of this happens, and it is that time. What is returned is to be done now. Raises
        StoreError if it cannot be made durable; then nothing of it has happened."""
        context, database = self._context, self._database
        back = now_ms < context.now_ms - _BACKWARDS_MS
        context.begin(now_ms)
        try:
            database.execute("BEGIN IMMEDIATE")
            if back:
                self._asking.clock_went_back()
            for event in events:
                self._handlers[type(event)](event)
            self._due()
            self._inbox.hand_over()
            self._inbox.acknowledge()
            self._outbox.send()
            self._ledger.write()
            self._outbox.write()
            due_ms = self._next_due()
            database.execute("COMMIT")
        except sqlite3.Error as error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            self._ledger.forget()
            self._outbox.forget()
            self._inbox.forget()
            context.give_up()
            self._due_ms = now_ms + _RETRY_MS
            raise StoreError(f"the database cannot be written: {error}") from error
        self._due_ms = due_ms
        effects, context.effects = context.effects, []
        context.undo.clear()
        return effects

    # -- time ---------------------------------------------------------------------------------

    def _due(self) -> None:
        """What is to be done at this time."""
        for link in self._links.look_after():
            self._lost(link)
        self._outbox.expire()
        self._outbox.wake()
        self._asking.ask()
        self._managing.alarm()

    def _next_due(self) -> int | None:
        if self._outbox.goes_on:
            return self._context.now_ms
        dues = [self._links.due_ms(), self._managing.due_ms()]
        dues += [due_ms for (due_ms,) in self._context.execute(_DUES, (self._context.now_ms,))]
        return min((due_ms for due_ms in dues if due_ms is not None), default=None)

    # -- links --------------------------------------------------------------------------------

    def _lost(self, link: Link | None) -> None:
        """A link that was ready is no more: what was on its way there is asked for when there is
        another one."""
        if link is not None and not link.direct:
            for peer in list(self._links.peers):
                self._asking.wake(peer)

    def _came(self, event: Came) -> None:
        link = self._links.all.get(event.link)
        if link is None:
            return
        frame = event.frame
        link.heard_ms = self._context.now_ms
        try:
            if frame.command in ("", "semq_hello") or not link.ready:
                self._greeted(link, frame)
            elif frame.command == "semq_bye":
                self._bye(link, frame.fields.get("reason", ""))
            elif (command := self._commands.get(frame.command)) is not None:
                node = self._source(link, frame)
                self._asking.heard(node)
                command(link, node, frame)
        except Malformed as error:
            self._refuse(link, frame, str(error))

    def _bye(self, link: Link, reason: str) -> None:
        if reason == "replaced" and not link.direct:
            text = f"another program says that it is {self._options.node}, too"
            self._managing.complain(PLATFORM, text)
            self._context.effects.append(Happened("alarm", 0, text))
        self._lost(self._links.close(link, f"it says bye: {reason}"))

    def _refuse(self, link: Link, frame: Frame, text: str) -> None:
        """What cannot be. The platform is believed to know better next time; another endpoint that
        is not certain yet is let go."""
        self._managing.complain(link.node, text)
        if not link.ready:
            self._links.close(link, text)
        elif link.direct and frame.command == "semq_send":
            id = {"id": frame.fields["id"]} if frame.fields.get("id") else {}
            self._context.send_frame(link.number, {**id, "reason": "malformed"}, text.encode(), 400)

    def _source(self, link: Link, frame: Frame) -> str:
        """The node that says it. Of another endpoint only what is its own is believed."""
        if link.direct:
            claimed = frame.fields.get("src", link.node).partition("/")[0]
            if claimed != link.node:
                raise Malformed(f"this is a link with {link.node}, and not with {claimed[:80]}")
            return link.node
        return read_node(frame.fields.get("src", PLATFORM).partition("/")[0])

    def _greeted(self, link: Link, frame: Frame) -> None:
        """Hello, and answers of whatever was asked."""
        id = frame.fields.get("id", "")
        if not link.direct and not link.ready:
            # A hello that came twice is refused as a conflict, beside the answer of the first.
            answers = id == "hello" and frame.status not in (0, 409)
            if answers and self._links.welcomed(link, frame):
                self._asking.wake(PLATFORM)
        elif frame.command == "semq_hello":
            if self._links.greeted(link, frame):
                self._asking.wake(link.node)
        elif not link.direct and id[:1] == "m":
            self._asking.heard(PLATFORM)
            self._outbox.answered(link, frame)
        elif not link.direct and id[:1] == "l":
            self._links.found(frame)
        elif not link.direct and frame.fields.get("reason") == "offline":
            if node := frame.fields.get("dst"):  # what was dropped at level 1 has none
                self._links.presence(read_node(node), online=False)
        elif not link.direct and not id and frame.status in (400, 401, 403):
            self._managing.complain(PLATFORM, frame.text)
            self._lost(self._links.close(link, f"the platform refuses a frame: {frame.text}"))
        elif not link.ready:
            raise Malformed("a link begins with semq_hello")

    def _presence(self, link: Link, node: str, frame: Frame) -> None:
        if link.direct or node != PLATFORM:
            raise Malformed("presence is the platform's to say")
        peer = read_node(frame.fields.get("node", ""))
        online = frame.fields.get("state") == "online"
        self._links.presence(peer, online)
        if online:
            self._asking.wake(peer)

    # -- messages -----------------------------------------------------------------------------

    def _message(self, link: Link, node: str, frame: Frame) -> None:
        """`semq_deliver` of the platform, and `semq_send` of another endpoint."""
        envelope = read_envelope(frame.fields)
        if envelope.destination.node != self._options.node:
            raise Malformed(f"this is {self._options.node}, and not {envelope.destination.node}")
        if link.direct and (envelope.lk1 is not None or envelope.source.node != link.node):
            raise Malformed("a message that comes directly is its sender's own, and has no lk1")
        self._inbox.come(envelope, frame)

    def _submit(self, wish: Submit) -> None:
        problem = problem_of(wish, self._links.max_bytes, self._options.direct)
        size = ROW_BYTES + len(wish.body)
        if problem:
            self._context.effects.append(Refused(wish.ask, *problem))
        elif wish.level == Level.DROP and not wish.ack2:
            self._drop_or_send(wish)
        elif wish.destination.node == self._options.node:
            record, mid = self._outbox.put(wish, "SS_ACK2")
            self._inbox.deliver(wish, mid, record)
            self._context.effects.append(Submitted(wish.ask, record, mid.of_record(record)))
            if wish.ack2:
                self._context.effects.append(Happened("received", record, ""))
        elif self._outbox.bytes_used + size > self._options.outbox_bytes_max:
            text = f"the outbox is full: it holds {self._outbox.bytes_used} bytes"
            self._context.effects.append(Refused(wish.ask, 507, text))
        else:
            record, mid = self._outbox.put(wish)
            self._context.effects.append(Submitted(wish.ask, record, mid.of_record(record)))

    def _drop_or_send(self, wish: Submit) -> None:
        """Level 1: it has a way now, or is forgotten."""
        own, node = self._options.node, wish.destination.node
        if node == own:
            self._inbox.pass_inside(wish)
        else:
            fields = {"cmd": "semq_send", **wish.fields(own), "id": "d"}
            fields["reliable"] = str(int(wish.reliable))
            for way, link in self._links.routes(node).items():
                if wish.route in ("auto", way) and len(wish.body) <= link.max_bytes:
                    self._links.send_frame(link, fields, wish.body)
                    break
        self._context.effects.append(Submitted(wish.ask, 0, ""))
