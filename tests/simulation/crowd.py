"""The clients of a simulation: how they come and go, and how time passes for them.

It passes together with what the broker does in it, which has a turn whenever something is due.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.client import Client
from tests.simulation.dialects import Dialects
from tests.simulation.model import Book, Violation
from tests.simulation.stranger import Stranger
from zbus.testing.simulation.machine import Machine

PATIENCE_MS = 60_000
"""Longer than any client waits, and than it takes to notice one that is gone."""


class Crowd:
    """See the module."""

    def __init__(
        self,
        random: Random,
        machine: Machine,
        book: Book,
        say: Callable[[str], None],
        dialects: Dialects,
    ) -> None:
        self.random = random
        self.machine = machine
        self.book = book
        self.say = say
        self.clients: list[Client | Stranger] = []
        self._dialects = dialects
        self._connected = 0

    # -- coming and going ---------------------------------------------------------------------

    def connect(self) -> None:
        """One more."""
        self._connected += 1
        stranger = self._dialects.connect(self._connected)
        if stranger is not None:
            self.clients.append(stranger)
            self.say(f"{stranger.name} connects")
            return
        multiplexed = self.random.random() < 0.6
        room_bytes = self.random.choice((500, 5_000, 64 << 10))
        client = Client(self.machine.connect(room_bytes), self._connected, multiplexed)
        self.clients.append(client)
        self.say(f"{client.name} connects")

    def asking(self) -> list[Client | Stranger]:
        """Those that may still send something."""
        return [client for client in self.clients if not client.connection.socket.ended]

    def stall(self) -> None:
        """One reads no replies, or reads them again."""
        client = self.random.choice(self.clients)
        client.reads = not client.reads
        self.say(f"{client.name} {'reads again' if client.reads else 'reads no replies'}")

    def hang_up(self) -> None:
        """One has sent everything."""
        client = self.random.choice(self.clients)
        client.connection.finish()
        self.say(f"{client.name} sends no more")

    def reset(self) -> None:
        """One is gone at once."""
        client = self.random.choice(self.clients)
        client.connection.reset()
        self.say(f"{client.name} is gone")

    def leave(self) -> None:
        """All are gone."""
        for client in self.clients:
            client.connection.reset()
        self.settle()
        self.clients.clear()

    def forget_the_dead(self) -> None:
        """What they were still sent is read."""
        for client in self.clients:
            if not client.connection.alive:
                client.move(self.random, everything=True)
        self.clients = [client for client in self.clients if client.connection.alive]

    # -- time ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """The broker does what there is to do now."""
        self.book.now_ms = self.machine.now_ms
        self.machine.settle()

    def advance(self, ms: int) -> None:
        """Time passes, and the broker does what is due when it is due."""
        machine = self.machine
        end_ms = machine.now_ms + ms
        while machine.process is not None:
            due_ms = machine.broker.next_due()
            if due_ms is None or due_ms > end_ms:
                break
            machine.clock.time_ms = max(machine.now_ms, due_ms)
            self.settle()
        machine.jump(end_ms - machine.now_ms)
        self.book.now_ms = machine.now_ms

    # -- rest ---------------------------------------------------------------------------------

    def exchange(self, client: Client | Stranger) -> None:
        """What one has asked reaches the broker, and what there is to answer comes back."""
        client.move(self.random, everything=True)
        self.settle()
        client.move(self.random, everything=True)

    def deliver_all(self) -> None:
        """All bytes reach whom they are for, until there are no more."""
        for _ in range(1_000):
            before = self._replies()
            for client in self.clients:
                client.move(self.random, everything=True)
            self.settle()
            if self.machine.process is None:
                raise Violation("the broker ended without a reason")
            if before == self._replies() and not self._outbound():
                return
        raise Violation("the broker does not come to rest")

    def wait(self) -> None:
        """Nothing goes wrong for a while: then everything that was asked must be answered."""
        while True:
            before = self._replies()
            self.deliver_all()
            self.advance(PATIENCE_MS)
            self.deliver_all()
            overdue = self._overdue()
            if not overdue:
                return
            # One request of a client may wait for another, each with a timeout.
            if before == self._replies():
                raise Violation(f"not answered: {overdue[0]}")

    def _replies(self) -> int:
        return sum(client.replies for client in self.clients)

    def _outbound(self) -> bool:
        return any(client.connection.socket.outbound for client in self.clients)

    def _overdue(self) -> list[str]:
        now_ms = self.machine.now_ms
        return [
            f"{client.name}: {what}"
            for client in self.clients
            if client.connection.alive
            for what in client.overdue(now_ms)
        ]
