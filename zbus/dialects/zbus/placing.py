"""Where a command is done, if a server has several workers (`zbus.edge.places`)."""

from __future__ import annotations

from typing import Final

from zbus.dialects.zbus.documents.merging import (
    Merge,
    merge_documents,
    merge_histories,
    merge_metrics,
    merge_names,
    merge_pages,
)
from zbus.dialects.zbus.request.event_stream import wants_events
from zbus.dialects.zbus.request.header_lines import text_of
from zbus.dialects.zbus.request.params import Params
from zbus.dialects.zbus.server.monitoring import check_of
from zbus.edge.places import MAKER_DIGITS, Apart, AtMaker, AtTopic, Everywhere, Place
from zbus.protocol.places import place_name
from zbus.wire.numbers import parse_number

_OF_ALL: Final[dict[bytes, Merge]] = {
    b"server": merge_documents,
    b"stats": merge_documents,
    b"tracker": merge_documents,
    b"track_sub": merge_documents,
    b"metrics": merge_metrics,
    b"connections": merge_pages,
    b"asyncapi": merge_documents,
}
_PARTIAL: Final = frozenset((b"stats", b"metrics"))
"""To be told of the others is what an operator needs while a worker is missing."""
_OF_FIRST: Final = frozenset((b"track_pub", b"ssl"))
"""About servers that report to this one: one worker knows them, and all are asked for trackers."""

_OF_TRANSACTIONS: Final = frozenset((b"txn_stage", b"txn_commit", b"txn_abort", b"txn_query"))
_LEAVES_NOTHING: Final = frozenset(
    (
        b"produce",
        b"declare",
        b"remove",
        b"empty",
        b"query",
        b"schema",
        b"peek",
        b"read",
        b"why",
        b"history",
        b"get",
    )
)
"""Of a client: when it is answered, its connection is as it was before."""


def place_of(params: Params, in_cluster: bool) -> Place:
    """Of a request: where its topic is, or where its session was made; or everywhere. A node is
    asked for its own health: that of a cluster would take all of its nodes out of service."""
    cmd = params.cmd
    if cmd == b"route":
        return AtMaker(params.fields.get(b"recver", b""))
    if cmd == b"disconnect":
        return AtMaker(params.fields.get(b"session", b""))
    if cmd == b"move":
        shard = parse_number(params.fields.get(b"shard", b""), 0xFFFF)
        return None if shard is None else AtMaker(b"%0*x" % (MAKER_DIGITS, shard))
    if cmd in _OF_ALL:
        if cmd == b"stats" and wants_events(params):
            if params.head.contained or params.head.method == b"HEAD":
                return None  # there are no events, in the answer of any
            return Everywhere(merge_documents, part="topics", partial=True)
        follows = cmd == b"track_sub" and params.multiplexed
        return Everywhere(_OF_ALL[cmd], follows=follows, partial=cmd in _PARTIAL)
    if cmd == b"health" and (check := check_of(params)) != "live":
        return None if in_cluster and check != "all" else Everywhere(merge_documents)
    if cmd == b"query" and not params.topic:
        return Everywhere(merge_names if params.flag(b"names") else merge_documents)
    if cmd == b"history" and not params.topic:
        return Everywhere(merge_histories)
    if cmd in _OF_FIRST:
        return AtMaker(b"0000")
    topic = params.topic
    if cmd in _OF_TRANSACTIONS:
        topic = f"txn.{_given(params, b'txn')}"
    if not topic:
        return None
    acked = _given(params, b"ack_topic") if cmd == b"produce" else ""
    if acked and place_name(acked) != place_name(topic):  # what is put decides what is acknowledged
        return Apart(topic, acked)
    return AtTopic(topic, binds=cmd not in _LEAVES_NOTHING)


def _given(params: Params, name: bytes) -> str:
    """The value of a parameter, whatever the command makes of it."""
    return text_of(params.fields.get(name, b"")).strip()
