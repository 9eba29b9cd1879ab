"""The broker's state, the slow way."""

from __future__ import annotations

import msgspec

from tests.simulation.model import Violation
from zbus.core.cursor.journal import snapshot
from zbus.core.topics.topic import Group, Topic
from zbus.testing.simulation.machine import Process


def state_of(process: Process) -> list[object]:
    """What recovery made of the log, in comparable form."""
    state: list[object] = []
    for topic in process.broker.topics.values():
        state.append(repr(topic.options))
        state += [(one.first, one.end, one.stored.last_crc) for one in topic.partitions]
        for group in topic.groups.values():
            state.append(repr(group.options))
            state += [repr(snapshot(backlog, group.name)) for backlog in group.backlogs]
    return state


def recount(group: Group) -> tuple[int, int, int]:
    """How many messages are ready, leased and delayed."""
    lives = [
        backlog.life(offset).value
        for backlog, partition in zip(group.backlogs, group.topic.partitions, strict=True)
        for offset in range(partition.end)
    ]
    return lives.count("ready"), lives.count("leased"), lives.count("delayed")


def check_document(topic: Topic, shown: bytes) -> None:
    """Compare the answer to a query with what there is."""
    document = msgspec.json.decode(shown)
    depth = sum(partition.end for partition in topic.partitions)
    if document["messageDepth"] != depth:
        raise Violation(f"{topic.name} shows {document['messageDepth']} messages and has {depth}")
    for one in document["consumeGroupList"]:
        counted = recount(topic.groups[one["groupName"].lower()])
        counts = (one["messageCount"], one["leasedCount"], one["delayedCount"])
        if counted != counts:
            raise Violation(f"{topic.name}/{one['groupName']} shows {counts} and has {counted}")
