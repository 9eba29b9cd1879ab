"""Methods of the clients, made of the functions of `commands`: what those make, a method sends.

What each means, takes and raises is said once, at its function. `Callable[P, …]` hands the types
on, overloads included, so that editors and type checkers see them in every client:

    produce = awaited(commands.produce)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from zbus.client.requests import Request

P = ParamSpec("P")
T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


class Runs(Protocol):
    """A client that blocks."""

    def run(self, request: Request[T]) -> T: ...


class RunsAsync(Protocol):
    """A client for trio and asyncio."""

    async def run(self, request: Request[T]) -> T: ...


def blocking(make: Callable[P, Request[T]]) -> Callable[Concatenate[Runs, P], T]:
    """The method of a client that blocks."""

    def method(self: Runs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(make(*args, **kwargs))

    return described(method, make, "{}")


def awaited(
    make: Callable[P, Request[T]],
) -> Callable[Concatenate[RunsAsync, P], Coroutine[Any, Any, T]]:
    """The method of an asynchronous client."""

    async def method(self: RunsAsync, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(make(*args, **kwargs))

    return described(method, make, "{}")


def described(method: Method, make: Callable[..., Request[Any]], returns: str) -> Method:
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
