"""Every parameter that a command takes: name, kind, default and meaning, once for all.

HTTP, its description, the shell's options and the Python client are made of these rows. A row says
which kind of value a parameter has; how large that may be is the broker's to say
(`zbus.dialects.zbus.schema.kinds`). The types of what Python programs may give are below the rows
of a put and of a declare. Which command takes which is the table of
`zbus.dialects.zbus.schema.commands`.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

from zbus.protocol.documents import Compatibility, Level, Loss, Order

OFFSETS_MAX = 10_000
READ_BYTES_DEFAULT = 1 << 20
READ_COUNT_DEFAULT = 100
STATS_INTERVAL_MS_MIN = 1_000
REDRIVE_COUNT_DEFAULT = 1_000

TIMES = frozenset(
    (
        "duration",
        "lifetime",
        "lease",
        "own lease",
        "push timeout",
        "interval",
        "pauses",
        "time",
        "time to come",
    )
)
"""Kinds of milliseconds, which a name in Python says."""


REQUIRED = "required"

_LINK = re.compile(r"\[([^]]*)\]\(#[^)]*\)")  # of our own texts; elsewhere links lead nowhere


class Parameter(NamedTuple):
    """One key of the query; the same name works as a header, and so does `spelled`."""

    name: str
    kind: str
    default: str  # for people
    meaning: str  # Markdown, without a full stop
    former: tuple[str, ...] = ()  # other names of the same, which stock clients and old ones use

    @property
    def spelled(self) -> str:
        """As it is documented. Proxies drop header lines with `_` in their names (nginx does, by
        default), so that every name is also taken with `-`."""
        return self.name.replace("_", "-")

    @property
    def line(self) -> str:
        """Its header line in the original's own protocol, where `ack` asks for a reply."""
        return "group_ack" if "group_ack" in self.former else self.name

    @property
    def described(self) -> str:
        """What it means, in sentences without links."""
        text = _LINK.sub(r"\1", self.meaning)
        default = "" if self.default in (REQUIRED, "none") else f" Default: {self.default}."
        return f"{text[0].upper()}{text[1:]}.{default}"

    @property
    def python(self) -> str:
        """What the Python client calls it."""
        name = self.name.replace("-", "_").removeprefix("group_")
        return f"{name}_ms" if self.kind in TIMES and not name.endswith("_ms") else name


def _parameters(table: str) -> tuple[Parameter, ...]:
    """Rows of name, kind, default and meaning; a line that is indented belongs to the one before.
    Behind a name may be former ones of it."""
    rows = table.strip().replace("\n    ", " ").split("\n")
    found = []
    for row in rows:
        names, kind, default, meaning = [cell.strip() for cell in row.split("|")]
        name, *former = names.split(", ")
        found.append(Parameter(name, kind, default, meaning, tuple(former)))
    return tuple(found)


OF_TOPIC = _parameters("topic | name | required | the topic")
OF_GROUP = (
    *OF_TOPIC,
    *_parameters("consume_group | text | the topic's name | the group"),
)
ACK = _parameters("ack | flag, true | true | whether to reply; plain HTTP always gets a reply")

PUT = _parameters("""
idempotency-key | idempotency key | none | names the request: it is [stored once](#putting-once)
expected_offset | number | any | [store it only there](#putting-once)
tag | tag | none | dotted words that [filters](#filters) match
key | key | none | messages of one key are in one [partition](#partitions), in order
partition | number | by key | put it there
front | switch | false | [before all that is ready](#putting-in-front) in each group that is there
delay | duration | 0 | how long until it is [due](#delay-and-expiry)
deliver_at | time to come | none | when it is due: a [time](#durations-sizes-and-times)
ttl | lifetime | none | how long until it expires
priority | priority | 0 | 0 to 9: a group with [`group_order=priority`](#priorities) takes the
    highest first
max_attempts | attempts | none: as its group says | delivered this often without an ack, it is
    [dead](#retries), whatever its group says
""")
"""Where and when a message is put, and with which labels."""


class Put(TypedDict, total=False):
    """The same for programs in Python. What is None is as if it were not given."""

    idempotency_key: str | None
    expected_offset: int | None
    tag: str | None
    key: str | None
    partition: int | None
    front: bool | None
    delay_ms: int | None
    deliver_at_ms: int | None
    ttl_ms: int | None
    priority: int | None
    max_attempts: int | None


