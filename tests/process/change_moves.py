"""Messages that move from topic to topic under a kill campaign, and where each must be.

    In    the group "poor" gives up after two attempts; few of its messages are acknowledged
      |   ^
      v   |   redriven by the group "ops"
    Dead

    Raw  -->  Cooked    the group "work": each result acknowledges the messages that it is made of

All of them have several partitions. Every message has a serial number, so it is known wherever it
is. After a restart the four logs are read, and beside each group one is made that begins as it
stands: it is handed what that one has not finished, and nothing else. What is demanded:

* a message of In is to be handed out, or dead (in Dead, once), or acknowledged: one of these. If
  its ack was confirmed it is acknowledged; if one was sent it may be; else it is not. It is handed
  out twice at most, but that a kill may forget deliveries after which nothing was confirmed.
* a message of Dead is to be redriven, or was put back into In once: one of these.
* a message of Raw is to be handed out, or its result is in Cooked, once: one of these. If its
  result was confirmed it is the second, and it is never handed out again.
* what was confirmed is where the answer said.

A request that was sent and not answered may have been done or not; which of the two is seen after
the restart, and stays so. Some are then sent again, with the same idempotency key.
"""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Final, NamedTuple

from tests.limits import WAIT_S
from tests.process.kill_ledger import Sent, Violation, make_body, parse_body, read_log
from tests.process.kill_load import Client
from tests.process.pipe import Pipe, Reply, ask, header, number
from zbus.core.model.message import Message

TOPICS: Final = {"In": ("os", 3), "Dead": ("disk", 2), "Raw": ("disk", 3), "Cooked": ("os", 2)}
ATTEMPTS_MAX: Final = 2
POOR_LEASE_MS: Final = 80
WORK_LEASE_MS: Final = 3_000
GROUPS: Final = (
    f"/In/poor?cmd=declare&ack=true&group_lease={POOR_LEASE_MS}&group_backoff=10,20"
    f"&group_max_attempts={ATTEMPTS_MAX}&group_dead_letter=Dead",
    "/Dead/ops?cmd=declare&ack=true",
    f"/Raw/work?cmd=declare&ack=true&group_lease={WORK_LEASE_MS}&group_window=300",
)
OPEN_MAX: Final = 600  # messages of In and Dead, and of Raw: no more are put then
BLOCK: Final = 16
JSON: Final = b"accept: application/json\r\n"
LINES: Final = b"content-type: application/x-ndjson\r\n"

Place = tuple[int, int]
"""Partition and offset."""


def right(reply: Reply) -> Reply:
    if reply.status != 200:
        raise Violation(f"{reply.status}: {reply.body!r}")
    return reply


def take(pipe: Pipe, group: str, batch: int, timeout_ms: int = 0) -> list[tuple[Place, bytes]]:
    """A batch of deliveries; none if there is nothing."""
    reply = pipe.get(f"{group}?cmd=consume&batch={batch}&timeout={timeout_ms}", lines=JSON)
    if reply.status == 204:
        return []
    found = []
    for one in json.loads(right(reply).body):
        text = one.get("body")
        body = base64.b64decode(one["body_base64"]) if text is None else text.encode()
        found.append(((one["partition"], one["offset"]), body))
    return found


def unfinished(pipe: Pipe, topic: str, start: str) -> set[Place]:
    """All that a group is handed that begins there."""
    right(pipe.get(f"/{topic}/audit?cmd=declare&ack=false&{start}"))
    places: set[Place] = set()
    while taken := take(pipe, f"/{topic}/audit", 1000):
        for place, _ in taken:
            if place in places:
                raise Violation(f"{topic} {place} is there twice, from {start}")
            places.add(place)
    left = json.loads(right(pipe.get(f"/{topic}/audit?cmd=query")).body)
    if left["messageCount"] or left["delayedCount"]:
        raise Violation(f"{topic} from {start}: {left} was not handed out")
    right(pipe.get(f"/{topic}/audit?cmd=remove"))
    return places


