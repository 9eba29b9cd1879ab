"""The JSON documents in which a broker describes itself and its messages, once for all.

The broker writes them, the Python client reads them, and JSON Schema in `/_openapi.json` is made of
them (docs/reference/zbus.md, JSON documents). A key that is not listed here is ignored when a
document is read, and one that is missing has its default, so client and broker may be of different
versions. Fields that end in `_ms` are milliseconds; a moment is epoch milliseconds.

A field with a plain default is left out when it has that value; `written` ones never are. Fields
are in the order in which they are written, which for a group and a topic is that of their names.
"""

# No `from __future__ import annotations`: types are read when the module is imported.

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, get_args

from msgspec import Meta, Struct, field

T = TypeVar("T")

Level = Literal["memory", "os", "disk"]
"""How durable a topic is."""
Loss = Literal["keep", "front"]
"""What becomes of the leases of a connection that ends."""
Compatibility = Literal["backward", "forward", "full", "none"]
Order = Literal["none", "key", "priority"]
"""In which order messages of a group are delivered."""
State = Literal["delayed", "leased", "ready"]
"""What of a group can be listed."""
Span = Literal["hour", "day", "week"]
"""How far a history goes back."""


def written(make: Callable[[], T], name: str | None = None) -> T:
    """A field that is always written."""
    return field(default_factory=lambda: make(), name=name)


def about(text: str, **schema: Any) -> Meta:  # noqa: ANN401  # whatever JSON Schema has
    """What a field means, and what else its schema says. Nothing of it is checked."""
    return Meta(description=text, extra_json_schema=schema or None)


def _schema(**schema: Any) -> Meta:  # noqa: ANN401
    return Meta(extra_json_schema=schema)


Count = Annotated[int, _schema(minimum=0)]
Moment = Annotated[int, about("Epoch milliseconds.", format="int64")]
Name = Annotated[str, _schema(**{"$ref": "#/components/schemas/Name"})]
"""Of a topic or group."""


class Document(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, rename="camel"):
    """One of them."""


class ServerAddress(Document, frozen=True, kw_only=True):
    """Where clients find a broker."""

    address: Annotated[str, about("`host:port`.")] = written(str)
    tls: bool = written(bool, "sslEnabled")


class PushInfo(Document, frozen=True, kw_only=True):
    """A webhook, and how it goes since the start of the broker. Its secret is never shown."""

    concurrency: Annotated[Count, about("Requests that may be open at once.")] = written(int)
    delivered: Annotated[Count, about("Messages that the endpoint took.")] = written(int)
    error: Annotated[str, about("Why the last one was not taken; absent if it was.")] = ""
    failed: Annotated[Count, about("Requests that it did not take.")] = written(int)
    failing_since: Annotated[
        Moment, about("The first failure since it took one, epoch milliseconds.")
    ] = 0
    signed: Annotated[bool, about("It has a secret.")] = written(bool)
    timeout_ms: Annotated[Count, about("Longest time of a request.")] = written(int)
    url: str = written(str)


class Position(Document, frozen=True, kw_only=True):
    """How far a group is in one partition."""

    partition: Count
    cursor: Annotated[Count, about("The first offset that was never delivered.")]
    end: Annotated[Count, about("The offset after the newest message.")]
    ready: Annotated[Count, about("Messages still to be delivered.")]
    leased: Annotated[Count, about("Messages that were delivered and are not acknowledged.")]


