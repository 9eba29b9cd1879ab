"""Consume, transform, produce; dead letters and their way back; what a consumer declares."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, cast

import anyio
import pytest

import zbus
from tests.client.peer import Joined, stored_bodies
from tests.client.test_consuming import Reader, left, world_of
from zbus.client import BadRequest, Delivery, NotFound, NotLeased, Redriven, Retries, commands
from zbus.client.options import Options
from zbus.client.requests import Request
from zbus.testing.world import World

_names = count()


@pytest.fixture
def bus() -> Joined:
    joined = Joined(World())
    joined.run(commands.declare("Raw", "g", ack=True, partitions=2))
    joined.run(commands.declare("Small"))
    for partition in (0, 0, 0, 1):
        joined.run(commands.produce("Raw", "x", partition=partition))
    return joined


@pytest.fixture
def topic() -> str:
    return f"replies-{next(_names)}"


def unfinished(bus: Joined) -> int:
    info = bus.run(commands.query("Raw", "g"))
    return int(info.message_count + info.leased_count)


# -- requests -------------------------------------------------------------------------------------


def test_a_produce_acknowledges_what_it_was_made_of(bus: Joined) -> None:
    deliveries = bus.run(commands.pull("Raw", "g", batch=3, partition=0))
    first, *others = deliveries
    assert bus.run(commands.produce("Small", "a", tag="t", acks=first)).offset == 0
    assert bus.run(commands.produce_many("Small", ["b", "c"], acks=others)).count == 2
    assert [delivery.settled for delivery in deliveries] == [True] * 3
    assert unfinished(bus) == 1
    (last,) = bus.run(commands.pull("Raw", "g", partition=1))
    bus.run(commands.produce("Small", acks=[last]))
    assert unfinished(bus) == 0
    assert stored_bodies(bus.world, "Small") == [b"a", b"b", b"c", b""]
    assert not [name for name in bus.run(commands.read("Small"))[0].headers if "ack_" in name]


def test_a_lease_that_has_ended_stores_nothing(bus: Joined) -> None:
    (delivery,) = bus.run(commands.pull("Raw", "g", partition=0))
    bus.world.advance(10_000)
    with pytest.raises(NotLeased, match="offset 0 is not leased: nothing is stored"):
        bus.run(commands.produce("Small", "a", acks=delivery))
    assert not delivery.settled
    with pytest.raises(NotFound) as missing:
        bus.run(commands.produce("Nowhere", "a", acks=delivery))
    assert not isinstance(missing.value, NotLeased)
    assert unfinished(bus) == 4
    assert stored_bodies(bus.world, "Small") == []


@pytest.mark.parametrize("request_of", [commands.nack, commands.extend])
@pytest.mark.parametrize("offsets", [0, [0, 1]])
def test_leases_that_have_ended_are_told_from_what_is_not_there(
    bus: Joined, request_of: Callable[..., Request[int]], offsets: int | list[int]
) -> None:
    bus.run(commands.pull("Raw", "g", batch=2, partition=0))
    bus.world.advance(10_000)
    with pytest.raises(NotLeased):
        bus.run(request_of("Raw", "g", offsets))
    with pytest.raises(NotFound) as missing:
        bus.run(request_of("Raw", "nobody", offsets))
    assert not isinstance(missing.value, NotLeased)


@pytest.mark.parametrize("down", range(0, 400, 20))
@pytest.mark.parametrize("id", [None, "i"])
def test_an_answer_that_is_lost_stores_it_once(bus: Joined, down: int, id: str | None) -> None:
    """It is sent again, whatever the broker had done: the lease is its idempotency key."""
    (delivery,) = bus.run(commands.pull("Raw", "g", partition=0))
    breaking = Joined(bus.world, [(1 << 60, down)], Options())
    call = breaking.submit(commands.produce("Small", "a", id=id, acks=delivery))
    breaking.settle()
    assert call.error is None or isinstance(call.error, NotLeased)
    assert stored_bodies(bus.world, "Small") == [b"a"]
    assert unfinished(bus) == 3


def places(*partitions: int) -> Callable[[Joined], object]:
    return lambda bus: [
        delivery
        for partition in partitions
        for delivery in bus.run(commands.pull("Raw", "g", partition=partition))
    ]


@pytest.mark.parametrize(
    ("acks", "text"),
    [
        (places(), "of one group, in one partition"),
        (places(0, 1), "of one group, in one partition"),
        (lambda bus: bus.run(commands.read("Raw")), "only looked at"),
    ],
)
def test_what_one_request_cannot_acknowledge(bus: Joined, acks: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        commands.produce("Small", acks=acks(bus))
    with pytest.raises(ValueError, match="not a header"):
        commands.produce("Small", headers={"ack_topic": "Raw"})


def test_dead_letters_go_back(bus: Joined) -> None:
    bus.run(commands.declare("Dead", "Dead"))
    bus.run(commands.declare("Raw", "g", max_attempts=1, dead_letter="Dead"))
    bus.run(commands.pull("Raw", "g", batch=3, partition=0))
    bus.run(commands.nack("Raw", "g", [0, 1, 2]))
    group = bus.run(commands.query("Raw", "g"))
    assert (group.dead_count, group.dead_letter, group.max_attempts) == (3, "Dead", 1)
    bus.run(commands.produce("Dead", "not a dead letter"))
    assert bus.run(commands.redrive("Dead", offsets=[1], to="Small")) == Redriven(1, 0)
    assert stored_bodies(bus.world, "Small") == [b"x"]
    assert bus.run(commands.redrive("Dead", count=1, only_group=True)) == Redriven(1, 0)
    assert bus.run(commands.redrive("Dead", partition=0)) == Redriven(1, 1)
    assert unfinished(bus) == 3
    for request in (commands.redrive("Dead", partition=7), commands.redrive("Dead", to="No")):
        assert not request.safe
        with pytest.raises(NotFound):
            bus.run(request)


# -- the core of a consumer -----------------------------------------------------------------------


def test_what_a_produce_acknowledged_is_kept_no_longer() -> None:
    """By hand: its lease is not extended, and after a seek it is a message like any other."""
    world = world_of(3)
    joined = Joined(world)
    joined.run(commands.declare("Small"))
    reader = Reader(joined, auto_ack=False)
    first, second, third = (cast("Delivery", reader.take()) for _ in range(3))
    joined.run(commands.produce_many("Small", ["a"], acks=[first, third]))
    (kept,) = reader.core.extensions(reader.now_s)
    assert b"offset: 1\r\n" in kept.lines
    joined.run(commands.produce("Small", acks=second))
    joined.run(commands.seek("T", "g", "earliest"))
    assert [again.offset for again in iter(reader.take, None)] == [0, 1, 2]


def test_what_comes_again_at_once_is_held_again() -> None:
    """The message that was given back is settled, the one that came again is not."""
    world = world_of(1)
    reader = Reader(Joined(world), auto_ack=False, batch=1)
    for retry in range(3):
        message = reader.take()
        assert message is not None
        assert message.retry == retry
        reader.core.require_held(message)
        request = reader.core.nack(message, 0, True)
        reader.joined.run(request)
        reader.core.took(reader.joined.run(commands.pull("T", "g")))


def test_a_lease_of_the_consumers_own_is_asked_for_and_kept() -> None:
    world = world_of(2)
    reader = Reader(Joined(world), auto_ack=False, lease_ms=900)
    assert reader.core.keep_every_s == 0.3
    assert reader.take()
    (kept,) = reader.core.extensions(reader.now_s)
    assert b"group_lease: 900\r\n" in kept.lines
    world.advance(900)
    assert left(world)["leasedCount"] == 0, "the group says five seconds"


# -- consumers ------------------------------------------------------------------------------------


def test_a_message_is_answered_and_done(url: str, topic: str) -> None:
    with zbus.connect(url) as bus:
        bus.declare(topic, "g", ack=True, lease_ms=60_000)
        bus.declare(f"{topic}.out")
        bus.produce_many(topic, ["0", "1", "2"])
        with bus.consume(topic, "g", timeout_ms=0) as messages:
            for message in messages:
                if message.text == "1":
                    bus.produce(f"{topic}.out", json=1, acks=message)
                else:
                    stored = message.reply_to(f"{topic}.out", json=int(message.text), tag="t")
                    assert stored is not None
                assert message.settled
                with pytest.raises(ValueError, match="settled already"):
                    message.reply_to(f"{topic}.out")
        group = bus.query(topic, "g")
        assert (group.leased_count, group.message_count) == (0, 0)
        assert [m.json() for m in bus.read(f"{topic}.out")] == [0, 1, 2]


def test_what_is_somebody_elses_is_not_answered(url: str, topic: str) -> None:
    with zbus.connect(url) as bus:
        bus.declare(topic, "g", ack=True, lease_ms=60_000)
        bus.produce(topic, "x")
        with bus.consume(topic, "g", timeout_ms=0) as messages:
            for message in messages:
                with pytest.raises(NotFound, match="Topic"):
                    message.reply_to("nowhere")
                bus.ack(topic, "g", message.offset)
                assert message.reply_to(topic, "y") is None
        assert [m.text for m in bus.read(topic)] == ["x"]


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_message_is_answered_when_awaited(url: str, topic: str, backend: str) -> None:
    async def main() -> None:
        async with zbus.connect_async(url) as bus:
            await bus.declare(topic, "g", ack=True, lease_ms=60_000)
            await bus.declare(f"{topic}.out")
            await bus.produce_many(topic, ["0", "1"])
            async with bus.consume(topic, "g", timeout_ms=0) as messages:
                async for message in messages:
                    assert await message.reply_to(f"{topic}.out", message.text)
                    with pytest.raises(ValueError, match="settled already"):
                        await message.reply_to(topic)
            group = await bus.query(topic, "g")
            assert (group.leased_count, group.message_count) == (0, 0)
            assert [m.text for m in await bus.read(f"{topic}.out")] == ["0", "1"]

    anyio.run(main, backend=backend)


def test_a_consumer_declares_what_becomes_of_failures(url: str, topic: str) -> None:
    dead = f"{topic}.dead"
    retry = Retries(max_attempts=2, backoff_ms=(1, 5), dead_letter=dead)
    with zbus.connect(url) as bus:
        bus.declare(topic, "first")
        bus.declare(dead, dead)
        bus.produce_many(topic, ["poison", "food"])
        with bus.consume(topic, "g", retry=retry, auto_ack=False, timeout_ms=500) as messages:
            seen = []
            for message in messages:
                seen.append((message.text, message.retry))
                if message.text == "poison":
                    message.nack()
                else:
                    message.ack()
        assert sorted(seen) == [("food", 0), ("poison", 0), ("poison", 1)]
        group = bus.query(topic, "g")
        assert (group.ack, group.max_attempts, group.backoff_ms) == (True, 2, 1)
        assert (group.backoff_max_ms, group.dead_letter, group.dead_count) == (5, dead, 1)
        assert [m.text for m in bus.read(dead)] == ["poison"]
        assert bus.redrive(dead) == Redriven(1, 0)
        assert bus.query(topic, "g").message_count == 1
        with (
            pytest.raises(NotFound, match=r"no\.where"),
            bus.consume(topic, "g", retry=Retries(max_attempts=2, dead_letter="no.where")),
        ):
            pass


def test_a_lease_of_the_consumers_own(url: str, topic: str) -> None:
    with zbus.connect(url) as bus:
        bus.declare(topic, "g", ack=True, lease_ms=60_000)
        bus.produce(topic, "x")
        with bus.consume(topic, "g", lease_ms=2_000, auto_ack=False, timeout_ms=0) as messages:
            (message,) = messages
            assert bus.pull(topic, "g", wait_ms=3_000) == [], (
                "it is extended while the consumer is there"
            )
        (again,) = bus.pull(topic, "g", wait_ms=20_000)
        assert (again.offset, again.retry) == (message.offset, 1)


def test_a_consumer_stands_by(url: str, topic: str) -> None:
    with zbus.connect(url) as bus:
        bus.declare(topic, "g", ack=True, exclusive=True)
        with bus.consume(topic, "g", timeout_ms=0) as first:
            assert first.next() is None
            with bus.consume(topic, "g", standby=True, timeout_ms=20_000) as second:
                first.close()
                bus.produce(topic, "x")
                taken = second.next()
                assert taken is not None
                assert taken.text == "x"


def test_schedules(bus: Joined) -> None:
    made = bus.run(commands.schedule("Small", "daily", "0 9 * * *", "hello", zone="Europe/Berlin"))
    assert (made.topic, made.offset, made.duplicate) == ("cron.Small", 0, False)
    assert made.due_ms > bus.world.now_ms
    again = bus.run(commands.schedule("Small", "daily", "0 10 * * *"))
    assert again.duplicate
    assert bus.run(commands.cancel("cron.Small", id="daily")) == 1
    with pytest.raises(BadRequest, match="cron is five fields"):
        bus.run(commands.schedule("Small", "x", "often"))