class Log:
    """What is stored in a topic: serial numbers by place."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.serials: dict[Place, tuple[int, ...]] = {}
        self.times: Counter[int] = Counter()  # how often each serial number is there
        self.told: dict[Place, tuple[int, ...]] = {}  # by replies, since it was read
        self._ends = [0] * TOPICS[topic][1]

    def read(self, pipe: Pipe) -> list[tuple[Place, Message]]:
        """What is new, compared with what was told."""
        fresh = []
        for partition, end in enumerate(self._ends):
            for offset, message in read_log(pipe, self.topic, partition, end):
                place = (partition, offset)
                if offset != self._ends[partition]:
                    raise Violation(f"{self.topic} {place}: {self._ends[partition]} was next")
                self._ends[partition] += 1
                self.serials[place] = self._serials_of(message.body)
                self.times.update(self.serials[place])
                fresh.append((place, message))
        for place, serials in self.told.items():
            if (found := self.serials.get(place)) != serials:
                raise Violation(f"{self.topic} {place} is {found}, told was {serials}")
        self.told.clear()
        return fresh

    def _serials_of(self, body: bytes) -> tuple[int, ...]:
        if self.topic == "Cooked":
            return tuple(map(int, body.split(b",")))
        return (parse_body(body).serial,)


class Ack(NamedTuple):
    """Of a message of In."""

    confirmed: bool  # in time; else it was sent, and may have been done


class Request(NamedTuple):
    """A result that is put, and what it acknowledges."""

    data: bytes
    results: list[tuple[int, ...]]  # serial numbers that each is made of
    again: bool  # it has an idempotency key


class Moves:
    """What is known of all of them. The clients of a life write down what they are told."""

    def __init__(self) -> None:
        self.logs = {topic: Log(topic) for topic in TOPICS}
        self.serials = itertools.count()
        self.acks: dict[Place, Ack] = {}
        self.dead: dict[Place, Place] = {}  # of In -> in Dead
        self.handed: Counter[Place] = Counter()  # how often each of In was, and that is written
        self.cooked: set[int] = set()  # confirmed
        self.unanswered: list[Request] = []
        self.redriven = 0  # confirmed
        self.redriving = 0  # at most so many more, by a request that is not answered
        self.open = Counter({"In": 0, "Raw": 0})
        self.counts: Counter[str] = Counter()

    def clients(self, port: int, over: threading.Event, random: Random) -> list[Client]:
        kinds: tuple[type[Mover], ...] = (Feeder, Careless, Cook, Redriver)
        return [kind(port, over, self, Random(random.getrandbits(64))) for kind in kinds]

    def check(self, pipe: Pipe) -> None:
        """Compare with the broker, when it has come to rest."""
        self._prepare(pipe)
        self._rest(pipe)
        for log in self.logs.values():
            for place, message in log.read(pipe):
                if log.topic == "Dead":
                    self._died(place, message)
        left = {
            topic: unfinished(pipe, topic, f"group_start_copy={group}")
            for topic, group in (("In", "poor"), ("Dead", "ops"), ("Raw", "work"))
        }
        self._check_in(left["In"])
        self._check_dead(left["Dead"])
        self._check_raw(left["Raw"])
        self.open = Counter({"In": len(left["In"]) + len(left["Dead"]), "Raw": len(left["Raw"])})
        self.counts.update(checks=1)
        stored = {topic: len(log.serials) for topic, log in self.logs.items()}
        self.counts |= Counter(stored)

    def _prepare(self, pipe: Pipe) -> None:
        for topic, (durability, partitions) in TOPICS.items():
            right(pipe.get(f"/{topic}?cmd=declare&partitions={partitions}&durability={durability}"))
        for target in GROUPS:
            right(pipe.get(target))

    def _rest(self, pipe: Pipe) -> None:
        """Nobody takes anything: when the leases are over, all that has to die is dead."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            info = json.loads(right(pipe.get("/In/poor?cmd=query")).body)
            if not info["leasedCount"] and not info["delayedCount"]:
                return
            if time.monotonic() > deadline_s:
                raise Violation(f"In/poor does not come to rest: {info}")
            time.sleep(0.01)

    def _died(self, place: Place, message: Message) -> None:
        lines = b"\r\n" + message.headers
        origin = number(lines, b"dead_partition"), number(lines, b"dead_offset")
        if origin in self.dead:
            raise Violation(f"In {origin} is dead at {self.dead[origin]} and at {place}")
        if self.logs["In"].serials.get(origin) != self.logs["Dead"].serials[place]:
            raise Violation(f"Dead {place} is not In {origin}")
        reason = header(lines, b"dead_reason")
        attempts = number(lines, b"dead_attempts")
        if attempts != ATTEMPTS_MAX or reason not in (b"expired", b"given back"):
            raise Violation(f"Dead {place} died of {reason!r} after {attempts} attempts")
        self.dead[origin] = place

    def _check_in(self, left: set[Place]) -> None:
        for place in self.logs["In"].serials:
            times = (place in left) + (place in self.dead)
            ack = self.acks.get(place)
            if times == 1 and (ack is None or not ack.confirmed):
                self.acks.pop(place, None)
            elif times == 0 and ack is not None:
                self.acks[place] = Ack(True)
            else:
                told = f"left: {place in left}, dead: {self.dead.get(place)}, {ack}"
                raise Violation(f"In {place} is in {times} places: {told}")

    def _check_dead(self, left: set[Place]) -> None:
        dead = self.logs["Dead"]
        waiting = Counter(dead.serials[place][0] for place in left)
        for serial, times in self.logs["In"].times.items():
            # Put once, and once more for each time that it was redriven.
            back = dead.times[serial] - waiting[serial]
            if times - 1 != back or waiting[serial] > 1:
                raise Violation(
                    f"serial {serial} is {times} times in In and {dead.times[serial]} times in "
                    f"Dead, {waiting[serial]} of them to be redriven"
                )
        came = len(self.logs["In"].serials) - len(self.logs["In"].times)
        if not self.redriven <= came <= self.redriven + self.redriving:
            told = f"{self.redriven} confirmed and {self.redriving} asked for"
            raise Violation(f"{came} were redriven, {told}")
        self.redriven, self.redriving = came, 0
        self.counts["redriven"] = came

    def _check_raw(self, left: set[Place]) -> None:
        times = self.logs["Cooked"].times
        for place, (serial,) in self.logs["Raw"].serials.items():
            told = "confirmed" if serial in self.cooked else "not confirmed"
            if times[serial] + (place in left) != 1:
                state = f"{times[serial]} results, {told}, left: {place in left}"
                raise Violation(f"Raw {place}, serial {serial}: {state}")
            if serial in self.cooked and place in left:
                raise Violation(f"Raw {place}, serial {serial}: the result was confirmed")
        for topic in ("Raw", "Cooked"):
            if (most := max(self.logs[topic].times.values(), default=1)) != 1:
                raise Violation(f"{topic} has a serial number {most} times")
        self.cooked = set(times)


