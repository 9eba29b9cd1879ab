"""One request as this dialect understands it, whichever way it came.

    HTTP        POST /queue/rpush.json?queue=/q&requestid=1
    WebSocket   a message; its codec (`zbus.dialects.adf.frames`) has made a head of what all
                messages of that action and queue have in common

All but rights and limits of the edge is answered as a result, with status 200: the stock client
reads no other.
"""

from __future__ import annotations

from typing import Final

from zbus.core.api import ONE, BrokerError, Changed, Outcome, PullOptions, Stored
from zbus.dialects.adf import actions
from zbus.dialects.adf.actions import PUSHES, Action
from zbus.dialects.adf.context import AdfContext
from zbus.dialects.adf.forms import Binary, Form, Json
from zbus.dialects.adf.queues import ENDLESS_MS, messageid, topic_name
from zbus.edge.access import Needs
from zbus.edge.connection import Connection, Plan
from zbus.edge.guard import Answer
from zbus.edge.http_reply import PlainHead, PlainReply, compose
from zbus.edge.places import AtTopic, Place
from zbus.wire.heads.heads import Head
from zbus.wire.numbers import parse_number

OPERATIONS: Final = {
    **dict.fromkeys((Action.LPUSH, Action.RPUSH), "produce"),
    **dict.fromkeys((Action.PULL, Action.DELETE, Action.LCANCEL, Action.RCANCEL), "consume"),
    Action.COUNT: "query",
    Action.CLEAR: "empty",
    Action.CREATEQUEUE: "declare",
    Action.DELETEQUEUE: "remove",
}

_LEASE_S: Final = range(2, 65_536)
_TIMEOUT_S_MAX: Final = 86_400


class AdfRequest(PlainHead):
    form: Form

    def __init__(
        self, context: AdfContext, head: Head, action: Action | None, queue: bytes
    ) -> None:
        super().__init__(head, context.guard)
        self.context = context
        self.action = action
        self.queue = queue
        self.topic = topic_name(queue)
        self.wants = ONE
        self.timeout_ms = context.settings.adf_pull_timeout_ms
        self.problem = self._problem()  # why it is refused; "" = nothing is wrong

    def _problem(self) -> str:
        if self.action is None:
            return actions.ACTION_UNKNOWN
        if not self.queue:
            creates = self.action is Action.CREATEQUEUE
            return actions.NO_NAME if creates else actions.QUEUE_EMPTY
        return "" if self.topic else actions.QUEUE_INVALID

    def wait(self, seconds: bytes) -> None:
        """It names how long it would wait."""
        timeout_s = parse_number(seconds, _TIMEOUT_S_MAX)
        if timeout_s is None:
            self.problem = self.problem or actions.TIMEOUT_INVALID
        else:
            self.timeout_ms = timeout_s * 1_000

    def wrong_id(self, id: bytes) -> bool:
        """Whether this is no requestid."""
        most = self.context.settings.adf_requestid_length_max
        if id.isascii():
            return not 0 < len(id) <= most
        try:
            return len(id.decode()) > most
        except UnicodeDecodeError:
            return True

    # -- what the edge asks ---------------------------------------------------------------

    def changes(self) -> bool:
        return self.action is not Action.COUNT

    def needs(self) -> Needs:
        action, topic = self.action, self.topic
        if action is None or self.problem:
            return Needs()
        operation = OPERATIONS[action]
        if action is Action.DELETEQUEUE:
            return Needs(operation, topic, whole=True, command=action.name.lower())
        groups = () if action in PUSHES else (topic,)
        return Needs(operation, topic, groups, command=action.name.lower())

    def place(self) -> Place:
        return AtTopic(self.topic) if self.topic else None

    def may_make(self, peer: Connection) -> bool:
        """Whether its sender may make the queue that is missing."""
        grant = peer.grant
        return grant is None or Needs("declare", self.topic, (self.topic,)).met_by(grant)

    def plan(self) -> Plan:
        return self.context.plan(self)

    # -- replies --------------------------------------------------------------------------

    def dress(self, message: bytes) -> bytes:
        """A reply as it goes out."""
        raise NotImplementedError

    def fail(self, peer: Connection, id: bytes, text: str) -> None:
        """A reply at once."""
        PlainReply(self, peer).send(self.dress(self.form.failed(id, text)))


