"""The clients while brokers are killed under them, and while real time passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import zbus
import zbus.client
from tests.examples.broker_process import BrokerProcess, lasting_port
from tests.limits import WAIT_S

PATIENT: dict[str, Any] = {"retries": 100, "timeout_s": WAIT_S}  # until the broker is back


class Mortal:
    """A broker that is killed and comes back, on the same port with the same data."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.port = lasting_port()
        self.process = BrokerProcess(data_dir, self.port)
        self.url = self.process.url

    def die_and_return(self) -> None:
        self.process.kill()
        self.process = BrokerProcess(self.data_dir, self.port)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mortal]:
    mortal = Mortal(tmp_path / "data")
    yield mortal
    mortal.process.kill()


def test_a_kill_in_the_middle_of_a_pipeline(broker: Mortal) -> None:
    with zbus.connect(broker.url, **PATIENT) as bus:
        bus.declare("T")
        with bus.pipeline() as pipe:
            pending = []
            for number in range(2_000):
                pending.append(pipe.produce("T", str(number)))
                if number in (500, 1_500):
                    broker.die_and_return()
        assert [p.result().offset for p in pending] == list(range(2_000))
        found = [delivery.text for at in (0, 1_000) for delivery in read(bus, at)]
    assert found == [str(number) for number in range(2_000)]


def read(bus: zbus.client.BlockingClient, offset: int) -> list[zbus.client.Delivery]:
    found: list[zbus.client.Delivery] = []
    while len(found) < 1_000:
        found += bus.read("T", offset=offset + len(found), count=1_000 - len(found))
    return found


def test_threads_go_on_when_the_broker_is_back(broker: Mortal) -> None:
    with zbus.connect(broker.url, **PATIENT) as bus:
        bus.declare("T")
        wrong: list[Exception] = []

        def work(name: int) -> None:
            try:
                for number in range(100):
                    bus.produce("T", f"{name}/{number}")
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(2):
            broker.die_and_return()
        for thread in threads:
            thread.join(WAIT_S)
        assert wrong == []
        found = [delivery.text for delivery in bus.read("T", count=1_000)]
    assert len(found) == len(set(found)) == 400


def test_a_consumer_goes_on_and_misses_nothing(broker: Mortal) -> None:
    with zbus.connect(broker.url, **PATIENT) as bus:
        bus.declare("T", "g", ack=True, lease_ms=2_000)
        bus.produce_many("T", [str(number) for number in range(500)])
        found = []
        with bus.consume("T", "g", timeout_ms=3_000) as messages:
            for message in messages:
                found.append(int(message.text))
                if len(found) in (100, 333):
                    broker.die_and_return()
        assert set(found) == set(range(500))
        assert len(found) < 1_000, "only what was under way comes again"
        assert bus.query("T", "g").leased_count == 0


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_tasks_go_on_when_the_broker_is_back(broker: Mortal, backend: str) -> None:
    async def main() -> None:
        async with zbus.connect_async(broker.url, **PATIENT) as bus:
            await bus.declare("T", "g", ack=True, lease_ms=2_000)
            async with anyio.create_task_group() as tasks:
                for name in range(4):
                    tasks.start_soon(work, bus, name)
                await anyio.to_thread.run_sync(broker.die_and_return)
            found = []
            async with bus.consume("T", "g", timeout_ms=3_000) as messages:
                async for message in messages:
                    found.append(message.text)
                    if len(found) == 100:
                        await anyio.to_thread.run_sync(broker.die_and_return)
            assert len(set(found)) == 400
            assert len(found) < 600

    async def work(bus: zbus.client.Client, name: int) -> None:
        for number in range(100):
            await bus.produce("T", f"{name}/{number}")

    anyio.run(main, backend=backend)


def test_leases_are_kept_while_the_user_works(broker: Mortal) -> None:
    with zbus.connect(broker.url, **PATIENT) as bus:
        bus.declare("T", "g", ack=True, lease_ms=1_500)  # none of six is done in that
        bus.produce_many("T", [str(number) for number in range(6)])
        with bus.consume("T", "g", batch=3, timeout_ms=0) as messages:
            for message in messages:
                assert message.retry == 0
                time.sleep(0.5)
                if message.offset > 0:  # from there on all are leased: the next three, too
                    assert bus.pull("T", "g") == []


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_leases_are_kept_while_a_task_works(broker: Mortal, backend: str) -> None:
    async def main() -> None:
        async with zbus.connect_async(broker.url, **PATIENT) as bus:
            await bus.declare("T", "g", ack=True, lease_ms=1_500)  # none of six is done in that
            await bus.produce_many("T", [str(number) for number in range(6)])
            async with bus.consume("T", "g", batch=3, timeout_ms=0) as messages:
                async for message in messages:
                    assert message.retry == 0
                    await anyio.sleep(0.5)
                    if message.offset > 0:
                        assert await bus.pull("T", "g") == []

    anyio.run(main, backend=backend)


def test_no_broker_any_more(broker: Mortal) -> None:
    with zbus.connect(broker.url, retries=2, backoff_s=0.01) as bus:
        bus.ping()
        broker.process.kill()
        with pytest.raises(zbus.client.ConnectionLost):
            bus.ping()
        began_s = time.monotonic()
        with pytest.raises(zbus.client.ConnectionLost):
            bus.ping(timeout_s=WAIT_S)
        assert time.monotonic() - began_s < WAIT_S / 2
        broker.process = BrokerProcess(broker.data_dir, broker.port)
        assert bus.ping() > 0