PRODUCE = PUT + _parameters("""
id | id | where it went | also the message's id. Ids need not be unique, unless the topic has
    [`dedupe_ms` or `dedupe_live`](#putting-once). Made if absent, it is for instance `0-17`
idempotent | flag | false | the request's `id` is its [idempotency key](#putting-once)
cron | cron | none | put it [again and again](#schedules): `0 9 * * 1-5`
cron_zone | zone | `UTC` | the time zone of `cron`: `Europe/Berlin`
ack_topic | name | none | [acknowledge](#ack-and-produce-in-one) deliveries of this topic with it
ack_group | text | the name of `ack_topic` | of this consumer group
ack_offset | offsets | none | of these deliveries: numbers and ranges, `3,5-9,12`
ack_partition | number | 0 | of the deliveries
timeout | duration | `call_timeout_ms` | of a [call](#rpc): how long to wait for the answer
module | text | none | of a [call by URL](#rpc): the module of the service
method | text | the second segment | of a [call by URL](#rpc): the method of the service
body | text | empty | the message's body, if the request has none
""")
OF_PUT = frozenset(each.name for each in PRODUCE) - {"module", "method"}
"""Header lines of a produce that are parameters, and no lines of the message."""

PERCENT_DECODED = frozenset(
    (
        "topic",
        "consume_group",
        "tag",
        "token",
        "group_filter",
        "group_start_copy",
        "group_dead_letter",
    )
)
"""Header lines in which stock clients write `%41`, and a broker reads it: there a literal `%` is
`%25`."""

