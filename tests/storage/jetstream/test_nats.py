"""What answers of the JetStream API mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from zbus.storage.jetstream.client import NatsClient
from zbus.storage.jetstream.nats import REPLICA_NS, NatsStream
from zbus.storage.jetstream.stream import StreamState, Unreachable
from zbus.storage.jetstream.wire import Delivered


class Answering:
    """A client that gets this body as the answer to every question."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def request(self, subject: str, body: bytes, done: Callable[..., None], **_: object) -> None:
        done([Delivered(subject, "", 0, {}, self._body)])


def state_of(body: bytes) -> StreamState | Unreachable:
    answers: list[StreamState | Unreachable] = []
    NatsStream(cast("NatsClient", Answering(body)), "s").state(answers.append)
    (answer,) = answers
    return answer


def info(replicas: int, *heard_ns: int, leader: str = "n0", current: bool = True) -> bytes:
    """What a leader says that heard of others so long ago."""
    others = [{"name": "n", "current": current, "active": active} for active in heard_ns]
    document: dict[str, Any] = {
        "config": {"num_replicas": replicas, "max_bytes": -1},
        "state": {"last_seq": 9, "first_seq": 2, "bytes": 5},
        "cluster": {"leader": leader, "replicas": others},
    }
    return msgspec.json.encode(document)


LATE_NS = REPLICA_NS + 1


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        (info(1), True),
        (info(3, 1, LATE_NS), True),
        (info(3, LATE_NS, LATE_NS), False),
        (info(3, 1, 1, leader=""), False),
        (info(3, 1, 1, current=False), False),
        (info(5, 1, 1, LATE_NS, LATE_NS), True),
        (info(5, 1, LATE_NS, LATE_NS, LATE_NS), False),
        (b'{"error":{"code":404,"err_code":10059,"description":"stream not found"}}', False),
        (b"{", False),
        (b"[" * 100_000, False),
        (b'{"error":{"description":"\xff"}}', False),
    ],
)
def test_a_leader_counts_that_hears_of_a_majority(body: bytes, counts: bool) -> None:
    answer = state_of(body)
    if counts:
        assert answer == StreamState(9, 5, 0, 2)
    else:
        assert isinstance(answer, Unreachable)
