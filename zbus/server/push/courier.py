"""The requests of webhooks, in a thread of their own: nothing that an endpoint does makes the
broker's loop wait.

An endpoint is a stranger. Its name may lead anywhere, so each address is judged before it is
connected to, and after its name was looked up. Redirects are not followed, proxies that the
environment names are not used. Of a reply the status counts; a little of the rest is read, so that
the connection may be used again, and an endpoint that streams for ever is left.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import httpcore
import trio

from zbus.server.push.pushing import Told
from zbus.server.push.request import Attempt, Reply, lines_of, reply_of
from zbus.wire.networks import Reachable, parse_address

REPLY_BYTES_MAX = 64 << 10
REPLY_S_MAX = 1.0
"""This much of a reply's body is read, and no longer."""

IDLE_S = 15.0
"""A connection that was not used for this long is closed."""

POOLS_MAX = 100
"""Endpoints whose connections are kept."""

ADDRESSES_MAX = 4
"""Of one name, tried one after another; each has a share of the time that is left."""

LOOKUPS_MAX = 2
"""Of one name at once, in threads. A name whose server does not answer keeps these, and no others'
lookups wait for that."""

log = logging.getLogger("zbus")


Find = Callable[[str, int], Awaitable[list[str]]]


class Lookups:
    """The addresses of names."""

    def __init__(self, ask: Callable[..., list[Any]] = socket.getaddrinfo) -> None:
        self._ask = ask
        self._limiters: dict[str, trio.CapacityLimiter] = {}

    async def find(self, host: str, port: int) -> list[str]:
        """Addresses as text, each once; raises ConnectError."""
        if parse_address(host) is not None:
            return [host]
        limiter = self._limiters.setdefault(host, trio.CapacityLimiter(LOOKUPS_MAX))
        ask = partial(self._ask, host, port, type=socket.SOCK_STREAM)
        try:
            found = await trio.to_thread.run_sync(ask, limiter=limiter, abandon_on_cancel=True)
        except (OSError, UnicodeError) as error:
            text = error.strerror if isinstance(error, OSError) else "it is not a host name"
            raise httpcore.ConnectError(f"{host} was not found: {text}") from None
        finally:
            if not (limiter.borrowed_tokens or limiter.statistics().tasks_waiting):
                self._limiters.pop(host, None)
        return list(dict.fromkeys([str(info[4][0]) for info in found]))

    def running(self, host: str) -> int:
        """How many of a name there are."""
        limiter = self._limiters.get(host)
        return 0 if limiter is None else int(limiter.borrowed_tokens)


