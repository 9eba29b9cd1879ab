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

from typing import Unpack

from zbus.client.async_client import AsyncPending, AsyncPipeline, Client
from zbus.client.blocking import BlockingClient, Pending, Pipeline
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
from zbus.client.options import DEFAULT_URL, OptionArguments, Options
from zbus.client.readers.consumer import AsyncConsumer, AsyncHeld, Consumer, Held
from zbus.client.readers.watcher import AsyncWatcher, Watcher
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


def connect(url: str = DEFAULT_URL, **options: Unpack[OptionArguments]) -> BlockingClient:
    """Connect to a broker, for a program that blocks. `options` are those of `Options`.

    `url` is `http://host:port`, `https://host:port` or `unix:/path`. Raises ConnectionLost if there
    is no broker, ValueError for another URL.
    """
    return BlockingClient(url, Options(**options)).open()


def connect_async(url: str = DEFAULT_URL, **options: Unpack[OptionArguments]) -> Client:
    """The same for trio and asyncio: `async with connect_async(...) as bus`."""
    return Client(url, Options(**options))