class HttpAsked(AdfRequest):
    """A request of HTTP."""

    def __init__(
        self,
        context: AdfContext,
        head: Head,
        action: Action,
        form: type[Json | Binary],
        query: dict[bytes, bytes],
    ) -> None:
        """The names of `query` are in lower case."""
        queue = query.get(b"queue", b"")
        super().__init__(context, head, action, queue)
        self.form = (
            Binary(action, action, queue)
            if form is Binary
            else Json(action.name.lower().encode(), action, queue)
        )
        self.lines = form.media_type
        self.id = query.get(b"requestid", b"")
        if action is not Action.PULL:
            return
        if b"timeout" in query:
            self.wait(query[b"timeout"])
        self.lease_ms = context.settings.adf_http_lease_ms or ENDLESS_MS
        if b"lease" in query:
            lease_s = parse_number(query[b"lease"])
            if lease_s is None or lease_s not in _LEASE_S:
                self.problem = self.problem or actions.LEASE_INVALID
            else:
                self.lease_ms = lease_s * 1_000
        self.wants = PullOptions(lease_ms=self.lease_ms, on_loss="keep")

    def dress(self, message: bytes) -> bytes:
        return compose(self.head, self.browser, 200, self.lines, message)


WEBSOCKET_WANTS: Final = PullOptions(lease_ms=ENDLESS_MS, on_loss="front")


class FrameAsked(AdfRequest):
    """Messages of a WebSocket."""

    def __init__(self, context: AdfContext, head: Head) -> None:
        fields = head.fields
        queue, word = fields.get(b"queue", b""), fields[b"action"]
        binary = head.target.endswith(b"bin")
        known = actions.BY_CODE.get(word[0]) if binary else actions.BY_WORD.get(word)
        super().__init__(context, head, known, queue)
        self.form = Binary(word[0], known, queue) if binary else Json(word, known, queue)
        self.wants = WEBSOCKET_WANTS
        if b"timeout" in fields:
            self.wait(fields[b"timeout"])
        self.problem = self.problem or fields.get(b"problem", b"").decode()

    def dress(self, message: bytes) -> bytes:
        return message

    def refuse(self, answer: Answer) -> Plan:
        return Fail(self, actions.SERVER_BUSY)

    def forbid(self, why: str, known: bool) -> Plan:
        return Fail(self, actions.FORBIDDEN)


class Fail:
    """Plan that refuses, whatever was asked."""

    def __init__(self, asked: AdfRequest, text: str) -> None:
        self._asked = asked
        self._text = text

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        asked = self._asked
        asked.fail(peer, asked.id if isinstance(asked, HttpAsked) else id, self._text)


class AdfReply(PlainReply):
    """The ticket of all but a pull, which is answered in the order of the requests."""

    __slots__ = ("requestid",)

    asked: AdfRequest

    def __init__(self, asked: AdfRequest, peer: Connection, id: bytes) -> None:
        super().__init__(asked, peer)
        self.requestid = id

    def answer(self, outcome: Outcome) -> None:
        form, id = self.asked.form, self.requestid
        if type(outcome) is Stored:
            message = form.number(id, messageid(outcome.partition, self.offset))
        elif type(outcome) is Changed:
            message = form.number(id, outcome.count)
        elif isinstance(outcome, BrokerError):
            message = form.failed(id, actions.text_of(outcome))
        else:
            message = form.done(id)
        self.send(self.asked.dress(message))

    def fail(self, text: str) -> None:
        """Refuse it for a reason of this dialect."""
        self.open = False
        self.send(self.asked.dress(self.asked.form.failed(self.requestid, text)))
