"""Every parameter that a command of the dialect takes: type, bound, default and meaning.

The rows are read once, when this is imported. Which command takes which is the table of `commands`.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import attrs

from zbus.core.declare import DURABILITIES
from zbus.core.filters import FILTER_BYTES_MAX
from zbus.core.limits import DELAY_MS_MAX

NUMBER_MAX = (1 << 63) - 1
MASK_MAX = (1 << 31) - 1
OFFSETS_MAX = 10_000
WINDOW_MAX = 10_000
ACK_WINDOW_MAX = 999
ID_BYTES_MAX = 39
TAG_BYTES_MAX = 127
KEY_BYTES_MAX = 1_024
IDEMPOTENCY_KEY_BYTES_MAX = 255
READ_BYTES_DEFAULT = 1 << 20
READ_BYTES_MAX = 16 << 20
READ_COUNT_DEFAULT = 100
TEN_YEARS_AHEAD = "ten years ahead"


@attrs.frozen
class Number:
    """Decimal digits. What is bounded by an option, or by the time, names that."""

    maximum: int | str = NUMBER_MAX
    minimum: int = 0


@attrs.frozen
class Text:
    """Text of at most so many bytes; 0 = as many as a header has."""

    bytes_max: int = 0


@attrs.frozen
class Flag:
    """`1` and `true` are yes, anything else is no: no value is refused."""

    default: bool = False


@attrs.frozen
class Word:
    """One of these; none = the name of a command."""

    values: tuple[str, ...] = ()


class Form(enum.Enum):
    """Text of a form of its own."""

    NAME = enum.auto()  # of a topic
    OFFSETS = enum.auto()  # numbers and ranges of them, at most `OFFSETS_MAX` in all
    IDEMPOTENCY_KEY = enum.auto()


Kind: TypeAlias = "Number | Text | Flag | Word | Form"

_KINDS: dict[str, Kind] = {
    "name": Form.NAME,
    "offsets": Form.OFFSETS,
    "idempotency key": Form.IDEMPOTENCY_KEY,
    "flag": Flag(),
    "flag, true": Flag(default=True),
    "number": Number(),
    "duration": Number(DELAY_MS_MAX),
    "time to come": Number(TEN_YEARS_AHEAD),
    "mask": Number(MASK_MAX),
    "ack window": Number(ACK_WINDOW_MAX),
    "consume window": Number(WINDOW_MAX),
    "batch": Number("batch_messages_max", minimum=1),
    "count": Number("batch_messages_max"),
    "bytes": Number(READ_BYTES_MAX),
    "partitions": Number("partitions_max", minimum=1),
    "text": Text(),
    "id": Text(ID_BYTES_MAX),
    "tag": Text(TAG_BYTES_MAX),
    "key": Text(KEY_BYTES_MAX),
    "filter": Text(FILTER_BYTES_MAX),
    "durability": Word(DURABILITIES),
    "json": Word(("json",)),
    "command": Word(),
}


@attrs.frozen
class Parameter:
    """One key of the query; the same name works as a header."""

    name: str
    kind: Kind
    default: str  # for people
    meaning: str  # Markdown, without a full stop


def _parameters(table: str) -> tuple[Parameter, ...]:
    """Rows of name, kind, default and meaning; a line that is indented belongs to the one before"""
    rows = table.strip().replace("\n    ", " ").split("\n")
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    return tuple([Parameter(name, _KINDS[kind], *rest) for name, kind, *rest in cells])


REQUIRED = "required"

OF_TOPIC = _parameters("topic | name | required | the topic")
OF_GROUP = (
    *OF_TOPIC,
    *_parameters("consume_group | text | the topic's name | the group"),
)
ACK = _parameters("ack | flag, true | true | whether to reply; plain HTTP always gets a reply")

PRODUCE = _parameters("""
id | id | where it went | also the message's id. Ids need not be unique, unless the topic has
    [`dedupe_ms`](#putting-once). Made if absent, it is for instance `0-17`
idempotency-key | idempotency key | none | names the request: it is [stored once](#putting-once)
idempotent | flag | false | the request's `id` is its [idempotency key](#putting-once)
expected_offset | number | any | [store it only there](#putting-once)
tag | tag | none | what [filters](#filters) look at
key | key | none | same key, same [partition](#partitions)
partition | number | by key | put it there
delay | duration | 0 | milliseconds until it is [due](#delay-and-expiry)
deliver_at | time to come | none | the same as a time, epoch ms
ttl | duration | none | milliseconds until it expires
timeout | duration | `call_timeout_ms` | of a [call](#rpc): how long to wait for the answer, ms
module | text | none | of a [call by URL](#rpc): the module of the service
method | text | the second segment | of a [call by URL](#rpc): the method of the service
body | text | empty | the message's body, if the request has none
""")
CONSUME = _parameters("""
timeout | duration | none: waits | milliseconds to wait; 0 takes what is there. A browser's
    navigation (`Sec-Fetch-Mode: navigate`) without it waits `navigation_timeout_ms` (30 s)
batch | batch | one message | up to so many messages in a [container](#containers), chosen by
    `accept`; waits for the first only, stops after 128 KiB of bodies and headers, or after 32 KiB
    if something was put (anywhere) within the last 20 ms: a longer answer would make everybody wait
partition | number | all in turn | take from this one only
offset | number | none | the message there, whatever the group has read; changes nothing
consume_window | consume window | 1 | multiplexed only: up to so many replies with this id, one
    message each, before another consume is needed
ack | flag, true | true | false: a 404 for an unknown topic is not sent
""")
EVENTS = _parameters("""
last-event-id | text | none | the `id` of an event: go on with what comes after it. `last_event_id`
    is the same in a query; the header wins. Past the end of the log means the end
offset | text | none | of followers: `begin`, `end`, an offset (404 past the end), or one for each
    partition with commas between
group_start_time | number | none | of followers: what was put since, epoch ms
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
delay | duration | 0 | milliseconds until they may be handed out again
front | flag, true | true | without a delay: before everything else, or behind what is stored now
""")
EXTEND = _parameters(
    "group_ack_timeout | mask | the group's | milliseconds from now until the lease ends"
)
ROUTE = _parameters("""
recver | text | none | the session: the `sender` of a delivery
id | text | made | of the message as it arrives. The id of a call that this session has open answers
    that call
origin_status | text | 200 | its status line: three digits from 200 on; anything else is 500
ack | flag | false | whether to reply; plain HTTP always gets a reply
""")
DECLARE = _parameters("""
topic_mask | mask | 0, or as it is | [bits](#masks); replaces the mask. Bit 1 counts at creation
    only
partitions | partitions | 1, or as it is | fixed at creation
durability | durability | the option `durability`, or as it is | what a reply waits for; fixed at
    creation
retention_ms | duration | the option `retention_ms`, or as it is | [retention](#retention): forget
    what is older, milliseconds; 0 = no such limit
retention_bytes | number | the option `retention_bytes`, or as it is | keep about so many bytes of
    each partition; 0 = no such limit
retention_count | number | 0, or as it is | keep about so many messages of each partition; 0 = no
    such limit
retention_done | flag | false, or as it is | forget what all groups have finished
dedupe_ms | duration | 0, or as it is | how long an id is [remembered](#putting-once), ms; 0: ids
    are not looked at
group_name_auto | flag | false | the broker chooses the name: the topic's, else with 0, 1, … behind
    it
group_mask | mask | 0, or as it is | [bits](#masks); replaces the mask. 0 goes by the topic's
group_filter | filter | none, or as it is | [filter](#filters); present and empty removes it
group_ack_window | ack window | 100, or as it is | unacknowledged messages at once; 0 holds
    deliveries back
group_ack_timeout | mask | 10,000, or as it is | milliseconds of a lease
group_start_copy | text | none | [start](#start-positions) where this group stands
group_start_offset | number | none | start at this message
group_start_msgid | text | none | the id that it must have
group_start_time | number | none | start at the first message stored then or later, epoch ms
partition | number | all | of `group_start_offset`
""")
QUERY = _parameters("""
topic | name | none: the whole server | the topic
consume_group | text | none: the topic | the group
""")
NAMES = _parameters("names | flag | false | names alone: of all topics, or of the groups of one")
REMOVE = _parameters("consume_group | text | none: the topic with everything in it | the group")
EMPTY = _parameters("consume_group | text | none: every group, and the messages | the group")
READ = _parameters(f"""
partition | number | 0 | which one
offset | number | the oldest there is | where to begin
bytes | bytes | {READ_BYTES_DEFAULT >> 20} MiB | at most so many bytes of batches; at least one
    batch
count | count | {READ_COUNT_DEFAULT} | at most so many messages; also chooses messages
""")
SSL = _parameters("server | text | this broker's advertised address | whose certificate")
OPENAPI = _parameters("command | command | all | describe this command alone")
