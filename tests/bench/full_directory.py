"""A data directory as large as wanted, written by the real journal, for measuring starts.

    python -m tests.bench.full_directory DIRECTORY TOPICS GROUPS_PER_TOPIC MEGABYTES [kill]

With `kill` it ends as a killed broker does, a moment after its last landmarks.
"""

from __future__ import annotations

import itertools
import os
import queue
import sys
from collections.abc import Callable
from pathlib import Path

from tests.core.support import wishing
from zbus.core.cursor.state import GroupOptions, TopicOptions
from zbus.core.model.chunk import Chunk
from zbus.core.model.message import Message
from zbus.core.model.ticket import Silent
from zbus.core.verbs.declare import GroupWish
from zbus.server.assembly import make_broker
from zbus.storage.local.engine import LocalJournal

TIME_MS = 1_800_000_000_000
BODY = bytes(range(256)) * 4
MESSAGES = 256  # in one write


def fail(text: str) -> None:
    raise AssertionError(text)


def fill(data_dir: Path, topics: int, groups: int, megabytes: int, kill: bool = False) -> None:
    """Declare the topics and write that much into them in turn."""
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    journal = LocalJournal(data_dir, posted.put, fail)
    broker = make_broker(journal, iter(()))
    moments = itertools.count(TIME_MS)

    def turn(act: Callable[[], None]) -> None:
        broker.begin(next(moments))
        act()
        broker.finish()
        while not posted.empty():
            posted.get()()

    def declare(number: int) -> None:
        for group in range(groups):
            wish = GroupWish(f"group-{group}", GroupOptions(lease=True))
            options = TopicOptions(f"topic-{number}", durability="os")
            broker.declare(Silent(), options.name, wishing(options, wish))

    def upkeep(now_ms: int) -> None:
        journal.upkeep(now_ms)
        posted.get()()

    for number in range(topics):
        turn(lambda number=number: declare(number))  # type: ignore[misc]
    messages = [Message(b"%032x" % number, body=BODY) for number in range(MESSAGES)]
    found = list(broker.topics.values())
    writes = (megabytes << 20) // (MESSAGES * len(BODY))
    for number in range(writes):
        partition = found[number % topics].partitions[0]
        turn(lambda partition=partition: broker.put_all(partition, Silent(), Chunk.of(messages)))  # type: ignore[misc]
        if number % 1000 == 0:
            upkeep(number)
    if not kill:
        journal.close()
        return
    upkeep(writes)
    for topic in found[:: max(1, len(found) // 100)]:
        partition, one = topic.partitions[0], Chunk.of(messages[:1])
        turn(lambda partition=partition, one=one: broker.put_all(partition, Silent(), one))  # type: ignore[misc]
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    directory, topics_, groups_, megabytes_, *how = sys.argv[1:]
    fill(Path(directory), int(topics_), int(groups_), int(megabytes_), "kill" in how)