class GroupInfo(Document, frozen=True, kw_only=True):
    """A consumer group, as it was when the broker answered."""

    ack: Annotated[bool, about("Its messages are leased until they are acknowledged.")] = written(
        bool
    )
    ack_required: Annotated[bool, about("The older word for `ack`.")] = written(bool)
    ack_timeout: Annotated[Count, about("The older word for `leaseMs`.")] = written(lambda: 10_000)
    ack_window: Annotated[Count, about("The older word for `window`.")] = written(lambda: 100)
    backoff_max_ms: Annotated[
        Count | None, about("The longest pause between attempts that was declared.")
    ] = None
    backoff_ms: Annotated[
        Count, about("The pause before the second attempt, doubled before each further one.")
    ] = 0
    consumer_count: Annotated[Count, about("Connections that read it.")] = written(int)
    consumers: Annotated[list[str], about("Their addresses, as `/ip:port`.")] = written(
        list, "consumerList"
    )
    created_ms: Annotated[Moment, about("When it was made, epoch milliseconds.")] = written(
        int, "createdTime"
    )
    dead_count: Annotated[Count, about("Messages that were given up, ever.")] = written(int)
    dead_letter: Annotated[
        Name, about("The topic that dead messages are put into; absent: they are dropped.")
    ] = ""
    delayed_count: Annotated[Count, about("Messages that are held back until due.")] = written(int)
    exclusive: Annotated[bool, about("It lets in one consumer at a time.")] = written(bool)
    filter: Annotated[str, about("Tags that it takes; absent: all.")] = ""
    name: Name = written(str, "groupName")
    keep_attempts: Annotated[
        bool,
        about("A delivery is sent when its attempt is written; a limit of attempts implies it."),
    ] = False
    changed_ms: Annotated[Moment, about("When it was changed last, epoch milliseconds.")] = written(
        int, "lastUpdatedTime"
    )
    lease_ms: Annotated[Count, about("How long a lease lasts.")] = written(lambda: 10_000)
    leased_count: Annotated[
        Count, about("Messages that were delivered and are not acknowledged.")
    ] = written(int)
    mask: Annotated[
        Count, about("How it was declared, as bits for the original's clients; 0: as its topic.")
    ] = written(int)
    max_attempts: Annotated[
        Count | None, about("Delivered that often, a message is dead; absent: no such limit.")
    ] = None
    message_count: Annotated[
        Count, about("Messages still to be delivered (the lag); no filter is considered.")
    ] = written(int)
    on_loss: Annotated[
        str,
        about("What becomes of a lost consumer's leases; absent: `keep`.", enum=[*get_args(Loss)]),
    ] = "keep"
    one_batch: Annotated[
        bool, about("What was delivered of a partition has to be settled before there is more.")
    ] = False
    order: Annotated[
        str,
        about("`key`: messages of one key come one after another.", enum=[*get_args(Order)]),
    ] = "none"
    paused: Annotated[bool, about("It delivers nothing.")] = written(bool)
    positions: Annotated[
        list[Position] | None,
        about("How far it is in each partition; only when this group alone was asked for."),
    ] = None
    push: Annotated[PushInfo | None, about("The webhook that its messages are sent to.")] = None
    rate: Annotated[Count | None, about("Messages a second, at most.")] = None
    retain: Annotated[bool, about("Retention forgets nothing that it has not finished.")] = False
    skipped_count: Annotated[
        Count, about("Messages that were dropped before the group had finished them, ever.")
    ] = written(int)
    temporary: Annotated[bool, about("It goes with its last consumer.")] = written(bool)
    topic: Name = written(str, "topicName")
    unclaimed: Annotated[
        bool, about("It came with its topic, and no client has asked for it yet.")
    ] = False
    window: Annotated[Count, about("How many messages may be leased at once.")] = written(
        lambda: 100
    )


