"""The core of both clients: requests under way, whatever becomes of the connection. No IO.

A shell owns a socket and asks four things of it: `take` what is to be sent, `receive` what came,
`lost` when the connection broke, `connected` when there is a new one. It brings the time (seconds
of a clock that only grows) and a source of random numbers.

A call ends with an answer, matched by its id, or with an error. When the connection is lost, what
may be sent twice is sent again on the next one, in the old order: requests that change nothing when
they are repeated, and produced messages, which carry an idempotency key. Of others that were sent
it is unknown whether they were done: `ConnectionLost.unknown`. Nothing is sent again more than
`retries` times, and connecting is given up after as many failures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from zbus.client import commands
from zbus.client.errors import ConnectionLost, ProtocolError, Timeout, ZbusError
from zbus.client.links.abandoned import Abandoned, Key, Step
from zbus.client.links.attempts import HERE, Attempts, Random
from zbus.client.messages import Delivery
from zbus.client.options import Addresses, Options
from zbus.client.requests import Pulling, Request, failure, line
from zbus.client.spans import Span
from zbus.wire.responses import Response, ResponseReader

T = TypeVar("T")


_NONE = Response(200, {}, b"")


class Call(Generic[T]):
    """One request under way. `waiter` is the shell's: called once, when the call is done."""

    __slots__ = (
        "data",
        "deadline_s",
        "done",
        "error",
        "held_back",
        "id",
        "kept",
        "request",
        "response",
        "safe",
        "sent",
        "span",
        "waiter",
    )

    def __init__(self, request: Request[T], id: bytes, data: bytes, deadline_s: float) -> None:
        self.request = request
        self.id = id
        self.data = data
        self.deadline_s = deadline_s
        self.safe = request.safe
        self.sent = 0  # on how many connections
        self.done = False
        self.held_back = False  # until it is known what became of a pull that was given up
        self.kept: list[Delivery] | None = None  # messages that came for such a pull
        self.response: Response | None = None
        self.error: Exception | None = None
        self.waiter: Callable[[], None] | None = None
        self.span: Span | None = None

    def result(self) -> T:
        """What the answer means. Raises what it was refused with, or why there is none."""
        if self.error is not None:
            raise self.error
        if self.kept is not None:
            return cast("T", self.kept)
        assert self.response is not None, "the call is not done"
        return self.request.parse(self.response)


def _encode(request: Request[Any], common: bytes, id: bytes) -> bytes:
    """A request as it is sent; `common` are lines that all of the client have."""
    body = request.body
    return b"%b%bid: %b\r\ncontent-length: %d\r\n\r\n%b" % (
        request.lines,
        common,
        id,
        len(body),
        body,
    )


