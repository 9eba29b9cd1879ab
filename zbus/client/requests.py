"""What a request is: header lines, a body, and what its answer means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from zbus.client.errors import ProtocolError, RpcError, refusal
from zbus.client.messages import (
    Delivery,
    Stored,
    StoredBatch,
    number,
    read_container,
)
from zbus.documents import NOT_JSON
from zbus.protocol.parameters import OF_PUT, PERCENT_DECODED, PUT, Parameter, Put
from zbus.wire.heads.fields import TOKEN
from zbus.wire.heads.header_names import OF_CONNECTION, PREFIX, is_credential, is_of_way, steers
from zbus.wire.responses import Response
from zbus.wire.target import encode_header_value

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_PERCENT_DECODED = frozenset(name.encode() for name in PERCENT_DECODED)

RESERVED = frozenset(name.encode() for name in OF_PUT) | frozenset(
    (
        b"ack cmd consume_group content-length group host offset recver retry sender skipped"
        b" timestamp token topic transfer-encoding"
    ).split()
)
"""Headers that are the client's or the broker's business."""

_FORBIDDEN = bytes({*range(0x20), 0x7F} - {0x09})
"""What a field value may not hold (RFC 9110, section 5.5)."""


class _Unset:
    """Not given; None is a value of its own."""

    def __repr__(self) -> str:
        return "unset"


UNSET: Final = _Unset()


class Pulling(NamedTuple):
    """Which messages a pull takes."""

    topic: str
    group: str
    partition: int | None
    batch: int

    @property
    def key(self) -> tuple[str, str]:
        """Of the group."""
        return self.topic.lower(), self.group.lower()


class Request(Generic[T_co]):
    """One request without its id.

    `safe`: doing it twice is the same as doing it once, so it may be sent again when the answer
    was lost. `keyed`: it becomes safe by an idempotency key. `waits`: its answer may take as long
    as `timeout_s`, and that is no sign of a broken connection. `silent`: there is no answer.
    `removes`: what it is about is gone when it is done, so 404 to a repetition is no refusal.
    `traced`: operation and topic, of which those who trace requests are told. `pulling`: its answer
    has messages, which are not lost if the caller has gone.
    """

    __slots__ = (
        "body",
        "id",
        "keyed",
        "lines",
        "parse",
        "pulling",
        "removes",
        "safe",
        "silent",
        "timeout_s",
        "traced",
        "waits",
    )

    def __init__(
        self,
        lines: bytes,
        parse: Callable[[Response], T_co],
        body: bytes = b"",
        *,
        safe: bool = True,
        keyed: bool = False,
        waits: bool = False,
        silent: bool = False,
        removes: bool = False,
        id: bytes = b"",
        timeout_s: float | None = None,
        traced: tuple[str, str] | None = None,
        pulling: Pulling | None = None,
    ) -> None:
        self.lines = lines  # request line and header lines, each with its CRLF
        self.parse = parse
        self.body = body
        self.safe = safe
        self.keyed = keyed
        self.waits = waits
        self.silent = silent
        self.removes = removes
        self.id = id  # chosen by the caller
        self.timeout_s = timeout_s
        self.traced = traced
        self.pulling = pulling


# -- header lines ---------------------------------------------------------------------------------


def line(name: bytes, value: str | int) -> bytes:
    """One header line. Raises ValueError for a value that cannot be one."""
    raw = str(value).encode()
    if len(raw.translate(None, _FORBIDDEN)) != len(raw):
        raise ValueError(f"{name.decode()} may not hold control characters: {value!r}")
    if name in _PERCENT_DECODED:
        raw = encode_header_value(raw)
    return b"%b: %b\r\n" % (name, raw)


def optional(**values: str | int | None) -> bytes:
    """Header lines of those that are not None; True is `1`."""
    lines = [
        line(name.encode(), int(value) if isinstance(value, bool) else value)
        for name, value in values.items()
        if value is not None
    ]
    return b"".join(lines)


def wire_names(parameters: Iterable[Parameter]) -> dict[str, bytes]:
    """What header lines are called, by the names of their parameters in Python."""
    return {each.python: each.line.encode() for each in parameters}


def parameter_lines(names: Mapping[str, bytes], given: Mapping[str, Any]) -> bytes:
    """Header lines of parameters; those that are None are left out. Raises TypeError for a name
    that there is not."""
    lines = []
    for name, value in given.items():
        if (wire := names.get(name)) is None:
            raise TypeError(f"there is no option {name}")
        if value is not None:
            lines.append(line(wire, _text(value)))
    return b"".join(lines)


def _text(value: str | int | tuple[int, ...]) -> str | int:
    if type(value) is bool:
        return int(value)
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


_PUT = wire_names(PUT)


def put_lines(where: Put) -> bytes:
    """Header lines that say where and when messages are put."""
    given = cast("dict[str, Any]", where)
    only_one(delay_ms=given.get("delay_ms"), deliver_at_ms=given.get("deliver_at_ms"))
    return parameter_lines(_PUT, given)


def own_lines(headers: Mapping[str, str], *, of_call: bool = False) -> bytes:
    """A user's own headers. Where a name says something of a request itself, it goes with the
    prefix, which the broker takes off. Raises ValueError for names that are not the user's to set:
    a credential goes to a service with a call, and is never stored in a topic."""
    lines = []
    for name, value in headers.items():
        raw = name.lower().encode()
        if not raw or raw.translate(None, TOKEN) or raw in RESERVED:
            raise ValueError(f"{name!r} is not a header that a message can have")
        if is_credential(raw):
            if not of_call:
                raise ValueError(f"{name!r} is a credential, which no message in a topic has")
        elif raw in OF_CONNECTION or is_of_way(raw) or steers(raw):
            raw = PREFIX + raw
        lines.append(line(raw, value))
    return b"".join(lines)


def only_one(**given: object) -> None:
    """Refuse what contradicts itself, rather than leave one half out without a word. Raises
    TypeError if more than one of these is given (not None)."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise TypeError(f"{' and '.join(names)} contradict each other: give one of them")


