"""The endpoint as its applications see it (`zbus.semq.app.protocol` says what they ask).

Each application is a connection to the Unix socket. What it took and has not done belongs to it,
until it gives it back or the connection ends.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import re
from typing import Final

import anyio
import attrs
import msgspec
from anyio.abc import Listener, SocketStream, TaskGroup

from zbus.semq.endpoint.event_queue import EventQueue
from zbus.semq.endpoint.events import (
    ORDERS,
    ROUTES,
    Done,
    Effect,
    Frame,
    Happened,
    Left,
    Manage,
    Refused,
    Reported,
    Submit,
    Submitted,
    Take,
    Taken,
)
from zbus.semq.program.connection import Connection
from zbus.semq.program.encryption import Sealing, SealingError
from zbus.semq.program.frames import RequestFrames, encode_response
from zbus.semq.program.sockets import serve
from zbus.semq.protocol.words import Address, Fields, Level, Malformed, read_address, read_number
from zbus.wire.heads.heads import Heads
from zbus.wire.limits import WireLimits

CLIENTS_MAX: Final = 200
ASKS_MAX: Final = 1_000
"""What one application may have asked and not been answered, or taken and not done."""

_WAIT_MAX_MS: Final = 86_400_000
_ENDS_MIN: Final = 1_000
"""As many ends of takes, answered ones among them, are never looked through."""

_PRIORITY_MAX: Final = 1_000_000
_OURS: Final = frozenset(("cmd", "id", "token", "row", "again", "fault", "status"))
"""Fields that an application reads what they say from us alone, never from a sender."""

_NAME = re.compile(r"[a-z0-9_.\-]+\Z")

log = logging.getLogger("zbus.semq")


class _No(Exception):
    """It is not done, and why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@attrs.define(eq=False)
class _Ask:
    """Something an application wants of the endpoint. Of a take, until what came of it is done."""

    number: int
    client: _Client
    id: str  # as the application has it
    command: str
    row: int = 0  # what was taken, or is done


