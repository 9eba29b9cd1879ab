"""What clients ask, and what the answers mean to the book."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import msgspec

from tests.simulation.client import ANSWER, Client
from tests.simulation.groups import GroupBook, Sent
from tests.simulation.model import Book, TopicBook
from tests.simulation.verbs import Held, Verbs, settles
from zbus.testing.simulation.machine import Machine
from zbus.testing.world import Reply

_TAGS = (b"", b"a", b"a.b", b"a.c", b"a.b.c", b"b", b"x.y")
_DELAYS_MS = (1, 20, 1_000, 20_000, 3_600_000)
_BATCHES = (1, 2, 3, 3, 5, 5, 8, 8, 80)
_TIMEOUTS_MS = (0, 0, 10, 1_000, 20_000)


SERVICES = "services"
"""The topic of calls. Its messages are not in the book: calls are answered or time out."""


class Requests:
    """Writes requests of all kinds, chosen by `random`, and judges their replies."""

    def __init__(
        self, random: Random, book: Book, machine: Machine, say: Callable[[str], None]
    ) -> None:
        self._random = random
        self._book = book
        self._machine = machine
        self._say = say
        self._serial = 0
        self.services = False  # there is a topic of services
        self._held: list[Held] = []  # what clients have in their hands
        self._services: list[Client] = []  # who asked for calls: one that leaves may have taken one
        self._verbs = Verbs(random, book, machine, say, self._expect, self._held)

    def ask(self, client: Client) -> None:
        """One request of any kind."""
        if self.services and self._random.random() < 0.1:
            self._call_or_serve(client)
            return
        topics = [topic for topic in self._book.topics.values() if topic.declared]
        if not topics:
            return
        random = self._random
        topic = random.choice(topics)
        group = random.choice([group for group in topic.groups if group.declared])
        kind = random.choices(
            ("produce", "batch", "consume", "ack", "verb", "query", "peek", "declare", "destroy"),
            (30, 10, 40, 18, 16, 3, 4, 2, 2),
        )[0]
        if kind == "produce":
            self._produce(client, topic)
        elif kind == "batch":
            self._produce_batch(client, topic)
        elif kind == "consume":
            self._consume(client, topic, group)
        elif kind == "ack":
            self._ack(client)
        elif kind == "verb":
            self._verbs.ask(client, topic, group, self._transform)
        elif kind == "query":
            self._query(client, topic, group)
        elif kind == "peek":
            self._peek(client, topic)
        elif kind == "declare":
            self.declare(client, topic, group, False)
        elif topic.volatile:
            self._destroy(client, topic, group)

    def forget(self, topic: TopicBook) -> None:
        """Offsets of this topic may be given again: what clients hold of it means nothing."""
        self._held[:] = [held for held in self._held if held[0] is not topic]

    # -- declare ------------------------------------------------------------------------------

    def declare(self, client: Client, topic: TopicBook, group: GroupBook, new: bool) -> None:
        """A new group reads from the beginning; declaring it again changes nothing, but that the
        topic grows now and then: a declare that comes late names too small a number."""
        if not new and topic.durability == "disk" and not topic.volatile:
            topic.asked_partitions += topic.asked_partitions < 5 and group.switches % 2 == 1
        asked = topic.asked_partitions
        headers = {
            "consume_group": group.name,
            "partitions": str(asked),
            "durability": topic.durability,
            "group_mask": "64" if group.leased else "0",
            "group_filter": group.filter.decode(),
            "group_ack_window": str(group.window),
            "group_ack_timeout": str(group.lease_ms),
            **(group.retries.headers() if group.leased else {}),
        }
        group.paused = False  # the mask says so
        group.switching += 1
        group.switches += 1
        if new and not topic.volatile:
            headers["group_start_offset"] = "0"
        self._say(f"{client.name} declares {topic.name}/{group.name}")

        def done(reply: Reply) -> None:
            self._say(f"{client.name} has declared {topic.name}/{group.name}: {reply.status}")
            smaller = reply.status == 400 and b"cannot have fewer" in reply.body
            self._expect(reply, 200, 507, 503, *((404,) if topic.volatile else (400,) * smaller))
            group.switching = max(0, group.switching - 1)
            if reply.status == 200:
                group.declared = True
                topic.partitions = max(topic.partitions, asked)

        client.ask("declare", topic.name, headers, b"", done)

    def _destroy(self, client: Client, topic: TopicBook, group: GroupBook) -> None:
        """Remove or empty. What was sent so far need not come any more."""
        command = self._random.choice(("remove", "empty"))
        headers = {} if self._random.random() < 0.5 else {"consume_group": group.name}
        self._say(f"{client.name}: {command} {topic.name} {' '.join(headers.values())}")
        older = list(topic.sent.values())
        for sent in older:
            sent.excused = True

        def done(reply: Reply) -> None:
            self._expect(reply, 200, 404, 503, 507)

        client.ask(command, topic.name, headers, b"", done)

    # -- produce ------------------------------------------------------------------------------

    def _new(self, topic: TopicBook, tag: bytes, delay_ms: int, ttl_ms: int) -> Sent:
        self._serial += 1
        size = self._random.choice((0, 10, 10, 10, 100, 100, 700, 700, 3_000, 9_000))
        body = b"%d:%b" % (self._serial, b"x" * size)
        due_ms = self._machine.now_ms + delay_ms if delay_ms else 0
        topic.sent[self._serial] = sent = Sent(
            self._serial, body, tag, b"", b"", due_ms=due_ms, ttl_ms=ttl_ms
        )
        sent.delivered_before = self._book.deliveries
        return sent

    def _options(self, topic: TopicBook) -> tuple[dict[str, str], bytes, int, int]:
        """Headers of a produce, and what they say: tag, delay, ttl."""
        random = self._random
        tag = random.choice(_TAGS)
        delay_ms = random.choice(_DELAYS_MS) if random.random() < 0.2 else 0
        ttl_ms = random.choice(_DELAYS_MS) if random.random() < 0.1 else 0
        headers = {"tag": tag.decode()} if tag else {}
        if delay_ms:
            headers["delay"] = str(delay_ms)
        if ttl_ms:
            headers["ttl"] = str(ttl_ms)
        return headers, tag, delay_ms, ttl_ms

    def _produce(self, client: Client, topic: TopicBook, held: Held | None = None) -> None:
        random = self._random
        headers, tag, delay_ms, ttl_ms = self._options(topic)
        sent = self._new(topic, tag, delay_ms, ttl_ms)
        sent.note = b"%d" % sent.serial
        headers["x-note"] = str(sent.serial)
        if random.random() < 0.3:
            sent.key = b"key-%d" % random.randint(0, 4)
            headers["key"] = sent.key.decode()
        delay = f", delay {delay_ms}" if delay_ms else ""
        self._say(f"{client.name} produces {sent.serial} to {topic.name}{delay}")
        if held is not None:
            headers |= settles(self._book, topic, sent, held)
            self._say(f"… and settles {held[2]} of {held[0].name}/{held[1].name}")
        client.ask(
            "produce", topic.name, headers, sent.body, partial(self._produced, topic, [sent])
        )

    def _transform(self, client: Client, topic: TopicBook, held: Held) -> None:
        """What becomes of a delivery is put, and the delivery is acknowledged with it."""
        self._produce(client, topic, held)

    def _produce_batch(self, client: Client, topic: TopicBook) -> None:
        headers, tag, delay_ms, ttl_ms = self._options(topic)
        batch = [
            self._new(topic, tag, delay_ms, ttl_ms) for _ in range(self._random.choice(_BATCHES))
        ]
        headers["content-type"] = "application/x-ndjson"
        serials = f"{batch[0].serial} to {batch[-1].serial}"
        self._say(f"{client.name} produces {serials} as a batch to {topic.name}")
        body = b"\n".join(sent.body for sent in batch)
        client.ask("produce", topic.name, headers, body, partial(self._produced, topic, batch))

    def _produced(self, topic: TopicBook, batch: list[Sent], reply: Reply) -> None:
        self._say(f"{batch[0].serial}… of {topic.name}: {reply.status}")
        self._expect(reply, 200, 507, 404, 503)
        if b"is recovering" in reply.body:
            return  # it may be there
        if reply.status != 200:
            for sent in batch:
                sent.refused = True
            return
        self._book.check(reply.headers["durability"] == topic.durability, "the wrong durability")
        partition = int(reply.headers.get("partition", "0"))
        offset = int(reply.headers["offset"])
        for position, sent in enumerate(batch):
            self._book.stored(topic, sent, partition, offset + position, int(reply.body))

    # -- consume ------------------------------------------------------------------------------

    def _consume(self, client: Client, topic: TopicBook, group: GroupBook) -> None:
        random = self._random
        headers = {"consume_group": group.name}
        timeout_ms = random.choice(_TIMEOUTS_MS) if random.random() < 0.9 else None
        if timeout_ms is not None:
            headers["timeout"] = str(timeout_ms)
        credit = 1
        if random.random() < 0.2:
            headers["batch"] = str(random.randint(1, 10))
            headers["accept"] = "application/x-ndjson"
        elif client.multiplexed and random.random() < 0.2:
            credit = random.randint(2, 5)
            headers["consume_window"] = str(credit)
        if random.random() < 0.1:
            headers["partition"] = str(random.randrange(topic.partitions))
        self._say(f"{client.name} consumes {topic.name}/{group.name} {headers.get('batch', '')}")
        until_ms = None if timeout_ms is None else self._machine.now_ms + timeout_ms
        done = partial(self._consumed, client, topic, group)
        client.ask("consume", topic.name, headers, b"", done, until_ms, credit)

    def _consumed(self, client: Client, topic: TopicBook, group: GroupBook, reply: Reply) -> None:
        self._expect(reply, 200, 204, 404, 429, 500, 503, 507)
        if reply.status != 200:
            return
        if "count" in reply.headers:
            objects = [msgspec.json.decode(line) for line in reply.body.splitlines()]
            found = [(one["body"].encode(), one["partition"], one["offset"]) for one in objects]
            self._book.check(len(found) == int(reply.headers["count"]), "count is wrong")
        else:
            partition = int(reply.headers.get("partition", "0"))
            found = [(reply.body, partition, int(reply.headers["offset"]))]
        for body, partition, offset in found:
            serial = topic.serial_at((partition, offset), body)
            sent = topic.sent.get(serial)
            right = sent is not None and sent.body == body and serial in group.seen
            self._book.check(right, f"{client.name} got {body[:20]!r}, which was not given to it")
            self._say(f"{client.name} got {serial} of {topic.name}/{group.name}")
            if group.leased:
                self._held.append((topic, group, serial, (partition, offset)))

    def _ack(self, client: Client) -> None:
        if not self._held:
            return
        index = self._random.randrange(len(self._held))
        if self._random.random() < 0.9:  # else it will be acknowledged twice, perhaps
            topic, group, serial, place = self._held.pop(index)
        else:
            topic, group, serial, place = self._held[index]
        self._say(f"{client.name} acks {serial} of {topic.name}/{group.name}")
        self._send_ack(client, topic, group, serial, place)

    def _send_ack(
        self,
        client: Client,
        topic: TopicBook,
        group: GroupBook,
        serial: int,
        place: tuple[int, int],
    ) -> None:
        group.acking.add(serial)
        before, moves = self._book.deliveries, group.moves
        known = serial in group.given  # else it was moved since, and the ack settles nothing

        def done(reply: Reply) -> None:
            self._expect(reply, 200, 404, 503, 507)
            if reply.status == 200:
                self._say(f"the ack of {serial} of {topic.name}/{group.name} is confirmed")
                if not topic.volatile and known and group.moves == moves:
                    self._book.acked(group, serial)
                    self._book.durable(topic, place[0], before)

        partition, offset = place
        headers = {
            "consume_group": group.name,
            "partition": str(partition),
            "offset": str(offset),
        }
        client.ask("ack", topic.name, headers, b"", done)

    # -- looking ------------------------------------------------------------------------------

    def _query(self, client: Client, topic: TopicBook, group: GroupBook) -> None:
        headers = {"consume_group": group.name} if self._random.random() < 0.5 else {}

        def done(reply: Reply) -> None:
            self._expect(reply, 200, 404)

        client.ask("query", topic.name, headers, b"", done)

    def _peek(self, client: Client, topic: TopicBook) -> None:
        """Look at a message that is known to be there."""
        places = [place for place, serial in topic.places.items() if topic.sent[serial].stored]
        if not places or topic.volatile:
            return
        partition, offset = self._random.choice(places)
        sent = topic.sent[topic.places[partition, offset]]
        group = next(group for group in topic.groups if group.declared)
        headers = {
            "consume_group": group.name,
            "partition": str(partition),
            "offset": str(offset),
        }

        def done(reply: Reply) -> None:
            self._expect(reply, 200, 404, 429, 500, 503)
            gone = topic.durability == "memory" or sent.lost
            right = reply.body == sent.body if reply.status == 200 else gone or reply.status != 404
            self._book.check(right, f"message {sent.serial} of {topic.name} reads {reply}")

        client.ask("consume", topic.name, headers, b"", done)

    # -- calls --------------------------------------------------------------------------------

    def declare_services(self, client: Client) -> None:
        self._say(f"{client.name} declares {SERVICES}")

        def done(reply: Reply) -> None:
            self._expect(reply, 200, 507, 503)
            self.services = reply.status == 200

        client.ask("declare", SERVICES, {"topic_mask": "2"}, b"", done)

    def _call_or_serve(self, client: Client) -> None:
        random, now_ms = self._random, self._machine.now_ms
        if client.multiplexed and random.random() < 0.5:
            timeout_ms = random.choice(_TIMEOUTS_MS)
            self._say(f"{client.name} serves")
            served = partial(self._served, client)
            headers = {"timeout": str(timeout_ms)}
            client.ask("consume", SERVICES, headers, b"", served, now_ms + timeout_ms)
            self._services.append(client)
            return
        timeout_ms = random.choice((10, 1_000, 20_000))
        self._serial += 1
        body = b"call %d" % self._serial
        self._say(f"{client.name} calls {self._serial}")

        def done(reply: Reply) -> None:
            self._say(f"{body.decode()}: {reply.status}")
            left = any(
                one.connection.socket.ended or not one.connection.alive for one in self._services
            )
            self._expect(reply, 200, 404, 429, 503, 504, 507, *((502,) if left else ()))
            right = reply.status != 200 or reply.body == ANSWER + body
            self._book.check(right, f"{body!r} was answered by {reply.body!r}")

        headers = {"timeout": str(timeout_ms)}
        client.ask("produce", SERVICES, headers, body, done, now_ms + timeout_ms)

    def _served(self, client: Client, reply: Reply) -> None:
        """A call came: answer it."""
        self._expect(reply, 200, 204, 404, 429, 500, 503, 507)
        if reply.status == 200:
            headers = {"recver": reply.headers["sender"], "id": reply.headers["origin_id"]}
            body = ANSWER + reply.body
            client.ask("route", SERVICES, headers, body, lambda reply: None, quiet=True)

    # -- the end ------------------------------------------------------------------------------

    def drain(
        self,
        client: Client,
        topic: TopicBook,
        group: GroupBook,
        drained: list[Held],
    ) -> None:
        """Ask for all that the group may have now."""

        def done(reply: Reply) -> None:
            self._expect(reply, 200, 204, 404)
            if reply.status == 200:
                for line in reply.body.splitlines():
                    one = msgspec.json.decode(line)
                    place = (one["partition"], one["offset"])
                    serial = topic.serial_at(place, one["body"].encode())
                    drained.append((topic, group, serial, place))

        headers = {
            "consume_group": group.name,
            "timeout": "0",
            "batch": "1000",
            "accept": "application/x-ndjson",
        }
        client.ask("consume", topic.name, headers, b"", done)

    def let_flow(self, client: Client, topic: TopicBook, group: GroupBook) -> None:
        """Nothing holds the group back any more."""
        headers = {"consume_group": group.name, "group_rate": "none", "group_one_batch": "false"}
        headers["paused"] = "false"
        group.paused = False
        group.switches += 1
        client.ask("declare", topic.name, headers, b"", lambda reply: self._expect(reply, 200, 404))

    def ack_all(self, client: Client, drained: list[Held]) -> None:
        for held in drained:
            self._send_ack(client, *held)

    def _expect(self, reply: Reply, *statuses: int) -> None:
        self._book.check(reply.status in statuses, f"an unexpected reply: {reply}")