class TopicInfo(Document, frozen=True, kw_only=True):
    """A topic and its groups, as they were when the broker answered."""

    ack: Annotated[
        bool, about("Of groups that do not say it themselves; so are the next three.")
    ] = False
    compact: Annotated[
        bool, about("The newest message of each key stays for ever, and older ones go.")
    ] = False
    compact_tombstone_ms: Annotated[
        Count | None, about("How long one without a body stays; absent: it is not compact.")
    ] = None
    groups: list[GroupInfo] = written(list, "consumeGroupList")
    consumer_count: Annotated[Count, about("Connections that read one of its groups.")] = written(
        int
    )
    created_ms: Annotated[Moment, about("When it was made, epoch milliseconds.")] = written(
        int, "createdTime"
    )
    dedupe_live: Annotated[
        bool, about("An id is taken as long as its message is not finished in every group.")
    ] = False
    dedupe_ms: Annotated[
        Count, about("How long ids are remembered; 0: they are not looked at.")
    ] = written(int)
    durability: Annotated[
        str,
        about("What the answer to a produce waits for.", enum=[*get_args(Level), "replicated"]),
    ] = written(str)
    exclusive: bool = False
    changed_ms: Annotated[Moment, about("When it was changed last, epoch milliseconds.")] = written(
        int, "lastUpdatedTime"
    )
    mask: Annotated[Count, about("How it was declared, as bits for the original's clients.")] = (
        written(int)
    )
    message_depth: Annotated[Count, about("Messages ever put.")] = written(int)
    partitions: Annotated[int, _schema(minimum=1)] = written(lambda: 1, "partitionCount")
    paused: bool = False
    retention_bytes: Annotated[
        Count | None, about("About how many bytes of each partition are kept; absent: no limit.")
    ] = None
    retention_count: Annotated[
        Count | None, about("About how many messages of each partition are kept; absent: no limit.")
    ] = None
    retention_done: Annotated[bool, about("What all groups have finished is dropped.")] = False
    retention_ms: Annotated[
        Count | None, about("Messages older than this are dropped; absent: no such limit.")
    ] = None
    rpc: Annotated[bool, about("It is for calls.")] = False
    schema_compatibility: Annotated[
        str | None, about("What a new version has to keep.", enum=[*get_args(Compatibility)])
    ] = None
    schema_version: Annotated[
        Count | None, about("Of the JSON Schema that bodies have to fit; absent: there is none.")
    ] = None
    sender_headers: Annotated[bool, about("Messages are stored with how they came.")] = False
    server_address: ServerAddress = written(ServerAddress)
    server_version: str = written(str)
    settled_ms: Annotated[
        Count, about("How long it is known what became of messages; absent: it is not.")
    ] = 0
    stored_count: Annotated[Count, about("Messages in its log, read or not.")] = written(int)
    temporary: bool = False
    name: Name = written(str, "topicName")


class ServerInfo(Document, frozen=True, kw_only=True):
    """A broker and its topics. A token that may not see everything gets less."""

    connection_count: Annotated[Count | None, about("For those who may see everything.")] = None
    held_bytes: Annotated[
        dict[str, int], about("What the broker holds in memory, in bytes by kind.")
    ] = field(default_factory=dict)
    info_version: Annotated[
        Count,
        about("Grows with each document, also over restarts: microseconds of the broker's time."),
    ] = written(int)
    memory_bytes: Annotated[
        Count | None, about("Resident memory of the process, where the system tells.")
    ] = None
    refusing: Annotated[str, about("Why nothing is put now, if so.")] = ""
    address: ServerAddress = written(ServerAddress, "serverAddress")
    version: str = written(str, "serverVersion")
    topics: Annotated[dict[str, TopicInfo], about("By name.")] = written(dict, "topicTable")
    trackers: Annotated[list[ServerAddress], about("The brokers that it reports to.")] = written(
        list, "trackerList"
    )


class TrackerInfo(Document, frozen=True, kw_only=True):
    """The brokers that one broker knows of, itself among them."""

    info_version: Annotated[Count, about("Grows with each document.")] = written(int)
    address: Annotated[ServerAddress, about("Of the tracker itself.")] = written(
        ServerAddress, "serverAddress"
    )
    servers: Annotated[
        dict[str, ServerInfo],
        about("By address; `[SSL]` stands before an address that speaks TLS."),
    ] = written(dict, "serverTable")
    version: str = written(str, "serverVersion")


class Message(Document, frozen=True, kw_only=True):
    """A message in JSON. Either `body` or `body_base64` is there."""

    id: str
    topic: Name
    partition: Count
    offset: Count
    timestamp: Moment
    consume_group: Annotated[Name, about("Of a delivery.")] = field(
        default="", name="consume_group"
    )
    tag: str = ""
    key: str = ""
    retry: Annotated[Count, about("Which redelivery this is, from 1.")] = 0
    headers: dict[str, str] = written(dict)
    size: Annotated[Count | None, about("Bytes of the body, which is cut: with `cut`.")] = None
    body: Annotated[str | None, about("If it is UTF-8.")] = None
    body_base64: Annotated[str | None, about("If it is not.")] = field(
        default=None, name="body_base64"
    )


