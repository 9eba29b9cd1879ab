"""Forms as browsers and HTTP libraries send them: urlencoded, or in parts."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

FORM_BYTES_MAX = 8 << 10
_FIELDS_MAX = 100


def read_form(body: bytes, bytes_max: int = FORM_BYTES_MAX) -> dict[bytes, bytes]:
    """The fields of a form, of a repeated one the first; none if it is over a limit."""
    if len(body) > bytes_max or body.count(b"&") >= _FIELDS_MAX:
        return {}
    fields: dict[bytes, bytes] = {}
    for piece in body.strip().replace(b"+", b" ").split(b"&"):
        name, _, value = piece.partition(b"=")
        fields.setdefault(unquote_to_bytes(name), unquote_to_bytes(value))
    return fields


def read_fields(media_type: bytes, body: bytes) -> dict[bytes, bytes]:
    """The fields of a body of this type, as `content-type` says it; none if it is no form. A body
    has a limit of its own, so here it may have any size."""
    kind, _, options = media_type.partition(b";")
    match kind.strip().lower():
        case b"application/x-www-form-urlencoded":
            return read_form(body, len(body))
        case b"multipart/form-data":
            return _read_parts(_option(options, b"boundary"), body)
    return {}


def _read_parts(boundary: bytes, body: bytes) -> dict[bytes, bytes]:
    """RFC 7578: parts, each with header lines that name the field."""
    fields: dict[bytes, bytes] = {}
    if not boundary:
        return fields
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary, _FIELDS_MAX + 2)
    for piece in pieces[1 : _FIELDS_MAX + 2]:
        if piece.startswith(b"--"):
            break
        head, blank, value = piece.partition(b"\r\n\r\n")
        for line in head.split(b"\r\n"):
            name, _, said = line.partition(b":")
            if blank and name.strip().lower() == b"content-disposition":
                fields.setdefault(_option(said.partition(b";")[2], b"name"), value)
    return fields


def _option(options: bytes, wanted: bytes) -> bytes:
    """One of `a=b; c="d"`."""
    for option in options.split(b";"):
        name, _, value = option.strip().partition(b"=")
        if name.strip().lower() == wanted:
            return value.strip().strip(b'"')
    return b""
