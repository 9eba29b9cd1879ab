"""The header lines of messages: which lines of a request are a message's, and how they leave.

A message and HTTP share one syntax and not one namespace. `x-accel-redirect` of a producer, written
into a reply to a consumer, would be an order to the proxy before the broker. So each line is judged
on its way in (`entering`), and each framing writes a message's lines in one of these forms:

`plain`   HTTP replies. An allow-list: what the broker writes, and what standards define for
          messages and nothing on the way acts on. All else, and a type that is not safe, is
          `zbus-header-<name>`. `shown`, `answered` and `page` are the same for browsers and calls.
`stock`   The original's own framing (a request with `cmd`), HTTP in frames and in containers: lines
          as they are. Only names on which libraries and intermediaries act are
          `zbus-header-<name>`.
`values`  JSON, events, the Python client, Spark: names and values as they were sent.

A block of lines is canonical: each line is `name: value CRLF`, with a lower-case name. A line
`zbus-header-<name>` of a request is the message's line `<name>`, so a delivery can be sent on as it
came. `docs/adr/0041-header-lines-of-messages.md` says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeVar

from zbus.protocol.parameters import OF_PUT
from zbus.wire.heads.header_names import (
    OF_CONNECTION,
    PREFIX,
    is_credential,
    is_of_way,
    nominated,
    steers,
)
from zbus.wire.target import CONTROLS

T = TypeVar("T")

OF_BROKER_BYTES = 1_852
"""Of a plain delivery's head beside the lines that count (`message_headers_bytes_max`): 3,900 bytes
together, as the option is by itself. nginx takes 4,096. `omit` keeps to it."""

_SPARE = (b"remote-addr", b"host", b"origin_method", b"origin_url", b"consume_group")
"""What is left out of a head that would have more, in this order; the topic is the last. All else
is the application's, or needed to acknowledge, to answer and to find the message again."""

LINES_MAX = 40
"""Lines that a message may have. Varnish takes 64 in a reply, with the broker's and its own; and
Python's http.client 100."""

# -- names ------------------------------------------------------------------------------------

WRITTEN = frozenset(
    (
        b"content-lost cron cron_id cron_time cron_zone dead_attempts dead_group dead_offset"
        b" dead_partition dead_reason dead_topic delay first-stored host idempotency-key"
        b" origin_method origin_status origin_url priority remote-addr sender"
    ).split()
)
"""Lines that the broker writes among those of a message."""

_DELIVERED = b"ack cmd consume_group group offset origin_id retry skipped timestamp topic txn"
_PARAMETERS = frozenset(_DELIVERED.split()) | {name.encode() for name in OF_PUT}

OF_BROKER = WRITTEN | frozenset(
    form for name in _PARAMETERS for form in (name, name.replace(b"_", b"-"))
)
"""Names that mean something to the broker: never a line of the application."""

_STANDARD = (b"traceparent", b"tracestate", b"baggage")
_STANDARD_PREFIX = b"ce-"
"""W3C Trace Context and Baggage; CloudEvents. They are defined for messages, and nothing on the way
acts on them."""

SAFE_TYPES = frozenset(
    (
        b"application/avro application/cbor application/json application/msgpack"
        b" application/octet-stream application/protobuf application/vnd.apache.avro"
        b" application/vnd.google.protobuf application/vnd.msgpack application/vnd.zbus.messages"
        b" application/x-msgpack application/x-ndjson application/x-protobuf image/gif image/jpeg"
        b" image/png image/webp text/csv text/plain"
    ).split()
)
"""Types of bodies that nothing renders as a page or runs; those that end in `+json` are, too."""

CALLED_TYPES = SAFE_TYPES | {b"text/html"}
"""Types of what services answer to calls: browsers show their pages, in the sandbox."""


# -- names, known once ------------------------------------------------------------------------

_NAMES_MAX, _NAME_BYTES_MAX = 1024, 64  # that are remembered


class Known(dict[bytes, T]):
    """What is known of names, found out once for a bounded number of them."""

    def __init__(self, find: Callable[[bytes], T]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, name: bytes) -> T:
        found = self._find(name)
        if len(name) <= _NAME_BYTES_MAX:
            if len(self) >= _NAMES_MAX:
                self.clear()  # what is in use comes back at once
            self[name] = found
        return found


