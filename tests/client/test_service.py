"""Services: who calls, what fails, which event loop, and how one ends."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import anyio
import pytest
import trio

import zbus
from tests.limits import WAIT_S
from zbus.client import Client, RpcError, Service, current_call

_names = count()

Story = Callable[[Client, str], Awaitable[None]]


@pytest.fixture(params=["trio", "asyncio"])
def play(request: pytest.FixtureRequest, url: str) -> Callable[[Story], None]:
    """Runs a story with a client and the name of a service of its own."""

    async def run(story: Story) -> None:
        with anyio.fail_after(WAIT_S):
            async with zbus.connect_async(url) as bus:
                await story(bus, f"service-{next(_names)}")

    return lambda story: anyio.run(run, story, backend=request.param)


Play = Callable[[Story], None]

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_method_sees_who_calls(play: Play, url: str) -> None:
    def told(word: str, *, upper: bool = False) -> list[str]:
        call = current_call()
        word = word.upper() if upper else word
        return [word, call.traceparent, call.headers["x-mine"], call.sender]

    async def told_too(word: str, *, upper: bool = False) -> list[str]:
        return told(word, upper=upper)

    async def story(bus: Client, topic: str) -> None:
        service = Service(topic)
        service.method(told)
        service.method(told_too)
        headers = {"traceparent": TRACE, "X-Mine": "yes"}
        async with anyio.create_task_group() as tasks:
            await tasks.start(service.serve, url)
            for name in ("told", "told_too"):
                answer = await bus.call(topic, name, "a", upper=True, headers=headers)
                assert answer[:3] == ["A", TRACE, "yes"]
                assert len(answer[3]) == 36
                assert (await bus.call(topic, name, word="b", headers=headers))[0] == "b"
            with pytest.raises(RpcError, match="unexpected keyword argument 'lower'"):
                await bus.call(topic, "told", "a", lower=True)
            tasks.cancel_scope.cancel()

    play(story)
    with pytest.raises(LookupError, match="no call is being answered"):
        current_call()


def test_what_a_method_raises_is_logged_and_answered(
    play: Play, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise LookupError("of mine")

    async def story(bus: Client, topic: str) -> None:
        service = Service(topic)
        service.method(broken)
        async with anyio.create_task_group() as tasks:
            await tasks.start(service.serve, url)
            with pytest.raises(RpcError, match="of mine"):
                await bus.call(topic, "broken", headers={"traceparent": TRACE})
            with pytest.raises(RpcError, match="nothing method not found"):
                await bus.call(topic, "nothing")
            tasks.cancel_scope.cancel()

    with caplog.at_level(logging.WARNING, "zbus.client"):
        play(story)
    failed, refused = caplog.records
    assert failed.exc_info is not None
    assert failed.exc_info[0] is LookupError
    assert TRACE in failed.getMessage()
    assert (refused.levelname, refused.exc_info) == ("WARNING", None)
    assert "nothing method not found" in refused.getMessage()


def test_calls_under_way_are_answered_when_it_is_cancelled(play: Play, url: str) -> None:
    async def story(bus: Client, topic: str) -> None:
        service = Service(topic)
        begun, go_on = anyio.Event(), anyio.Event()

        @service.method
        async def slow() -> str:
            begun.set()
            await go_on.wait()
            return "done all the same"

        async with anyio.create_task_group() as tasks, bus.pipeline() as pipe:
            await tasks.start(service.serve, url)
            call = await pipe.call(topic, "slow")
            await pipe.flush()
            await begun.wait()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                go_on.set()
                assert await call.result() == "done all the same"

    play(story)


def test_the_grace_ends(play: Play, url: str) -> None:
    async def story(bus: Client, topic: str) -> None:
        service = Service(topic, grace_s=0.01)
        begun, ended = anyio.Event(), anyio.Event()

        @service.method
        async def endless() -> None:
            begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()

        async with anyio.create_task_group() as tasks:
            await tasks.start(service.serve, url)
            tasks.start_soon(functools.partial(bus.call, topic, "endless", timeout_s=WAIT_S))
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert ended.is_set()

    play(story)


def test_an_asyncio_task_that_is_cancelled_ends_its_calls(url: str) -> None:
    """Cancelled as asyncio does it, without a scope of anyio."""

    async def main() -> None:
        topic = f"service-{next(_names)}"
        service = Service(topic)
        begun, go_on = asyncio.Event(), asyncio.Event()

        @service.method
        async def slow() -> int:
            begun.set()
            await go_on.wait()
            return 7

        async with zbus.connect_async(url) as bus:
            serving = asyncio.create_task(service.serve(url))
            while topic not in (await bus.query()).topics:
                pass
            calling = asyncio.create_task(bus.call(topic, "slow"))
            await begun.wait()
            serving.cancel()
            go_on.set()
            assert await calling == 7
            with pytest.raises(asyncio.CancelledError):
                await serving

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


async def of_trio() -> None:
    await trio.lowlevel.checkpoint()


async def of_asyncio() -> None:
    await asyncio.Event().wait()


async def of_both() -> None:
    await anyio.lowlevel.checkpoint()


class OfTrio:
    async def method(self) -> None:
        await trio.lowlevel.checkpoint()

    async def __call__(self) -> None:
        await trio.lowlevel.checkpoint()


WRONG: list[tuple[str, Any]] = [
    ("asyncio", of_trio),
    ("trio", of_asyncio),
    ("asyncio", OfTrio().method),
    ("asyncio", OfTrio()),
    ("asyncio", functools.partial(of_trio)),
]


@pytest.mark.parametrize(("backend", "method"), WRONG)
def test_a_coroutine_of_the_wrong_loop_is_refused(backend: Any, method: Any) -> None:
    service = Service("T", backend=backend)
    other = "asyncio" if backend == "trio" else "trio"
    with pytest.raises(TypeError, match=rf"m\(\) uses {other}, and this service runs on {backend}"):
        service.method(name="m")(method)
    assert service.methods == {}


def test_the_first_method_that_names_a_loop_decides() -> None:
    service = Service("T")
    service.method(of_both)
    service.method(name="thread")(print)
    assert service.backend is None
    service.method(of_trio)
    assert service.backend == "trio"
    with pytest.raises(TypeError, match="a service has one event loop"):
        service.method(of_asyncio)
    with pytest.raises(ValueError, match="'trio' or 'asyncio', not 'curio'"):
        Service("T", backend="curio")  # type: ignore[arg-type]


def test_a_service_on_the_wrong_loop_says_so() -> None:
    service = Service("T")
    service.method(of_trio)
    with pytest.raises(RuntimeError, match="for trio, and this is run by asyncio"):
        asyncio.run(service.serve("http://127.0.0.1:1"))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"method":"plus","named":[]}', "named is an object"),
        (b'{"method":"plus","params":[1],"named":{"a":1}}', "multiple values for argument 'a'"),
        (b'{"method":"plus","named":{"a":1,"c":1}}', "unexpected keyword argument 'c'"),
    ],
)
def test_arguments_by_name_that_make_no_sense(body: bytes, text: str) -> None:
    service = Service("T")

    @service.method
    def plus(a: int, b: int = 0) -> int:
        return a + b

    status, _, answer = anyio.run(service.answer, body)
    assert (status, text in answer.decode()) == (600, True)
    assert anyio.run(service.answer, b'{"method":"plus","named":{"a":1,"b":2}}')[2] == b"3"
