"""Clients of the Adf dialect that do not make it easy: WebSockets in both forms with many requests
on their way, and HTTP, whose messages outlive their connections. `deques` judges what they get."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from sys import maxsize

import msgspec

from tests.conformance.websocket_client import handshake
from tests.records import Record
from tests.simulation.deques import Deque, Deques, Fate, Handed, Item, Removal
from tests.simulation.stranger import Stranger
from tests.wire.websocket_frames import frame
from zbus.core.topics.topic import Group, Pull, Session
from zbus.testing.simulation.machine import Machine
from zbus.testing.simulation.network import Connection as AdfConnection

CODES = {
    "lpush": 1,
    "rpush": 2,
    "delete": 3,
    "pull": 4,
    "clear": 5,
    "count": 6,
    "lcancel": 7,
    "rcancel": 8,
    "createqueue": 9,
    "deletequeue": 10,
}
SETTLES = ("delete", "delete", "delete", "lcancel", "rcancel")
BUSY = ("server busy.", "server error.")
NOT_PULLED, NO_QUEUE = "message was not pulled.", "queue not exists."
EXISTS, IN_USE, TIMEOUT = "queue exists.", "requestid exists.", "pull timeout."

LEASES_S = (2, 5, 30)
TIMEOUTS_S = (1, 10)


@dataclass(slots=True, eq=False)
class Call:
    """A request on its way."""

    action: str
    queue: Deque
    id: str
    until_ms: int | None
    handed: Handed | None = None  # that it settles
    item: Item | None = None  # that it pushes
    removal: Removal | None = None
    in_use: bool = False  # the id is, so it has to be refused
    there: bool = False  # the queue was, when it was sent


@dataclass(slots=True)
class Answer:
    """What came of it."""

    action: str
    id: str
    queue: str
    result: str
    number: int = 0  # messageid, or count
    body: bytes = b""
    duplications: int = 0


class AdfWorld:
    """The dialect in one world: its queues, and what is known of them."""

    def __init__(
        self,
        random: Random,
        machine: Machine,
        say: Callable[[str], None],
        check: Callable[[bool, str], None],
    ) -> None:
        self.random = random
        self.machine = machine
        self.say = say
        self.check = check
        self.book = Deques(("volatile", "/q/1", "/q/2")[: random.choice((2, 2, 3))], check)
        self._topics = {name.replace("/", "%2F"): name for name in self.book.queues}
        self.clients: dict[int, AdfClient] = {}
        self._gone: list[AdfClient] = []  # what they have asked for last may be done yet
        self.http_held: dict[str, Handed] = {}  # what was pulled over HTTP, by whomever
        self._ids = 0

    def connect(self, number: int, room_bytes: int) -> AdfClient:
        connection = self.machine.connect(room_bytes)
        kind = self.random.choice((JsonClient, BinaryClient, HttpClient))
        client = kind(self, connection, number)
        self.clients[client.connection.socket.fileno()] = client
        return client

    def new_id(self) -> str:
        self._ids += 1
        return str(self._ids)

    # -- what is seen -------------------------------------------------------------------------

    def picked(self, group: Group, records: list[Record], pull: Pull) -> None:
        name = self._topics.get(group.topic.name)
        if name is None:
            return
        number = int(pull.session.id[-28:])
        lease_ms, now_ms = pull.wants.lease_ms, self.machine.now_ms
        client = self.clients.get(number)
        until_ms = now_ms + lease_ms if isinstance(client, HttpClient) else maxsize
        for record in records:
            serial = record.message.body.split(b":", 1)[0].decode()
            self.say(f"{serial} of {name} is taken for connection {number}")
            self.book.pick(self.book.queues[name], record, number, now_ms, until_ms)

    def delivered(self, group: Group, records: list[Record], pull: Pull, told: bool) -> None:
        name = self._topics.get(group.topic.name)
        for record in records if name is not None else ():
            assert name is not None
            queue = self.book.queues[name]
            if told:
                self.book.hand_out(queue, record, int(pull.session.id[-28:]))
            else:
                self.book.untold(queue, record)

    def left(self, session: Session) -> None:
        number = int(session.id[-28:])
        client = self.clients.pop(number, None)
        if client is not None:
            self.say(f"connection {number} of {client.name} is over")
            if not isinstance(client, HttpClient):
                self.book.left(number)
            self._gone.append(client)
        if session.closed:
            self.book.closed(number)

    def fenced(self, topic: str) -> None:
        if topic in self._topics:
            self.book.fenced(self.book.queues[self._topics[topic]])

    def ended(self) -> None:
        self._gone += self.clients.values()
        self._end()
        self.clients.clear()
        self.http_held.clear()
        self.book.ended()

    def _end(self) -> None:
        for client in self._gone:
            client.ended()
        self._gone.clear()

    # -- rest ---------------------------------------------------------------------------------

    def at_rest(self) -> None:
        """Nobody waits where something is, and all is done that somebody who has left wanted."""
        self._end()
        for client in self.clients.values():
            if isinstance(client, HttpClient) or not client.connection.alive:
                continue
            for call in client.pulls():
                ready = [i.serial for i in self.book.owed(call.queue) if i.fate is Fate.READY]
                self.check(not ready, f"{client.name} waits in {call.queue.name} for {ready[:3]}")

    def drain(self, serve: Callable[[Stranger], None]) -> None:
        """All that has to come, comes."""
        self._end()
        for queue in self.book.queues.values():
            client = JsonClient(self, self.machine.connect(), 0)
            self.clients[client.connection.socket.fileno()] = client
            before = -1
            while before != client.settled:
                before = client.settled
                for _ in range(20):
                    client.pull(queue, 1)
                serve(client)
                for handed in list(client.held.values()):
                    client.settle(handed, "delete")
                serve(client)
            owed = self.book.owed(queue)
            self.check(not owed, f"{queue.name} never gave {[item.serial for item in owed][:5]}")
            client.connection.reset()


class AdfClient(Stranger):
    """One connection. `held` is what it pulled and has not settled, by requestid."""

    form = ""

    def __init__(self, world: AdfWorld, connection: AdfConnection, number: int) -> None:
        super().__init__(connection, f"adf {self.form} client {number}")
        self.world = world
        self.number = connection.socket.fileno()
        self.held: dict[str, Handed] = {}
        self.calls: list[Call] = []
        self.settled = 0

    # -- asking -------------------------------------------------------------------------------

    def ask(self) -> None:
        random, book = self.world.random, self.world.book
        queue = random.choice(list(book.queues.values()))
        what = random.choices(
            ("push", "pull", "settle", "count", "clear", "queue", "in use", "unknown"),
            (34, 30, 34, 2, 1, 4, 2, 2),
        )[0]
        if what == "push":
            self.push(queue)
        elif what == "pull":
            self.pull(queue, random.choice((0, 0, *TIMEOUTS_S)))
        elif what == "settle":
            # If the queue is gone, a pull may be given the id of what was pulled there.
            asked = {call.id for call in self.calls if call.in_use}
            mine = [handed for id, handed in self.own().items() if id not in asked]
            if mine:
                self.settle(random.choice(mine), random.choice(SETTLES))
        elif what == "count":
            self.send(Call("count", queue, self.world.new_id(), 0))
        elif what == "clear":
            self.drop(queue, "clear")
        elif what == "queue" and queue.volatile:
            if random.random() < 0.5:
                self.drop(queue, "deletequeue")
            else:
                self.send(Call("createqueue", queue, self.world.new_id(), 0))
        elif what == "in use":
            used = [*self.own(), *(call.id for call in self.pulls())]
            if used and not isinstance(self, HttpClient):
                id = random.choice(used)
                self.send(Call("pull", queue, id, None, in_use=True))
        elif what == "unknown":
            action = random.choice(("delete", "lcancel", "rcancel"))
            self.send(Call(action, queue, self.world.new_id(), 0))

    def own(self) -> dict[str, Handed]:
        return self.held

    def pulls(self) -> list[Call]:
        """Those that wait without an end."""
        return [c for c in self.calls if c.action == "pull" and c.until_ms is None and not c.in_use]

    def push(self, queue: Deque) -> None:
        random = self.world.random
        left = random.random() < 0.4
        size = random.choice((0, 10, 10, 100, 700, 3_000))
        item = self.world.book.push(queue, left, b"x" * size)
        action = "lpush" if left else "rpush"
        self.send(Call(action, queue, self.world.new_id(), 0, item=item), item.body)

    def pull(self, queue: Deque, timeout_s: int) -> None:
        until_ms = self.world.machine.now_ms + timeout_s * 1_000 if timeout_s else None
        self.send(Call("pull", queue, self.world.new_id(), until_ms), timeout_s=timeout_s)

    def settle(self, handed: Handed, action: str) -> None:
        ids = [id for id, one in self.own().items() if one is handed]
        del self.own()[ids[0]]
        self.world.book.settle(handed, action)
        self.send(Call(action, handed.queue, ids[0], 0, handed=handed))

    def drop(self, queue: Deque, action: str) -> None:
        removal = self.world.book.drop(queue, action == "deletequeue")
        self.send(Call(action, queue, self.world.new_id(), 0, removal=removal))

    def send(self, call: Call, body: bytes = b"", timeout_s: int = 0) -> None:
        call.there = call.queue.there
        self.calls.append(call)
        serial = f" {call.item.serial}" if call.item is not None else ""
        if call.handed is not None:
            serial = f" {call.handed.item.serial}"
        self.world.say(f"{self.name}: {call.action}{serial} {call.queue.name} as {call.id}")
        self.unsent += self.encode(call, body, timeout_s)

    def encode(self, call: Call, body: bytes, timeout_s: int) -> bytes:
        raise NotImplementedError

    # -- being told ---------------------------------------------------------------------------

    def take(self, answer: Answer) -> None:
        """An answer was read."""
        self.replies += 1
        named = (answer.action, answer.id, answer.queue)
        fit = [c for c in self.calls if (c.action, c.id, c.queue.name) == named]
        if answer.action == "pull":
            refused = answer.result == IN_USE
            fit = [c for c in fit if c.in_use is refused] or fit
        self.world.check(bool(fit), f"{self.name} is told of {answer.action} {answer.id}")
        if not fit:
            return
        call = fit[0]
        self.calls.remove(call)
        self.world.say(f"{self.name} is told {answer.result} of {call.action} {call.id}")
        self._judge(call, answer)

    def _judge(self, call: Call, answer: Answer) -> None:
        world, queue, result = self.world, call.queue, answer.result
        book, now_ms = world.book, world.machine.now_ms
        right = result == "ok" or result in BUSY
        right = right or (result == NO_QUEUE and not (call.there and queue.there))
        if call.action == "pull" and result == "ok":
            handed = book.pulled(self.number, answer.body, answer.duplications, answer.number)
            older = self.own().get(call.id)
            if older is not None:
                item = older.item
                used = item.fate is Fate.HELD and item.sure and item.number == older.number
                world.check(not used, f"{call.id} is in use")
            self.own()[call.id] = handed
        elif call.action == "pull":
            ends = call.until_ms is not None or self.number not in world.clients
            ends = ends or self.connection.socket.ended
            right = right or (result == TIMEOUT and ends)
            right = right or (result == IN_USE and call.in_use)
        elif call.item is not None and result == "ok":
            book.pushed(queue, call.item, answer.number)
        elif call.handed is not None:
            book.settled(call.handed, call.action, result, now_ms)
            self.settled += 1
            right = right or result in (NOT_PULLED, NO_QUEUE)
        elif call.removal is not None:
            book.dropped(call.removal, result == "ok")
        elif call.action == "createqueue":
            right = right or result == EXISTS
        elif call.action in CODES and CODES[call.action] in (3, 7, 8):
            right = (right and result != "ok") or result == NOT_PULLED
        world.check(right, f"{self.name}: {call.action} {call.id} of {queue.name}: {result}")

    def ended(self) -> None:
        """The broker let it go: what was not answered never is."""
        for call in self.calls:
            if call.removal is not None:
                self.world.book.dropped(call.removal, False)

    def overdue(self, now_ms: int) -> list[str]:
        late = [c for c in self.calls if c.until_ms is not None and c.until_ms <= now_ms]
        return [f"{call.action} {call.id}" for call in late]


class JsonClient(AdfClient):
    """At /queue/json."""

    form = "json"
    path = "/queue/json"

    def __init__(self, world: AdfWorld, connection: AdfConnection, number: int) -> None:
        super().__init__(world, connection, number)
        self.unsent += handshake(self.path)
        self._open = False

    def encode(self, call: Call, body: bytes, timeout_s: int) -> bytes:
        fields = {"action": call.action, "requestid": call.id, "queue": call.queue.name}
        more: dict[str, object] = {"timeout": timeout_s} if timeout_s else {}
        if call.item is not None:
            more["body"] = body.decode()
        return frame(1, msgspec.json.encode(fields | more))

    def decode(self, message: bytes) -> Answer:
        found = msgspec.json.decode(message)
        return Answer(
            found["action"],
            found["requestid"],
            found["queue"],
            found["result"],
            found.get("messageid", found.get("count", 0)),
            found.get("body", "").encode(),
            found.get("duplications", 0),
        )

    def read(self) -> None:
        if not self._open:
            head, found, rest = bytes(self.received).partition(b"\r\n\r\n")
            if not found:
                return
            self._open = head.startswith(b"HTTP/1.1 101")
            late = head.startswith(b"HTTP/1.1 408")  # half a handshake
            self.world.check(self._open or late, f"{self.name} is told {head!r}")
            self.received[:] = rest
        while self._open and (found_frame := self._frame()) is not None:
            opcode, payload = found_frame
            if opcode in (1, 2):
                self.take(self.decode(payload))

    def _frame(self) -> tuple[int, bytes] | None:
        """The next whole one, if there is."""
        data = self.received
        if len(data) < 2:
            return None
        begin, size = 2, data[1] & 127
        if size > 125:
            begin = 4 if size == 126 else 10
            size = int.from_bytes(data[2:begin]) if len(data) >= begin else maxsize
        if len(data) < begin + size:
            return None
        found = data[0] & 15, bytes(data[begin : begin + size])
        del data[: begin + size]
        return found


class BinaryClient(JsonClient):
    """At /queue/bin."""

    form = "binary"
    path = "/queue/bin"

    def encode(self, call: Call, body: bytes, timeout_s: int) -> bytes:
        id, queue = call.id.encode(), call.queue.name.encode()
        if timeout_s:
            call.until_ms = None  # this form cannot say it
        message = struct.pack("!BH", CODES[call.action], len(id)) + id
        message += struct.pack("!H", len(queue)) + queue
        if call.item is not None:
            message += struct.pack("!H", len(body)) + body
        return frame(2, message)

    def decode(self, message: bytes) -> Answer:
        rest = message[1:]

        def text() -> bytes:
            nonlocal rest
            size = int.from_bytes(rest[:2])
            found, rest = rest[2 : 2 + size], rest[2 + size :]
            assert len(found) == size, message
            return found

        names = {code: name for name, code in CODES.items()}
        answer = Answer(names[message[0]], text().decode(), text().decode(), text().decode())
        if answer.action == "pull" and answer.result == "ok":
            answer.body = text()
            answer.duplications, answer.number = struct.unpack("!HQ", rest)
        else:
            answer.number = int.from_bytes(rest)
        return answer


class HttpClient(AdfClient):
    """Of HTTP: its requests are answered one after the other, whatever they are."""

    form = "http"

    def __init__(self, world: AdfWorld, connection: AdfConnection, number: int) -> None:
        super().__init__(world, connection, number)
        self.lease_s = world.random.choice(LEASES_S)
        self.order: deque[Call] = deque()

    def own(self) -> dict[str, Handed]:
        return self.world.http_held

    def pull(self, queue: Deque, timeout_s: int) -> None:
        super().pull(queue, timeout_s or self.world.random.choice((0, *TIMEOUTS_S)))

    def encode(self, call: Call, body: bytes, timeout_s: int) -> bytes:
        self.order.append(call)
        if timeout_s:
            call.until_ms = 0  # counted from when those before it were answered
        method = "POST" if call.item is not None else "GET"
        target = f"/queue/{call.action}?queue={call.queue.name}&requestid={call.id}"
        target += f"&timeout={timeout_s}" if timeout_s else ""
        target += f"&lease={self.lease_s}" if call.action == "pull" else ""
        head = f"{method} {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        return (head + "\r\n").encode() + body

    def read(self) -> None:
        while (found := self.reply()) is not None:
            status, body = found
            if status == 408:
                continue  # half a request, and then nothing for too long
            self.world.check(bool(self.order), f"{self.name} is told {status} {body!r}")
            call = self.order.popleft()
            if status != 200:
                self.world.check(status in (503, 507), f"{self.name} is told {status} {body!r}")
                answer = Answer(call.action, call.id, call.queue.name, BUSY[0])
            else:
                answer = JsonClient.decode(self, body)  # type: ignore[arg-type]
            fits = (answer.action, answer.id) == (call.action, call.id)
            self.world.check(fits, f"{self.name} is told {answer.action} {answer.id}")
            self.take(answer)

    def overdue(self, now_ms: int) -> list[str]:
        return super().overdue(now_ms) if self.order and self.order[0].until_ms == 0 else []
