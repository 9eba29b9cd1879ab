"""`semq_stat`, `semq_list`, `semq_retry` and `semq_dead`: the store, for those who run it."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from zbus.core.api import (
    BrokerError,
    Changed,
    Chunk,
    MessageState,
    Outcome,
    Partition,
    Place,
    PointReads,
)
from zbus.dialects.semq.context import UNKNOWN, Refused, SemqCall
from zbus.dialects.semq.dead import GIVEN_UP
from zbus.dialects.semq.mailboxes import GROUP, Mailbox, locator, offset_of
from zbus.dialects.semq.rows import read_id, read_row, split_lines
from zbus.semq.protocol.words import read_node, read_platform_locator

COUNT: Final = 100
COUNT_MAX: Final = 1_000
_STATES: Final = {
    MessageState.READY: "SS_INIT",
    MessageState.DELAYED: "SS_INIT",
    MessageState.LEASED: "SS_SENT",
}

_WORK_PER_ROW: Final = 10
_LOOKS_MAX: Final = 20_000
"""Places that are looked at for one answer; the next one goes on from there."""

_LOOKS_PER_WORK: Final = 2


def _mailbox(call: SemqCall) -> Mailbox:
    """That of the node which is named."""
    node = read_node(call.fields.required("node"))
    mailbox = call.context.mailboxes.find(node)
    if mailbox is None:
        raise Refused(404, UNKNOWN, f"unknown node {node}")
    return mailbox


def _shown_to(call: SemqCall, mailbox: Mailbox) -> bool:
    grant = call.peer.grant
    return grant is None or grant.sees(mailbox.topic.name, GROUP)


def stat(call: SemqCall) -> None:
    """`semq_stat`: of one node, or of all whose names come after `after`."""
    count = call.fields.number("count", COUNT, 1, COUNT_MAX)
    if call.fields.text("node"):
        mailboxes = [_mailbox(call)]
    else:
        call.peer.work -= len(call.context.broker.topics) // _LOOKS_PER_WORK
        everyone = call.context.mailboxes.all(call.fields.text("after"))
        mailboxes = [mailbox for mailbox in everyone if _shown_to(call, mailbox)][: count + 1]
    more, mailboxes = len(mailboxes) > count, mailboxes[:count]
    call.peer.work -= _WORK_PER_ROW * len(mailboxes)
    nodes = [_node(call, mailbox) for mailbox in mailboxes]
    oldest: list[Place] = [
        (mailbox.partition, mailbox.group.progress(0).floor())
        for mailbox in mailboxes
        if mailbox.row_count()
    ]
    by_name = {f"{node['topic']}": node for node in nodes}
    now_ms = call.context.broker.now_ms

    def each(partition: Partition, chunk: Chunk, at: int) -> bool:
        by_name[partition.topic.name]["oldestMs"] = max(0, now_ms - chunk.time_of(at))
        return True

    reply = call.reply()

    def done(problem: BrokerError | None) -> None:
        document: dict[str, Any] = {"nodes": nodes, "more": more}
        document["dead"] = call.context.dead.waiting()
        reply.document(document)

    PointReads(oldest, each, reply.guard(done))


def _node(call: SemqCall, mailbox: Mailbox) -> dict[str, Any]:
    context, group = call.context, mailbox.group
    links = context.links.online(mailbox.node)
    ready, leased, delayed, _ = group.counts()
    next_ms = context.asking.next_ms(mailbox.node)
    return {
        "node": mailbox.node,
        "topic": mailbox.topic.name,
        "online": bool(links),
        "semq": sorted({semq_id for link in links for semq_id in link.hello.semq_ids}),
        "stalled": any(not link.takes for link in links),
        "init": ready + delayed,
        "sent": leased,
        "oldestMs": 0,
        "nextInquiryMs": max(0, next_ms - context.broker.now_ms) if next_ms else 0,
    }


def rows(call: SemqCall) -> None:
    """`semq_list`: what is stored for a node, and in which state, in the order of the log."""
    mailbox = _mailbox(call)
    count = call.fields.number("count", COUNT, 1, COUNT_MAX)
    after = call.fields.text("after")
    state, age_ms = call.fields.text("state"), call.fields.number("age", 0)
    first = 0
    if after:
        first = (offset_of(read_platform_locator(after)) or 0) + 1
    offsets, seen = _unfinished(mailbox, first, state, count)
    call.peer.work -= max(0, seen - first) // _LOOKS_PER_WORK
    call.peer.work -= _WORK_PER_ROW * len(offsets)
    now_ms, backlog = call.context.broker.now_ms, mailbox.group.progress(0)
    found: list[dict[str, Any]] = []

    def each(partition: Partition, chunk: Chunk, at: int) -> bool:
        row = read_row(mailbox, chunk, at)
        if now_ms - row.produced_ms >= age_ms:
            life = backlog.life(row.offset)
            shown = {"lk1": str(locator(row.offset)), "state": _STATES.get(life, "SS_ACK")}
            shown |= {"mid": str(row.mid), "src": row.fields.get("src", "")}
            shown |= {name: row.fields[name] for name in ("app_key", "void") if name in row.fields}
            numbers = {
                "level": int(row.fields.get("savefwd") or 2),
                "expires": int(row.fields.get("expires") or 0),
                "attempts": backlog.attempts.get(row.offset, 0),
                "ageMs": max(0, now_ms - row.produced_ms),
                "bytes": row.body_bytes,
            }
            found.append({**shown, **numbers})
        return True

    reply = call.reply()

    def done(problem: BrokerError | None) -> None:
        if problem is not None:
            reply.settle(problem)
        else:
            next_ = str(locator(seen - 1)) if seen < mailbox.partition.visible else ""
            reply.document({"node": mailbox.node, "rows": found, "after": next_})

    places: list[Place] = [(mailbox.partition, offset) for offset in offsets]
    PointReads(places, each, reply.guard(done))


def _unfinished(mailbox: Mailbox, first: int, state: str, count: int) -> tuple[list[int], int]:
    """Up to `count` rows in this state, and the offset up to which was looked."""
    backlog, partition = mailbox.group.progress(0), mailbox.partition
    first = max(first, backlog.floor(), partition.first)
    found: list[int] = []
    for offset in range(first, min(first + _LOOKS_MAX, partition.visible)):
        known = _STATES.get(backlog.life(offset))
        if known is not None and (not state or known == state):
            if len(found) == count:
                return found, offset
            found.append(offset)
    return found, min(first + _LOOKS_MAX, partition.visible)


def retry(call: SemqCall) -> None:
    """`semq_retry`: SS_SENT -> SS_INIT, of one row or of all of a node."""
    mailbox = _mailbox(call)
    lk1 = call.fields.text("lk1")
    sent = mailbox.sent()
    if lk1:
        offset = offset_of(read_platform_locator(lk1))
        sent = [one for one in sent if one == offset]
        if not sent:
            raise Refused(404, UNKNOWN, f"{mailbox.node} has no row {lk1} in SS_SENT")
    sent = sent[:COUNT_MAX]
    call.context.mailboxes.send_again(mailbox, sent)
    call.reply().document({"node": mailbox.node, "count": len(sent)})


def dead(call: SemqCall) -> None:
    """`semq_dead`: what was given up, of one node or all; with `lk1`, give a row up."""
    if call.fields.text("lk1"):
        _give_up(call)
        return
    node = call.fields.text("node")
    count = call.fields.number("count", COUNT, 1, COUNT_MAX)
    reply, topic = call.reply(), call.context.dead.topic()
    group = None if topic is None else topic.groups.get(GROUP)
    found: list[dict[str, Any]] = []
    places: list[Place] = []
    if topic is not None and group is not None:
        partition, backlog = topic.partitions[0], group.progress(0)
        first = max(call.fields.number("after", 0), backlog.floor(), partition.first)
        offsets = range(first, min(first + _LOOKS_MAX, partition.visible))
        call.peer.work -= len(offsets) // _LOOKS_PER_WORK
        left = (offset for offset in offsets if backlog.life(offset) is not MessageState.DONE)
        places = [(partition, offset) for offset in islice(left, COUNT_MAX)]
    grant = call.peer.grant

    def each(partition: Partition, chunk: Chunk, at: int) -> bool:
        fields = split_lines(chunk.headers[at])
        target, _, mid = read_id(chunk, at).partition("/")
        may = grant is None or grant.sees(f"semq.{target}", GROUP)
        if may and (not node or target == node):
            one: dict[str, Any] = {"node": target, "mid": mid, "offset": chunk.first + at}
            for name in ("src", "app_key", "expires"):
                if name in fields:
                    one[name] = fields[name]
            one |= {"atMs": chunk.time_of(at), "bytes": len(chunk.bodies[at])}
            one["reason"] = fields.get("dead_reason", "")
            found.append(one)
        return len(found) < count

    def done(problem: BrokerError | None) -> None:
        if problem is not None:
            reply.settle(problem)
        else:
            reply.document({"rows": found})

    call.peer.work -= _WORK_PER_ROW * len(places)
    PointReads(places, each, reply.guard(done))


def _give_up(call: SemqCall) -> None:
    mailbox = _mailbox(call)
    lk1 = call.fields.text("lk1")
    offset = offset_of(read_platform_locator(lk1))
    known = offset is not None and mailbox.partition.first <= offset < mailbox.partition.visible
    if offset is None or not known or mailbox.group.progress(0).life(offset) is MessageState.DONE:
        raise Refused(404, UNKNOWN, f"{mailbox.node} has no row {lk1}")
    reply = call.reply()

    def buried(outcome: Outcome) -> None:
        assert isinstance(outcome, Changed)
        reply.document({"count": outcome.count})

    def found(answer: tuple[Chunk, int] | BrokerError) -> None:
        if isinstance(answer, BrokerError):
            reply.settle(answer)
        else:
            call.context.dead.bury(mailbox, *answer, GIVEN_UP, reply.step(buried))

    mailbox.partition.log.get(offset, reply.guard(found))
