"""The client for trio and asyncio against a real broker."""

from __future__ import annotations

import socket
import threading
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import anyio
import pytest

import zbus
import zbus.client
from tests.limits import WAIT_S
from zbus.client import Client, Service

_names = count()

Story = Callable[[Client, str], Awaitable[None]]


@pytest.fixture(params=["trio", "asyncio"])
def play(request: pytest.FixtureRequest, url: str) -> Callable[[Story], None]:
    """Runs a story with a client and a topic of its own."""

    async def run(story: Story) -> None:
        with anyio.fail_after(WAIT_S):
            async with zbus.connect_async(url) as bus:
                await story(bus, f"async-{next(_names)}")

    return lambda story: anyio.run(run, story, backend=request.param)


Play = Callable[[Story], None]


def test_produce_and_consume(play: Play) -> None:
    async def story(bus: Client, topic: str) -> None:
        await bus.declare(topic, "g", ack=True)
        stored = await bus.produce(topic, "one", tag="a")
        assert (stored.offset, stored.durability) == (0, "disk")
        await bus.produce_many(topic, ["two", "three"])
        async with bus.consume(topic, "g", timeout_ms=0) as messages:
            assert [m.text async for m in messages] == ["one", "two", "three"]
        assert (await bus.query(topic, "g")).leased_count == 0

    play(story)


def test_break_and_exception(play: Play) -> None:
    async def story(bus: Client, topic: str) -> None:
        await bus.declare(topic, "g", ack=True)
        await bus.produce_many(topic, ["0", "1", "2", "3"])
        async with bus.consume(topic, "g") as messages:
            async for _ in messages:
                break

        async def work() -> None:
            async with bus.consume(topic, "g") as messages:
                async for message in messages:
                    if message.text == "2":
                        raise LookupError("of mine")

        with pytest.raises(LookupError, match="of mine"):
            await work()
        async with bus.consume(topic, "g", timeout_ms=0) as messages:
            assert [(m.text, m.retry) async for m in messages] == [("2", 2), ("3", 2)]

    play(story)


def test_cancelled_while_it_waits(play: Play) -> None:
    async def story(bus: Client, topic: str) -> None:
        await bus.declare(topic, "g", ack=True)
        with anyio.move_on_after(0.05):
            async with bus.consume(topic, "g") as messages:
                async for _ in messages:
                    raise AssertionError("there is none")
        await bus.produce(topic, "x")
        async with bus.consume(topic, "g", timeout_ms=0) as messages:
            assert [m.text async for m in messages] == ["x"]
        with anyio.move_on_after(0.05):
            async with bus.consume(topic, "g") as messages:
                try:
                    await messages.next()
                except anyio.get_cancelled_exc_class():
                    await anyio.lowlevel.checkpoint_if_cancelled()
        assert (await bus.query(topic, "g")).consumer_count == 0

    play(story)


def test_cancelled_between_messages(play: Play) -> None:
    """What `next` had in its hands when it was cancelled is not taken for done."""

    async def story(bus: Client, topic: str) -> None:
        await bus.declare(topic, "g", ack=True)
        await bus.produce_many(topic, ["0", "1", "2", "3"])
        async with bus.consume(topic, "g", batch=2, timeout_ms=0) as messages:
            found = []
            for _ in range(10):
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await messages.next()
                if (message := await messages.next()) is not None:
                    found.append(message.text)
        assert found == ["0", "1", "2", "3"]

    play(story)


def test_who_is_cancelled_may_still_ask(play: Play, url: str) -> None:
    async def story(_: Client, topic: str) -> None:
        with anyio.CancelScope() as scope:
            async with zbus.connect_async(url) as bus:
                await bus.declare(topic)
                scope.cancel()
                try:
                    await anyio.sleep_forever()
                finally:
                    with anyio.CancelScope(shield=True):
                        await anyio.lowlevel.checkpoint()
                        assert (await bus.produce(topic, "good-bye", timeout_s=WAIT_S)).offset == 0

    play(story)


def test_by_hand(play: Play) -> None:
    async def story(bus: Client, topic: str) -> None:
        await bus.declare(topic, "g", ack=True)
        await bus.produce_many(topic, ["0", "1", "2"])
        async with bus.consume(topic, "g", auto_ack=False, timeout_ms=0) as messages:
            found = [m async for m in messages]
            await messages.ack(found[0])
            await messages.nack(found[1])
            assert [(m.text, m.retry) async for m in messages] == [("1", 1)]
            await messages.ack(found[2])
        assert (await bus.query(topic, "g")).leased_count == 1

    play(story)


def test_a_consumer_is_used_with_async_with(play: Play) -> None:
    async def story(bus: Client, topic: str) -> None:
        with pytest.raises(RuntimeError, match="async with"):
            await bus.consume(topic).next()
        with pytest.raises(zbus.client.NotFound):
            async with bus.consume(topic):
                pass

    play(story)


def test_tasks_share_a_client(play: Play) -> None:
    async def story(bus: Client, topic: str) -> None:
        await bus.declare(topic)

        async def work(name: int) -> None:
            for number in range(20):
                await bus.produce(topic, f"{name}/{number}")

        async with anyio.create_task_group() as tasks:
            for name in range(20):
                tasks.start_soon(work, name)
        found = [d.text for d in await bus.read(topic, count=1_000)]
        assert len(found) == 400
        for name in range(20):
            mine = [text for text in found if text.startswith(f"{name}/")]
            assert mine == [f"{name}/{number}" for number in range(20)]

    play(story)


