"""The Python client: `connect` for programs that block, `connect_async` for trio and asyncio.

    with zbus.client.connect("http://127.0.0.1:15555") as bus:
        bus.declare("Orders", "billing", ack=True)
        bus.produce("Orders", "two chairs", tag="eu.de")
        with bus.consume("Orders", "billing") as messages:
            for message in messages:
                print(message.text)

(docs/howto/python-client.md, docs/reference/python-client.md)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zbus.client.async_client import AsyncPending, AsyncPipeline, Client, connect_async
    from zbus.client.blocking import BlockingClient, Pending, Pipeline, connect
    from zbus.client.errors import (
        BadRequest,
        Conflict,
        ConnectionLost,
        Forbidden,
        Full,
        NotFound,
        NotLeased,
        Overloaded,
        ProtocolError,
        Refused,
        RpcError,
        Timeout,
        TooLarge,
        TooMany,
        Unanswered,
        ZbusError,
    )
    from zbus.client.messages import Delivery, Message, Stored, StoredBatch
    from zbus.client.options import DEFAULT_URL, Options
    from zbus.client.readers.async_consumer import AsyncConsumer, AsyncHeld
    from zbus.client.readers.async_watcher import AsyncWatcher
    from zbus.client.readers.consumer import Consumer, Held
    from zbus.client.readers.watcher import Watcher
    from zbus.client.requests import Request
    from zbus.client.scheduling import Scheduled
    from zbus.client.service import Service, current_call
    from zbus.client.single import Listed, Redriven
    from zbus.protocol.documents import GroupInfo, ServerAddress, ServerInfo, TopicInfo, TrackerInfo
    from zbus.protocol.parameters import Retries

__all__ = [
    "DEFAULT_URL",
    "AsyncConsumer",
    "AsyncHeld",
    "AsyncPending",
    "AsyncPipeline",
    "AsyncWatcher",
    "BadRequest",
    "BlockingClient",
    "Client",
    "Conflict",
    "ConnectionLost",
    "Consumer",
    "Delivery",
    "Forbidden",
    "Full",
    "GroupInfo",
    "Held",
    "Listed",
    "Message",
    "NotFound",
    "NotLeased",
    "Options",
    "Overloaded",
    "Pending",
    "Pipeline",
    "ProtocolError",
    "Redriven",
    "Refused",
    "Request",
    "Retries",
    "RpcError",
    "Scheduled",
    "ServerAddress",
    "ServerInfo",
    "Service",
    "Stored",
    "StoredBatch",
    "Timeout",
    "TooLarge",
    "TooMany",
    "TopicInfo",
    "TrackerInfo",
    "Unanswered",
    "Watcher",
    "ZbusError",
    "connect",
    "connect_async",
    "current_call",
]

_PLACES = {
    "client.async_client": "AsyncPending AsyncPipeline Client connect_async",
    "client.blocking": "BlockingClient Pending Pipeline connect",
    "client.commands": "",
    "client.errors": "BadRequest Conflict ConnectionLost Forbidden Full NotFound NotLeased"
    " Overloaded ProtocolError Refused RpcError Timeout TooLarge TooMany Unanswered ZbusError",
    "client.messages": "Delivery Message Stored StoredBatch",
    "client.options": "DEFAULT_URL Options",
    "client.readers.async_consumer": "AsyncConsumer AsyncHeld",
    "client.readers.async_watcher": "AsyncWatcher",
    "client.readers.consumer": "Consumer Held",
    "client.readers.watcher": "Watcher",
    "client.requests": "Request",
    "client.scheduling": "Scheduled",
    "client.service": "Service current_call",
    "client.single": "Listed Redriven",
    "protocol.documents": "GroupInfo ServerAddress ServerInfo TopicInfo TrackerInfo",
    "protocol.parameters": "Retries",
}
"""The modules of these names. Each is imported when a name of it is used first: a command of the
shell, which sends one request, would wait longer for the rest than for the broker."""

if not TYPE_CHECKING:  # or every name would be known to a type checker

    def __getattr__(name: str) -> object:
        for place, names in _PLACES.items():
            if name in names.split():
                found = globals()[name] = getattr(import_module(f"zbus.{place}"), name)
                return found
        if f"client.{name}" in _PLACES:
            return import_module(f"zbus.client.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
