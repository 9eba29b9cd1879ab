"""`semq_send`: a message is forwarded, or stored, or refused; the answer says which.

    a row of its MID is stored       Ack-Save again, and nothing else
    its node is online               forwarded: Ack-Fwd (level 3: unless all is to be stored)
    it is not, level 2 and 3         stored: Ack-Save, when that is durable
    it is not, level 1               404, offline
    its node is unknown              404, unknown

A forward into a connection that does not take what it is sent is none: then its node counts as
offline. What is for `0:1/<topic>` is put into that topic, by its MID once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zbus.core.api import Duplicate, Outcome, Stored, Topic, make_row, topic_unknown
from zbus.dialects.semq.context import OFFLINE, UNKNOWN, Refused, SemqCall, SemqContext, SemqReply
from zbus.dialects.semq.dead import EXPIRED
from zbus.dialects.semq.frames import PLATFORM_LINE, encode_push, lines_of, passed_on
from zbus.dialects.semq.links import Link
from zbus.dialects.semq.mailboxes import MARK, PREFIX, Mailbox
from zbus.semq.protocol.fields import ENVELOPE
from zbus.semq.protocol.words import (
    MAILBOX,
    PLATFORM,
    AckFlag,
    Address,
    Envelope,
    Fields,
    Hop,
    Level,
    Malformed,
    read_address,
    read_envelope,
)
from zbus.wire.heads.header_names import PREFIX as HEADER_PREFIX

_LINES_MAX: Final = 40

_TOLD: Final = ("lk0", "epoch", "stream", "seq", "attempt", "app_key")


class SendReply(SemqReply):
    """Ack-Fwd or Ack-Save."""

    __slots__ = ("answered", "confirm")

    def __init__(self, call: SemqCall, given: Mapping[str, str], envelope: Envelope | None) -> None:
        super().__init__(call.asked, call.peer, call.id)
        self.answered = _answered(given, envelope)
        self.confirm: _Confirm | None = None  # Ack2, of the platform itself

    def acked(self, flag: AckFlag) -> None:
        self.ok({"ack_flag": "1", "flag": str(int(flag)), **self.answered})

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Stored | Duplicate):
            self.acked(AckFlag.SAVED)
            if self.confirm is not None:
                self.confirm.push()
        else:
            super().answer(outcome)


def _answered(given: Mapping[str, str], envelope: Envelope | None) -> dict[str, str]:
    """What the answer repeats, and where its asker finds the row that it is about."""
    echo = {name: given[name] for name in _TOLD if given.get(name)}
    if envelope is not None and envelope.lk0 is not None:
        echo |= envelope.lk0.place.fields("src_")
    return echo


def send(call: SemqCall) -> None:
    """`semq_send`."""
    context, fields = call.context, call.fields
    numbered = bool(fields.text("lk0") or fields.text("seq"))
    level = fields.number("savefwd", Level.STORE, Level.DROP, Level.ARRIVE)
    whole = numbered or level != Level.STORE or fields.flag("ack2")
    whole = whole or not fields.flag("reliable", True)
    source = call.source() if whole or call.link is not None or fields.text("src") else ""
    destination = destination_of(call.given)
    given = {**call.given, "dst": str(destination)}
    if source and not fields.text("src"):
        given["src"] = source
    if call.link is None and fields.text("seq") and not fields.text("lk0"):
        given["lk0"] = f"{source}/1/1/{fields.text('seq')}"  # it may have no rows at all
    envelope = None
    if whole:
        envelope = read_envelope(given)
        if envelope.mid is not None:
            given["stream"] = str(int(envelope.mid.stream))
    most = min(context.body_bytes_max, context.links.size_max(destination.node))
    if len(call.body) > most:
        raise Refused(413, "too-large", f"a message to {destination.node} has at most {most} bytes")
    call.peer.work -= len(call.body) >> 11
    if destination.node == PLATFORM:
        _to_topic(call, destination, given, envelope)
        return
    mailbox = context.mailboxes.find(destination.node)
    if mailbox is None and context.mailboxes.is_missing(destination.node):
        raise Refused(503, "full", f"the mailbox of {destination.node} could not be made yet")
    if mailbox is None:
        raise Refused(404, UNKNOWN, f"unknown node {destination.node}")
    context.links.watch(call.link, destination.node)
    reply = SendReply(call, given, envelope)
    if envelope is None:
        _save(context, reply, mailbox, "", _unnumbered(given), call.body)
        return
    stored = None
    if envelope.mid is not None and envelope.level > Level.DROP:
        stored = mailbox.find(envelope.mid)
    always = envelope.level == Level.ARRIVE and context.settings.semq_store_always
    late = 0 < envelope.expires_ms <= context.broker.now_ms and not envelope.void
    if late and stored is None:
        status = 404 if envelope.level == Level.DROP else 410
        reply.refuse(status, EXPIRED, "the message has expired", lines_of(reply.answered))
    elif stored is None and not always and _forward(context, envelope, given, call.body):
        reply.acked(AckFlag.FORWARDED)
    elif envelope.level == Level.DROP:
        why = f"{destination.node} is not online"
        reply.refuse(404, OFFLINE, why, lines_of({"dst": given["dst"], **reply.answered}))
    else:
        lines = MARK + passed_on(given)
        id = mailbox.id_of(envelope.numbered)
        _save(context, reply, mailbox, id, lines, call.body, known=stored is not None)


def _unnumbered(given: Mapping[str, str]) -> bytes:
    """The header lines of what the platform numbers: it is a message of the platform, and of who
    sent it there is left what has been checked."""
    kept = {name: given[name] for name in given if name not in ENVELOPE}
    kept.pop("origin_src", None)
    if "src" in kept:
        kept["origin_src"] = kept.pop("src")
    return passed_on(kept)


def destination_of(given: Mapping[str, str]) -> Address:
    """Where a message is to go: as `dst` says, and `topic` if that is not there."""
    text, topic = given.get("dst", ""), given.get("topic", "")
    if not text and topic.startswith(MAILBOX):
        text = topic[len(MAILBOX) :]
    if not text:
        raise Malformed("dst is missing")
    address = read_address(text)
    if topic.startswith(MAILBOX) and topic[len(MAILBOX) :] != address.node:
        raise Malformed(f"topic is {MAILBOX}{address.node}, as dst says, or left out")
    return address


def _save(
    context: SemqContext,
    reply: SemqReply,
    mailbox: Mailbox,
    id: str,
    lines: bytes,
    body: bytes,
    *,
    known: bool = False,
) -> None:
    """Store a row, or wait until the one that is there is durable."""
    most = context.settings.semq_rows_max
    if mailbox.partition.fenced is not None:
        reply.settle(mailbox.partition.fenced)
    elif not known and mailbox.row_count() >= most:
        text = f"{most} messages are stored for {mailbox.node} already"
        reply.refuse(429, "too-many", text, b"retry-after: 1\r\n")
    else:
        context.mailboxes.put(mailbox, reply, id, lines, body)


def _forward(context: SemqContext, envelope: Envelope, given: dict[str, str], body: bytes) -> bool:
    """Send a fresh copy to the node; False if it is not online, or takes nothing."""
    fields = Fields(given)
    semq_id = fields.number("semq_id", 1) if fields.flag("fixed") else None
    for link in context.links.instance(envelope.destination.node, semq_id)[:1]:
        if link.takes and (envelope.reliable or not link.peer.out_bytes):
            context.links.push(link, encode_push("semq_deliver", passed_on(given), body))
            return True
    return False


# -- topics -------------------------------------------------------------------------------------


class _Confirm:
    """Ack2 of the platform: the message is durable where it was to go."""

    __slots__ = ("_context", "_fields", "_link")

    def __init__(
        self, context: SemqContext, link: Link, source: str, answered: dict[str, str]
    ) -> None:
        self._context = context
        self._link = link
        self._fields = {**answered, "dst": source, "ack_flag": str(int(Hop.SOURCE))}
        self._fields["dest_ref_id"] = "0"

    def push(self) -> None:
        links = self._context.links
        if self._link in links.online(self._link.node) and self._link.takes_control:
            lines = PLATFORM_LINE + lines_of(self._fields)
            links.push(self._link, encode_push("semq_ack", lines))


def _to_topic(
    call: SemqCall, destination: Address, given: dict[str, str], envelope: Envelope | None
) -> None:
    """Put a message into a topic, as any dialect does."""
    context, name = call.context, destination.user
    if not name:
        raise Malformed(f"{PLATFORM} has topics: {PLATFORM}/<topic>")
    if name.lower().startswith(PREFIX):
        raise Refused(409, "conflict", f"{name} is SEMQ's own: a mailbox is addressed by its node")
    topic = context.broker.topic(name)
    if topic is None:
        call.reply().settle(topic_unknown(name))
        return
    problem = _problem(topic, envelope)
    if problem:
        raise Refused(409, "conflict", problem)
    reply = SendReply(call, given, envelope)
    if envelope is not None and envelope.void:
        reply.acked(AckFlag.SAVED)  # there is nothing to put, and no stream to keep whole
        return
    if envelope is not None and envelope.ack2 and call.link is not None:
        reply.confirm = _Confirm(context, call.link, call.link.node, reply.answered)
    lines = passed_on({name: given[name] for name in given if name not in ENVELOPE})
    _check_lines(lines, context.settings.message_headers_bytes_max)
    id = b"" if envelope is None or envelope.mid is None else str(envelope.mid).encode()
    expires_ms = 0 if envelope is None else envelope.expires_ms
    partition = topic.partition_for(id)
    if partition.fenced is not None:
        reply.settle(partition.fenced)
    else:
        row = make_row(id, lines, call.body, expires_ms=expires_ms)
        context.broker.put(partition, reply, row)


def _check_lines(lines: bytes, bytes_max: int) -> None:
    """Refuse more than a message of a topic may have: other dialects deliver it, too."""
    count = lines.count(b"\r\n")
    used_bytes = len(lines) + count * len(HEADER_PREFIX)
    if count > _LINES_MAX or used_bytes > bytes_max:
        text = (
            f"a message of a topic has at most {_LINES_MAX} header lines, and {bytes_max} bytes of"
            f" them (option message_headers_bytes_max), not {count} with {used_bytes}"
        )
        raise Refused(431, "too-large", text)


def _problem(topic: Topic, envelope: Envelope | None) -> str:
    """Why it cannot be put there."""
    if topic.options.calls:
        return f"{topic.name} is a topic of services: its replies could not be routed"
    must_arrive = envelope is not None and envelope.level == Level.ARRIVE
    if must_arrive and not topic.options.remembers_ids:
        text = "keeps no ids (dedupe_ms), so a retry would be stored twice"
        return f"{topic.name} {text}: declare it with dedupe_ms, or send with savefwd 2"
    return ""
