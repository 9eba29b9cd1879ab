"""The group of a dead-letter topic: what is not done in it yet, and what is done from now on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from zbus.client import errors
from zbus.client.blocking import BlockingClient
from zbus.spark.errors import Usage
from zbus.spark.sink import sink

PAGE: Final = 1_000  # messages of an answer to `peek`
DELETED_MAX: Final = 10_000  # offsets of a request
_ASK_AGAIN_S: Final = (0.1, 0.4)


def group_of(bus: BlockingClient, topic: str, group: str | None) -> str:
    """The group that is meant. Raises Usage: without one nothing could be marked as done."""
    groups = [each.name for each in bus.query(topic).groups]
    if group is not None:
        for name in groups:
            if name.lower() == group.lower():
                return name
        raise Usage(f"{topic} has no group {group}; there are: {', '.join(groups) or 'none'}")
    for name in groups:
        if len(groups) == 1 or name.lower() == topic.lower():
            return name
    if groups:
        raise Usage(f"{topic} has the groups {', '.join(groups)}: say which one, --group NAME")
    raise Usage(
        f"{topic} has no group, so nothing of it can be done: declare one"
        f" (zbus declare {topic} {topic} --from earliest)"
    )


def ready(bus: BlockingClient, topic: str, group: str) -> dict[int, set[int]]:
    """The offsets that are not done in a group, nor with a consumer, by partition."""
    found: dict[int, set[int]] = {}
    after = ""
    while True:
        page = bus.peek(topic, group, state="ready", count=PAGE, after=after)
        for message in page.messages:
            found.setdefault(message["partition"], set()).add(message["offset"])
        after = page.next
        if not after:
            return found


def last_batch(bus: BlockingClient, app: str) -> int:
    """The number of the last transaction of an application that is committed; -1: there is none."""
    for pause_s in (0.0, *_ASK_AGAIN_S):  # a broker that has just started reads it when it is asked
        time.sleep(pause_s)
        try:
            batch = sink.last_batch(bus, app)
        except errors.NotFound:
            break
        if batch is not None:
            return batch
    return -1


def finish(
    bus: BlockingClient, topic: str, group: str, offsets: Mapping[int, Sequence[int]]
) -> None:
    """Finish these in the group: they are not delivered any more."""
    for partition, wanted in offsets.items():
        for first in range(0, len(wanted), DELETED_MAX):
            try:
                some = list(wanted[first : first + DELETED_MAX])
                bus.delete(topic, group, some, partition=partition)
            except errors.NotFound:
                continue  # all of them were
