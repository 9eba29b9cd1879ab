"""`GET /_openapi.json`: the HTTP surface as OpenAPI 3.1, made from the table of commands.

OpenAPI tells operations apart by path and method, never by a query key, and here `cmd` is what
counts. So an operation of the whole description stands for all commands of its path: its
parameters say whose they are. With `?command=consume` the description is of that command alone and
exact; that is the one to make a client from, or to test with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial

import msgspec

from zbus.core.api import DELAY_MS_MAX, Limits, Refusal
from zbus.dialects.zbus.context import Context
from zbus.dialects.zbus.replies import JSON, TEXTS, Answered, NativeReply
from zbus.dialects.zbus.request.params import BadRequest, Params
from zbus.dialects.zbus.schema.commands import (
    ASYNCAPI,
    CLUSTER,
    COMMANDS,
    CONNECTIONS,
    DESCRIPTION,
    GROUP,
    HEALTH,
    HISTORY,
    ICON,
    LOG,
    METRICS,
    RIGHTS,
    SERVER,
    STATS,
    TOPIC,
    WHY,
    Command,
)
from zbus.dialects.zbus.schema.kinds import KINDS, TEN_YEARS_AHEAD
from zbus.dialects.zbus.server import openapi_parts as parts
from zbus.dialects.zbus.server.openapi_parts import Schema, schema_of
from zbus.dialects.zbus.settings import ZbusSettings
from zbus.edge.status import STATUS
from zbus.protocol.parameters import HEALTH as HEALTH_CHECK
from zbus.protocol.parameters import OF_GROUP, REQUIRED, Parameter
from zbus.wire.replies import REASONS

_INTRODUCTION = """\
A message broker that anything able to speak HTTP can use. Topics are logs; groups read them, each
at its own pace. What a request asks for is `cmd`.

- Every query key may be sent as a header of the same name instead; a header wins.
- The method has no meaning, and any request may have a body. GET is described where a URL is all
  there is to say, POST where a body is sent.
- With a `cmd` header the request speaks the protocol of zbus clients: replies come as they are
  ready and are known by `id`. Without one they come in order.
- Numbers are decimal digits and nothing else. Flags are `1` or `true`, anything else is no. What is
  present and empty counts as absent.
- Lengths of text are bytes of UTF-8.
- Other keys and headers of a produce travel with the message.
- `/_openapi.json?command=consume` describes one command alone: an operation with its own parameters
  and replies, to make a client from.
"""

_OPERATIONS: dict[tuple[str, str], tuple[str, str]] = {
    (SERVER, "get"): ("server", "The server: `cmd` says what"),
    (SERVER, "post"): ("send", "Something for the server or a session: `cmd` says what"),
    (TOPIC, "get"): ("topic", "A topic: `cmd` says what"),
    (TOPIC, "post"): ("produce", "Put a message"),
    (GROUP, "get"): ("group", "A group of a topic: `cmd` says what"),
    (LOG, "get"): ("log", "Look at a topic's log"),
    (WHY, "get"): ("why", "Why a message is not delivered to the consumers of a group"),
    (RIGHTS, "get"): ("rights", "The rights of the caller"),
    (STATS, "get"): ("stats", "How the broker does"),
    (HISTORY, "get"): ("history", "How busy the broker was"),
    (CONNECTIONS, "get"): ("connections", "Who is connected"),
    (CLUSTER, "get"): ("cluster", "Who owns the shards"),
    (METRICS, "get"): ("metrics", "Figures for a monitoring system"),
    (HEALTH, "get"): ("health", "Whether the broker lives, or is ready"),
    (DESCRIPTION, "get"): ("description", "This description"),
    (ASYNCAPI, "get"): ("asyncapi", "The topics and the schemas of their messages"),
    (ICON, "get"): ("icon", "The icon"),
}
"""Id and title of each operation that is described. Of one command alone, `consumeGroup` and the
like are the ids."""

_DEFAULTS = {SERVER: "home", TOPIC: "produce", GROUP: "produce"}
"""What a path means without `cmd`; all other paths mean one thing."""

_TAGS = {
    "messages": "Messages in and out",
    "topics": "Topics and groups",
    "log": "The log itself",
    "server": "The broker",
}

_SECURITY = {
    "token": {"type": "apiKey", "in": "header", "name": "token"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "token"},
}

_ID = Parameter("id", "text", "made by the broker", "comes back on the reply")
_IN_PATH = {"{topic}": OF_GROUP[0], "{group}": OF_GROUP[1], "{check}": HEALTH_CHECK[0]}
_IN_HEADER = ("idempotency-key", "last-event-id")
_EXAMPLES = {"body": "hello", "timeout": 1_000, "count": 10, "command": "consume", "offset": 0}

ANYWHERE: dict[int, str] = {
    400: "The request is not well-formed",
    403: "A browser sends this for a page that may not",
    405: "HEAD or OPTIONS, and it would change something",
    408: "Head or body did not come in time",
    411: "A body without a length",
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

OF_BODIES = {415: "The coding or the character set of the body is not understood"}
"""What a request can get whose body is read."""

DAY_MS = 86_400_000
"""A description is good for a day: the limits of times in it are those of the day's beginning."""


