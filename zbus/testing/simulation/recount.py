"""The broker's state, the slow way."""

from __future__ import annotations

from zbus.core.group import Group
from zbus.testing.simulation.machine import Process
from zbus.testing.simulation.model import Violation


def state_of(process: Process) -> list[object]:
    """What recovery made of the log, in comparable form."""
    state: list[object] = []
    for topic in process.broker.topics.values():
        state.append(repr(topic.options))
        state += [(one.first, one.end, one.last_crc) for one in topic.partitions]
        for group in topic.groups.values():
            state.append(repr(group.options))
            state += [repr(backlog.snapshot(group.name)) for backlog in group.backlogs]
    return state


def recount(group: Group) -> None:
    """The counters of the documents, against the slow way."""
    lives = [
        backlog.life(offset).value
        for backlog, partition in zip(group.backlogs, group.topic.partitions, strict=True)
        for offset in range(partition.end)
    ]
    counted = (lives.count("ready"), lives.count("leased"), lives.count("delayed"))
    shown = (group.ready_count(), group.leased_count(), group.delayed_count())
    if counted != shown:
        raise Violation(f"{group.topic.name}/{group.name} shows {shown} and has {counted}")
