"""The dialects that join a world beside the zbus dialect: their clients come and go with all
others, on the same machine, and each dialect has a book of its own of what is promised."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from tests.records import Record
from tests.simulation.adf import AdfWorld
from tests.simulation.camellia import CamelliaWorld
from tests.simulation.model import Book
from tests.simulation.mqcloud import MqcloudWorld
from tests.simulation.stranger import Stranger
from zbus.core.topics.topic import Group, Pull, Session
from zbus.testing.simulation.machine import Machine

if TYPE_CHECKING:
    from tests.simulation.crowd import Crowd

World = AdfWorld | CamelliaWorld | MqcloudWorld
KINDS: Final = ((), (AdfWorld,), (CamelliaWorld,), (AdfWorld, CamelliaWorld))


class Dialects:
    """See the module. Three of four worlds have Adf, camellia or both, and one of three MQCloud.
    They have a `Random` of their own, so that a world without them is what it was before there were
    any."""

    def __init__(self, seed: int, machine: Machine, book: Book, say: Callable[[str], None]) -> None:
        self.random = Random(f"dialects of {seed}")
        self._machine = machine
        kinds = self.random.choice(KINDS)
        self.worlds: list[World] = [kind(self.random, machine, say, book.check) for kind in kinds]
        if (mine := Random(f"mqcloud of {seed}")).random() < 1 / 3:
            self.worlds.append(MqcloudWorld(mine, machine, say, book.check))

    def connect(self, number: int) -> Stranger | None:
        """A client of one of them, now and then."""
        if not self.worlds or self.random.random() < 0.3:
            return None
        room_bytes = self.random.choice((500, 5_000, 64 << 10))
        return self.random.choice(self.worlds).connect(number, room_bytes)

    def picked(self, group: Group, records: list[Record], pull: Pull) -> None:
        """Messages are taken for a pull, which is told when that is written."""
        for world in self.worlds:
            world.picked(group, records, pull)

    def delivered(self, group: Group, records: list[Record], pull: Pull, told: bool) -> None:
        """Now it is told; or nobody is, and they go back."""
        for world in self.worlds:
            world.delivered(group, records, pull, told)

    def moved(self, group: Group, places: list[int]) -> bool:
        """A group is put somewhere else. Says whether it is one of theirs."""
        for world in self.worlds:
            if isinstance(world, MqcloudWorld) and group.topic.name == world.topic.name:
                world.moved(group, places)
                return True
        return False

    def left(self, session: Session) -> None:
        """A connection is over, as the broker sees it."""
        for world in self.worlds:
            world.left(session)

    def fenced(self, topic: str) -> None:
        """One of its partitions is read again."""
        for world in self.worlds:
            world.fenced(topic)

    def ended(self) -> None:
        """The broker ended, however that came."""
        for world in self.worlds:
            world.ended()

    def at_rest(self) -> None:
        """Everybody has waited, and nothing went wrong meanwhile."""
        for world in self.worlds:
            world.at_rest()

    def drain(self, crowd: Crowd) -> None:
        """All leases end, and all that is still to come is read."""

        def serve(client: Stranger) -> None:
            crowd.clients = [client]
            crowd.deliver_all()
            crowd.advance(1_500)
            crowd.deliver_all()

        if self.worlds:
            crowd.advance(60_000)
            crowd.settle()
            for world in self.worlds:
                world.drain(serve)
            crowd.leave()
