"""What a broker tells of itself, as typed documents."""

from __future__ import annotations

import msgspec
import pytest

from tests.client.peer import Joined
from zbus.client import commands
from zbus.client.errors import NotFound
from zbus.client.requests import document_of
from zbus.protocol.documents import (
    Document,
    GroupInfo,
    PushInfo,
    ServerAddress,
    ServerInfo,
    TopicInfo,
    TrackerInfo,
)
from zbus.testing.world import EPOCH_MS, World
from zbus.wire.responses import Response


@pytest.fixture
def bus() -> Joined:
    return Joined(World())


def test_each_question_has_a_document_of_its_own(bus: Joined) -> None:
    topic = bus.run(commands.declare("T", partitions=2, retention_done=True, retention_ms=9_000))
    assert isinstance(topic, TopicInfo)
    assert (topic.retention_done, topic.retention_ms, topic.retention_bytes) == (True, 9_000, None)
    assert topic.created_ms == EPOCH_MS
    group = bus.run(commands.declare("T", "g", ack=True, lease_ms=50, window=3))
    assert isinstance(group, GroupInfo)
    assert (group.topic, group.ack, group.lease_ms, group.window) == ("T", True, 50, 3)
    found = bus.run(commands.query("T", "g"))
    assert isinstance(found, GroupInfo)
    assert found.positions is not None
    assert [(each.partition, each.end) for each in found.positions] == [(0, 0), (1, 0)]
    assert msgspec.structs.replace(found, positions=None) == group
    assert [each.name for each in bus.run(commands.query("T")).groups] == ["T", "g"]
    for request in (commands.query(), commands.server()):
        server = bus.run(request)
        assert isinstance(server, ServerInfo)
        assert server.topics["T"].partitions == 2
    tracker = bus.run(commands.tracker())
    assert isinstance(tracker, TrackerInfo)
    assert list(tracker.servers) == [tracker.address.address]


def test_retention_done_can_be_taken_back(bus: Joined) -> None:
    assert bus.run(commands.declare("T", retention_done=True)).retention_done
    assert bus.run(commands.declare("T", dedupe_ms=5)).retention_done, "what is not given stays"
    assert not bus.run(commands.declare("T", retention_done=False)).retention_done


def test_brokers_of_other_versions_are_understood() -> None:
    newer = b'{"groupName":"g","leaseMs":5,"leasedBytes":{"a":1},"window":2}'
    assert document_of(GroupInfo)(Response(200, {}, newer)) == GroupInfo(
        name="g", lease_ms=5, window=2
    )
    assert document_of(ServerInfo)(Response(200, {}, b"{}")).topics == {}


def test_an_ack_of_nothing_that_is_there_is_no_success(bus: Joined) -> None:
    bus.run(commands.declare("T", "g", ack=True))
    for request in (
        commands.ack("T", "nobody", 0),
        commands.ack("T", "g", 0, partition=7),
        commands.ack("nowhere", "g", 0),
    ):
        with pytest.raises(NotFound):
            bus.run(request)
    bus.run(commands.ack("T", "g", 0))  # never handed out: it will not come again


@pytest.mark.parametrize("document", [TopicInfo, GroupInfo, PushInfo, ServerAddress])
def test_fields_stand_in_the_order_of_their_names(document: type[Document]) -> None:
    """So that it is written as JSON with sorted keys without being sorted each time."""
    names = [field.encode_name for field in msgspec.structs.fields(document)]
    assert names == sorted(names)
