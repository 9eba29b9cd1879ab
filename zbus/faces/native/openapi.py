"""`GET /_openapi.json`: the HTTP surface as OpenAPI 3.1, made from the table of commands.

OpenAPI tells operations apart by path and method, never by a query key, and here `cmd` is what
counts. So an operation of the whole description stands for all commands of its path: its
parameters say whose they are. With `?command=consume` the description is of that command alone and
exact; that is the one to make a client from, or to test with.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from zbus.core.errors import Refusal
from zbus.core.limits import Limits
from zbus.faces.native import openapi_parts as parts
from zbus.faces.native.context import Context
from zbus.faces.native.openapi_commands import commands
from zbus.faces.native.openapi_parts import (
    DESCRIPTION,
    GROUP,
    ICON,
    LOG,
    SERVER,
    TOPIC,
    Command,
    Parameter,
    Schema,
)
from zbus.faces.native.params import GROUP_COMMANDS, BadRequest, Params
from zbus.faces.native.replies import JSON, STATUS, NativeReply
from zbus.faces.native.settings import NativeSettings
from zbus.faces.peer import Peer
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
    (DESCRIPTION, "get"): ("description", "This description"),
    (ICON, "get"): ("icon", "The icon"),
}
"""Id and title of each operation that is described. Of one command alone, `consumeGroup` and the
like are the ids."""

_DEFAULTS = {SERVER: "home", TOPIC: "produce", GROUP: "produce"}
"""What a path means without `cmd`; all other paths mean one thing."""

_TITLES = {
    "messages": "Messages in and out",
    "topics": "Topics and groups",
    "log": "The log itself",
    "server": "The broker",
}

_EVERYWHERE = {"id": Parameter("Comes back on the reply; made if absent.", {"type": "string"})}
_GROUP: Schema = {"type": "string"}  # a name like the topic's, but looked up before it is judged
_NAMES = {
    "topic": Parameter("The topic.", parts.NAME, example="MyTopic"),
    "consume_group": Parameter("The group; for most commands the topic's name if absent.", _GROUP),
}


DAY_MS = 86_400_000
"""A description is good for a day: the limits of times in it are those of the day's beginning."""


class Describe:
    """Plan of `/_openapi.json`."""

    def __init__(self, face: Context, params: Params) -> None:
        self._face = face
        self._params = params
        self._command = params.text(b"command") or ""
        known = commands(face.settings, face.broker.limits, 0)
        if self._command and self._command not in known:
            raise BadRequest(400, f"400: Bad Format, command is one of {', '.join(known)}")

    def run(self, peer: Peer, id: bytes, body: bytes) -> None:
        face = self._face
        day_ms = face.broker.now_ms // DAY_MS * DAY_MS
        document = encoded(face.settings, face.broker.limits, day_ms, self._command)
        NativeReply(face, self._params, peer, id).tell(200, JSON, document)


@lru_cache(maxsize=64)  # of one broker: each command's and the whole
def encoded(settings: NativeSettings, limits: Limits, day_ms: int, command: str) -> bytes:
    """The description as JSON; of one command, or of all if it is empty."""
    return msgspec.json.encode(describe(settings, limits, day_ms, command))


def describe(settings: NativeSettings, limits: Limits, now_ms: int, command: str = "") -> Schema:
    """The description; of one command, or of all if it is empty."""
    table = commands(settings, limits, now_ms)
    if command:
        table = {command: table[command]}
    paths: dict[str, Schema] = {}
    for (path, method), (id, title) in _OPERATIONS.items():
        found = {
            name: entry
            for name, entry in table.items()
            if path in entry.paths and _suits(name, entry, path, method)
        }
        if command:
            id, title = command if method == "post" else command + id.capitalize(), ""
        if found:
            operation = _Operation(path, method, found, only=bool(command))
            paths.setdefault(path, {})[method] = operation.document(id, title)
    return {
        "openapi": "3.1.0",
        "info": {"title": "zbus", "version": settings.version, "description": _INTRODUCTION},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": title} for name, title in _TITLES.items()],
        "security": [{}, {"token": []}, {"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": parts.SCHEMAS,
            "headers": {
                name: {"description": text, "schema": schema}
                for name, (text, schema) in parts.HEADERS.items()
            },
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "token"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "token"},
            },
        },
    }


def _suits(name: str, entry: Command, path: str, method: str) -> bool:
    """GET is for everything but what makes no sense without a body; POST for what takes one."""
    if method == "post":
        return bool(entry.body) and (path, name) != (GROUP, "produce")
    return name != "route"