CONSUME = _parameters("""
timeout | duration | none: waits | how long to wait; 0 takes what is there. An address that a person
    opens in a browser waits `navigation_timeout_ms` (30 s)
batch | batch | one message | up to that many messages in [one answer](#containers). It waits
    for the first only, and ends after 128 KiB, or after 32 KiB if something was put within the last
    20 ms, so that other clients do not wait
partition | number | all in turn | take from this one only
lease | own lease | the group's `group_lease` | in a group with acknowledgements: how long the
    messages of this answer are leased
on_loss | lost leases | the group's `group_on_loss` | what becomes of these leases when the
    connection ends: `keep` them until their time is over, or `front`: deliver again at once
offset | number | none | the message there, whatever the group has read; changes nothing
standby | flag | false | of an exclusive group that another session reads: wait, and take over when
    that session leaves
consume_window | consume window | 1 | multiplexed only: up to that many replies with this id, one
    message each, before another consume is needed
ack | flag, true | true | false: a 404 for an unknown topic is not sent
""")
UNCONSUME = _parameters(
    "stay | flag | false | only end waiting consumes: the session stays a reader"
)
EVENTS = _parameters("""
last-event-id | text | none | the `id` of an event: go on with what comes after it. `last_event_id`
    is the same in a query; the header wins. Of another log: [`reset`](#events-of-another-log)
from | start | where the group named like the topic stands | of followers:
    [where to begin](#start-positions); 404 past the end
offset | text | none | of followers, the older word: `begin`, `end`, an offset, or one for each
    partition with commas between
group_start_time | time | none | of followers, the older word: what was put since, a
    [time](#durations-sizes-and-times)
group_filter | filter | none | of followers: as [filters](#filters) of groups
partition | number | all | this one only; of a group's `id`s all partitions are part
envelope | json | none | the data is a [JSON object](#containers) with all that is known of the
    message
consume_window | consume window | the group's window | of groups with leases: how many messages this
    reader may hold unacknowledged
""")
SETTLE = _parameters(f"""
offset | offsets | required | of the delivery; of many: numbers and ranges, `3,5-9,12`, at most
    {OFFSETS_MAX:,} in all
partition | number | 0 | of the deliveries
""")
STRICT = _parameters("strict | flag | false | refuse an unknown group or partition, with 404")
NACK = _parameters("""
delay | duration | 0 | how long until they may be delivered again
front | flag, true | true | without a delay: before everything else, or behind what is stored now
""")
EXTEND = _parameters(
    "group_lease, group_ack_timeout, lease | lease | the group's | from now until the lease ends:"
    " `30s`, `5m`, or milliseconds"
)
REDRIVE = _parameters(f"""
count | batch | {REDRIVE_COUNT_DEFAULT:,} | at most that many, the first ones
offset | offsets | the first ones | these: numbers and ranges, `3,5-9,12`, at most {OFFSETS_MAX:,}
partition | number | all, 0 with `offset` | of this partition
to | name | where each comes from | into this topic
only_group | flag | false | each is delivered again to the group in which it died, and to no other
""")
ROUTE = _parameters("""
recver | text | none | the session: the `sender` of a delivery
id | text | made | of the message as it arrives. The id of a call that this session has open answers
    that call
origin_status | text | 200 | its status line: three digits from 200 on; anything else is 500
ack | flag | false | whether to reply; plain HTTP always gets a reply
""")
DECLARE = _parameters("""
partitions | partitions | 1, or as it is | may [become more](#partitions)
partitions_order | key order | key | `none`: when partitions become more, [older
    messages](#partitions) are not waited for
durability | durability | the option `durability`, or as it is | what a reply waits for; fixed at
    creation
retention_ms | duration | the option `retention_ms`, or as it is | [retention](#retention): forget
    what is older; 0 = no such limit
retention_bytes | size | the option `retention_bytes`, or as it is | keep about that many bytes of
    each partition; 0 = no such limit
retention_count | number | 0, or as it is | keep about that many messages of each partition; 0 = no
    such limit
retention_done | flag | false, or as it is | forget what all groups have finished
dedupe_ms | duration | 0, or as it is | how long an id is [remembered](#putting-once); 0: ids
    are not looked at
dedupe_live | flag | false, or as it is | an id is [taken](#putting-once) as long as its message is
    not finished in every group
settled_ms | duration | 0, or as it is | how long it is known [what became](#why) of a message in
    each group; 0: it is forgotten at once
rpc | switch | false, or as it is | a topic of [calls](#rpc). A new one is kept in memory, unless
    `durability` says otherwise
proxy | switch | false, or as it is | the same without calls by URL
topic_ack | switch | false, or as it is | default of `ack` for groups of this topic
topic_exclusive | switch | false, or as it is | default of `exclusive` for groups of this topic
topic_temporary | switch | false, or as it is | default of `temporary` for groups of this topic
topic_paused | switch | false, or as it is | default of `paused` for groups of this topic
topic_mask | mask | 0, or as it is | the words as [bits](#masks), for stock clients; replaces them
    all. Bit 1 counts at creation only
sender_headers | flag | false, or as it is; true for topics of services | store with each message
    [how it came](#how-a-message-came)
compact | switch | false, or as it is | keep the [newest message of each key](#compact) for ever and
    drop older ones
compact_tombstone_ms | duration | 86400000 (a day), or as it is | how long the newest message of a
    key is [kept](#compact) if it has no body
schema | text | none, or as it is | the [JSON Schema](#schemas) that bodies have to fit; `body`: it
    is the body of this request; `none`: there is none any more
schema_compatibility | compatibility | `backward`, or as it is | what a new version of the schema
    has to [keep](#schemas): `backward`, `forward`, `full` or `none`
group_name_auto | flag | false | the broker chooses the name: the topic's, else with 0, 1, … behind
    it
ack, group_ack | switch | as the topic says, or as it is | the group
    [leases](#acknowledgements) its messages until they are acknowledged. With `cmd`
    as a header line, only `group_ack` says that
exclusive | switch | as the topic says, or as it is | one session at a time
temporary | switch | as the topic says, or as it is | the group is removed with its last reader
paused | switch | as the topic says, or as it is | deliveries are held back
group_lease, group_ack_timeout | lease | 10 s, or as it is | how long a lease is: `30s`, `5m`, or
    milliseconds
group_window, group_ack_window | ack window | 100, or as it is | unacknowledged messages at once; 0
    holds deliveries back
group_filter | filter | none, or as it is | [filter](#filters); present and empty removes it
group_order | order | none, or as it is | `key`: [order per key](#order-per-key); `priority`:
    [what is urgent](#priorities) goes first
group_max_attempts | attempts | none, or as it is | deliveries without an ack until a message is
    [dead](#retries); `none` = no limit
group_backoff | pauses | none, or as it is | time before the second [attempt](#retries),
    twice as long before each further one; `1s,60s`: but at most the second number (else an
    hour, or the first if it is longer)
group_dead_letter | text | none, or as it is | the topic that [dead messages](#retries) are put
    into; present and empty: they are dropped
group_on_loss | lost leases | `keep`, or as it is | what becomes of a connection's
    [leases](#retries) when it ends: they stay, or go back in front
group_keep_attempts | switch | false, or as it is | a delivery is sent when its
    [attempt](#retries) is written; with `group_max_attempts` it always is
group_rate | rate | none, or as it is | messages a second that the group is [given](#rates) at most
group_one_batch | flag | false, or as it is | a partition is delivered again when all that was
    delivered of it is [settled](#rates)
group_retain | switch | false, or as it is | [retention](#retention) forgets nothing that the group
    has not finished
push_url | push url | none, or as it is | [send](#webhooks) the group's messages to this HTTP
    endpoint; `none` = no more
push_secret | push secret | none, or as it is | sign them: `whsec_` and the base64 of 24 to 64
    bytes; several with spaces between; `none` = unsigned
push_concurrency | push concurrency | 10, or as it is | requests that may be open at once
push_timeout | push timeout | 30 s, or as it is | longest time of a request: `30s`, or milliseconds
group_mask | mask | 0, or as it is | the words as [bits](#masks), for stock clients; replaces them
    all. 0 goes by the topic's
from | start | where the most advanced group stands | where a **new** group
    [begins](#start-positions): `earliest`, `latest`, an offset or a time; a group that exists
    stays where it is
partition | number | all | of `from`: the others begin as without it
group_start_copy | text | none | a new group begins where this one stands
group_start_offset | number | none | the older word for `from=<offset>`
group_start_msgid | text | none | the id that the message there must have. For the stock clients, a
    group that exists [is moved](#start-positions)
group_start_time | time | none | the older word for `from=time:<epoch ms>`
""")