class Local:
    """The answers of the endpoint come by `answer`."""

    def __init__(
        self, node: str, arrived: EventQueue, sealing: Sealing, limits: WireLimits, tasks: TaskGroup
    ) -> None:
        self._node = node
        self._arrived = arrived
        self._sealing = sealing
        self._limits = limits
        self._heads = Heads(limits)
        self._numbers = itertools.count(1)
        self._asks: dict[int, _Ask] = {}
        self._held: dict[int, _Ask] = {}  # by row
        self._clients: set[_Client] = set()
        self._ends: list[tuple[float, int]] = []  # a heap: until when takes wait, some answered
        self._sooner = anyio.Event()  # another one is the first to end
        tasks.start_soon(self._end_takes)

    async def serve(self, listener: Listener[SocketStream]) -> None:
        """Take applications, for ever."""
        await serve(listener, self._take)

    async def _take(self, stream: SocketStream) -> None:
        if len(self._clients) >= CLIENTS_MAX:
            await anyio.aclose_forcefully(stream)
            return
        reader = RequestFrames(self._heads, self._limits)
        client = _Client(Connection(stream, reader, encode_response, "an application"))
        self._clients.add(client)
        try:
            await client.connection.run(lambda frame: self._asked(client, frame))
        finally:
            self._clients.discard(client)
            for number in list(client.takes.values()):
                self._give_back(number)
            for number in list(client.asks):
                self._forget(number)

    @property
    def connections(self) -> list[Connection]:
        return [client.connection for client in self._clients]

    def send_goodbye(self) -> None:
        """The program stops."""
        for client in self._clients:
            client.connection.close("the program stops")

    # -- what is asked ------------------------------------------------------------------------

    async def _asked(self, client: _Client, frame: Frame) -> None:
        id = frame.fields.get("id", "")
        try:
            await self._do(client, id, frame)
        except _No as error:
            client.respond(error.status, id, text=str(error))
        except Malformed as error:
            client.respond(400, id, text=str(error))
        except SealingError as error:
            client.respond(422, id, text=f"it cannot be encrypted: {error}")

    async def _do(self, client: _Client, id: str, frame: Frame) -> None:
        fields, command = Fields(frame.fields), frame.command
        if len(client.asks) >= ASKS_MAX and command != "done" and command != "back":
            raise _No(429, f"one connection has at most {ASKS_MAX} messages that are not done")
        if command == "send":
            await self._arrived.put(self._submit(client, id, fields, frame.body))
        elif command == "take":
            await self._take_one(client, id, fields)
        elif command == "done":
            row = read_number("row", fields.required("row"))
            if not row:  # of level 1: only this application has it
                client.respond(200, id, body=b'{"row":0}')
                return
            holder = self._held.get(row)
            if holder is not None and holder.client is not client:
                raise _No(409, f"message {row} is with another connection")
            number = self._new(client, id, command)
            self._asks[number].row = row
            await self._arrived.put(Done(number, row))
        elif command == "back":
            taken = client.takes.get(fields.required("take"))
            if taken is not None:
                self._give_back(taken)
            client.respond(204, id)
        elif command == "watch":
            client.watches = True
            client.respond(204, id)
        elif command in ORDERS:
            given = {name: text for name, text in frame.fields.items() if name not in ("cmd", "id")}
            await self._arrived.put(Manage(self._new(client, id, command), command, given))
        else:
            raise _No(400, f"there is no cmd {command[:40]!r}")

    def _new(self, client: _Client, id: str, command: str) -> int:
        number = next(self._numbers)
        self._asks[number] = _Ask(number, client, id, command)
        client.asks.add(number)
        return number

    def _submit(self, client: _Client, id: str, fields: Fields, body: bytes) -> Submit:
        destination = read_address(fields.required("dst"))
        app_key, user = fields.text("app_key"), fields.text("user")
        source = read_address(str(Address(self._node, user)))
        route = fields.text("route", "auto")
        if route not in ROUTES:
            raise Malformed(f"route is one of {', '.join(ROUTES)}")
        sealed = None
        if fields.flag("encrypt"):
            sealed, body = self._sealing.seal(str(source), str(destination), app_key, body)
        return Submit(
            self._new(client, id, "send"),
            destination,
            body,
            level=fields.number("savefwd", Level.ARRIVE, Level.DROP, Level.ARRIVE),
            ack2=fields.flag("ack2"),
            ordered=fields.flag("ordered"),
            reliable=fields.flag("reliable", True),
            app_key=app_key,
            expires_ms=fields.number("expires", 0),
            route=route,
            priority=fields.number("priority", 0, 0, _PRIORITY_MAX),
            user=user,
            sealed=sealed,
        )

    async def _take_one(self, client: _Client, id: str, fields: Fields) -> None:
        if id in client.takes:
            raise _No(409, "the take with this id is not done")
        user = fields.text("user")
        read_address(str(Address(self._node, user)))
        wait_ms = fields.number("wait_ms", -1, 0, _WAIT_MAX_MS)
        number = self._new(client, id, "take")
        client.takes[id] = number
        await self._arrived.put(Take(number, user, wait_ms != 0, number))
        if wait_ms > 0:
            self._end_after(number, wait_ms / 1_000)

    def _end_after(self, number: int, seconds: float) -> None:
        heapq.heappush(self._ends, (anyio.current_time() + seconds, number))
        if self._ends[0][1] == number:
            self._sooner.set()
        if len(self._ends) > _ENDS_MIN and len(self._ends) > 2 * len(self._asks):
            self._ends = [end for end in self._ends if end[1] in self._asks]
            heapq.heapify(self._ends)

    async def _end_takes(self) -> None:
        """Nothing comes of a take any more when its time is over. There is one task for all: most
        takes are answered long before."""
        while True:
            pause_s = self._ends[0][0] - anyio.current_time() if self._ends else math.inf
            if pause_s > 0:
                self._sooner = anyio.Event()
                with anyio.move_on_after(pause_s):
                    await self._sooner.wait()
                continue
            _, number = heapq.heappop(self._ends)
            ask = self._asks.get(number)
            if ask is not None and not ask.row:
                self._give_back(number)
                ask.client.respond(204, ask.id)

    def _give_back(self, number: int) -> None:
        """A take has ended without `done`: whatever comes of it, or came of it, is there again."""
        ask = self._forget(number)
        if ask is not None:
            self._arrived.post(Left(number))

    def _forget(self, number: int) -> _Ask | None:
        ask = self._asks.pop(number, None)
        if ask is None:
            return None
        ask.client.asks.discard(number)
        if ask.command == "take":
            ask.client.takes.pop(ask.id, None)
            if self._held.get(ask.row) is ask:
                del self._held[ask.row]
        return ask

    # -- what is answered ---------------------------------------------------------------------

    def answer(self, effect: Effect) -> None:
        """An answer of the endpoint; or what became of a message, for those who watch."""
        if isinstance(effect, Happened):
            for client in self._clients:
                if client.watches:
                    client.happened(effect)
        elif isinstance(effect, Taken):
            self._answer_take(effect)
        elif isinstance(effect, Submitted | Reported | Refused):
            ask = self._forget(effect.ask)
            if ask is None:
                return  # the application is gone
            if isinstance(effect, Submitted):
                ask.client.respond(200, ask.id, {"record": str(effect.record), "mid": effect.mid})
            elif isinstance(effect, Refused):
                ask.client.respond(effect.status, ask.id, text=effect.text)
            else:
                held = self._held.get(ask.row) if ask.command == "done" else None
                if held is not None:
                    self._forget(held.number)
                ask.client.respond(200, ask.id, body=msgspec.json.encode(effect.document))

    def _answer_take(self, taken: Taken) -> None:
        ask = self._asks.get(taken.ask)
        if ask is None:
            return  # it was given up, and the endpoint knows
        if taken.frame is None:
            self._forget(taken.ask)
            ask.client.respond(204, ask.id)
            return
        if taken.row:
            ask.row = taken.row
            self._held[taken.row] = ask
        else:
            self._forget(taken.ask)
        fields, body = self._shown(taken, taken.frame)
        ask.client.respond(200, ask.id, fields, body)

    def _shown(self, taken: Taken, frame: Frame) -> tuple[dict[str, str], bytes]:
        """What an application gets of a message, decrypted if that is possible."""
        fields = {
            name: value
            for name, value in frame.fields.items()
            if name not in _OURS and _NAME.match(name)
        }
        fields["row"] = str(taken.row)
        if taken.again:
            fields["again"] = "1"
        body = frame.body
        if fields.get("encrypt") == "1":
            try:
                body = self._sealing.open(fields, body)
            except SealingError as error:
                fields["fault"] = str(error)
                log.warning("not decrypted", extra={"row": taken.row, "why": str(error)})
        return fields, body


@attrs.define(eq=False)
class _Client:
    """An application."""

    connection: Connection
    takes: dict[str, int] = attrs.field(factory=dict)  # by their ids
    asks: set[int] = attrs.field(factory=set)  # with these among them
    watches: bool = False

    def respond(
        self,
        status: int,
        id: str,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        text: str = "",
    ) -> None:
        lines = {"id": id} if id else {}
        self.connection.send(Frame({**(fields or {}), **lines}, body or text.encode(), status))

    def happened(self, effect: Happened) -> None:
        fields = {"cmd": "happened", "kind": effect.kind, "record": str(effect.record)}
        self.connection.send(Frame(fields, effect.text.encode(), 200))