class ListedMessage(Document, frozen=True, kw_only=True):
    """A message of a group, as `peek` lists it."""

    id: str
    topic: Name
    partition: Count
    offset: Count
    timestamp: Moment
    state: Annotated[str, _schema(enum=[*get_args(State)])]
    until: Annotated[Moment, about("When it is due, or its lease ends, epoch milliseconds.")] = 0
    attempts: Annotated[Count, about("Times it was delivered under a lease.")] = 0
    holder: Annotated[str, about("Who has it leased, as `/ip:port`.")] = ""
    tag: str = ""
    key: str = ""
    size: Annotated[Count, about("Bytes of its body.")]
    body: Annotated[str | None, about("If it was asked for and is UTF-8.")] = None
    body_base64: Annotated[str | None, about("If it is not.")] = field(
        default=None, name="body_base64"
    )


class Why(Document, frozen=True, kw_only=True):
    """Why a message is not with the consumers of a group."""

    text: Annotated[str, about("One sentence.")]
    state: str
    topic: Name
    consume_group: Name = field(name="consume_group")
    partition: Count
    offset: Count
    id: str = ""
    tag: str = ""
    key: str = ""
    timestamp: Moment = 0
    expires: Moment = 0
    until: Annotated[Moment, about("When it is due, or its lease ends, epoch milliseconds.")] = 0
    attempts: Annotated[Count, about("Times it was delivered under a lease.")] = 0
    holder: Annotated[str, about("Who has it leased, as `/ip:port`.")] = ""
    ended: Annotated[Moment, about("When the group was done with it, epoch milliseconds.")] = 0
    before: Annotated[Count, about("Messages that the group has to come past.")] = 0
    behind: Annotated[Count | None, about("The offset of the message whose end it waits for.")] = (
        None
    )
    letter_topic: Annotated[
        str, about("The dead-letter topic in which a dead message was found.")
    ] = ""
    letter_partition: Annotated[Count | None, about("Where it is there.")] = None
    letter_offset: Annotated[Count | None, about("Likewise.")] = None
    reason: Annotated[str, about("Of what it died: `expired`, `given back` or `lost`.")] = ""


class RightsInfo(Document, frozen=True, kw_only=True):
    """What the caller may do."""

    name: Annotated[str | None, about("Whose rights they are.")] = None
    operations: Annotated[list[str], about("`*` is all, `admin` all on every topic.")]
    tokens: Annotated[bool, about("Whether this broker has tokens; else all may do everything.")]
    topics: Annotated[dict[str, list[str]], about("Topics, each with groups of it; `*` is all.")]
    expires: Annotated[
        Moment | None, about("When they end, epoch milliseconds; absent if they do not.")
    ] = None


class Reads(Document, frozen=True, kw_only=True):
    """A group that a connection reads."""

    topic: Name
    group: Name


class Connection(Document, frozen=True, kw_only=True):
    """A connection that is open."""

    id: str
    address: Annotated[str, about("As `/ip:port`.")]
    kind: Literal["http", "websocket", "events"]
    tls: bool
    open_requests: Annotated[Count, about("Requests without a final answer.")]
    waiting_requests: Annotated[
        Count, about("Those of them that wait for messages or for a service.")
    ]
    held_bytes: Annotated[
        Count, about("Of replies that it has not taken yet, or that are being read.")
    ]
    stalled: Annotated[bool, about("It does not take what it is sent.")]
    idle_ms: Annotated[Count | None, about("Since something came from it.")] = None
    in_bytes: Annotated[Count | None, about("Bytes that came from it.")] = None
    out_bytes: Annotated[Count | None, about("Bytes that it was sent.")] = None
    since: Annotated[Moment | None, about("When it was made, epoch milliseconds.")] = None
    principal: Annotated[str, about("The name in its certificate.")] = ""
    user: Annotated[str, about("The name of its token.")] = ""
    reads: list[Reads]


