"""What the broker holds in memory, counted in one place, and how much of each kind it may be.

Each kind has a bound that is an option, and none may take more than its share of the memory that
the broker may have (`memory_limit_bytes`): what one attack fills must leave room for all else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import attrs

from zbus.config import Config
from zbus.server.assembly import Assembly
from zbus.server.loop.loop import Loop

SHARES: Final[Mapping[str, int]] = MappingProxyType(
    {"bodies_bytes_max": 4, "cache_bytes_max": 4, "history_bytes_max": 8, "memory_bytes_max": 4}
)
"""An option, and which part of the memory it is at most: 4 is a quarter."""

OUTPUT_SHARE: Final = 8
"""The same for what connections have not taken yet, all together."""

CONNECTION_BYTES: Final = 3 << 10
PULL_BYTES: Final = 900
CALL_BYTES: Final = 1_200
"""What a connection, a waiting pull and an open call take, about."""


def within(config: Config, memory_max: int) -> Config:
    """The configuration with no kind over its share; 0 = the memory is not limited."""
    if not memory_max:
        return config
    least = {"bodies_bytes_max": config.body_bytes_max}  # or none of that size could ever be taken
    bounds = {
        name: min(getattr(config, name), max(memory_max // part, least.get(name, 1 << 20)))
        for name, part in SHARES.items()
    }
    return attrs.evolve(config, **bounds)


class MemoryUsage:
    """Asks those who hold something."""

    def __init__(self) -> None:
        self._asked: dict[str, Callable[[], int]] = {}

    def add(self, kind: str, bytes_used: Callable[[], int]) -> None:
        """One more kind of thing. `bytes_used` is about right, and quick to tell."""
        self._asked[kind] = bytes_used

    def bytes_used(self) -> dict[str, int]:
        """By kind."""
        return {kind: ask() for kind, ask in self._asked.items()}


def count_holdings(holdings: MemoryUsage, loop: Loop, assembly: Assembly) -> None:
    """Everything that this broker holds in memory."""
    broker, sweep = assembly.broker, loop.sweep
    holdings.add("connections", lambda: CONNECTION_BYTES * len(loop.links))
    holdings.add("output", lambda: sweep.output_bytes if sweep else 0)
    holdings.add("bodies", lambda: assembly.bodies.bytes_used)
    holdings.add("heads", lambda: assembly.heads.bytes_used)
    holdings.add("pulls", lambda: PULL_BYTES * broker.memory_use().pulls)
    holdings.add("calls", lambda: CALL_BYTES * broker.memory_use().calls)
    holdings.add("cache", lambda: broker.memory_use().recent_bytes)
    holdings.add("history", lambda: broker.memory_use().replayed_bytes)
    holdings.add("memoryTopics", lambda: broker.memory_use().topics_bytes)
    for kind, bytes_used in assembly.front.holds().items():
        holdings.add(kind, bytes_used)
