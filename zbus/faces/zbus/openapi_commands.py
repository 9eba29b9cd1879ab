"""Every command as the description of the HTTP surface has it: parameters, answers, refusals.

Who adds a command to `COMMANDS` of the face adds its row here, and who lets one read another
parameter adds that; tests compare this table with the code.
"""

from __future__ import annotations

import attrs

from zbus.core.declare import DURABILITIES
from zbus.core.errors import Refusal
from zbus.core.filters import FILTER_BYTES_MAX
from zbus.core.limits import DELAY_MS_MAX, Limits
from zbus.faces.zbus import openapi_parts as parts
from zbus.faces.zbus.consume import WINDOW_MAX
from zbus.faces.zbus.guarded import FREE
from zbus.faces.zbus.leases import LEASE_MS_MAX, OFFSETS_MAX
from zbus.faces.zbus.manage import ACK_WINDOW_MAX, MASK_MAX, RETENTION
from zbus.faces.zbus.openapi_parts import FLAG, TEXT, Answer, Command, Parameter
from zbus.faces.zbus.read import BYTES_DEFAULT, BYTES_MAX, COUNT_DEFAULT
from zbus.faces.zbus.settings import ZbusSettings
from zbus.faces.zbus.stored import (
    ID_BYTES_MAX,
    IDEMPOTENCY_KEY_BYTES_MAX,
    KEY_BYTES_MAX,
    TAG_BYTES_MAX,
)

SERVER, TOPIC, GROUP, LOG = "/", "/{topic}", "/{topic}/{group}", "/_log/{topic}"
DESCRIPTION, ICON = "/_openapi.json", "/favicon.ico"

_GONE = (Refusal.TOPIC_UNKNOWN, Refusal.GROUP_UNKNOWN)
_CHANGE = (Refusal.STOPPING, Refusal.FULL)

_TIME = "The body is the broker's time, epoch milliseconds in decimal digits."
_ACK = Parameter("Whether to reply; without a `cmd` header there is always a reply.", FLAG)
_COOKIE = ("location", "set-cookie")
_HTML = {"text/html": TEXT}
_PLAIN = {"text/plain": TEXT}


def commands(settings: ZbusSettings, limits: Limits, now_ms: int) -> dict[str, Command]:
    """The table, by the value of `cmd`. It is of `now_ms` as far as times have limits."""
    table = {
        "produce": _produce(now_ms),
        "consume": _consume(settings),
        "unconsume": Command(
            "Leave a group.",
            "messages",
            (TOPIC, GROUP),
            {204: Answer("The session has left.")},
            _GONE,
        ),
        **_settling(),
        "declare": _declare(limits),
        "remove": Command(
            "Delete a group, or a topic with everything in it.",
            "topics",
            (TOPIC, GROUP),
            {200: Answer(f"It is gone, durably. {_TIME}")},
            (*_GONE, *_CHANGE),
        ),
        "empty": Command(
            "Forget what a group, or every group of a topic, has not finished.",
            "topics",
            (TOPIC, GROUP),
            {200: Answer(f"It is empty, durably. {_TIME}")},
            (*_GONE, *_CHANGE),
        ),
        "read": _read(settings),
        "route": _route(),
        **_looking(),
        **_access(),
        **_tracking(),
    }
    table["openapi"] = _openapi((*table, "openapi"))
    return {
        name: entry
        if name.encode() in FREE
        else attrs.evolve(entry, refusals=(Refusal.FORBIDDEN, *entry.refusals))
        for name, entry in table.items()
    }


