"""A service: functions that anybody can call through the broker.

    service = Service("myrpc")

    @service.method
    def plus(a: float, b: float) -> float:
        return a + b

    service.run("http://127.0.0.1:15555")

A call is a message of a topic for calls, and its answer is routed to the session that sent it
(`docs/howto/rpc.md`). Start as many services as you like: each call is done by one of them.

Methods that are coroutines belong to one event loop: trio's or asyncio's. Which one cannot be told
from every coroutine, but from what it names: `trio.sleep` or `asyncio.sleep` (`flavour_of`). So a
mistake is told where the method is offered, and not to a caller as "no running event loop".
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar, Unpack, overload

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskStatus

from zbus.client import commands
from zbus.client.errors import ConnectionLost, NotFound, Overloaded, Timeout, TooMany, ZbusError
from zbus.client.links.async_backend import (
    Flavour,
    flavour_of,
    is_coroutine_function,
    running_flavour,
)
from zbus.client.links.async_link import AsyncLink
from zbus.client.links.request_tracker import Call
from zbus.client.messages import Delivery
from zbus.client.options import DEFAULT_URL, OptionArguments, Options, resolve
from zbus.documents import NOT_JSON

Function = TypeVar("Function", bound=Callable[..., Any])

APPLICATION_ERROR = 600
WAIT_MS = 20_000
GRACE_S = 10.0
"""How long calls under way may take when the service is asked to stop."""

LEAVE_S = 1.0
"""How long a service that stops waits for the end of its pull."""

AWAY = (ConnectionLost, Timeout, Overloaded, TooMany)

PAUSE_S = 0.5
"""Before another attempt, when the broker is away."""

LOG = logging.getLogger("zbus.client")

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


_CALL: ContextVar[Delivery] = ContextVar("zbus-call")


def current_call() -> Delivery:
    """The call that this code answers: who called (`sender`), `headers`, `traceparent`, `id`.

    It works in every method of a service, in a thread as in a task, and in what they call. Raises
    LookupError elsewhere.
    """
    try:
        return _CALL.get()
    except LookupError:
        raise LookupError("no call is being answered here") from None


class MethodUnknown(LookupError):
    """There is no method of that name here."""


class ValueForCaller(ValueError):
    """A call that makes no sense, which is the caller's fault alone."""


