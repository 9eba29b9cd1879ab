"""What the description of the HTTP surface is made of: kinds of parameters, replies and documents.

Everything here is JSON Schema as OpenAPI 3.1 has it. Limits come from where the code has them.
"""

from __future__ import annotations

from typing import Any

import attrs

from zbus.core.declare import DURABILITIES
from zbus.core.errors import Refusal
from zbus.core.names import NAME_BYTES_MAX
from zbus.core.outcomes import EmptyReason
from zbus.faces.native import containers
from zbus.faces.native.replies import TEXTS
from zbus.faces.status import STATUS

Schema = dict[str, Any]

NUMBER_MAX = (1 << 63) - 1

SERVER, TOPIC, GROUP, LOG = "/", "/{topic}", "/{topic}/{group}", "/_log/{topic}"
DESCRIPTION, ICON = "/_openapi.json", "/favicon.ico"
"""The paths."""


def integer(maximum: int = NUMBER_MAX, minimum: int = 0) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "format": "int64"}


def text(length_max: int) -> Schema:
    """Lengths are of UTF-8 bytes; JSON Schema counts characters, which are never more."""
    return {"type": "string", "maxLength": length_max}


def words(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


FLAG: Schema = {"type": ["boolean", "string"]}
"""`1` and `true` are yes, anything else is no: no value is refused."""

_PRINTABLE = r"/\\\x00-\x1f\x7f-\x9f"  # is everything but these
NAME: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": NAME_BYTES_MAX,
    "pattern": rf"^[^\s{_PRINTABLE}]([^{_PRINTABLE}]*[^\s{_PRINTABLE}])?$",
}
TEXT: Schema = {"type": "string"}
TIME: Schema = {"type": "integer", "format": "int64", "description": "Epoch milliseconds."}
_COUNT: Schema = {"type": "integer", "minimum": 0}


@attrs.frozen
class Parameter:
    """One key of the query; the same name works as a header."""

    text: str
    schema: Schema
    required: bool = False
    place: str = "query"  # where it is usual: "query" or "header"
    example: Any = None


@attrs.frozen
class Answer:
    """What a request gets that is done. Without `content` the reply has no content type."""

    text: str
    headers: tuple[str, ...] = ()
    content: dict[str, Schema] = attrs.field(factory=dict)


@attrs.frozen
class Command:
    """One value of `cmd`."""

    text: str
    tag: str
    paths: tuple[str, ...]
    answers: dict[int, Answer]
    refusals: tuple[Refusal, ...] = ()
    parameters: dict[str, Parameter] = attrs.field(factory=dict)
    body: dict[str, Schema] = attrs.field(factory=dict)  # media types that a POST may have


ACK = Parameter("Whether to reply; without a `cmd` header there is always a reply.", FLAG)

TOLD_TIME = "The body is the broker's time, epoch milliseconds in decimal digits."

GONE = (Refusal.TOPIC_UNKNOWN, Refusal.GROUP_UNKNOWN)
"""The refusals of what is about a topic or group."""

CHANGE = (Refusal.STOPPING, Refusal.FULL, Refusal.FENCED)
"""The refusals of what changes something."""

HEADERS: dict[str, tuple[str, Schema]] = {
    "connection": ("`close` if the connection ends with this reply.", words("Keep-Alive", "close")),
    "id": ("The request's id, or the one that was made for it.", TEXT),
    "topic": ("The topic, as the request named it.", TEXT),
    "offset": ("Where the message is in its partition; of a batch, the first one.", _COUNT),
    "partition": ("Which partition, if the topic has several.", _COUNT),
    "durability": ("The level that was reached.", words(*DURABILITIES)),
    "duplicate": ("How many messages of it were there before.", _COUNT),
    "count": ("How many messages.", _COUNT),
    "empty": ("Why there is no message.", words(*(reason.value for reason in EmptyReason))),
    "skipped": ("Messages that were forgotten before this group had finished them.", _COUNT),
    "origin_id": ("The message's own id.", TEXT),
    "timestamp": ("When the message was stored, epoch milliseconds.", _COUNT),
    "consume_group": ("The group.", TEXT),
    "retry": ("Which redelivery this is, from 1.", _COUNT),
    "sender": ("The session that sent the message.", TEXT),
    "location": ("Where to go.", TEXT),
    "set-cookie": ("The token.", TEXT),
    "end": ("The first offset that cannot be read yet.", _COUNT),
    "retry-after": ("Seconds.", _COUNT),
}
"""Headers of replies."""

