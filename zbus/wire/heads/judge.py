"""The careful way to read a head: a strict gate of our own, then h11.

h11 is a good and well tested parser, but it forgives what a server behind a proxy must not
forgive: bare LF, folded lines, content-length beside transfer-encoding, repeated lengths, odd
versions. Request smuggling lives in such gaps. The gate closes them line by line, `make_head`
closes those that need the whole head, and h11 has the last word; if it understood anything else
than we did, the head is refused.

This costs some 40 us. `zbus.wire.heads.heads` remembers the verdicts, so it happens rarely.
"""

from __future__ import annotations

from typing import NamedTuple

import h11

from zbus.wire.errors import BAD_LINE_END, WireError, quoted
from zbus.wire.heads.fields import TOKEN, VISIBLE, read_field
from zbus.wire.heads.head import Field, Head, Start, make_head
from zbus.wire.limits import WireLimits

VERSIONS = {b"HTTP/1.1": True, b"HTTP/1.0": False}
"""Every version there is, and whether it is 1.1."""

ONCE = frozenset((b"content-length", b"expect", b"host", b"transfer-encoding"))
"""Repeating one of these makes two readers disagree; any other name may be repeated."""

LISTS = frozenset((b"connection", b"content-encoding", b"upgrade"))
"""Comma-separated lists that we act upon: repetitions are joined (RFC 9110, section 5.3)."""


class Verdict(NamedTuple):
    """An accepted head with its parts, so that they can be remembered one by one."""

    head: Head
    id: bytes
    start: Start
    lines: list[bytes]  # the request line, then the header lines
    fields: list[Field]  # one for each header line


def judge(
    raw: bytes,
    limits: WireLimits,
    *,
    contained: bool = False,
    marks: frozenset[bytes] = frozenset(),
) -> Verdict:
    """Read a head given without its final blank line, or raise WireError.

    A head `contained` in a body may begin with a status line: so what a consumer received can be
    sent back. It then counts as `POST / HTTP/1.1`.
    """
    lines = _split(raw, limits)
    is_status_line = contained and _is_status_line(lines[0])
    request_line = b"POST / HTTP/1.1" if is_status_line else lines[0]
    start = _read_request_line(request_line)
    fields = [read_field(line) for line in lines[1:]]
    merged = _merge(fields)
    id_ = merged.pop(b"id", b"")
    head = make_head(start, merged, not contained, marks)
    _ask_h11(request_line, lines[1:], start, fields)
    return Verdict(head, id_, start, lines, fields)


def _split(raw: bytes, limits: WireLimits) -> list[bytes]:
    """Cut a head into lines, within the limits and with exact line ends."""
    if not raw or raw[0] not in TOKEN:
        raise WireError(400, "a request must begin with a method")
    lines = raw.split(b"\r\n")
    if len(lines[0]) > limits.line_bytes_max:
        raise WireError(414, f"the request line is over {limits.line_bytes_max} bytes")
    if len(raw) > limits.head_bytes_max:
        raise WireError(431, f"the request head is over {limits.head_bytes_max} bytes")
    if len(lines) - 1 > limits.fields_max:
        raise WireError(431, f"the request has more than {limits.fields_max} header lines")
    for line in lines:
        if b"\r" in line or b"\n" in line:
            raise WireError(400, BAD_LINE_END)
        if len(line) > limits.line_bytes_max:
            raise WireError(431, f"a header line is over {limits.line_bytes_max} bytes")
    return lines


def _read_request_line(line: bytes) -> Start:
    parts = line.split(b" ")
    if len(parts) != 3:
        raise WireError(400, f"the request line {quoted(line)} is not: method target version")
    method, target, version = parts
    if not method or method.translate(None, TOKEN):
        raise WireError(400, f"the method {quoted(method)} is not a token")
    if not target or target.translate(None, VISIBLE):
        raise WireError(400, "the target must be visible ASCII; percent-encode the rest")
    if version not in VERSIONS:
        major, dot, minor = version.removeprefix(b"HTTP/").partition(b".")
        if version.startswith(b"HTTP/") and dot and major.isdigit() and minor.isdigit():
            raise WireError(505, "unsupported HTTP version: only 1.1 and 1.0 are supported")
        raise WireError(400, f"{quoted(version)} is not an HTTP version")
    return method, target, VERSIONS[version]


def _is_status_line(line: bytes) -> bool:
    version, _, rest = line.partition(b" ")
    status, _, reason = rest.partition(b" ")
    return (
        version in VERSIONS
        and len(status) == 3
        and status.isdigit()
        and not any(byte < 0x20 or byte == 0x7F for byte in reason)
    )


def _merge(fields: list[Field]) -> dict[bytes, bytes]:
    """Of repeated names the last one wins, except where that would be dangerous."""
    merged: dict[bytes, bytes] = {}
    for name, value in fields:
        before = merged.get(name)
        if before is not None:
            if name in ONCE:
                raise WireError(400, f"the header {name.decode()} may not be repeated")
            if name in LISTS:
                value = before + b", " + value
        merged[name] = value
    return merged


def _ask_h11(request_line: bytes, lines: list[bytes], start: Start, fields: list[Field]) -> None:
    if not any(name == b"host" for name, _ in fields):
        lines = [*lines, b"host: zbus"]  # it may be missing: stock zbus clients send none
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"\r\n".join((request_line, *lines, b"", b"")))
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError as error:
        reason = ascii(str(error))[1:80]
        raise WireError(400, f"the request head is malformed: {reason}") from None
    if not isinstance(event, h11.Request):
        raise WireError(400, "the request head is malformed")
    understood = (event.method, event.target, event.http_version == b"1.1")
    if understood != start or list(event.headers)[: len(fields)] != fields:
        raise WireError(400, "the request head is ambiguous")
