"""What a broker tells of itself: its groups, its topics, itself and others it knows of.

The broker answers in JSON (docs/reference/zbus.md, JSON documents). Here each key has the name that
`declare` has for it, with its unit: `ackTimeout` is `lease_ms`. A key that is not listed here is
passed over, and one that a broker does not tell has its default, so client and broker may be of
different versions. Times end in `_ms`: a moment is epoch milliseconds.
"""

from __future__ import annotations

from msgspec import Struct, field


class PushInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """A webhook, and how it goes since the start of the broker."""

    url: str
    concurrency: int = 0
    timeout_ms: int = 0
    signed: bool = False
    delivered: int = 0
    """Messages that the endpoint took."""
    failed: int = 0
    """Requests that it did not take."""
    error: str = ""
    """Why the last one was not taken; "" = it was."""
    failing_since: int = 0
    """The first failure since it took one, epoch milliseconds."""


class GroupInfo(Struct, frozen=True, kw_only=True):
    """A consumer group, as it was when the broker answered."""

    name: str = field(default="", name="groupName")
    topic: str = field(default="", name="topicName")
    mask: int = 0
    """How it was declared, as bits for the original's clients; 0: as its topic says."""
    filter: str = ""
    """Tags that it takes; empty: all."""
    ack: bool = field(default=False, name="ackRequired")
    """Its messages are leased until they are acknowledged."""
    lease_ms: int = field(default=10_000, name="ackTimeout")
    """How long a lease lasts."""
    window: int = field(default=100, name="ackWindow")
    """How many messages may be leased at once."""
    exclusive: bool = False
    """It lets in one consumer at a time."""
    temporary: bool = False
    """It goes with its last consumer."""
    paused: bool = False
    """It delivers nothing."""
    order: str = "none"
    """`key`: messages of one key come one after another."""
    max_attempts: int | None = field(default=None, name="maxAttempts")
    """Delivered that often, a message is dead; None: there is no such limit."""
    backoff_ms: int = field(default=0, name="backoffMs")
    """The pause before the second attempt, doubled before each further one."""
    backoff_max_ms: int | None = field(default=None, name="backoffMaxMs")
    """The longest pause that was declared."""
    dead_letter: str = field(default="", name="deadLetter")
    """The topic for what is dead; empty: it is dropped."""
    on_loss: str = field(default="keep", name="onLoss")
    """What becomes of a lost consumer's leases: `keep` or `front`."""
    rate: int | None = None
    """Messages a second, at most."""
    one_batch: bool = field(default=False, name="oneBatch")
    """What was delivered of a partition has to be settled before there is more of it."""
    keep_attempts: bool = field(default=False, name="keepAttempts")
    """A delivery is sent when its attempt is written, which a limit of attempts implies."""
    retain: bool = False
    """Retention forgets nothing that it has not finished."""
    push: PushInfo | None = None
    """The webhook that its messages are sent to."""
    unclaimed: bool = False
    """It came with its topic, and no client has asked for it yet: none waits for it."""
    message_count: int = field(default=0, name="messageCount")
    """Messages that are still to be delivered (the lag). The filter is not considered."""
    leased_count: int = field(default=0, name="leasedCount")
    """Messages that were delivered and are not acknowledged."""
    delayed_count: int = field(default=0, name="delayedCount")
    """Messages that are held back until they are due."""
    skipped_count: int = field(default=0, name="skippedCount")
    """Messages that were dropped before the group had finished them, ever."""
    dead_count: int = field(default=0, name="deadCount")
    """Messages that were given up, ever."""
    consumer_count: int = field(default=0, name="consumerCount")
    """Connections that read it."""
    consumers: list[str] = field(default_factory=list, name="consumerList")
    """Their addresses, as `/ip:port`."""
    created_ms: int = field(default=0, name="createdTime")
    """When it was made."""
    changed_ms: int = field(default=0, name="lastUpdatedTime")
    """When it was changed last."""


class TopicInfo(Struct, frozen=True, kw_only=True):
    """A topic and its groups, as they were when the broker answered."""

    name: str = field(default="", name="topicName")
    mask: int = 0
    """How it was declared, as bits for the original's clients."""
    ack: bool = False
    """What groups do that do not say it themselves; so are the next three."""
    exclusive: bool = False
    temporary: bool = False
    paused: bool = False
    rpc: bool = False
    """It is for calls."""
    durability: str = ""
    """What the answer to a produce waits for: memory, os, disk."""
    partitions: int = field(default=1, name="partitionCount")
    retention_ms: int | None = field(default=None, name="retentionMs")
    """Messages older than this are dropped; None: there is no such limit."""
    retention_bytes: int | None = field(default=None, name="retentionBytes")
    """About how many bytes of each partition are kept; None: there is no such limit."""
    retention_count: int | None = field(default=None, name="retentionCount")
    """About how many messages of each partition are kept; None: there is no such limit."""
    retention_done: bool = field(default=False, name="retentionDone")
    """What all groups have finished is dropped."""
    dedupe_ms: int = field(default=0, name="dedupeMs")
    """How long ids are remembered; 0: they are not looked at."""
    dedupe_live: bool = field(default=False, name="dedupeLive")
    """An id is taken as long as its message is not finished in every group."""
    settled_ms: int = field(default=0, name="settledMs")
    """How long it is known what became of messages; 0: it is forgotten at once."""
    sender_headers: bool = field(default=False, name="senderHeaders")
    """Messages are stored with how they came."""
    message_depth: int = field(default=0, name="messageDepth")
    """Messages ever put."""
    groups: list[GroupInfo] = field(default_factory=list, name="consumeGroupList")
    consumer_count: int = field(default=0, name="consumerCount")
    """Connections that read one of its groups."""
    created_ms: int = field(default=0, name="createdTime")
    """When it was made."""
    changed_ms: int = field(default=0, name="lastUpdatedTime")
    """When it was changed last."""


class ServerAddress(Struct, frozen=True, kw_only=True):
    """Where clients find a broker."""

    address: str = ""
    """`host:port`."""
    tls: bool = field(default=False, name="sslEnabled")


class ServerInfo(Struct, frozen=True, kw_only=True):
    """A broker and its topics. A token that may not see everything gets less."""

    topics: dict[str, TopicInfo] = field(default_factory=dict, name="topicTable")
    address: ServerAddress = field(default_factory=ServerAddress, name="serverAddress")
    version: str = field(default="", name="serverVersion")
    info_version: int = field(default=0, name="infoVersion")
    """Grows with each document, also over restarts: microseconds of the broker's time, or more."""
    connection_count: int | None = field(default=None, name="connectionCount")
    memory_bytes: int | None = field(default=None, name="memoryBytes")
    """Resident memory of the broker's process, where the system tells."""
    held_bytes: dict[str, int] = field(default_factory=dict, name="heldBytes")
    """What the broker holds in memory, in bytes by kind."""
    refusing: str = ""
    """Why puts are refused now; empty: they are not."""
    trackers: list[ServerAddress] = field(default_factory=list, name="trackerList")
    """The brokers that it reports to."""


class TrackerInfo(Struct, frozen=True, kw_only=True):
    """The brokers that one broker knows of, itself among them."""

    servers: dict[str, ServerInfo] = field(default_factory=dict, name="serverTable")
    """By address; `[SSL]` stands before an address that speaks TLS."""
    address: ServerAddress = field(default_factory=ServerAddress, name="serverAddress")
    """Of the tracker itself."""
    version: str = field(default="", name="serverVersion")
    info_version: int = field(default=0, name="infoVersion")
    """Grows with each document; what is not newer tells nothing new."""
