"""Worlds of SEMQ as `tests.simulation.semq` has them, with what is rarer: nodes whose messages are
divided among several stores, small outboxes and windows, limits of attempts, nodes that nobody
knows, and operators who look, have rows sent again, and give rows up.
"""

from __future__ import annotations

import json
from typing import Final

import attrs

from tests.simulation.semq import SemqSimulation
from tests.simulation.semq_node import Node
from tests.simulation.semq_work import MESSAGES_MAX, Work
from zbus.semq.endpoint.endpoint import EndpointOptions
from zbus.semq.endpoint.events import Manage
from zbus.semq.protocol.words import Address
from zbus.testing.world import Reply

UNKNOWN: Final = "1:99"
ORDERS: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("stat", {}),
    ("list", {}),
    ("list", {"box": "in"}),
    ("dead", {}),
    ("retry", {}),
)


class WideWork(Work):
    """See the module."""

    def __init__(self, world: SemqSimulation) -> None:
        super().__init__(world)
        self.stranger = UNKNOWN
        self.strange = self.random.choice((0.03, 0.03, 0.2))
        self.appears = self.random.random() < 0.5

    def members(self) -> list[tuple[str, EndpointOptions]]:
        return [(name, self._odd(options)) for name, options in super().members()]

    def _odd(self, options: EndpointOptions) -> EndpointOptions:
        choose = self.random.choice
        return attrs.evolve(
            options,
            stores=choose((1, 2, 3)),
            deliveries=choose((1, 5, 100)),
            outbox_bytes_max=choose((5_000, 1 << 30)),
            attempts_max=choose((0, 0, 8)),
            alarm_ms=choose((60_000, 3_600_000)),
        )

    def act(self) -> None:
        if self.random.random() < 0.1:
            self._operate()
        if self.appears and self.random.random() < 0.02 and self.serial > MESSAGES_MAX // 8:
            self._appear()
        super().act()

    def _appear(self) -> None:
        """The node that nobody knew is there."""
        self.appears = False
        node = Node(self.world, UNKNOWN, self._odd(EndpointOptions(node=UNKNOWN)))
        self.world.nodes[UNKNOWN] = node
        node.start()

    def _destination(self, node: Node) -> Address:
        if self.random.random() < self.strange:
            return Address(UNKNOWN)
        return super()._destination(node)

    # -- operators ----------------------------------------------------------------------------

    def _operate(self) -> None:
        node = self.random.choice(list(self.world.nodes.values()))
        self.world.counts["orders of operators"] += 1
        if self.random.random() < 0.5:
            command, fields = self.random.choice(ORDERS)
            node.asks += 1
            node.tell(Manage(node.asks, command, fields))
        elif self.world.platform.runs:
            self._operate_platform(node.name)

    def _operate_platform(self, name: str) -> None:
        listed = self._order("semq_list", node=name)
        if listed is None or listed.status != 200:
            return
        rows = json.loads(listed.body)["rows"]
        self._order("semq_stat", node=name)
        if not rows:
            return
        row = self.random.choice(rows)
        if self.random.random() < 0.8:
            self._order("semq_retry", node=name, lk1=row["lk1"])
            return
        for sent in self.world.book.sent.values():
            if sent.number == row["mid"] and sent.destination.node == name:
                sent.given_up = True
                self.world.say(f"the operator gives up {sent}")
                self._order("semq_dead", node=name, lk1=row["lk1"])

    def _order(self, command: str, **fields: str) -> Reply | None:
        if not self.world.platform.runs:
            return None
        lines = [f"{name}: {value}" for name, value in {"cmd": command, **fields}.items()]
        head = "\r\n".join(["POST /semq HTTP/1.1", *lines, "content-length: 0", "", ""])
        return self.world.platform.ask(head.encode())


class WideSemqSimulation(SemqSimulation):
    """See the module."""

    dialect = "semq-wide"
    work_of = WideWork
