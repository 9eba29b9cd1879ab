"""Who pulled what, by requestid: each WebSocket for itself, all of HTTP together.

An id is in use as long as its pull waits, or its message is neither settled nor lost. A lease that
has ended needs no telling: who asks looks whether it is still the same hand-out.
"""

from __future__ import annotations

from typing import NamedTuple

from zbus.core.api import Group, Partition, Pull


class Held(NamedTuple):
    """A delivered message. Each delivery has another holder, or number of attempts, so these say
    which delivery it is."""

    group: Group
    partition: Partition
    offset: int
    attempts: int
    holder: bytes  # the session's id

    def lasts(self) -> bool:
        """It was neither settled nor lost."""
        group, partition, offset, attempts, holder = self
        backlog = group.progress(partition.index)
        leased = backlog.leased
        if leased.holders.get(offset) != holder or backlog.attempts.get(offset) != attempts:
            return False
        topic = group.topic
        if partition.removed or topic.groups.get(group.name.lower()) is not group:
            return False
        return offset not in leased.settling


class Scope(dict[bytes, Pull | Held]):
    """By requestid."""

    __slots__ = ()


def in_use(scope: Scope, id: bytes) -> bool:
    """Whether a pull of this id waits, or its message is unsettled."""
    found = scope.get(id)
    return found is not None and (not isinstance(found, Held) or found.lasts())
