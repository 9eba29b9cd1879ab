"""Forms as browsers and HTTP libraries send them: `application/x-www-form-urlencoded`."""

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
