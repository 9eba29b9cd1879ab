"""Watching a real broker, with both clients."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import anyio
import pytest

import zbus
from tests.examples.broker_process import BrokerProcess, lasting_port
from tests.limits import WAIT_S
from zbus.client import BlockingClient, ConnectionLost, NotFound, Watcher

_names = count()


@pytest.fixture
def topic() -> str:
    return f"watch-{next(_names)}"


@pytest.fixture
def bus(url: str, topic: str) -> Iterator[BlockingClient]:
    with zbus.connect(url, retries=2) as bus:
        bus.declare(topic)
        yield bus


def test_everybody_is_told_everything(bus: BlockingClient, topic: str) -> None:
    with bus.watch(topic, "end") as one, bus.watch(topic, "end", filter="eu.*") as two:
        bus.produce(topic, "a", tag="us")
        bus.produce(topic, "b", tag="eu.de")
        assert [next(one).text, next(one).text] == ["a", "b"]
        message = two.next()
        assert message is not None
        assert (message.text, message.tag, message.offset, message.settled) == (
            "b",
            "eu.de",
            1,
            True,
        )
    group = bus.query(topic, topic)
    assert (group.message_count, group.consumer_count) == (2, 0)


def test_it_begins_when_it_is_made(bus: BlockingClient, topic: str) -> None:
    watched = bus.watch(topic, "end", timeout_ms=20)
    bus.produce(topic, "x")
    assert [m.text for m in watched] == ["x"]
    bus.produce(topic, "y")
    assert [m.text for m in watched] == ["y"], "after a pause it goes on"
    watched.close()
    assert list(watched) == []


def test_refusals(bus: BlockingClient, topic: str) -> None:
    with pytest.raises(NotFound):
        bus.watch("nowhere")
    with pytest.raises(NotFound, match="Partition"):
        bus.watch(topic, partition=7)
    with pytest.raises(ValueError, match="starts at"):
        bus.watch(topic, -1)


def test_closed_by_another_thread(bus: BlockingClient, topic: str) -> None:
    seen: list[str] = []
    first = threading.Event()

    def look(watched: Watcher) -> None:
        for message in watched:
            seen.append(message.text)
            first.set()

    watched = bus.watch(topic, "end")
    thread = threading.Thread(target=look, args=[watched])
    thread.start()
    bus.produce(topic, "x")
    assert first.wait(WAIT_S)
    watched.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert seen == ["x"]


def test_it_outlives_the_broker(tmp_path: Path) -> None:
    port = lasting_port()

    def broker() -> BrokerProcess:
        return BrokerProcess(tmp_path / "data", port)

    with broker() as first, zbus.connect(first.url) as bus:
        bus.declare("T")
        watched = bus.watch("T", "end")
        bus.produce("T", "0")
        assert next(watched).text == "0"
        first.kill()
        with broker() as second:
            bus.produce("T", "1")
            assert next(watched).text == "1"
            assert second.stop() == 0
            with broker():
                bus.produce("T", "2")
                assert next(watched).text == "2"
                bus.remove("T")
                with pytest.raises(NotFound):
                    next(watched)
                assert list(watched) == []


def test_without_a_broker_it_ends(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:  # noqa: SIM117 - the second needs the first
        with zbus.connect(broker.url, retries=1, backoff_s=0.001) as bus:
            bus.declare("T")
            watched = bus.watch("T")
            broker.kill()
            with pytest.raises(ConnectionLost, match="no connection to"):
                next(watched)
            with pytest.raises(ConnectionLost):
                bus.watch("T")


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_async(url: str, topic: str, backend: str) -> None:
    async def story() -> None:
        with anyio.fail_after(WAIT_S):
            async with zbus.connect_async(url) as bus:
                await bus.declare(topic)
                with pytest.raises(RuntimeError, match="async with"):
                    await bus.watch(topic).next()
                with pytest.raises(NotFound):
                    async with bus.watch("nowhere"):
                        pass
                async with bus.watch(topic, "end", timeout_ms=20) as watched:
                    await bus.produce_many(topic, ["a", "b"])
                    assert [m.text async for m in watched] == ["a", "b"]
                    with anyio.move_on_after(0.01):
                        await watched.next()
                    await bus.produce(topic, "c")
                    assert [m.text async for m in watched] == ["c"]
                    await bus.remove(topic)
                    with pytest.raises(NotFound):
                        await watched.next()

    anyio.run(story, backend=backend)


def test_a_peer_that_says_nothing() -> None:
    said = r"lost the connection to 127\.0\.0\.1:\d+: nothing came for 0\.05 s"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"

        async def story() -> None:
            async with zbus.connect_async(url, timeout_s=0.05, retries=0) as bus:
                with pytest.raises(ConnectionLost, match=said):
                    async with bus.watch("T"):
                        pass

        anyio.run(story, backend="trio")
        anyio.run(story, backend="asyncio")
        with (
            zbus.connect(url, timeout_s=0.05, retries=0) as bus,
            pytest.raises(ConnectionLost, match=said),
        ):
            bus.watch("T")


def test_it_begins_at_a_time(bus: BlockingClient, topic: str) -> None:
    bus.declare(topic)
    bus.produce(topic, "before")
    (before,) = bus.read(topic)
    while (since_ms := bus.ping()) <= before.timestamp_ms:
        pass
    bus.produce(topic, "since")
    with bus.watch(topic, f"time:{since_ms}", timeout_ms=0) as messages:
        assert next(messages).text == "since"
    moment = datetime.fromtimestamp(before.timestamp_ms / 1000, UTC)
    with bus.watch(topic, moment) as messages:
        assert [next(messages).text, next(messages).text] == ["before", "since"]