def _settling() -> dict[str, Command]:
    """What becomes of deliveries."""
    number = "[0-9]{1,19}"
    numbers = {
        "type": ["integer", "string"],
        "minimum": 0,
        "pattern": f"^{number}(-{number})?(,{number}(-{number})?)*$",
    }
    said = f"Of the delivery, or of many: `3,5-9,12`, at most {OFFSETS_MAX} in all."
    common = {
        "offset": Parameter(said, numbers, required=True, example="0"),
        "partition": Parameter("Of the deliveries; default 0.", parts.integer()),
        "ack": _ACK,
    }
    counted = ("count",)
    leased = (*_GONE, Refusal.OFFSET_UNKNOWN, *_CHANGE)
    return {
        "ack": Command(
            "Acknowledge deliveries.",
            "messages",
            (TOPIC, GROUP),
            {200: Answer(f"Done, also if it was acknowledged before. {_TIME}")},
            (Refusal.TOPIC_UNKNOWN, *_CHANGE),
            common,
        ),
        "nack": Command(
            "Give deliveries back.",
            "messages",
            (TOPIC, GROUP),
            {200: Answer(f"Given back. {_TIME}", counted)},
            leased,
            {
                **common,
                "delay": Parameter(
                    "Milliseconds until they may be handed out again.", parts.integer(DELAY_MS_MAX)
                ),
                "front": Parameter("Without a delay: before everything else; default.", FLAG),
            },
        ),
        "extend": Command(
            "Keep deliveries longer.",
            "messages",
            (TOPIC, GROUP),
            {200: Answer(f"Their leases end later. {_TIME}", counted)},
            leased,
            {
                **common,
                "group_ack_timeout": Parameter(
                    "Milliseconds from now; default the group's.", parts.integer(LEASE_MS_MAX)
                ),
            },
        ),
    }


def _access() -> dict[str, Command]:
    """A token in a browser's cookie."""
    go = Answer("Go on to the page, with the cookie; or back to the form.", _COOKIE)
    return {
        "login": Command(
            "Log in: without a body the form, with one the cookie.",
            "server",
            (SERVER,),
            {200: Answer("The form.", content=_HTML), 302: go},
            body=parts.FORM,
        ),
        "logout": Command("Log out.", "server", (SERVER,), {302: go}),
    }


def _openapi(names: tuple[str, ...]) -> Command:
    return Command(
        "This description.",
        "server",
        (DESCRIPTION,),
        {200: Answer("OpenAPI 3.1.", content={parts.JSON: {"type": "object"}})},
        parameters={
            "command": Parameter(
                "Describe this one alone: operations with exactly its parameters.",
                parts.words(*names),
                example="consume",
            )
        },
    )


def _tracking() -> dict[str, Command]:
    """Several brokers that know of each other."""
    tracker = {parts.JSON: parts.ref("TrackerInfo")}
    event = {parts.JSON: {"schema": parts.ref("ServerEvent")}}
    return {
        "tracker": Command(
            "The servers that this one knows of.",
            "server",
            (SERVER,),
            {200: Answer("The document.", content=tracker)},
        ),
        "track_sub": Command(
            "The same; with a `cmd` header again after every change.",
            "server",
            (SERVER,),
            {200: Answer("The document.", content=tracker)},
        ),
        "track_pub": Command(
            "Another server reports itself.",
            "server",
            (SERVER,),
            {200: Answer(f"Noted. {_TIME}")},
            (Refusal.TOO_MANY,),
            {"ack": _ACK},
            event,
        ),
        "ssl": Command(
            "A server's certificate.",
            "server",
            (SERVER,),
            {
                200: Answer("The certificate as PEM.", content=_PLAIN),
                404: Answer("None is known."),
            },
            parameters={"server": Parameter("Whose; default this one's address.", TEXT)},
        ),
    }


def _looking() -> dict[str, Command]:
    """What changes nothing and waits for nothing."""
    server = {parts.JSON: parts.ref("ServerInfo")}
    kinds = [parts.ref(name) for name in ("TopicInfo", "ConsumeGroupInfo", "ServerInfo")]
    names = {"type": "array", "items": parts.NAME}
    documents = {parts.JSON: {"oneOf": [*kinds, names]}}
    return {
        "query": Command(
            "What the group, the topic or (without one) the server is like now.",
            "topics",
            (SERVER, TOPIC, GROUP),
            {200: Answer("The document.", content=documents)},
            _GONE,
            parameters={"names": Parameter("1: the names of all topics, or groups, alone.", FLAG)},
        ),
        "server": Command(
            "What the server is like now.",
            "server",
            (SERVER,),
            {200: Answer("The document.", content=server)},
        ),
        "heartbeat": Command(
            "Keep the connection from being idle.",
            "server",
            (SERVER,),
            {204: Answer("Noted.")},
        ),
        "ping": Command(
            "The broker's time.",
            "server",
            (SERVER,),
            {200: Answer("Epoch milliseconds.", content=_PLAIN)},
        ),
        "version": Command(
            "The broker's version.",
            "server",
            (SERVER,),
            {200: Answer("The version.", content=_PLAIN)},
        ),
        "home": Command(
            "A page with links to try, and the topics.",
            "server",
            (SERVER,),
            {
                200: Answer("The page.", content=_HTML),
                302: Answer("To whom the broker does not know: log in.", ("location",)),
            },
        ),
        "icon": Command(
            "The icon of the page.",
            "server",
            (ICON,),
            {200: Answer("The icon.", content={"image/svg+xml": TEXT})},
        ),
    }