class Health(Document, frozen=True, kw_only=True):
    """Whether a broker lives, or is ready for work."""

    status: Literal["ok", "failing"]
    reasons: list[str]


class ShardInfo(Document, frozen=True, kw_only=True):
    """A shard of a cluster, as the node that was asked knows it."""

    shard: Count
    node: Annotated[str, about("Its owner's node; absent: it has no owner just now.")] = ""
    epoch: Annotated[Count, about("Which owner it is, from 1.")] = 0
    since_ms: Annotated[Count, about("For how long that node has known this owner.")] = 0
    sequence: Annotated[Count, about("Of the newest message in its stream that is confirmed.")] = 0
    late_ms: Annotated[
        Count, about("Since when the NATS servers have confirmed nothing to its owner.")
    ] = 0
    moved: Annotated[bool, about("It was moved there by hand.")] = False
    moving_to: Annotated[str, about("The node that it is being moved to.")] = ""
    opening: Annotated[str, about("The node that has claimed it and reads what is there.")] = ""


class NodeInfo(Document, frozen=True, kw_only=True):
    """A node of a cluster, as the node that was asked knows it."""

    node: str
    address: Annotated[str, about("Where clients reach it, `host:port`.")] = ""
    relay: Annotated[str, about("Where other nodes reach it, `host:port`.")] = ""
    version: str = ""
    live: Annotated[bool, about("It was heard within the last two seconds.")]
    since_ms: Annotated[Count, about("For how long it has been heard, or not been heard.")]
    spares: Annotated[Count, about("Processes of it that wait to claim a shard.")]
    shards: Annotated[list[int], about("Shards that it owns.")]


class ClusterInfo(Document, frozen=True, kw_only=True):
    """Who owns the shards of a cluster, as the node that was asked knows it."""

    cluster: Annotated[str, about("Its name.")]
    asked: Annotated[str, about("The node that was asked.")]
    nodes: list[NodeInfo]
    shards: list[ShardInfo]
    warnings: Annotated[list[str], about("What an operator should know, in sentences.")]


class GroupStats(Document, frozen=True, kw_only=True):
    """A consumer group as it is now."""

    consumers: Count
    dead: Count
    delayed: Count
    last_read_time: Annotated[
        Moment | None, about("When it was seen to read, epoch milliseconds.")
    ] = None
    leased: Count
    out_count: Annotated[Count, about("Messages behind it: rates are differences of this.")]
    paused: bool
    push_delivered: Annotated[Count | None, about("Requests of its webhook that were taken.")] = (
        None
    )
    push_failed: Count | None = None
    ready: Count
    skipped: Count
    unclaimed: Annotated[
        bool, about("It came with its topic, and no client has asked for it yet.")
    ] = False


class TopicStats(Document, frozen=True, kw_only=True):
    """A topic as it is now."""

    consumer_count: Count
    depth: Annotated[Count, about("Messages in its log, read or not.")]
    groups: dict[str, GroupStats]
    in_count: Annotated[Count, about("Messages put, ever: rates are differences of this.")]
    partition_count: Count
    paused: bool


class WarningInfo(Document, frozen=True, kw_only=True):
    """What an operator should know."""

    kind: str
    topic: Name = ""
    group: Name = ""
    text: Annotated[str, about("A sentence.")]


class WarningKind(Document, frozen=True, kw_only=True):
    """How many warnings of a kind there are, whether they are listed or not."""

    count: Count
    topics: Annotated[Count, about("That they are about.")]


Values = Annotated[
    list[float | None] | None, about("One for each step, the oldest first; null: not known.")
]


