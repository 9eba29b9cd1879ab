"""camellia-delay-queue over HTTP: which paths there are, and who may what at each."""

from __future__ import annotations

from typing import Final

from zbus.dialects.camellia import messages, reports
from zbus.dialects.camellia.context import CamelliaCall, CamelliaContext
from zbus.dialects.camellia.metrics import merge_metrics
from zbus.dialects.camellia.replies import JSON, framework_error
from zbus.dialects.verbs import (
    ANY,
    GET,
    POST,
    Verb,
    VerbRequest,
    Verbs,
    here,
    merge_lists,
    of_all,
)
from zbus.edge.connection import Connection
from zbus.edge.dialect import Parts
from zbus.edge.http_reply import HttpDialect, PlainReply
from zbus.wire.heads.heads import Head

_QUEUE, _HEALTH = (b"camellia", b"delayQueue"), (b"camellia", b"health")

_LISTS: Final = of_all(merge_lists)
_HEALTH_OF_ALL: Final = of_all(lambda responses: (b"", responses[0].body))

VERBS: Final[Verbs] = {
    (*_QUEUE, b"sendMsg"): Verb(messages.send, POST, "produce"),
    (*_QUEUE, b"deleteMsg"): Verb(messages.delete, POST, "consume"),
    (*_QUEUE, b"pullMsg"): Verb(messages.pull, POST, "consume"),
    (*_QUEUE, b"longPollingMsg"): Verb(messages.long_poll, POST, "consume"),
    (*_QUEUE, b"ackMsg"): Verb(messages.ack, POST, "consume"),
    (*_QUEUE, b"getMsg"): Verb(messages.get, POST, "consume", changes=False),
    (*_QUEUE, b"getMonitorData"): Verb(
        reports.monitor_data, GET, "query", changes=False, place=_LISTS
    ),
    (*_QUEUE, b"getTopicInfo"): Verb(reports.topic_info, GET, "query", changes=False),
    (*_QUEUE, b"getTopicInfoList"): Verb(
        reports.topic_list, GET, "query", changes=False, place=_LISTS
    ),
    (*_QUEUE, b"getMonitorString"): Verb(
        reports.monitor_string, GET, "query", changes=False, place=_LISTS
    ),
    (*_HEALTH, b"status"): Verb(
        reports.health_status, ANY, None, changes=False, place=_HEALTH_OF_ALL
    ),
    (*_HEALTH, b"check"): Verb(reports.health_check, ANY, None, changes=False, place=here),
    (*_HEALTH, b"online"): Verb(reports.health_online, ANY, "server", place=_HEALTH_OF_ALL),
    (*_HEALTH, b"offline"): Verb(reports.health_offline, ANY, "server", place=_HEALTH_OF_ALL),
    (b"metrics",): Verb(reports.metrics, GET, "query", changes=False, place=of_all(merge_metrics)),
}


class CamelliaDialect(HttpDialect):
    prefixes = frozenset((b"camellia", b"metrics"))

    def __init__(self, parts: Parts) -> None:
        self._context = CamelliaContext(parts)

    def read(self, head: Head) -> CamelliaRequest:
        return CamelliaRequest(head, self._context)

    def upkeep(self) -> None:
        self._context.begin()


class CamelliaRequest(VerbRequest[CamelliaContext]):
    """A head of this dialect, and how it is done."""

    call = CamelliaCall
    verbs = VERBS
    form_methods = POST  # what the original's servlets read
    wrong_path = "There is nothing at this path."
    wrong_method = "Request method '{}' is not supported."

    def refuse_early(self, peer: Connection, status: int, text: str, lines: bytes = b"") -> None:
        """What the original's framework would refuse."""
        path = self.head.target.partition(b"?")[0]
        body = framework_error(status, text, path, self.context.broker.now_ms)
        PlainReply(self, peer).respond(status, JSON + lines, body)
