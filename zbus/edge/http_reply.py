"""Replies of dialects of plain HTTP: one to each request, in order, as its head wants it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from zbus.core.model.errors import BrokerError
from zbus.core.model.pull_options import ONE, PullOptions
from zbus.core.model.ticket import Ticket
from zbus.core.topics.outcomes import Outcome, Routed
from zbus.core.topics.topic import Pull
from zbus.edge.connection import Answering, Connection, Plan
from zbus.edge.dialect import Report
from zbus.edge.guard import SANDBOX, Answer, Browser, Guard, Policy
from zbus.edge.places import Place, Replies
from zbus.edge.status import STATUS, retry_line
from zbus.edge.websocket import Codec
from zbus.wire.heads.heads import Head
from zbus.wire.replies import encode_late_body, encode_late_head, encode_reply

T = TypeVar("T")

TEXT = b"content-type: text/plain\r\n"


def compose(
    head: Head,
    browser: Browser | None,
    status: int,
    lines: bytes,
    body: bytes,
    policy: bytes = SANDBOX,
    *,
    cached: bool = False,
) -> bytes:
    """A whole reply to a request with this head. A browser learns what it may do with it.
    `cached`: the lines say how long a cache may keep it."""
    if browser is not None:
        lines = browser.cover(lines, body, policy)
    head_only = head.method == b"HEAD" and not head.contained
    close = not head.keep_alive
    return encode_reply(status, lines, body, close=close, head_only=head_only, cached=cached)


class HttpDialect:
    """What a dialect of plain HTTP need not say: it has no calls, tells nothing to other servers,
    and nothing to do from time to time."""

    policy = Policy()

    def claims(self, head: Head) -> bool:
        return False

    def push(self, peer: Connection, routed: Routed) -> bool:
        return False  # this dialect has no word for it

    def reports(self) -> list[Report]:
        return []

    def holds(self) -> dict[str, Callable[[], int]]:
        return {}

    def upkeep(self) -> None:
        pass


class PlainHead:
    """A head, and how replies to it are written. What a dialect makes of a head begins here; it has
    still to say what it `needs`, whether it `changes` something, and its `plan`."""

    def __init__(self, head: Head, guard: Guard) -> None:
        self.head = head
        self.browser = None if head.contained else guard.browser(head)

    def url_token(self) -> bytes:
        return b""

    def opens(self) -> Callable[[], Codec] | None:
        return None

    def place(self) -> Place:
        return None

    def replies(self) -> Replies:
        return Replies.IN_ORDER

    def plan_unread(self) -> Plan | None:
        return None

    def refuse(self, answer: Answer) -> Plan:
        return Tell(self, answer)

    def forbid(self, why: str, known: bool) -> Plan:
        why = why or ("this token may not do that" if known else "this needs a known token")
        return Tell(self, Answer(403, f"403: {why}", TEXT))


class PlainAnswering(Answering):
    """What the tickets of one request have in common; a dialect encodes each outcome in
    `answer`."""

    __slots__ = ()

    asked: PlainHead

    def respond(self, status: int, lines: bytes = b"", body: bytes = b"") -> None:
        """The final answer."""
        asked = self.asked
        self.send(compose(asked.head, asked.browser, status, lines, body))

    def answer(self, outcome: Outcome) -> None:
        """A dialect overrides this for all that is no refusal."""
        if not isinstance(outcome, BrokerError):
            raise AssertionError(f"unexpected outcome {outcome!r}")
        self.respond_refusal(outcome)

    def respond_refusal(self, error: BrokerError) -> None:
        """The answer to what is refused; in the words of a dialect that has some."""
        status = STATUS[error.refusal]
        self.respond(status, TEXT + retry_line(error), f"{status}: {error.text}".encode())


class PlainReply(PlainAnswering, Ticket):
    """A ticket of any verb but a pull. One with an id repeats that, and is answered out of turn."""

    __slots__ = ("asked", "data", "id", "ordered", "peer")

    def __init__(self, asked: PlainHead, peer: Connection, id: bytes = b"") -> None:
        super().__init__()
        self.asked = asked
        self.peer = peer
        self.id = id
        self.ordered = not id
        self.data: bytes | None = None
        peer.open_tickets += 1
        if self.ordered:
            peer.take_turn(self)

    def step(self, call: Callable[[Outcome], None], *, refusals: bool = False) -> Ticket:
        """A ticket whose outcome is not the answer yet. A refusal is, unless the call wants to know
        of those, too."""
        return _Step(self, call, refusals)

    def guard(self, call: Callable[[T], None]) -> Callable[[T], None]:
        """The same for what storage calls back."""
        return guarded(call, self.failed)


def guarded(call: Callable[[T], None], failed: Callable[[Exception], None]) -> Callable[[T], None]:
    """A call by storage, for a request: a mistake in it is that of the request's peer."""

    def tried(found: T) -> None:
        try:
            call(found)
        except Exception as error:
            failed(error)

    return tried


class _Step(Ticket):
    __slots__ = ("_call", "_refusals", "_reply")

    def __init__(self, reply: PlainReply, call: Callable[[Outcome], None], refusals: bool) -> None:
        super().__init__()
        self._reply = reply
        self._call = call
        self._refusals = refusals

    def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, BrokerError) and not self._refusals:
            self._reply.settle(outcome)
        else:
            self._call(outcome)

    def failed(self, error: Exception) -> None:
        self._reply.failed(error)


class PlainPull(PlainAnswering, Pull):
    """A pull, which may wait."""

    __slots__ = ("asked", "data", "id", "ordered", "peer")

    def __init__(self, asked: PlainHead, peer: Connection, wants: PullOptions = ONE) -> None:
        super().__init__(peer, wants)
        self.asked = asked
        self.peer = peer
        self.id = b""
        self.ordered = True
        self.data: bytes | None = None
        peer.open_tickets += 1
        peer.open_waits += 1
        peer.take_turn(self)

    def settle(self, outcome: Outcome) -> None:
        self.peer.open_waits -= 1
        super().settle(outcome)


class LatePull(PlainPull):
    """A pull whose head goes out at once, so that its sender can tell waiting from not being heard:
    the status is 200, whatever comes of it. Who waits is never silent for too long."""

    __slots__ = ("begun", "lines")

    def __init__(
        self, asked: PlainHead, peer: Connection, wants: PullOptions, lines: bytes
    ) -> None:
        super().__init__(asked, peer, wants)
        self.lines = lines
        peer.patient += 1
        head, browser = asked.head, asked.browser
        assert peer.turns is not None
        # HTTP/1.0 knows no chunks; behind another reply it is made with its body.
        self.begun = head.version_11 and peer.turns[0] is self
        if self.begun:
            covered = lines if browser is None else browser.cover(lines, b"", SANDBOX)
            peer.write(encode_late_head(covered, close=not head.keep_alive))

    def settle(self, outcome: Outcome) -> None:
        self.peer.patient -= 1
        super().settle(outcome)

    def respond_late(self, body: bytes) -> None:
        """The final answer, which is not empty."""
        if self.begun:
            self.send(encode_late_body(body))
        else:
            self.respond(200, self.lines, body)


class Tell:
    """Plan that gives an answer, whatever was asked."""

    def __init__(self, asked: PlainHead, answer: Answer) -> None:
        self._asked = asked
        self._answer = answer

    def run(self, peer: Connection, id: bytes, body: bytes) -> None:
        answer = self._answer
        PlainReply(self._asked, peer).respond(answer.status, answer.lines, answer.text.encode())
