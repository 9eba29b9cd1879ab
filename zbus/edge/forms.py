"""Forms as browsers and HTTP libraries send them: urlencoded, or in parts."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from zbus.wire.errors import WireError, quoted

FORM_BYTES_MAX = 8 << 10
_FIELDS_MAX = 100
_URLENCODED, _PARTS = b"application/x-www-form-urlencoded", b"multipart/form-data"
FORMS = (_URLENCODED, _PARTS)
"""Media types of forms."""
_CHARSETS = frozenset((b"utf-8", b"utf8", b"us-ascii", b"ascii"))
_PLAIN_ENCODINGS = frozenset((b"", b"7bit", b"8bit", b"binary"))


def read_form(body: bytes, bytes_max: int = FORM_BYTES_MAX) -> dict[bytes, bytes]:
    """The fields of a form, of a repeated one the first; none if it is over a limit."""
    if len(body) > bytes_max or body.count(b"&") >= _FIELDS_MAX:
        return {}
    fields: dict[bytes, bytes] = {}
    encoded = b"%" in body
    for piece in body.strip().replace(b"+", b" ").split(b"&"):
        name, _, value = piece.partition(b"=")
        if encoded:
            name, value = unquote_to_bytes(name), unquote_to_bytes(value)
        fields.setdefault(name, value)
    return fields


def check_charset(content_type: bytes) -> None:
    """Raises WireError (415) for text in a character set other than UTF-8."""
    charset = option_of(content_type.partition(b";")[2], b"charset")
    if charset and charset.lower() not in _CHARSETS:
        text = f"the character set {quoted(charset)} is not understood; send the text as UTF-8"
        raise WireError(415, text)


def read_fields(media_type: bytes, body: bytes) -> dict[bytes, bytes]:
    """The fields of a body of this type, as `content-type` says it; none if it is no form. A body
    has a limit of its own, so here it may have any size. Raises WireError (415) for text that is
    not understood."""
    if media_type == _URLENCODED:  # nearly always
        return read_form(body, len(body))
    kind, _, options = media_type.partition(b";")
    kind = kind.strip().lower()
    if kind == _URLENCODED:
        return read_form(body, len(body))
    return _read_parts(option_of(options, b"boundary"), body) if kind == _PARTS else {}


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
        lines = [line.partition(b":") for line in head.split(b"\r\n")] if blank else []
        for name, _, field_value in lines:
            match name.strip().lower():
                case b"content-disposition":
                    fields.setdefault(option_of(field_value.partition(b";")[2], b"name"), value)
                case b"content-type":
                    check_charset(field_value)
                case b"content-transfer-encoding":
                    _check_transfer_encoding(field_value.strip().lower())
    return fields


def _check_transfer_encoding(value: bytes) -> None:
    """RFC 7578 does away with those of mail; old libraries still say that there is none."""
    if value not in _PLAIN_ENCODINGS:
        raise WireError(415, f"the part of a form may not be encoded as {quoted(value)}")


def option_of(options: bytes, wanted: bytes) -> bytes:
    """One of `a=b; c="d"`."""
    for option in options.split(b";"):
        name, _, value = option.strip().partition(b"=")
        if name.strip().lower() == wanted:
            return value.strip().strip(b'"')
    return b""
