"""Tickets of the zbus dialect: how each outcome reads on the wire (specification, section 4)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from zbus.core.api import (
    BrokerError,
    Changed,
    Declared,
    Done,
    Group,
    Outcome,
    Raw,
    Refusal,
    Routed,
    Ticket,
)
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.documents.info import encode_document, group_info, topic_info
from zbus.dialects.zbus.request import batch_formats as containers
from zbus.dialects.zbus.request.header_lines import OF_CALLS
from zbus.dialects.zbus.request.params import Params
from zbus.edge.connection import LARGE_BYTES, Answering, Connection
from zbus.edge.status import STATUS, retry_line
from zbus.wire.replies import KEEP_ALIVE, encode_reply

log = logging.getLogger("zbus")

JSON = b"content-type: application/json\r\n"
TEXT = b"content-type: text/plain\r\n"


REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" + KEEP_ALIVE + b"%bid: %b\r\n"
"""How a reply begins to a request that is plain; the topic's line, and the id."""

_WHOLE = REPLY + b"%b\r\n%b"

_OF_ONE = b"count: 1\r\n"

_ACK_NOTE = (
    b"note: with cmd as a header line, ack asks for a reply; for the group say group_ack\r\n"
)

_BODY_BITS, _DOCUMENT_BITS = 11, 6
"""To copy 2 KiB of a body costs a connection about a microsecond of its turn, and so does it to
make 64 bytes of a document."""

TEXTS: dict[Refusal, str] = {
    Refusal.TOPIC_UNKNOWN: "404: Topic({}) Not Found",
    Refusal.GROUP_UNKNOWN: "404: ConsumeGroup({}) Not Found",
    Refusal.OFFSET_UNKNOWN: "404: Message Not Found: offset={}",
    Refusal.EXCLUSIVE: "ConsumeGroup({}) exclusive, forbidden",
}
"""The dialect's own words."""


def partition_unknown(index: int) -> BrokerError:
    """The topic has no partition of that number."""
    return BrokerError(Refusal.OFFSET_UNKNOWN, f"Partition({index}) Not Found")


def forbidden_text(command: str, topic: str) -> str:
    """The refusal of a command."""
    about = f" Topic({topic})" if topic else ""
    return f"403: Command({command}){about} Forbidden"


def spelled(text: str, seed: bool) -> str:
    """A refusal, to a request in the original's own protocol in its spelling."""
    return text[:-9] + text[-9:].replace("orbidden", "orbbiden") if seed else text


def error_text(error: BrokerError, seed: bool = False) -> bytes:
    """The body of a refusal; `seed`: see `spelled`."""
    if error.name and error.refusal is Refusal.FORBIDDEN:  # reading that was allowed ends
        text = forbidden_text("consume", error.name)
    elif error.name and error.refusal in TEXTS:
        text = TEXTS[error.refusal].format(error.name)
    else:
        prefix = "Bad Format, " if error.refusal is Refusal.ILLEGAL else ""
        text = f"{STATUS[error.refusal]}: {prefix}{error.text}"
    if error.next_step:
        text += f"; {error.next_step}"
    return spelled(text, seed).encode()


def log_refusal(peer: Connection, params: Params, text: bytes | str) -> None:
    """Log a refused request, for the search for mistakes of a client."""
    if log.isEnabledFor(logging.DEBUG):
        command = params.cmd[:40].decode("latin-1")
        fields = {"peer": peer.address, "command": command, "topic": params.topic[:100]}
        why = text if isinstance(text, str) else text.decode()
        log.debug("refused", extra={**fields, "why": why[:200]})


def encode_plain(
    params: Params, id: bytes, lines: bytes, body: bytes, size: int | None = None
) -> bytes:
    """What `Params.reply` does, for the usual 200. `size`: the body has that many bytes, and is
    sent by itself."""
    return _WHOLE % (len(body) if size is None else size, params.topic_line, id, lines, body)


class Status(int):
    """What a service of this dialect said beside its reply."""

    __slots__ = ()


def status_of(routed: Routed) -> int:
    """The status of what was routed, by whichever dialect."""
    status = routed.opaque
    return int(status) if isinstance(status, Status) else 500 if routed.failed else 200


class NativeAnswering(Answering):
    """A ticket of this dialect. `quiet` requests (ack off) get no reply at all."""

    __slots__ = ()

    dialect: Context
    params: Params
    quiet: bool

    def respond(self, status: int, lines: bytes = b"", body: bytes = b"") -> None:
        """The final answer."""
        id = self.id or self.dialect.broker.new_id()
        self.peer.work -= len(body) >> (_DOCUMENT_BITS if lines is JSON else _BODY_BITS)
        self.send(b"" if self.quiet else self.params.reply(status, id, lines, body))

    def respond_raw(self, lines: bytes, body: bytes) -> None:
        """A 200 whose body may be large."""
        params = self.params
        if len(body) <= LARGE_BYTES or not params.plain or self.quiet:
            self.respond(200, lines, body)
            return
        lines = b"%bid: %b\r\n%b" % (params.topic_line, self.id, lines)
        self.send_large(encode_reply(200, lines, body, head_only=True), body)

    def respond_error(self, error: BrokerError) -> None:
        lines = retry_line(error)
        if error.name and error.refusal is Refusal.CONFLICT:
            lines = b"offset: %b\r\n" % error.name.encode()
        elif error.refusal is Refusal.NOT_LEASED:
            lines = b"reason: not-leased\r\n"
        params = self.params
        text = error_text(error, params.seed)
        log_refusal(self.peer, params, text)
        self.respond(STATUS[error.refusal], lines, text)

    def respond_done(self, lines: bytes = b"") -> None:
        """A 200 whose body is the time: what `respond` does, without most of its calls, for there
        is one of these for every acknowledgement."""
        params, body = self.params, b"%d" % self.dialect.broker.now_ms
        if self.quiet or not params.plain:
            self.respond(200, lines, body)
        else:
            id = self.id or self.dialect.broker.new_id()
            self.send(encode_plain(params, id, lines, body))

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError):
            self.respond_error(outcome)
        elif isinstance(outcome, Done):
            self.respond_done()
        elif isinstance(outcome, Raw):
            self.respond_raw(*containers.encode_raw(outcome))
        else:
            raise AssertionError(f"unexpected outcome {outcome!r}")


