"""What the description of the HTTP surface is made of: schemas of parameters, bodies and documents.

Everything here is JSON Schema as OpenAPI 3.1 has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zbus.core.api import DURABILITIES, LOSSES, NAME_BYTES_MAX, Cause, EmptyReason
from zbus.core.api import LISTED_STATES as STATES
from zbus.dialects.zbus.schema.commands import COMMANDS
from zbus.dialects.zbus.schema.parameters import (
    IDEMPOTENCY_KEY_BYTES_MAX,
    Duration,
    Flag,
    Form,
    Kind,
    Number,
    Size,
    Switch,
    Text,
    Time,
    Word,
)
from zbus.units import MS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_BOOLEAN: Schema = {"type": "boolean"}
_TIME: Schema = {"type": "integer", "format": "int64", "description": "Epoch milliseconds."}

_PRINTABLE = r"/\\\x00-\x1f\x7f-\x9f"  # is everything but these
_NAME: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": NAME_BYTES_MAX,
    "pattern": rf"^[^\s{_PRINTABLE}]([^{_PRINTABLE}]*[^\s{_PRINTABLE}])?$",
}
_NUMBER = "[0-9]{1,19}"
_PAUSE = "(?!0+[a-z]*(,|$))([0-9]{1,11}(ms)?|[0-9]{1,3}[smhdw])"
_SIZE = "^([0-9]{1,18}B?|[0-9]{1,6}[KMGT]iB)$"
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+(Z|[+-][0-9:]+)?)?"
_KEY = rf"[!#-\[\]-~]{{1,{IDEMPOTENCY_KEY_BYTES_MAX}}}"

_FORMS: dict[Form, Schema] = {
    Form.NAME: _NAME,
    Form.OFFSETS: {
        "type": ["integer", "string"],
        "minimum": 0,
        "pattern": f"^{_NUMBER}(-{_NUMBER})?(,{_NUMBER}(-{_NUMBER})?)*$",
    },
    Form.PAUSES: {
        "type": ["integer", "string"],
        "minimum": 1,
        "pattern": f"^({_PAUSE}(,{_PAUSE})?|none)$",
    },
    Form.START: {
        "type": ["integer", "string"],
        "minimum": 0,
        "pattern": f"^(earliest|latest|{_NUMBER}(,{_NUMBER})*|time:{_NUMBER}|{_DATE})$",
    },
    Form.APPLICATION: {
        "type": "string",
        "pattern": r"^(?!.*\.[Rr][Oo][Ww][Ss]$)[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
    },
    Form.IDEMPOTENCY_KEY: {"type": "string", "pattern": f'^({_KEY}|"{_KEY}")$'},
}


def words(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def schema_of(kind: Kind, bounds: Mapping[str, int]) -> Schema:
    """What a parameter may be; `bounds` are options, and what else has a name."""
    match kind:
        case Number(maximum, minimum, none):
            high = bounds[maximum] if isinstance(maximum, str) else maximum
            number = {"type": "integer", "minimum": minimum, "maximum": high, "format": "int64"}
            return {"anyOf": [number, words("none")]} if none else number
        case Text(bytes_max):  # JSON Schema counts characters, which are never more than bytes
            return {"type": "string", "maxLength": bytes_max} if bytes_max else _TEXT
        case Word(values):
            return words(*(values or COMMANDS))
        case Flag():
            return {"type": ["boolean", "string"]}
        case Switch():
            return {"type": ["boolean", "string"], "enum": [True, False, "true", "false", "1", "0"]}
        case Size():
            return {"type": ["integer", "string"], "minimum": 0, "pattern": _SIZE}
        case Time(maximum):
            high = bounds[maximum] if isinstance(maximum, str) else maximum
            pattern = f"^({_NUMBER}|{_DATE})$"
            return {
                "type": ["integer", "string"],
                "minimum": 0,
                "maximum": high,
                "pattern": pattern,
            }
        case Duration(maximum_ms, minimum_ms):
            limits: Schema = {"minimum": minimum_ms, "maximum": maximum_ms}
            pattern = _durations(maximum_ms, none=minimum_ms == 0)
            return {"type": ["integer", "string"], **limits, "pattern": pattern}
        case Form():
            return _FORMS[kind]


def _durations(maximum_ms: int, *, none: bool) -> str:
    """A pattern of none that is longer; of the longest ones it leaves some out."""
    units = {"": 1, **MS}
    digits = {unit: len(str(maximum_ms // ms)) - 1 for unit, ms in units.items()}
    forms = [f"[0-9]{{1,{most}}}{unit}" for unit, most in digits.items() if most]
    least = "" if none else "(?!0+[a-z]*$)"
    return f"^{least}({'|'.join(forms)})$"


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _described(schema: Schema, text: str) -> Schema:
    return {**schema, "description": text}


JSON = "application/json"
_NDJSON = "application/x-ndjson"
_MESSAGES = "application/vnd.zbus.messages"

_STAGES = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["topic", "offsets"],
        "properties": {"topic": _TEXT, "offsets": _TEXT},
        "additionalProperties": False,
    },
}

BODIES: dict[str, dict[str, Schema]] = {
    "message": {  # which may be of any type
        "text/plain": {"schema": _TEXT, "example": "hello"},
        JSON: {"schema": {}, "example": {"order": 7}},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    },
    "batch": {
        _NDJSON: {
            "schema": _described(_TEXT, "A batch: each line is a message."),
            "example": '{"n":1}\n{"n":2}\n',
        },
        _MESSAGES: {
            "schema": _described(_TEXT, "A batch: HTTP messages one after another."),
            "example": "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello",
        },
    },
    "stages": {
        JSON: {
            "schema": {"type": "object", "required": ["stages"], "properties": {"stages": _STAGES}},
            "example": {"stages": [{"topic": "orders", "offsets": "0-9,12"}]},
        }
    },
    "form": {
        "application/x-www-form-urlencoded": {
            "schema": {"type": "object", "required": ["token"], "properties": {"token": _TEXT}}
        }
    },
    "event": {JSON: {"schema": _ref("ServerEvent")}},
}
"""Bodies of requests, by media type."""

_CONTENT: dict[str, Schema] = {
    "*/*": {},
    _NDJSON: _described(_TEXT, "Each line is a Message."),
    _MESSAGES: _described(_TEXT, "HTTP messages one after another."),
}


def content_of(name: str) -> tuple[str, Schema]:
    """A media type and its schema; of a name without a slash, that JSON document."""
    if "/" in name:
        return name, _CONTENT.get(name, _TEXT)
    if name.endswith("[]"):
        return JSON, {"type": "array", "items": content_of(name[:-2])[1]}
    return JSON, {"Name": _NAME, "object": {"type": "object"}}.get(name) or _ref(name)


HEADERS: dict[str, tuple[str, Schema]] = {
    "connection": ("`close` if the connection ends with this reply.", words("Keep-Alive", "close")),
    "cache-control": ("No cache may keep it.", words("no-store")),
    "id": ("The request's id, or the one that was made for it.", _TEXT),
    "topic": ("The topic, as the request named it.", _TEXT),
    "offset": ("Where the message is in its partition; of a batch, the first one.", _COUNT),
    "partition": ("Which partition, if the topic has several.", _COUNT),
    "durability": ("The level that was reached.", words(*DURABILITIES, "replicated")),
    "duplicate": ("How many messages of it were there before.", _COUNT),
    "count": ("How many messages.", _COUNT),
    "empty": ("Why there is no message.", words(*(reason.value for reason in EmptyReason))),
    "stayed": ("Dead messages that could not be moved.", _COUNT),
    "skipped": ("Messages that were forgotten before this group had finished them.", _COUNT),
    "origin_id": ("The message's own id.", _TEXT),
    "timestamp": ("When the message was stored, epoch milliseconds.", _COUNT),
    "consume_group": ("The group.", _TEXT),
    "retry": ("Which redelivery this is, from 1.", _COUNT),
    "sender": ("The session that sent the message.", _TEXT),
    "location": ("Where to go.", _TEXT),
    "set-cookie": ("The token.", _TEXT),
    "next": ("What `after` is for those behind these.", _TEXT),
    "unseen": ("Messages that may be delayed, which the group has not come to.", _COUNT),
    "first": ("The oldest offset that can be read.", _COUNT),
    "end": ("The first offset that cannot be read yet.", _COUNT),
    "reason": ("not-leased: a lease has ended, or the message is settled.", _TEXT),
    "retry-after": ("Seconds.", _COUNT),
}
"""Headers of replies."""

EVERY_REPLY = ("cache-control", "connection", "id", "topic")


def _count(text: str) -> Schema:
    return _described(_COUNT, text)


def _document(absent: str = "", /, **properties: Schema) -> Schema:
    """A JSON object; `absent` names what it may be without."""
    required = sorted(properties.keys() - set(absent.split()))
    return {"type": "object", "required": required, "properties": properties}


def _table(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


SCHEMAS: dict[str, Schema] = {
    "ConsumeGroupInfo": _document(
        "backoffMaxMs backoffMs deadLetter filter maxAttempts onLoss oneBatch order push rate"
        " retain unclaimed",
        ack=_described(_BOOLEAN, "Its messages are leased; by its own word or the topic's."),
        ackRequired=_described(_BOOLEAN, "The older word for `ack`."),
        ackTimeout=_count("The older word for `leaseMs`."),
        ackWindow=_count("The older word for `window`."),
        backoffMaxMs=_count("The longest pause between attempts, milliseconds."),
        backoffMs=_count("Before the second attempt, milliseconds."),
        consumerCount=_count("Registered sessions."),
        consumerList=_described(_list(_TEXT), "As `/ip:port`."),
        createdTime=_TIME,
        deadCount=_count("Given up after too many attempts, ever."),
        deadLetter=_described(_NAME, "The topic that dead messages are put into."),
        delayedCount=_count("Held back until due."),
        exclusive=_BOOLEAN,
        filter=_described(_TEXT, "Which tags it is given."),
        groupName=_NAME,
        lastUpdatedTime=_TIME,
        leaseMs=_count("Milliseconds of a lease."),
        leasedCount=_count("Handed out and unacknowledged."),
        mask=_count("The group's own; 0 goes by the topic's."),
        maxAttempts=_count("Handed out that often, a message is dead."),
        messageCount=_count("Still to be delivered; no filter considered."),
        onLoss=_described(words(*LOSSES), "What becomes of a lost connection's leases."),
        oneBatch=_described(_BOOLEAN, "A partition's last batch has to be settled first."),
        order=_described(words("key"), "Messages of a key go out one after another."),
        paused=_described(_BOOLEAN, "Nothing is delivered."),
        push=_described(
            _document(
                "error failingSince",
                concurrency=_count("Requests that may be open at once."),
                delivered=_count("Messages that the endpoint took, since the start."),
                error=_described(_TEXT, "Why the last one was not taken."),
                failed=_count("Requests that it did not take, since the start."),
                failingSince=_described(_TIME, "The first failure since it took one."),
                signed=_described(_BOOLEAN, "It has a secret."),
                timeoutMs=_count("Longest time of a request."),
                url=_TEXT,
            ),
            "The HTTP endpoint that its messages are sent to.",
        ),
        rate=_count("Messages a second at most."),
        retain=_described(_BOOLEAN, "Retention waits for it."),
        skippedCount=_count("Forgotten before the group had them, ever."),
        temporary=_BOOLEAN,
        topicName=_NAME,
        unclaimed=_described(_BOOLEAN, "It came with its topic, and no consumer has read it yet."),
        window=_count("Unacknowledged messages at once."),
    ),
    "Message": {
        **_document(
            "consume_group tag key retry size body body_base64",
            id=_TEXT,
            topic=_NAME,
            partition=_COUNT,
            offset=_COUNT,
            timestamp=_TIME,
            consume_group=_described(_NAME, "Of a delivery."),
            tag=_TEXT,
            key=_TEXT,
            retry=_count("Which redelivery this is, from 1."),
            size=_count("Bytes of the body, which is cut: with `cut`."),
            headers=_table(_TEXT),
            body=_described(_TEXT, "If it is UTF-8."),
            body_base64=_described(_TEXT, "If it is not."),
        ),
        "oneOf": [{"required": ["body"]}, {"required": ["body_base64"]}],
    },
    "ListedMessage": _document(
        "attempts body body_base64 holder key tag until",
        id=_TEXT,
        topic=_NAME,
        partition=_COUNT,
        offset=_COUNT,
        timestamp=_TIME,
        state=words(*STATES),
        until=_described(_TIME, "When it is due, or its lease ends, epoch milliseconds."),
        attempts=_count("Times it was delivered under a lease."),
        holder=_described(_TEXT, "Who has it leased, as `/ip:port`."),
        tag=_TEXT,
        key=_TEXT,
        size=_count("Bytes of its body."),
        body=_described(_TEXT, "If it was asked for and is UTF-8."),
        body_base64=_described(_TEXT, "If it is not."),
    ),
    "Why": _document(
        "attempts before behind ended expires holder id key letterOffset letterPartition"
        " letterTopic reason tag timestamp until",
        text=_described(_TEXT, "One sentence."),
        state=words(*[cause.value for cause in Cause]),
        topic=_NAME,
        consume_group=_NAME,
        partition=_COUNT,
        offset=_COUNT,
        id=_TEXT,
        tag=_TEXT,
        key=_TEXT,
        timestamp=_TIME,
        expires=_TIME,
        until=_described(_TIME, "When it is due, or its lease ends, epoch milliseconds."),
        attempts=_count("Times it was delivered under a lease."),
        holder=_described(_TEXT, "Who has it leased, as `/ip:port`."),
        ended=_described(_TIME, "When the group was done with it, epoch milliseconds."),
        before=_count("Messages that the group has to come past."),
        behind=_count("The offset of the message whose end it waits for."),
        letterTopic=_described(_TEXT, "The dead-letter topic in which a dead message was found."),
        letterPartition=_count("Where it is there."),
        letterOffset=_count("Likewise."),
        reason=_described(_TEXT, "Of what it died: `expired`, `given back` or `lost`."),
    ),
    "ServerAddress": _document(address=_TEXT, sslEnabled=_BOOLEAN),
    "ServerEvent": _document(
        "certificate live",
        serverInfo={"type": "object", "description": "Of it, `serverAddress` must be there."},
        certificate=_described(_TEXT, "As PEM."),
        live=_BOOLEAN,
    ),
    "ServerInfo": _document(
        "connectionCount heldBytes memoryBytes refusing",
        connectionCount=_count("For tokens that may see everything."),
        infoVersion=_count("Grows with every document."),
        heldBytes={"type": "object", "additionalProperties": {"type": "integer"}},
        memoryBytes=_count("Resident; as connectionCount."),
        refusing=_described(_TEXT, "Why nothing is put now, if so."),
        serverAddress=_ref("ServerAddress"),
        serverVersion=_TEXT,
        topicTable=_table(_ref("TopicInfo")),
        trackerList=_list(_ref("ServerAddress")),
    ),
    "RightsInfo": _document(
        "expires name",
        expires=_described(_TIME, "When they end, epoch milliseconds; absent if they do not."),
        name=_described(_TEXT, "Whose they are."),
        operations=_described(_list(_TEXT), "`*` is all, `admin` all on every topic."),
        tokens=_described(_BOOLEAN, "Whether this broker has tokens; else all may do everything."),
        topics=_described(_table(_list(_TEXT)), "Topics, each with groups of it; `*` is all."),
    ),
    "Connection": _document(
        "idleMs inBytes outBytes principal since user",
        id=_TEXT,
        address=_described(_TEXT, "As `/ip:port`."),
        kind=words("http", "websocket", "events"),
        tls=_BOOLEAN,
        openRequests=_count("Requests without a final answer."),
        waitingRequests=_count("Those of them that wait for messages or for a service."),
        heldBytes=_count("Of replies that it has not taken yet, or that are being read."),
        stalled=_described(_BOOLEAN, "It does not take what it is sent."),
        idleMs=_count("Since something came from it."),
        inBytes=_count("Bytes that came from it."),
        outBytes=_count("Bytes that it was sent."),
        since=_described(_TIME, "When it was made."),
        principal=_described(_TEXT, "The name in its certificate."),
        user=_described(_TEXT, "The name of its token."),
        reads=_list(_document(topic=_NAME, group=_NAME)),
    ),
    "Health": _document(status=words("ok", "failing"), reasons=_list(_TEXT)),
    "Stats": _document(
        "connectionCount cpuMs diskFreeBytes diskFreeMinBytes diskTotalBytes engine heldBytes"
        " maxFiles memoryBytes memoryTotalBytes refusing reserveBytes startTime syncMs"
        " threads topics",
        connectionCount=_count("This and all the next are for those who may see everything."),
        cpuMs=_count("Processor time of the process."),
        diskFreeBytes=_COUNT,
        diskFreeMinBytes=_count("With less free, nothing is put."),
        diskTotalBytes=_COUNT,
        engine=_document(
            address=_described(_TEXT, "The NATS servers and the cluster, as the option `engine`."),
            epoch=_count("Of this ownership of the stream."),
            sequence=_count("Of the newest message of the stream."),
            unconfirmedMs=_count("Since the last write that is confirmed was sent."),
            inDoubt=_described(_BOOLEAN, "The result of a write is not known yet."),
            bytes=_count("Size of the stream."),
            bytesMax=_count("Its limit; 0 = none."),
        ),
        heldBytes=_table(_COUNT),
        maxFiles=_count("Descriptors that may be open."),
        memoryBytes=_count("Resident."),
        memoryTotalBytes=_count("What the process could have."),
        reserveBytes=_count("Kept for acknowledgements."),
        syncMs=_table({"type": "number"}),
        startTime=_TIME,
        draining=_described(_BOOLEAN, "The broker is stopping."),
        inCount=_count("Messages ever put into these topics."),
        outCount=_count("Messages that these groups have behind them."),
        refusing=_described(_TEXT, "Why nothing is put now, if so."),
        serverAddress=_TEXT,
        serverVersion=_TEXT,
        threads=_COUNT,
        time=_TIME,
        topicCount=_COUNT,
        topics=_table({"type": ["object", "null"]}),
        warningCount=_COUNT,
        warnings=_list(_document("group topic", kind=_TEXT, text=_TEXT, topic=_NAME, group=_NAME)),
    ),
    "TopicInfo": _document(
        "retentionBytes retentionCount retentionDone retentionMs senderHeaders settledMs"
        " ack dedupeLive exclusive paused rpc temporary",
        ack=_described(_BOOLEAN, "Of groups that do not say it themselves; so are the others."),
        consumeGroupList=_list(_ref("ConsumeGroupInfo")),
        consumerCount=_count("Registered sessions of all groups."),
        createdTime=_TIME,
        dedupeLive=_described(_BOOLEAN, "An id is taken while its message is not finished."),
        dedupeMs=_count("How long ids are remembered; 0 = not."),
        durability=words(*DURABILITIES, "replicated"),
        exclusive=_BOOLEAN,
        lastUpdatedTime=_TIME,
        mask=_COUNT,
        messageDepth=_count("Messages ever put."),
        partitionCount={"type": "integer", "minimum": 1},
        paused=_BOOLEAN,
        retentionBytes=_COUNT,
        retentionCount=_COUNT,
        retentionDone=_BOOLEAN,
        retentionMs=_COUNT,
        rpc=_described(_BOOLEAN, "A topic of calls."),
        senderHeaders=_described(_BOOLEAN, "Messages tell how they came to the broker."),
        serverAddress=_ref("ServerAddress"),
        serverVersion=_TEXT,
        settledMs=_count("How long it is known what became of messages."),
        temporary=_BOOLEAN,
        topicName=_NAME,
    ),
    "TrackerInfo": _document(
        infoVersion=_count("Grows with every document."),
        serverAddress=_ref("ServerAddress"),
        serverTable=_table({"type": "object"}),
        serverVersion=_TEXT,
    ),
}
"""The JSON documents."""
