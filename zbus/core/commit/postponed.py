"""Partitions that are not written now, though something is to be: there was no room, or another log
has to be durable before.

Tests: `tests/core/commit/test_state_full.py`.
"""

from __future__ import annotations

from zbus.core.topics.topic import Partition

RETRY_MS = 1_000
"""How often changes that found no room are tried again."""


class Postponed:
    def __init__(self) -> None:
        self.behind: dict[Partition, None] = {}  # their changes found no room
        self.suspended: dict[Partition, int] = {}  # by how many
        self._aside: list[Partition] = []  # of those: something is to be written
        self._retried_ms = 0

    @property
    def due_ms(self) -> int:
        """When changes that found no room are tried again."""
        return self._retried_ms + RETRY_MS

    def no_room(self, partition: Partition, now_ms: int) -> None:
        """Not even its changes found some."""
        if not self.behind:
            self._retried_ms = now_ms
        self.behind[partition] = None

    def take(self, touched: list[Partition], now_ms: int) -> list[Partition]:
        """Those that are to be written: of these, and of what waits."""
        if self.behind and now_ms >= self._retried_ms + RETRY_MS:
            self._retried_ms = now_ms
            for partition in self.behind:
                if not partition.touched:
                    partition.touched = True
                    touched.append(partition)
        if self.suspended:
            found, self._aside = self._aside + touched, []
            touched = []
            for partition in found:
                waits = partition in self.suspended and partition.fenced is None
                (self._aside if waits else touched).append(partition)
        return touched

    def suspend(self, partition: Partition) -> None:
        """Write nothing to it until it was resumed as often: requests wait."""
        self.suspended[partition] = self.suspended.get(partition, 0) + 1

    def resume(self, partition: Partition) -> bool:
        """Whether there is something to write now."""
        self.suspended[partition] -= 1
        if self.suspended[partition]:
            return False
        del self.suspended[partition]
        return self.forget(partition)

    def forget(self, partition: Partition) -> bool:
        """It waits no more; whether it did, behind another log."""
        self.behind.pop(partition, None)
        waited = partition in self._aside
        if waited:
            self._aside.remove(partition)
        return waited
