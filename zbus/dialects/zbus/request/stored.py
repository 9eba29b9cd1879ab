"""What of a request is stored with its message, and the limits of what names one (specification,
sections 3.1 and 11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote_to_bytes

from zbus.core.api import OWN_KEY, PRIORITY_MAX
from zbus.dialects.zbus.request.header_lines import (
    KINDS,
    LINES_MAX,
    TYPE,
    Kind,
    added_bytes,
    encode_line,
)
from zbus.dialects.zbus.request.params import BadRequest
from zbus.dialects.zbus.schema.kinds import (
    ID_BYTES_MAX,
    IDEMPOTENCY_KEY_BYTES_MAX,
    KEY_BYTES_MAX,
    TAG_BYTES_MAX,
)
from zbus.edge.guard import Browser
from zbus.wire.heads.fields import VISIBLE
from zbus.wire.heads.head import Head
from zbus.wire.heads.header_names import PREFIX, is_credential, nominated
from zbus.wire.target import CONTROLS, encode_header_value, has_controls

OF_KEYS = VISIBLE.translate(None, b'"\\')

_FORM = b"application/x-www-form-urlencoded"
_LABEL_ALL_AS_FORM = (b"curl/", b"Wget/", b"Python-urllib/")
"""Programs that say so of every body, unless the user names a type."""

ORIGIN_URL_BYTES_MAX = 256
"""Of a target that is stored with every message, and for which there is room beside what counts."""


class RequestLines:
    """What the fields of a head say as lines of a message
    (`zbus.dialects.zbus.request.header_lines`): the application's own, those that say how the
    request came, and credentials. `contained`: the head stood in a body or a frame; `browser` is
    whose request it is. Raises BadRequest for more than a message may have: `bytes_max` in all,
    `labels_bytes` of it are for what names the message."""

    __slots__ = ("_bytes_max", "_left_bytes", "_own", "_secrets", "_way")

    def __init__(
        self,
        fields: Mapping[bytes, bytes],
        contained: bool,
        browser: Browser | None,
        bytes_max: int,
        labels_bytes: int,
    ) -> None:
        own: dict[bytes, bytes] = {}
        prefixed: dict[bytes, bytes] = {}
        self._way: dict[bytes, bytes] = {}
        self._secrets: dict[bytes, bytes] = {}
        for name, value in fields.items():
            kind = KINDS[name]
            if kind <= Kind.STANDARD:
                own[name] = b"%b: %b\r\n" % (name, value.strip(b" \t"))  # `encode_line`, quickly
            elif kind <= Kind.WAY:
                if kind == Kind.TYPE:
                    meant = contained or not _is_of_program(fields, value)
                else:  # the broker's own replies say this, and a delivery may be sent on
                    meant = contained and name != b"cache-control"
                if meant:
                    own[name] = encode_line(name, value)
                elif browser is None or name != b"referer":  # it may hold a token
                    self._way[name] = encode_line(name, value)
            elif kind == Kind.SECRET:
                if browser is None or not _is_added(name, value):
                    self._secrets[name] = value
            elif kind == Kind.PREFIXED:
                name = name[len(PREFIX) :]
                if KINDS[name] not in (Kind.BROKER, Kind.SECRET):
                    prefixed[name] = encode_line(name, value)
        if b"connection" in fields:
            for name in nominated(fields):
                own.pop(name, None)
                self._way.pop(name, None)
        if b"priority" in fields and (value := _priority(fields[b"priority"])):
            own[b"priority"] = encode_line(b"priority", value)
        if prefixed:
            own |= prefixed
        self._bytes_max = bytes_max
        self._left_bytes = check_lines(own, bytes_max, labels_bytes)
        self._own = own

    @property
    def left_bytes(self) -> int:
        """How much more the application could have said."""
        return self._left_bytes

    def own_names(self, fields: Mapping[bytes, bytes]) -> list[bytes]:
        """Names of lines whose values these fields say and nothing depends on, in their order."""
        return [
            name
            for name, line in self._own.items()
            if name in fields
            and (KINDS[name] <= Kind.STANDARD or name == b"priority")
            and PREFIX + name not in fields
            and line == encode_line(name, fields[name])
        ]

    def format(self, names: Sequence[bytes]) -> bytes:
        """The application's own lines, with `%b` in place of these values."""
        return b"".join(
            [
                b"%b: %%b\r\n" % name.replace(b"%", b"%%")
                if name in names
                else line.replace(b"%", b"%%")
                for name, line in self._own.items()
            ]
        )

    def of_batch(self) -> bytes:
        """In a topic, of a message in a container."""
        return b"".join(self._own.values())

    def of_topic(self, head: Head, minimal_headers: bool) -> bytes:
        """In a topic; `bare`: it does not store how messages came."""
        lines = b"".join(self._own.values())
        if minimal_headers:
            return lines + origin_lines(head, ORIGIN_URL_BYTES_MAX)
        way, left_bytes = self._fitting(self._left_bytes)
        way_lines = b"".join(way.values())
        return lines + way_lines + origin_lines(head, ORIGIN_URL_BYTES_MAX + left_bytes)

    def _fitting(self, left_bytes: int) -> tuple[dict[bytes, bytes], int]:
        """How the request came, and how many bytes are left then. The producer did not choose these
        lines, so they are stored as far as there is room for them."""
        count = LINES_MAX - len(self._own)
        found: dict[bytes, bytes] = {}
        for name, line in self._way.items():
            used_bytes = len(line) + added_bytes(name)
            if used_bytes <= left_bytes and len(found) < count:
                left_bytes -= used_bytes
                found[name] = line
        return found, left_bytes

    def of_call(self, head: Head, tokens: bool, is_json: bool = False) -> bytes:
        """With a call: a service gets all that a server behind a proxy gets. `tokens`: the
        broker's own are in `authorization`. `is_json`: the body is made here. Raises BadRequest if
        credentials and target are more than there is room for: without them it is another call."""
        secrets = dict(self._secrets)
        for name in (b"token", b"proxy-authorization", *((b"authorization",) * tokens)):
            secrets.pop(name, None)
        if cookie := _without_token(secrets.pop(b"cookie", b"")):
            secrets[b"cookie"] = cookie
        secret_lines = [encode_line(name, value) for name, value in secrets.items()]
        target_bytes = max(0, len(without_secrets(head.target)) - ORIGIN_URL_BYTES_MAX)
        if is_json:
            target_bytes = 0  # the body says the same
        more_bytes = sum([len(line) + len(PREFIX) for line in secret_lines]) + target_bytes
        if is_json and TYPE not in self._own:
            more_bytes += len(_JSON[TYPE])
        if more_bytes > self._left_bytes:
            used_bytes = self._bytes_max - self._left_bytes + more_bytes
            raise _too_much(
                "the header lines, the credentials and the target of a call",
                self._bytes_max,
                used_bytes,
            )
        way, left_bytes = self._fitting(self._left_bytes - more_bytes)
        lines = {**self._own, **way}
        if is_json:
            lines = {**_JSON, **lines, **_JSON}
        url_bytes_max = ORIGIN_URL_BYTES_MAX + target_bytes + left_bytes
        return b"".join([*lines.values(), *secret_lines, origin_lines(head, url_bytes_max)])


