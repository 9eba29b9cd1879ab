"""Options of the zbus dialect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import attrs

from zbus.core.api import Histogram
from zbus.edge.connection import Connection
from zbus.option import ADDRESSES, listed, number, option
from zbus.protocol.documents import ClusterInfo

_HOUR_MS = 3_600_000


def _no_certificate() -> str:
    return ""


@attrs.frozen(slots=False, kw_only=True)
class NativeOptions:
    """The zbus dialect: topics, calls, trackers, webhooks, metrics."""

    durability: Literal["memory", "os", "disk"] = option(
        "disk",
        "What a reply waits for, unless the topic says otherwise: nothing, the write, the sync.",
    )
    tracker_list: str = option(
        "",
        "Trackers to report to, `host:port`, with commas between.",
        ADDRESSES,
        "{!r} is not of the form host:port,host:port",
    )
    tracker_token: str = option(
        "",
        "The token for `track_pub` there.",
        r"^[^\x00-\x1f\x7f-\xa0\u2028\u2029]*\Z",
        "it holds what no header can",
    )
    navigation_timeout_ms: int = number(
        30_000, 100, _HOUR_MS, "Longest wait of a browser page that asks for a message."
    )
    call_timeout_ms: int = number(
        30_000, 100, 24 * _HOUR_MS, "Longest wait for an RPC answer, if the call names none."
    )
    retention_ms: int = number(
        0,
        0,
        10 * 365 * 24 * _HOUR_MS,
        "Topics drop messages older than this, unless they set a limit of their own; 0 = keep for "
        "ever.",
    )
    retention_bytes: int = number(
        0,
        0,
        1 << 50,
        "A partition keeps about this many bytes, unless its topic sets a limit of its own; 0 = "
        "unlimited.",
    )
    reload_window_ms: int = number(
        2_000,
        0,
        _HOUR_MS,
        "A browser page that puts a message and is loaded again within this time stores it once; "
        "0 = off.",
    )
    message_headers_bytes_max: int = number(
        2_048,
        256,
        65_536,
        "Header lines of a message, with its tag and keys, as a plain HTTP reply has them. With "
        "what the broker adds, the head of a reply has at most 1,852 bytes more; nginx as it comes "
        "takes 4 KiB.",
    )
    push_networks: str = option(
        "",
        "Networks beside public addresses that [webhooks](zbus.md#webhooks) may be sent to, with "
        "commas between: `127.0.0.0/8, 10.1.2.3`.",
        r"^[0-9A-Fa-f:., /]*\Z",
        "{!r} is not networks such as 10.0.0.0/8 with commas between",
    )
    push_connections_max: int = number(
        256,
        0,
        10_000,
        "Requests of all webhooks that may be open at once; each group has its part of them, and "
        "at least one. 0 = no webhooks.",
    )
    metrics_topics_max: int = number(
        1_000,
        0,
        100_000,
        "Topics that `/_metrics` tells of one by one, and as many consumer groups; all others are "
        "summed up as `other`.",
    )
    history: Literal["on", "off"] = option(
        "on",
        "Whether the broker remembers how busy it was in the last week, for the "
        "[console](../howto/console.md) and [`history`](zbus.md#history).",
    )
    rpc_url: Literal["seed", "module-path"] = option(
        "seed",
        "How a call reads as URL: `/topic/method/args?module=` or `/topic/module/method/args`.",
    )

    @property
    def trackers(self) -> tuple[str, ...]:
        """That this broker reports to: host:port."""
        return listed(self.tracker_list)


@attrs.define
class Timings:
    """How long things took, in seconds."""

    sync: Histogram = attrs.field(factory=Histogram)  # rounds of syncing
    turn: Histogram = attrs.field(factory=Histogram)  # of the loop
    replies: dict[str, Histogram] = attrs.field(factory=dict)  # samples, by command


class Refused(NamedTuple):
    """Why something is not done."""

    status: int
    text: str


@attrs.frozen
class Traffic:
    """What has gone over a connection."""

    in_bytes: int
    out_bytes: int
    age_ms: int  # since it was made


class Cluster(Protocol):
    """The nodes that this server is one of."""

    @property
    def hears(self) -> bool:
        """Whether it hears of the others."""

    def document(self) -> ClusterInfo:
        """What is known of all."""

    def move(self, shard: int, node: str) -> Refused | None:
        """Give the shard of this process to a node, once what is open is answered; or why not."""


class Kept(Protocol):
    """What is kept over restarts."""

    def save(self) -> Callable[[], bytes]:
        """A call that gives it as bytes; another thread may make it."""

    def load(self, data: bytes) -> None:
        """Raises ValueError if that is not what was saved."""


class Running(Protocol):
    """The server around the broker."""

    @property
    def cluster(self) -> Cluster | None:
        """None: messages are not replicated."""

    def figures(self) -> dict[str, Any]:
        """What is known of the process and the machine, as `stats` tells it."""

    @property
    def timings(self) -> Timings:
        """How long things took since the start."""

    @property
    def visitors(self) -> Mapping[bytes, bytes]:
        """Sessions here of clients that are connected to another worker, and the ids that these
        have there."""

    def keep(self, history: Kept) -> None:
        """Over restarts."""

    def idle_ms(self, peer: Connection) -> int:
        """How long nothing has come from this connection."""

    def traffic(self, peer: Connection) -> Traffic | None:
        """What has gone over this connection; None = it is not known."""

    def disconnect(self, peer: Connection) -> None:
        """End this connection, at the beginning of the next turn."""


@attrs.frozen(slots=False, kw_only=True)
class ZbusSettings(NativeOptions):
    """The options, and what only a running server knows."""

    # Declared by the core and by the loop, which keep to them, too.
    batch_messages_max: int = 100_000
    tickets_per_connection_max: int = 1_024
    address: str = "127.0.0.1:15555"  # where clients reach this broker: host:port
    tls: bool = False  # they reach it there by TLS
    certificate: Callable[[], str] = _no_certificate  # as PEM, as it is now; "" = there is none
    # Resident bytes of the process, if the system tells; None = say nothing about the process.
    memory_used: Callable[[], int | None] | None = None
    # Bytes of it by kind of what is held; None = not counted.
    held: Callable[[], dict[str, int]] | None = None
    running: Running | None = None  # None = a broker without a server
    version: str = "0"
    storage_durability: str = ""  # what the engine makes of the levels `disk` and `os`

    def connections(self, sessions: Collection[bytes]) -> int:
        """How many of the sessions are connections of clients."""
        visitors = () if self.running is None else self.running.visitors
        return len(sessions) - sum([id in sessions for id in visitors])  # one may be leaving

    def effective_durability(self, level: str) -> str:
        """What a topic of this level is worth here."""
        return self.storage_durability if self.storage_durability and level != "memory" else level