EVERY_REPLY = ("connection", "id", "topic")
DELIVERY = (
    *("offset", "partition", "origin_id", "timestamp", "consume_group", "retry", "skipped"),
    *("sender", "count"),
)

MESSAGES = containers.MESSAGES.decode()
NDJSON = containers.NDJSON.decode()
JSON = containers.JSON.decode()
BATCHES = containers.BATCHES.decode()
EVENTS = "text/event-stream"

CONTAINERS: dict[str, Schema] = {
    JSON: {"type": "array", "items": ref("Message")},
    NDJSON: {"type": "string", "description": "Each line is a Message."},
    MESSAGES: {"type": "string", "description": "HTTP messages one after another."},
}

BODY: dict[str, Schema] = {
    "text/plain": {"schema": TEXT, "example": "hello"},
    JSON: {"schema": {}, "example": {"order": 7}},
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
}
"""A message's body, which may be of any type."""

BATCH: dict[str, Schema] = {
    NDJSON: {
        "schema": {"type": "string", "description": "A batch: each line is a message."},
        "example": '{"n":1}\n{"n":2}\n',
    },
    MESSAGES: {
        "schema": {"type": "string", "description": "A batch: HTTP messages one after another."},
        "example": "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello",
    },
}

FORM: dict[str, Schema] = {
    "application/x-www-form-urlencoded": {
        "schema": {"type": "object", "required": ["token"], "properties": {"token": TEXT}}
    }
}

ANYWHERE: dict[int, str] = {
    400: "The request is not well-formed",
    403: "A browser sends this for a page that may not",
    405: "HEAD or OPTIONS, and it would change something",
    408: "Head or body did not come in time",
    413: "The body is over `body_bytes_max`",
    414: "The request line is over `line_bytes_max`",
    421: "The `Host` is none of this broker",
    425: "A browser asks ahead of time",
    417: "An expectation other than `100-continue`",
    426: "A WebSocket of another version than 13",
    431: "The headers are over their limits",
    503: "Unfinished bodies of all connections take `bodies_bytes_max`",
    505: "Neither HTTP/1.0 nor HTTP/1.1",
}
"""What any request can get, whatever it asks for: from the wire, and from what guards browsers."""


def refusal_text(status: int, refusals: tuple[Refusal, ...]) -> str:
    """One line for each reason that this status can have."""
    lines = [f"{ANYWHERE[status]}."] if status in ANYWHERE else []
    for refusal in refusals:
        if STATUS[refusal] == status:
            said = f": `{TEXTS[refusal].format('…')}`" if refusal in TEXTS else ""
            lines.append(f"{refusal.value.capitalize()}{said}.")
    return " ".join(lines)


def _document(required: str, properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "required": sorted(required.split()), "properties": properties}


_ADDRESS = _document("address sslEnabled", {"address": TEXT, "sslEnabled": {"type": "boolean"}})

_GROUP = _document(
    "ackRequired ackTimeout ackWindow consumerCount consumerList createdTime delayedCount groupName"
    " lastUpdatedTime leasedCount mask messageCount skippedCount topicName",
    {
        "ackRequired": {"type": "boolean"},
        "ackTimeout": {**_COUNT, "description": "Milliseconds of a lease."},
        "ackWindow": {**_COUNT, "description": "Unacknowledged messages at once."},
        "consumerCount": {**_COUNT, "description": "Registered sessions."},
        "consumerList": {"type": "array", "items": TEXT, "description": "As `/ip:port`."},
        "createdTime": TIME,
        "delayedCount": {**_COUNT, "description": "Held back until due."},
        "filter": {**TEXT, "description": "Which tags it is given."},
        "groupName": NAME,
        "lastUpdatedTime": TIME,
        "leasedCount": {**_COUNT, "description": "Handed out and unacknowledged."},
        "mask": {**_COUNT, "description": "The group's own; 0 goes by the topic's."},
        "messageCount": {**_COUNT, "description": "Still to be handed out; no filter considered."},
        "skippedCount": {**_COUNT, "description": "Forgotten before the group had them, ever."},
        "topicName": NAME,
    },
)

