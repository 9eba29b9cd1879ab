"""The clients of a kill campaign: each a thread with a connection, until the broker is gone."""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Final

from tests.process.broker import WORKERS
from tests.process.kill_ledger import (
    ACK_CONFIRMED,
    ACK_SENT,
    BLOCK,
    GroupLedger,
    Partition,
    Sent,
    Violation,
    key_of,
    make_body,
    tag_of,
)
from tests.process.pipe import Pipe, ask, number

PACE_S: Final = 0.025  # from block to block of one producer, so that consumers nearly keep up
TAKE: Final = 200  # messages of one consume


def refusal(text: str, status: int) -> Exception:
    """What it shows: a mistake, or that one of several processes has ended before the others."""
    return EOFError(text) if status == 503 and WORKERS > 1 else Violation(text)


class Client(threading.Thread):
    """A thread that ends when the broker does; `problem` is what must not have been."""

    def __init__(self, port: int, life: threading.Event) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.over = life  # set: leave after the request in hand
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            with Pipe(self.port) as pipe:
                self.work(pipe)
        except TimeoutError as late:
            self.problem = Violation(f"{self.name} was not answered: {late}")
        except (OSError, EOFError):
            pass  # killed
        except BaseException as problem:
            self.problem = problem

    def work(self, pipe: Pipe) -> None:
        raise NotImplementedError


class Producer(Client):
    """Blocks of 64 messages: pipelined one by one, or as a batch; some keyed, some delayed."""

    def __init__(
        self,
        port: int,
        life: threading.Event,
        number: int,
        topics: list[list[Partition]],
        blocks: Iterator[int],
        random: Random,
        batches: bool,
    ) -> None:
        super().__init__(port, life)
        self.number = number
        self.topics = topics
        self.blocks = blocks
        self.random = random
        self.batches = batches
        self.acknowledged = 0
        self.sent = 0

    def work(self, pipe: Pipe) -> None:
        began = time.monotonic()
        for count in itertools.count():
            if self.over.wait(max(0.0, began + count * PACE_S - time.monotonic())):
                return
            log = self.random.choice(self.topics)
            keyed = self.random.random() < 0.6
            delay_ms = self.random.randint(50, 500) if self.random.random() < 0.2 else 0
            first = next(self.blocks) * BLOCK
            now_us = time.monotonic_ns() // 1000
            messages = [Sent(first + n, self.number, delay_ms, now_us) for n in range(BLOCK)]
            self.sent += BLOCK
            if self.batches:
                self._batch(pipe, log, messages, keyed)
            else:
                self._singles(pipe, log, messages, keyed)

    def _lines(self, sent: Sent, keyed: bool) -> bytes:
        key = b"key: %b\r\n" % key_of(self.number, sent.serial) if keyed else b""
        return b"tag: %b\r\n%b" % (tag_of(sent.serial), key)

    def _where(self, log: list[Partition], delay_ms: int) -> bytes:
        delay = b"&delay=%d" % delay_ms if delay_ms else b""
        return b"/%b?cmd=produce%b" % (log[0].topic.encode(), delay)

    def _singles(self, pipe: Pipe, log: list[Partition], messages: list[Sent], keyed: bool) -> None:
        target = self._where(log, messages[0].delay_ms)
        pipe.send(
            b"".join(ask(target, make_body(sent), self._lines(sent, keyed)) for sent in messages)
        )
        for sent in messages:
            self._told(log, *pipe.read(), [sent])

    def _batch(self, pipe: Pipe, log: list[Partition], messages: list[Sent], keyed: bool) -> None:
        body = b"".join(ask(b"/", make_body(sent), self._lines(sent, keyed)) for sent in messages)
        lines = b"content-type: application/vnd.zbus.messages\r\n"
        self._told(log, *pipe.get(self._where(log, messages[0].delay_ms), body, lines), messages)

    def _told(
        self, log: list[Partition], status: int, head: bytes, body: bytes, messages: list[Sent]
    ) -> None:
        if status != 200:
            raise refusal(f"a produce was refused: {status} {body!r}", status)
        partition = log[number(head, b"partition", 0)]
        for offset, sent in enumerate(messages, number(head, b"offset")):
            partition.tell(offset, sent.serial)
        self.acknowledged += len(messages)


