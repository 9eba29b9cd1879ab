"""What clients of several workers ask, and what the answers mean."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

import msgspec

from tests.simulation.workers.book import LEASE_MS, Book, GroupBook, Place, Sent, TopicBook
from tests.simulation.workers.caller import Caller, Request
from tests.simulation.workers.server import WORKERS
from zbus.testing.world import Reply

CALLS: Final = "calls"
"""How the names of topics of services begin. Calls are answered, or time out."""

AGAIN_MS: Final = 200_000
"""A key is remembered for longer than this."""

_NAMES: Final = ("orders", "bills", "mail", "stock", "users", "logs", "{a}x", "{a}y", "jobs")


class Work:
    """See the module. `unsettled` says of a worker whether it may be gone without that everybody
    has noticed."""

    timeouts_ms: tuple[int, ...] = (0, 0, 10, 1_000, 20_000)
    sizes: tuple[int, ...] = (0, 10, 10, 100, 700, 3_000, 9_000, 30_000)

    def __init__(
        self,
        random: Random,
        book: Book,
        say: Callable[[str], None],
        unsettled: Callable[[int | None], bool],
        limited: bool,
    ) -> None:
        self._random = random
        self._book = book
        self._say = say
        self._unsettled = unsettled
        self._limited = limited  # there are not enough connections for everybody
        self._serial = 0
        self._held: list[tuple[TopicBook, GroupBook, Place]] = []
        self._retries: list[tuple[TopicBook, Sent]] = []
        names = random.sample(_NAMES, 5)
        book.topics = [
            TopicBook(
                name,
                WORKERS,
                random.choice((1, 1, 2)),
                [GroupBook("kept"), GroupBook("back", front=True), GroupBook("dies", dies=True)],
            )
            for name in names
        ]
        self.dead = TopicBook(f"dead{random.randrange(9)}", WORKERS, 1, [])
        self._calls = [TopicBook(f"{CALLS}{number}", WORKERS, 1, []) for number in range(2)]
        # Topics that come and go: whether each is there, None = not known; and who asks for what.
        self._made: dict[str, tuple[bool | None, Request | None]] = {}
        self._doubtful: set[str] = set()  # of these: a request is open whose client is gone

    def ask(self, caller: Caller) -> None:
        """One request of any kind."""
        if caller.topic is not None:
            if self._random.random() < 0.1:
                caller.topic = self._random.choice(self._book.topics)
            self._put(caller, caller.topic)
            return
        kind = self._random.choices(
            ("put", "again", "take", "batch", "ack", "nack", "look", "all", "call", "make"),
            (40, 8, 26, 8, 18, 4, 6, 3, 7, 3),
        )[0]
        getattr(self, f"_{kind}")(caller)

    def _ask(
        self,
        caller: Caller,
        command: str,
        topic: TopicBook | str,
        headers: dict[str, str],
        body: bytes,
        done: Callable[[Request, Reply], None],
        **more: object,
    ) -> Request:
        owner = topic.owner if isinstance(topic, TopicBook) else None
        return caller.ask(
            self._random,
            command,
            topic,
            headers,
            body,
            done,
            excused=self._unsettled(owner),
            **more,  # type: ignore[arg-type]
        )

    def expect(self, request: Request, reply: Reply, *statuses: int) -> bool:
        """Whether it is a good one. A worker may have been gone only where one was."""
        self._say(f"{request.words}: {reply.status} {reply.headers.get('offset', '')}")
        if self.is_missing(reply):
            right = self.may_be_missing(request) or not request.caller.stays
            self._book.check(right, f"{request.words}: no worker was gone, and {reply}")
            return False
        self._book.check(reply.status in statuses, f"{request.words}: unexpected {reply}")
        return reply.status == 200

    def is_missing(self, reply: Reply) -> bool:
        """A worker was gone."""
        return reply.status == 503 and b"worker" in reply.body

    def may_be_missing(self, request: Request) -> bool:
        """Who is asked may have been gone."""
        faults = self._book.faults
        owners = range(WORKERS) if request.owner is None else [request.owner]
        failed = any(faults[owner] > request.moment for owner in owners)
        return failed or request.excused or self._limited

    # -- topics -------------------------------------------------------------------------------

    def declare(self, caller: Caller, topic: TopicBook) -> None:
        """All of it, before anything else happens."""
        for group in topic.groups:
            headers = {
                "consume_group": group.name,
                "partitions": str(topic.partitions),
                "group_ack": "true",
                "group_lease": str(LEASE_MS),
                "group_on_loss": "front" if group.front else "keep",
            }
            if group.dies:
                headers |= {"group_max_attempts": "2", "group_dead_letter": self.dead.name}
            self._ask(caller, "declare", topic, headers, b"", self._declared)

    def declare_first(self, caller: Caller) -> None:
        """What others name."""
        self._ask(caller, "declare", self.dead, {}, b"", self._declared)
        for topic in self._calls:
            headers = {"rpc": "true", "durability": "disk"}
            self._ask(caller, "declare", topic, headers, b"", self._declared)

    def _declared(self, request: Request, reply: Reply) -> None:
        self.expect(request, reply, 200)

    def _make(self, caller: Caller) -> None:
        """A topic that is declared, looked at or removed, one request after another."""
        name = f"made{self._random.randrange(4)}"
        there, busy = self._made.get(name, (None, None))
        if busy is not None and busy.caller.connection.alive and busy in busy.caller.pending:
            return
        if busy is not None:  # a process that stands still may do it much later
            self._doubtful.add(name)
        if name in self._doubtful:
            there = None
        command = self._random.choice(("query", "query", "declare", "remove"))

        def done(request: Request, reply: Reply) -> None:
            missing = () if there else (404,)
            found = (200,) if there is not False or command == "declare" else ()
            self.expect(request, reply, *found, *(() if command == "declare" else missing))
            after = reply.status == 200 and command != "remove"
            if self._made[name][1] is request:
                self._made[name] = None if reply.status == 503 else after, None

        topic = TopicBook(name, WORKERS, 1, [])
        self._made[name] = there, self._ask(caller, command, topic, {}, b"", done)

    # -- put ----------------------------------------------------------------------------------

    def _put(self, caller: Caller, topic: TopicBook | None = None) -> None:
        topic = topic or self._random.choice(self._book.topics)
        self._serial += 1
        size = self._random.choice(self.sizes)
        sent = Sent(f"m{self._serial}" + "." * size, (caller.number, False))
        sent.began_ms = self._book.now_ms()
        if self._random.random() < 0.4:
            sent.key = f"key-{self._serial}"
        topic.sent[sent.body] = sent
        self._send(caller, topic, sent)

    def _again(self, caller: Caller) -> None:
        """What was put with a key and is not known to be there, once more."""
        if not self._retries:
            return
        topic, sent = self._retries.pop(self._random.randrange(len(self._retries)))
        if self._book.now_ms() - sent.began_ms < AGAIN_MS:
            sent.again = True
            self._send(caller, topic, sent)

    def _send(self, caller: Caller, topic: TopicBook, sent: Sent) -> None:
        headers = {"idempotency-key": sent.key} if sent.key else {}

        def done(request: Request, reply: Reply) -> None:
            if self.expect(request, reply, 200):
                self._book.stored(topic, sent, _place(reply))
            elif sent.key:
                self._retries.append((topic, sent))

        request = self._ask(caller, "produce", topic, headers, sent.body.encode(), done)
        if sent.key and self._random.random() < 0.2:
            self._retries.append((topic, sent))
        sent.line = caller.number, request.id in caller.by_id
        self._say(f"{request.words}: {sent.body[:8]}{' again' if sent.again else ''}")

    # -- take ---------------------------------------------------------------------------------

    def _take(self, caller: Caller) -> None:
        self._consume(caller, {})

    def _batch(self, caller: Caller) -> None:
        count = str(self._random.randint(1, 10))
        self._consume(caller, {"batch": count, "accept": "application/x-ndjson"})

    def _consume(self, caller: Caller, headers: dict[str, str]) -> None:
        random = self._random
        topic = random.choice(self._book.topics)
        group = random.choice(topic.groups)
        timeout_ms = random.choice(self.timeouts_ms)
        headers |= {"consume_group": group.name, "timeout": str(timeout_ms)}
        credit = 1
        if caller.loose and "batch" not in headers and random.random() < 0.3:
            credit = random.randint(2, 4)
            headers["consume_window"] = str(credit)
        if random.random() < 0.1:
            headers["partition"] = str(random.randrange(topic.partitions))

        def done(request: Request, reply: Reply) -> None:
            if self.expect(request, reply, 200, 204, 429):
                for place, body in messages(reply):
                    self._book.delivered(topic, group, place, body, request)
                    self._held.append((topic, group, place))

        request = self._ask(
            caller, "consume", topic, headers, b"", done, wait_ms=timeout_ms, credit=credit
        )
        self._say(f"{request.words}/{group.name} {timeout_ms} ms {headers.get('batch', '')}")

    def _ack(self, caller: Caller) -> None:
        if self._held:
            at = self._random.randrange(len(self._held))
            self.ack(caller, *self._held.pop(at))

    def ack(self, caller: Caller, topic: TopicBook, group: GroupBook, place: Place) -> None:
        group.acking.add(place)

        def done(request: Request, reply: Reply) -> None:
            if self.expect(request, reply, 200):
                self._book.acknowledged(topic, group, place)

        request = self._ask(caller, "ack", topic, _of(group, place), b"", done)
        self._say(f"{request.words}/{group.name} {place}")

    def _nack(self, caller: Caller) -> None:
        if not self._held:
            return
        topic, group, place = self._held.pop(self._random.randrange(len(self._held)))
        group.hands.pop(place, None)
        group.nacking[place] += 1

        def done(request: Request, reply: Reply) -> None:
            self.expect(request, reply, 200, 404)
            group.hands.pop(place, None)
            group.nacking[place] -= reply.status != 503
            group.nacked[place] = self._book.next()

        headers = _of(group, place) | {"front": self._random.choice(("true", "false"))}
        request = self._ask(caller, "nack", topic, headers, b"", done)
        self._say(f"{request.words}/{group.name} {place}")

    # -- look ---------------------------------------------------------------------------------

    def _look(self, caller: Caller) -> None:
        topic = self._random.choice(self._book.topics)
        stored = [place for place, body in topic.places.items() if topic.sent[body].place]
        if not stored or self._random.random() < 0.3:
            self._ask(caller, "query", topic, {}, b"", self._queried)
            return
        place = self._random.choice(stored)

        def done(request: Request, reply: Reply) -> None:
            if self.expect(request, reply, 200, 429):
                self._book.found(topic, place, reply.body.decode())

        headers = _of(topic.groups[0], place)
        self._ask(caller, "consume", topic, headers, b"", done)

    def _queried(self, request: Request, reply: Reply) -> None:
        if self.expect(request, reply, 200):
            name = msgspec.json.decode(reply.body)["topicName"]
            self._book.check(name == request.topic, f"{request.words} told of {name}")

    def _all(self, caller: Caller) -> None:
        """What all workers have a part in."""

        def done(request: Request, reply: Reply) -> None:
            if self.expect(request, reply, 200):
                found = set(msgspec.json.decode(reply.body)["topicTable"])
                missing = {topic.name for topic in self._book.topics} - found
                self._book.check(not missing, f"{request.words} does not tell of {missing}")

        self._ask(caller, "server", "", {}, b"", done)

    # -- calls --------------------------------------------------------------------------------

    def _call(self, caller: Caller) -> None:
        topic = self._random.choice(self._calls)
        if caller.loose and self._random.random() < 0.6:
            timeout_ms = self._random.choice(self.timeouts_ms)
            headers = {"timeout": str(timeout_ms)}
            served = partial(self._served, caller)
            self._ask(caller, "consume", topic, headers, b"", served, wait_ms=timeout_ms)
            return
        self._serial += 1
        body = b"call %d" % self._serial

        def done(request: Request, reply: Reply) -> None:
            if self.expect(request, reply, 200, 429, 502, 504):
                right = reply.body == b"answer to " + body
                self._book.check(right, f"{body!r} was answered by {reply.body!r}")

        self._ask(caller, "produce", topic, {"timeout": "1000"}, body, done, wait_ms=1_000)

    def _served(self, caller: Caller, request: Request, reply: Reply) -> None:
        """A call came: answer it."""
        if self.expect(request, reply, 200, 204, 429) and caller.stays:
            headers = {"recver": reply.headers["sender"], "id": reply.headers["origin_id"]}
            body = b"answer to " + reply.body
            nothing = partial(self._expect_any, (200, 404))
            self._ask(caller, "route", "", headers, body, nothing, quiet=True)

    def _expect_any(self, statuses: tuple[int, ...], request: Request, reply: Reply) -> None:
        self.expect(request, reply, *statuses)

    def serve(self, caller: Caller, topic: TopicBook) -> None:
        """It is served: 200, and nothing else."""

        def done(request: Request, reply: Reply) -> None:
            self._book.check(reply.status == 200, f"{request.words} is not served: {reply}")

        self._ask(caller, "query", topic, {}, b"", done)
        self._put(caller, topic)

    # -- the end ------------------------------------------------------------------------------

    def read(self, caller: Caller, topic: TopicBook, log: dict[Place, str]) -> list[Request]:
        """Ask for what is behind what is known of a log."""

        def done(request: Request, reply: Reply) -> None:
            if self.expect(request, reply, 200):
                log.update(messages(reply))

        found = []
        for partition in range(topic.partitions):
            offset = 1 + max((at for one, at in log if one == partition), default=-1)
            headers = {"partition": str(partition), "offset": str(offset), "count": "100"}
            headers["accept"] = "application/x-ndjson"
            found.append(self._ask(caller, "read", topic, headers, b"", done))
        return found

    def drain(self, caller: Caller, topic: TopicBook, group: GroupBook, came: list[Place]) -> None:
        """Ask for all that a group may have now."""

        def done(request: Request, reply: Reply) -> None:
            if self.expect(request, reply, 200, 204):
                for place, body in messages(reply):
                    self._book.delivered(topic, group, place, body, request)
                    came.append(place)
                    self.ack(caller, topic, group, place)

        headers = {"consume_group": group.name, "timeout": "0", "batch": "100"}
        headers["accept"] = "application/x-ndjson"
        self._ask(caller, "consume", topic, headers, b"", done)


def _place(reply: Reply) -> Place:
    return int(reply.headers.get("partition", "0")), int(reply.headers["offset"])


def _of(group: GroupBook, place: Place) -> dict[str, str]:
    partition, offset = place
    return {"consume_group": group.name, "partition": str(partition), "offset": str(offset)}


def messages(reply: Reply) -> list[tuple[Place, str]]:
    """Those that it brings."""
    if "count" not in reply.headers:
        return [(_place(reply), reply.body.decode())]
    found = [msgspec.json.decode(line) for line in reply.body.splitlines()]
    return [((one.get("partition", 0), one["offset"]), one["body"]) for one in found]
