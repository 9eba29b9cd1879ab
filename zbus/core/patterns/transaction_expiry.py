"""Applications that stage messages and do not come back (`zbus.core.patterns.transactions`).

What is staged waits for a commit that may never come: its program was stopped for good, or has
begun anew under another name. So what was staged `ttl_ms` ago and belongs to no decision is
dropped, and both topics of an application that was idle for that time are removed. A decision
is done before its application is looked at, however long that takes: the look is a task behind it.

Who used an application last is told by what it has stored, so a restart forgets nothing. From time
to time each is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

from zbus.core.delivery.run_queue import RunQueue
from zbus.core.log import Size
from zbus.core.model.chunk import Chunk
from zbus.core.patterns.transaction_log import Producer, Task
from zbus.core.persistence.storage import Storage
from zbus.core.timing.timers import Timers
from zbus.core.topics.topic import Partition

LOOKS: Final = 8
"""In the time after which something is forgotten: it is late by an eighth at most."""

_ONE: Final = Size(bytes_max=1, count_max=1)


class Lapsing:
    """`look` is called with the name of an application that is to be looked at."""

    def __init__(
        self,
        storage: Storage,
        runs: RunQueue,
        timers: Timers,
        ttl_ms: int,
        look: Callable[[str], None],
    ) -> None:
        self._storage = storage
        self._tick = runs.tick
        self._ttl_ms = ttl_ms
        self._used_ms: dict[str, int] = {}  # since the start
        self._timer = timers.timer(look)

    def use(self, name: str) -> None:
        """Note that a client uses this application."""
        key = name.lower()
        if key not in self._used_ms:
            self._again(key)
        self._used_ms[key] = self._tick.now_ms

    def found(self, name: str) -> None:
        """A start has found it."""
        if self._ttl_ms:
            self._timer.set(name.lower(), self._tick.now_ms)

    def _again(self, key: str) -> None:
        if self._ttl_ms:
            self._timer.set(key, self._tick.now_ms + self._ttl_ms // LOOKS + 1)

    def lapse(
        self,
        app: Producer,
        drop: Callable[[Producer, range], Task],
        remove: Callable[[Producer], None],
    ) -> Task:
        """Drop what was staged long ago, or remove the application. Nothing of it is under way."""
        used_ms = app.decisions.options.created_ms
        for topic in (app.decisions, app.rows):
            stored_ms = yield from self._newest_ms(topic.partitions[0])
            used_ms = max(used_ms, stored_ms)
        used_ms = max(used_ms, self._used_ms.get(app.name, 0))
        before_ms = self._tick.now_ms - self._ttl_ms
        if used_ms <= before_ms and not app.queue:
            self._used_ms.pop(app.name, None)
            remove(app)
            return
        partition = app.rows.partitions[0]
        if partition.fenced is None:
            stop = yield partial(partition.log.find_time, before_ms)
            if isinstance(stop, int) and stop > partition.first:
                yield from drop(app, range(partition.first, stop))
        self._again(app.name)

    def _newest_ms(self, partition: Partition) -> Generator[Any, Any, int]:
        """When the last message there was stored; now, if that is unknown."""
        if partition.fenced is None and partition.first == partition.visible:
            return 0
        if partition.fenced is None:
            found = yield partial(self._storage.fetch, partition, partition.visible - 1, _ONE)
            if isinstance(found, Chunk):
                return found.time_ms
        return self._tick.now_ms