def openapi(dialect: Context, params: Params) -> Answered:
    """The plan of `/_openapi.json`."""
    command = params.text(b"command") or ""
    if command and command not in COMMANDS:
        raise BadRequest(400, f"400: Bad Format, command is one of {', '.join(COMMANDS)}")
    return Answered(partial(_tell, command), dialect, params)


def _tell(command: str, reply: NativeReply) -> None:
    broker = reply.dialect.broker
    day_ms = broker.now_ms // DAY_MS * DAY_MS
    reply.respond(200, JSON, encoded(reply.dialect.settings, broker.limits, day_ms, command))


@lru_cache(maxsize=64)  # of one broker: each command's and the whole
def encoded(settings: ZbusSettings, limits: Limits, day_ms: int, command: str) -> bytes:
    """The description as JSON; of one command, or of all if it is empty."""
    return msgspec.json.encode(describe(settings, limits, day_ms, command))


def describe(settings: ZbusSettings, limits: Limits, now_ms: int, command: str = "") -> Schema:
    """The description; of one command, or of all if it is empty."""
    bounds = {
        "batch_messages_max": settings.batch_messages_max,
        "partitions_max": limits.partitions_max,
        TEN_YEARS_AHEAD: now_ms + DELAY_MS_MAX,
    }
    paths: dict[str, Schema] = {}
    for (path, method), (id, title) in _OPERATIONS.items():
        table = {
            name: entry
            for name, entry in COMMANDS.items()
            if command in ("", name) and path in entry.paths and _suits(name, entry, path, method)
        }
        if command:
            id, title = command if method == "post" else command + id.capitalize(), ""
        if table:
            operation = _Operation(path, method, table, bounds)
            paths.setdefault(path, {})[method] = operation.document(id, title)
    headers = parts.HEADERS.items()
    return {
        "openapi": "3.1.0",
        "info": {"title": "zbus", "version": settings.version, "description": _INTRODUCTION},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": title} for name, title in _TAGS.items()],
        "security": [{}, *({name: []} for name in _SECURITY)],
        "paths": paths,
        "x-commands": {
            name: {"text": entry.text, "operation": entry.operation or None}
            for name, entry in COMMANDS.items()
            if command in ("", name)
        },
        "components": {
            "schemas": parts.schemas(),
            "headers": {name: {"description": text, "schema": of} for name, (text, of) in headers},
            "securitySchemes": _SECURITY,
        },
    }


def _suits(name: str, entry: Command, path: str, method: str) -> bool:
    """GET is for everything but what makes no sense without a body; POST for what takes one."""
    if method == "post":
        return bool(entry.body) and (path, name) != (GROUP, "produce")
    return name != "route"


