"""What one of several workers may have: options that bound a whole server are divided by their
number, since each worker counts by itself.

Where topics, connections and clients are spread unevenly, a worker refuses before all of them
together have reached the limit; none of them goes beyond it.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from zbus.config import OPTIONS, Config
from zbus.edge.quotas import share
from zbus.server.watch.pressure import memory_max
from zbus.server.watch.system_stats import SystemStats

DIVIDED: Final = (
    "bodies_bytes_max",
    "cache_bytes_max",
    "connections_max",
    "connections_per_address_max",
    "history_bytes_max",
    "memory_bytes_max",
    "memory_limit_bytes",
    "open_segments_max",
    "push_connections_max",
    "reserve_bytes",
    "topics_max",
    "waiting_max",
)
"""All others are about one thing: a topic, a connection, a message, a moment; or about the disk,
which is the same for all."""


def worker_config(config: Config, gauges: SystemStats) -> Config:
    """The options of each worker."""
    count = config.workers
    known = attrs.evolve(config, memory_limit_bytes=memory_max(gauges, config))
    parts: dict[str, Any] = {name: _part(name, getattr(known, name), count) for name in DIVIDED}
    # Or none of that size could ever be taken.
    parts["bodies_bytes_max"] = max(parts["bodies_bytes_max"], config.body_bytes_max)
    return attrs.evolve(known, workers=1, **parts)


def _part(name: str, limit: int, parts: int) -> int:
    """Not less than the option may be."""
    part = share(limit, parts)
    return part and max(part, int(OPTIONS[name].meta.ge or 0))
