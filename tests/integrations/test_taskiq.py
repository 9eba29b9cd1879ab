"""The broker of taskiq against a real broker. Its worker is `tests/examples/test_frameworks.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from itertools import count
from typing import Any

import pytest
from taskiq import BrokerMessage

import zbus.client
from zbus.client import ConnectionLost
from zbus.integrations.taskiq import ZbusBroker

NUMBERS = count()


def broker(port: int, topic: str, **options: Any) -> ZbusBroker:
    return ZbusBroker(f"http://127.0.0.1:{port}", topic, **options)


def message(text: str, **labels: Any) -> BrokerMessage:
    return BrokerMessage(task_id=text, task_name="t", message=text.encode(), labels=labels)


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))


@pytest.fixture
def topic() -> str:
    return f"tasks{next(NUMBERS)}"


def test_tasks_are_settled(port: int, topic: str) -> None:
    async def steps() -> None:
        queue = broker(port, topic)
        await queue.startup()
        for text in "abc":
            await queue.kick(message(text))
        async with aclosing(queue.listen()) as tasks:
            first = await anext(tasks)
            second = await anext(tasks)
        assert (first.data, second.data) == (b"a", b"b")
        await first.ack()  # type: ignore[misc]  # this one is awaited
        with pytest.raises(ValueError, match="acknowledged or given back before"):
            await first.ack()  # type: ignore[misc]
        await queue.shutdown()  # gives "b" back; "c" was when nobody listened any more
        with zbus.client.connect(queue.url) as bus:
            assert [each.text for each in bus.pull(topic, "taskiq", batch=9)] == ["b", "c"]

    run(steps())


def test_delay(port: int, topic: str) -> None:
    async def steps() -> None:
        queue = broker(port, topic)
        await queue.startup()
        await queue.kick(message("later", delay=0.3))
        await queue.kick(message("now", delay="0"))
        with pytest.raises(ValueError, match="could not convert"):
            await queue.kick(message("never", delay="soon"))
        async with aclosing(queue.listen()) as tasks:
            assert [(await anext(tasks)).data for _ in range(2)] == [b"now", b"later"]
        await queue.shutdown()

    run(steps())


def test_leases_are_kept(port: int, topic: str) -> None:
    """Three times as long as they are."""

    async def steps() -> None:
        queue, other = (broker(port, topic, lease_ms=400) for _ in range(2))
        await queue.startup()
        await other.startup()
        await queue.kick(message("a"))
        async with aclosing(queue.listen()) as tasks, aclosing(other.listen()) as others:
            task = await anext(tasks)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(others), 1.2)
            await task.ack()  # type: ignore[misc]
        await queue.shutdown()
        await other.shutdown()

    run(steps())


def test_no_broker() -> None:
    async def steps() -> None:
        with pytest.raises(ConnectionLost):
            await broker(1, "t").startup()

    run(steps())
