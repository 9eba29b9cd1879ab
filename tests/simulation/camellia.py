"""Clients of the camellia dialect: forms over HTTP, pipelined. `delays` judges what they hear."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from urllib.parse import urlencode

import msgspec

from tests.records import Record
from tests.simulation.delays import CONSUMED, DELETED, Delays, Mail, Try
from tests.simulation.stranger import Stranger
from zbus.core.topics.topic import Group, Pull, Session
from zbus.testing.simulation.machine import Machine
from zbus.testing.simulation.network import Connection

DEFAULT_TTL_MS, DEFAULT_RETRY = 3_600_000, 10
DELAYS_MS = (0, 0, 0, 1, 60, 150, 1_000, 20_000)
TTLS_MS = (-1, -1, -1, 10, 1_000, 60_000)
RETRIES = (-1, -1, 0, 1, 3)
LEASES_MS = (20, 1_000, 10_000)
POLLS_MS = (10, 1_000, 10_000)
NAMES = ("id 0", "id 1", "id 2", "id+3")

Document = dict[str, object]
REFUSALS = (404, 429, 500, 503, 507)


@dataclass(slots=True, eq=False)
class Call:
    """A request on its way."""

    what: str
    done: Callable[[int, Document], None]
    wait_ms: int = 0
    attempt: Try | None = None
    topic: Delays | None = None


class CamelliaWorld:
    """The dialect in one world: its topics, and what is known of them."""

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
        names = ("c0", "c1")[: random.choice((1, 2))]
        self.topics = {name: Delays(name, check) for name in names}
        self.told: list[tuple[Delays, str]] = []  # ids of what was pulled lately
        self.clients: dict[int, CamelliaClient] = {}
        self.serial = 0

    def connect(self, number: int, room_bytes: int) -> CamelliaClient:
        client = CamelliaClient(self, self.machine.connect(room_bytes), number)
        self.clients[client.connection.socket.fileno()] = client
        return client

    # -- what is seen -------------------------------------------------------------------------

    def picked(self, group: Group, records: list[Record], pull: Pull) -> None:
        topic = self.topics.get(group.topic.name)
        for record in records if topic is not None else ():
            assert topic is not None
            self.say(f"{record.message.body[:6]!r} of {topic.name} is taken")
            topic.pick(record, self.machine.now_ms, pull.wants.lease_ms)

    def delivered(self, group: Group, records: list[Record], pull: Pull, told: bool) -> None:
        topic = self.topics.get(group.topic.name)
        for record in records if topic is not None else ():
            assert topic is not None
            if told:
                topic.hand_out(record)
            else:
                topic.untold(record)

    def left(self, session: Session) -> None:
        client = self.clients.pop(int(session.id[-28:]), None)
        if client is not None:
            client.ended()

    def fenced(self, topic: str) -> None:
        if topic in self.topics:
            self.topics[topic].shaken()

    def ended(self) -> None:
        for client in self.clients.values():
            client.ended()
        self.clients.clear()
        for topic in self.topics.values():
            topic.shaken()

    def is_fenced(self, name: str) -> bool:
        """It is read again just now."""
        topic = self.machine.broker.topic(name)
        return topic is not None and any(one.fenced is not None for one in topic.partitions)

    # -- rest ---------------------------------------------------------------------------------

    def at_rest(self) -> None:
        """All that waits has a deadline, and was answered by then; all that was sent is written."""
        for topic in self.topics.values():
            topic.asking.clear()

    def drain(self, serve: Callable[[Stranger], None]) -> None:
        """All that has to come, comes."""
        for topic in self.topics.values():
            client = CamelliaClient(self, self.machine.connect(), 0)
            self.clients[client.connection.socket.fileno()] = client
            for _ in range(30):
                self.told.clear()
                client.pull(topic, 0, 100, LEASES_MS[-1])
                serve(client)
                if not self.told:
                    break
                for _, id in list(self.told):
                    client.settle(topic, id, True)
                serve(client)
            owed = topic.owed(self.machine.now_ms)
            self.check(not owed, f"{topic.name} never gave {owed[:5]}")
            client.connection.reset()


class CamelliaClient(Stranger):
    """One connection."""

    def __init__(self, world: CamelliaWorld, connection: Connection, number: int) -> None:
        super().__init__(connection, f"camellia client {number}")
        self.world = world
        self.calls: deque[Call] = deque()

    @property
    def now_ms(self) -> int:
        return self.world.machine.now_ms

    def ask(self) -> None:
        random, world = self.world.random, self.world
        topic = random.choice(list(world.topics.values()))
        what = random.choices(
            ("send", "pull", "poll", "settle", "delete", "get", "monitor"),
            (32, 18, 12, 26, 4, 8, 1),
        )[0]
        id = random.choice(NAMES)
        known = [id for one, id in world.told[-12:] if one is topic]
        if known and random.random() < 0.8:
            id = random.choice(known)
        if what == "send":
            self.send(topic)
        elif what in ("pull", "poll"):
            wait_ms = random.choice(POLLS_MS) if what == "poll" else 0
            self.pull(topic, wait_ms, random.choice((1, 1, 3, 20)))
        elif what == "settle":
            self.settle(topic, id, random.random() < 0.7)
        elif what == "delete":
            self._delete(topic, id, random.random() < 0.4)
        elif what == "get":
            self._get(topic, id)
        else:
            path = random.choice(("getTopicInfoList", "getMonitorData"))
            self._post(Call(path, lambda code, found: None), {})

    # -- requests -----------------------------------------------------------------------------

    def _post(self, call: Call, fields: dict[str, object]) -> None:
        self.calls.append(call)
        told = " ".join(f"{name}={str(value)[:12]}" for name, value in fields.items())
        self.world.say(f"{self.name}: {call.what} {told}")
        body = urlencode(fields).encode()
        method = "POST" if fields else "GET"
        head = (
            f"{method} /camellia/delayQueue/{call.what} HTTP/1.1\r\nhost: localhost\r\n"
            "content-type: application/x-www-form-urlencoded; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self.unsent += head.encode() + body

    def send(self, topic: Delays) -> None:
        random, world = self.world.random, self.world
        world.serial += 1
        body = b"%d:%b" % (world.serial, b"x" * random.choice((0, 10, 100, 700, 3_000)))
        id = random.choice(NAMES) if random.random() < 0.5 else ""
        delay_ms, ttl_ms = random.choice(DELAYS_MS), random.choice(TTLS_MS)
        retry = random.choice(RETRIES)
        mail = Mail(
            world.serial,
            id,
            body,
            delay_ms,
            ttl_ms if ttl_ms > 0 else DEFAULT_TTL_MS,
            retry if retry >= 0 else DEFAULT_RETRY,
            self.now_ms,
        )
        before = topic.send(mail)
        topic.asking.add(mail.serial)

        def done(code: int, found: Document) -> None:
            topic.asking.discard(mail.serial)
            if code == 200:
                shown = found["delayMsg"]
                assert isinstance(shown, dict)
                topic.sent(mail, before, shown, self.now_ms)

        fields: dict[str, object] = {"topic": topic.name, "msg": body.decode()}
        fields |= {"delayMillis": delay_ms, "ttlMillis": ttl_ms, "maxRetry": retry}
        fields |= {"msgId": id} if id else {}
        self._post(Call("sendMsg", done), fields)

    def pull(self, topic: Delays, wait_ms: int, batch: int, lease_ms: int = 0) -> None:
        shakes = topic.shakes
        # Who has not taken all replies is given none.
        judged = not (self.calls or self.unsent or self.world.is_fenced(topic.name))
        judged = judged and not topic.asking
        ready = topic.ready(self.now_ms) if judged else []
        fields: dict[str, object] = {"topic": topic.name, "batch": batch}
        fields["ackTimeoutMillis"] = lease_ms or self.world.random.choice(LEASES_MS)
        if wait_ms:
            fields["longPollingTimeoutMillis"] = wait_ms

        def done(code: int, found: Document) -> None:
            if code != 200:
                return
            shown = found["delayMsgList"]
            assert isinstance(shown, list)
            if not (shown or self.connection.socket.ended) and topic.shakes == shakes:
                topic.nothing(ready, self.now_ms)
            for one in shown:
                self.world.told.append((topic, one["msgId"]))
                topic.pulled(one)

        self._post(Call("longPollingMsg" if wait_ms else "pullMsg", done, wait_ms), fields)

    def settle(self, topic: Delays, id: str, right: bool) -> None:
        attempt = topic.attempt(id, CONSUMED if right else 0, self.now_ms)

        def done(code: int, found: Document) -> None:
            topic.attempted(attempt, code, self.now_ms)

        fields = {"topic": topic.name, "msgId": id, "ack": "true" if right else "false"}
        self._post(Call("ackMsg", done, attempt=attempt, topic=topic), {**fields})

    def _delete(self, topic: Delays, id: str, release: bool) -> None:
        attempt = topic.attempt(id, DELETED, self.now_ms, release)

        def done(code: int, found: Document) -> None:
            topic.attempted(attempt, code, self.now_ms)

        fields = {"topic": topic.name, "msgId": id, "release": "true" if release else "false"}
        self._post(Call("deleteMsg", done, attempt=attempt, topic=topic), {**fields})

    def _get(self, topic: Delays, id: str) -> None:
        received_ms = self.now_ms
        fenced = self.world.is_fenced(topic.name)
        lived = [one for one in topic.named(id) if one.lives(received_ms) and not fenced]

        def done(code: int, found: Document) -> None:
            shown = found.get("delayMsg") if code == 200 else None
            assert shown is None or isinstance(shown, dict)
            if code in (200, 404):
                topic.looked(id, lived, code, shown, received_ms, self.now_ms)

        self._post(Call("getMsg", done), {"topic": topic.name, "msgId": id})

    # -- being told ---------------------------------------------------------------------------

    def read(self) -> None:
        while (reply := self.reply()) is not None:
            status, body = reply
            self.replies += 1
            if status == 408:
                continue  # half a request, and then nothing for too long
            self.world.check(bool(self.calls), f"{self.name} is told {status} {body!r}")
            call = self.calls.popleft()
            found = msgspec.json.decode(body)
            code = found["code"]
            right = code == 200 or (code in REFUSALS and status in (200, code))
            self.world.check(right, f"{self.name}: {call.what}: {status} {body[:200]!r}")
            self.world.say(f"{self.name} is told {code} of {call.what}")
            call.done(code, found)

    def ended(self) -> None:
        """The broker let it go: what was not answered never is."""
        for call in self.calls:
            if call.attempt is not None and call.topic is not None:
                call.topic.attempted(call.attempt, 0, self.now_ms)

    def overdue(self, now_ms: int) -> list[str]:
        return [call.what for call in self.calls][:1] if not self.unsent else []
