"""Who is told again and again how the broker does, and what of that they share.

All streams that may see the same share what is looked at. A reader that takes nothing is told
nothing meanwhile, and then all changes at once: there is no queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from zbus.core.api import Broker
from zbus.dialects.zbus.documents.activity import Activity
from zbus.dialects.zbus.documents.info import encode_document
from zbus.dialects.zbus.documents.stats import Rows, server_stats
from zbus.dialects.zbus.request.event_stream import encode_event
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.access import Bearer, Grant, view_of
from zbus.edge.connection import Connection

TOPICS_PER_SECOND = 2_000
"""Topics that a stream's broker looks at in a second: some 10 ms of the loop. With 10,000 topics,
what changes in one is told within five seconds."""

DELTA_BYTES_MAX = 1 << 20
"""Of changes that are told at a time; the others come next."""


class Follower:
    """One stream."""

    __slots__ = (
        "bearer",
        "granted",
        "interval_ms",
        "next_ms",
        "number",
        "peer",
        "rows",
        "sent",
        "topics",
    )

    def __init__(
        self, peer: Connection, rows: Rows, bearer: Bearer | None, interval_ms: int, topics: bool
    ) -> None:
        self.peer = peer
        self.rows = rows
        self.bearer = bearer
        self.granted = self.grant  # what it sees; with other rights it has to come again
        self.interval_ms = interval_ms
        self.topics = topics  # or the rest alone
        self.number = rows.number  # of the last change that it was told
        self.sent = 0  # events
        self.next_ms = 0

    @property
    def grant(self) -> Grant | None:
        return None if self.bearer is None else self.bearer.grant

    def may(self, now_ms: int) -> bool:
        """Still: rights can be taken away, and end by themselves."""
        bearer = self.bearer
        return bearer is None or (self.grant is self.granted and bearer.is_known(now_ms))


class Stats:
    """Who is told, and what of all that they share."""

    def __init__(self, broker: Broker, settings: ZbusSettings) -> None:
        self._broker = broker
        self._settings = settings
        self._activity = Activity(broker)
        self._followers: dict[Connection, Follower] = {}
        self._shared: dict[Grant | None, Rows] = {}

    def rows(self, grant: Grant | None) -> Rows:
        """Those that streams share, if there are any."""
        view = view_of(grant)
        return self._shared.get(view) or Rows(self._broker, self._activity, view)

    def document(self, rows: Rows, grant: Grant | None) -> dict[str, Any]:
        """All but the topics."""
        return server_stats(self._broker, self._settings, rows, grant)

    def follow(
        self, peer: Connection, rows: Rows, bearer: Bearer | None, interval_ms: int, topics: bool
    ) -> None:
        """Tell this peer all there is, and changes from now on."""
        follower = Follower(peer, rows, bearer, interval_ms, topics)
        self._shared[view_of(follower.grant)] = rows
        self._followers[peer] = follower
        peer.when_left(self._left)
        self._write(follower, b"stats", rows.table())

    def _write(
        self, follower: Follower, kind: bytes, topics: Mapping[str, msgspec.Raw | None]
    ) -> None:
        """One event; after it, the subscriber knows all changes there are."""
        document = self.document(follower.rows, follower.grant)
        if follower.topics:
            document["topics"] = topics
        event = encode_event(b"%d" % follower.sent, encode_document(document), kind)
        follower.peer.write(event)
        follower.sent += 1
        follower.next_ms = self._broker.now_ms + follower.interval_ms

    def _left(self, peer: Connection) -> None:
        if self._followers.pop(peer, None) is not None:
            peer.end_stream()
        used = {id(follower.rows) for follower in self._followers.values()}
        self._shared = {view: rows for view, rows in self._shared.items() if id(rows) in used}

    def upkeep(self) -> None:
        """Called about once a second."""
        self._activity.look()
        for rows in self._shared.values():
            rows.some(TOPICS_PER_SECOND)
        for follower in list(self._followers.values()):
            self._send(follower)

    def _send(self, follower: Follower) -> None:
        peer, now_ms = follower.peer, self._broker.now_ms
        if not follower.may(now_ms):
            self._left(peer)
        elif now_ms >= follower.next_ms and not (peer.stalled or peer.out_bytes):
            topics, follower.number = follower.rows.since(follower.number, DELTA_BYTES_MAX)
            self._write(follower, b"delta", topics)