_starts: dict[tuple[bytes, str], bytes] = {}


def start(cmd: bytes, topic: str) -> bytes:
    """The lines that nearly every request of a topic begins with."""
    lines = _starts.get((cmd, topic))
    if lines is None:
        lines = b"GET / HTTP/1.1\r\ncmd: %b\r\n%b" % (cmd, line(b"topic", topic))
        if len(_starts) >= 1024:
            _starts.clear()
        _starts[cmd, topic] = lines
    return lines


def of_group(cmd: bytes, topic: str, group: str | None) -> bytes:
    return start(cmd, topic) + optional(consume_group=group)


Offsets = int | Sequence[int]


def encode_offsets(offsets: Offsets) -> str:
    """Offsets in the wire's short form: `3,5-9,12`."""
    if isinstance(offsets, int):
        return str(offsets)
    pieces: list[list[int]] = []
    for offset in sorted(set(offsets)):
        if pieces and offset == pieces[-1][1] + 1:
            pieces[-1][1] = offset
        else:
            pieces.append([offset, offset])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pieces)


Acks = Delivery | Sequence[Delivery]
"""What is acknowledged along with what is stored: deliveries of one group and one partition."""


def settling(acks: Acks, parse: Callable[[Response], T]) -> tuple[bytes, Callable[[Response], T]]:
    """The lines that acknowledge deliveries; and what reads the answer, which then says of them
    that they are settled. Raises ValueError for deliveries that one request cannot acknowledge."""
    deliveries = [acks] if isinstance(acks, Delivery) else list(acks)
    places = {(one.topic, one.group, one.partition) for one in deliveries}
    if len(places) != 1:
        raise ValueError("acks are deliveries of one group, in one partition")
    ((topic, group, partition),) = places
    if not group:
        raise ValueError("a message that was only looked at cannot be acknowledged")

    def read(response: Response) -> T:
        done = parse(response)
        for one in deliveries:
            one.settled = True
        return done

    lines = optional(
        ack_topic=topic,
        ack_group=group,
        ack_offset=encode_offsets([one.offset for one in deliveries]),
        ack_partition=partition or None,
    )
    return lines, read


# -- answers --------------------------------------------------------------------------------------


def failure(response: Response) -> Exception:
    """The error that a status from 400 on stands for."""
    fields = response.fields
    if b"sender" in fields and response.status not in (503, 504):
        return RpcError(response.status, response.body)
    headers = {
        name.decode("latin-1"): value.decode("utf-8", "replace") for name, value in fields.items()
    }
    return refusal(response.status, response.body.decode("utf-8", "replace").strip(), headers)


def parse_nothing(response: Response) -> None:
    """It was done."""


def document_of(kind: type[T]) -> Callable[[Response], T]:
    """Reads one kind of the broker's documents. Raises ProtocolError for what is none."""
    decode = msgspec.json.Decoder(kind).decode

    def parse(response: Response) -> T:
        try:
            return decode(response.body)
        except NOT_JSON as error:
            raise ProtocolError(f"the broker's answer is no {kind.__name__}: {error}") from None

    return parse


def parse_stored(response: Response) -> Stored:
    fields = response.fields
    return Stored(
        number(fields, b"offset", -1),
        number(fields, b"partition") if b"partition" in fields else 0,
        fields.get(b"durability", b"").decode("utf-8", "replace"),
        fields.get(b"id", b"").decode("utf-8", "replace"),
        b"duplicate" in fields,
    )


def parse_stored_batch(response: Response) -> StoredBatch:
    fields = response.fields
    return StoredBatch(
        number(fields, b"offset", -1),
        number(fields, b"partition"),
        fields.get(b"durability", b"").decode("utf-8", "replace"),
        number(fields, b"count"),
        number(fields, b"duplicate"),
    )


def parse_deliveries(
    response: Response, make: Callable[[Response], Delivery] = Delivery
) -> list[Delivery]:
    return [] if response.status == 204 else read_container(response.body, make)


def parse_number(response: Response) -> int:
    return number({b"body": response.body}, b"body")


def parse_text(response: Response) -> str:
    return response.body.decode("utf-8", "replace")


def parse_count(response: Response) -> int:
    return number(response.fields, b"count")


def parse_result(response: Response) -> Any:  # noqa: ANN401  # whatever the service answers
    if response.fields.get(b"content-type", b"").startswith(b"application/json"):
        try:
            return msgspec.json.decode(response.body)
        except NOT_JSON as error:
            raise ProtocolError(f"the service's answer is not JSON: {error}") from None
    return response.body


def message_id(id: str) -> bytes:
    """A message's id as bytes; ValueError if it can be none."""
    raw = id.encode()
    if not 0 < len(raw) <= 39 or not raw.isascii() or not id.isprintable() or " " in id:
        raise ValueError(f"an id has 1 to 39 visible ASCII characters: {id!r}")
    return raw
