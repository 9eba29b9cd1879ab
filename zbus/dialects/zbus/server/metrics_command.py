"""`metrics` as a command."""

from __future__ import annotations

from collections.abc import Iterator

from zbus.dialects.openmetrics import CONTENT_TYPE
from zbus.dialects.zbus.replies import NativeReply
from zbus.edge.access import Grant


def scrape(reply: NativeReply) -> None:
    """Answers with what was made a moment ago, or makes it."""
    peer = reply.peer
    known = reply.dialect.metrics.known(peer.grant)
    if known is not None:
        reply.respond_raw(CONTENT_TYPE, known)
    else:
        peer.begin(_steps(reply, peer.grant))


def _steps(reply: NativeReply, grant: Grant | None) -> Iterator[int]:
    dialect = reply.dialect
    text = yield from dialect.metrics.make(dialect.stats.rows(grant), grant)
    reply.respond_raw(CONTENT_TYPE, text)
