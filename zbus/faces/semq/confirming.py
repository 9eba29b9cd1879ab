"""Confirmations and questions: what the platform does with those for itself, and with all others.

Control messages are stored nowhere, and nobody confirms them. One that is for another node is
passed on to its connection, to that of the instance whose row it is about, or its sender is told
that the node is offline. Whoever asks without having said hello, over plain HTTP, has the answer in
the reply; a connection of a node is pushed it.

    semq_ack            B has a row: SS_ACK if both LK1 and MID are its. ReAck in any case
    semq_inquiry send   A asks whether its message is stored: it is if a row of its MID is
    semq_inquiry ack    B asks whether its Ack has come: the question proves that B has the message
    semq_inquiry_resp   B answers the platform: SS_ACK, or SS_INIT and it is sent again
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zbus.core import single
from zbus.core.errors import BrokerError
from zbus.faces.semq.asking import show_ranges
from zbus.faces.semq.context import OFFLINE, UNKNOWN, Call, Context, Refused
from zbus.faces.semq.frames import PLATFORM_LINE, echoed, encode_push, lines_of, passed_on
from zbus.faces.semq.mailboxes import Mailbox, offset_of
from zbus.semq.words import (
    MAILBOX,
    PLATFORM,
    Fields,
    Hop,
    Malformed,
    Mid,
    PlatformLocator,
    Stream,
    read_locator,
    read_node,
    read_number,
    read_seqs,
)

_LOOKS_PER_WORK: Final = 2
"""Numbers that are looked up in about a microsecond."""


class About:
    """Which messages a control message is about: `seqs` of one stream, or one `seq`."""

    __slots__ = ("attempt", "mid", "ranges")

    def __init__(self, fields: Fields) -> None:
        store = read_locator(fields.required("lk0")).store
        stream = fields.number("stream", Stream.CONTIGUOUS, Stream.GAPS, Stream.CONTIGUOUS)
        seqs = fields.text("seqs")
        if seqs:
            self.ranges = read_seqs(seqs)
        else:
            seq = read_number("seq", fields.required("seq"), 1)
            self.ranges = [range(seq, seq + 1)]
        self.mid = Mid(store, fields.epoch(), stream, self.ranges[0].start)
        self.attempt = fields.number("attempt", 0)

    @property
    def single(self) -> bool:
        return len(self.ranges) == 1 and len(self.ranges[0]) == 1

    @property
    def count(self) -> int:
        return sum(len(numbers) for numbers in self.ranges)


def control(call: Call) -> None:
    """Any of them."""
    source, fields = call.source(), call.fields
    if call.body:
        raise Malformed("a control message has no body")
    target = fields.text("dst", PLATFORM).partition("/")[0]
    read_node(target)
    if target != PLATFORM:
        _pass_on(call, source, target)
        return
    command = call.said["cmd"]
    if command == "semq_reack":  # of what the platform has put into a topic: it waits for none
        _done(call)
        return
    about = About(fields)
    call.peer.work -= about.count // _LOOKS_PER_WORK
    match command:
        case "semq_ack":
            _ack(call, source, about)
        case "semq_inquiry":
            _inquiry(call, source, about)
        case _:
            _answered(call, source, about)


def _pass_on(call: Call, source: str, target: str) -> None:
    """To another node, unchanged."""
    face, links = call.face, call.face.links
    if face.mailboxes.find(target) is None:
        raise Refused(404, UNKNOWN, f"nobody knows the node {target}")
    links.watch(call.link, target)
    semq_id = _instance(call.said["cmd"], call.fields)
    found = [one for one in links.instance(target, semq_id) if one.takes_control]
    if not found:
        lines = lines_of({"dst": target, **echoed(call.said)})
        text = f"{target} is not online"
        call.reply().refuse(404, OFFLINE, text, lines)
        return
    said = {**call.said, "src": call.said.get("src") or source}
    links.push(found[-1], encode_push(call.said["cmd"], passed_on(said)))
    _done(call)


def _instance(command: str, fields: Fields) -> int | None:
    """The instance of its addressee whose row it is about, if that is said."""
    about_ack = fields.text("about") == "ack"
    match command:
        case "semq_ack":
            name = "src_semq_id"
        case "semq_reack":
            name = "dest_semq_id"
        case "semq_inquiry" if about_ack:
            name = "semq_id"
        case "semq_inquiry_resp" if not about_ack:
            name = "semq_id"
        case _:
            return None
    return fields.number(name, 0) or None


def _done(call: Call) -> None:
    """Nobody is answered, but whoever waits for a reply of HTTP."""
    if call.link is None:
        call.reply().ok({})


def _tell(call: Call, command: str, source: str, fields: Mapping[str, str]) -> None:
    """The answer, as a control message."""
    lines = PLATFORM_LINE + lines_of({"dst": source, **fields})
    if call.link is None:
        call.reply().say(200, b"cmd: %b\r\n%b" % (command.encode(), lines))
    else:
        call.face.links.push(call.link, encode_push(command, lines))


# -- the mailbox of whoever says it -------------------------------------------------------------


def _ack(call: Call, source: str, about: About) -> None:
    face, fields = call.face, call.fields
    hop = fields.number("ack_flag", Hop.PLATFORM, Hop.PLATFORM, Hop.SOURCE)
    if hop == Hop.PLATFORM:
        _confirmed(face, source, about, _locator(fields, "src_", "src_ref_id"))
    _tell(call, "semq_reack", source, echoed(call.said))


def _confirmed(face: Context, node: str, about: About, lk1: PlatformLocator | None) -> None:
    """A node has these. With an LK1 it must be that of the row, too."""
    mailbox = face.mailboxes.find(node)
    if mailbox is None:
        return
    found = [offset for _, offset in mailbox.find_all(about.mid, about.ranges)]
    offsets = [offset for offset in found if offset is not None]
    if lk1 is not None and about.single:
        offsets = [offset for offset in offsets if offset == offset_of(lk1)]
    face.mailboxes.acknowledge(mailbox, offsets)
    face.heard(node)


def _locator(fields: Fields, prefix: str, record: str) -> PlatformLocator | None:
    """An LK1 in three fields; None = it is not there."""
    if not fields.text(record):
        return None
    semq, db = fields.number(f"{prefix}semq_id", 1), fields.number(f"{prefix}semq_db_id", 1)
    return PlatformLocator(semq, db, fields.number(record, 0))


def _inquiry(call: Call, source: str, about: About) -> None:
    fields = call.fields
    kind = fields.required("about")
    if kind == "ack":
        _confirmed(call.face, source, about, _locator(fields, "", "ref_id"))
        _tell(call, "semq_inquiry_resp", source, {**echoed(call.said), "result": "1"})
    elif kind == "send":
        if about.mid.store.node != source:
            raise Refused(403, "forbidden", f"lk0 is none of {source}'s")
        _tell_stored(call, source, about)
    else:
        raise Malformed("about is send or ack")


def _tell_stored(call: Call, source: str, about: About) -> None:
    """Which of a node's messages are stored. What is not durable yet is sent again, and then found
    to be there."""
    topic = call.fields.text("topic") or call.fields.text("dst").partition("/")[2]
    if not topic:
        raise Malformed(f"topic is missing: {MAILBOX}<node>, of the node that it was sent to")
    mailbox = None
    if topic.startswith(MAILBOX):
        mailbox = call.face.mailboxes.find(read_node(topic[len(MAILBOX) :].partition("/")[0]))
        if mailbox is not None:
            call.face.links.watch(call.link, mailbox.node)
    stored: list[int] = []
    missing: list[int] = []
    for seq in sorted({seq for numbers in about.ranges for seq in numbers}):
        mid = about.mid._replace(seq=seq)
        if topic.startswith(MAILBOX):
            there = mailbox is not None and _has(mailbox, mid)
        else:
            there = _in_topic(call.face, topic, mid)
        (stored if there else missing).append(seq)
    _tell_found(call, source, stored, missing)


def _tell_found(call: Call, source: str, stored: list[int], missing: list[int]) -> None:
    """A frame for what is there, and one for what is not; a reply of HTTP has both lists."""
    fields = echoed(call.said)
    if "seqs" not in fields:
        _tell(call, "semq_inquiry_resp", source, {**fields, "result": str(len(stored))})
        return
    lists = {"1": show_ranges(stored), "0": show_ranges(missing)}
    if call.link is None and stored and missing:
        told = {"result": "1", "seqs": lists["1"], "missing": lists["0"]}
        _tell(call, "semq_inquiry_resp", source, {**fields, **told})
        return
    for result, seqs in lists.items():
        if seqs:
            told = {"result": result, "seqs": seqs}
            _tell(call, "semq_inquiry_resp", source, {**fields, **told})


def _has(mailbox: Mailbox, mid: Mid) -> bool:
    offset = mailbox.find(mid)
    return offset is not None and mailbox.is_durable(offset)


def _in_topic(face: Context, name: str, mid: Mid) -> bool:
    """A topic has it, or had it: for as long as it remembers."""
    topic = face.broker.topic(name)
    if topic is None:
        return False
    found = single.find_id(topic, str(mid).encode(), face.broker.now_ms)
    return not isinstance(found, BrokerError) and found[1] < found[0].visible


def _answered(call: Call, source: str, about: About) -> None:
    """What a node says that was asked for its rows."""
    face, fields = call.face, call.fields
    result = read_number("result", fields.required("result"), 0, 1)
    mailbox = face.mailboxes.find(source)
    if mailbox is not None and fields.text("about", "send") == "send":
        rows = mailbox.find_all(about.mid, about.ranges)
        offsets = [offset for _, offset in rows if offset is not None]
        if result:
            face.mailboxes.acknowledge(mailbox, offsets)
        else:
            backlog = mailbox.group.backlogs[0]
            again = [
                offset
                for offset in offsets
                if offset in backlog.leased
                and not 0 < about.attempt < backlog.attempts.get(offset, 0)
            ]
            face.mailboxes.send_again(mailbox, again)
        face.heard(source)
    _done(call)
