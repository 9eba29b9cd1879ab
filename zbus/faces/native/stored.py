"""What of a request is stored with its message, and the limits of what names one (specification,
sections 3.1 and 11)."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from zbus.faces.guard import Browser
from zbus.faces.native.params import BadRequest
from zbus.faces.native.vocabulary import (
    ID_BYTES_MAX,
    IDEMPOTENCY_KEY_BYTES_MAX,
    KEY_BYTES_MAX,
    TAG_BYTES_MAX,
)
from zbus.wire.fields import VISIBLE
from zbus.wire.target import encode_header_value

OF_KEYS = VISIBLE.translate(None, b'"\\')

NOT_STORED = frozenset(
    (
        b"ack ack_group ack_offset ack_partition ack_topic body cmd connection consume_group"
        b" content-length cron cron_id cron_time cron_zone dead_attempts dead_group"
        b" dead_offset dead_partition dead_reason"
        b" dead_topic delay deliver_at expect expected_offset front group host id"
        b" idempotency-key idempotent keep-alive key max_attempts offset origin_id"
        b" origin_method origin_status origin_url partition proxy-authorization remote-addr retry"
        b" sender skipped tag te timeout timestamp token topic trailer transfer-encoding ttl txn"
        b" upgrade cache-control"
    ).split()
)
"""Fields that are the broker's business or the connection's; all others travel with the message."""

SAID_BY_PROGRAMS = frozenset((b"user-agent", b"accept", b"accept-encoding", b"accept-language"))
"""Fields of plain HTTP that are about the program that asks, and its reply. No consumer needs them;
a service may."""

_FORM = b"application/x-www-form-urlencoded"
_LABEL_ALL_AS_FORM = (b"curl/", b"Wget/", b"Python-urllib/")
"""Programs that say so of every body, unless they are told what it is."""

CREDENTIALS = frozenset((b"authorization",))

NOT_ROUTED = frozenset(
    (
        b"ack authorization connection content-length cookie expect host keep-alive origin_status"
        b" proxy-authorization recver remote-addr sender te token trailer transfer-encoding upgrade"
    ).split()
)
"""Of a routed message, everything else is the router's to choose."""


def stored_lines(
    fields: dict[bytes, bytes],
    dropped: frozenset[bytes] = NOT_STORED,
    browser: Browser | None = None,
) -> bytes:
    """The application's fields as canonical header lines; `browser` is whose request has them."""
    lines = []
    for name, value in fields.items():
        if name in dropped or (browser is not None and _is_said_unasked(name, value)):
            continue
        if name == b"cookie":
            parts = [part.strip() for part in value.split(b";")]
            value = b"; ".join(part for part in parts if part and not part.startswith(b"token="))
            if not value:
                continue
        lines.append(b"%b: %b\r\n" % (name, encode_header_value(value)))
    return b"".join(lines)


def said_by_programs(fields: dict[bytes, bytes]) -> frozenset[bytes]:
    """Names of the fields that whoever sent a plain request did not choose."""
    agent, kind = fields.get(b"user-agent", b""), fields.get(b"content-type", b"")
    if kind == _FORM and agent.startswith(_LABEL_ALL_AS_FORM):
        return SAID_BY_PROGRAMS | {b"content-type"}
    return SAID_BY_PROGRAMS


def _is_said_unasked(name: bytes, value: bytes) -> bool:
    """What a browser adds by itself, and nobody chose to send with a message: cookies of all other
    programs on the host, since its ports share them; the address of the page, which may hold a
    token; the password that a proxy before the broker asked for."""
    return name in (b"cookie", b"referer") or (
        name == b"authorization" and value[:6].lower() == b"basic "
    )


def without_token(target: bytes) -> bytes:
    """A request target that may be shown to others."""
    path, mark, query = target.partition(b"?")
    pieces = query.split(b"&")
    names = [unquote_to_bytes(piece.partition(b"=")[0]).lower() for piece in pieces]
    if b"token" not in names:
        return target
    kept = [piece for piece, name in zip(pieces, names, strict=True) if name != b"token"]
    return path + mark + b"&".join(kept) if kept else path


def check_id(id: bytes) -> None:
    if len(id) > ID_BYTES_MAX:
        raise BadRequest(400, f"400: Bad Format, Message.Id length should be <= {ID_BYTES_MAX}")


def check_labels(tag: bytes, key: bytes) -> None:
    if len(tag) > TAG_BYTES_MAX:
        raise BadRequest(400, f"400: Bad Format, Message.Tag length should be <= {TAG_BYTES_MAX}")
    if len(key) > KEY_BYTES_MAX:
        raise BadRequest(400, f"400: Bad Format, key length should be <= {KEY_BYTES_MAX}")


def read_idempotency_key(value: bytes) -> bytes:
    """The key itself. In double quotes, as the header's draft has it, and bare it is the same."""
    quoted = len(value) > 1 and value[:1] == value[-1:] == b'"'
    key = value[1:-1] if quoted else value
    if not 0 < len(key) <= IDEMPOTENCY_KEY_BYTES_MAX or key.translate(None, OF_KEYS):
        limit = IDEMPOTENCY_KEY_BYTES_MAX
        text = f"idempotency-key is 1 to {limit} visible ASCII characters, perhaps in double quotes"
        raise BadRequest(400, f"400: Bad Format, {text}")
    return key
