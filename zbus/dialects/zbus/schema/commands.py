"""The commands of the dialect: one table of what each is called, takes, needs and answers.

Who adds a command, or lets one take another parameter, says so here, once. Plans read parameters
by these types and bounds (`params`), rights go by these columns (`needs`), and the description of
the HTTP surface (`openapi`) and the tables of docs/reference/zbus.md are made of them. A plan that
asks for what is not here ends in a KeyError, in every test.
"""

from __future__ import annotations

import enum

import attrs

from zbus.core.api import Refusal
from zbus.dialects.zbus.schema.kinds import KINDS, Kind
from zbus.protocol import parameters as takes
from zbus.protocol.parameters import REQUIRED, Parameter

SERVER, TOPIC, GROUP, LOG = "/", "/{topic}", "/{topic}/{group}", "/_log/{topic}"
ASYNCAPI = "/_asyncapi.json"
DESCRIPTION, ICON, WHY = "/_openapi.json", "/favicon.ico", "/_why"
STATS, CONNECTIONS, RIGHTS, CLUSTER = "/_stats", "/_connections", "/_rights", "/_cluster"
METRICS, HISTORY, HEALTH = "/_metrics", "/_history", "/_health/{check}"
"""The paths."""


class Groups(enum.Enum):
    """What of its topic has to be granted for a command."""

    NONE = enum.auto()  # the topic alone, if the request names one
    ONE = enum.auto()  # the group that it names, else the one named like the topic
    NAMED = enum.auto()  # the group that it names, else all
    ALL = enum.auto()  # all: every group's messages are in it
    UNKNOWN = enum.auto()  # not even the topic: what may not be seen is unknown


@attrs.frozen
class Answer:
    """What a request gets that is done. Without `content` the reply has no content type."""

    text: str
    headers: tuple[str, ...] = ()
    content: tuple[str, ...] = ()  # media types, and names of JSON documents; `[]` = a list of them


