"""Clients of the MQCloud dialect: forms over HTTP, pipelined, with requestIds that are their own,
old ones, used ones, and forged ones. `queues` judges what they hear."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from tests.records import Record
from tests.simulation.queues import Batch, Post, Progress, Settle, Topic
from tests.simulation.stranger import Stranger
from zbus.core.topics.topic import Group, Pull, Session
from zbus.testing.simulation.machine import Machine
from zbus.testing.simulation.network import Connection

TOPIC, PRODUCER = "m0", "m0-producer"
PLAIN, POP, SCREENS = "plain", "pop", "screens"
SCREEN_NAMES: Final = ("one", "two")
ORDER_IDS: Final = ("", "", "", "a", "b", "order 7")
TIMEOUTS_S: Final = (10, 10, 30)
SIZES: Final = (0, 0, 1, 2, 5)
BUSY: Final = (429, 500, 503, 507)
PULLED: Final = ("FOUND", "NO_NEW_MSG", "PAUSED", "RATE_LIMITED")
FORGED: Final[dict[int, tuple[Callable[[int], int], ...]]] = {
    1: (lambda n: n + 1, lambda n: -1, lambda n: 0),
    2: (lambda n: n + 1, lambda n: n - 1, lambda n: 0, lambda n: n + 1_000),
    3: (lambda n: n + 1, lambda n: n - 1, lambda n: n + 1_000, lambda n: 0),
    4: (lambda n: n + 1, lambda n: n - 1, lambda n: 1 << 62, lambda n: 0),
}
"""What becomes of a field of a requestId; the others are words."""

Document = dict[str, Any]


@dataclass(slots=True, eq=False)
class Call:
    """A request on its way."""

    what: str
    done: Callable[[int, Document], None]
    """With the status, of HTTP or of the envelope; 0 = it is never answered."""
    progress: Progress | None = None  # that it asks messages of
    sent_ms: int = 0
    over: bool = False


LATE_MS = 5_000
"""What somebody asked for who is gone may be on its way for so long."""


@dataclass(slots=True, eq=False)
class Consumer:
    """What was registered."""

    name: str
    groups: dict[str, Progress] = field(default_factory=dict)  # by the client's id
    paused: bool | None = False  # None = not known
    changes: int = 0  # requests to pause, or to go on, so far,
    changing: int = 0  # and those of them that may be served yet
    timeout: bool = False  # the one of its own is short


class MqcloudWorld:
    """The dialect in one world: a topic, its consumers, and what is known of them."""

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
        self.topic = Topic(TOPIC, random.choice((1, 2, 3)))
        self.consumers = {name: Consumer(name) for name in (PLAIN, POP, SCREENS)}
        for name, client in ((PLAIN, ""), (POP, ""), *((SCREENS, one) for one in SCREEN_NAMES)):
            group = f"{name}:{client}" if client else name
            self.consumers[name].groups[client] = Progress(self.topic, group, name == POP, check)
        self.progress = {
            one.name: one for known in self.consumers.values() for one in known.groups.values()
        }
        self.missing = list(SETUP)
        self.told: list[tuple[Progress, str, Batch]] = []  # requestIds
        self.clients: dict[int, MqcloudClient] = {}
        self.serial = 0
        self.pulled: dict[Pull, Batch] = {}  # and not told yet

    def connect(self, number: int, room_bytes: int) -> MqcloudClient:
        client = MqcloudClient(self, self.machine.connect(room_bytes), number)
        self.clients[client.number] = client
        return client

    # -- what is seen -------------------------------------------------------------------------

    def _of(self, group: Group) -> Progress | None:
        return self.progress.get(group.name) if group.topic.name == TOPIC else None

    def picked(self, group: Group, records: list[Record], pull: Pull) -> None:
        progress = self._of(group)
        if progress is None or not records:
            return
        number, now_ms = int(pull.session.id[-28:]), self.machine.now_ms
        client = self.clients.get(number)
        asked = [c.sent_ms for c in (client.calls if client else ()) if c.progress is progress]
        places = [record.offset for record in records]
        self.say(f"{progress.name}: {places} of {records[0].partition} for connection {number}")
        consumer = self.consumers[progress.name.partition(":")[0]]
        self.check(consumer.paused is not True, f"{progress.name} is paused and gets {places}")
        low_ms = min(asked, default=0)
        batch = progress.pick(records, number, pull.wants.lease_ms, low_ms, now_ms)
        if batch is not None:
            self.pulled[pull] = batch

    def delivered(self, group: Group, records: list[Record], pull: Pull, told: bool) -> None:
        progress, batch = self._of(group), self.pulled.pop(pull, None)
        if progress is not None and batch is not None:
            if told:
                progress.told(batch)
            else:
                progress.untold(batch)

    def moved(self, group: Group, places: list[int]) -> None:
        progress = self._of(group)
        if progress is not None:
            self.say(f"{progress.name} is put at {places}")
            progress.moved(places)

    def left(self, session: Session) -> None:
        client = self.clients.pop(int(session.id[-28:]), None)
        if client is not None:
            client.ended()

    def fenced(self, topic: str) -> None:
        if topic == TOPIC:
            for progress in self.progress.values():
                progress.shaken()

    def ended(self) -> None:
        self.pulled.clear()
        for client in self.clients.values():
            client.ended()
        self.clients.clear()
        for consumer in self.consumers.values():
            consumer.changing = 0
        for progress in self.progress.values():
            progress.shaken()

    # -- rest ---------------------------------------------------------------------------------

    def at_rest(self) -> None:
        """All was answered."""

    def drain(self, serve: Callable[[Stranger], None]) -> None:
        """All that has to come, comes."""
        client = MqcloudClient(self, self.machine.connect(), 0)
        self.clients[client.number] = client
        while self.missing:
            client.ask()
            serve(client)
        for consumer in self.consumers.values():
            client.configure(consumer, {"pause": 0, "rateLimitEnabled": 0})
            serve(client)
            for id, progress in consumer.groups.items():
                self._drain(client, consumer, id, serve)
                owed = progress.owed()
                self.check(not owed, f"{progress.name} never got {owed[:5]}")
        client.connection.reset()

    def _drain(
        self, client: MqcloudClient, consumer: Consumer, id: str, serve: Callable[[Stranger], None]
    ) -> None:
        empty, request_id = 0, ""
        for _ in range(300):
            client.heard = {}
            client.message(consumer, id, request_id, timeout_s=10)
            serve(client)
            result = client.heard.get("result", {})
            request_id = result.get("requestId", "")
            empty = empty + 1 if result.get("status") == "NO_NEW_MSG" and not request_id else 0
            if empty > 1:
                return
        self.check(False, f"{consumer.name} {id} has no end: {client.heard}")


SETUP: Final[tuple[tuple[str, dict[str, object]], ...]] = (
    ("declare", {}),
    ("register", {"topic": TOPIC, "producer": PRODUCER}),
    ("register", {"topic": TOPIC, "consumer": PLAIN, "consumeWay": 0}),
    ("register", {"topic": TOPIC, "consumer": POP, "consumeWay": 0}),
    ("register", {"topic": TOPIC, "consumer": SCREENS, "consumeWay": 1}),
)


class MqcloudClient(Stranger):
    """One connection."""

    def __init__(self, world: MqcloudWorld, connection: Connection, number: int) -> None:
        super().__init__(connection, f"mqcloud client {number}")
        self.world = world
        self.number = connection.socket.fileno()
        self.calls: deque[Call] = deque()
        self.heard: Document = {}

    @property
    def now_ms(self) -> int:
        return self.world.machine.now_ms

    def ask(self) -> None:
        world, random = self.world, self.world.random
        if world.missing:
            self._set_up()
            return
        consumer = random.choice(list(world.consumers.values()))
        id = random.choice(list(consumer.groups))
        what = random.choices(
            ("produce", "message", "ack", "unlock", "reset", "config", "again", "look"),
            (34, 34, 14, 4, 2, 3, 3, 1),
        )[0]
        if what == "produce":
            self.produce()
        elif what == "message":
            known = self._request_id(consumer, id) if random.random() < 0.6 else ("", None)
            self.message(consumer, id, *known)
        elif what in ("ack", "unlock"):
            self._settle(what, consumer, id)
        elif what == "reset":
            self._reset(consumer, id)
        elif what == "config":
            self._change(consumer)
        elif what == "again":
            self._want(consumer, id)
        else:
            self._post("GET", f"config/{consumer.name}", {}, lambda status, found: None)

    # -- requests -----------------------------------------------------------------------------

    def _post(
        self,
        method: str,
        path: str,
        fields: dict[str, object],
        done: Callable[[int, Document], None],
        progress: Progress | None = None,
        body: bytes = b"",
    ) -> None:
        self.calls.append(Call(path, done, progress, self.now_ms))
        told = " ".join(f"{name}={str(value)[:44]}" for name, value in fields.items())
        self.world.say(f"{self.name}: {path} {told} {_shown(body)}")
        query = "" if body or method == "POST" else "?" + urlencode(fields)
        kind = "application/json" if body else "application/x-www-form-urlencoded"
        body = body or (urlencode(fields).encode() if method == "POST" else b"")
        target = path if path.startswith("/") else f"/mq/{path}"
        head = (
            f"{method} {target}{query} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self.unsent += head.encode() + body

    def _set_up(self) -> None:
        missing = self.world.missing
        one = missing[0]

        def done(status: int, found: Document) -> None:
            if status == 200 and one in missing:
                missing.remove(one)

        path, fields = one
        if path == "declare":
            path = f"/{TOPIC}?cmd=declare&partitions={self.world.topic.queues}&durability=disk"
        self._post("POST", path, {**fields}, done)

    def produce(self) -> None:
        world, random = self.world, self.world.random
        topic = world.topic
        world.serial += 1
        body = b"%d:%b" % (world.serial, b"x" * random.choice((0, 10, 100, 700)))
        delayed, order_id = random.random() < 0.1, random.choice(ORDER_IDS)
        post = topic.posts[world.serial] = Post(world.serial, body, delayed)

        def done(status: int, found: Document) -> None:
            if status != 200:
                return
            result = found["result"]
            queue = result["messageQueue"]["queueId"]
            topic.put(post, (queue, result["queueOffset"]), world.check)
            post.sure, post.ids = True, (result["msgId"], result["offsetMsgId"])
            fits = not order_id or delayed or queue == _queue_of(order_id, topic.queues)
            world.check(fits, f"{order_id} goes to queue {queue} of {topic.queues}")

        fields: dict[str, object] = {"producer": PRODUCER, "message": body.decode()}
        if delayed:
            more = ("delayLevel", random.choice((1, 2, 3)))
            if random.random() < 0.5:
                more = ("deliveryTimestamp", self.now_ms + random.choice((5, 1_000, 20_000)))
            fields[more[0]] = more[1]
        elif order_id:
            fields["orderId"] = order_id
        elif random.random() < 0.3:
            fields["ordered"] = "true"
        self._post("POST", "produce", fields, done)

    def _request_id(self, consumer: Consumer, id: str) -> tuple[str, Batch | None]:
        """One that somebody of the group got lately; perhaps with another field. And whose it is,
        if it is."""
        random, progress = self.world.random, consumer.groups[id]
        known = [(text, batch) for one, text, batch in self.world.told[-20:] if one is progress]
        if not known:
            return "", None
        text, batch = known[-1] if random.random() < 0.6 else random.choice(known)
        if random.random() < 0.75:
            return text, batch
        return forged(text, random), None

    def _settles(
        self, unlock: bool, progress: Progress, text: str, batch: Batch | None
    ) -> Settle | None:
        """What a requestId may do."""
        fields = urlsafe_b64decode(text).decode().split(",") if text else []
        if not fields or fields[0] != "zbus":
            return None
        queue, offset, stop, lock_ms = map(int, fields[1:5])
        force = fields[5:] == ["true"]
        if queue < 0 or offset < 0 or (stop < offset and not force):
            return None
        settle = Settle(unlock, queue, offset, stop, lock_ms, progress.tick())
        busy = batch is None or batch.asks or batch.over or batch.doubt
        settle.fair = None if busy else batch
        progress.settle(settle)
        return settle

    def _settle(self, what: str, consumer: Consumer, id: str) -> None:
        progress = consumer.groups[id]
        text, batch = self._request_id(consumer, id)
        settle = self._settles(what == "unlock", progress, text, batch)

        def done(status: int, found: Document) -> None:
            if settle is not None:
                said = found.get("message", "") if status == 200 else None
                progress.settled(settle, said, None, self.now_ms)

        fields = self._fields(consumer, id, text)
        self._post("GET", what, fields, done)

    def _fields(self, consumer: Consumer, id: str, text: str) -> dict[str, object]:
        fields: dict[str, object] = {"topic": TOPIC, "consumer": consumer.name}
        fields |= {"clientId": id} if id else {}
        fields |= {"requestId": text} if text else {}
        fields |= {"pop": "True"} if consumer.name == POP else {}
        return fields

    def message(
        self,
        consumer: Consumer,
        id: str,
        text: str = "",
        batch: Batch | None = None,
        timeout_s: int = 0,
    ) -> None:
        world, random = self.world, self.world.random
        progress = consumer.groups[id]
        settle = self._settles(False, progress, text, batch)
        fields = self._fields(consumer, id, text)
        if timeout_s or not consumer.timeout or random.random() < 0.7:
            fields["consumeTimeout"] = timeout_s or random.choice(TIMEOUTS_S)
        size = 0 if timeout_s else random.choice(SIZES)
        fields |= {"maxPullSize": size} if size else {}
        sent, sent_ms, fences = progress.tick(), self.now_ms, progress.fences
        alone = not any(
            call.progress is progress for client in world.clients.values() for call in client.calls
        )
        alone = alone and sent_ms >= progress.late_ms
        progress.requests += 1
        requests = progress.requests

        def done(status: int, found: Document) -> None:
            self.heard = found
            own = self._take(progress, found["result"]) if status == 200 else None
            if settle is not None:
                info = found.get("result", {}).get("ackInfo", {})
                said = info["message"] if info.get("status") == 200 else None
                progress.settled(settle, said, own, self.now_ms)
            if status == 500 and found.get("message") == "no consumerQueueOffsetResult":
                same = (progress.fences, progress.requests) == (fences, requests)
                self._none_free(progress, sent, sent_ms, alone and same)

        self._post("GET", "message", fields, done, progress)

    def _take(self, progress: Progress, result: Document) -> Batch | None:
        """What was told, and whose it is now."""
        world, queues = self.world, progress.topic.queues
        name, shown = f"{self.name}, {progress.name}", str(result)[:300]
        first, again = result.get("msgList", []), result.get("retryMsgList", [])
        sizes = (result["msgListSize"], result["retryMsgListSize"])
        world.check(sizes == (len(first), len(again)), f"{name}: wrong sizes in {shown}")
        world.check(result["status"] in PULLED, f"{name}: {shown}")
        present = "requestId" in result
        world.check(present is bool(first or again), f"{name}: requestId in {shown}")
        if not present or not (first or again):
            return None
        posts = [progress.topic.of(one["message"].encode()) for one in (*first, *again)]
        places = [post.place for post in posts if post is not None and post.place is not None]
        fields = urlsafe_b64decode(result["requestId"]).decode().split(",")
        queue, begin, end, at_ms = map(int, fields[1:5])
        right = len(places) == len(posts) and {where for where, _ in places} == {queue}
        right = right and queue < queues and end > max(offset for _, offset in places)
        world.check(right, f"{name}: {fields} of {shown}")
        if not right:
            return None
        # What was delayed is among them when it is due.
        at_once = [post for post in posts[: len(first)] if post and not post.delayed]
        rising = [post.place or (0, 0) for post in at_once]
        world.check(rising == sorted(rising), f"{name}: the order of {rising}")
        offsets = {offset for _, offset in places}
        for batch in progress.batches[queue]:
            if batch.number == self.number and not batch.read and batch.items.keys() == offsets:
                batch.read, batch.begin, batch.at_ms = True, begin, at_ms
                world.check(batch.told, f"{name}: {offsets} were not told")
                world.told.append((progress, result["requestId"], batch))
                return batch
        world.check(False, f"{name} is told {offsets} of {queue}, which it was not given")
        return None

    def _none_free(self, progress: Progress, sent: int, sent_ms: int, judged: bool) -> None:
        """Each queue has to be somebody's, if nobody else is asking."""
        self.world.check(not progress.pop, f"{progress.name} has queues for everybody")
        for queue, batches in enumerate(progress.batches if judged else ()):
            if not any(batch.may_hold(sent_ms, sent) for batch in batches):
                self.world.check(False, f"{progress.name}: queue {queue} is nobody's")

    # -- settings -----------------------------------------------------------------------------

    def configure(
        self,
        consumer: Consumer,
        settings: dict[str, object],
        done: Callable[[int, Document], None] | None = None,
    ) -> None:
        alone = not consumer.changing  # else nobody knows which one is served last
        if "pause" in settings:
            consumer.paused = None
            consumer.changes += 1
            consumer.changing += 1
        change = consumer.changes

        def told(status: int, found: Document) -> None:
            if "pause" in settings:
                consumer.changing -= 1
                if status == 200 and alone and change == consumer.changes:
                    consumer.paused = bool(settings["pause"])
            consumer.timeout |= "consumeTimeoutInMillis" in settings and status == 200
            if done is not None:
                done(status, found)

        body = msgspec.json.encode({"consumer": consumer.name, **settings})
        self._post("POST", "consumer/config", {}, told, body=body)

    def _change(self, consumer: Consumer) -> None:
        random = self.world.random
        kinds: tuple[dict[str, object], ...] = (
            {"pause": 1},
            {"pause": 0},
            {"pause": 0},
            {"limitRate": random.choice((1, 5, 100))},
            {"rateLimitEnabled": random.choice((0, 1))},
            {"maxPullSize": random.choice((1, 3, 32))},
            {"consumeTimeoutInMillis": random.choice((10_000, 30_000))},
        )
        self.configure(consumer, random.choice(kinds))

    def _reset(self, consumer: Consumer, id: str) -> None:
        random, now_ms = self.world.random, self.now_ms
        time_ms = random.choice((0, 0, now_ms - 10_000, now_ms - 1_000, now_ms, 1 << 42))
        groups = [consumer.groups[id]] if random.random() < 0.5 else list(consumer.groups.values())
        settings: dict[str, object] = {"resetOffsetTimestamp": time_ms}
        if id and len(groups) == 1:
            settings["clientId"] = id
        before = [len(progress.moves) for progress in groups]

        def done(status: int, found: Document) -> None:
            for progress, since in zip(groups, before, strict=True):
                if status == 200:
                    progress.reset(since)

        self.configure(consumer, settings, done)

    def _want(self, consumer: Consumer, id: str) -> None:
        random, progress = self.world.random, consumer.groups[id]
        known = [post for post in progress.topic.posts.values() if post.ids][-15:]
        if not known:
            return
        post = random.choice(known)
        ids = [id for id in post.ids if not any(id in one.ids for one in known if one is not post)]
        wish, since = progress.want(post), progress.tick()

        def done(status: int, found: Document) -> None:
            progress.wanted(post, wish, since, status if status in (200, 500) else 0)

        settings: dict[str, object] = {"retryMsgId": random.choice(ids)}
        self.configure(consumer, settings | ({"clientId": id} if id else {}), done)

    # -- being told ---------------------------------------------------------------------------

    def read(self) -> None:
        while (reply := self.reply()) is not None:
            http, body = reply
            self.replies += 1
            if http == 408:
                continue  # half a request, and then nothing for too long
            self.world.check(bool(self.calls), f"{self.name} is told {http} {body!r}")
            call = self.calls.popleft()
            found = msgspec.json.decode(body) if body[:1] == b"{" else {}
            status = found.get("status", http) if http == 200 else http
            right = status in (200, 400, 500) if http == 200 else http in BUSY
            right = right and "haven't registered" not in found.get("message", "")
            self.world.check(right, f"{self.name}: {call.what}: {http} {body[:200]!r}")
            more = found.get("message", found.get("result", {}).get("status", ""))
            self.world.say(f"{self.name} is told {http} {status} {more} of {call.what}")
            if not call.over:
                call.done(status, found)

    def ended(self) -> None:
        """The broker let it go: what was not answered never is."""
        for call in self.calls:
            if not call.over:
                call.over = True
                call.done(0, {})
                if call.progress is not None:  # it may be at work yet
                    call.progress.late_ms = self.now_ms + LATE_MS

    def overdue(self, now_ms: int) -> list[str]:
        return [call.what for call in self.calls][:1] if not self.unsent else []


def _shown(body: bytes) -> str:
    """A body of settings, without the id of a message: that of the process is in it."""
    found = msgspec.json.decode(body) if body else {}
    return " ".join(f"{name}={value}" for name, value in found.items() if name != "retryMsgId")


def forged(text: str, random: Random) -> str:
    """The same requestId with another field, or without the last."""
    fields = urlsafe_b64decode(text).decode().split(",")
    which = random.randrange(7)
    if which == 0:
        fields[0] = "broker-a"
    elif which == 5:
        fields[5] = "true"
    elif which == 6:
        fields.pop()
    else:
        change = random.choice(FORGED[which])
        fields[which] = str(change(int(fields[which])))
    return urlsafe_b64encode(",".join(fields).encode()).decode()


def _queue_of(order_id: str, queues: int) -> int:
    """Java's hash of a text of ASCII, and the remainder as Java has it."""
    found = 0
    for letter in order_id:
        found = (31 * found + ord(letter)) % (1 << 32)
    return abs(found - (1 << 32) if found >> 31 else found) % queues