_TOPIC = _document(
    "consumeGroupList consumerCount createdTime dedupeMs durability lastUpdatedTime mask"
    " messageDepth partitionCount serverAddress serverVersion topicName",
    {
        "consumeGroupList": {"type": "array", "items": ref("ConsumeGroupInfo")},
        "consumerCount": {**_COUNT, "description": "Registered sessions of all groups."},
        "createdTime": TIME,
        "dedupeMs": {**_COUNT, "description": "How long ids are remembered; 0 = not."},
        "durability": words(*DURABILITIES),
        "lastUpdatedTime": TIME,
        "mask": _COUNT,
        "messageDepth": {**_COUNT, "description": "Messages ever put."},
        "partitionCount": {"type": "integer", "minimum": 1},
        "retentionBytes": _COUNT,
        "retentionCount": _COUNT,
        "retentionDone": {"type": "boolean"},
        "retentionMs": _COUNT,
        "serverAddress": ref("ServerAddress"),
        "serverVersion": TEXT,
        "topicName": NAME,
    },
)

_SERVER = _document(
    "infoVersion serverAddress serverVersion topicTable trackerList",
    {
        "connectionCount": {**_COUNT, "description": "To whoever may see everything."},
        "infoVersion": {**_COUNT, "description": "Grows with every document."},
        "memoryBytes": {**_COUNT, "description": "Resident; as connectionCount."},
        "refusing": {**TEXT, "description": "Why nothing is put now, if so."},
        "serverAddress": ref("ServerAddress"),
        "serverVersion": TEXT,
        "topicTable": {"type": "object", "additionalProperties": ref("TopicInfo")},
        "trackerList": {"type": "array", "items": ref("ServerAddress")},
    },
)

_MESSAGE = {
    **_document(
        "headers id offset partition timestamp topic",
        {
            "id": TEXT,
            "topic": NAME,
            "partition": _COUNT,
            "offset": _COUNT,
            "timestamp": TIME,
            "consume_group": {**NAME, "description": "Of a delivery."},
            "tag": TEXT,
            "key": TEXT,
            "retry": {**_COUNT, "description": "Which redelivery this is, from 1."},
            "headers": {"type": "object", "additionalProperties": TEXT},
            "body": {**TEXT, "description": "If it is UTF-8."},
            "body_base64": {**TEXT, "description": "If it is not."},
        },
    ),
    "oneOf": [{"required": ["body"]}, {"required": ["body_base64"]}],
}

_TRACKER = _document(
    "infoVersion serverAddress serverTable serverVersion",
    {
        "infoVersion": {**_COUNT, "description": "Grows with every document."},
        "serverAddress": ref("ServerAddress"),
        "serverTable": {"type": "object", "additionalProperties": {"type": "object"}},
        "serverVersion": TEXT,
    },
)

_EVENT = _document(
    "serverInfo",
    {
        "serverInfo": {"type": "object", "description": "Of it, `serverAddress` must be there."},
        "certificate": {**TEXT, "description": "As PEM."},
        "live": {"type": "boolean"},
    },
)

SCHEMAS: dict[str, Schema] = {
    "ConsumeGroupInfo": _GROUP,
    "Message": _MESSAGE,
    "ServerAddress": _ADDRESS,
    "ServerEvent": _EVENT,
    "ServerInfo": _SERVER,
    "TopicInfo": _TOPIC,
    "TrackerInfo": _TRACKER,
}
"""The JSON documents."""
