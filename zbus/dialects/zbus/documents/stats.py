"""What moves in a broker, as JSON: counts of topics and groups, of the process, and warnings.

Everything is derived from what is there anyway (ends of logs, cursors), so nothing is counted for
it on the way of a message. A document of many topics is made in portions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import msgspec

from zbus.core.api import Broker, Group, Topic
from zbus.dialects.zbus.documents.activity import Activity
from zbus.dialects.zbus.documents.alarms import (
    WARNINGS_MAX,
    Warned,
    count_kinds,
    dead_warnings,
    group_warnings,
    server_warnings,
    worst_of,
)
from zbus.dialects.zbus.documents.info import visible_groups, visible_topics
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.access import Grant
from zbus.protocol.documents import ClusterStats, GroupStats, TopicStats, WarningKind

_encode = msgspec.json.Encoder().encode

TOPIC_WORK, GROUP_WORK = 20, 10
"""What a row costs a connection of its turn, in microseconds or so."""


@attrs.frozen
class Summed:
    """The warnings of all topics."""

    at_ms: int
    worst: list[Warned]  # so many as are listed
    kinds: dict[str, WarningKind]


class Rows:
    """The topics that a client may see, looked at again and again; a reader of changes remembers
    the number of the last one that it was sent."""

    def __init__(self, broker: Broker, activity: Activity, grant: Grant | None) -> None:
        self._broker = broker
        self._activity = activity
        self._grant = grant
        self._known: dict[str, TopicStats] = {}
        self._encoded: dict[str, msgspec.Raw | None] = {}  # of each topic; None = it is gone
        self._changes: dict[str, int] = {}  # the number of each topic's last change, in order
        self._warned: dict[str, list[Warned]] = {}
        self._summed: Summed | None = None
        self._left: list[Topic] = []  # that this round has still to look at
        self.number = 0
        self.in_count = self.out_count = 0

    def all(self) -> Iterator[int]:
        """Look at every topic; gives what each was of work."""
        for topic in visible_topics(self._broker, self._grant):
            yield self._look(topic)
        self._forget()

    def some(self, count: int) -> None:
        """Look at that many; those that there are take turns."""
        if not self._left:
            self._left = visible_topics(self._broker, self._grant)
        for topic in self._left[:count]:
            self._look(topic)
        del self._left[:count]
        self._forget()

    def _look(self, topic: Topic) -> int:
        name = topic.name
        warned: list[Warned] = []
        groups = {}
        for group in visible_groups(topic, self._grant):
            groups[group.name] = self._group(group, warned)
        row = _topic_stats(topic, groups)
        if warned or name in self._warned:
            self._warned[name] = warned
        if self._known.get(name) != row:
            self._replace(name, row)
        return TOPIC_WORK + GROUP_WORK * len(groups)

    def _group(self, group: Group, warned: list[Warned]) -> GroupStats:
        ready, leased, delayed, skipped = group.counts()
        passed = sum([partition.end for partition in group.topic.partitions]) - ready - delayed
        pace = self._activity.of(group, passed)
        dead = pace.dead
        options, now_ms = group.options, self._broker.now_ms
        if (
            ready or leased or dead or options.push or options.dead_letter
        ) and not options.unclaimed:
            idle_ms = now_ms - pace.since_ms
            warned += group_warnings(group, ready, leased, idle_ms, now_ms)
            warned += dead_warnings(group, dead, pace.died_ms, self._broker)
        pushed = group.pushed
        return GroupStats(
            consumers=len(group.readers),
            dead=dead,
            delayed=delayed,
            last_read_time=pace.since_ms if pace.moved else None,
            leased=leased,
            out_count=passed,
            paused=group.paused,
            push_delivered=None if pushed is None else pushed.delivered,
            push_failed=None if pushed is None else pushed.failed,
            ready=ready,
            skipped=skipped,
            unclaimed=options.unclaimed,
        )

    def _replace(self, name: str, row: TopicStats | None) -> None:
        before = self._known.pop(name, None)
        for known, sign in ((before, -1), (row, 1)):
            if known is not None:
                self.in_count += sign * known.in_count
                self.out_count += sign * sum([g.out_count for g in known.groups.values()])
        if row is not None:
            self._known[name] = row
        self._encoded[name] = None if row is None else msgspec.Raw(_encode(row))
        self.number += 1
        self._changes.pop(name, None)
        self._changes[name] = self.number

    def _forget(self) -> None:
        broker, grant = self._broker, self._grant
        for name in list(self._known):
            topic = broker.topics.get(name.lower())
            if topic is None or topic.name != name or not (grant is None or grant.sees(name)):
                self._replace(name, None)
                self._warned.pop(name, None)

    def get(self, name: str) -> TopicStats | None:
        """A topic as it was last looked at."""
        return self._known.get(name)

    def table(self) -> dict[str, msgspec.Raw]:
        """All topics that there are."""
        return {name: row for name, row in self._encoded.items() if row is not None}

    def since(self, number: int, bytes_max: int) -> tuple[dict[str, msgspec.Raw | None], int]:
        """What changed after that, the oldest first and not much more than that many bytes; and the
        number to ask with next."""
        names = []
        for name, changed in reversed(self._changes.items()):
            if changed <= number:
                break
            names.append(name)
        found: dict[str, msgspec.Raw | None] = {}
        size = 0
        for name in reversed(names):
            if size > bytes_max:
                break
            row = found[name] = self._encoded[name]
            size += len(name) + (len(bytes(row)) if row is not None else 4)
            number = self._changes[name]
        return found, number

    def warnings(self) -> Summed:
        """Those that there are, as all readers of this moment see them."""
        now_ms = self._broker.now_ms
        if self._summed is None or self._summed.at_ms != now_ms:
            warned = self._warned.values()
            worst = worst_of([one for some in warned for one in some])
            self._summed = Summed(now_ms, worst, count_kinds(warned))
        return self._summed


def server_stats(
    broker: Broker, settings: ZbusSettings, rows: Rows, grant: Grant | None
) -> dict[str, Any]:
    """What is not of a topic. Figures of the process are for those who see everything."""
    document: dict[str, Any] = {
        "draining": broker.stopping,
        "inCount": rows.in_count,
        "outCount": rows.out_count,
        "serverAddress": settings.address,
        "serverVersion": settings.version,
        "time": broker.now_ms,
        "topicCount": len(rows.table()),
    }
    figures: dict[str, Any] = {}
    cluster: list[str] = []
    if grant is None or grant.sees_everything:
        document["connectionCount"] = settings.connections(broker.sessions)
        if settings.running is not None:
            figures = settings.running.figures()
            document.update(figures)
            if settings.running.cluster is not None:
                found = settings.running.cluster.document()
                cluster = found.warnings
                document["cluster"] = ClusterStats(
                    live_nodes=sum(node.live for node in found.nodes),
                    free_shards=sum(not shard.node for shard in found.shards),
                )
    refusing = broker.refusing()
    if refusing is not None:
        document["refusing"] = refusing.text
    warned = server_warnings(figures, None if refusing is None else refusing.text, cluster)
    summed = rows.warnings()
    listed = [*warned, *summed.worst][:WARNINGS_MAX]
    document["warnings"] = [one.document() for one in listed]
    document["warningCount"] = len(warned) + sum([kind.count for kind in summed.kinds.values()])
    document["warningKinds"] = summed.kinds
    return document


def _topic_stats(topic: Topic, groups: dict[str, GroupStats]) -> TopicStats:
    return TopicStats(
        consumer_count=sum([group.consumers for group in groups.values()]),
        depth=sum([partition.visible - partition.first for partition in topic.partitions]),
        groups=groups,
        in_count=sum([partition.visible for partition in topic.partitions]),
        partition_count=len(topic.partitions),
        paused=bool(topic.options.paused),
    )