class Mover(Client):
    """A client of a life."""

    def __init__(self, port: int, life: threading.Event, moves: Moves, random: Random) -> None:
        super().__init__(port, life)
        self.moves = moves
        self.random = random


class Feeder(Mover):
    """Puts messages into In and Raw, as many as may be open."""

    def work(self, pipe: Pipe) -> None:
        room = {topic: OPEN_MAX - count for topic, count in self.moves.open.items()}
        while not self.over.wait(self.random.uniform(0.0, 0.02)):
            topic = self.random.choice(("In", "Raw"))
            if room[topic] < BLOCK:
                continue
            room[topic] -= BLOCK
            serials = [next(self.moves.serials) for _ in range(BLOCK)]
            keys = [b"key: %d\r\n" % serial if serial % 3 else b"" for serial in serials]
            pipe.send(
                b"".join(
                    ask(f"/{topic}?cmd=produce", make_body(Sent(serial, 0, 0)), key)
                    for serial, key in zip(serials, keys, strict=True)
                )
            )
            for serial in serials:
                self.moves.logs[topic].told[_place(right(pipe.read()))] = (serial,)
                self.moves.counts["put"] += 1


class Careless(Mover):
    """Takes from In: acknowledges some in time, gives some back, and forgets the others."""

    def work(self, pipe: Pipe) -> None:
        moves = self.moves
        unwritten: list[Place] = []  # a kill may make the broker forget these deliveries
        while not self.over.is_set():
            late_s = time.monotonic() + POOR_LEASE_MS / 1000
            count = self.random.choice((5, 20, 100))
            places = [place for place, _ in take(pipe, "/In/poor", count, 50)]
            for place in places:
                self._check(place)
            unwritten += places
            kinds = self.random.choices(("ack", "nack", ""), (2, 1, 5), k=len(places))
            asked = [pair for pair in zip(places, kinds, strict=True) if pair[1]]
            moves.acks |= {place: Ack(False) for place, kind in asked if kind == "ack"}
            pipe.send(
                b"".join(
                    ask(f"/In/poor?cmd={kind}&partition={place[0]}&offset={place[1]}")
                    for place, kind in asked
                )
            )
            for place, kind in asked:
                reply = pipe.read()
                in_time = time.monotonic() < late_s
                if in_time or kind == "ack":
                    right(reply)
                    moves.handed.update(unwritten)
                    unwritten = []
                if kind == "ack":
                    moves.acks[place] = Ack(in_time)
                    moves.counts["acks in time" if in_time else "late acks"] += 1

    def _check(self, place: Place) -> None:
        moves = self.moves
        ack = moves.acks.get(place)
        if place in moves.dead or (ack is not None and ack.confirmed):
            raise Violation(f"In {place} came again: {ack}, dead: {moves.dead.get(place)}")
        if moves.handed[place] >= ATTEMPTS_MAX:
            raise Violation(f"In {place} came more often than {ATTEMPTS_MAX} times")


