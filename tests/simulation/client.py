"""A client that does not make it easy: it pipelines, sends bytes in any pieces, and reads late."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from zbus.testing.simulation.network import Connection
from zbus.testing.world import Reply

ANSWER = b"answer to "
"""How the body of a service's answer begins."""


@dataclass(slots=True, eq=False)
class Request:
    """What a client asked and what it makes of the answer."""

    id: str
    what: str
    done: Callable[[Reply], None]
    until_ms: int | None = 0  # answered by then, if nothing is in the way; None = may wait for ever
    credit: int = 1  # so many replies may come


class Client:
    """One connection of the simulation.

    A multiplexed client gives `cmd` headers and ids, and its replies come in any order. Another one
    is plain HTTP and gets its replies in order.
    """

    def __init__(self, connection: Connection, number: int, multiplexed: bool) -> None:
        self.connection = connection
        self.name = f"{'multiplexed' if multiplexed else 'plain'} client {number}"
        self.multiplexed = multiplexed
        self.unsent = bytearray()
        self.pending: dict[str, Request] = {}
        self.order: deque[Request] = deque()  # of a plain client
        self.reads = True  # False: takes no replies for a while
        self.replies = 0
        self._serial = 0

    def ask(
        self,
        command: str,
        topic: str,
        headers: dict[str, str],
        body: bytes,
        done: Callable[[Reply], None],
        until_ms: int | None = 0,
        credit: int = 1,
        what: str = "",
        quiet: bool = False,
    ) -> None:
        """Write a request; `headers` are parameters, too. A quiet one is not answered."""
        self._serial += 1
        request = Request(str(self._serial), what or f"{command} {topic}", done, until_ms, credit)
        if self.multiplexed:
            id = headers.pop("id", request.id)
            lines = ["GET / HTTP/1.1", f"cmd: {command}", f"topic: {topic}", f"id: {id}"]
            if not quiet:
                self.pending[request.id] = request
        else:
            lines = [f"POST /{topic}?cmd={command} HTTP/1.1", "host: 127.0.0.1:15555"]
            self.order.append(request)
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {len(body)}", "", ""]
        self.unsent += "\r\n".join(lines).encode() + body

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
        if reply.status == 408:  # half a request, and then nothing for too long
            assert reply.headers["connection"] == "close", reply
            return
        if self.multiplexed:
            request = self.pending.get(reply.headers.get("id", ""))
            if request is None and reply.body.startswith(ANSWER):
                return  # to a call that has timed out meanwhile
            assert request is not None, f"{self.name} got a reply that it did not ask for: {reply}"
            request.credit -= 1
            if request.credit == 0 or reply.status != 200:
                del self.pending[request.id]
        else:
            assert self.order, f"{self.name} got a reply that it did not ask for: {reply}"
            request = self.order.popleft()
        request.done(reply)

    def overdue(self, now_ms: int) -> list[str]:
        """Requests that should have been answered, if the broker had all bytes and time."""
        if self.multiplexed:
            waiting = list(self.pending.values())
        else:  # the first one holds up the others
            waiting = [request for request in self.order][:1]
        return [
            request.what
            for request in waiting
            if request.until_ms is not None and request.until_ms <= now_ms
        ]