class _Operation:
    """A path and method, and the commands that it stands for."""

    def __init__(self, path: str, method: str, table: dict[str, Command], only: bool) -> None:
        self._path = path
        self._method = method
        self._table = table
        self._only = only

    def document(self, id: str, title: str) -> Schema:
        entries = list(self._table.values())
        document: Schema = {
            "operationId": id,
            "summary": title or entries[0].text,
            "description": "\n".join(
                f"- `{name}`: {entry.text}" for name, entry in self._table.items()
            ),
            "tags": list(dict.fromkeys(entry.tag for entry in entries)),
            "parameters": [*self._in_path(), *self._cmd(), *self._others()],
            "responses": self._responses(),
        }
        if self._method == "post":
            content = {kind: each for entry in entries for kind, each in entry.body.items()}
            document["requestBody"] = {"content": content}
        return document

    def _in_path(self) -> list[Schema]:
        names = {"{topic}": "topic", "{group}": "consume_group"}
        return [
            {
                "name": segment[1:-1],
                "in": "path",
                "required": True,
                "description": _NAMES[names[segment]].text,
                "schema": _NAMES[names[segment]].schema,
                "example": "MyTopic",
            }
            for segment in self._path.split("/")
            if segment in names
        ]

    def _cmd(self) -> list[Schema]:
        default = _DEFAULTS.get(self._path)
        if default is None or (self._method, list(self._table)) == ("post", ["produce"]):
            return []
        schema = {**parts.words(*self._table)}
        if default in self._table:
            schema["default"] = default
        return [
            {
                "name": "cmd",
                "in": "query",
                "required": default not in self._table,
                "description": "What is asked for.",
                "schema": schema,
            }
        ]

    def _others(self) -> list[Schema]:
        """All other parameters. One that several commands have says what it is to each."""
        found: dict[str, dict[str, Parameter]] = {}
        for command, entry in self._table.items():
            known = {**self._names(command, entry), **_EVERYWHERE, **entry.parameters}
            for name, parameter in known.items():
                found.setdefault(name, {})[command] = parameter
        return [self._merged(name, of) for name, of in found.items()]

    def _names(self, command: str, entry: Command) -> dict[str, Parameter]:
        """The names that the path does not hold."""
        if command.encode() not in GROUP_COMMANDS or self._path == GROUP:
            return {}
        return {
            name: parameter
            for name, parameter in _NAMES.items()
            if name != "topic" or self._path == SERVER
        }

    def _merged(self, name: str, of: dict[str, Parameter]) -> Schema:
        parameters = list(of.values())
        texts: dict[str, list[str]] = {}
        schemas: list[Schema] = []
        for command, parameter in of.items():
            texts.setdefault(parameter.text, []).append(command)
            if parameter.schema not in schemas:
                schemas.append(parameter.schema)
        said = [
            text if len(commands) == len(self._table) else f"{', '.join(commands)}: {text}"
            for text, commands in texts.items()
        ]
        document: Schema = {
            "name": name,
            "in": parameters[0].place,
            "description": "\n".join(said),
            "schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas},
        }
        if len(parameters) == len(self._table) and all(each.required for each in parameters):
            document["required"] = True
        examples = [each.example for each in parameters if each.example is not None]
        if examples and self._only:
            document["example"] = examples[0]
        return document

    def _responses(self) -> Schema:
        responses: dict[str, Schema] = {}
        for name, entry in self._table.items():
            for status, answer in entry.answers.items():
                response = responses.setdefault(
                    str(status), {"description": "", "headers": _headers(parts.EVERY_REPLY)}
                )
                text = answer.text if len(self._table) == 1 else f"- `{name}`: {answer.text}"
                response["description"] += ("\n" if response["description"] else "") + text
                response["headers"].update(_headers(answer.headers))
                for media, schema in answer.content.items():
                    _add_content(response.setdefault("content", {}), media, schema)
        refusals = tuple(
            dict.fromkeys(each for entry in self._table.values() for each in entry.refusals)
        )
        for status in sorted({*parts.ANYWHERE, *(STATUS[each] for each in refusals)}):
            responses[str(status)] = _refusal(status, parts.refusal_text(status, refusals))
        if "produce" in self._table:
            responses["default"] = {
                "description": "Of a call only: whatever status the service answers with."
            }
        return responses


def _add_content(content: dict[str, Any], media: str, schema: Schema) -> None:
    """One more form of a body; several of one type are alternatives."""
    before = content.get(media, {}).get("schema")
    if before is None:
        content[media] = {"schema": schema}
    elif before != schema:
        known = before.get("oneOf", [before])
        added = [each for each in schema.get("oneOf", [schema]) if each not in known]
        content[media] = {"schema": {"oneOf": [*known, *added]}}


def _headers(names: tuple[str, ...]) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _refusal(status: int, text: str) -> Schema:
    headers = _headers(("connection",))
    if status in (503, 507):
        headers.update(_headers(("retry-after",)))
    if status == STATUS[Refusal.CONFLICT]:
        headers.update(_headers(("offset",)))
    description = f"{REASONS[status].decode()}. {text} The body is a sentence."
    return {"description": description, "headers": headers}
