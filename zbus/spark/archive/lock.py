"""The retention of a broker waits for an archive: a consumer group of each topic stands where the
archive ends, and retention forgets nothing that this group has not passed (`group_retain`).

No consumer reads from the group. It stays when the archiver ends: what is stored until the next run
is kept, too. An abandoned archive fills the disk; removing the group ends that.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Protocol

from zbus.spark.errors import Usage
from zbus.spark.source.location import Where


class Lock(Protocol):
    """Keeps messages from removal until they are archived."""

    def hold(self, topic: str) -> None:
        """From now on, nothing of this topic goes that is behind its last place."""

    def move(self, topic: str, partition: int, offset: int) -> None:
        """What is before this offset is archived, or cannot be any more."""


class NoLock:
    """Retention goes on as it likes."""

    def hold(self, topic: str) -> None: ...

    def move(self, topic: str, partition: int, offset: int) -> None: ...


class RetentionLock:
    """Raises SparkProblem."""

    def __init__(self, where: Where, root: str) -> None:
        if where.broker is None:
            raise Usage("--retention-lock needs a broker: a directory has no retention")
        self.group = group_of(root)
        self._where = where
        self._places: dict[tuple[str, int], int] = {}

    def hold(self, topic: str) -> None:
        with self._where.client(topic) as bus:
            bus.declare(topic, self.group, ack=True, retain=True, start="earliest")

    def move(self, topic: str, partition: int, offset: int) -> None:
        if self._places.get((topic, partition)) == offset:
            return
        with self._where.client(topic) as bus:
            bus.seek(topic, self.group, offset, partition=partition)
        self._places[topic, partition] = offset


def group_of(root: str) -> str:
    """The group of an archive in this directory."""
    return f"archive-{sha256(root.encode()).hexdigest()[:8]}"
