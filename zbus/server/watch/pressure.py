"""What the broker holds in memory, and watermarks: with too little disk or memory left, nothing new
is put, and all else goes on.

What is held is counted by kind. Each kind has a bound that is an option, and none may take more
than its share of the memory that the broker may have (`memory_limit_bytes`): what one attack fills
must leave room for all else.

The marks are looked at once a second. What begins at a mark ends a little away from it, so that it
does not begin and end with every message. The disk's own refusal (ENOSPC) is met in the journal,
whatever is seen here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import attrs

from zbus.config import Config
from zbus.config.server import Marks
from zbus.core.api import Broker, BrokerError, Refusal
from zbus.server.watch.system_stats import Space, SystemStats

SHARES: Final[Mapping[str, int]] = MappingProxyType(
    {"bodies_bytes_max": 4, "cache_bytes_max": 4, "history_bytes_max": 8, "memory_bytes_max": 4}
)
"""An option, and which part of the memory it is at most: 4 is a quarter."""

OUTPUT_SHARE: Final = 8
"""The same for what connections have not taken yet, all together."""


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


_MIB = 1 << 20
_DISK_PART = 4
"""`disk_free_bytes_min` is never more than this part of a file system."""

_FREE_BYTES_MAX = 64 << 20
"""This much more than before may be free in the heap: work that comes by turns uses it again."""

_IDLE_BYTES_MAX = 4 << 20
_IDLE_LOOKS = 5
"""Looks after which unused bytes of the heap are given back."""

_MEMORY_PERCENT = 40
"""Of what the process could have, if `memory_limit_bytes` is 0."""

log = logging.getLogger("zbus")


class Pressure:
    """Sets `refusing` and `refusing_in_memory` of the broker's puts."""

    def __init__(
        self,
        broker: Broker,
        gauges: SystemStats,
        space: Callable[[], Space | None],
        marks: Marks,
        give_way: Callable[[], None] = lambda: None,
        holdings: MemoryUsage | None = None,
        collect: Callable[[], object] = lambda: None,
    ) -> None:
        """`space` tells how much room the engine has. `give_way` frees what can be had again, while
        memory is short. `collect` frees what Python keeps for the next objects, which may be spread
        over all of what a crowd left."""
        self._give_way = give_way
        self._collect = collect
        self._holdings = holdings or MemoryUsage()
        self._broker = broker
        self._gauges = gauges
        self._space = space
        self._marks = marks
        self.memory_max = memory_max(gauges, marks)  # 0 = off
        self._disk: BrokerError | None = None
        self._memory: BrokerError | None = None
        self._told: BrokerError | None = None  # in the log
        self._full_free: int | None = None  # of the disk, when it refused messages
        self._free_before = 0  # in the heap; when it was given back last, or less since
        self._looks = 0  # in which
        self._free_least = 0  # was free all the time

    def look(self) -> None:
        """Measure, and refuse or take puts from now on."""
        self._give_back()
        self._disk = self._look_at_disk()
        self._memory = self._look_at_memory()
        before = self._told
        self._broker.refuse_puts(self._disk or self._memory, self._memory, self._has_more_room())
        refusing = self._told = self._broker.refusing()
        if refusing is None:
            if before is not None:
                log.warning("accepting messages again")
        elif before is None or before.refusal is not refusing.refusal:
            held = {kind: _mib(size) for kind, size in self._holdings.bytes_used().items() if size}
            log.warning("puts are refused", extra={"why": refusing.text, "held": held})

    def _has_more_room(self) -> bool:
        """Than when the disk itself refused a message. It may take smaller ones still, and takes
        all of them as soon as one is stored."""
        space = self._space()
        if self._broker.refusing() is None or space is None:
            self._full_free = None
        elif self._full_free is None:
            self._full_free = space.free
        return space is None or space.free > (self._full_free or 0) + _MIB

    def _give_back(self) -> None:
        """A client that took much memory and left gives it to the system, not to this process. What
        is between two things that are kept is given back as well, which the C library does not do
        by itself."""
        free = self._gauges.memory_free() or 0
        self._free_least = min(self._free_least, free) if self._looks else free
        self._looks += 1
        idle = self._looks >= _IDLE_LOOKS and self._free_least > self._free_before + _IDLE_BYTES_MAX
        if idle or free > self._free_before + _FREE_BYTES_MAX:
            self._collect()
            self._gauges.trim_memory()
            self._free_before = free
        self._free_before = min(self._free_before, free)
        self._looks %= _IDLE_LOOKS

    def disk_free_min(self, space: Space) -> int:
        """The larger one of the two marks. On a small file system gibibytes make no sense."""
        marks = self._marks
        least = min(marks.disk_free_bytes_min, space.total // _DISK_PART)
        return max(least, space.total * marks.disk_free_percent_min // 100)

    def _look_at_disk(self) -> BrokerError | None:
        space = self._space()
        if space is None:
            return None
        least = self.disk_free_min(space)
        if self._disk is not None:
            least += least // 10
        if space.free >= least:
            return None
        text = (
            f"disk almost full ({_mib(space.free)} free, {_mib(least)} needed)"
            ": produces are refused, consumes and acks work"
        )
        return BrokerError(Refusal.FULL, text)

    def _look_at_memory(self) -> BrokerError | None:
        most = self.memory_max
        used = self._gauges.memory_used()
        if not most or used is None:
            return None
        if used > most - most // 10:
            # Messages that can be read again give way before anybody is refused.
            self._broker.free_memory()
            self._give_way()
            self._gauges.trim_memory()
            used = self._gauges.memory_used() or used
        if self._memory is not None:
            most -= most // 20
        if used <= most:
            return None
        text = (
            f"memory limit reached ({_mib(used)} of {_mib(most)})"
            ": produces are refused, consumes and acks work"
        )
        return BrokerError(Refusal.OVERLOADED, text)


def memory_max(gauges: SystemStats, marks: Marks) -> int:
    """Resident bytes that the broker may have; 0 = unknown."""
    total = gauges.memory_total() or 0
    return marks.memory_limit_bytes or total * _MEMORY_PERCENT // 100


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"
