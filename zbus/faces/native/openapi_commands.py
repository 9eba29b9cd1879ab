"""Every command as the description of the HTTP surface has it: parameters, answers, refusals.

Who adds a command to `COMMANDS` of the face adds its row here (one that messages go through, in
`openapi_messages`), and who lets one read another parameter adds that; tests compare this table
with the code.
"""

from __future__ import annotations

import attrs

from zbus.core.declare import DURABILITIES
from zbus.core.errors import Refusal
from zbus.core.filters import FILTER_BYTES_MAX
from zbus.core.limits import DELAY_MS_MAX, Limits
from zbus.faces.native import openapi_parts as parts
from zbus.faces.native.manage import ACK_WINDOW_MAX, MASK_MAX, RETENTION
from zbus.faces.native.needs import FREE
from zbus.faces.native.openapi_messages import message_commands
from zbus.faces.native.openapi_parts import (
    ACK,
    CHANGE,
    DESCRIPTION,
    FLAG,
    GONE,
    GROUP,
    ICON,
    LOG,
    SERVER,
    TEXT,
    TOLD_TIME,
    TOPIC,
    Answer,
    Command,
    Parameter,
)
from zbus.faces.native.read import BYTES_DEFAULT, BYTES_MAX, COUNT_DEFAULT
from zbus.faces.native.settings import NativeSettings

_COOKIE = ("location", "set-cookie")
_HTML = {"text/html": TEXT}
_PLAIN = {"text/plain": TEXT}


def commands(settings: NativeSettings, limits: Limits, now_ms: int) -> dict[str, Command]:
    """The table, by the value of `cmd`. It is of `now_ms` as far as times have limits."""
    table = {
        **message_commands(settings, now_ms),
        "declare": _declare(limits),
        "remove": Command(
            "Delete a group, or a topic with everything in it.",
            "topics",
            (TOPIC, GROUP),
            {200: Answer(f"It is gone, durably. {TOLD_TIME}")},
            (*GONE, *CHANGE),
        ),
        "empty": Command(
            "Forget what a group, or every group of a topic, has not finished.",
            "topics",
            (TOPIC, GROUP),
            {200: Answer(f"It is empty, durably. {TOLD_TIME}")},
            (*GONE, *CHANGE),
        ),
        "read": _read(settings),
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
            {200: Answer(f"Noted. {TOLD_TIME}")},
            (Refusal.TOO_MANY,),
            {"ack": ACK},
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
            GONE,
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
            *(Refusal.TOPIC_UNKNOWN, Refusal.TOO_MANY, Refusal.OVERLOADED, *CHANGE),
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


def _read(settings: NativeSettings) -> Command:
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
        (
            *(Refusal.TOPIC_UNKNOWN, Refusal.OFFSET_UNKNOWN, Refusal.STOPPING, Refusal.DAMAGED),
            Refusal.FENCED,
        ),
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
