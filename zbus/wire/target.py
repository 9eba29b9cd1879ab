"""What is written in a target or percent-encoded in a header value.

Everything is decoded once, after it was split, so an encoded separator stays a plain character.
A `%` that is not followed by two hex digits stands for itself.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

_SCHEMES = frozenset((b"http", b"https", b"ws", b"wss"))
CONTROLS = bytes({*range(0x20), 0x7F} - {0x09})
"""What a header line may not hold (RFC 9110, section 5.5)."""
_UNSAFE = b"%" + CONTROLS
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_TO_ENCODE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]|%(?=[0-9A-Fa-f]{2})")


PAIRS_MAX = 100
"""Parameters that a query may have."""

_PAIRS_OF_CROWDED = 10
"""Pairs that are read of a target with more: the refusal may depend on command and topic."""


def split_target(target: bytes) -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """Path segments (no empty ones) and query pairs of a request target, decoded. Of a query with
    too many pairs there are the first few."""
    path, query = _parts(target)
    segments = [decode_percent(segment) for segment in path.split(b"/") if segment]
    if not query:
        return segments, []
    pieces = query.rstrip(b"&").split(b"&", PAIRS_MAX)
    if _is_crowded(query):
        del pieces[_PAIRS_OF_CROWDED:]
    pairs = []
    for piece in pieces:
        if piece:
            name, _, value = piece.replace(b"+", b" ").partition(b"=")
            pairs.append((decode_percent(name), decode_percent(value)))
    return segments, pairs


def _parts(target: bytes) -> tuple[bytes, bytes]:
    """The path, without a scheme and a host, and the query."""
    path, _, query = target.partition(b"?")
    if not path.startswith(b"/"):
        scheme, separator, rest = path.partition(b"://")
        if separator and scheme.lower() in _SCHEMES:
            path = rest.partition(b"/")[2]
    return path, query


def has_empty_segment(target: bytes) -> bool:
    """Whether its path ends with a slash or has two in a row, which `split_target` passes over."""
    path = _parts(target)[0].removeprefix(b"/")
    return path.endswith(b"/") or path.startswith(b"/") or b"//" in path


def is_crowded(target: bytes) -> bool:
    """A target's query has more parameters than it may."""
    return _is_crowded(target.partition(b"?")[2])


def _is_crowded(query: bytes) -> bool:
    return query.rstrip(b"&").count(b"&") >= PAIRS_MAX


def decode_valid_percent(value: bytes) -> bytes:
    """Undo the encoding of some clients, unless the result would not be UTF-8; `+` stays."""
    if b"%" not in value:
        return value
    decoded = unquote_to_bytes(value)
    try:
        decoded.decode()
    except UnicodeDecodeError:
        return value
    return decoded


def encode_header_value(value: bytes) -> bytes:
    """Make any bytes safe in a header line, so that `decode_valid_percent` gives them back."""
    if len(value.translate(None, _UNSAFE)) == len(value):
        return value
    return _TO_ENCODE.sub(_encoded, value)


def encode_controls(value: bytes) -> bytes:
    """The same of a value that nothing decodes: a valid one stays as it is."""
    return _CONTROL.sub(_encoded, value) if has_controls(value) else value


def has_controls(value: bytes) -> bool:
    """It cannot be in a header line."""
    return len(value.translate(None, CONTROLS)) != len(value)


def _encoded(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match.group()[0]


def decode_percent(value: bytes) -> bytes:
    """Undo the encoding of a path segment, or of a parameter without its `+`."""
    return unquote_to_bytes(value) if b"%" in value else value