class Kind:
    """What a line of a request is by its name: numbers, because there are many lines."""

    OWN: Final = 0  # the application's
    STANDARD: Final = 1  # of the application, and defined for messages
    TYPE: Final = 2  # of the body
    WAY: Final = 3  # about how the request came
    SECRET: Final = 4  # a credential
    CONNECTION: Final = 5  # about the connection
    BROKER: Final = 6  # a parameter, or what the broker writes itself
    PREFIXED: Final = 7  # the application's, whatever the name behind the prefix means


def _kind_of(name: bytes) -> int:
    if name.startswith(PREFIX) and name != PREFIX:
        return Kind.PREFIXED
    if name in OF_BROKER:
        return Kind.BROKER
    if name in OF_CONNECTION:
        return Kind.CONNECTION
    if is_credential(name):
        return Kind.SECRET
    if is_of_way(name):
        return Kind.WAY
    if name == TYPE:
        return Kind.TYPE
    return Kind.STANDARD if is_standard(name) else Kind.OWN


TYPE = b"content-type"
KINDS = Known(_kind_of)


def is_standard(name: bytes) -> bool:
    """A standard defines it for messages, and nothing on the way acts on it."""
    return name in _STANDARD or name.startswith(_STANDARD_PREFIX)


# -- in ---------------------------------------------------------------------------------------

_BLANK = b" \t"  # is no part of a field's value; that of a query may have it


def encode_line(name: bytes, value: bytes) -> bytes:
    """A line of a block."""
    return b"%b: %b\r\n" % (name, value.strip(_BLANK))


def routed_lines(fields: Mapping[bytes, bytes], contained: bool) -> dict[bytes, bytes]:
    """Lines of a message that goes straight to a session, by name. It has no place in a log, so
    most names of the broker's are its sender's to choose. Credentials are left out, and what
    programs and proxies add to a head that is not `contained` in a frame."""
    of_hop = nominated(fields)
    found: dict[bytes, bytes] = {}
    prefixed: dict[bytes, bytes] = {}
    for name, value in fields.items():
        kind = KINDS[name]
        if kind == Kind.PREFIXED:
            bare = name[len(PREFIX) :]
            if not (bare in _OF_ROUTE or is_credential(bare)):
                prefixed[bare] = encode_line(bare, value)
        elif not (
            name in _OF_ROUTE
            or name in of_hop
            or kind in (Kind.SECRET, Kind.CONNECTION)
            or (kind == Kind.WAY and not contained and name not in _OF_ANSWERS)
        ):
            found[name] = encode_line(name, value)
    return found | prefixed if prefixed else found


_OF_ROUTE = frozenset(b"ack cmd host id origin_status recver remote-addr sender topic".split())
_OF_ANSWERS = frozenset((b"cache-control", b"pragma"))  # a service says it, too
_OF_ANSWER = frozenset((b"", b"content-type", b"host", b"topic"))  # what the broker says of one


# -- out --------------------------------------------------------------------------------------


def omit(lines: bytes, over_bytes: int) -> bytes:
    """The lines of a delivery, which begin with its offset, without those that it can spare, as far
    as that many bytes are too many."""
    for name in _SPARE:
        if over_bytes <= 0:
            break
        if (begin := lines.find(b"\r\n%b: " % name)) >= 0:
            end = lines.index(b"\r\n", begin + 2)
            over_bytes -= end - begin
            lines = lines[:begin] + lines[end:]
    return lines


_REMEMBERED_MAX, _REMEMBERED_BYTES_MAX = 1024, 1024  # blocks whose form is kept, and their bytes


class Form:
    """From lines as they are stored to lines as they leave. Messages of one sender mostly have the
    same lines, so what came last is `known`; to look there first saves a call."""

    __slots__ = ("_written", "known")

    def __init__(self, written: Callable[[bytes], bytes]) -> None:
        self._written = written
        self.known: dict[bytes, bytes] = {}

    def __call__(self, lines: bytes) -> bytes:
        found = self.known.get(lines)
        if found is None:
            found = self._written(lines)
            if len(lines) <= _REMEMBERED_BYTES_MAX:
                if len(self.known) >= _REMEMBERED_MAX:
                    self.known.clear()
                self.known[lines] = found
        return found