def _produce(now_ms: int) -> Command:
    key = rf"[!#-\[\]-~]{{1,{IDEMPOTENCY_KEY_BYTES_MAX}}}"
    whole_key = {"type": "string", "pattern": f'^({key}|"{key}")$'}
    delay = parts.integer(DELAY_MS_MAX)
    return Command(
        "Put a message, or a batch, into a topic. To a topic of services it is a call: the reply is"
        " the service's.",
        "messages",
        (TOPIC, GROUP),
        {
            200: Answer(
                f"Stored, at the topic's durability. {_TIME}",
                ("durability", "offset", "partition", "count", "duplicate"),
            )
        },
        (
            *(Refusal.TOPIC_UNKNOWN, Refusal.OFFSET_UNKNOWN, Refusal.CONFLICT, Refusal.TOO_LARGE),
            *(Refusal.REUSED, Refusal.TOO_MANY, Refusal.OVERLOADED, Refusal.UNANSWERED, *_CHANGE),
        ),
        {
            "body": Parameter("The body, if the request has none.", TEXT, example="hello"),
            "id": Parameter("The message's id; made if absent.", parts.text(ID_BYTES_MAX)),
            "tag": Parameter("Dotted words that filters match.", parts.text(TAG_BYTES_MAX)),
            "key": Parameter("Same key, same partition.", parts.text(KEY_BYTES_MAX)),
            "partition": Parameter("Put it there.", parts.integer()),
            "delay": Parameter("Milliseconds until it is due.", delay),
            "deliver_at": Parameter(
                "When it is due, epoch ms; at most ten years ahead.",
                parts.integer(now_ms + DELAY_MS_MAX),
            ),
            "ttl": Parameter("Milliseconds until it expires.", delay),
            "expected_offset": Parameter("Put it only if it gets this offset.", parts.integer()),
            "timeout": Parameter("Of a call: how long to wait for the answer, ms.", delay),
            "module": Parameter("Of a call by URL: the module of the service.", TEXT),
            "method": Parameter("Of a call by URL; without it, the second segment.", TEXT),
            "ack": _ACK,
            "idempotent": Parameter("The `id` is the request's idempotency key.", FLAG),
            "idempotency-key": Parameter(
                "Names the request: it is stored once.", whole_key, place="header"
            ),
        },
        {**parts.BODY, **parts.BATCH},
    )


def _consume(settings: ZbusSettings) -> Command:
    return Command(
        "Take a message of a group.",
        "messages",
        (TOPIC, GROUP),
        {
            200: Answer(
                "The message, with the headers and content type that it was put with. With `batch`,"
                " a container of messages, chosen by `accept`. With an `accept` of"
                " `text/event-stream`, events without end: of a group, or without one of all that"
                " comes.",
                parts.DELIVERY,
                {**parts.CONTAINERS, parts.EVENTS: TEXT, "*/*": {}},
            ),
            204: Answer("There is none; `empty` says why.", ("empty",)),
        },
        (
            *(*_GONE, Refusal.OFFSET_UNKNOWN, Refusal.EXCLUSIVE, Refusal.TOO_MANY),
            *(Refusal.STOPPING, Refusal.FULL, Refusal.DAMAGED),
        ),
        {
            "timeout": Parameter(
                "Milliseconds to wait; 0 takes what is there. Absent: it waits.",
                parts.integer(DELAY_MS_MAX),
                example=1_000,
            ),
            "batch": Parameter(
                "Up to so many messages in one container.",
                parts.integer(settings.batch_messages_max, minimum=1),
            ),
            "partition": Parameter("Take from this one only.", parts.integer()),
            "offset": Parameter(
                "The message there, whatever the group has read; changes nothing.", parts.integer()
            ),
            "consume_window": Parameter(
                "With a `cmd` header: up to so many replies. Of events: so many unacknowledged.",
                parts.integer(WINDOW_MAX),
            ),
            "envelope": Parameter("Of events: all that is known, as JSON.", parts.words("json")),
            "last-event-id": Parameter("Of events: go on behind this one.", TEXT, place="header"),
            "ack": _ACK,
        },
    )


