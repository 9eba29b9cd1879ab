"""The commands that messages go through, as the description of the HTTP surface has them: put,
taken, settled, sent to a session."""

from __future__ import annotations

from zbus.core.errors import Refusal
from zbus.core.limits import DELAY_MS_MAX
from zbus.faces.native import openapi_parts as parts
from zbus.faces.native.consume import WINDOW_MAX
from zbus.faces.native.leases import LEASE_MS_MAX, OFFSETS_MAX
from zbus.faces.native.openapi_parts import (
    ACK,
    CHANGE,
    FLAG,
    GONE,
    GROUP,
    SERVER,
    TEXT,
    TOLD_TIME,
    TOPIC,
    Answer,
    Command,
    Parameter,
)
from zbus.faces.native.settings import NativeSettings
from zbus.faces.native.stored import (
    ID_BYTES_MAX,
    IDEMPOTENCY_KEY_BYTES_MAX,
    KEY_BYTES_MAX,
    TAG_BYTES_MAX,
)


def message_commands(settings: NativeSettings, now_ms: int) -> dict[str, Command]:
    """By the value of `cmd`."""
    return {
        "produce": _produce(now_ms),
        "consume": _consume(settings),
        "unconsume": Command(
            "Leave a group.",
            "messages",
            (TOPIC, GROUP),
            {204: Answer("The session has left.")},
            GONE,
        ),
        **_settling(),
        "route": _route(),
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
                f"Stored, at the topic's durability. {TOLD_TIME}",
                ("durability", "offset", "partition", "count", "duplicate"),
            )
        },
        (
            *(Refusal.TOPIC_UNKNOWN, Refusal.OFFSET_UNKNOWN, Refusal.CONFLICT, Refusal.TOO_LARGE),
            *(Refusal.REUSED, Refusal.TOO_MANY, Refusal.OVERLOADED, Refusal.UNANSWERED, *CHANGE),
        ),
        {
            "body": Parameter("The body, if the request has none.", TEXT, example="hello"),
            "id": Parameter(
                "The message's id; if absent, where it went: `0-17`.", parts.text(ID_BYTES_MAX)
            ),
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
            "ack": ACK,
            "idempotent": Parameter("The `id` is the request's idempotency key.", FLAG),
            "idempotency-key": Parameter(
                "Names the request: it is stored once.", whole_key, place="header"
            ),
        },
        {**parts.BODY, **parts.BATCH},
    )


def _consume(settings: NativeSettings) -> Command:
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
            *(*GONE, Refusal.OFFSET_UNKNOWN, Refusal.EXCLUSIVE, Refusal.TOO_MANY),
            *(*CHANGE, Refusal.DAMAGED),
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
            "ack": ACK,
        },
    )


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
        "ack": ACK,
    }
    counted = ("count",)
    leased = (*GONE, Refusal.OFFSET_UNKNOWN, *CHANGE)
    return {
        "ack": Command(
            "Acknowledge deliveries.",
            "messages",
            (TOPIC, GROUP),
            {200: Answer(f"Done, also if it was acknowledged before. {TOLD_TIME}")},
            (Refusal.TOPIC_UNKNOWN, *CHANGE),
            common,
        ),
        "nack": Command(
            "Give deliveries back.",
            "messages",
            (TOPIC, GROUP),
            {200: Answer(f"Given back. {TOLD_TIME}", counted)},
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
            {200: Answer(f"Their leases end later. {TOLD_TIME}", counted)},
            leased,
            {
                **common,
                "group_ack_timeout": Parameter(
                    "Milliseconds from now; default the group's.", parts.integer(LEASE_MS_MAX)
                ),
            },
        ),
    }


def _route() -> Command:
    return Command(
        "Send a message straight to a session.",
        "messages",
        (SERVER,),
        {200: Answer(f"It was taken. {TOLD_TIME}")},
        (Refusal.SESSION_UNKNOWN, Refusal.TOO_LARGE, Refusal.STOPPING),
        {
            "recver": Parameter("The session: the `sender` of a delivery.", TEXT),
            "origin_status": Parameter("Its status line: 200 to 999, default 200.", TEXT),
            "ack": Parameter("Whether to reply; without a `cmd` header always.", FLAG),
        },
        parts.BODY,
    )
