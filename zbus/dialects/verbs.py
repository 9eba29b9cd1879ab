"""Dialects whose verbs are paths, with parameters in the query, in a form, or in a document.

    POST /camellia/delayQueue/sendMsg?topic=Orders      msg=two+chairs&delayMillis=0

A dialect has a table of its verbs, a call that knows its context and its reply, and its own words
for what no verb is called for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import attrs
import msgspec

from zbus.edge.access import Needs
from zbus.edge.bodies import NO_LENGTH_ANSWER, media_type_of, reading_body, refusal_of
from zbus.edge.connection import Connection, Plan
from zbus.edge.dialect import Context
from zbus.edge.forms import FORMS, read_fields
from zbus.edge.http_reply import PlainHead
from zbus.edge.params import BadParameter, Params
from zbus.edge.places import AtTopic, Everywhere, InBody, Place
from zbus.edge.shape_plans import Filled, Found, OfShape
from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Head
from zbus.wire.heads.shapes import Slot, Slots
from zbus.wire.responses import Response
from zbus.wire.target import decode_percent, split_target

GET: Final = (b"GET", b"HEAD")
POST: Final = (b"POST",)
ANY: Final = ()

ContextT = TypeVar("ContextT", bound=Context[Any])

Fields: TypeAlias = "Mapping[bytes, bytes]"
Placing: TypeAlias = "Callable[[Any, Fields, bytes], Place]"
"""Where a request is done, if a server has several workers: of the context, the parameters and the
body. The latter come without those of the body first: None = they may say more."""


def text_of(fields: Fields, name: bytes) -> str:
    """The value of a parameter, whatever the verb makes of it."""
    return fields.get(name, b"").decode("utf-8", "replace").strip()


def at_topic(context: object, fields: Fields, body: bytes) -> Place:
    """Where its topic is."""
    topic = text_of(fields, b"topic")
    return AtTopic(topic) if topic else None


def here(context: object, fields: Fields, body: bytes) -> Place:
    """Wherever it was asked."""
    return None


def of_all(merge: Callable[[Sequence[Response]], tuple[bytes, bytes]]) -> Placing:
    """At all workers."""
    place = Everywhere(merge)
    return lambda context, fields, body: place


def merge_lists(responses: Sequence[Response]) -> tuple[bytes, bytes]:
    """Of documents that are the same but for their lists: workers have different topics."""
    documents = [msgspec.json.decode(response.body) for response in responses]
    return b"", msgspec.json.encode(reduce(_joined, documents))


def _joined(one: Any, other: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(one, list):
        return one + other
    if isinstance(one, dict):
        return {key: _joined(value, other[key]) for key, value in one.items()}
    return one


@attrs.frozen
class Verb:
    """What is done at a path."""

    run: Callable[[Any], None]  # with the dialect's call
    methods: tuple[bytes, ...]
    operation: str | None  # that a token must be granted; None = no token is asked for
    changes: bool = True
    names: bytes = b""  # the parameter that one more segment of the path is
    document: bool = False  # its body is one, and no form
    place: Placing = at_topic
    free: bytes = b""  # the parameter that differs in each request, and steers nothing before `run`


Verbs = Mapping[tuple[bytes, ...], Verb]

_FREE_VALUE: Final = rb"[!$%'-*,-~]++"
"""Of a query: without `&`, and without `+`, which is a space."""


def free_names(verbs: Iterable[Verb]) -> frozenset[bytes]:
    """Names of parameters, in lower case, whose values may differ from head to head."""
    return frozenset(verb.free.lower() for verb in verbs if verb.free)


class Call(Generic[ContextT]):
    """One request while it is done."""

    __slots__ = ("asked", "body", "context", "params", "peer")

    def __init__(
        self,
        asked: VerbRequest[ContextT],
        context: ContextT,
        params: Params,
        peer: Connection,
        body: bytes,
    ) -> None:
        self.asked = asked
        self.context = context
        self.params = params
        self.peer = peer
        self.body = body  # of a verb that takes a document

    def may(self, topic: str, group: str = "", *, whole: bool = False) -> bool:
        """Whether the caller may do this to the topic, or to `whole` of it, which is all its
        groups, and make it to produce into; if not it is answered."""
        grant, operation = self.peer.grant, self.asked.operation
        if grant is None or operation is None:
            return True
        puts = operation == "produce"
        groups = (group,) if group and not puts else ()
        makes = puts and self.context.broker.topic(topic) is None
        also = Needs("declare", topic) if makes else None
        if Needs(operation, topic, groups, whole, also=also).met_by(grant):
            return True
        self.asked.forbid("", known=True).run(self.peer, b"", b"")
        return False


class VerbRequest(PlainHead, Generic[ContextT]):
    """A head at the path of a verb, and how it is done."""

    call: ClassVar[Callable[..., Call[Any]]]
    verbs: ClassVar[Verbs]
    form_methods: ClassVar[tuple[bytes, ...]] = ANY  # whose bodies may be forms
    # Texts of refusals: no verb is at the path, or none for the method.
    wrong_path: ClassVar[str]
    wrong_method: ClassVar[str]

    def __init__(self, head: Head, context: ContextT) -> None:
        super().__init__(head, context.guard)
        self.context = context
        segments, pairs = split_target(head.target)
        self.query: dict[bytes, bytes] = {}
        for name, value in pairs:
            self.query.setdefault(name, value)
        self._verb = verb = self._find(tuple(segments))
        self.operation = "" if verb is None else verb.operation
        self._is_document = verb is not None and verb.document
        may_be_form = not self.form_methods or head.method in self.form_methods
        is_form = may_be_form and not self._is_document and media_type_of(head.fields) in FORMS
        self._form_type = head.fields.get(b"content-type", b"") if is_form else b""

    def place(self) -> Place:
        if self._verb is None:
            return None
        place = self._verb.place(self.context, self.query, b"")
        reads = self._form_type or self._is_document
        return InBody(self._find_place) if place is None and reads else place

    def _find_place(self, body: bytes) -> Place:
        """Where it is, as the body says. What cannot be read is refused wherever it is asked."""
        assert self._verb is not None
        try:
            form = read_fields(self._form_type, body) if self._form_type else {}
        except WireError:
            return None
        return self._verb.place(self.context, {**form, **self.query}, body)

    def _find(self, segments: tuple[bytes, ...]) -> Verb | None:
        verb = self.verbs.get(segments)
        if verb is not None:
            return None if verb.names else verb
        verb = self.verbs.get(segments[:-1])
        if verb is None or not verb.names:
            return None
        self.query[verb.names] = segments[-1]
        return verb

    def refuse_early(self, peer: Connection, status: int, text: str, lines: bytes = b"") -> None:
        """No verb is called, because of the path (404), the method (405) or a parameter (400)."""
        raise NotImplementedError

    def changes(self) -> bool:
        return self._verb is None or self._verb.changes

    def needs(self) -> Needs | None:
        """The operation. On which topic is mostly said in the body: `may` looks at that when it
        was read."""
        return None if self.operation is None else Needs(self.operation)

    def plan(self) -> Plan:
        if self._is_document and self.head.open_ended:
            return self.refuse(NO_LENGTH_ANSWER)
        reads = self._is_document or self._form_type
        return reading_body(self, self, self.head.fields) if reads else self

    def slots(self) -> Slots | None:
        """The free parameter, if the query has it once, however it is spelled."""
        name = b"" if self._verb is None else self._verb.free
        spelled = [one.lower() for one, _ in split_target(self.head.target)[1]]
        if name not in self.query or spelled.count(name.lower()) != 1:
            return None
        return Slots({}, {name.lower(): Slot(name, _FREE_VALUE)})

    def fill(self, names: Sequence[bytes], unshaped: Filled) -> Filled:
        """The plan of heads that differ from this one in the free parameter."""
        assert self._verb is not None
        return VerbShape(self, self._verb.free, names)

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        self.do(peer, body, self.query)

    def do(self, peer: Connection, body: bytes, query: Mapping[bytes, bytes]) -> None:
        """What is asked for, with these parameters of the query."""
        verb, method = self._verb, self.head.method
        self.context.begin()
        if verb is None:
            self.refuse_early(peer, 404, self.wrong_path)
        elif verb.methods and method not in verb.methods:
            text = self.wrong_method.format(method.decode())
            self.refuse_early(peer, 405, text, b"allow: %b\r\n" % b", ".join(verb.methods))
        else:
            try:
                form = read_fields(self._form_type, body) if body and self._form_type else {}
                params = Params({**form, **query})
                verb.run(self.call(self, self.context, params, peer, body))
            except BadParameter as error:
                self.refuse_early(peer, 400, str(error))
            except WireError as error:
                self.refuse(refusal_of(error)).run(peer, b"", b"")


class VerbShape(OfShape):
    """The plan of a shape: the parameter that is free has the value of each head."""

    __slots__ = ("_at", "_name", "_query")

    plan: VerbRequest[Any]

    def __init__(self, plan: VerbRequest[Any], name: bytes, names: Sequence[bytes]) -> None:
        self.plan = plan
        self._name = name
        self._at = names.index(name) + 1 if name in names else 0
        self._query = plan.query

    def run(self, peer: Connection, found: Found, body: bytes) -> None:
        query = self._query
        if self._at:
            query = {**query, self._name: decode_percent(found[self._at])}
        self.plan.do(peer, body, query)