_JSON = {TYPE: encode_line(TYPE, b"application/json")}


def _priority(value: bytes) -> bytes:
    """A priority, as it is stored; empty for 0, and for what browsers say of the request: how soon
    they want the reply (RFC 9218). Raises BadRequest for anything else."""
    value = value.strip(b" \t")
    if value in (b"", b"0") or value.startswith((b"u=", b"i")):
        return b""
    if value not in _PRIORITIES:
        text = f"priority is a number from 0 to {PRIORITY_MAX}, not {shown(value)}"
        raise BadRequest(400, f"400: Bad Format, {text}")
    return value


_PRIORITIES = frozenset(b"%d" % number for number in range(PRIORITY_MAX + 1))


def labels_bytes(tag: bytes, key: bytes, once: bytes) -> int:
    """How many bytes they are in the head of a delivery: `once` as it is stored, the others not."""
    bytes_used = len(b"key: \r\n") + len(key) if key else 0
    if tag:
        bytes_used += len(b"tag: \r\n") + len(encode_header_value(tag))
    return bytes_used + len(b"idempotency-key: \r\n") + len(once) if once else bytes_used


def check_lines(lines: Mapping[bytes, bytes], bytes_max: int, labels_bytes: int = 0) -> int:
    """How many bytes are left of what a message may have, if it has these lines. Raises BadRequest
    if there are more, or if one cannot be a header line (RFC 9110, section 5.5): a query may hold
    any bytes."""
    if not lines and labels_bytes <= bytes_max:
        return bytes_max - labels_bytes
    if len(lines) > LINES_MAX:
        text = f"a message has at most {LINES_MAX} header lines of its own, not {len(lines)}"
        raise BadRequest(431, f"431: {text}")
    block = b"".join(lines.values())
    if len(block) != len(block.translate(None, CONTROLS)) + 2 * len(lines):
        for name, line in lines.items():
            check_value(name, line[:-2])
    used_bytes = labels_bytes + len(block) + sum([added_bytes(name) for name in lines])
    if used_bytes > bytes_max:
        raise _too_much(
            "the header lines, the tag and the keys of a message", bytes_max, used_bytes
        )
    return bytes_max - used_bytes


