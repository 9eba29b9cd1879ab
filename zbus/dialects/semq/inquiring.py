"""`semq_inquiry` of a sender: which of its messages does the platform have?

`topic` says where they were sent to: `semq/<node>`, or a topic. Without it a single one is looked
for in all mailboxes. There a MID is not enough, for each destination has numbers of its own: the
row must have the LK0 that is asked for, too.
"""

from __future__ import annotations

from typing import Final

from zbus.core.api import BrokerError, Chunk, Partition, Place, PointReads, find_id
from zbus.dialects.semq.context import Refused, SemqCall, SemqContext, Telling
from zbus.dialects.semq.mailboxes import Mailbox
from zbus.dialects.semq.rows import read_row
from zbus.semq.protocol.about import About
from zbus.semq.protocol.fields import NUMBERS, echoed
from zbus.semq.protocol.words import MAILBOX, Malformed, Mid, ranges_of, read_node, show_seqs

_ANSWER: Final = "semq_inquiry_resp"

_TOPICS_MAX: Final = 50_000
"""With more topics than that, not all are searched."""

_TOPICS_PER_WORK: Final = 2
_FOUND_MAX: Final = 100
"""Rows of one MID that are read to find out which is meant."""


def notify_stored(call: SemqCall, source: str, about: About) -> None:
    """Which of a node's messages are stored. What is not durable yet is sent again, and then found
    to be there."""
    about.own(source, "" if call.link is None else call.link.hello.epoch)
    mid = about.mid()
    if mid.store.node != source:
        raise Refused(403, "forbidden", f"lk0 is none of {source}'s")
    topic = call.fields.text("topic") or call.fields.text("dst").partition("/")[2]
    if not topic:
        _look_everywhere(call, source, about, mid)
        return
    mailbox = None
    if topic.startswith(MAILBOX):
        mailbox = call.context.mailboxes.find(read_node(topic[len(MAILBOX) :].partition("/")[0]))
        if mailbox is not None:
            call.context.links.watch(call.link, mailbox.node)
    stored: list[int] = []
    missing: list[int] = []
    for seq in sorted(set(about.seqs)):
        mid = mid._replace(seq=seq)
        if topic.startswith(MAILBOX):
            there = mailbox is not None and _has(mailbox, mid)
        else:
            there = _in_topic(call.context, topic, mid)
        (stored if there else missing).append(seq)
    _notify_found(call, call.notifier(_ANSWER, source), stored, missing)


def _notify_found(call: SemqCall, notifier: Telling, stored: list[int], missing: list[int]) -> None:
    """A frame for what is there, and one for what is not; a reply of HTTP has both lists."""
    fields = echoed(call.given, *NUMBERS)
    if "seqs" not in fields:
        notifier.notify({**fields, "result": str(len(stored))})
        return
    lists = {"1": show_seqs(ranges_of(stored)), "0": show_seqs(ranges_of(missing))}
    if not notifier.twice and stored and missing:
        notifier.notify({**fields, "result": "1", "seqs": lists["1"], "missing": lists["0"]})
        return
    for result, seqs in lists.items():
        if seqs:
            notifier.notify({**fields, "result": result, "seqs": seqs})


def _has(mailbox: Mailbox, mid: Mid) -> bool:
    offset = mailbox.find(mid)
    return offset is not None and mailbox.is_durable(offset)


def _in_topic(context: SemqContext, name: str, mid: Mid) -> bool:
    """A topic has it, or had it: for as long as it remembers."""
    topic = context.broker.topic(name)
    if topic is None:
        return False
    found = find_id(topic, str(mid).encode(), context.broker.now_ms)
    return not isinstance(found, BrokerError) and found[1] < found[0].visible


# -- without a topic ----------------------------------------------------------------------------


def _look_everywhere(call: SemqCall, source: str, about: About, mid: Mid) -> None:
    """Find a single message with an unknown destination."""
    count = len(call.context.broker.topics)
    if about.several or not about.record or count > _TOPICS_MAX:
        raise Malformed(f"topic is missing: {MAILBOX}<node>, of the node that it was sent to")
    call.peer.work -= count // _TOPICS_PER_WORK
    found = call.context.mailboxes.holding(mid)
    rows = [(box, offset) for box in found if (offset := box.find(mid)) is not None]
    rows = [(box, offset) for box, offset in rows if box.is_durable(offset)]
    if len(rows) > _FOUND_MAX:
        raise Malformed(f"topic is missing: {len(rows)} nodes have a row of that number")
    by_place = {(box.partition, offset): box for box, offset in rows}
    stored: list[int] = []

    def each(partition: Partition, chunk: Chunk, at: int) -> bool:
        box = by_place[partition, chunk.first + at]
        if read_row(box, chunk, at).record == about.record:
            stored.append(mid.seq)
            call.context.links.watch(call.link, box.node)
        return not stored

    notifier = call.notifier(_ANSWER, source)

    def done(problem: BrokerError | None) -> None:
        _notify_found(call, notifier, stored, [])

    places: list[Place] = list(by_place)
    PointReads(places, each, notifier.guarded(done))
