"""`rights`: what the caller may do, as JSON. A page shows by it what it need not offer."""

from __future__ import annotations

import msgspec

from zbus.dialects.zbus.replies import JSON, NativeReply
from zbus.edge.access import ALL, NEVER_MS, Grant
from zbus.protocol.documents import RightsInfo


def rights(reply: NativeReply) -> None:
    """`/_rights`."""
    reply.respond(200, JSON, msgspec.json.encode(_document(reply.peer.grant)))


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
