"""Endpoints of SEMQ: a durable outbox and inbox beside an application, and what talks to them.

`connect` is for applications of trio and asyncio, `connect_blocking` for the others; the program
that they connect to is `zbus semq run` (docs/howto/store-and-forward.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zbus.semq.app.blocking import BlockingMessage, BlockingSemq, connect_blocking
    from zbus.semq.app.library import Message, Semq, connect
    from zbus.semq.app.protocol import Happened, Sent, Wishes

__all__ = [
    "BlockingMessage",
    "BlockingSemq",
    "Happened",
    "Message",
    "Semq",
    "Sent",
    "Wishes",
    "connect",
    "connect_blocking",
]

_PLACES = {
    **dict.fromkeys(("Happened", "Sent", "Wishes"), "app.protocol"),
    **dict.fromkeys(("BlockingMessage", "BlockingSemq", "connect_blocking"), "app.blocking"),
    **dict.fromkeys(("Message", "Semq", "connect"), "app.library"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # a module's attribute may be anything
    """Imported when it is used: the broker needs `zbus.semq.protocol` alone."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'zbus.semq' has no attribute {name!r}")
    return getattr(import_module(f"zbus.semq.{place}"), name)