class _Operation:
    """A path and method, and the commands that it stands for."""

    def __init__(
        self, path: str, method: str, table: dict[str, Command], bounds: Mapping[str, int]
    ) -> None:
        self._path = path
        self._method = method
        self._table = table
        self._bounds = bounds

    def document(self, id: str, title: str) -> Schema:
        entries = list(self._table.values())
        document: Schema = {
            "operationId": id,
            "summary": title or entries[0].text,
            "description": "\n".join(f"- `{n}`: {entry.text}" for n, entry in self._table.items()),
            "tags": list(dict.fromkeys(entry.tag for entry in entries)),
            "parameters": [*self._in_path(), *self._cmd(), *self._others()],
            "responses": self._responses(),
        }
        if self._method == "post":
            bodies = [parts.BODIES[body] for entry in entries for body in entry.body]
            content = {media: schema for body in bodies for media, schema in body.items()}
            document["requestBody"] = {"content": content}
        return document

    # -- parameters -----------------------------------------------------------------------

    def _in_path(self) -> Iterator[Schema]:
        for segment in self._path.split("/"):
            if segment in _IN_PATH:
                parameter = _IN_PATH[segment]
                yield {
                    "name": segment[1:-1],
                    "in": "path",
                    "required": True,
                    "description": parameter.described,
                    "schema": schema_of(KINDS[parameter.kind], self._bounds),
                    "example": "MyTopic",
                }

    def _cmd(self) -> Iterator[Schema]:
        default = _DEFAULTS.get(self._path)
        if default is not None and (self._method, [*self._table]) != ("post", ["produce"]):
            schema = parts.words(*self._table)
            if default in self._table:
                schema["default"] = default
            yield {
                "name": "cmd",
                "in": "query",
                "required": default not in self._table,
                "description": "What is asked for.",
                "schema": schema,
            }

    def _others(self) -> Iterator[Schema]:
        """All other parameters. One that several commands have says what it is to each."""
        in_path = {each.spelled for segment, each in _IN_PATH.items() if segment in self._path}
        found: dict[str, dict[str, Parameter]] = {}
        for command, entry in self._table.items():
            for name, parameter in _parameters(entry).items():
                if name not in in_path:
                    found.setdefault(name, {})[command] = parameter
        return (self._merged(name, of) for name, of in found.items())

    def _merged(self, name: str, of: dict[str, Parameter]) -> Schema:
        texts: dict[str, list[str]] = {}
        schemas: list[Schema] = []
        for command, parameter in of.items():
            texts.setdefault(parameter.described, []).append(command)
            if (schema := schema_of(KINDS[parameter.kind], self._bounds)) not in schemas:
                schemas.append(schema)
        all_of_them = len(self._table)
        document: Schema = {
            "name": name,
            "in": "header" if name in _IN_HEADER else "query",
            "description": "\n".join(
                text if len(commands) == all_of_them else f"{', '.join(commands)}: {text}"
                for text, commands in texts.items()
            ),
            "schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas},
        }
        required = [parameter.default == REQUIRED for parameter in of.values()]
        if len(of) == all_of_them and all(required):
            document["required"] = True
        if all_of_them == 1 and name in _EXAMPLES:
            document["example"] = _EXAMPLES[name]
        return document

    # -- replies --------------------------------------------------------------------------

    def _responses(self) -> Schema:
        responses: dict[str, Schema] = {}
        reasons: dict[Refusal, None] = {}
        for name, entry in self._table.items():
            reasons |= dict.fromkeys(entry.reasons)
            for status, answer in entry.answers.items():
                response = responses.setdefault(
                    str(status), {"description": "", "headers": _headers(parts.EVERY_REPLY)}
                )
                text = answer.text if len(self._table) == 1 else f"- `{name}`: {answer.text}"
                response["description"] += ("\n" if response["description"] else "") + text
                response["headers"] |= _headers(answer.headers)
                for media, schema in map(parts.content_of, answer.content):
                    _add_content(response.setdefault("content", {}), media, schema)
        general = set(ANYWHERE)
        if any(entry.body for entry in self._table.values()):
            general |= OF_BODIES.keys()
        for code in sorted({*general, *(STATUS[each] for each in reasons)}):
            responses[str(code)] = _refusal(code, _refusal_text(code, tuple(reasons)))
        if "produce" in self._table:
            text = "Of a call only: whatever status the service answers with."
            responses["default"] = {"description": text}
        return responses


def _parameters(entry: Command) -> dict[str, Parameter]:
    """By name. What counts for a stream of events alone may be anything without one."""
    streams = (
        each._replace(kind="text", meaning=f"of a stream of events: {each.meaning}")
        for each in entry.of_events
    )
    found = {each.name: each for each in (_ID, *streams, *entry.parameters)}
    for other, name in entry.former.items():
        parameter = found[name.decode()]
        meaning = f"another name of `{parameter.spelled}`"
        found[other.decode()] = parameter._replace(name=other.decode(), meaning=meaning)
    return {each.spelled: each._replace(name=each.spelled) for each in found.values()}


def _add_content(content: dict[str, Schema], media: str, schema: Schema) -> None:
    """One more form of a body; several of one type are alternatives."""
    known = content.setdefault(media, {"schema": schema})["schema"]
    if known != schema:
        forms = known.get("oneOf", [known])
        content[media] = {"schema": {"oneOf": forms if schema in forms else [*forms, schema]}}


def _headers(names: tuple[str, ...]) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _refusal_text(status: int, refusals: tuple[Refusal, ...]) -> str:
    """One line for each reason that this status can have."""
    general = ANYWHERE | OF_BODIES
    lines = [f"{general[status]}."] if status in general else []
    for refusal in refusals:
        if STATUS[refusal] == status:
            text = f": `{TEXTS[refusal].format('…')}`" if refusal in TEXTS else ""
            lines.append(f"{refusal.value.capitalize()}{text}.")
    return " ".join(lines)


def _refusal(status: int, text: str) -> Schema:
    headers = _headers(("cache-control", "connection"))
    if status in (429, 503, 507):
        headers |= _headers(("retry-after",))
    if status == STATUS[Refusal.NOT_LEASED]:
        headers |= _headers(("reason",))
    if status == STATUS[Refusal.CONFLICT]:
        headers |= _headers(("offset",))
    description = f"{REASONS[status].decode()}. {text} The body is a sentence."
    return {"description": description, "headers": headers}