class Service:
    """Functions that answer calls of a topic, at most `concurrency` of them at once.

    Functions that are no coroutines run in threads. What one raises is logged, with its traceback,
    and is the caller's answer: status 600 with the text of the exception. A service that is stopped
    takes no more calls, and gives those under way `grace_s` seconds.

    `backend` is the event loop of the coroutines, `"trio"` or `"asyncio"`. Without it the first
    method that names trio or asyncio decides; if none does, `run` uses asyncio.
    """

    def __init__(
        self,
        topic: str,
        *,
        concurrency: int = 16,
        grace_s: float = GRACE_S,
        backend: Flavour | None = None,
    ) -> None:
        if backend not in (None, "trio", "asyncio"):
            raise ValueError(f"backend is 'trio' or 'asyncio', not {backend!r}")
        self.topic = topic
        self.concurrency = max(1, concurrency)
        self.grace_s = grace_s
        self.backend = backend
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
        answers calls of every module that has no such method. Raises TypeError for a coroutine of
        another event loop than the service's."""
        if function is None:
            return partial(self._offer, name, module)
        return self._offer(name, module, function)

    def _offer(self, name: str | None, module: str, function: Function) -> Function:
        named = name or function.__name__
        flavour = flavour_of(function)
        if flavour is not None and self.backend not in (None, flavour):
            raise TypeError(
                f"{named}() uses {flavour}, and this service runs on {self.backend}:"
                " a service has one event loop"
            )
        self.backend = flavour or self.backend
        self.methods[module, named] = function
        return function

    def run(self, url: str = DEFAULT_URL, **options: Unpack[OptionArguments]) -> None:
        """Serve until SIGINT or SIGTERM, then end the calls under way. If the broker goes away,
        wait until it is back. `options` are those of `connect`. For the main thread."""
        anyio.run(self._run, url, Options(**options), backend=self.backend or "asyncio")

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
        """The same within a program, on trio or asyncio: serve until cancelled. Calls under way
        are answered first, for at most `grace_s` seconds.

        `await tasks.start(service.serve, url)` returns when calls can be made. Raises RuntimeError
        on another event loop than that of the methods."""
        await self._serve(url, Options(**options), anyio.CancelScope(), task_status)

    async def _serve(
        self,
        url: str,
        options: Options,
        taking: anyio.CancelScope,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Until it or `taking` is cancelled, and the calls under way have been answered."""
        running = running_flavour()
        if self.backend not in (None, running):
            raise RuntimeError(f"the methods are for {self.backend}, and this is run by {running}")
        link = AsyncLink(*resolve(url, options))
        slots = anyio.Semaphore(self.concurrency)
        late: list[Delivery] = []
        under_way: set[anyio.CancelScope] = set()

        async def answer(call: Delivery) -> None:
            # Who stops the service does not stop what it began: only the end of the grace does.
            with anyio.CancelScope(shield=True) as scope:
                under_way.add(scope)
                try:
                    with nullcontext() if options.tracing is None else options.tracing.serve(call):
                        await self._answer(link, call)
                finally:
                    under_way.discard(scope)
                    slots.release()

        await link.start()
        try:
            async with anyio.create_task_group() as answers:
                try:
                    with taking:
                        await self._declare(link, url)
                        task_status.started()
                        while True:
                            await slots.acquire()
                            call = await self._take(link, url, late)
                            answers.start_soon(answer, call)
                finally:
                    with anyio.CancelScope(shield=True, deadline=self._grace_ends_s()):
                        for call in late:
                            await answer(call)
                    for scope in under_way:
                        scope.deadline = self._grace_ends_s()
        finally:
            await link.stop()

    def _grace_ends_s(self) -> float:
        return anyio.current_time() + self.grace_s

    async def _declare(self, link: AsyncLink, url: str) -> None:
        while True:
            try:
                await link.run(commands.declare(self.topic, rpc=True))
            except AWAY as error:
                await self._pause(error)
            else:
                names = ", ".join(".".join(filter(None, name)) for name in self.methods)
                LOG.info("serving %s/%s (%s)", url.rstrip("/"), self.topic, names)
                return

    async def _pause(self, error: ZbusError) -> None:
        """Before another attempt, if there is any use in it."""
        if isinstance(error, TooMany) and not error.throttled:
            raise error
        LOG.warning("%s: %s; trying again", self.topic, error)
        await anyio.sleep(PAUSE_S)

    async def _take(self, link: AsyncLink, url: str, late: list[Delivery]) -> Delivery:
        """The next call. If this is cancelled, the call that was on its way is in `late`."""
        while True:
            pull = link.submit(commands.pull(self.topic, wait_ms=WAIT_MS))
            try:
                await link.flush()
                await link.wait(pull)
                calls = pull.result()
            except NotFound:
                await self._declare(link, url)  # the topic was removed
            except AWAY as error:
                await self._pause(error)
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

    async def _answer(self, link: AsyncLink, call: Delivery) -> None:
        token = _CALL.set(call)
        try:
            status, content_type, body = await self.answer(call.body)
        finally:
            _CALL.reset(token)
        reply = commands.route(self.topic, call.sender, call.id, status, body, content_type)
        try:
            link.submit(reply)
            await link.flush()
        except ConnectionLost:
            pass  # the caller gets a timeout

    async def answer(self, body: bytes) -> tuple[int, str, bytes]:
        """Status, content type and body for a call, as a caller would get them:
        `{"method":…, "module":…, "params":[…], "named":{…}}`."""
        try:
            function, params, named = self._find(body)
            if is_coroutine_function(function):
                result = await function(*params, **named)
            else:
                result = await anyio.to_thread.run_sync(partial(function, *params, **named))
            if isawaitable(result):
                result = await result
            if isinstance(result, bytes):
                return 200, "application/octet-stream", result
            return 200, _JSON, msgspec.json.encode(result)
        except (MethodUnknown, ValueForCaller) as error:
            LOG.warning("%s: a call was refused: %s", self.topic, error)
            return APPLICATION_ERROR, _TEXT, str(error).encode("utf-8", "replace")
        except Exception as error:  # whatever a method raises is the caller's answer
            call = _CALL.get(None)
            ids = (call.sender, call.id, call.traceparent or "-") if call else ("-", "-", "-")
            LOG.exception("%s: a call failed (sender %s, id %s, traceparent %s)", self.topic, *ids)
            text = str(error) or type(error).__name__
            return APPLICATION_ERROR, _TEXT, text.encode("utf-8", "replace")

    def _find(self, body: bytes) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        try:
            request = msgspec.json.decode(body)
        except NOT_JSON as error:
            raise ValueForCaller(str(error)) from None
        if not isinstance(request, dict):
            raise ValueForCaller('a call is {"method": …, "params": […], "named": {…}}')
        module, name = request.get("module") or "", request.get("method") or "index"
        params = [] if request.get("params") is None else request["params"]
        if not isinstance(name, str) or not isinstance(module, str) or not isinstance(params, list):
            raise ValueForCaller("method and module are texts, params is a list")
        named = {} if request.get("named") is None else request["named"]
        if not isinstance(named, dict):
            raise ValueForCaller("named is an object: the arguments that are given by name")
        function = self.methods.get((module, name)) or self.methods.get(("", name))
        if function is None:
            shown = f"{module}:{name}" if module else name
            raise MethodUnknown(f"{shown} method not found")
        return function, params, named