class RequestTracker:
    """The calls of one client: sent, answered, and sent again on a new connection."""

    patience_s = math.inf  # each call has a deadline of its own

    def __init__(self, options: Options, random: Random, addresses: Addresses = (HERE,)) -> None:
        self._options = options
        self.attempts = Attempts(options, random, addresses)
        self._common = b"" if options.token is None else line(b"token", options.token)
        self._prefix = b"%016x-" % random.getrandbits(64)
        self._serial = 0
        self._now_s = 0.0  # when something was asked last
        self._open: dict[bytes, Call[Any]] = {}  # in the order of their sending
        self._abandoned = Abandoned()
        self._out: list[bytes] = []
        self._reader = ResponseReader()
        self._strange = ""  # what came that no broker says
        self._lost = ""  # why there was no connection the last time
        self._standby = ""  # it answers nothing itself, and this is who does
        self.online = False
        self.has_news = False  # something is to be sent that no caller is about to flush

    def __len__(self) -> int:
        """Calls under way."""
        return len(self._open)

    @property
    def out_count(self) -> int:
        """Requests that `take` has not taken yet."""
        return len(self._out)

    # -- requests -------------------------------------------------------------------------

    def submit(self, request: Request[T], now_s: float) -> Call[T]:
        """Begin a request. Raises ValueError if its own id is that of one under way."""
        self._now_s = now_s
        id = request.id
        if not id:
            id = self._new_id()
        elif id in self._open:
            raise ValueError(f"a request with the id {id.decode()} is under way")
        keyed = request.keyed and self._options.retries > 0
        common, span = self._common, None
        tracing = self._options.tracing
        if tracing is not None and request.traced is not None:
            carried = b"\r\ntraceparent:" in request.lines.lower()
            lines, span = tracing.begin(*request.traced, carried)
            common += lines
        if keyed:
            common += b"idempotent: 1\r\n"
        data = _encode(request, common, id)
        timeout_s = request.timeout_s
        if timeout_s is None:
            timeout_s = self._options.timeout_s
        call = Call(request, id, data, now_s + timeout_s)
        call.span = span
        if keyed:
            call.safe = True
        if request.silent:
            call.done = True  # as far as anybody will ever know
            call.response = _NONE
            if self.online:
                self._out.append(data)
            return call
        self._open[id] = call
        if request.pulling is not None and self._served(call, request.pulling):
            return call
        if self.online:
            call.sent = 1
            self._out.append(data)
        return call

    def _new_id(self) -> bytes:
        self._serial += 1
        return b"%b%x" % (self._prefix, self._serial)

    def take(self) -> bytes:
        """All that is to be sent now."""
        out = self._out
        self.has_news = False
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def give_up(self, call: Call[Any], error: Exception) -> None:
        """The caller waits no more. Its answer is passed over, but for messages of a pull."""
        pulling = call.request.pulling
        if not call.done:
            self._open.pop(call.id, None)
            if call.data in self._out:
                self._out.remove(call.data)
            elif self.online and call.sent and not call.held_back and pulling is not None:
                self._abandon(call, pulling)
            self._end(call, None, error)
        elif call.error is None and pulling is not None:
            self._not_taken(call, pulling)

    def last_time(self, call: Call[Any]) -> None:
        """It is not to be sent (again) on another connection."""
        call.safe = False
        if not self.online:
            self.give_up(call, ConnectionLost("it was not sent again", call.sent > 0))

    def expire(self, now_s: float) -> None:
        """End the calls whose time is over."""
        self._now_s = now_s
        for call in [call for call in self._open.values() if call.deadline_s <= now_s]:
            timeout_s = call.request.timeout_s or self._options.timeout_s
            why = "" if self.online or not self._lost else f" ({self._lost})"
            error = Timeout(f"no answer within {timeout_s:g} s{why}", unknown=call.sent > 0)
            if call.held_back and call.request.pulling is not None:
                before_s = now_s - self._options.timeout_s
                self._abandoned.give_up_pulls(call.request.pulling.key, before_s)
            self.give_up(call, error)

    def next_deadline_s(self) -> float | None:
        """When `expire` has something to do."""
        return min((call.deadline_s for call in self._open.values()), default=None)

    # -- the connection -------------------------------------------------------------------

    def receive(self, data: bytes) -> bool:
        """Bytes came. False if the connection is of no more use: close it and call `lost`."""
        reader = self._reader
        usable = True
        for response in reader.receive(data):
            fields = response.fields
            closes = fields.get(b"connection") == b"close"
            # A service's 503 may have any line but that one: its connection stays.
            if closes and response.status == 503 and b"standby" in fields:
                self._standby = fields[b"standby"].decode("latin-1") or "not known"
                return False
            id = fields.get(b"id")
            call = self._open.pop(id, None) if id is not None else None
            if call is not None:
                self.attempts.worked()
                self._answered(call, response)
            elif id in self._abandoned.steps:
                self._decide(id, response)
            elif id is None and response.status >= 400:
                self._refused(response)
            elif id is None:
                self._strange = f"an answer with status {response.status} that names no request"
                return False
            if closes:
                usable = False
        return usable and reader.error is None

    def _answered(self, call: Call[Any], response: Response) -> None:
        if response.status < 400:
            self._end(call, response, None)
        elif response.status == 404 and call.sent > 1 and call.request.removes:
            self._end(call, _NONE, None)  # it is an earlier attempt that found it
        else:
            self._end(call, response, failure(response))

    def _refused(self, response: Response) -> None:
        """The broker could not read a request. It answers what came before first, so it is the
        oldest that can be answered at all; but a 408 is about bytes that did not come."""
        if response.status != 408:
            for call in self._open.values():
                if call.sent and not call.request.waits:
                    self.give_up(call, failure(response))
                    return

    def lost(self, now_s: float, why: str) -> None:
        """The connection broke, or could not be made. Decides what becomes of each call, and when
        to try again."""
        strange = self._strange or (self._reader.error.text if self._reader.error else "")
        if strange:
            why = f"the reply is not from a zbus broker ({strange})"
        elif self._standby:
            why = f"the broker is a standby, and the owner is {self._standby}"
            for call in self._open.values():
                call.sent = max(0, call.sent - 1)  # it has done nothing
        self._strange = self._standby = ""
        self._lost = why
        self.online = False
        self._out.clear()
        self._reader = ResponseReader()
        self._abandoned.lost()
        retries = self._options.retries
        hopeless = self.attempts.failed(now_s)
        for call in list(self._open.values()):
            unknown = call.sent > 0 and not call.safe
            if unknown or hopeless or call.sent > retries:
                if strange:
                    self.give_up(call, ProtocolError(why))
                else:
                    self.give_up(call, ConnectionLost(why, call.sent > 0))

    def connected(self) -> None:
        """There is a connection again: what is under way is sent on it."""
        self.online = True
        steps, self._abandoned.steps = self._abandoned.steps, {}
        self._ask(list(steps.values()))
        for call in self._open.values():
            pulling = call.request.pulling
            call.held_back = pulling is not None and self._abandoned.is_undecided(pulling.key)
            if not call.held_back:
                call.sent += 1
                self._out.append(call.data)

    # -- messages without a caller -----------------------------------------------------------

    def take_kept(self, pulling: Pulling) -> list[Delivery]:
        """Messages of a group without acknowledgements that came and were not delivered."""
        return self._abandoned.take(pulling)

    def put_back(self, pulling: Pulling, deliveries: list[Delivery]) -> None:
        """Keep them for the next pull or consumer of the group."""
        if deliveries:
            self._abandoned.put_back(pulling, deliveries)

    # -- pulls that are given up -------------------------------------------------------------

    def _abandon(self, call: Call[Any], pulling: Pulling) -> None:
        """The broker may have handed messages to this pull already; it is to hand it none."""
        self._abandoned.steps[call.id] = Step("pull", call.request, pulling, [], self._now_s)
        if all(other.held_back for other in self._pulls_of(pulling.key)):
            # Another one would end, too; and it has ended this one.
            self._send(commands.unconsume(pulling.topic, pulling.group, stay=True))

    def _not_taken(self, call: Call[Any], pulling: Pulling) -> None:
        """This pull was answered, but the caller had gone already."""
        if call.kept is not None:
            self._abandoned.put_back(pulling, call.kept)
            return
        try:
            deliveries = call.result()
        except ZbusError:
            return
        self._ask(self._abandoned.keep(pulling, deliveries))

    def _served(self, call: Call[Any], pulling: Pulling) -> bool:
        """A new pull has its answer already, or waits for what becomes of an abandoned one."""
        kept = self._abandoned.take(pulling)
        if kept:
            del self._open[call.id]
            call.kept = kept
            self._end(call, None, None)
            return True
        call.held_back = self.online and self._abandoned.is_undecided(pulling.key)
        return call.held_back

    def _decide(self, id: bytes, response: Response) -> None:
        """The answer for an abandoned pull, or to what is asked about its messages."""
        key = self._abandoned.steps[id].pulling.key
        self._ask(self._abandoned.answered(id, response))
        for call in [call for call in self._pulls_of(key) if call.held_back]:
            pulling = call.request.pulling
            if pulling is not None and not self._served(call, pulling):
                call.sent += 1
                self._out.append(call.data)
                self.has_news = True

    def _pulls_of(self, key: Key) -> list[Call[Any]]:
        """Pulls of a group that are under way."""
        pulls = [(call, call.request.pulling) for call in self._open.values()]
        return [call for call, pulling in pulls if pulling is not None and pulling.key == key]

    def _ask(self, steps: list[Step]) -> None:
        for step in steps:
            self._abandoned.steps[self._send(step.request)] = step

    def _send(self, request: Request[Any]) -> bytes:
        """Send what no caller waits for, if there is a connection; its id."""
        id = self._new_id()
        if self.online:
            self._out.append(_encode(request, self._common, id))
            self.has_news = True
        return id

    def forked(self, parent: int) -> None:
        """In a child: calls under way are the parent's, which alone hears of them. So no span ends
        here and no waiter is woken; who asks is answered that it is not known."""
        for call in self._open.values():
            call.done = True
            call.error = ConnectionLost(f"it was begun by process {parent}, which forked", True)
        self._open.clear()

    def close(self, why: str = "the client was closed") -> None:
        """End all calls."""
        self.online = False
        if self._abandoned.kept_count:
            import logging  # here: it takes a while, and is rarely needed

            logging.getLogger("zbus.client").warning(
                "%d messages are lost: they came for pulls that were given up, their groups have no"
                " acknowledgements, and the client was closed before the next pull",
                self._abandoned.kept_count,
            )
        self._out.clear()
        for call in list(self._open.values()):
            self.give_up(call, ConnectionLost(why, call.sent > 0))

    def _end(self, call: Call[Any], response: Response | None, error: Exception | None) -> None:
        call.done = True
        call.response = response
        call.error = error
        if call.span is not None:
            call.span.end(error)
        if call.waiter is not None:
            call.waiter()
