"""Messages that settle themselves, in both clients, and many of them at once."""

from __future__ import annotations

from itertools import count

import anyio
import pytest

import zbus
from tests.client.peer import Joined
from tests.client.test_consuming import Reader, left, world_of
from zbus.client import commands
from zbus.client.requests import Request

_names = count()


@pytest.fixture
def topic() -> str:
    return f"held-{next(_names)}"


def test_a_message_settles_itself(url: str, topic: str) -> None:
    with zbus.connect(url) as bus:
        bus.declare(topic, "g", ack=True, lease_ms=60_000)
        bus.produce_many(topic, ["0", "1", "2", "3"])
        with bus.consume(topic, "g", auto_ack=False, timeout_ms=0) as messages:
            first, second, third, fourth = messages
            first.ack()
            first.ack()  # once more is nothing more
            second.nack()
            third.extend(lease_ms=120_000)
            third.extend()
            messages.ack(third, fourth)
            assert [m.settled for m in (first, second, third, fourth)] == [True] * 4
            assert [(m.text, m.retry) for m in messages] == [("1", 1)]
        group = bus.query(topic, "g")
        assert (group.leased_count, group.message_count) == (1, 0)
        bus.ack(topic, "g", second.offset)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_message_settles_itself_when_awaited(url: str, topic: str, backend: str) -> None:
    async def main() -> None:
        async with zbus.connect_async(url) as bus:
            await bus.declare(topic, "g", ack=True, lease_ms=60_000)
            await bus.produce_many(topic, ["0", "1", "2", "3"])
            async with bus.consume(topic, "g", auto_ack=False, timeout_ms=0) as messages:
                first, second, third, fourth = [m async for m in messages]
                await first.ack()
                await second.nack()
                await third.extend(lease_ms=120_000)
                await messages.ack(third, fourth)
                assert [(m.text, m.retry) async for m in messages] == [("1", 1)]
            group = await bus.query(topic, "g")
            assert (group.leased_count, group.message_count) == (1, 0)

    anyio.run(main, backend=backend)


def test_a_lease_that_is_gone_cannot_be_extended(url: str, topic: str) -> None:
    with zbus.connect(url) as bus:
        bus.declare(topic, "g", ack=True, lease_ms=60_000)
        bus.produce(topic, "x")
        with bus.consume(topic, "g", auto_ack=False, timeout_ms=0) as messages:
            (message,) = messages
            bus.ack(topic, "g", message.offset)
            with pytest.raises(zbus.client.NotFound, match="not leased"):
                message.extend()


def test_a_message_of_another_consumer_is_not_taken_for_ones_own(url: str, topic: str) -> None:
    with zbus.connect(url) as bus:
        for name in (topic, "other-" + topic):
            bus.declare(name, "g", ack=True)
            bus.produce_many(name, ["0", "1"])
        with (
            bus.consume(topic, "g", auto_ack=False, timeout_ms=0) as mine,
            bus.consume("other-" + topic, "g", auto_ack=False, timeout_ms=0) as others,
        ):
            message, other = next(iter(mine)), next(iter(others))
            for settle in (mine.ack, mine.nack, mine.extend):
                with pytest.raises(ValueError, match="does not hold"):
                    settle(other)
            with pytest.raises(ValueError, match="does not hold"):
                mine.ack(message, other)
            assert not message.settled, "all or none"


def test_many_are_one_request_for_each_partition() -> None:
    """In the core, where requests can be counted."""
    world = world_of(0, partitions=3, window=100)
    joined = Joined(world)
    for partition in (0, 1, 2):
        joined.run(commands.produce_many("T", ["a", "b", "c"], partition=partition))
    reader = Reader(joined, auto_ack=False, batch=9)
    found = []
    while (delivery := reader.take()) is not None:
        found.append(delivery)
    assert len(found) == 9
    for delivery in found:
        reader.core.ack(delivery, reader.now_s)
    requests: list[Request[None]] = reader.core.flush()
    assert (
        sorted(line for r in requests for line in r.lines.split(b"\r\n") if b"offset" in line)
        == [b"offset: 0-2"] * 3
    )
    reader.send(requests)
    joined.settle()
    assert left(world)["leasedCount"] == 0


def test_a_longer_lease_is_not_made_shorter() -> None:
    """The keeper of leases leaves alone what the user leased for longer than it would."""
    world = world_of(2, lease_ms=3_000)
    reader = Reader(Joined(world), auto_ack=False)
    first, second = reader.take(), reader.take()
    assert first is not None
    assert second is not None
    longer = reader.core.extend(first, 60_000, reader.now_s)
    assert longer is not None
    reader.send([longer])
    (kept,) = reader.core.extensions(reader.now_s)
    assert b"offset: 1\r\n" in kept.lines
    world.advance(58_000)
    (kept,) = reader.core.extensions(reader.now_s)
    assert b"offset: 0-1\r\n" in kept.lines
