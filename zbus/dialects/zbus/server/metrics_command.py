"""`metrics` as a command."""

from __future__ import annotations

from collections.abc import Iterator

from zbus.dialects.openmetrics import CONTENT_TYPE
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import NativeReply
from zbus.dialects.zbus.request.params import Params
from zbus.edge.access import Grant
from zbus.edge.connection import Connection


class Scrape:
    """Plan of it."""

    __slots__ = ("_dialect", "_params")

    def __init__(self, dialect: Context, params: Params) -> None:
        self._dialect = dialect
        self._params = params

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        reply = NativeReply(self._dialect, self._params, peer, id)
        known = self._dialect.metrics.known(peer.grant)
        if known is not None:
            reply.respond_raw(CONTENT_TYPE, known)
        else:
            peer.begin(self._steps(reply, peer.grant))

    def _steps(self, reply: NativeReply, grant: Grant | None) -> Iterator[int]:
        dialect = self._dialect
        text = yield from dialect.metrics.make(dialect.stats.rows(grant), grant)
        reply.respond_raw(CONTENT_TYPE, text)
