"""Metrics as Prometheus reads them, with the original's names. What only a Java machine has is the
nearest thing that this process has, or 0."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from zbus.dialects.camellia.context import Context
from zbus.dialects.camellia.info import PARTS, TopicInfo
from zbus.dialects.camellia.monitor import GapStats, Window

_SIZES: Final = (
    "size_0_1min",
    "size_1min_10min",
    "size_10min_30min",
    "size_30min_1hour",
    "size_1hour_6hour",
    "size_6hour_1day",
    "size_1day_7day",
    "size_7day_30day",
    "size_30day_infinite",
)

_REQUESTS: Final = (
    "sendMsg",
    "pullMsg",
    "deleteMsg",
    "ackMsg",
    "getMsg",
    "triggerMsgReady",
    "triggerMsgTimeout",
    "triggerMsgEndLife",
)

Row = tuple[dict[str, str], float]


def encode_metrics(dialect: Context, window: Window, infos: Sequence[TopicInfo]) -> bytes:
    """The whole page."""
    health, settings, now_ms = dialect.health, dialect.settings, dialect.broker.now_ms
    used_bytes = (settings.memory_used and settings.memory_used()) or 0
    memory = {"heap_memory_usage": used_bytes, "total_memory": used_bytes}
    kinds = (
        "free_memory",
        "total_memory",
        "max_memory",
        "heap_memory_usage",
        "no_heap_memory_usage",
        "netty_direct_memory",
    )
    families: dict[str, list[Row]] = {
        "info": [(_info(settings.version), 1)],
        "uptime": [({}, now_ms - health.started_ms)],
        "start_time": [({}, health.started_ms)],
        "memory_info": [({"type": kind}, memory.get(kind, 0)) for kind in kinds],
        "cpu": [({"type": "cpu_num"}, settings.cpu_count), ({"type": "usage"}, 0)],
        "gc": _collections(),
        "request": _requests(window),
        "pull_msg_time_gap": _gaps(window.pulls.values()),
        "ready_queue_time_gap": _gaps(window.dues.values()),
        "topic_info": [row for info in infos for row in _sizes(info)],
    }
    lines = []
    for name, rows in families.items():
        lines += [f"# HELP {name} {name}", f"# TYPE {name} gauge"]
        lines += [f"{name}{_labels(labels)} {value}" for labels, value in rows]
    return "\n".join([*lines, ""]).encode()


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    escaped = [
        (name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for name, value in labels.items()
    ]
    return "{" + ",".join([f'{name}="{value}"' for name, value in escaped]) + "}"


def _info(version: str) -> dict[str, str]:
    return {
        "camellia_version": f"zbus {version}",
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


def _collections() -> list[Row]:
    rows: list[Row] = []
    for generation, stats in enumerate(gc.get_stats()):
        name = f"generation {generation}"
        rows += [({"name": name, "type": "count"}, stats["collections"])]
        rows += [({"name": name, "type": "time"}, 0)]
    return rows


def _requests(window: Window) -> list[Row]:
    rows: list[Row] = []
    for topic, stats in window.requests.items():
        counted = msgspec.to_builtins(stats)
        rows += [({"topic": topic, "type": kind}, counted[kind]) for kind in _REQUESTS]
    return rows


def _gaps(table: Iterable[GapStats]) -> list[Row]:
    rows: list[Row] = []
    for gaps in table:
        for kind, value in (("count", gaps.count), ("avg", gaps.avg), ("max", gaps.max)):
            rows.append(({"topic": gaps.topic, "type": kind}, value))
    return rows


def _sizes(info: TopicInfo) -> list[Row]:
    sizes = {
        "readyQueueSize": info.ready_queue_size,
        "ackQueueSize": info.ack_queue_size,
        "waitingQueueSize": info.waiting_queue_size,
        **dict(zip(_SIZES, [info.waiting_queue_info[part] for part in PARTS], strict=True)),
    }
    return [({"topic": info.topic, "type": kind}, size) for kind, size in sizes.items()]
