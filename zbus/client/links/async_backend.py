"""Which event loop a coroutine is for, as far as its code says so."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, get_args

Flavour = Literal["trio", "asyncio"]


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine, also for an object that can be called."""
    if inspect.iscoroutinefunction(function):
        return True
    return not inspect.isroutine(function) and inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # what kind it is, not whether it is
    )


def flavour_of(function: Callable[..., Any]) -> Flavour | None:
    """`trio` or `asyncio` if the coroutine names that module, or something of it; None if it names
    neither, or is no coroutine: then it works with both, or that is unknown."""
    if not is_coroutine_function(function):
        return None
    code = _plain(function)
    if code is None:
        return None
    for name in _names(code.__code__):
        value = code.__globals__.get(name)
        module = value.__name__ if isinstance(value, ModuleType) else _module_of(value)
        for flavour in get_args(Flavour):
            if module.split(".")[0] == flavour:
                return "trio" if flavour == "trio" else "asyncio"
    return None


def running_flavour() -> Flavour:
    """Of the event loop that runs this code."""
    asyncio = sys.modules.get("asyncio")  # it takes long to import; if it runs, it is here
    return "trio" if asyncio is None or asyncio._get_running_loop() is None else "asyncio"


def _plain(function: object) -> FunctionType | None:
    """The function within what was made of it."""
    while not isinstance(function, FunctionType):
        if isinstance(function, partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        else:
            within = getattr(type(function), "__call__", None)  # noqa: B004  # as above
            return within if isinstance(within, FunctionType) else None
    return function


def _names(code: CodeType) -> Iterator[str]:
    """Of all globals and modules that it names, and the functions in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _module_of(value: object) -> str:
    return str(getattr(value, "__module__", None) or "")