class NativeReply(NativeAnswering, Ticket):
    """The same as a ticket that is nothing else. `id` is the request's; if it is empty, one is made
    for the reply."""

    __slots__ = ("data", "dialect", "id", "ordered", "params", "peer", "quiet")

    implied = False  # where a message goes tells its id, if it was given none

    def __init__(
        self, dialect: Context, params: Params, peer: Connection, id: bytes, quiet: bool = False
    ) -> None:
        # In full, without calls to the classes above: there is one for every request.
        self.open = True
        self.offset = -1
        self.peer = peer
        given = id or params.id
        self.id = given if given or self.implied else dialect.broker.new_id()
        self.data = None
        self.dialect = dialect
        self.params = params
        self.quiet = quiet and params.multiplexed  # plain HTTP waits for an answer to everything
        peer.open_tickets += 1
        if params.multiplexed:
            self.ordered = False
            peer.multiplexed = True
        elif given:
            self.ordered = False
        else:
            # Only a request that can be recognised by id may be answered out of turn.
            self.ordered = True
            peer.take_turn(self)


class Answered:
    """Plan of a command that is answered at once, by a function of its reply. What is wrong with
    the request is raised where the plan is made."""

    __slots__ = ("_answer", "_dialect", "_params", "_quiet")

    def __init__(
        self,
        answer: Callable[[NativeReply], None],
        dialect: Context,
        params: Params,
        quiet: bool = False,
    ) -> None:
        self._answer = answer
        self._dialect = dialect
        self._params = params
        self._quiet = quiet

    @property
    def command(self) -> str:
        return self._params.cmd.decode()

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        self._answer(NativeReply(self._dialect, self._params, peer, id, self._quiet))


class DeclareReply(NativeReply):
    """Of a declare or seek: the new state, as far as the client may see it. `of_group`: the
    group, not the topic."""

    __slots__ = ("grant", "named", "of_group")

    def __init__(
        self, dialect: Context, params: Params, peer: Connection, id: bytes, of_group: bool
    ) -> None:
        super().__init__(dialect, params, peer, id)
        self.grant = peer.grant
        self.named = bool(id or params.id)
        self.of_group = of_group

    def answer(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Declared):
            super().answer(outcome)
            return
        document = (
            topic_info(outcome.topic, self.dialect.settings, self.grant)
            if outcome.group is None or not self.of_group
            else group_info(outcome.group)
        )
        peer, name, group = self.peer, outcome.topic.name, outcome.group
        fields = {"peer": peer.address, "topic": name, "group": group.name if group else ""}
        log.debug("moved" if self.params.cmd == b"seek" else "declared", extra=fields)
        self.dialect.tracking.respond_early(peer)
        lines = JSON + _ACK_NOTE if group and self._meant_group_ack(group) else JSON
        self.respond(200, lines, encode_document(document))

    def _meant_group_ack(self, group: Group) -> bool:
        """Asked by hand, with `ack` beside `cmd`. (Stock clients send an id as well.)"""
        asked = self.params.seed and self.params.head.fields.get(b"ack") in (b"1", b"true")
        return asked and not self.named and not group.lease and self.params.cmd == b"declare"


class CountReply(NativeReply):
    """Of an order that says how many messages it changed, if it looked at them."""

    __slots__ = ()

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Changed):
            self.respond_done(b"count: %d\r\n" % outcome.count)
        else:
            super().answer(outcome)


class SettledReply(NativeReply):
    """Of a nack or extend: how many deliveries it was about."""

    __slots__ = ("count",)

    count: int

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            self.respond_done(_OF_ONE if self.count == 1 else b"count: %d\r\n" % self.count)
        else:
            super().answer(outcome)


class CallReply(NativeReply):
    """Of a call: what the service routed back."""

    __slots__ = ()

    def __init__(self, dialect: Context, params: Params, peer: Connection, id: bytes) -> None:
        super().__init__(dialect, params, peer, id)
        peer.open_waits += 1

    def answer(self, outcome: Outcome) -> None:
        self.peer.open_waits -= 1
        if isinstance(outcome, Routed):
            params = self.params
            reply_lines = OF_CALLS.get(params.form, params.form)(outcome.headers)
            lines = b"id: %b\r\nsender: %b\r\n%b" % (outcome.id, outcome.sender, reply_lines)
            self.send(params.compose(status_of(outcome), lines, outcome.body))
        else:
            super().answer(outcome)

    def drop(self) -> None:
        super().drop()
        self.peer.open_waits -= 1
        self.peer.open_tickets -= 1


def sees_everything(reply: NativeReply) -> bool:
    """Whether the client sees everything; else it is told so."""
    grant = reply.peer.grant
    if grant is None or grant.sees_everything:
        return True
    text = forbidden_text(reply.params.cmd.decode(), "")
    reply.respond(403, body=f"{text}: it is for all groups of all topics".encode())
    return False