def _too_much(what: str, bytes_max: int, used_bytes: int) -> BadRequest:
    option = "(option message_headers_bytes_max)"
    text = f"{what} have at most {bytes_max} bytes {option}, not {used_bytes}"
    return BadRequest(431, f"431: {text}")


def _is_of_program(fields: Mapping[bytes, bytes], content_type: bytes) -> bool:
    """A content type that the program added by itself."""
    if content_type != _FORM:
        return False
    return fields.get(b"user-agent", b"").startswith(_LABEL_ALL_AS_FORM)


def _is_added(name: bytes, value: bytes) -> bool:
    """A credential that a browser adds by itself: cookies of all other programs on the host, since
    its ports share them; the password that a proxy before the broker asked for."""
    return name == b"cookie" or (name == b"authorization" and value[:6].lower() == b"basic ")


def _without_token(value: bytes) -> bytes:
    parts = [part.strip() for part in value.split(b";")]
    return b"; ".join(part for part in parts if part and not part.startswith(b"token="))


def origin_lines(head: Head, url_bytes_max: int) -> bytes:
    """By which method and target a message came. A target that is longer is stored without its
    query, or not at all."""
    lines = b"origin_method: %b\r\n" % head.method
    target = without_secrets(head.target)
    if len(target) > url_bytes_max:
        target = target.partition(b"?")[0]
    if target == b"/" or len(target) > url_bytes_max:
        return lines
    return b"%borigin_url: %b\r\n" % (lines, target)


def without_secrets(target: bytes) -> bytes:
    """A request target that may be shown to others."""
    path, mark, query = target.partition(b"?")
    if not mark:
        return target
    pieces = query.split(b"&")
    names = [piece.partition(b"=")[0].lower() for piece in pieces]
    if b"%" in query:
        names = [unquote_to_bytes(name).lower() for name in names]
    names = [name.removeprefix(PREFIX) for name in names]
    if Kind.SECRET not in [KINDS[name] for name in names]:
        return target
    kept = [piece for piece, name in zip(pieces, names, strict=True) if not is_credential(name)]
    return path + mark + b"&".join(kept) if kept else path


def of_message(index: int, error: BadRequest) -> BadRequest:
    """The refusal of one message of a batch, numbered from 0."""
    begin = "400: Bad Format, " if error.status == 400 else f"{error.status}: "
    why = error.text.removeprefix(begin)
    return BadRequest(error.status, f"{begin}message {index}: {why}", error.lines)


def check_value(name: bytes, value: bytes) -> None:
    """Raises BadRequest for one that cannot be in a header line. A query may have any bytes."""
    if value and has_controls(value):
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
    check_not_own(key)
    return key


def read_id_as_key(id: bytes) -> bytes:
    """The id of an idempotent request, which is its key."""
    if not id or id.translate(None, OF_KEYS):
        text = "an idempotent request has an id of visible ASCII characters without quotes"
        raise BadRequest(400, f"400: Bad Format, {text}")
    check_not_own(id)
    return id


def is_plain_key(id: bytes) -> bool:
    """It may be a key, and there is nothing to say about it."""
    return bool(id) and not id.translate(None, OF_KEYS) and not id.startswith(OWN_KEY)


def check_not_own(key: bytes) -> None:
    """The broker's own keys are not for clients: what was put under one is not put again."""
    if key.startswith(OWN_KEY):
        text = "keys that begin with zb: are for the broker itself; choose another idempotency-key"
        raise BadRequest(400, f"400: Bad Format, {text}")
