"""Metrics as Prometheus reads them, with the original's names. What only a Java machine has is the
nearest thing that this process has, or 0."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import add
from typing import Final

import msgspec

from zbus.dialects.camellia.context import CamelliaContext
from zbus.dialects.camellia.info import TopicInfo
from zbus.dialects.camellia.monitor import Window
from zbus.dialects.openmetrics import Family, Fold, merge_texts
from zbus.wire.responses import Response

_MEMORY: Final = (
    "free_memory",
    "total_memory",
    "max_memory",
    "heap_memory_usage",
    "no_heap_memory_usage",
    "netty_direct_memory",
)

_INFO: Final = {
    "arch": "",
    "os_name": sys.platform,
    "os_version": "",
    "system_load_average": "-1",
    "vm_vendor": "",
    "vm_name": sys.implementation.name,
    "vm_version": sys.version.partition(" ")[0],
    "jvm_info": "",
    "java_version": "",
}

_FAMILIES: Final = {
    name: Family(name, "gauge", name, labels)
    for name, labels in {
        "info": ("camellia_version", *_INFO),
        "uptime": (),
        "start_time": (),
        "memory_info": ("type",),
        "cpu": ("type",),
        "gc": ("name", "type"),
        "request": ("topic", "type"),
        "pull_msg_time_gap": ("topic", "type"),
        "ready_queue_time_gap": ("topic", "type"),
        "topic_info": ("topic", "type"),
    }.items()
}

Samples = Iterator[tuple[str, tuple[str, ...], float]]
"""Each with the name of its metric, and the values of its labels."""


def encode_metrics(context: CamelliaContext, window: Window, infos: Sequence[TopicInfo]) -> bytes:
    """The whole page."""
    texts = {name: [family.head()] for name, family in _FAMILIES.items()}
    for name, labels, value in chain(_of_process(context), _of_window(window), _of_topics(infos)):
        texts[name].append(_FAMILIES[name].sample(value, *labels))
    return "".join(chain.from_iterable(texts.values())).encode()


_FOLDS: Final[dict[str, Fold]] = {"info": max, "uptime": max, "start_time": min, "cpu": max}
"""Of families that are about all workers; others are counts."""


def merge_metrics(responses: Sequence[Response]) -> tuple[bytes, bytes]:
    """One page of those of several workers."""
    pages = [response.body for response in responses]
    return b"", merge_texts(pages, lambda family: _FOLDS.get(family, add))


def _of_process(context: CamelliaContext) -> Samples:
    settings, started_ms = context.settings, context.health.started_ms
    used_bytes = (settings.memory_used and settings.memory_used()) or 0
    memory = {"heap_memory_usage": used_bytes, "total_memory": used_bytes}
    yield "info", (f"zbus {settings.version}", *_INFO.values()), 1
    yield "uptime", (), context.broker.now_ms - started_ms
    yield "start_time", (), started_ms
    for kind in _MEMORY:
        yield "memory_info", (kind,), memory.get(kind, 0)
    yield "cpu", ("cpu_num",), settings.cpu_count
    yield "cpu", ("usage",), 0
    for generation, stats in enumerate(gc.get_stats()):
        yield "gc", (f"generation {generation}", "count"), stats["collections"]
        yield "gc", (f"generation {generation}", "time"), 0


def _of_window(window: Window) -> Samples:
    for topic, stats in window.requests.items():
        counted = msgspec.to_builtins(stats)
        del counted["topic"]
        for kind, count in counted.items():
            yield "request", (topic, kind), count
    tables = (("pull_msg_time_gap", window.pulls), ("ready_queue_time_gap", window.dues))
    for name, table in tables:
        for gaps in table.values():
            for kind in ("count", "avg", "max"):
                yield name, (gaps.topic, kind), getattr(gaps, kind)


def _of_topics(infos: Sequence[TopicInfo]) -> Samples:
    for info in infos:
        yield "topic_info", (info.topic, "readyQueueSize"), info.ready_queue_size
        yield "topic_info", (info.topic, "ackQueueSize"), info.ack_queue_size
        yield "topic_info", (info.topic, "waitingQueueSize"), info.waiting_queue_size
        for part, size in info.waiting_queue_info.items():
            kind = part.replace("sizeOf", "size_").replace("To", "_").lower()
            yield "topic_info", (info.topic, kind), size
