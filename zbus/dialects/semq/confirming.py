"""Confirmations: what the platform does with those for itself, and with all others.

Control messages are neither stored nor confirmed. One that is for another node is passed on as it
is: to the connection of the instance whose row it is about, or to its steady one. If the node is
offline, the sender gets an error that says so.

    semq_ack            B has a row: SS_ACK if LK1 is its, and what is said of its MID
    semq_inquiry ack    B asks whether its Ack has come: the question proves that B has the message
    semq_inquiry_resp   B answers the platform: SS_ACK, or SS_INIT and it is sent again

ReAck and the answer to a question come in any case: their sender has something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from zbus.core.api import BrokerError, Chunk
from zbus.dialects.semq.context import OFFLINE, UNKNOWN, Refused, SemqCall, Telling
from zbus.dialects.semq.frames import encode_push, lines_of, passed_on
from zbus.dialects.semq.inquiring import notify_stored
from zbus.dialects.semq.mailboxes import Mailbox, offset_of
from zbus.dialects.semq.rows import read_row
from zbus.semq.protocol.about import OF_ACKS, About
from zbus.semq.protocol.fields import NUMBERS, echoed
from zbus.semq.protocol.words import (
    PLATFORM,
    Fields,
    Hop,
    Malformed,
    read_locator,
    read_node,
    read_number,
)

_LOOKS_PER_WORK: Final = 1
"""Numbers that are looked up in about a microsecond."""

_Rows: TypeAlias = "Callable[[Mailbox | None, list[int]], None]"
"""Receives rows of a mailbox, if there is one."""


def control(call: SemqCall) -> None:
    """Any of them."""
    source, fields, command = call.source(), call.fields, call.given["cmd"]
    if call.body:
        raise Malformed("a control message has no body")
    target = read_node(fields.text("dst", PLATFORM).partition("/")[0])
    if target != PLATFORM:
        _pass_on(call, source, target)
        return
    if command == "semq_reack":  # of what the platform has put into a topic: it waits for none
        call.notifier().done()
        return
    about = About(fields, OF_ACKS if command == "semq_ack" else "")
    call.peer.work -= about.count // _LOOKS_PER_WORK
    match command:
        case "semq_ack":
            _ack(call, source, about)
        case "semq_inquiry":
            _inquiry(call, source, about)
        case _:
            _answered(call, source, about)


def _pass_on(call: SemqCall, source: str, target: str) -> None:
    """To another node, unchanged."""
    context, links = call.context, call.context.links
    if context.mailboxes.find(target) is None:
        raise Refused(404, UNKNOWN, f"unknown node {target}")
    links.watch(call.link, target)
    semq_id = _instance(call.given["cmd"], call.fields, target)
    found = [one for one in links.instance(target, semq_id)[:1] if one.takes_control]
    if not found:
        lines = lines_of({"dst": target, **echoed(call.given, *NUMBERS)})
        text = f"{target} is not online"
        call.reply().refuse(404, OFFLINE, text, lines)
        return
    given = {**call.given, "src": call.given.get("src") or source}
    links.push(found[0], encode_push(call.given["cmd"], passed_on(given)))
    call.notifier().done()


def _instance(command: str, fields: Fields, target: str) -> int | None:
    """The instance of its addressee that it is for, if that is said: the one whose row it is about,
    or which has asked."""
    about_ack = fields.text("about") == "ack"
    match command:
        case "semq_ack":
            name = "src_semq_id"
        case "semq_reack":
            return fields.number("dest_semq_id", 0) or None
        case "semq_inquiry" if about_ack:
            name = "semq_id"
        case "semq_inquiry_resp":
            return fields.number("dest_semq_id" if about_ack else "semq_id", 0) or None
        case _:
            return None
    lk0 = fields.text("lk0")
    if not fields.text(name) and lk0:
        store = read_locator(lk0).store
        return store.semq if store.node == target else None
    return fields.number(name, 0) or None


# -- rows of the sender's own mailbox -----------------------------------------------------------


def _ack(call: SemqCall, source: str, about: About) -> None:
    hop = call.fields.number("ack_flag", Hop.PLATFORM, Hop.PLATFORM, Hop.SOURCE)
    if hop == Hop.PLATFORM:
        _confirmed(call, source, about, "semq_reack", {})
    else:
        call.notifier("semq_reack", source).notify(echoed(call.given, *NUMBERS))


def _inquiry(call: SemqCall, source: str, about: About) -> None:
    call.fields.number("flag", 2, 1, 2)
    match call.fields.required("about"):
        case "ack":
            _confirmed(call, source, about, "semq_inquiry_resp", {"result": "1"})
        case "send":
            notify_stored(call, source, about)
        case _:
            raise Malformed("about is send or ack")


def _confirmed(
    call: SemqCall, node: str, about: About, command: str, result: Mapping[str, str]
) -> None:
    """A node has these, and gets a confirmation, whatever became of the rows."""
    if about.several:
        about.mid()
    elif about.place is None and not about.ranges:
        raise Malformed("the record of lk1 is missing")
    notifier = call.notifier(command, node)

    def found(mailbox: Mailbox | None, offsets: list[int]) -> None:
        if mailbox is not None:
            call.context.mailboxes.acknowledge(mailbox, offsets)
            call.context.delivering.answered(node)
        notifier.notify({**echoed(call.given, *NUMBERS), **result})

    if about.several or about.place is not None:
        _find(call, node, about, notifier, found)
    else:  # a MID alone is not enough for a single row
        found(call.context.mailboxes.find(node), [])


def _answered(call: SemqCall, source: str, about: About) -> None:
    """What a node says that was asked for its rows."""
    result = read_number("result", call.fields.required("result"), 0, 1)
    if about.place is None or about.several:
        about.mid()
    notifier = call.notifier("", source)

    def found(mailbox: Mailbox | None, offsets: list[int]) -> None:
        if mailbox is not None and call.fields.text("about", "send") == "send":
            if result:
                call.context.mailboxes.acknowledge(mailbox, offsets)
            else:
                _send_again(call, mailbox, offsets, about.attempt)
            call.context.delivering.answered(source)
        notifier.done()

    _find(call, source, about, notifier, found)


def _send_again(call: SemqCall, mailbox: Mailbox, offsets: list[int], attempt: int) -> None:
    """Those that were not sent once more since they were asked for."""
    backlog = mailbox.group.progress(0)
    again = [
        offset
        for offset in offsets
        if offset in backlog.leased and not 0 < attempt < backlog.attempts.get(offset, 0)
    ]
    call.context.mailboxes.send_again(mailbox, again)


def _find(call: SemqCall, node: str, about: About, notifier: Telling, found: _Rows) -> None:
    """The rows of its mailbox that a node speaks of. Several are found by their MIDs; of a single
    one both LK1 and the MID must be its, as far as they are said."""
    mailbox = call.context.mailboxes.find(node)
    if mailbox is None:
        found(None, [])
        return
    offset = None if about.place is None else offset_of(about.place)
    if about.several or about.place is None:
        offsets = [one for _, one in mailbox.find_all(about.mid(), about.ranges)]
        found(mailbox, [one for one in offsets if one is not None])
    elif offset is None or not mailbox.is_open(offset):
        found(mailbox, [])
    elif about.whole or not about.partly:
        same = not about.partly or mailbox.find(about.mid()) == offset
        found(mailbox, [offset] if same else [])
    else:
        _compare(call, mailbox, offset, about, notifier.guarded(partial(_unpacked, found)))


def _unpacked(found: _Rows, rows: tuple[Mailbox | None, list[int]]) -> None:
    found(*rows)


def _compare(
    call: SemqCall,
    mailbox: Mailbox,
    offset: int,
    about: About,
    found: Callable[[tuple[Mailbox | None, list[int]]], None],
) -> None:
    """A row is the one of which a part of the MID is said, as the log has it."""

    def read(answer: tuple[Chunk, int] | BrokerError) -> None:
        now = call.context.mailboxes.find(mailbox.node)
        if now is None or now.partition is not mailbox.partition:
            found((None, []))  # it was removed meanwhile
        elif isinstance(answer, BrokerError):
            found((now, []))
        else:
            same = now.is_open(offset) and about.matches(read_row(now, *answer).mid)
            found((now, [offset] if same else []))

    mailbox.partition.log.get(offset, read)
