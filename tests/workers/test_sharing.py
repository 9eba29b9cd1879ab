"""Limits of a server, as its workers share them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from zbus.config import OPTIONS, Config
from zbus.edge.quotas import Limits
from zbus.server.watch.system_stats import Space
from zbus.workers.sharing import DIVIDED, worker_config

MIB = 1 << 20

OF_ONE = {
    "adf_body_bytes_max",
    "adf_requestid_length_max",
    "batch_messages_max",
    "body_bytes_max",
    "engine_bytes_max",  # of a stream, which several workers do not have
    "fields_max",
    "groups_per_topic_max",
    "head_bytes_max",
    "line_bytes_max",
    "memory_topic_bytes_max",
    "message_bytes_max",
    "message_headers_bytes_max",
    "metrics_topics_max",  # each worker's part of the page
    "mqcloud_clients_max",
    "output_bytes_max",
    "partitions_max",
    "semq_rows_max",
    "tick_events_max",
    "tickets_per_connection_max",
}
"""Bounds of one topic, message, connection or moment: each worker has them as they are."""


class Machine:
    """With this much memory."""

    def __init__(self, memory_bytes: int | None) -> None:
        self._memory_bytes = memory_bytes

    def memory_total(self) -> int | None:
        return self._memory_bytes

    def memory_used(self) -> int | None:
        return None

    def memory_free(self) -> int | None:
        return None

    def trim_memory(self) -> None:
        pass

    def disk(self, path: object) -> Space | None:
        return None


def shared(workers: int, options: dict[str, Any], memory_bytes: int | None = None) -> Config:
    config = attrs.evolve(Config(), workers=workers, **options)
    return worker_config(config, Machine(memory_bytes))


def test_every_bound_is_of_one_thing_or_divided() -> None:
    bounds = {
        name for name, option in OPTIONS.items() if option.kind is int and name.endswith("_max")
    }
    assert bounds - set(DIVIDED) == OF_ONE
    assert set(DIVIDED) - bounds == {"memory_limit_bytes", "reserve_bytes"}


@pytest.mark.parametrize(
    ("option", "of_all", "workers", "of_each"),
    [
        *[(name, 60 * MIB, 3, 20 * MIB) for name in DIVIDED if "bytes" in name],
        *[(name, 60, 3, 20) for name in DIVIDED if "bytes" not in name],
        ("connections_max", 20_000, 3, 6_666),
        ("connections_max", 2, 3, 1),
        ("connections_per_address_max", 0, 3, 0),  # as many as come
        ("connections_per_address_max", 1, 64, 1),
        ("topics_max", 10_000, 4, 2_500),
        ("cache_bytes_max", 0, 4, 0),  # nothing is kept
        ("bodies_bytes_max", 30 * MIB, 3, 16 * MIB),  # the largest body
        ("history_bytes_max", 2 * MIB, 64, MIB),  # the least that it may be
        ("open_segments_max", 20, 64, 8),
        ("topic_messages_per_s", 300, 3, 300),  # the topic's worker counts all of them
        ("tickets_per_connection_max", 300, 3, 300),
        ("disk_free_bytes_min", 300, 3, 300),  # they have one disk
    ],
)
def test_the_part_of_each(option: str, of_all: int, workers: int, of_each: int) -> None:
    assert getattr(shared(workers, {option: of_all}), option) == of_each
    assert getattr(shared(1, {option: of_all}), option) == of_all


@pytest.mark.parametrize(
    ("memory_bytes", "limit_bytes", "of_each"),
    [(1_000 * MIB, 0, 100 * MIB), (1_000 * MIB, 800 * MIB, 200 * MIB), (None, 0, 0)],
)
def test_memory(memory_bytes: int | None, limit_bytes: int, of_each: int) -> None:
    """Without an option they share what one process takes of the machine."""
    found = shared(4, {"memory_limit_bytes": limit_bytes}, memory_bytes)
    assert found.memory_limit_bytes == of_each


def test_quotas_of_tokens() -> None:
    assert Limits(100, 2, 0).shared(3) == Limits(33, 1, 0)
    assert not Limits().shared(3).any
