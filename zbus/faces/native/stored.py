"""What of a request is stored with its message, and the limits of what names one (specification,
sections 3.1 and 11)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from zbus.faces.guard import Browser
from zbus.faces.native.header_lines import LINES_MAX, entering, plain_bytes
from zbus.faces.native.params import BadRequest
from zbus.faces.native.vocabulary import (
    ID_BYTES_MAX,
    IDEMPOTENCY_KEY_BYTES_MAX,
    KEY_BYTES_MAX,
    TAG_BYTES_MAX,
)
from zbus.wire.fields import VISIBLE
from zbus.wire.head import Head
from zbus.wire.header_names import PREFIX, is_credential, is_of_way
from zbus.wire.target import has_controls

OF_KEYS = VISIBLE.translate(None, b'"\\')

_FORM = b"application/x-www-form-urlencoded"
_LABEL_ALL_AS_FORM = (b"curl/", b"Wget/", b"Python-urllib/")
"""Programs that say so of every body, unless they are told what it is."""

_ORIGIN_URL_BYTES_MAX = 256
"""Of a target that is stored with every message."""


class RequestLines:
    """What the fields of a head say as lines of a message (`zbus.faces.native.header_lines`): the
    application's own, those that say how the request came, and credentials. `contained`: the head
    stood in a body or a frame; `browser` is whose request it is. Raises BadRequest for more than a
    message may have: `bytes_max` in all, `labels_bytes` of it are for what names the message."""

    __slots__ = ("_own", "_secrets", "_way")

    def __init__(
        self,
        fields: Mapping[bytes, bytes],
        contained: bool,
        browser: Browser | None,
        bytes_max: int,
        labels_bytes: int,
    ) -> None:
        own: dict[bytes, bytes] = {}
        way: dict[bytes, bytes] = {}
        secrets: dict[bytes, bytes] = {}
        agent = fields.get(b"user-agent", b"")
        for name, value in entering(fields).items():
            if is_credential(name):
                if browser is None or not _is_added(name, value):
                    secrets[name] = value
            elif contained or PREFIX + name in fields:
                own[name] = value
            elif is_of_way(name) or (name == b"content-type" and _is_of_program(agent, value)):
                if browser is None or name != b"referer":  # it may hold a token
                    way[name] = value
            elif browser is not None and name == b"priority":
                way[name] = value
            else:
                own[name] = value
        left_bytes = check_lines(own, bytes_max, labels_bytes)
        self._own = own
        self._secrets = secrets
        # Nobody has chosen them, so they are stored as far as they fit.
        self._way: dict[bytes, bytes] = {}
        for name, value in way.items():
            left_bytes -= plain_bytes({name: value})
            if left_bytes >= 0 and len(own) + len(self._way) < LINES_MAX:
                self._way[name] = value

    def of_topic(self, bare: bool) -> bytes:
        """In a topic; `bare`: it does not store how messages came."""
        return encode_lines(self._own if bare else {**self._own, **self._way})

    def of_call(self, tokens: bool, is_json: bool = False) -> bytes:
        """With a call: a service is told all that a server behind a proxy is told. `tokens`: the
        broker's own are in `authorization`. `is_json`: the body is made here."""
        lines = {**self._way, **self._secrets}
        lines.pop(b"token", None)
        lines.pop(b"proxy-authorization", None)
        if tokens:
            lines.pop(b"authorization", None)
        if b"cookie" in lines and (cookie := _without_token(lines.pop(b"cookie"))):
            lines[b"cookie"] = cookie
        if is_json:
            own = {name: value for name, value in self._own.items() if name != b"content-type"}
            lines.pop(b"content-type", None)
            return encode_lines({b"content-type": b"application/json", **own, **lines})
        return encode_lines({**self._own, **lines})


def check_lines(lines: Mapping[bytes, bytes], bytes_max: int, labels_bytes: int = 0) -> int:
    """How many bytes are left of what a message may have. Raises BadRequest if there are more, or
    if a value cannot be in a header line (RFC 9110, section 5.5)."""
    for name, value in lines.items():
        check_value(name, value)
    if len(lines) > LINES_MAX:
        text = f"a message has at most {LINES_MAX} header lines of its own, not {len(lines)}"
        raise BadRequest(431, f"431: {text}")
    left_bytes = bytes_max - labels_bytes - plain_bytes(lines)
    if left_bytes < 0:
        text = (
            f"the header lines, the tag and the keys of a message have at most {bytes_max}"
            f" bytes (option message_headers_bytes_max), not {bytes_max - left_bytes}"
        )
        raise BadRequest(431, f"431: {text}")
    return left_bytes


def encode_lines(lines: Mapping[bytes, bytes]) -> bytes:
    return b"".join([b"%b: %b\r\n" % line for line in lines.items()])


def _is_of_program(agent: bytes, content_type: bytes) -> bool:
    """A content type that nobody chose."""
    return content_type == _FORM and agent.startswith(_LABEL_ALL_AS_FORM)


def _is_added(name: bytes, value: bytes) -> bool:
    """A credential that a browser adds by itself: cookies of all other programs on the host, since
    its ports share them; the password that a proxy before the broker asked for."""
    return name == b"cookie" or (name == b"authorization" and value[:6].lower() == b"basic ")


def _without_token(value: bytes) -> bytes:
    parts = [part.strip() for part in value.split(b";")]
    return b"; ".join(part for part in parts if part and not part.startswith(b"token="))


def origin_lines(head: Head, bare: bool) -> bytes:
    """By which method and target a message came. Where it is stored unasked (`bare`), a long target
    is stored without its query, or not at all."""
    lines = b"origin_method: %b\r\n" % head.method
    target = without_secrets(head.target)
    if bare and len(target) > _ORIGIN_URL_BYTES_MAX:
        target = target.partition(b"?")[0]
    if target == b"/" or (bare and len(target) > _ORIGIN_URL_BYTES_MAX):
        return lines
    return b"%borigin_url: %b\r\n" % (lines, target)


def without_secrets(target: bytes) -> bytes:
    """A request target that may be shown to others."""
    path, mark, query = target.partition(b"?")
    pieces = query.split(b"&")
    names = [unquote_to_bytes(piece.partition(b"=")[0]).lower() for piece in pieces]
    if not any(map(is_credential, names)):
        return target
    kept = [piece for piece, name in zip(pieces, names, strict=True) if not is_credential(name)]
    return path + mark + b"&".join(kept) if kept else path


def check_value(name: bytes, value: bytes) -> None:
    """Raises BadRequest for one that cannot be in a header line. A query may have any bytes."""
    if has_controls(value):
        text = f"{shown(name)} has a control character, which no header line can have"
        raise BadRequest(400, f"400: Bad Format, {text}")


def shown(name: bytes) -> str:
    """A name in a refusal."""
    return repr(name[:40].decode("utf-8", "replace"))


def check_id(id: bytes) -> None:
    check_value(b"id", id)
    if len(id) > ID_BYTES_MAX:
        raise BadRequest(400, f"400: Bad Format, Message.Id length should be <= {ID_BYTES_MAX}")


def check_labels(tag: bytes, key: bytes) -> None:
    check_value(b"tag", tag)
    check_value(b"key", key)
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