@attrs.frozen
class Command:
    """One value of `cmd`."""

    text: str
    tag: str
    paths: tuple[str, ...]
    operation: str | None  # that a token must grant; "" = it must be known; None = it is not asked
    groups: Groups
    answers: dict[int, Answer]
    refusals: tuple[Refusal, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    reads: bool = False  # it changes nothing, from whatever page a browser sends it
    body: tuple[str, ...] = ()  # what a POST may bring: "message", "batch", "form", "event"
    of_events: tuple[Parameter, ...] = ()  # parameters of a stream of events
    kinds: dict[bytes, Kind] = attrs.field(init=False)  # of all parameters, by name

    required: tuple[bytes, ...] = attrs.field(init=False)  # but those refused with their forms
    former: dict[bytes, bytes] = attrs.field(init=False)  # other names of these, and theirs
    # The other spelling of each, with `-` for `_` or `_` for `-`, and what it is called here.
    spellings: dict[bytes, bytes] = attrs.field(init=False)

    @kinds.default
    def _all(self) -> dict[bytes, Kind]:
        return {
            each.name.encode(): KINDS[each.kind] for each in (*self.of_events, *self.parameters)
        }

    @required.default
    def _required(self) -> tuple[bytes, ...]:
        return tuple(
            each.name.encode()
            for each in self.parameters
            if each.default == REQUIRED and each.kind not in ("start", "application")
        )

    @former.default
    def _others(self) -> dict[bytes, bytes]:
        return {
            name.encode(): each.name.encode()
            for each in (*self.of_events, *self.parameters)
            for name in each.former
        }

    @spellings.default
    def _spelled(self) -> dict[bytes, bytes]:
        names = (b"consume_group", *self.kinds, *self.former)
        dashed = {name.replace(b"_", b"-"): name for name in names if b"_" in name}
        return dashed | {name.replace(b"-", b"_"): name for name in names if b"-" in name}

    @property
    def reasons(self) -> tuple[Refusal, ...]:
        """The refusals, with that of who may not."""
        return self.refusals if self.operation is None else (Refusal.FORBIDDEN, *self.refusals)


def _answer(text: str, *content: str) -> dict[int, Answer]:
    return {200: Answer(text, (), content)}


def _timed(text: str, *headers: str) -> dict[int, Answer]:
    text += " The body is the broker's time, epoch milliseconds in decimal digits."
    return {200: Answer(text, headers)}


_R = Refusal
_GONE = (_R.TOPIC_UNKNOWN, _R.GROUP_UNKNOWN)
_CHANGE = (_R.STOPPING, _R.FULL, _R.FENCED)
_LEASED = (*_GONE, _R.OFFSET_UNKNOWN, _R.NOT_LEASED, *_CHANGE)
_SINGLE = (*_GONE, _R.OFFSET_UNKNOWN, _R.TOO_MANY, *_CHANGE)
_DELAYED = (*_SINGLE, _R.CONFLICT, _R.DAMAGED)
_ROOT, _BOTH = (SERVER,), (TOPIC, GROUP)
_CONTAINERS = ("Message[]", "application/x-ndjson", "application/vnd.zbus.messages")
_GO_ON = Answer("Go on to the page, with the cookie; or to the form.", ("location", "set-cookie"))

# A table is read by its rows: text, tag, paths, operation, groups, answers, refusals, parameters.
# fmt: off
COMMANDS: dict[str, Command] = {
    "produce": Command(
        "Put a message, or a batch, into a topic. To a topic of services it is a call: the reply is"
        " the service's.",
        "messages", _BOTH, "produce", Groups.NONE,
        _timed("Stored, at the topic's durability.",
               "durability", "offset", "partition", "count", "duplicate"),
        (*_GONE, _R.OFFSET_UNKNOWN, _R.NOT_LEASED, _R.CONFLICT, _R.TOO_LARGE, _R.REUSED,
         _R.UNFIT, _R.TOO_MANY, _R.THROTTLED, _R.OVERLOADED, _R.UNANSWERED, _R.SERVICE_GONE,
         *_CHANGE),
        (*takes.OF_TOPIC, *takes.PRODUCE, *takes.ACK), body=("message", "batch")),
    "consume": Command(
        "Take a message of a group.", "messages", _BOTH, "consume", Groups.ONE,
        {200: Answer(
            "The message, with the headers and content type that it was put with. With `batch`,"
            " a container of messages, chosen by `accept`. With an `accept` of `text/event-stream`,"
            " events without end: of a group, or without one of all that comes.",
            ("offset", "partition", "origin_id", "timestamp", "consume_group", "retry", "skipped",
             "sender", "count"),
            (*_CONTAINERS, "text/event-stream", "*/*")),
         204: Answer("There is none; `empty` says why.", ("empty",))},
        (*_LEASED, _R.EXCLUSIVE, _R.TOO_MANY, _R.DAMAGED),
        (*takes.OF_GROUP, *takes.CONSUME), of_events=takes.EVENTS),
    "unconsume": Command(
        "Leave a group.", "messages", _BOTH, "consume", Groups.ONE,
        {204: Answer("The session has left.")}, _GONE, (*takes.OF_GROUP, *takes.UNCONSUME)),
    # The original asks no operation of an ack either. It asks for no group; here what is read by
    # others is not for everybody to settle.
    "ack": Command(
        "Acknowledge deliveries.", "messages", _BOTH, "", Groups.ONE,
        _timed("Done, also if it was acknowledged before."),
        _LEASED, (*takes.OF_GROUP, *takes.SETTLE, *takes.STRICT, *takes.ACK)),
    "nack": Command(
        "Give deliveries back.", "messages", _BOTH, "consume", Groups.ONE,
        _timed("Given back.", "count"),
        _LEASED, (*takes.OF_GROUP, *takes.SETTLE, *takes.NACK, *takes.ACK)),
    "txn_stage": Command(
        "Stage a message, or a batch, for a topic: it is invisible until it is committed.",
        "transactions", (TOPIC,), "produce", Groups.NONE,
        _timed("Staged, durably.", "durability", "offset", "count", "duplicate"),
        (*_GONE, _R.OFFSET_UNKNOWN, _R.NOT_LEASED, _R.CONFLICT, _R.TOO_LARGE, _R.REUSED,
         _R.UNFIT, _R.TOO_MANY, _R.THROTTLED, _R.OVERLOADED, *_CHANGE),
        (*takes.OF_TOPIC, *takes.TXN, *takes.PRODUCE, *takes.ACK), body=("message", "batch")),
    "txn_commit": Command(
        "Commit staged messages to their topics: a batch as a whole, exactly once.",
        "transactions", _ROOT, "produce", Groups.NONE,
        _timed("It is there, durably.", "count", "duplicate"),
        (_R.TOPIC_UNKNOWN, _R.CONFLICT, _R.UNFIT, *_CHANGE), (*takes.TXN_BATCH, *takes.TXN_COMMIT),
        body=("stages",)),
    "txn_abort": Command(
        "Drop the staged messages of a batch that is not committed.",
        "transactions", _ROOT, "produce", Groups.NONE,
        _timed("It is gone.", "count"), (_R.TOPIC_UNKNOWN, _R.CONFLICT, *_CHANGE),
        (*takes.TXN_BATCH, *takes.TXN_ABORT)),
    "txn_query": Command(
        "The last committed batch of an application, and its staged messages.",
        "transactions", _ROOT, "produce", Groups.NONE,
        _answer("The document.", "object"), (_R.TOPIC_UNKNOWN,), takes.TXN, reads=True),
    "extend": Command(
        "Keep deliveries longer.", "messages", _BOTH, "consume", Groups.ONE,
        _timed("Their leases end later.", "count"),
        _LEASED, (*takes.OF_GROUP, *takes.SETTLE, *takes.EXTEND, *takes.ACK)),
    "redrive": Command(
        "Move dead letters back to the topics they came from.", "messages", _BOTH, "consume",
        Groups.ONE, _timed("The number of messages that were moved, durably.",
               "count", "stayed"),
        (*_GONE, *_CHANGE, _R.DAMAGED), (*takes.OF_GROUP, *takes.REDRIVE)),
    "delete": Command(
        "Finish messages that a group, or every group of a topic, has not finished.",
        "messages", _BOTH, "consume", Groups.NAMED,
        _timed("They are not delivered any more.", "count"),
        _SINGLE, (*takes.OF_TOPIC, *takes.SINGLE, *takes.DELETE, *takes.ACK)),
    "cancel": Command(
        "The same, only while they are delayed.",
        "messages", _BOTH, "consume", Groups.NAMED,
        _timed("They are never delivered.", "count"),
        _DELAYED, (*takes.OF_TOPIC, *takes.SINGLE, *takes.ACK)),
    "fire": Command(
        "Messages that are delayed are due now.", "messages", _BOTH, "consume", Groups.NAMED,
        _timed("They are delivered next, after the ready messages.", "count"),
        _DELAYED, (*takes.OF_TOPIC, *takes.SINGLE, *takes.ACK)),
    "reschedule": Command(
        "Messages that are delayed are due at another time.",
        "messages", _BOTH, "consume", Groups.NAMED,
        _timed("They are due then.", "count"),
        _DELAYED, (*takes.OF_TOPIC, *takes.SINGLE, *takes.RESCHEDULE, *takes.ACK)),
    "peek": Command(
        "List what a group has delayed, leased or ready.", "messages", _BOTH, "consume", Groups.ONE,
        {200: Answer(
            "By the time at which they are due or their leases end; what is ready by partition and"
            " offset. If there may be more, `next` says how to ask for it.",
            ("count", "next", "unseen"), ("ListedMessage[]",))},
        (*_GONE, _R.FENCED, _R.DAMAGED), (*takes.OF_GROUP, *takes.PEEK), reads=True),
    "why": Command(
        "Why a message is not with the consumers of a group: one sentence; with an `accept` of JSON"
        " all that is known.", "messages", (WHY, *_BOTH), "consume", Groups.ONE,
        {200: Answer("The sentence.", (), ("text/plain", "Why"))},
        (*_GONE, _R.OFFSET_UNKNOWN, _R.FENCED, _R.DAMAGED), (*takes.OF_GROUP, *takes.WHY),
        reads=True),
    "route": Command(
        "Send a message straight to a session.", "messages", _ROOT, "route", Groups.NONE,
        _timed("It was taken."),
        (_R.SESSION_UNKNOWN, _R.TOO_LARGE, _R.STOPPING), takes.ROUTE, body=("message",)),
    "declare": Command(
        "Create a topic or a group, or change it. Absent parameters keep their values.",
        "topics", _BOTH, "declare", Groups.ONE,
        _answer("The group if one was named, else the topic.", "TopicInfo", "GroupInfo"),
        (_R.TOPIC_UNKNOWN, _R.CONFLICT, _R.TOO_MANY, _R.OVERLOADED, *_CHANGE, _R.DAMAGED),
        (*takes.OF_GROUP, *takes.DECLARE), body=("schema",)),
    "seek": Command(
        "Move a group: it forgets its leases, and reads on from the place that is named.",
        "topics", _BOTH, "declare", Groups.ONE,
        _answer("The group, moved durably in all partitions or in none.", "GroupInfo"),
        (*_GONE, *_CHANGE, _R.DAMAGED), (*takes.OF_GROUP, *takes.SEEK)),
    "remove": Command(
        "Delete a group, or a topic with everything in it.",
        "topics", _BOTH, "remove", Groups.NAMED,
        _timed("It is gone, durably."), (*_GONE, *_CHANGE), (*takes.OF_TOPIC, *takes.REMOVE)),
    "empty": Command(
        "Forget what a group, or every group of a topic, has not finished.",
        "topics", _BOTH, "empty", Groups.NAMED,
        _timed("It is empty, durably.", "count"), (*_GONE, *_CHANGE),
        (*takes.OF_TOPIC, *takes.EMPTY)),
    "pause": Command(
        "Hold the deliveries of a group back, until `resume`.",
        "topics", _BOTH, "declare", Groups.ONE,
        _answer("The group.", "GroupInfo"), (*_GONE, *_CHANGE), takes.OF_GROUP),
    "resume": Command(
        "Go on with the deliveries of a group.",
        "topics", _BOTH, "declare", Groups.ONE,
        _answer("The group.", "GroupInfo"), (*_GONE, *_CHANGE), takes.OF_GROUP),
    "read": Command(
        "Look at the log, without a group.", "log", (TOPIC, LOG), "consume", Groups.ALL,
        {200: Answer(
            "With `count`, an `accept` of JSON or HTML, or a search: messages. Else batches.",
            ("partition", "first", "end", "count", "scanned", "next"),
            ("application/vnd.zbus.batches", *_CONTAINERS))},
        (_R.TOPIC_UNKNOWN, _R.OFFSET_UNKNOWN, _R.STOPPING, _R.DAMAGED, _R.FENCED),
        (*takes.OF_TOPIC, *takes.READ), reads=True),
    "get": Command(
        "The newest message of a key, of a compact topic.", "log", (TOPIC,), "consume", Groups.ALL,
        {200: Answer("The message, with its header lines.",
                     ("topic", "offset", "origin_id", "partition", "timestamp", "tag", "key",
                      "first-stored", "sender"), ("*/*",)),
         404: Answer("There is no such topic or key, or its newest message has no body.")},
        (_R.TOPIC_UNKNOWN, _R.OFFSET_UNKNOWN, _R.TOO_MANY, _R.OVERLOADED, _R.STOPPING, _R.FENCED,
         _R.DAMAGED), (*takes.OF_TOPIC, *takes.GET), reads=True),
    "query": Command(
        "What the group, the topic or (without one) the server is like now.",
        "topics", (SERVER, TOPIC, GROUP), "query", Groups.UNKNOWN,
        _answer("The document.", "TopicInfo", "GroupInfo", "ServerInfo", "Name[]"),
        _GONE, (*takes.QUERY, *takes.NAMES), reads=True),
    "schema": Command(
        "The JSON Schema that bodies of a topic have to fit.", "topics", (TOPIC,), "query",
        Groups.UNKNOWN,
        {200: Answer("As it was declared, without spaces.", ("schema_version", "schema_first"),
                     ("application/schema+json",)),
         404: Answer("There is no such topic, or no such version of its schema.")},
        (_R.TOPIC_UNKNOWN,), (*takes.OF_TOPIC, *takes.SCHEMA), reads=True),
    "server": Command(
        "What the server is like now.", "server", _ROOT, "server", Groups.NONE,
        _answer("The document.", "ServerInfo", "Name[]"), (), takes.NAMES, reads=True),
    "stats": Command(
        "How the server does: counts of topics and groups, of the process, and warnings. With an"
        " `accept` of `text/event-stream` again and again, what has changed.",
        "server", (STATS, SERVER), "server", Groups.NONE,
        {200: Answer("The document.", (), ("Stats", "text/event-stream"))},
        (), takes.STATS, reads=True, of_events=takes.STATS_EVENTS),
    "history": Command(
        "How busy the server, a topic or a group was in the last hour, day or week. That of the"
        " server is for who may see everything.",
        "server", (HISTORY, SERVER), "server", Groups.NAMED,
        {**_answer("The document.", "History"),
         404: Answer("There is no such topic or group, or no history is kept.")},
        _GONE, takes.HISTORY, reads=True),
    "connections": Command(
        "The connections that are open, for who may see everything.",
        "server", (CONNECTIONS, SERVER), "server", Groups.NONE,
        {200: Answer("In the order of their ids. If there are more, `next` says how to ask on.",
                     ("count", "next"), ("Connection[]",))},
        (), takes.CONNECTIONS, reads=True),
    "disconnect": Command(
        "Close a connection. Its leases expire, and the messages are redelivered.",
        "server", _ROOT, "disconnect", Groups.NONE,
        {**_timed("It ends."), 404: Answer("No connection has this id.")},
        (), takes.DISCONNECT),
    "cluster": Command(
        "Who owns the shards of a cluster, for who may see everything.",
        "server", (CLUSTER, SERVER), "server", Groups.NONE,
        {**_answer("As the node that was asked knows it.", "ClusterInfo"),
         404: Answer("This server is not one of a cluster.")},
        (), (), reads=True),
    "move": Command(
        "Give a shard to another node, and let it stay there.",
        "server", _ROOT, "move", Groups.NONE,
        {**_timed("Its owner answers what is open, and gives it up."),
         404: Answer("There is no such shard or node, or this server is not one of a cluster."),
         409: Answer("It is there already, or on its way."),
         503: Answer("It has no owner just now, or the node has no process to spare.",
                     ("retry-after",))},
        (), takes.MOVE),
    "metrics": Command(
        "The same for monitoring systems that collect figures from time to time.",
        "server", (METRICS, SERVER), "server", Groups.NONE,
        _answer("OpenMetrics text.", "application/openmetrics-text"), (), (), reads=True),
    "health": Command(
        "Whether the broker lives, or is ready for work.", "server", (HEALTH,), None, Groups.NONE,
        {**_answer("It is.", "Health"), 404: Answer("Unknown check."),
         503: Answer("It is not ready; `reasons` lists why.")},
        (), takes.HEALTH, reads=True),
    "heartbeat": Command(
        "Keep the connection from being idle.", "server", _ROOT, None, Groups.NONE,
        {204: Answer("Noted.")}, reads=True),
    "ping": Command(
        "The broker's time.", "server", _ROOT, "", Groups.NONE,
        _answer("Epoch milliseconds.", "text/plain"), reads=True),
    "version": Command(
        "The broker's version.", "server", _ROOT, "", Groups.NONE,
        _answer("The version.", "text/plain"), reads=True),
    "home": Command(
        "To the console.", "server", _ROOT, None, Groups.NONE,
        {302: Answer("The console is there.", ("location",), ("text/plain",))}, reads=True),
    "icon": Command(
        "The icon of the broker.", "server", (ICON,), None, Groups.NONE,
        _answer("The icon.", "image/svg+xml"), reads=True),
    "login": Command(
        "Log in: without a body the form, with one the cookie.", "server", _ROOT, None, Groups.NONE,
        {**_answer("The form.", "text/html"), 302: _GO_ON}, body=("form",)),
    "logout": Command("Log out.", "server", _ROOT, None, Groups.NONE, {302: _GO_ON}),
    "rights": Command(
        "The rights of the caller.", "server", (RIGHTS,), "", Groups.NONE,
        _answer("The operations and topics that are granted.", "RightsInfo"), reads=True),
    "tracker": Command(
        "The servers that this one knows of.", "server", _ROOT, "tracker", Groups.NONE,
        _answer("The document.", "TrackerInfo"), reads=True),
    "track_sub": Command(
        "The same as of `tracker`; with a `cmd` header again after every change.",
        "server", _ROOT, "track_sub", Groups.NONE, _answer("The document.", "TrackerInfo")),
    "track_pub": Command(
        "Another server reports itself.", "server", _ROOT, "track_pub", Groups.NONE,
        _timed("Noted."), (_R.TOO_MANY,), takes.ACK, body=("event",)),
    "ssl": Command(
        "A server's certificate.", "server", _ROOT, "ssl", Groups.NONE,
        {**_answer("The certificate as PEM.", "text/plain"), 404: Answer("None is known.")},
        (), takes.SSL, reads=True),
    "openapi": Command(
        "This description.", "server", (DESCRIPTION,), "", Groups.NONE,
        _answer("OpenAPI 3.1.", "object"), (), takes.OPENAPI, reads=True),
    "asyncapi": Command(
        "The topics that the caller may see, with the schemas of their messages.",
        "server", (ASYNCAPI,), "query", Groups.NONE,
        _answer("AsyncAPI 3.0.", "object"), reads=True),
}
# fmt: on
"""By the value of `cmd`."""

NO_COMMAND = Command("None of these.", "", (), "", Groups.NONE, {})
ABSENT = frozenset((b"js", b"css", b"img", b"page"))
"""Commands of the original that are not there: refused without asking who asks."""

TABLE = {name.encode(): command for name, command in COMMANDS.items()}
SPELLINGS = {key: name for command in TABLE.values() for key, name in command.spellings.items()}
"""Every name of a parameter that has a `_` or a `-`, by its other spelling."""

FREE = ABSENT | {name for name, command in TABLE.items() if command.operation is None}
READS = frozenset(name for name, command in TABLE.items() if command.reads)
BODIES = frozenset(name for name, command in TABLE.items() if command.body)
CHECKED = frozenset(
    name
    for name, command in TABLE.items()
    if command.tag in ("messages", "transactions", "topics", "log")
    and "message" not in command.body
)
"""Commands whose queries hold names of parameters alone: names that they do not know are refused.
(The query of a message may hold its header lines, and that of a page what people link to.)"""
DOCUMENTS = frozenset(n for n, command in TABLE.items() if {*command.body} - {"message", "batch"})
"""Commands that read the whole body. (A produce finds out whether its body is a batch.)"""

GROUP_COMMANDS = frozenset(n for n, command in TABLE.items() if b"consume_group" in command.kinds)
"""Commands whose second path segment is a group, and that know `group` as its short name. (The
original leaves out unconsume and ack: there `/topic/group?cmd=ack` is about another group.)"""

MOUNTED: dict[bytes, tuple[bytes, int]] = {
    path.split("/")[1].encode(): (name, 1 + path.count("{check}"))
    for name, command in TABLE.items()
    for path in command.paths
    if path not in (SERVER, TOPIC, GROUP)
}
"""First path segments with a meaning of their own: the command, and the segments to skip."""
