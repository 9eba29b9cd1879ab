"""Other servers, as they report themselves with `track_pub` (specification, section 7).

What comes in is read into these types and nothing else: names that are not in them (`@type` above
all, which makes some readers of JSON build objects) are dropped, and what is told to clients is
written anew. A server is forgotten when the session that reported it last has gone, or has not
reported for `SILENCE_MS`.
"""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from zbus.core.api import Session
from zbus.edge.access import Grant
from zbus.protocol.documents import ServerAddress, ServerInfo, TopicInfo

SILENCE_MS = 90_000
SERVERS_MAX = 256
BYTES_MAX = 64 << 20
"""Of all that is remembered, as JSON."""

Number = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Name = Annotated[str, Meta(max_length=200)]
Text = Annotated[str, Meta(max_length=255)]
Certificate = Annotated[str, Meta(max_length=64 << 10)]


class Address(Struct, rename="camel"):
    """ServerAddress."""

    address: Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[!-~]+\Z")]
    ssl_enabled: bool = False

    @property
    def key(self) -> str:
        """How a TrackerInfo names the server."""
        return "[SSL]" + self.address if self.ssl_enabled else self.address

    def document(self) -> ServerAddress:
        """As it is told on."""
        return ServerAddress(address=self.address, tls=self.ssl_enabled)


class Group(Struct, rename="camel"):
    """ConsumeGroupInfo."""

    group_name: Name
    topic_name: Name = ""
    mask: Number = 0
    message_count: Number = 0
    consumer_count: Number = 0
    consumer_list: Annotated[list[Text], Meta(max_length=100_000)] = []
    created_time: Number = 0
    last_updated_time: Number = 0
    filter: Text | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        if self.filter is None:
            self.filter = UNSET


class Topic(Struct, rename="camel"):
    """TopicInfo."""

    server_address: Address
    topic_name: Name
    server_version: Text = ""
    mask: Number = 0
    message_depth: Number = 0
    consumer_count: Number = 0
    consume_group_list: Annotated[list[Group], Meta(max_length=100_000)] = []
    created_time: Number = 0
    last_updated_time: Number = 0


class Server(Struct, rename="camel"):
    """ServerInfo."""

    server_address: Address
    server_version: Text = ""
    info_version: Number = 0
    topic_table: Annotated[dict[Name, Topic], Meta(max_length=1_000_000)] = {}
    tracker_list: Annotated[list[Address], Meta(max_length=1_000)] | None = None


class Event(Struct, rename="camel"):
    """ServerEvent, the body of a `track_pub`."""

    server_info: Server
    certificate: Certificate | None = None
    live: bool = True


_EVENTS = msgspec.json.Decoder(Event)
_ENCODER = msgspec.json.Encoder(order="sorted")


def read_event(body: bytes) -> Event | str:
    """The event, or what is wrong with it."""
    try:
        return _EVENTS.decode(body)
    except RecursionError:
        return "the JSON is nested too deeply"
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return str(error)


_TOPICS = msgspec.json.Decoder(Topic)


def visible(name: str, encoded: bytes, grant: Grant | None) -> bytes | None:
    """What a grant may see of a topic, as JSON; None = nothing."""
    if grant is None or grant.sees_all(name):
        return encoded
    if not grant.sees(name):
        return None
    topic = _TOPICS.decode(encoded)
    groups = [group for group in topic.consume_group_list if grant.sees(name, group.group_name)]
    topic.consume_group_list = groups
    topic.consumer_count = sum(group.consumer_count for group in groups)
    return _ENCODER.encode(topic)


class Known:
    """One server: what it said last, each topic as JSON already."""

    __slots__ = (
        "address",
        "bytes_used",
        "certificate",
        "reporter",
        "server",
        "silent_ms",
        "topics",
    )

    def __init__(self, event: Event, reporter: Session, silent_ms: int) -> None:
        server = event.server_info
        self.address = server.server_address
        self.certificate = event.certificate or ""
        self.reporter = reporter
        self.silent_ms = silent_ms  # when it has been silent for too long
        self.topics = {name: _ENCODER.encode(topic) for name, topic in server.topic_table.items()}
        self.server = server
        server.topic_table = {}
        self.bytes_used = len(self.certificate) + len(_ENCODER.encode(server))
        self.bytes_used += sum(len(name) + len(topic) for name, topic in self.topics.items())

    def document(self, grant: Grant | None) -> ServerInfo:
        """What a grant may see of it."""
        shown = {name: visible(name, topic, grant) for name, topic in self.topics.items()}
        topics = {name: msgspec.Raw(topic) for name, topic in shown.items() if topic}
        return ServerInfo(
            info_version=self.server.info_version,
            address=self.address.document(),
            version=self.server.server_version,
            topics=cast("dict[str, TopicInfo]", topics),
            trackers=[each.document() for each in self.server.tracker_list or []],
        )


class Servers:
    """All servers that are known at a time, by key; the one that was silent longest first."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self.bytes_used = 0

    def __len__(self) -> int:
        return len(self._known)

    def documents(self, grant: Grant | None) -> dict[str, ServerInfo]:
        """What a grant may see of each; None = everything."""
        return {key: known.document(grant) for key, known in self._known.items()}

    def certificate(self, address: str) -> str:
        """The certificate of the server at this address; empty if there is none."""
        found = (k.certificate for k in self._known.values() if k.address.address == address)
        return next((certificate for certificate in found if certificate), "")

    def report(self, event: Event, reporter: Session, now_ms: int) -> str:
        """Remember what a server said; returns why that cannot be, or nothing."""
        known = Known(event, reporter, now_ms + SILENCE_MS)
        key = known.address.key
        before = self._known.get(key)
        bytes_used = self.bytes_used - (before.bytes_used if before else 0)
        if before is None and len(self._known) >= SERVERS_MAX:
            return f"there are {SERVERS_MAX} servers already"
        if bytes_used + known.bytes_used > BYTES_MAX:
            return f"the documents of all servers are over {BYTES_MAX} bytes"
        self.forget(key)
        self._known[key] = known
        self.bytes_used += known.bytes_used
        return ""

    def forget(self, key: str) -> bool:
        """The server is gone; False if it was not known."""
        known = self._known.pop(key, None)
        if known is None:
            return False
        self.bytes_used -= known.bytes_used
        return True

    def forget_reporter(self, session: Session) -> bool:
        """The session is gone, and with it the servers that it was the last to report."""
        keys = [key for key, known in self._known.items() if known.reporter is session]
        return any([self.forget(key) for key in keys])

    def forget_silent(self, now_ms: int) -> bool:
        keys = [key for key, known in self._known.items() if known.silent_ms <= now_ms]
        return any([self.forget(key) for key in keys])

    def next_silent(self) -> int | None:
        """When `forget_silent` has something to do."""
        return next((known.silent_ms for known in self._known.values()), None)
