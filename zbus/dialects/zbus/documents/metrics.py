"""`metrics`: what a monitoring system collects from time to time, as OpenMetrics text.

A document of many topics is made in portions and is good for a second, so a client that asks more
often costs nothing. Topics beyond a limit are summed up as one named `other`: a monitoring system
keeps each series for weeks, and a user may make a topic for each customer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

from zbus.core.api import MS_BOUNDS, Broker, Histogram
from zbus.dialects.openmetrics import END, Family, Kind
from zbus.dialects.zbus.documents.info import visible_groups, visible_topics
from zbus.dialects.zbus.documents.stats import Rows, server_stats
from zbus.dialects.zbus.settings import Timings, ZbusSettings
from zbus.edge.access import Grant, view_of
from zbus.protocol.documents import GroupStats, TopicStats

GOOD_MS = 1_000
"""How long a text is good for the next who asks."""

OTHER = "other"
TOPICS_PER_STEP, STEP_WORK = 100, 400

_T, _G = ("topic",), ("topic", "group")


def _family(name: str, kind: Kind, help: str, *labels: str, unit: str = "") -> Family:
    return Family(f"zbus_{name}", kind, help, labels, unit)


BUILD = _family("build", "info", "The broker's version.", "version")
DRAINING = _family("draining", "gauge", "1 while the broker is stopping.")
REFUSING = _family("refusing", "gauge", "1 while messages are refused for want of disk or memory.")
TOPICS = _family("topics", "gauge", "Topics that there are.")
WARNINGS = _family("warnings", "gauge", "Warnings of `stats`, by kind.", "kind")
FIGURES = {
    "connectionCount": _family("connections", "gauge", "Connections that are open."),
    "diskFreeBytes": _family("disk_free_bytes", "gauge", "Free on the disk.", unit="bytes"),
    "diskFreeMinBytes": _family(
        "disk_free_min_bytes", "gauge", "With less free, messages are refused.", unit="bytes"
    ),
    "diskTotalBytes": _family("disk_size_bytes", "gauge", "Size of the disk.", unit="bytes"),
}
STANDBY = _family("engine_standby", "gauge", "1 while another broker owns the stream.")
ENGINE = {
    "epoch": _family(
        "engine_epoch", "gauge", "Number of this ownership of the stream; each takeover adds one."
    ),
    "sequence": _family("engine_sequence", "gauge", "The newest message of the stream."),
    "bytes": _family("engine_stored_bytes", "gauge", "Size of the stream.", unit="bytes"),
    "bytesMax": _family(
        "engine_size_bytes", "gauge", "Limit of the stream; 0 = none.", unit="bytes"
    ),
    "inDoubt": _family("engine_in_doubt", "gauge", "1 while the result of a write is not known."),
}
NODES = _family("cluster_nodes", "gauge", "Nodes that are heard.")
FREE_SHARDS = _family("cluster_free_shards", "gauge", "Shards without an owner.")
HELD = _family("held_bytes", "gauge", "Memory that is held, by kind.", "kind", unit="bytes")
PROCESS_CPU = Family(
    "process_cpu_seconds", "counter", "Processor time, user and system.", unit="seconds"
)
PROCESS = {
    "memoryBytes": Family(
        "process_resident_memory_bytes", "gauge", "Resident memory.", unit="bytes"
    ),
    "maxFiles": Family("process_max_fds", "gauge", "File descriptors that may be open."),
    "threads": Family("process_threads", "gauge", "Threads."),
}
PROCESS_START = Family(
    "process_start_time_seconds", "gauge", "Start of the process, Unix time.", unit="seconds"
)
SYNC = _family("sync_seconds", "histogram", "Rounds of syncing to the disk.", unit="seconds")
TURN = _family("turn_seconds", "histogram", "Turns of the loop.", unit="seconds")
REPLY = _family(
    "reply_seconds", "histogram", "Requests that the broker answers at once, sampled.", "command",
    unit="seconds",
)  # fmt: skip
LATE = _family(
    "delivery_lateness_seconds", "histogram", "Delayed messages: ready after their time.",
    unit="seconds",
)  # fmt: skip
OF_TOPIC = {
    "in_count": _family("topic_messages", "counter", "Messages put, ever.", *_T),
    "depth": _family("topic_stored_messages", "gauge", "Messages in the log.", *_T),
    "consumer_count": _family("topic_consumers", "gauge", "Consumers of all groups.", *_T),
}
OF_GROUP = {
    "ready": _family(
        "group_ready_messages", "gauge", "To be delivered, now or later: the lag.", *_G
    ),
    "leased": _family("group_leased_messages", "gauge", "Delivered, not acknowledged.", *_G),
    "delayed": _family("group_delayed_messages", "gauge", "Waiting for their time.", *_G),
    "dead": _family("group_dead_messages", "counter", "Given up after too many attempts.", *_G),
    "skipped": _family(
        "group_skipped_messages", "counter", "Dropped before the group had them.", *_G
    ),
    "push_delivered": _family(
        "group_webhook_delivered_requests", "counter", "Taken by its webhook, since the start.", *_G
    ),
    "push_failed": _family(
        "group_webhook_failed_requests", "counter", "Not taken by it, since the start.", *_G
    ),
    "out_count": _family("group_passed_messages", "counter", "Behind the group.", *_G),
    "consumers": _family("group_consumers", "gauge", "Consumers.", *_G),
    "paused": _family("group_paused", "gauge", "1 while the group is paused.", *_G),
}
FAMILIES = (
    BUILD,
    DRAINING,
    REFUSING,
    TOPICS,
    WARNINGS,
    *FIGURES.values(),
    STANDBY,
    *ENGINE.values(),
    NODES,
    FREE_SHARDS,
    HELD,
    PROCESS_CPU,
    *PROCESS.values(),
    PROCESS_START,
    SYNC,
    TURN,
    REPLY,
    LATE,
    *OF_TOPIC.values(),
    *OF_GROUP.values(),
)
"""All of them, in the order of the text."""


class Text:
    """Samples as they are found, told family by family."""

    def __init__(self) -> None:
        self._samples: dict[Family, list[str]] = {family: [] for family in FAMILIES}

    def one(self, family: Family, value: float, *labels: str) -> None:
        self._samples[family].append(family.sample(value, *labels))

    def histogram(self, family: Family, found: Histogram, *labels: str, scale: float = 1) -> None:
        self._samples[family] += family.histogram(found, scale, *labels)

    def encode(self) -> bytes:
        """Families without samples are left out."""
        parts = [f.head() + "".join(found) for f, found in self._samples.items() if found]
        return ("".join(parts) + END).encode()


def respond_server(text: Text, document: dict[str, Any], timings: Timings | None) -> None:
    """What is not of a topic; `document` is that of `stats`."""
    text.one(BUILD, 1, document["serverVersion"])
    text.one(DRAINING, document["draining"])
    text.one(REFUSING, "refusing" in document)
    text.one(TOPICS, document["topicCount"])
    counts = Counter([warning.kind for warning in document["warnings"]])
    counts |= {kind: found.count for kind, found in document["warningKinds"].items()}  # of all
    for kind in sorted(counts):
        text.one(WARNINGS, counts[kind], kind)
    for name, family in (*FIGURES.items(), *PROCESS.items()):
        if name in document:
            text.one(family, document[name])
    if "engine" in document:
        text.one(STANDBY, 0)
        for name, family in ENGINE.items():
            text.one(family, document["engine"][name])
    if "cluster" in document:
        text.one(NODES, document["cluster"].live_nodes)
        text.one(FREE_SHARDS, document["cluster"].free_shards)
    for kind, size in document.get("heldBytes", {}).items():
        text.one(HELD, size, kind)
    if "cpuMs" in document:
        text.one(PROCESS_CPU, document["cpuMs"] / 1_000)
        text.one(PROCESS_START, document["startTime"] / 1_000)
    if timings is not None and "startTime" in document:
        text.histogram(SYNC, timings.sync)
        text.histogram(TURN, timings.turn)
        for command, found in sorted(timings.replies.items()):
            text.histogram(REPLY, found, command)


def standby_text() -> bytes:
    """Of a broker that waits until the stream is its own: it has nothing else to say."""
    text = Text()
    text.one(STANDBY, 1)
    return text.encode()


class _Tables:
    """Samples of topics and groups, of which there may be many."""

    def __init__(self, text: Text, topics_max: int) -> None:
        self._text = text
        self._topics_left = self._groups_left = topics_max
        self._topics: dict[str, int] = {}  # of all others together
        self._groups: dict[str, int] = {}

    def add(self, name: str, row: TopicStats) -> None:
        if name == OTHER or self._topics_left <= 0:
            _sum(self._topics, row, OF_TOPIC)
        else:
            self._topics_left -= 1
            for field, family in OF_TOPIC.items():
                self._text.one(family, getattr(row, field), name)
        for group, found in row.groups.items():
            if found.unclaimed is True:
                continue  # no request waits for its messages, so it is not late with them
            if name == OTHER or self._groups_left <= 0:
                _sum(self._groups, found, OF_GROUP)
            else:
                self._groups_left -= 1
                for field, family in OF_GROUP.items():
                    if (value := getattr(found, field)) is not None:
                        self._text.one(family, value, name, group)

    def end(self) -> None:
        for field, count in self._topics.items():
            self._text.one(OF_TOPIC[field], count, OTHER)
        for field, count in self._groups.items():
            self._text.one(OF_GROUP[field], count, OTHER, OTHER)


def _sum(table: dict[str, int], row: TopicStats | GroupStats, fields: dict[str, Family]) -> None:
    for field in fields:
        if (value := getattr(row, field)) is not None:
            table[field] = table.get(field, 0) + int(value)


class Metrics:
    """The texts of the last second."""

    def __init__(self, broker: Broker, settings: ZbusSettings) -> None:
        self._broker = broker
        self._settings = settings
        self._made: dict[Grant | None, tuple[int, bytes]] = {}

    def known(self, grant: Grant | None) -> bytes | None:
        """The text that was made for a client with the same rights, if it is still fresh."""
        made_ms, text = self._made.get(view_of(grant), (-GOOD_MS, b""))
        return text if made_ms <= self._broker.now_ms < made_ms + GOOD_MS else None

    def make(self, rows: Rows, grant: Grant | None) -> Generator[int, None, bytes]:
        """Make it, in portions; gives what each was of work."""
        yield from rows.all()
        broker, settings, text = self._broker, self._settings, Text()
        running = settings.running
        document = server_stats(broker, settings, rows, grant)
        respond_server(text, document, None if running is None else running.timings)
        late, tables = Histogram(MS_BOUNDS), _Tables(text, settings.metrics_topics_max)
        # In the broker's order: those beyond the limit are always the same ones.
        for at, topic in enumerate(visible_topics(broker, grant)):
            row = rows.get(topic.name)
            if row is not None:
                tables.add(topic.name, row)
            for group in visible_groups(topic, grant):
                for partition in topic.partitions:
                    tally = group.progress(partition.index).tally
                    if tally.late is not None:
                        late.add(tally.late)
            if at % TOPICS_PER_STEP == 0:
                yield STEP_WORK
        tables.end()
        text.histogram(LATE, late, scale=1_000)
        now_ms = broker.now_ms
        self._made = {v: m for v, m in self._made.items() if now_ms < m[0] + GOOD_MS}
        made = text.encode()
        self._made[view_of(grant)] = now_ms, made
        return made

    def bytes_used(self) -> int:
        """Of texts that are kept."""
        return sum([len(text) for _, text in self._made.values()])
