"""camellia-delay-queue over HTTP: which paths there are, and who may what at each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from zbus.dialects.camellia import messages, reports
from zbus.dialects.camellia.context import Context, Request
from zbus.dialects.camellia.health import Health
from zbus.dialects.camellia.monitor import Monitor
from zbus.dialects.camellia.parking import Parking
from zbus.dialects.camellia.queues import Queues
from zbus.dialects.camellia.settings import CamelliaSettings
from zbus.edge.access import Needs
from zbus.edge.bodies import media_type_of, reading_body, refusal_of
from zbus.edge.connection import Connection, Plan
from zbus.edge.dialect import Parts
from zbus.edge.forms import FORMS, read_fields
from zbus.edge.guard import Guard
from zbus.edge.http_reply import HttpDialect
from zbus.edge.params import BadParameter, Params
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Head
from zbus.wire.target import split_target

Run = Callable[[Request, Params, Connection], None]

_GET, _POST, _ANY = (b"GET", b"HEAD"), (b"POST",), ()


@attrs.frozen
class Verb:
    """What is done at a path."""

    run: Run
    methods: tuple[bytes, ...]
    operation: str | None  # that a token must be granted; None = no token is asked for
    changes: bool = True


_QUEUE, _HEALTH = (b"camellia", b"delayQueue"), (b"camellia", b"health")

VERBS: Final[dict[tuple[bytes, ...], Verb]] = {
    (*_QUEUE, b"sendMsg"): Verb(messages.send, _POST, "produce"),
    (*_QUEUE, b"deleteMsg"): Verb(messages.delete, _POST, "consume"),
    (*_QUEUE, b"pullMsg"): Verb(messages.pull, _POST, "consume"),
    (*_QUEUE, b"longPollingMsg"): Verb(messages.long_poll, _POST, "consume"),
    (*_QUEUE, b"ackMsg"): Verb(messages.ack, _POST, "consume"),
    (*_QUEUE, b"getMsg"): Verb(messages.get, _POST, "consume", changes=False),
    (*_QUEUE, b"getMonitorData"): Verb(reports.monitor_data, _GET, "query", changes=False),
    (*_QUEUE, b"getTopicInfo"): Verb(reports.topic_info, _GET, "query", changes=False),
    (*_QUEUE, b"getTopicInfoList"): Verb(reports.topic_list, _GET, "query", changes=False),
    (*_QUEUE, b"getMonitorString"): Verb(reports.monitor_string, _GET, "query", changes=False),
    (*_HEALTH, b"status"): Verb(reports.health_status, _ANY, None, changes=False),
    (*_HEALTH, b"check"): Verb(reports.health_check, _ANY, None, changes=False),
    (*_HEALTH, b"online"): Verb(reports.health_online, _ANY, "server"),
    (*_HEALTH, b"offline"): Verb(reports.health_offline, _ANY, "server"),
    (b"metrics",): Verb(reports.metrics, _GET, "query", changes=False),
}


class CamelliaDialect(HttpDialect):
    """One broker, and what the requests of this dialect share around it: a `Context`."""

    prefixes = frozenset((b"camellia", b"metrics"))

    def __init__(self, parts: Parts) -> None:
        settings = parts.settings or CamelliaSettings()
        assert isinstance(settings, CamelliaSettings)
        self.guard = parts.guard
        self.broker = parts.broker
        self.settings = settings
        self.queues = Queues(parts.broker, settings)
        self.monitor = Monitor(parts.broker, settings)
        self.parking = Parking(parts.broker, self.queues)
        self.health = Health()

    def read(self, head: Head) -> CamelliaRequest:
        return CamelliaRequest(head, self.guard, self)

    def upkeep(self) -> None:
        self.health.begin(self.broker.now_ms)


class CamelliaRequest(Request):
    """A head of this dialect, and how it is done."""

    def __init__(self, head: Head, guard: Guard, dialect: Context) -> None:
        super().__init__(head, guard, dialect)
        segments, pairs = split_target(head.target)
        self.verb = verb = VERBS.get(tuple(segments))
        self.operation = "" if verb is None else verb.operation
        self._query: dict[bytes, bytes] = {}
        for name, value in pairs:
            self._query.setdefault(name, value)
        self._media_type = head.fields.get(b"content-type", b"")
        self._reads_form = head.method == b"POST" and media_type_of(head.fields) in FORMS

    def changes(self) -> bool:
        return self.verb is None or self.verb.changes

    def needs(self) -> Needs | None:
        """The operation. On which topic is mostly said in the body: `may` looks at that when it
        was read."""
        return None if self.operation is None else Needs(self.operation)

    def plan(self) -> Plan:
        return reading_body(self, self, self.head.fields) if self._reads_form else self

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        verb, method = self.verb, self.head.method
        self.dialect.health.begin(self.dialect.broker.now_ms)
        if verb is None:
            self.refuse_early(peer, 404, "There is nothing at this path.")
        elif verb.methods and method not in verb.methods:
            text = f"Request method '{method.decode()}' is not supported."
            self.refuse_early(peer, 405, text, b"allow: %b\r\n" % b", ".join(verb.methods))
        else:
            try:
                form = read_fields(self._media_type, body) if self._reads_form and body else {}
                verb.run(self, Params({**form, **self._query}), peer)
            except BadParameter as error:
                self.refuse_early(peer, 400, str(error))
            except WireError as error:
                self.refuse(refusal_of(error)).run(peer, id, b"")
