"""The methods of both clients and of their pipelines: what `commands` can make, sent.

What each means, takes and raises is said once, at its function in `commands`. For editors and type
checkers the same is written out in `methods.pyi`, which `python -m tests.docs.signatures` makes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from zbus.client import commands
from zbus.client.requests import Request

ALWAYS = (
    "declare",
    "seek",
    "query",
    "server",
    "tracker",
    "remove",
    "empty",
    "pause",
    "resume",
    "ping",
    "version",
    "produce",
    "produce_many",
    "pull",
    "ack",
    "nack",
    "extend",
    "read",
    "delete",
    "cancel",
    "fire",
    "reschedule",
    "redrive",
    "peek",
    "why",
    "call",
    "schedule",
)
PIPED = ("produce", "produce_many", "ack", "nack", "extend", "call")


Make = Callable[..., Request[Any]]
Method = Callable[..., Any]


def _describe(method: Method, make: Make, returns: str) -> Method:
    """Give a method the text and the signature of the function that makes its request. What that
    means stands for `{}` in `returns`."""
    functools.update_wrapper(method, make)
    signature = inspect.signature(make)
    meant = str(signature.return_annotation).removeprefix("Request[").removesuffix("]")
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[itself, *signature.parameters.values()],
        return_annotation=returns.format(meant),
    )
    return method


class Runs(Protocol):
    """A client, blocking or not."""

    def run(self, request: Request[Any]) -> Any: ...  # noqa: ANN401  # what the request means


class Begins(Protocol):
    """A pipeline, blocking or not."""

    def _begin(self, request: Request[Any]) -> Any: ...  # noqa: ANN401  # a pending result


def _run(make: Make) -> Method:
    def method(self: Runs, /, *args: object, **kwargs: object) -> object:
        return self.run(make(*args, **kwargs))

    return _describe(method, make, "{}")


def _run_async(make: Make) -> Method:
    async def method(self: Runs, /, *args: object, **kwargs: object) -> object:
        return await self.run(make(*args, **kwargs))

    return _describe(method, make, "{}")


def _begin(make: Make) -> Method:
    def method(self: Begins, /, *args: object, **kwargs: object) -> object:
        return self._begin(make(*args, **kwargs))

    return _describe(method, make, "Pending[{}]")


def _begin_async(make: Make) -> Method:
    async def method(self: Begins, /, *args: object, **kwargs: object) -> object:
        return await self._begin(make(*args, **kwargs))

    return _describe(method, make, "AsyncPending[{}]")


def _all_of(names: tuple[str, ...], made: Callable[[Make], Method]) -> dict[str, Method]:
    return {name: made(getattr(commands, name)) for name in names}


BlockingMethods = type("BlockingMethods", (), _all_of(ALWAYS, _run))
AsyncMethods = type("AsyncMethods", (), _all_of(ALWAYS, _run_async))
PipelineMethods = type("PipelineMethods", (), _all_of(PIPED, _begin))
AsyncPipelineMethods = type("AsyncPipelineMethods", (), _all_of(PIPED, _begin_async))
