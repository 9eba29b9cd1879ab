"""`cluster` and `move`: who owns the shards of a cluster, and how one gets another owner. Both are
for those who may see everything."""

from __future__ import annotations

from functools import partial

import msgspec

from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import JSON, Answered, NativeReply, sees_everything
from zbus.dialects.zbus.request.params import Params
from zbus.dialects.zbus.settings import Cluster

_RETRY = b"retry-after: 1\r\n"


def cluster(reply: NativeReply) -> None:
    """Tell what this node knows."""
    found = _cluster(reply)
    if found is not None:
        reply.respond(200, JSON, msgspec.json.encode(found.document()))


def move(dialect: Context, params: Params) -> Answered:
    """The plan of a move. It is done by the owner of the shard."""
    shard = params.number(b"shard")
    node = params.text(b"to")
    assert shard is not None
    assert node is not None
    return Answered(partial(_move, shard, node), dialect, params)


def _move(shard: int, node: str, reply: NativeReply) -> None:
    found = _cluster(reply)
    if found is None:
        return
    refused = found.move(shard, node)
    if refused is None:
        reply.respond(200, body=b"%d" % reply.dialect.broker.now_ms)
    else:
        lines = _RETRY if refused.status == 503 else b""
        reply.respond(refused.status, lines, f"{refused.status}: {refused.text}".encode())


def _cluster(reply: NativeReply) -> Cluster | None:
    """The cluster; None: the client has been told why it gets nothing."""
    if not sees_everything(reply):
        return None
    running = reply.dialect.settings.running
    if running is None or running.cluster is None:
        text = (
            b"404: this server is no node of a cluster: it was started without --engine nats://..."
        )
        reply.respond(404, body=text)
        return None
    return running.cluster
