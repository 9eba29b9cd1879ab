"""One header line: its grammar, and the stricter values of the names that steer framing.

No regular expression and no integer conversion ever sees unchecked bytes here: a set of bytes is
checked with `translate`, which deletes the allowed ones in linear time and leaves the culprits.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from zbus.wire.errors import WireError, quoted
from zbus.wire.heads.head import Field

_ALNUM = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
TOKEN = b"!#$%&'*+-.^_`|~" + _ALNUM
VISIBLE = bytes(range(0x21, 0x7F))
PRINTABLE = b" " + VISIBLE
HEX = b"0123456789ABCDEFabcdef"
_TEXT = b"\t" + PRINTABLE + bytes(range(0x80, 0x100))
_REG_NAME = b"-._~!$&'()*+,;=%" + _ALNUM

LENGTH_DIGITS_MAX = 19
"""Enough for 2^63. Real limits are far lower; this one only bounds the conversion."""

GUARDED = frozenset(
    (
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""Names that steer a connection: ASCII values only, and an unseen value is always judged."""


def split_field(line: bytes) -> Field:
    """Check the grammar of a header line; return the lower-case name and the bare value."""
    name, colon, value = line.partition(b":")
    if line[:1] in (b" ", b"\t"):
        raise WireError(400, "a header line may not be folded or begin with white space")
    if not colon:
        raise WireError(400, f"the header line {quoted(line)} has no colon")
    if not name or name.translate(None, TOKEN):
        raise WireError(400, f"the header name {quoted(name)} is not a token")
    if value.translate(None, _TEXT):
        raise WireError(400, f"the header {quoted(name)} has a control byte in its value")
    return name.lower(), value.strip(b" \t")


def read_field(line: bytes) -> Field:
    """Check a header line completely, all that can be said without the other lines."""
    name, value = split_field(line)
    if name in GUARDED:
        if not value.isascii():
            raise WireError(400, f"the header {name.decode()} must be ASCII")
        check = _CHECKS.get(name)
        if check is not None:
            value = check(value)
    return name, value


def _content_length(value: bytes) -> bytes:
    if not value.isdigit() or len(value) > LENGTH_DIGITS_MAX:
        raise WireError(400, f"the content-length {quoted(value)} is not a number of bytes")
    return value


def _transfer_encoding(value: bytes) -> bytes:
    value = value.lower()
    if value != b"chunked":
        raise WireError(400, "unsupported transfer-encoding: only chunked is supported")
    return value


def _expect(value: bytes) -> bytes:
    if value.lower() != b"100-continue":
        raise WireError(417, "unsupported expectation: only 100-continue is supported")
    return value


def _host(value: bytes) -> bytes:
    """A registered name, an IPv4 address or an [IPv6] address, then perhaps a port."""
    if value.startswith(b"["):
        address, bracket, after = value[1:].partition(b"]")
        valid = bool(bracket) and _is_ipv6(address) and after[:1] in (b"", b":")
        port = after[1:]
    else:
        name, _, port = value.partition(b":")
        valid = bool(name) and not name.translate(None, _REG_NAME) and _percents_are_valid(name)
    if not valid or len(port) > 5 or (port and not port.isdigit()):
        raise WireError(400, f"the Host {quoted(value)} is not a name or address and a port")
    return value


def _is_ipv6(address: bytes) -> bool:
    if len(address) > 45 or address.translate(None, HEX + b":."):
        return False  # also keeps out zone ids, which ipaddress would take
    try:
        ipaddress.IPv6Address(address.decode())
    except ValueError:
        return False
    return True


def _percents_are_valid(name: bytes) -> bool:
    return all(
        len(piece) >= 2 and not piece[:2].translate(None, HEX) for piece in name.split(b"%")[1:]
    )


_CHECKS: dict[bytes, Callable[[bytes], bytes]] = {
    b"content-length": _content_length,
    b"expect": _expect,
    b"host": _host,
    b"transfer-encoding": _transfer_encoding,
}
