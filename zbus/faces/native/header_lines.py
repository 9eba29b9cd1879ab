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

from zbus.wire.header_names import (
    OF_CONNECTION,
    PREFIX,
    is_credential,
    is_of_way,
    nominated,
    steers,
)

LINES_MAX = 64
"""Lines that a message may have. Python's http.client takes 100 in a reply, with the broker's."""

# -- names ------------------------------------------------------------------------------------

WRITTEN = frozenset(
    (
        b"cron cron_id cron_time cron_zone dead_attempts dead_group dead_offset dead_partition"
        b" dead_reason dead_topic delay host idempotency-key origin_method origin_status"
        b" origin_url remote-addr sender"
    ).split()
)
"""Lines that the broker writes among those of a message."""

_PARAMETERS = frozenset(
    (
        b"ack ack_group ack_offset ack_partition ack_topic body cmd consume_group deliver_at"
        b" expected_offset front group id idempotent key max_attempts offset origin_id partition"
        b" retry skipped tag timeout timestamp topic ttl txn"
    ).split()
)

OF_BROKER = WRITTEN | frozenset(
    form for name in _PARAMETERS | {b"cron_zone"} for form in (name, name.replace(b"_", b"-"))
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


# -- in ---------------------------------------------------------------------------------------


def entering(fields: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """What the fields of a request say as lines of a message, by name: without the broker's own and
    the connection's. Credentials are still there, and what says how the request came. A line with
    the prefix wins over one without."""
    of_hop = nominated(fields)
    found: dict[bytes, bytes] = {}
    explicit: dict[bytes, bytes] = {}
    for name, value in fields.items():
        if name.startswith(PREFIX) and (bare := name[len(PREFIX) :]):
            if bare not in OF_BROKER:
                explicit[bare] = value.strip(_BLANK)
        elif not (name in OF_BROKER or name in OF_CONNECTION or name in of_hop):
            found[name] = value.strip(_BLANK)
    return found | explicit if explicit else found


def routed_lines(fields: Mapping[bytes, bytes], contained: bool) -> dict[bytes, bytes]:
    """The same of a message that goes straight to a session: it has no place in a log, so other
    names of the broker's are its sender's to choose. Here credentials are left out, and what
    programs and proxies add to a head that is not `contained`."""
    of_hop = nominated(fields)
    found: dict[bytes, bytes] = {}
    explicit: dict[bytes, bytes] = {}
    for name, value in fields.items():
        bare = name.removeprefix(PREFIX) or name
        if bare in _OF_ROUTE or is_credential(bare):
            continue
        if bare is not name:
            explicit[bare] = value.strip(_BLANK)
        elif not (name in OF_CONNECTION or name in of_hop) and (
            contained or name in _OF_ANSWERS or not is_of_way(name)
        ):
            found[name] = value.strip(_BLANK)
    return found | explicit if explicit else found


_BLANK = b" \t"  # is no part of a field's value; that of a query may have it
_OF_ROUTE = frozenset(b"ack cmd host id origin_status recver remote-addr sender topic".split())
_OF_ANSWERS = frozenset((b"cache-control", b"pragma"))  # a service says it, too


def plain_bytes(lines: Mapping[bytes, bytes]) -> int:
    """What these lines take in a plain reply, about: with the prefix, where it belongs."""
    return sum(
        len(name) + len(value) + (4 if is_allowed(name) else 4 + len(PREFIX))
        for name, value in lines.items()
    )


# -- out --------------------------------------------------------------------------------------

Form = Callable[[bytes], bytes]
"""From lines as they are stored to lines as they leave."""

_REMEMBERED_BYTES_MAX = 1024  # of lines whose form is kept: a bound on memory
_CONTROLS = bytes({*range(0x20), 0x7F} - {0x09})
_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # beside those that end a line


def is_allowed(name: bytes) -> bool:
    """A line of a stored message that has this name leaves as it is in every form."""
    return name in WRITTEN or is_standard(name)


def is_standard(name: bytes) -> bool:
    """A standard defines it for messages, and nothing on the way acts on it."""
    return name in _STANDARD or name.startswith(_STANDARD_PREFIX)


def values(lines: bytes) -> bytes:
    """As they were sent."""
    return lines


_BYTES, _TEXT = b"application/octet-stream", b"text/plain"


class _Prefixes(dict[bytes, bytes]):
    """What stands before each name, found out once for a bounded number of names."""

    def __init__(self, stays: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._stays = stays

    def __missing__(self, name: bytes) -> bytes:
        prefix = b"" if not name or name == _TYPE or self._stays(name) else PREFIX
        if len(self) < 1024 and len(name) <= 64:
            self[name] = prefix
        return prefix


def _form(prefixes: _Prefixes, safe_types: frozenset[bytes] | None, unsafe: bytes = b"") -> Form:
    """A form. `safe_types` are the types of bodies that are told as such, and in place of any other
    there is `unsafe`; None: any type is told."""

    keeps_charset = unsafe == _TEXT

    def written(lines: bytes) -> bytes:
        made = lines.split(b"\r\n")
        if len(lines.translate(None, _CONTROLS)) != len(lines) - 2 * (len(made) - 1):
            # Only early versions stored such values.
            lines = _FORBIDDEN.sub(lambda found: b"%%%02X" % found.group()[0], lines)
            made = lines.split(b"\r\n")
        made = [prefixes[line[: line.find(b":")]] + line for line in made]
        if safe_types is not None and b"content-type: " in lines:
            for at, line in enumerate(made):
                if line.startswith(b"content-type: ") and not _is_safe(line[14:], safe_types):
                    parameters = line[line.find(b";") :] if b";" in line and keeps_charset else b""
                    told = b"content-type: %b%b\r\n" % (unsafe, parameters)
                    made[at] = told + PREFIX + line
        return b"\r\n".join(made)

    known = lru_cache(maxsize=4096)(written)

    def form(lines: bytes) -> bytes:
        return known(lines) if len(lines) <= _REMEMBERED_BYTES_MAX else written(lines)

    return form


@lru_cache(maxsize=1024)
def _is_safe(content_type: bytes, safe_types: frozenset[bytes]) -> bool:
    kind = content_type.partition(b";")[0].strip(b" \t").lower()
    return kind in safe_types or kind.endswith(b"+json")


_TYPE = b"content-type"
_STORED = _Prefixes(is_allowed)
_CALLED = _Prefixes(lambda name: name in (b"topic", b"host") or is_standard(name))

stock = _form(_Prefixes(lambda name: not steers(name)), None)
"""Of the original's own framing."""

plain = _form(_STORED, SAFE_TYPES, _BYTES)
"""Of an HTTP reply to a program."""

shown = _form(_STORED, SAFE_TYPES, _TEXT)
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
