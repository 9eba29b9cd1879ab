"""MQCloud over HTTP: which paths there are, and who may what at each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zbus.dialects.mqcloud import consuming, managing, producing
from zbus.dialects.mqcloud.consuming import REQUEST_ID
from zbus.dialects.mqcloud.context import MqcloudCall, MqcloudContext
from zbus.dialects.mqcloud.placing import (
    at_consumer,
    at_document,
    at_either,
    at_producer,
    at_registration,
    at_settings,
)
from zbus.dialects.mqcloud.replies import BAD, FAILED, JSON, MqcloudReply, encode
from zbus.dialects.verbs import (
    ANY,
    GET,
    POST,
    Verb,
    VerbRequest,
    Verbs,
    merge_lists,
    of_all,
)
from zbus.edge.connection import Connection, Plan
from zbus.edge.dialect import Parts
from zbus.edge.guard import Answer, Policy
from zbus.edge.http_reply import TEXT, HttpDialect, Tell
from zbus.wire.heads.heads import Head

_LISTS: Final = (b"/topic/httpProducer", b"/topic/httpConsumer")
"""What the proxies of the original poll is not under `/mq`."""

VERBS: Final[Verbs] = {
    (b"mq", b"produce"): Verb(producing.produce, POST, "produce", place=at_producer),
    (b"mq", b"produce", b"batch"): Verb(
        producing.produce_batch, POST, "produce", place=at_producer
    ),
    (b"mq", b"message"): Verb(consuming.message, ANY, "consume", free=REQUEST_ID),
    (b"mq", b"ack"): Verb(consuming.ack, ANY, "consume", free=REQUEST_ID),
    (b"mq", b"unlock"): Verb(consuming.unlock_queue, ANY, "consume", free=REQUEST_ID),
    (b"mq", b"register"): Verb(managing.register, POST, "declare", place=at_registration),
    (b"mq", b"unregister"): Verb(managing.unregister, POST, "remove", place=at_either),
    (b"mq", b"consumer", b"config"): Verb(
        managing.configure, POST, "declare", document=True, place=at_document
    ),
    (b"mq", b"config"): Verb(
        managing.settings_of, GET, "query", False, names=b"consumer", place=at_settings
    ),
    (b"mq", b"find"): Verb(managing.find, GET, "consume", changes=False),
    (b"mq", b"clustering", b"queue", b"offset"): Verb(
        managing.offsets, GET, "query", False, place=at_consumer
    ),
    (b"mq", b"broadcast", b"queue", b"offset"): Verb(
        managing.offsets, GET, "query", False, place=at_consumer
    ),
    (b"mq", b"clustering", b"pop", b"ack"): Verb(
        managing.ranges, GET, "query", False, place=at_consumer
    ),
    (b"mq", b"broadcast", b"pop", b"ack"): Verb(
        managing.ranges, GET, "query", False, place=at_consumer
    ),
    (b"topic", b"httpProducer"): Verb(
        managing.producers, GET, "query", False, place=of_all(merge_lists)
    ),
    (b"topic", b"httpConsumer"): Verb(
        managing.consumers, GET, "query", False, place=of_all(merge_lists)
    ),
}


class MqcloudDialect(HttpDialect):
    prefixes = frozenset((b"mq",))
    policy = Policy(by_address=True)

    def __init__(self, parts: Parts) -> None:
        self._context = MqcloudContext(parts)

    def claims(self, head: Head) -> bool:
        return head.target.startswith(_LISTS) and head.target.partition(b"?")[0] in _LISTS

    def read(self, head: Head) -> MqcloudRequest:
        return MqcloudRequest(head, self._context)

    def holds(self) -> dict[str, Callable[[], int]]:
        return {"mqcloudLocks": self._context.locks.held_bytes}

    def upkeep(self) -> None:
        self._context.begin()
        self._context.locks.forget_gone()
        self._context.registry.forget_gone()


class MqcloudRequest(VerbRequest[MqcloudContext]):
    """A head of this dialect, and how it is done."""

    call = MqcloudCall
    verbs = VERBS
    wrong_path = "404: there is nothing at this path"
    wrong_method = "Request method '{}' not supported"

    def refuse_early(self, peer: Connection, status: int, text: str, lines: bytes = b"") -> None:
        reply = MqcloudReply(self, peer)
        if status == 404:
            reply.respond(404, TEXT, text.encode())
        else:
            reply.respond_status(FAILED if status == 405 else BAD, text)

    def forbid(self, why: str, known: bool) -> Plan:
        text = why or ("this token may not do that" if known else "this needs a known token")
        body = encode({"status": FAILED, "message": f"403: {text}"}).decode()
        return Tell(self, Answer(403, body, JSON))