Nothing: TypeAlias = Literal["none"]
"""Takes back what was declared."""

Schema: TypeAlias = dict[str, Any] | bool | str
"""A JSON Schema as a document or as its text; "none": there is none any more."""


class Retries(TypedDict, total=False):
    """What becomes of a message of a group that is not acknowledged, how fast the group is served,
    and where it is sent, for programs in Python. What is None is as if it were not given."""

    max_attempts: int | Nothing | None
    backoff_ms: int | tuple[int, int] | Nothing | None
    dead_letter: str | None
    on_loss: Loss | None
    keep_attempts: bool | None
    rate: int | Nothing | None
    one_batch: bool | None
    retain: bool | None
    push_url: str | None
    push_secret: str | None
    push_concurrency: int | None
    push_timeout_ms: int | None


class Grouped(Retries, total=False):
    """What a group is to be, likewise."""

    ack: bool | None
    exclusive: bool | None
    temporary: bool | None
    paused: bool | None
    lease_ms: int | None
    window: int | None
    filter: str | None
    order: Order | None
    start_copy: str | None


class Declared(Grouped, total=False):
    """What a topic and a group are to be, likewise."""

    partitions: int | None
    partitions_order: Order | None
    durability: Level | None
    retention_ms: int | None
    retention_bytes: int | None
    retention_count: int | None
    retention_done: bool | None
    dedupe_ms: int | None
    dedupe_live: bool | None
    settled_ms: int | None
    rpc: bool | None
    compact: bool | None
    compact_tombstone_ms: int | None
    sender_headers: bool | None
    schema: Schema | None
    schema_compatibility: Compatibility | None