_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # beside those that end a line


def is_allowed(name: bytes) -> bool:
    """A line of a stored message that has this name leaves as it is in every form."""
    return not name or name in WRITTEN or is_standard(name)


_of_known_names = re.compile(
    rb"(?:(?:%b|ce-[!-9;-~]*+): [^\x00-\x08\x0a-\x1f\x7f]*+\r\n)*+"
    % b"|".join(map(re.escape, (*WRITTEN, *_STANDARD)))
).fullmatch
"""A block in which every name is allowed, and no value is one that only early versions stored."""

_BYTES, _TEXT = b"application/octet-stream", b"text/plain"
_PARAMETERS_BYTES_MAX = 40  # of a type: they stand in the line in its place, too


def _form(prefixes: Known[bytes], safe_types: frozenset[bytes] | None, unsafe: bytes = b"") -> Form:
    """A form. `safe_types` are the types of bodies that stay, and `unsafe` stands in place of any
    other. None: any type stays."""

    keeps_charset = unsafe == _TEXT
    stays = not any(prefixes[name] for name in (*WRITTEN, *_STANDARD, _STANDARD_PREFIX))

    def written(lines: bytes) -> bytes:
        if stays and _of_known_names(lines) is not None:  # most messages have no others
            return lines
        made = lines.split(b"\r\n")
        if len(lines.translate(None, CONTROLS)) != len(lines) - 2 * (len(made) - 1):
            # Only early versions stored such values.
            lines = _FORBIDDEN.sub(lambda found: b"%%%02X" % found.group()[0], lines)
            made = lines.split(b"\r\n")
        made = [prefixes[line[: line.find(b":")]] + line for line in made]
        if safe_types is not None and b"content-type: " in lines:
            for at, line in enumerate(made):
                if line.startswith(b"content-type: ") and not _is_safe(line[14:], safe_types):
                    parameters = line[line.find(b";") :] if b";" in line and keeps_charset else b""
                    if len(parameters) > _PARAMETERS_BYTES_MAX:
                        parameters = b""
                    instead = b"content-type: %b%b\r\n" % (unsafe, parameters)
                    made[at] = instead + PREFIX + line
        return b"\r\n".join(made)

    return Form(written)


@lru_cache(maxsize=1024)
def _is_safe(content_type: bytes, safe_types: frozenset[bytes]) -> bool:
    kind = content_type.partition(b";")[0].strip(b" \t").lower()
    return kind in safe_types or kind.endswith(b"+json")


values = Form(lambda lines: lines)
"""As they were sent."""

PREFIXES = Known(lambda name: b"" if name == TYPE or is_allowed(name) else PREFIX)
_IN_PLACE = b"content-type: %b\r\n" % _BYTES
_ADDED = {Kind.STANDARD: 0, Kind.TYPE: len(_IN_PLACE) + len(PREFIX)}


def added_bytes(name: bytes) -> int:
    """How many bytes a line of this name has more in a plain reply than as stored, at most."""
    return _ADDED.get(KINDS[name], len(PREFIX))


_CALLED = Known(lambda name: b"" if name in _OF_ANSWER or is_standard(name) else PREFIX)

stock = _form(Known(lambda name: PREFIX if steers(name) else b""), None)
"""Of the original's own framing."""

plain = _form(PREFIXES, SAFE_TYPES, _BYTES)
"""Of an HTTP reply to a program."""

shown = _form(PREFIXES, SAFE_TYPES, _TEXT)
"""Of an HTTP reply to a browser."""

answered = _form(_CALLED, CALLED_TYPES, _BYTES)
"""Of a service's answer to a program's call."""

page = _form(_CALLED, CALLED_TYPES, _TEXT)
"""Of a service's answer to a browser's call."""

OF_CALLS: dict[Form, Form] = {plain: answered, shown: page}
"""The form of a service's answer, where it is not that of a delivery."""


def split_lines(lines: bytes) -> dict[str, str]:
    """A block of lines as a dictionary. What is not UTF-8 is taken for Latin-1."""
    pairs = [line.partition(b": ") for line in lines.split(b"\r\n")[:-1]]
    return {text_of(name): text_of(value) for name, _, value in pairs}


def text_of(value: bytes) -> str:
    """A name or value as text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
