"""Pulls that are given up when time is over, or by Ctrl-C, lose nothing."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
import trio

import zbus.client
from tests.examples.broker_process import BrokerProcess
from tests.limits import WAIT_S, WHOLE
from zbus.client import Delivery

GROUPS = [pytest.param(False, id="no acks"), pytest.param(True, id="acks")]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process.url


MESSAGES = 600 if WHOLE else 300
SHORT_S = 0.001
_serial = itertools.count()


async def _in_time(
    bus: zbus.client.Client, topic: str, batch: int, limit: Callable[[float], Any]
) -> list[int]:
    """All messages, by pulls each of which is given a millisecond, or more where none comes so
    soon."""
    await bus.produce_many(topic, [str(number) for number in range(MESSAGES)])
    found: list[int] = []
    last_s, limit_s = time.monotonic(), SHORT_S
    while len(found) < MESSAGES and time.monotonic() - last_s < WAIT_S:
        got: list[Delivery] = []
        try:
            async with limit(limit_s):
                got = await bus.pull(topic, wait_ms=20, batch=batch)
        except TimeoutError:
            pass
        last_s, limit_s = (time.monotonic(), SHORT_S) if got else (last_s, limit_s * 1.01)
        found += [int(one.text) for one in got]
        if got:
            await bus.ack(topic, None, [one.offset for one in got])
    return found


class _Trio:
    """`trio.move_on_after` as an asynchronous context."""

    def __init__(self, limit_s: float) -> None:
        self._scope = trio.move_on_after(limit_s)

    async def __aenter__(self) -> None:
        self._scope.__enter__()

    async def __aexit__(self, *error: Any) -> Any:
        return self._scope.__exit__(*error)


LIMITS: dict[str, Callable[[float], Any]] = {"asyncio": asyncio.timeout, "trio": _Trio}


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("ack", GROUPS)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_time_limit_loses_nothing(url: str, backend: str, ack: bool, batch: int) -> None:
    topic = f"Limited{next(_serial)}"

    async def main() -> list[int]:
        async with zbus.client.connect_async(url) as bus:
            await bus.declare(topic, ack=ack)
            return await _in_time(bus, topic, batch, LIMITS[backend])

    found = anyio.run(main, backend=backend)
    assert sorted(found) == list(range(MESSAGES))
    assert ack or found == list(range(MESSAGES))


def _pull_blocking(bus: zbus.client.BlockingClient, topic: str, **options: Any) -> list[int]:
    """All messages, by pulls most of which end before their time."""
    bus.produce_many(topic, [str(number) for number in range(MESSAGES)])
    found: list[int] = []
    last_s = time.monotonic()
    while len(found) < MESSAGES and time.monotonic() - last_s < WAIT_S:
        got: list[Delivery] = []
        try:
            got = bus.pull(topic, wait_ms=20, **options)
        except (TimeoutError, KeyboardInterrupt):
            pass
        last_s = time.monotonic() if got else last_s
        if got:
            found += [int(one.text) for one in got]
            bus.ack(topic, None, [one.offset for one in got])
    return found


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("ack", GROUPS)
def test_timeout_s_loses_nothing(url: str, ack: bool, batch: int) -> None:
    topic = f"Limited{next(_serial)}"
    with zbus.client.connect(url) as bus:
        bus.declare(topic, ack=ack)
        found = _pull_blocking(bus, topic, batch=batch, timeout_s=0.0004)
    assert sorted(found) == list(range(MESSAGES))
    assert ack or found == list(range(MESSAGES))


def alarmed(call: Callable[[], object]) -> None:
    """Call it, and have SIGALRM 5 ms later, which may be before the call has begun."""
    signal.setitimer(signal.ITIMER_REAL, 0.005)
    call()


@pytest.mark.parametrize("ack", GROUPS)
def test_an_interrupted_wait_loses_nothing(url: str, ack: bool) -> None:
    """Ctrl-C while a pull waits: what comes afterwards is for the next one, or for others."""
    topic = f"Limited{next(_serial)}"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with zbus.client.connect(url) as bus, zbus.client.connect(url) as other:
            bus.declare(topic, ack=ack)
            for number in range(20):
                with pytest.raises(KeyboardInterrupt):
                    alarmed(lambda: bus.pull(topic, wait_ms=20_000))
                other.produce(topic, str(number))
                asked = (bus, other)[number % 2]
                assert [one.text for one in asked.pull(topic, wait_ms=5_000)] == [str(number)]
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("ack", GROUPS)
def test_consumers_that_are_left(url: str, ack: bool, batch: int) -> None:
    """Each takes two messages and is left; what it had fetched ahead is the next one's."""
    topic = f"Limited{next(_serial)}"
    with zbus.client.connect(url) as bus:
        bus.declare(topic, ack=ack)
        bus.produce_many(topic, [str(number) for number in range(40)])
        found: list[int] = []
        for _ in range(20):
            with bus.consume(topic, batch=batch, timeout_ms=1_000) as messages:
                found += [int(one.text) for _, one in zip(range(2), messages, strict=False)]
    assert found == list(range(40))


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("ack", GROUPS)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_cancelled_consumers(url: str, backend: str, ack: bool, batch: int) -> None:
    """A time limit ends the wait, then the consumer; the next one goes on."""
    topic = f"Limited{next(_serial)}"

    async def main() -> list[int]:
        found: list[int] = []
        async with zbus.client.connect_async(url) as bus:
            await bus.declare(topic, ack=ack)
            await bus.produce_many(topic, [str(number) for number in range(60)])
            while len(found) < 60:
                async with bus.consume(topic, batch=batch, timeout_ms=1_000) as messages:
                    with anyio.move_on_after(0.002):
                        for _ in range(10):
                            message = await messages.next()
                            assert message is not None
                            found.append(int(message.text))
        return found

    assert anyio.run(main, backend=backend) == list(range(60))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_watch(url: str, backend: str) -> None:
    topic = f"Limited{next(_serial)}"

    async def main() -> list[int]:
        found: list[int] = []
        async with zbus.client.connect_async(url) as bus:
            await bus.declare(topic)
            async with bus.watch(topic, "earliest") as watch:
                await bus.produce_many(topic, [str(number) for number in range(MESSAGES)])
                while len(found) < MESSAGES:
                    with anyio.move_on_after(0):
                        while (message := await watch.next()) is not None:
                            found.append(int(message.text))
                    with anyio.move_on_after(0.0005):
                        while (message := await watch.next()) is not None:
                            found.append(int(message.text))
        return found

    assert anyio.run(main, backend=backend) == list(range(MESSAGES))


def test_an_interrupted_watch_goes_on(url: str) -> None:
    topic = f"Limited{next(_serial)}"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with zbus.client.connect(url) as bus:
            bus.declare(topic)
            with bus.watch(topic, "latest") as watch:
                for number in range(10):
                    with pytest.raises(KeyboardInterrupt):
                        alarmed(watch.next)
                    bus.produce(topic, str(number))
                    message = watch.next()
                    assert message is not None
                    assert message.text == str(number)
    finally:
        signal.signal(signal.SIGALRM, before)