class Judged(httpcore.AsyncNetworkBackend):
    """Connects where webhooks may lead."""

    def __init__(
        self,
        reachable: Reachable,
        find: Find | None = None,
        backend: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._reachable = reachable
        self._find = find or Lookups().find
        self._backend = backend or httpcore.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - of the library
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        found = (await self._find(host, port))[:ADDRESSES_MAX]
        problem = f"{host} has no address"
        for left, text in zip(range(len(found) - 1, -1, -1), found, strict=True):
            address = parse_address(text.partition("%")[0])
            unfit = "it has no address" if address is None else self._reachable.problem(address)
            if unfit is not None:
                problem = unfit
                continue
            left_s = trio.current_effective_deadline() - trio.current_time()
            # The last may have it all; before, something is left for the others and the request.
            share_s = left_s / (left + 2) if left else left_s
            with trio.move_on_after(share_s):
                try:
                    return await self._backend.connect_tcp(text, port, timeout)
                except httpcore.ConnectError as error:
                    problem = str(error)
                    continue
            problem = f"{text} did not answer within {share_s:.1f} s"
        raise httpcore.ConnectError(problem)

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


class Courier:
    """`done` is called in the courier's thread."""

    def __init__(self, reachable: Reachable, connections_max: int, agent: str, done: Told) -> None:
        self._agent = agent.encode()
        self._backend = Judged(reachable)
        self._connections_max = connections_max
        self._done = done
        self._waiting: deque[Attempt] = deque()
        self._pools: OrderedDict[object, httpcore.AsyncConnectionPool] = OrderedDict()
        self._tls = ssl.create_default_context()
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), name="webhooks")
        self._thread.daemon = True
        self._thread.start()

    def send(self, attempt: Attempt) -> None:
        """Begin a request. Called by the broker's thread."""
        self._waiting.append(attempt)
        self._wake()

    def close(self) -> None:
        """Give up what is under way: it comes again when its lease ends."""
        self._scope.cancel() if self._token is None else self._soon(self._scope.cancel)
        self._thread.join(timeout=5)

    def _wake(self) -> None:
        if self._token is not None:  # else it looks when it begins
            self._soon(self._begin)

    def _soon(self, call: Callable[[], None]) -> None:
        assert self._token is not None
        try:
            self._token.run_sync_soon(call, idempotent=True)
        except trio.RunFinishedError:
            pass

    async def _run(self) -> None:
        with self._scope:
            async with trio.open_nursery() as self._nursery:
                self._token = trio.lowlevel.current_trio_token()
                self._begin()
                await trio.sleep_forever()

    def _begin(self) -> None:
        while self._waiting:
            self._nursery.start_soon(self._attempt, self._waiting.popleft())

    async def _attempt(self, attempt: Attempt) -> None:
        timeout_s = attempt.push.timeout_ms / 1_000
        reply = Reply(f"it did not reply within {timeout_s:g} s")
        began_s = time.monotonic()
        with trio.move_on_after(timeout_s):
            try:
                reply = await self._post(attempt)
            except httpcore.ConnectError as error:
                reply = Reply(f"no connection: {_why(error)}")
            except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
                reply = Reply(f"the connection failed: {_why(error)}")
            except Exception as error:  # whatever it is, it costs this request alone
                log.exception("a webhook failed", extra={"group": attempt.group.name})
                reply = Reply(f"{type(error).__name__}: {error}")
        if reply.error:
            took_ms = round((time.monotonic() - began_s) * 1_000)
            log.debug("a webhook failed", extra={"why": reply.error, "ms": took_ms})
        self._done(attempt, reply)

    async def _post(self, attempt: Attempt) -> Reply:
        url, body = httpcore.URL(attempt.push.endpoint), attempt.body
        lines = [(b"user-agent", self._agent), *lines_of(attempt, int(time.time()))]
        lines.append((b"content-length", b"%d" % len(body)))
        pool = self._pool(url)
        async with pool.stream("POST", url, headers=lines, content=body) as response:
            wait = [v for name, v in response.headers if name.lower() == b"retry-after"]
            reply = reply_of(response.status, wait[0] if wait else b"", time.time())
            try:
                await _read(response)
            except httpcore.NetworkError:
                pass  # it said what it had to say
            except httpcore.ProtocolError:
                pass
        return reply

    def _pool(self, url: httpcore.URL) -> httpcore.AsyncConnectionPool:
        origin = (url.scheme, url.host, url.port)
        pool = self._pools.get(origin)
        if pool is None:
            pool = httpcore.AsyncConnectionPool(
                ssl_context=self._tls,
                max_connections=self._connections_max,
                keepalive_expiry=IDLE_S,
                network_backend=self._backend,
            )
            self._pools[origin] = pool
            if len(self._pools) > POOLS_MAX:
                self._close_one()
        self._pools.move_to_end(origin)
        return pool

    def _close_one(self) -> None:
        """The connections of an endpoint that nothing is sent to, if there is one."""
        for origin, pool in self._pools.items():
            if all(connection.is_idle() for connection in pool.connections):
                del self._pools[origin]
                self._nursery.start_soon(pool.aclose)
                return


def _why(error: BaseException) -> str:
    """The first that says something, of an error and those that led to it."""
    found: BaseException | None = error
    while found is not None:
        if text := str(found):
            return text
        found = found.__cause__ or found.__context__
    return type(error).__name__


async def _read(response: httpcore.Response) -> None:
    """Some of the body, so that the connection is used again if that is all."""
    left = REPLY_BYTES_MAX
    with trio.move_on_after(REPLY_S_MAX):
        async for part in response.aiter_stream():
            left -= len(part)
            if left < 0:
                return
