"""`tracker`, `track_sub`, `track_pub` and `ssl`: the documents of several brokers (specification,
sections 5.10, 5.11 and 9)."""

from __future__ import annotations

from functools import partial

from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.documents.trackers import PUSHED
from zbus.dialects.zbus.replies import JSON, TEXT, Answered, NativeReply
from zbus.dialects.zbus.request.params import Params
from zbus.edge.connection import Connection


def tracker(reply: NativeReply) -> None:
    """`tracker`: all servers that are known here, this one included."""
    reply.respond(200, JSON, reply.dialect.tracking.tracker_answer(reply.peer.grant))


def follow(reply: NativeReply) -> None:
    """`track_sub`: the same as a push, and again with every change. Plain HTTP would take a push
    for its next answer, so there it is one document."""
    params, peer, tracking = reply.params, reply.peer, reply.dialect.tracking
    if not params.multiplexed:
        reply.respond(200, PUSHED, tracking.tracker_answer(peer.grant))
        return
    document = tracking.encoded(peer.grant)
    if params.head.keep_alive:
        tracking.follow(peer, params.head.json, document)
    reply.send(params.compose(200, PUSHED, document.data))


class TakeReport:
    """`track_pub`: another server reports to this one."""

    def __init__(self, dialect: Context, params: Params) -> None:
        self._dialect = dialect
        self._params = params
        self._quiet = not params.flag(b"ack")

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        reply = NativeReply(self._dialect, self._params, peer, id, self._quiet)
        problem = self._dialect.tracking.report(peer, body)
        if problem is None:
            reply.respond(200, body=b"%d" % self._dialect.broker.now_ms)
        else:
            reply.respond(problem.status, body=problem.text.encode())


def ssl(dialect: Context, params: Params) -> Answered:
    """`ssl`: the certificate of this server, or of one that reported to it."""
    address = params.text(b"server") or dialect.settings.address
    return Answered(partial(_certificate, address), dialect, params)


def _certificate(address: str, reply: NativeReply) -> None:
    dialect = reply.dialect
    if address == dialect.settings.address:
        certificate = dialect.settings.certificate()
    else:
        certificate = dialect.tracking.servers.certificate(address)
    if certificate:
        reply.respond(200, TEXT, certificate.encode())
    else:
        reply.respond(404, body=f"404: Certificate({address}) Not Found".encode())