SEEK = _parameters("""
from | start | required | [where to](#start-positions): `earliest`, `latest`, an offset or a time
partition | number | all | move the group in this one only
""")
QUERY = _parameters("""
topic | name | none: the whole server | the topic
consume_group | text | none: the topic | the group
""")
SCHEMA = _parameters("version | number | the newest | which version of it")
HEALTH = _parameters("check | health check | ready | which one; the path says it as well")
STATS = _parameters("topics | switch | true | tell of each topic, too, not of the whole alone")
STATS_EVENTS = _parameters(f"""
interval | interval | {STATS_INTERVAL_MS_MIN} | time between two events, at least
    {STATS_INTERVAL_MS_MIN}
""")
HISTORY = _parameters("""
topic | name | none: the whole server | the topic
consume_group | text | none: the topic | the group
span | span | hour | `hour` in steps of 10 s, `day` of 5 min, or `week` of 30 min
""")
CONNECTIONS = _parameters("""
count | listed count | 100 | the limit
after | text | none | go on after the connection of this id, as the reply's `next` says
""")
DISCONNECT = _parameters("session | text | required | its id, as `connections` tells it")
MOVE = _parameters("""
shard | number | required | its number, as `cluster` tells it
to | text | required | the node
""")
NAMES = _parameters("names | flag | false | names alone: of all topics, or of the groups of one")
REMOVE = _parameters("consume_group | text | none: the topic with everything in it | the group")
EMPTY = _parameters("""
consume_group | text | none: every group, and the messages | the group
keep_leased | switch | false | of a group: what is leased stays so; `count` tells how many messages
    are gone
""")
READ = _parameters(f"""
partition | number | 0 | which one
offset | number | the oldest there is | where to begin
bytes | bytes | {READ_BYTES_DEFAULT >> 20} MiB | at most that many bytes of batches; at least one
    batch, unless it is 0: only `first` and `end` are told
count | count | {READ_COUNT_DEFAULT} | at most that many messages; also chooses messages
cut | size | whole bodies | of messages as JSON: of each body that many bytes at most; then `size`
    is its length
newest | flag | false | [search](#searching): from the newest message on; then `offset` is where to
    begin before
since | time | none | search: only what was produced then or later
until | time | none | search: only what was produced before
tag | filter | none | search: only messages whose tag a [filter](#filters) lets through
key | key | none | search: only messages with this key
header | searched text | none | search: only messages with this header, or as `name: text` with this
    text in it
text | searched text | none | search: only messages with this text in their body
scan | scan count | 10,000 | search: at most that many messages are looked at
""")
GET = _parameters("key | key | required | the key")
_BY_ID = """
msgid | id | none | instead of `offset`: the message's id, in a topic with
    [`dedupe_ms` or `dedupe_live`](#putting-once). In a query `id` says the same
"""
SINGLE = _parameters(f"""
consume_group | text | none: every group | the group
offset | offsets | required, or `msgid` | of the message; of many: numbers and ranges,
    `3,5-9,12`, at most {OFFSETS_MAX:,} in all
partition | number | 0 | of the offsets
{_BY_ID.strip()}
""")
DELETE = _parameters("""
forget | flag | false | nor is it kept [what became](#why) of them, be they finished already
""")
RESCHEDULE = _parameters("""
delay | duration | none | how long from now until it is due
deliver_at | time to come | required without `delay` | the same as a
    [time](#durations-sizes-and-times); one that has passed is now
""")
PEEK = _parameters("""
state | listed state | ready | which ones
key | key | any | only those of this key
tag | filter | any | only those whose tag this [filter](#filters) matches
count | listed count | 100 | the limit
after | text | the first | what comes behind that: the `next` of the reply before
body | flag | false | with their bodies, up to 1 MiB of them
""")
WHY = _parameters(f"""
offset | number | required, or `msgid` | of the message
partition | number | 0 | of the offset
{_BY_ID.strip()}
""")
_APP = """
txn | application | required | the application: 1 to 100 letters, digits, dots, `_` and `-`
"""
TXN = _parameters(_APP)
TXN_BATCH = _parameters(f"""
{_APP.strip()}
batch | number | required | its number, above that of the batch before
""")
TXN_COMMIT = _parameters("""
offset | many offsets | those in the body | what is staged: numbers and ranges, `3,5-9,12`
topic | name | those in the body | where all of these belong
""")
TXN_ABORT = _parameters("""
offset | many offsets | required | what is staged: numbers and ranges, `3,5-9,12`
""")
SSL = _parameters("server | text | this broker's advertised address | whose certificate")
OPENAPI = _parameters("command | command | all | describe this command alone")