class Cook(Mover):
    """Takes from Raw, and puts results into Cooked that acknowledge what they are made of."""

    def work(self, pipe: Pipe) -> None:
        moves = self.moves
        again, moves.unanswered = moves.unanswered, []
        self._put(pipe, [request for request in again if request.again], None)
        while not self.over.is_set():
            late_s = time.monotonic() + WORK_LEASE_MS / 1000
            found: dict[int, list[tuple[int, int]]] = {}
            for (partition, offset), body in take(pipe, "/Raw/work", 24, 50):
                serial = parse_body(body).serial
                if serial in moves.cooked:
                    raise Violation(f"Raw {partition, offset}, serial {serial}, came again")
                found.setdefault(partition, []).append((offset, serial))
            requests = []
            for partition, pairs in found.items():
                while pairs:
                    size = self.random.choice((1, 1, 2, 5))
                    part, pairs = pairs[:size], pairs[size:]
                    if self.random.random() > 0.1:  # the others come again
                        requests.append(self._request(partition, part))
            self._put(pipe, requests, late_s)

    def _request(self, partition: int, pairs: Iterable[tuple[int, int]]) -> Request:
        offsets, serials = zip(*pairs, strict=True)
        again = self.random.random() < 0.5
        lines = b"idempotency-key: made-of-%d\r\n" % serials[0] if again else b""
        many = self.random.random() < 0.5
        results: list[tuple[int, ...]] = [(one,) for one in serials] if many else [serials]
        body = b"\n".join(",".join(map(str, one)).encode() for one in results)
        target = "/Cooked?cmd=produce&ack_topic=Raw&ack_group=work"
        target += f"&ack_partition={partition}&ack_offset={','.join(map(str, offsets))}"
        data = ask(target, body, lines + LINES if many else lines)
        return Request(data, results, again)

    def _put(self, pipe: Pipe, requests: list[Request], late_s: float | None) -> None:
        """Pipelined. Without a time they were sent before, and 404 says that they are done."""
        moves = self.moves
        moves.unanswered = list(requests)
        pipe.send(b"".join(request.data for request in requests))
        for request in requests:
            reply = pipe.read()
            moves.unanswered.pop(0)
            if reply.status == 404 and (late_s is None or time.monotonic() >= late_s):
                moves.counts["not leased any more"] += 1
                continue
            partition, offset = _place(right(reply))
            for at, serials in enumerate(request.results, offset):
                moves.logs["Cooked"].told[partition, at] = serials
                moves.cooked.update(serials)
            moves.counts["transformed" if late_s is not None else "transformed again"] += 1


class Redriver(Mover):
    """Puts dead messages back."""

    def work(self, pipe: Pipe) -> None:
        moves = self.moves
        while not self.over.wait(self.random.uniform(0.0, 0.06)):
            moves.redriving = self.random.randint(1, 40)
            where = self.random.choice(("", "", "&partition=0", "&partition=1"))
            reply = right(pipe.get(f"/Dead/ops?cmd=redrive&count={moves.redriving}{where}"))
            if number(reply.head, b"stayed"):
                raise Violation(f"not all could be redriven: {reply}")
            moves.redriven += number(reply.head, b"count")
            moves.redriving = 0
            moves.counts["redrives"] += 1


def _place(reply: Reply) -> Place:
    return number(reply.head, b"partition"), number(reply.head, b"offset")
