"""What mypy knows of the clients: `make lint` checks this file, and nothing in it runs.

A method that lost its type is `Any`, which `assert_type` refuses. A mistake that is no longer found
leaves an `ignore` without use, which is an error, too.
"""

from __future__ import annotations

from typing import Any, assert_type

from zbus.client import (
    AsyncHeld,
    AsyncPending,
    BlockingClient,
    Client,
    Delivery,
    GroupInfo,
    Held,
    Listed,
    Pending,
    Redriven,
    Scheduled,
    ServerInfo,
    Stored,
    StoredBatch,
    TopicInfo,
    commands,
)


def blocking(bus: BlockingClient, group: str | None) -> None:
    assert_type(bus.produce("T", "body", tag="a", delay_ms=5), Stored)
    assert_type(bus.produce_many("T", ["a", b"b"]), StoredBatch)
    assert_type(bus.pull("T", "g", batch=5), list[Delivery])
    assert_type(bus.nack("T", "g", [1, 2]), int)
    bus.ack("T", "g", offsets=[5], partition=1)
    assert_type(bus.call("T", "plus", 1, 2, module="m", other=3), Any)
    assert_type(bus.peek("T"), Listed)
    assert_type(bus.redrive("T"), Redriven)
    assert_type(bus.schedule("T", "id", "* * * * *"), Scheduled)
    assert_type(bus.ping(), int)
    assert_type(bus.run(commands.version()), str)


def documents(bus: BlockingClient, group: str | None) -> None:
    assert_type(bus.query(), ServerInfo)
    assert_type(bus.query("T"), TopicInfo)
    assert_type(bus.query("T", "g"), GroupInfo)
    assert_type(bus.declare("T", partitions=3), TopicInfo)
    assert_type(bus.declare("T", "g", ack=True, max_attempts=5), GroupInfo)
    assert_type(bus.declare("T", group, start="latest"), TopicInfo | GroupInfo)


def mistakes(bus: BlockingClient) -> None:
    bus.produce("T", 5)  # type: ignore[arg-type]
    bus.produce("T", tagg="a")  # type: ignore[call-arg]
    bus.produce()  # type: ignore[call-arg]
    bus.declare("T", window="many")  # type: ignore[call-overload]
    bus.declare("T", no_such_option=1)  # type: ignore[call-overload]


def pipeline(bus: BlockingClient) -> None:
    with bus.pipeline() as pipe:
        assert_type(pipe.produce("T", "body"), Pending[Stored])
        assert_type(pipe.begin(commands.ping()).result(), int)
        pipe.query("T")  # type: ignore[attr-defined]


def consumer(bus: BlockingClient) -> None:
    with bus.consume("T", "g") as messages:
        assert_type(messages.next(), Held | None)
        for message in messages:
            assert_type(message, Held)
            assert_type(message.reply_to("T", "body", tag="a"), Stored | None)
            message.nack(delay_ms="5")  # type: ignore[arg-type]
    with bus.watch("T", "latest") as watch:
        assert_type(next(watch), Delivery)


async def asynchronous(bus: Client) -> None:
    assert_type(await bus.produce("T", "body"), Stored)
    assert_type(await bus.query("T", "g"), GroupInfo)
    assert_type(await bus.declare("T", partitions=3), TopicInfo)
    await bus.produce("T", tagg="a")  # type: ignore[call-arg]
    bus.ping().bit_length()  # type: ignore[attr-defined]  # not awaited
    async with bus.pipeline() as pipe:
        pending = await pipe.produce("T", "body")
        assert_type(pending, AsyncPending[Stored])
        assert_type(await pending.result(), Stored)
    async with bus.consume("T", "g") as messages:
        assert_type(await messages.next(), AsyncHeld | None)
        async for message in messages:
            assert_type(message, AsyncHeld)
            assert_type(await message.reply_to("T", "body"), Stored | None)
    async with bus.watch("T") as watch:
        async for delivery in watch:
            assert_type(delivery, Delivery)
