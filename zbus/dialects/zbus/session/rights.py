"""`rights`: what the caller may do, as JSON. A page shows by it what it need not offer."""

from __future__ import annotations

import msgspec

from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import JSON, NativeReply
from zbus.dialects.zbus.request.params import Params
from zbus.edge.access import ALL, NEVER_MS, Grant
from zbus.edge.connection import Connection
from zbus.protocol.documents import RightsInfo

_json = msgspec.json.Encoder().encode


class Rights:
    """Plan of `/_rights`."""

    def __init__(self, dialect: Context, params: Params) -> None:
        self._dialect = dialect
        self._params = params

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        rights_json = _json(_document(peer.grant))
        NativeReply(self._dialect, self._params, peer, id).respond(200, JSON, rights_json)


def _document(grant: Grant | None) -> RightsInfo:
    """Without a table of tokens there is no grant, and everybody may do everything."""
    if grant is None:
        return RightsInfo(operations=[ALL], tokens=False, topics={ALL: [ALL]})
    return RightsInfo(
        name=grant.name,
        operations=sorted(grant.operations),
        tokens=True,
        topics={ALL: [ALL]} if grant.admin else {n: [*groups] for n, groups in grant.topics},
        expires=None if grant.expires_ms == NEVER_MS else grant.expires_ms,
    )
