"""`health`: whether the broker lives, and whether it is ready for work. No token is needed: a
supervisor or a load balancer asks, and the answer contains nothing of topics."""

from __future__ import annotations

import msgspec

from zbus.core.api import Broker
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import JSON, Answered, NativeReply
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.schema.kinds import HEALTH_CHECKS
from zbus.protocol.documents import Health
from zbus.wire.target import split_target


def health(dialect: Context, params: Params) -> Answered:
    """The plan of a check."""
    check = params.text(b"check")
    if check is None:
        segments = split_target(params.head.target)[0]
        check = segments[1].decode("utf-8", "replace") if len(segments) > 1 else "ready"
    if check not in HEALTH_CHECKS:
        known = " or ".join(f"/_health/{name}" for name in HEALTH_CHECKS)
        raise BadRequest(404, f"404: unknown health check; use {known}")
    return Answered(_live if check == "live" else _ready, dialect, params)


def _live(reply: NativeReply) -> None:
    _tell(reply, [])


def _ready(reply: NativeReply) -> None:
    _tell(reply, unready(reply.dialect.broker))


def _tell(reply: NativeReply, reasons: list[str]) -> None:
    document = Health(status="failing" if reasons else "ok", reasons=reasons)
    reply.respond(503 if reasons else 200, JSON, msgspec.json.encode(document))


def unready(broker: Broker) -> list[str]:
    """Why the broker should be given no new work."""
    reasons = []
    if broker.stopping:
        reasons.append("the broker is stopping")
    if (refusing := broker.refusing()) is not None:
        reasons.append(refusing.text)
    return reasons
