"""What clients do with single deliveries and whole groups, and what the answers mean to the book.

They give back, transform, delete, cancel, fire and reschedule, redrive, seek, pause and resume.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from tests.simulation.client import Client
from tests.simulation.groups import GroupBook, Sent
from tests.simulation.model import Book, TopicBook
from zbus.testing.simulation.machine import Machine
from zbus.testing.world import Reply

DEAD = "D"
"""The topic of dead letters."""

VERBS = ("nack", "transform", "single", "redrive", "seek", "pause", "resume")
_LIKELY = (10, 12, 5, 6, 1, 1, 3)
_GONE = (404, 503, 507)

Held = tuple[TopicBook, GroupBook, int, tuple[int, int]]
"""A delivery: serial, partition and offset."""

Expect = Callable[..., None]


class Verbs:
    """See the module. `held` are the deliveries that clients have in their hands."""

    def __init__(
        self,
        random: Random,
        book: Book,
        machine: Machine,
        say: Callable[[str], None],
        expect: Expect,
        held: list[Held],
    ) -> None:
        self._random = random
        self._book = book
        self._machine = machine
        self._say = say
        self._expect = expect
        self._held = held

    def ask(
        self,
        client: Client,
        topic: TopicBook,
        group: GroupBook,
        produce: Callable[[Client, TopicBook, Held], None],
    ) -> None:
        """One of them."""
        kind = self._random.choices(VERBS, _LIKELY)[0]
        if kind in ("nack", "transform"):
            if self._held:
                late = min(len(self._held), 5)  # what is old is not leased any more
                held = self._held.pop(-self._random.randint(1, late))
                if kind == "nack":
                    self._nack(client, *held)
                else:
                    produce(client, topic, held)
        elif kind == "redrive":
            self._redrive(client)
        elif topic.volatile or topic.durability != "disk" or topic.name == DEAD:
            return  # what a crash may take of it is too much to say anything
        elif kind == "single":
            self._single(client, topic, group)
        elif kind == "seek":
            self._seek(client, topic, group)
        elif not group.moving:
            self._pause(client, topic, group, kind)

    def _nack(
        self,
        client: Client,
        topic: TopicBook,
        group: GroupBook,
        serial: int,
        place: tuple[int, int],
    ) -> None:
        delay_ms = self._random.choice((0, 0, 20, 5_000))
        self._say(f"{client.name} gives {serial} of {topic.name}/{group.name} back, {delay_ms}")
        headers = _place(group, place)
        if delay_ms:
            headers["delay"] = str(delay_ms)
        headers["front"] = self._random.choice(("true", "false"))
        group.give_back(serial, self._machine.now_ms, delay_ms)

        def done(reply: Reply) -> None:
            self._expect(reply, 200, *_GONE)
            group.nacking[serial] -= 1

        client.ask("nack", topic.name, headers, b"", done)

    def _single(self, client: Client, topic: TopicBook, group: GroupBook) -> None:
        """Of one message that is known to be there."""
        places = [place for place, serial in topic.places.items() if topic.sent[serial].stored]
        if not places:
            return
        place = self._random.choice(places[-30:])
        serial = topic.places[place]
        sent = topic.sent[serial]
        verb = self._random.choice(("delete", "cancel", "fire", "reschedule"))
        headers, now_ms, moves = _place(group, place), self._machine.now_ms, group.moves
        self._say(f"{client.name}: {verb} {serial} of {topic.name}/{group.name}")
        due_ms = now_ms
        if verb in ("delete", "cancel"):
            group.acking.add(serial)
        else:
            if verb == "reschedule":
                due_ms += self._random.choice((10, 1_000, 30_000))
                headers["deliver_at"] = str(due_ms)
            first = serial not in group.times
            known_ms = group.times.get(serial, sent.due_ms)
            group.times[serial] = min(known_ms, due_ms)
            group.timing[serial] += 1
            if serial in group.pauses:
                group.pauses[serial] = min(group.pauses[serial], due_ms)
        before = self._book.deliveries

        def done(reply: Reply) -> None:
            self._expect(reply, 200, 404, 409, 429, 500, 503, 507)
            self._say(f"{verb} {serial} of {topic.name}/{group.name}: {reply.status}")
            if verb in ("fire", "reschedule"):
                group.timing[serial] -= 1
            if reply.status != 200 or group.moves != moves:
                return
            self._book.durable(topic, place[0], before)
            if verb in ("delete", "cancel"):
                self._book.acked(group, serial)
            elif first and group.times.get(serial) == min(known_ms, due_ms) and not group.moving:
                handed = len(group.handed.get(serial, ()))
                if not handed and sent.due_ms:
                    group.times[serial] = due_ms

        client.ask(verb, topic.name, headers, b"", done)

    def _redrive(self, client: Client) -> None:
        topic = self._book.topics.get(DEAD)
        if topic is None or not topic.groups[0].declared:
            return
        headers = {"consume_group": topic.groups[0].name}
        headers["count"] = str(self._random.choice((1, 3, 1_000)))
        self._say(f"{client.name} redrives")
        self._book.redriving = topic.groups[0].redriven = True

        def done(reply: Reply) -> None:
            self._expect(reply, 200, *_GONE, 500)
            self._say(f"redriven: {reply.status} {reply.headers.get('count', '')}")

        client.ask("redrive", DEAD, headers, b"", done)

    def _seek(self, client: Client, topic: TopicBook, group: GroupBook) -> None:
        if group.moving:
            return
        start = self._random.choice(("earliest", "latest", f"time:{self._machine.now_ms - 1_000}"))
        headers = {"consume_group": group.name, "from": start}
        if self._random.random() < 0.3:
            headers["partition"] = str(self._random.randrange(topic.partitions))
        self._say(f"{client.name} moves {topic.name}/{group.name} to {start}")
        group.moving = True

        def done(reply: Reply) -> None:
            self._expect(reply, 200, *_GONE, 500)
            self._say(f"{topic.name}/{group.name} is moved: {reply.status}")
            if reply.status != 200:
                group.doubt(topic.sent)
            group.moving = False

        client.ask("seek", topic.name, headers, b"", done)

    def _pause(self, client: Client, topic: TopicBook, group: GroupBook, verb: str) -> None:
        self._say(f"{client.name}: {verb} {topic.name}/{group.name}")
        group.paused = False
        begun_alone = not group.switching
        group.switching += 1
        group.switches = number = group.switches + 1

        def done(reply: Reply) -> None:
            self._expect(reply, 200, *_GONE)
            self._say(f"{verb} {topic.name}/{group.name}: {reply.status}")
            # Of two at a time the broker may have done this one first.
            alone = begun_alone and group.switches == number
            group.switching = max(0, group.switching - 1)
            group.paused = reply.status == 200 and verb == "pause" and alone

        client.ask(verb, topic.name, {"consume_group": group.name}, b"", done)


def settles(book: Book, target: TopicBook, result: Sent, held: Held) -> dict[str, str]:
    """The message is the result of a delivery: when it is known to be stored, the delivery is known
    to be acknowledged. The headers that say so."""
    topic, group, serial, (partition, offset) = held
    group.results.setdefault(serial, []).append(result.serial)
    if target.durability == topic.durability == "disk" and not (target.volatile or topic.volatile):
        result.confirms = partial(_confirmed, book, group, serial, group.moves)
    return {
        "ack_topic": topic.name,
        "ack_group": group.name,
        "ack_partition": str(partition),
        "ack_offset": str(offset),
    }


def _confirmed(book: Book, group: GroupBook, serial: int, moves: int) -> None:
    if group.moves == moves:
        book.acked(group, serial)


def _place(group: GroupBook, place: tuple[int, int]) -> dict[str, str]:
    partition, offset = place
    return {
        "consume_group": group.name,
        "partition": str(partition),
        "offset": str(offset),
    }