class History(Document, frozen=True, kw_only=True):
    """How busy a broker, a topic or a group was, step by step. The first four are for a second of
    each step, the others what there was at most."""

    span: Span
    start: Annotated[Moment, about("When the first step began, epoch milliseconds.")]
    step_ms: Count
    topic: Name = ""
    consume_group: Name = field(default="", name="consume_group")
    untracked: Annotated[
        bool, about("It is none of those whose history is kept: others are busier.")
    ] = False
    in_rate: Annotated[Values, about("Messages put.")] = field(default=None, name="in")
    bytes_rate: Annotated[Values, about("Bytes of them, as they are stored.")] = field(
        default=None, name="bytes"
    )
    out_rate: Annotated[Values, about("Messages that groups took.")] = field(
        default=None, name="out"
    )
    acked_rate: Annotated[Values, about("Messages that groups have finished.")] = field(
        default=None, name="acked"
    )
    backlog: Annotated[
        Values, about("Ready or leased, in the group of a topic that is furthest behind.")
    ] = None
    ready: Annotated[Values, about("Of a group; so are the next two.")] = None
    leased: Values = None
    dead: Annotated[Values, about("Given up, ever.")] = None


class EngineStats(Document, frozen=True, kw_only=True):
    """A storage engine that is elsewhere."""

    address: Annotated[str, about("The NATS servers and the cluster, as the option `engine`.")]
    epoch: Annotated[Count, about("Of this ownership of the stream.")]
    sequence: Annotated[Count, about("Of the newest message of the stream.")]
    unconfirmed_ms: Annotated[Count, about("Since the last write that is confirmed was sent.")]
    in_doubt: Annotated[bool, about("The result of a write is not known yet.")]
    bytes: Annotated[Count, about("Size of the stream.")]
    bytes_max: Annotated[Count, about("Its limit; 0 = none.")]


class ClusterStats(Document, frozen=True, kw_only=True):
    """How a cluster does."""

    live_nodes: Annotated[Count, about("Nodes that are heard.")]
    free_shards: Annotated[Count, about("Shards without an owner.")]


class Stats(Document, frozen=True, kw_only=True):
    """How a broker does. What may be absent is for those who may see everything."""

    cluster: ClusterStats | None = None
    connection_count: Count | None = None
    cpu_ms: Annotated[Count | None, about("Processor time of the process.")] = None
    disk_free_bytes: Count | None = None
    disk_free_min_bytes: Annotated[Count | None, about("With less free, nothing is put.")] = None
    disk_total_bytes: Count | None = None
    draining: Annotated[bool, about("The broker is stopping.")]
    engine: EngineStats | None = None
    held_bytes: dict[str, Count] | None = None
    in_count: Annotated[Count, about("Messages ever put into these topics.")]
    max_files: Annotated[Count | None, about("Descriptors that may be open.")] = None
    memory_bytes: Annotated[Count | None, about("Resident.")] = None
    memory_total_bytes: Annotated[Count | None, about("What the process could have.")] = None
    out_count: Annotated[Count, about("Messages that these groups have behind them.")]
    refusing: Annotated[str, about("Why nothing is put now, if so.")] = ""
    reserve_bytes: Annotated[Count | None, about("Kept for acknowledgements.")] = None
    server_address: str
    server_version: str
    start_time: Moment | None = None
    sync_ms: dict[str, float] | None = None
    threads: Count | None = None
    time: Moment
    topic_count: Count
    topics: dict[str, TopicStats | None] | None = None
    warning_count: Count
    warning_kinds: Annotated[
        dict[str, WarningKind], about("Those of topics and groups, by their kind.")
    ]
    warnings: Annotated[
        list[WarningInfo],
        about("The worst first. If there are too many, about as many of each kind."),
    ]


class ServerEvent(Document, frozen=True, kw_only=True):
    """What a broker reports to its trackers."""

    server_info: Annotated[dict[str, Any], about("Of it, `serverAddress` must be there.")]
    certificate: Annotated[str, about("As PEM.")] = ""
    live: bool = True


DOCUMENTS: dict[str, type[Document]] = {kind.__name__: kind for kind in Document.__subclasses__()}
"""By name, as `/_openapi.json` has them."""