def _declare(limits: Limits) -> Command:
    mask = parts.integer(MASK_MAX)
    documents = {
        parts.JSON: {"oneOf": [parts.ref("TopicInfo"), parts.ref("ConsumeGroupInfo")]},
    }
    return Command(
        "Create a topic or a group, or change it. What is absent stays as it is.",
        "topics",
        (TOPIC, GROUP),
        {200: Answer("The group if one was named, else the topic.", content=documents)},
        (
            *(Refusal.TOPIC_UNKNOWN, Refusal.TOO_MANY, Refusal.OVERLOADED, *_CHANGE),
            Refusal.DAMAGED,
        ),
        {
            "topic_mask": Parameter(
                "Sum of 1 memory, 2 rpc, 4 proxy, 8 pause, 16 exclusive, 32 delete_on_exit,"
                " 64 ack_required.",
                mask,
            ),
            "partitions": Parameter(
                "How many; fixed at creation.", parts.integer(limits.partitions_max, minimum=1)
            ),
            "durability": Parameter(
                "What a reply waits for; fixed at creation.", parts.words(*DURABILITIES)
            ),
            **{
                name: Parameter("How much is kept; 0 = no such limit.", parts.integer(maximum))
                for name, maximum in RETENTION.items()
            },
            "retention_done": Parameter("Forget what all groups have finished.", FLAG),
            "dedupe_ms": Parameter(
                "How long an id is remembered; 0 = not.", parts.integer(DELAY_MS_MAX)
            ),
            **_group_parameters(),
        },
    )


def _group_parameters() -> dict[str, Parameter]:
    mask = parts.integer(MASK_MAX)
    return {
        "group_name_auto": Parameter("The broker chooses the group's name.", FLAG),
        "group_mask": Parameter("As `topic_mask`; 0 goes by the topic's.", mask),
        "group_filter": Parameter(
            "Which tags: words with dots, `*` one, `#` the rest, `;` or.",
            parts.text(FILTER_BYTES_MAX),
        ),
        "group_ack_window": Parameter(
            "Unacknowledged messages at once.", parts.integer(ACK_WINDOW_MAX)
        ),
        "group_ack_timeout": Parameter("Milliseconds of a lease.", mask),
        "group_start_copy": Parameter("Start where this group stands.", TEXT),
        "group_start_offset": Parameter("Start at this message.", parts.integer()),
        "group_start_msgid": Parameter("The id that it must have.", TEXT),
        "group_start_time": Parameter("Start at the first message from then on.", parts.integer()),
        "partition": Parameter("Of `group_start_offset`; default all.", parts.integer()),
    }


def _read(settings: ZbusSettings) -> Command:
    return Command(
        "Look at the log, without a group.",
        "log",
        (TOPIC, LOG),
        {
            200: Answer(
                "With `count`, or an `accept` of JSON or HTML: messages. Else stored batches.",
                ("partition", "end", "count"),
                {parts.BATCHES: TEXT, **parts.CONTAINERS},
            )
        },
        (Refusal.TOPIC_UNKNOWN, Refusal.OFFSET_UNKNOWN, Refusal.STOPPING, Refusal.DAMAGED),
        {
            "partition": Parameter("Which one; default 0.", parts.integer()),
            "offset": Parameter("Where to begin; default the oldest there is.", parts.integer()),
            "bytes": Parameter(
                f"At most so many bytes of batches; default {BYTES_DEFAULT}.",
                parts.integer(BYTES_MAX),
            ),
            "count": Parameter(
                f"At most so many messages; default {COUNT_DEFAULT}.",
                parts.integer(settings.batch_messages_max),
                example=10,
            ),
        },
    )


def _route() -> Command:
    return Command(
        "Send a message straight to a session.",
        "messages",
        (SERVER,),
        {200: Answer(f"It was taken. {_TIME}")},
        (Refusal.SESSION_UNKNOWN, Refusal.TOO_LARGE, Refusal.STOPPING),
        {
            "recver": Parameter("The session: the `sender` of a delivery.", TEXT),
            "origin_status": Parameter("Its status line: 200 to 999, default 200.", TEXT),
            "ack": Parameter("Whether to reply; without a `cmd` header always.", FLAG),
        },
        parts.BODY,
    )