class Consumer(Client):
    """The only reader of a group; acknowledges most of what it gets, if it has to."""

    def __init__(
        self,
        port: int,
        life: threading.Event,
        group: GroupLedger,
        random: Random,
        drain: bool = False,
    ) -> None:
        super().__init__(port, life)
        self.group = group
        self.random = random
        self.drain = drain  # acknowledge everything, and end when there is nothing more
        self.acknowledged = 0

    def work(self, pipe: Pipe) -> None:
        group = self.group
        timeout_ms = group.lease_ms + 1_000 if self.drain else 100
        target = (
            f"/{group.topic}/{group.name}?cmd=consume&batch={TAKE}&timeout={timeout_ms}"
        ).encode()
        lines = b"accept: application/json\r\n"
        while not self.over.is_set():
            asked_s = time.monotonic()
            group.waits = True
            reply = pipe.get(target, lines=lines)
            group.waits = False
            if reply.status == 204:
                if self.drain:
                    return
                continue
            if reply.status != 200:
                raise refusal(f"a consume was refused: {reply}", reply.status)
            self._take(pipe, reply.body, asked_s)

    def _take(self, pipe: Pipe, document: bytes, asked_s: float) -> None:
        group = self.group
        taken = []
        for message in json.loads(document):
            text = message.get("body")
            body = base64.b64decode(message["body_base64"]) if text is None else text.encode()
            partition, offset = message["partition"], message["offset"]
            group.deliver(
                partition, offset, body, message["timestamp"], "retry" in message, asked_s
            )
            taken.append((partition, offset))
        if not group.lease_ms:
            return
        if not self.drain:
            taken = [place for place in taken if self.random.random() > 0.03]  # lets leases end
        for partition, offset in taken:
            group.readings[partition].set(offset, ACK_SENT)
        pipe.send(
            b"".join(
                ask(
                    b"/%b/%b?cmd=ack&partition=%d&offset=%d"
                    % (group.topic.encode(), group.name.encode(), partition, offset)
                )
                for partition, offset in taken
            )
        )
        for partition, offset in taken:
            reply = pipe.read()
            if reply.status != 200:
                raise refusal(f"an ack was refused: {reply}", reply.status)
            group.readings[partition].set(offset, ACK_CONFIRMED)
            self.acknowledged += 1


class Side(Client):
    """Topics that come, are filled, emptied and go, with their groups."""

    NAMES: Final = ("side-a", "side-b", "side-c")

    def __init__(self, port: int, life: threading.Event, book: SideBook, random: Random) -> None:
        super().__init__(port, life)
        self.book = book
        self.random = random
        self.done = 0

    def work(self, pipe: Pipe) -> None:
        for count in itertools.count():
            if self.over.is_set():
                return
            name = self.random.choice(self.NAMES)
            target, after = self.book.choose(name, self.random, count)
            self.book.doubt[name] = after
            reply = pipe.get(target, b"x" * 50 if "cmd=produce" in target else b"")
            if reply.status != 200:
                raise refusal(f"{target} was refused: {reply}", reply.status)
            self.book.states[name] = after
            del self.book.doubt[name]
            self.done += 1


SideState = tuple[int, int, frozenset[str]] | None
"""Messages ever put, of which were emptied, groups; None: there is no such topic."""


class SideBook:
    """What is known of the side topics. A change that was not answered may have been done."""

    def __init__(self) -> None:
        self.states: dict[str, SideState] = dict.fromkeys(Side.NAMES)
        self.doubt: dict[str, SideState] = {}

    def choose(self, name: str, random: Random, count: int) -> tuple[str, SideState]:
        """A request, and the state after it."""
        state = self.states[name]
        if state is None:
            durability = random.choice(("disk", "os"))
            return f"/{name}?cmd=declare&durability={durability}", (0, 0, frozenset((name,)))
        put, emptied, groups = state
        kind = random.random()
        if kind < 0.5:
            return f"/{name}?cmd=produce", (put + 1, emptied, groups)
        if kind < 0.65:
            return f"/{name}?cmd=empty", (put, put, groups)
        if kind < 0.75:
            return f"/{name}?cmd=remove", None
        if kind < 0.85 and (others := groups - {name}):
            less = max(others)
            return f"/{name}/{less}?cmd=remove", (put, emptied, groups - {less})
        if len(groups) < 5:
            more = f"g{count}"
            return f"/{name}/{more}?cmd=declare", (put, emptied, groups | {more})
        return f"/{name}?cmd=produce", (put + 1, emptied, groups)

    def check(self, pipe: Pipe) -> None:
        """Compare with the broker; from here on there is no doubt."""
        for name, known in self.states.items():
            actual = self._look(pipe, name)
            if actual != known and (name not in self.doubt or actual != self.doubt[name]):
                raise Violation(
                    f"{name} is {actual}, was {known}, in doubt: {self.doubt.get(name, 'nothing')}"
                )
            self.states[name] = actual
        self.doubt.clear()

    def _look(self, pipe: Pipe, name: str) -> SideState:
        reply = pipe.get(f"/{name}?cmd=query")
        if reply.status == 404:
            return None
        document = json.loads(reply.body)
        put = document["messageDepth"]
        groups = document["consumeGroupList"]
        counts = {group["messageCount"] for group in groups}
        if len(counts) != 1:
            raise Violation(f"{name} has groups that differ: {document}")
        return put, put - counts.pop(), frozenset(group["groupName"] for group in groups)
