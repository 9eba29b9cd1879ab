"""What the description of the HTTP surface is made of: schemas of parameters, bodies and documents.

Everything here is JSON Schema as OpenAPI 3.1 has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from zbus.core.api import DURABILITIES, NAME_BYTES_MAX, Cause, EmptyReason
from zbus.dialects.zbus.schema.commands import COMMANDS
from zbus.dialects.zbus.schema.kinds import (
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
from zbus.protocol.documents import DOCUMENTS
from zbus.units import MS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}

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
    "schema": {  # without `schema=body` it may be anything, and counts for nothing
        "application/octet-stream": {
            "schema": _described(
                {"type": "string", "format": "binary"}, "A JSON Schema, with `schema=body`."
            )
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
    "application/schema+json": {"type": ["object", "boolean"]},
    _NDJSON: _described(_TEXT, "Each line is a Message."),
    _MESSAGES: _described(_TEXT, "HTTP messages one after another."),
}


def content_of(name: str) -> tuple[str, Schema]:
    """A media type and its schema; of a name without a slash, that JSON document."""
    if "/" in name:
        return name, _CONTENT.get(name, _TEXT)
    if name.endswith("[]"):
        return JSON, {"type": "array", "items": content_of(name[:-2])[1]}
    return JSON, {"type": "object"} if name == "object" else _ref(name)


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
    "schema_version": ("Which version of the schema it is, from 1.", _COUNT),
    "schema_first": ("The oldest version that is kept.", _COUNT),
    "retry-after": ("Seconds.", _COUNT),
}
"""Headers of replies."""

EVERY_REPLY = ("cache-control", "connection", "id", "topic")


@cache
def schemas() -> dict[str, Schema]:
    """JSON Schema of the documents: what is always written is required, and what is None is absent
    instead of null."""
    kinds = DOCUMENTS.values()
    _, found = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for name, schema in found.items():
        fields = msgspec.structs.fields(DOCUMENTS[name])
        schema["required"] = sorted(each.encode_name for each in fields if _is_written(each))
        for each in schema["properties"].values():
            if each.get("default", 0) is None:
                del each["default"]
                (of_value,) = [form for form in each.pop("anyOf") if form != {"type": "null"}]
                each.update(of_value)
    found["Why"]["properties"]["state"]["enum"] = [cause.value for cause in Cause]
    found["Message"]["oneOf"] = [{"required": ["body"]}, {"required": ["body_base64"]}]
    return {"Name": _NAME, **found}


def _is_written(field: msgspec.structs.FieldInfo) -> bool:
    """Whatever its value is. (An empty dictionary counts as a plain default, if that is one.)"""
    return field.default is msgspec.NODEFAULT and field.default_factory is not dict
