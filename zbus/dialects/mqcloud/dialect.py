"""MQCloud over HTTP: which paths there are, and who may what at each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from zbus.dialects.mqcloud import consuming, managing, producing
from zbus.dialects.mqcloud.context import Context, Request
from zbus.dialects.mqcloud.ids import Ids
from zbus.dialects.mqcloud.locks import Locks
from zbus.dialects.mqcloud.registry import Registry
from zbus.dialects.mqcloud.replies import BAD, FAILED
from zbus.dialects.mqcloud.settings import MqcloudSettings
from zbus.edge.access import Needs
from zbus.edge.bodies import NO_LENGTH_ANSWER, media_type_of, reading_body, refusal_of
from zbus.edge.connection import Connection, Plan
from zbus.edge.dialect import Parts
from zbus.edge.forms import FORMS, read_fields
from zbus.edge.guard import Guard, Policy
from zbus.edge.http_reply import TEXT, HttpDialect, PlainReply
from zbus.edge.params import BadParameter, Params
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Head
from zbus.wire.target import split_target

Run = Callable[[Request, Params, Connection], None]

_GET, _POST, _ANY = (b"GET", b"HEAD"), (b"POST",), ()
_LISTS: Final = (b"/topic/httpProducer", b"/topic/httpConsumer")
"""What the proxies of the original poll is not under `/mq`."""


@attrs.frozen
class Verb:
    """What is done at a path."""

    run: Run
    methods: tuple[bytes, ...]
    operation: str  # that a token must be granted
    changes: bool = True


VERBS: Final[dict[tuple[bytes, ...], Verb]] = {
    (b"mq", b"produce"): Verb(producing.produce, _POST, "produce"),
    (b"mq", b"produce", b"batch"): Verb(producing.produce_batch, _POST, "produce"),
    (b"mq", b"message"): Verb(consuming.message, _ANY, "consume"),
    (b"mq", b"ack"): Verb(consuming.ack, _ANY, "consume"),
    (b"mq", b"unlock"): Verb(consuming.unlock_queue, _ANY, "consume"),
    (b"mq", b"register"): Verb(managing.register, _POST, "declare"),
    (b"mq", b"unregister"): Verb(managing.unregister, _POST, "remove"),
    (b"mq", b"find"): Verb(managing.find, _GET, "consume", changes=False),
    (b"mq", b"clustering", b"queue", b"offset"): Verb(managing.offsets, _GET, "query", False),
    (b"mq", b"broadcast", b"queue", b"offset"): Verb(managing.offsets, _GET, "query", False),
    (b"mq", b"clustering", b"pop", b"ack"): Verb(managing.ranges, _GET, "query", False),
    (b"mq", b"broadcast", b"pop", b"ack"): Verb(managing.ranges, _GET, "query", False),
    (b"topic", b"httpProducer"): Verb(managing.producers, _GET, "query", False),
    (b"topic", b"httpConsumer"): Verb(managing.consumers, _GET, "query", False),
}

_CONFIGURE: Final = (b"mq", b"consumer", b"config")
_CONFIG: Final = (b"mq", b"config")
"""Those whose body is no form, and whose path has a name in it."""


class MqcloudDialect(HttpDialect):
    """One broker, and what the requests of this dialect share around it: a `Context`."""

    prefixes = frozenset((b"mq",))
    policy = Policy(by_address=True)

    def __init__(self, parts: Parts) -> None:
        settings = parts.settings or MqcloudSettings()
        assert isinstance(settings, MqcloudSettings)
        self.guard = parts.guard
        self.broker = parts.broker
        self.settings = settings
        self.registry = Registry(parts.broker, settings)
        self.locks = Locks()
        self.ids = Ids(settings.address, parts.broker.new_id())

    def claims(self, head: Head) -> bool:
        return head.target.startswith(_LISTS) and head.target.partition(b"?")[0] in _LISTS

    def read(self, head: Head) -> MqcloudRequest:
        return MqcloudRequest(head, self.guard, self)

    def holds(self) -> dict[str, Callable[[], int]]:
        return {"mqcloudLocks": self.locks.held_bytes}

    def upkeep(self) -> None:
        self.registry.configure()
        self.locks.forget_gone()
        self.registry.forget_gone()


class MqcloudRequest(Request):
    """A head of this dialect, and how it is done."""

    def __init__(self, head: Head, guard: Guard, dialect: Context) -> None:
        super().__init__(head, guard, dialect)
        segments, pairs = split_target(head.target)
        self._named = ""
        self._is_document = tuple(segments) == _CONFIGURE  # else the body is a form
        self.verb = verb = self._verb(tuple(segments))
        self.operation = "" if verb is None else verb.operation
        self._query: dict[bytes, bytes] = {}
        for name, value in pairs:
            self._query.setdefault(name, value)
        self._media_type = head.fields.get(b"content-type", b"")
        self._body = b""

    def _verb(self, segments: tuple[bytes, ...]) -> Verb | None:
        if segments == _CONFIGURE:
            return Verb(self._configure, _POST, "declare")
        if segments[:2] == _CONFIG and len(segments) == 3:
            self._named = segments[2].decode("utf-8", "replace")
            return Verb(self._settings_of, _GET, "query", False)
        return VERBS.get(segments)

    def _configure(self, request: Request, params: Params, peer: Connection) -> None:
        managing.configure(request, params, peer, self._body)

    def _settings_of(self, request: Request, params: Params, peer: Connection) -> None:
        managing.settings_of(request, params, peer, self._named)

    def changes(self) -> bool:
        return self.verb is None or self.verb.changes

    def needs(self) -> Needs | None:
        """The operation. On which topic is mostly said in the body: `may` looks at that when it
        was read."""
        return Needs(self.operation)

    def plan(self) -> Plan:
        if self._is_document and self.head.open_ended:
            return self.refuse(NO_LENGTH_ANSWER)
        reads = self._is_document or media_type_of(self.head.fields) in FORMS
        return reading_body(self, self, self.head.fields) if reads else self

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        verb, method = self.verb, self.head.method
        if verb is None:
            PlainReply(self, peer).respond(404, TEXT, b"404: there is nothing at this path")
        elif verb.methods and method not in verb.methods:
            text = f"Request method '{method.decode()}' not supported"
            self.reply(peer).respond_status(FAILED, text)
        else:
            self._body = body
            try:
                form = read_fields(self._media_type, body) if body else {}
                verb.run(self, Params({**form, **self._query}), peer)
            except BadParameter as error:
                self.reply(peer).respond_status(BAD, str(error))
            except WireError as error:
                self.refuse(refusal_of(error)).run(peer, id, b"")
            finally:
                self._body = b""
