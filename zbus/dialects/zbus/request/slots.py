"""Which values of a head of this dialect are free, and what they must look like to be taken quickly
(`zbus.wire.heads.shapes`).

The patterns are narrower than what the broker takes: a value that is percent-encoded, a duration
with a unit or a time as ISO 8601 goes the way of heads without a shape.
"""

from __future__ import annotations

from collections.abc import Iterable

from zbus.core.api import OWN_KEY
from zbus.dialects.zbus.request.header_lines import KINDS, Kind
from zbus.dialects.zbus.request.params import Params
from zbus.dialects.zbus.schema.commands import SPELLINGS
from zbus.dialects.zbus.schema.kinds import (
    ID_BYTES_MAX,
    IDEMPOTENCY_KEY_BYTES_MAX,
    KEY_BYTES_MAX,
    NUMBER_MAX,
    TAG_BYTES_MAX,
    Duration,
    Form,
    Number,
    Time,
)
from zbus.wire.heads.header_names import nominated
from zbus.wire.heads.shapes import Slot, Slots

_LINE = rb"[!-~][ -~]*+(?<! )"
"""Any value of a header line without a blank at an end."""

_WORD = rb"[!$'-*,-~]"
"""In a query, what stands for itself."""

_PRIORITY = rb"[1-9]"
_NUMBER = rb"[0-9]{1,15}+"
_TIME = rb"[1-9][0-9]{11,14}+"
_KEY = rb"(?!%b)[!$'-*,-\[\]-~]{1,%d}+" % (OWN_KEY, IDEMPOTENCY_KEY_BYTES_MAX)

_NUMBERS = dict.fromkeys(
    (b"partition", b"offset", b"expected_offset", b"max_attempts", b"delay", b"ttl", b"timeout"),
    _NUMBER,
) | {b"deliver_at": _TIME}

_IN_QUERY: dict[bytes, bytes] = {
    b"id": rb"%b{1,%d}+" % (_WORD, ID_BYTES_MAX),
    b"idempotency-key": _KEY,
    b"tag": rb"%b{1,%d}+" % (_WORD, TAG_BYTES_MAX),
    b"key": rb"%b{1,%d}+" % (_WORD, KEY_BYTES_MAX),
    b"body": rb"[!-%'-~]++",
    b"priority": _PRIORITY,
    **_NUMBERS,
}
"""What the value of each parameter must look like to be free."""

_IN_LINE: dict[bytes, bytes] = {
    b"id": rb"[!-~]{1,%d}+" % ID_BYTES_MAX,
    b"idempotency-key": rb'(?:"%b"|%b)' % (_KEY, _KEY),
    b"tag": rb"[!-$&-~]{1,%d}+" % TAG_BYTES_MAX,  # may be percent-encoded
    b"key": rb"[!-~][ -~]{0,%d}+(?<! )" % (KEY_BYTES_MAX - 1),
    b"priority": _PRIORITY,
    **_NUMBERS,
}

_OF_PROXIES = frozenset(
    (b"cf-connecting-ip", b"cf-ray", b"forwarded", b"x-forwarded-for", b"x-real-ip", b"x-varnish")
)
"""Lines about how a request came that differ from one to the next."""


def may_differ(name: bytes, in_query: bool) -> bool:
    """Whether a value of this name may be free in some head."""
    if in_query or SPELLINGS.get(name, name) in _IN_LINE:
        return SPELLINGS.get(name, name) in _IN_QUERY
    kind = KINDS[name]
    return kind in (Kind.OWN, Kind.STANDARD) or name in _OF_PROXIES or name == b"content-length"


def slots_of(params: Params, names: Iterable[bytes]) -> Slots:
    """Slots for those of these parameters that the head gives."""
    lines: dict[bytes, Slot] = {}
    query: dict[bytes, Slot] = {}
    given = params.given()
    for name in names:
        spelled = given.get(name)
        if name == b"id":  # the wire has taken it out of the fields
            lines[name] = Slot(name, _IN_LINE[name])
        if spelled is None:
            continue
        if spelled.startswith(b"?"):
            query[spelled[1:]] = Slot(name, _IN_QUERY[name])
        elif name in _IN_LINE:
            lines[spelled] = Slot(name, _IN_LINE[name])
    hop = nominated(params.head.fields)
    for name in _OF_PROXIES & params.head.fields.keys():
        if name not in hop:
            lines[name] = Slot(name, _LINE)
    return Slots(lines, query)


def bounds_of(params: Params, name: bytes) -> tuple[int, int]:
    """The least and the most that a number may be."""
    kind = params.kind(name)
    if isinstance(kind, Duration):
        return kind.minimum_ms, kind.maximum_ms
    if isinstance(kind, Time):
        return 0, NUMBER_MAX
    if kind is Form.OFFSETS:  # one of them
        return 0, NUMBER_MAX
    assert isinstance(kind, Number)
    assert isinstance(kind.maximum, int)
    return kind.minimum, kind.maximum


def own_slots(params: Params, names: Iterable[bytes]) -> dict[bytes, Slot]:
    """Slots for those of these lines that nothing reads. A name that is the application's own in a
    message may be a parameter of this command, as `batch` is of a consume."""
    return {name: Slot(name, _LINE) for name in names if not params.takes(name)}