def test_a_pipeline(play: Play) -> None:
    async def story(bus: Client, topic: str) -> None:
        await bus.declare(topic)
        async with bus.pipeline(in_flight_max=10) as pipe:
            pending = [await pipe.produce(topic, str(number)) for number in range(200)]
            assert (await pending[3].result()).offset == 3
        assert [(await p.result()).offset for p in pending] == list(range(200))
        with pytest.raises(zbus.client.NotFound):
            async with bus.pipeline() as pipe:
                await pipe.produce("nowhere")

    play(story)


def test_a_request_that_is_cancelled_harms_no_other(play: Play) -> None:
    async def story(bus: Client, topic: str) -> None:
        await bus.declare(topic)
        await bus.declare("nothing" + topic)
        with anyio.move_on_after(0.02):
            await bus.pull(topic, wait_ms=60_000)
        for _ in range(5):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await bus.produce(topic, b"x" * 500_000)
            assert await bus.ping() > 0
        with pytest.raises(zbus.client.Timeout):
            await bus.pull("nothing" + topic, wait_ms=60_000, timeout_s=0.01)

    play(story)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_made_before_the_event_loop_runs(url: str, backend: str) -> None:
    bus = zbus.connect_async(url)

    async def main() -> None:
        async with bus:
            assert await bus.ping() > 0

    anyio.run(main, backend=backend)


def test_no_broker() -> None:
    async def main(backend: str) -> None:
        with pytest.raises(zbus.client.ConnectionLost, match="no connection"):
            async with zbus.connect_async("http://127.0.0.1:1"):
                pass

    for backend in ("trio", "asyncio"):
        anyio.run(main, backend, backend=backend)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_server_that_closes_in_the_handshake(backend: str) -> None:
    async def main(port: int) -> None:
        with pytest.raises(zbus.client.ConnectionLost, match="TLS handshake"):
            async with zbus.connect_async(f"https://127.0.0.1:{port}"):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        closing = threading.Thread(target=lambda: server.accept()[0].close())
        closing.start()
        anyio.run(main, server.getsockname()[1], backend=backend)
        closing.join(WAIT_S)


def test_a_service_and_its_callers(play: Play, url: str) -> None:
    async def story(bus: Client, topic: str) -> None:
        service = Service(topic, concurrency=4)
        working = 0
        most = 0

        @service.method
        def plus(a: float, b: float) -> float:
            return a + b

        @service.method(name="slow", module="m")
        async def of_another_name(number: int) -> int:
            nonlocal working, most
            working += 1
            most = max(most, working)
            await anyio.lowlevel.checkpoint()
            working -= 1
            return number

        @service.method
        async def raw() -> bytes:
            return b"\0\1"

        @service.method
        async def document(value: Any) -> Any:
            return {"got": value}

        async with anyio.create_task_group() as tasks:
            await tasks.start(service.serve, url)
            assert await bus.call(topic, "plus", 1, 2) == 3
            assert await bus.call(topic, "plus", "a", "b", module="any") == "ab"
            assert await bus.call(topic, "raw") == b"\0\1"
            assert await bus.call(topic, "document", [None, "é"]) == {"got": [None, "é"]}
            async with bus.pipeline() as pipe:
                calls = [await pipe.call(topic, "slow", n, module="m") for n in range(50)]
            assert [await call.result() for call in calls] == list(range(50))
            assert 1 <= most <= 4
            errors = {
                ("minus",): "minus method not found",
                ("slow", 1): "slow method not found",
                ("plus", 1): "plus() missing 1 required positional argument: 'b'",
            }
            for call, text in errors.items():
                with pytest.raises(zbus.client.RpcError) as caught:
                    await bus.call(topic, *call)  # type: ignore[arg-type]
                assert (caught.value.status, text in caught.value.text) == (600, True)
            with pytest.raises(zbus.client.RpcError, match="m:minus method not found"):
                await bus.call(topic, "minus", module="m")
            await bus.remove(topic)  # the service declares it again
            while True:
                try:
                    assert await bus.call(topic, "plus", 3, 4) == 7
                    break
                except zbus.client.NotFound:
                    pass
            tasks.cancel_scope.cancel()
        with pytest.raises(zbus.client.Unanswered):
            await bus.call(topic, "plus", 1, 2, timeout_s=0.05)

    play(story)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"not JSON", "JSON is malformed"),
        (b"[]", "a call is"),
        (b'{"method":"\xff"}', "utf-8"),
        (b"[" * 100_000, "recursion"),
        (b'{"method":1}', "method and module are texts"),
        (b'{"method":"m","params":{}}', "params is a list"),
        (b'{"method":"m","module":"x"}', "x:m method not found"),
        (b"{}", "index method not found"),
        (b'{"method":"bad"}', "Encoding objects of type object"),
        (b'{"method":"empty"}', "LookupError"),
    ],
)
def test_calls_that_make_no_sense(body: bytes, text: str) -> None:
    service = Service("T")
    service.method(name="bad")(object)

    @service.method
    def empty() -> None:
        raise LookupError

    status, content_type, answer = anyio.run(service.answer, body, backend="trio")
    assert (status, content_type[:10]) == (600, "text/plain")
    assert text.casefold() in answer.decode().casefold()
