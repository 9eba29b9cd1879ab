"""A client of a server of several workers: which requests it has open, and what ends them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final
from urllib.parse import quote

import attrs

from tests.simulation.workers.book import Book, TopicBook
from tests.simulation.workers.follower import HANDSHAKE, Framed, framed
from zbus.testing.simulation.network import Connection
from zbus.testing.world import Reply

FORMS: Final = ("plain", "ids", "mixed", "stock", "socket")
"""Plain HTTP without ids, with an id on each request or on some; as stock clients ask; and the
same over a WebSocket."""

SILENT: Final = b"503: the storage engine does not answer"
"""A process writes this on each connection, idle ones included, before it exits because its storage
engine exceeded the timeout."""


@attrs.define(eq=False)
class Request:
    """What a client asked, when, and what it makes of the answer."""

    caller: Caller
    id: str
    command: str
    topic: str
    owner: int | None  # the worker that does it; None = all have a part
    done: Callable[[Request, Reply], None]
    moment: int
    asked_ms: int
    until_ms: int | None  # answered by then, if nothing is in the way
    credit: int
    excused: bool  # its worker was ending when it was asked

    @property
    def words(self) -> str:
        return f"{self.command} {self.topic} {self.id} of {self.caller.name}"


class Caller:
    """One connection. It pipelines, sends bytes in any pieces, and reads late."""

    def __init__(self, connection: Connection, number: int, form: str, book: Book) -> None:
        self.connection = Framed(connection) if form == "socket" else connection
        self.loose = form in ("stock", "socket")  # it knows its answers by ids alone
        self.number = number
        self.form = form
        self.name = f"{form} client {number}"
        self.book = book
        self.began = book.next()
        self.topic: TopicBook | None = None  # for now: it puts, and does nothing else
        self.unsent = bytearray(HANDSHAKE if form == "socket" else b"")
        self.by_id: dict[str, Request] = {}
        self.in_order: deque[Request] = deque()
        self.reads = True  # False: takes no replies for a while
        self.slow = False  # it took none at some time
        self.stays = True  # False: it has hung up
        self.refused = False  # it was told to go
        self.killed = False  # its worker was
        self.replies = 0
        self._serial = 0

    def ask(
        self,
        random: Random,
        command: str,
        topic: TopicBook | str,
        headers: dict[str, str],
        body: bytes,
        done: Callable[[Request, Reply], None],
        *,
        wait_ms: int | None = 0,
        credit: int = 1,
        excused: bool = False,
        quiet: bool = False,
    ) -> Request:
        """Write a request. A quiet one is not answered, if there is no need."""
        self._serial += 1
        name, owner = topic, None
        if isinstance(topic, TopicBook):
            name, owner = topic.name, topic.owner
        now_ms = self.book.now_ms()
        until_ms = None if wait_ms is None else now_ms + wait_ms
        id = f"q{self._serial}"
        request = Request(
            self,
            id,
            command,
            str(name),
            owner,
            done,
            self.book.next(),
            now_ms,
            until_ms,
            credit,
            excused,
        )
        has_id = (
            self.loose or self.form == "ids" or (self.form == "mixed" and random.random() < 0.5)
        )
        if self.loose:
            lines = ["GET / HTTP/1.1", f"cmd: {command}", f"topic: {name}"]
            lines = lines if name else lines[:2]
            id = headers.pop("id", id)
        else:
            lines = [f"POST /{quote(str(name))}?cmd={command} HTTP/1.1", "host: 10.0.0.1:15555"]
        if has_id:
            lines.append(f"id: {id}")
            if not (quiet and self.loose):
                self.by_id[request.id] = request
        else:
            self.in_order.append(request)
        lines += [f"{key}: {value}" for key, value in headers.items()]
        lines += [f"content-length: {len(body)}", "", ""]
        data = "\r\n".join(lines).encode() + body
        self.unsent += framed(data) if self.form == "socket" else data
        return request

    def move(self, random: Random, everything: bool = False) -> None:
        """Some bytes go out, and some replies are read."""
        if self.unsent:
            count = len(self.unsent)
            if not everything and random.random() < 0.6:
                count = random.randint(0, count)
            self.connection.send(bytes(self.unsent[:count]))
            del self.unsent[:count]
        if everything or (self.reads and random.random() < 0.9):
            few = None if everything or random.random() < 0.8 else random.randint(1, 400)
            for reply in self.connection.replies(few):
                self._take(reply)

    def _take(self, reply: Reply) -> None:
        self.replies += 1
        self.book.next()
        of_connection = reply.status in (408, 429) or reply.body == SILENT
        if reply.headers.get("connection") == "close" and of_connection:
            self.refused = True
            return
        request = self.by_id.get(reply.headers.get("id", ""))
        if request is None and (self.loose or self.form == "ids"):
            late = reply.body.startswith(b"answer") or reply.status == 502  # a call that is over
            self.book.check(late, f"{self.name} got what it did not ask for: {reply}")
            return
        if request is None:
            self.book.check(bool(self.in_order), f"{self.name} got an answer too many: {reply}")
            request = self.in_order.popleft()
        elif reply.status != 200 or request.credit == 1:
            del self.by_id[request.id]
        else:
            request.credit -= 1
        told = reply.headers.get("topic", request.topic)
        call = reply.body.startswith(b"answer")
        right = call or told.lower() == request.topic.lower()
        self.book.check(right, f"{request.words} was answered for {told}: {reply}")
        request.done(request, reply)

    @property
    def pending(self) -> list[Request]:
        """What is not answered."""
        return [*self.in_order, *self.by_id.values()]

    def overdue(self) -> list[Request]:
        """What should be answered by now, if nothing is in the way."""
        now_ms = self.book.now_ms()
        first = [*self.in_order][:1]  # it holds up the others
        waiting = [*first, *self.by_id.values()]
        return [one for one in waiting if one.until_ms is not None and one.until_ms <= now_ms]
