"""`history`: how busy the server, a topic or a group was."""

from __future__ import annotations

from functools import partial
from typing import Final, cast

from zbus.core.api import BrokerError
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.documents.info import encode_document
from zbus.dialects.zbus.replies import JSON, Answered, NativeReply, sees_everything
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.topics.manage import find
from zbus.protocol.documents import Span

_OFF: Final = "404: this server keeps no history: it was started with history=off"


def history(dialect: Context, params: Params) -> Answered:
    """The plan of the command."""
    if dialect.history is None:
        raise BadRequest(404, _OFF)
    if params.group and not params.topic:
        raise BadRequest(400, "400: Bad Format, Missing topic: consume_group is one of a topic")
    span = cast("Span", params.word(b"span") or "hour")
    return Answered(partial(_tell, span), dialect, params)


def _tell(span: Span, reply: NativeReply) -> None:
    dialect, params = reply.dialect, reply.params
    if not params.topic and not sees_everything(reply):
        return
    found = find(dialect.broker, params, reply.peer.grant) if params.topic else (None, None)
    if isinstance(found, BrokerError):
        reply.settle(found)
        return
    assert dialect.history is not None
    topic, group = found
    reply.respond(200, JSON, encode_document(dialect.history.document(topic, group, span)))
