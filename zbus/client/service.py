"""A service: functions that anybody can call through the broker.

    service = Service("myrpc")

    @service.method
    def plus(a: float, b: float) -> float:
        return a + b

    service.run("http://127.0.0.1:15555")

A call is a message of a topic for calls, and its answer is routed to the session that sent it
(`docs/howto/rpc.md`). Start as many services as you like: each call is done by one of them.
"""

from __future__ import annotations

import inspect
import logging
import signal
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, Unpack, overload

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskStatus

from zbus.client import commands
from zbus.client.async_link import AsyncLink
from zbus.client.errors import ConnectionLost, NotFound, Overloaded, Timeout, TooMany, ZbusError
from zbus.client.exchange import Call
from zbus.client.messages import Delivery
from zbus.client.options import DEFAULT_URL, OptionArguments, Options, resolve

Function = TypeVar("Function", bound=Callable[..., Any])

APPLICATION_ERROR = 600
WAIT_MS = 20_000
GRACE_S = 10.0
"""How long calls under way may take when the service is asked to stop."""

LEAVE_S = 1.0
"""How long a service that stops waits for the end of its pull."""

PAUSE_S = 0.5
"""Before another attempt, when the broker is away."""

LOG = logging.getLogger("zbus.client")

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


class MethodUnknown(LookupError):
    """There is no method of that name here."""


class Service:
    """Functions that answer calls of a topic, at most `concurrency` of them at once.

    Functions that are no coroutines run in threads. What one raises is the caller's answer: status
    600 with the text of the exception.
    """

    def __init__(self, topic: str, *, concurrency: int = 16) -> None:
        self.topic = topic
        self.concurrency = max(1, concurrency)
        self.methods: dict[tuple[str, str], Callable[..., Any]] = {}

    @overload
    def method(self, function: Function, /) -> Function: ...
    @overload
    def method(
        self, /, *, name: str | None = None, module: str = ""
    ) -> Callable[[Function], Function]: ...
    def method(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        module: str = "",
    ) -> Callable[..., Any]:
        """Offer a function, under its own name or another: a decorator. Without `module` it
        answers calls of every module that has no such method."""
        if function is None:
            return partial(self._offer, name, module)
        return self._offer(name, module, function)

    def _offer(self, name: str | None, module: str, function: Function) -> Function:
        self.methods[module, name or function.__name__] = function
        return function

    def run(self, url: str = DEFAULT_URL, **options: Unpack[OptionArguments]) -> None:
        """Serve until SIGINT or SIGTERM. If the broker goes away, wait until it is back."""
        anyio.run(self._run, url, Options(**options), backend="trio")

    async def _run(self, url: str, options: Options) -> None:
        taking = anyio.CancelScope()

        async def watch() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    taking.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await self._serve(url, options, taking)
            tasks.cancel_scope.cancel()

    async def serve(
        self,
        url: str = DEFAULT_URL,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
        **options: Unpack[OptionArguments],
    ) -> None:
        """The same within a program: serve until cancelled. Calls under way are cancelled too.
        `await tasks.start(service.serve, url)` returns when calls can be made."""
        await self._serve(url, Options(**options), anyio.CancelScope(), task_status)

    async def _serve(
        self,
        url: str,
        options: Options,
        taking: anyio.CancelScope,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Until cancelled; or until `taking` is, and the calls under way have been answered."""
        link = AsyncLink(*resolve(url, options))
        slots = anyio.Semaphore(self.concurrency)
        late: list[Delivery] = []
        await link.start()
        try:
            async with anyio.create_task_group() as answers:
                with taking:
                    await self._declare(link, url)
                    task_status.started()
                    while True:
                        await slots.acquire()
                        call = await self._take(link, url, late)
                        answers.start_soon(self._answer, link, call, slots)
                for call in late:
                    answers.start_soon(self._answer, link, call, slots)
                answers.cancel_scope.deadline = anyio.current_time() + GRACE_S
        finally:
            await link.stop()

    async def _declare(self, link: AsyncLink, url: str) -> None:
        while True:
            try:
                await link.run(commands.declare(self.topic, rpc=True))
            except (ConnectionLost, Timeout, Overloaded, TooMany) as error:
                if isinstance(error, TooMany) and not error.throttled:
                    raise
                LOG.warning("%s: %s; trying again", self.topic, error)
                await anyio.sleep(PAUSE_S)
            else:
                names = ", ".join(".".join(filter(None, name)) for name in self.methods)
                LOG.info("serving %s/%s (%s)", url.rstrip("/"), self.topic, names)
                return

    async def _take(self, link: AsyncLink, url: str, late: list[Delivery]) -> Delivery:
        """The next call. If this is cancelled, the call that was on its way is in `late`."""
        while True:
            pull = link.submit(commands.pull(self.topic, wait_ms=WAIT_MS))
            try:
                await link.flush()
                await link.wait(pull)
                calls = pull.result()
            except NotFound:
                await self._declare(link, url)  # somebody removed the topic
            except (ConnectionLost, Timeout, Overloaded, TooMany) as error:
                if isinstance(error, TooMany) and not error.throttled:
                    raise
                LOG.warning("%s: %s; trying again", self.topic, error)
                await anyio.sleep(PAUSE_S)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    late += await self._leave(link, pull)
                raise
            else:
                if calls:
                    return calls[0]

    async def _leave(self, link: AsyncLink, pull: Call[list[Delivery]]) -> list[Delivery]:
        """No more calls are wanted, so that the broker gives them to others."""
        link.last_time(pull)
        try:
            link.submit(commands.unconsume(self.topic))
            with anyio.move_on_after(LEAVE_S):
                await link.flush()
                await link.wait(pull)
            return pull.result() if pull.done else []
        except ZbusError:
            return []

    async def _answer(self, link: AsyncLink, call: Delivery, slots: anyio.Semaphore) -> None:
        try:
            status, content_type, body = await self.answer(call.body)
            reply = commands.route(self.topic, call.sender, call.id, status, body, content_type)
            try:
                link.submit(reply)
                await link.flush()
            except ConnectionLost:
                pass  # whoever asked will see that there is no answer
        finally:
            slots.release()

    async def answer(self, body: bytes) -> tuple[int, str, bytes]:
        """Status, content type and body for `{"method":…, "module":…, "params":[…]}`."""
        try:
            function, params = self._find(body)
            if inspect.iscoroutinefunction(function):
                result = await function(*params)
            else:
                result = await anyio.to_thread.run_sync(function, *params)
            if isinstance(result, bytes):
                return 200, "application/octet-stream", result
            return 200, _JSON, msgspec.json.encode(result)
        except Exception as error:  # whatever a method raises is the caller's answer
            text = str(error) or type(error).__name__
            return APPLICATION_ERROR, _TEXT, text.encode("utf-8", "replace")

    def _find(self, body: bytes) -> tuple[Callable[..., Any], list[Any]]:
        request = msgspec.json.decode(body)
        if not isinstance(request, dict):
            raise ValueError('a call is {"method": …, "params": […]}')
        module, name = request.get("module") or "", request.get("method") or "index"
        params = [] if request.get("params") is None else request["params"]
        if not isinstance(name, str) or not isinstance(module, str) or not isinstance(params, list):
            raise ValueError("method and module are texts, params is a list")
        function = self.methods.get((module, name)) or self.methods.get(("", name))
        if function is None:
            shown = f"{module}:{name}" if module else name
            raise MethodUnknown(f"{shown} method not found")
        return function, params
