"""What a head says, and the rules that need all of its lines to decide.

`make_head` is the only maker of heads. The quick and the careful way of reading both end here, so
they cannot differ in what they conclude from the same fields.
"""

from __future__ import annotations

from typing import Any

from zbus.wire.errors import WireError, quoted
from zbus.wire.heads.header_names import OF_CONNECTION

Start = tuple[bytes, bytes, bool]
"""Method, target, and whether the version is HTTP/1.1 (otherwise it is HTTP/1.0)."""

Field = tuple[bytes, bytes]
"""Lower-case name, value without surrounding white space."""


class Head:
    """A request head. Shared between requests that differ only in their id, so never change one.

    The id is not in it: it is what makes two heads of the same client differ.
    """

    __slots__ = (
        "chunked",
        "contained",
        "content_length",
        "direct",
        "expects_continue",
        "fields",
        "json",
        "keep_alive",
        "kept",
        "method",
        "origin",
        "plan",
        "seen",
        "target",
        "version_11",
        "websocket",
    )

    def __init__(
        self,
        start: Start,
        fields: dict[bytes, bytes],
        content_length: int,
        chunked: bool,
        keep_alive: bool,
        expects_continue: bool,
        contained: bool = False,
        websocket: bool = False,
    ) -> None:
        self.method, self.target, self.version_11 = start
        self.fields = fields  # the last repetition of a name; never b"id"
        self.content_length = content_length  # 0 if absent or chunked
        self.chunked = chunked
        self.keep_alive = keep_alive
        self.expects_continue = expects_continue  # wants "100 Continue" before it sends the body
        self.direct = keep_alive and not chunked  # content_length is all a reader has to know
        self.contained = contained  # stood in a body or in a WebSocket's frame
        self.json = False  # written as JSON, so its reply is too
        self.websocket = websocket  # wants the connection to go on as a WebSocket
        self.seen = False  # a receive that may come again held it, so it is a known head
        # It is remembered, and will be as long as this is set. Then a dialect keeps here what it
        # worked out from it; else that and the head would hold on to each other.
        self.kept = False
        self.plan: object = None
        # What has read it (`zbus.wire.heads.heads.Heads`), and its bytes, until it is planned: it
        # may be the first of a shape.
        self.origin: tuple[object, bytes] | None = None

    @property
    def open_ended(self) -> bool:
        """In HTTP/1.0, without a length: it has no body, or one that ends with the connection. A
        proxy that speaks HTTP/1.0 passes a POST without a body on like this."""
        return (
            not self.version_11
            and not self.contained
            and self.method in _METHODS_OF_BODIES
            and b"content-length" not in self.fields
        )

    def __repr__(self) -> str:
        return f"Head({self.method!r}, {self.target!r}, {self.fields!r})"


NO_LENGTH = "a body needs a content-length, or transfer-encoding: chunked"

_METHODS_OF_BODIES = frozenset((b"PATCH", b"POST", b"PUT"))
_OF_BODIES = frozenset((b"content-encoding", b"content-type"))

Request = tuple[Head, Any, bytes]
"""Head, id (b"" if none; if the head is a `zbus.wire.heads.shapes.Shape`, the match of it),
body."""


def make_head(
    start: Start,
    fields: dict[bytes, bytes],
    outermost: bool,
    marks: frozenset[bytes] = frozenset(),
) -> Head:
    """Apply the rules about the head as a whole. Each field is valid by itself already. A head that
    is not `outermost` is contained in a body or frame. With a field among the `marks`, the fields
    are those of a message, which may have come over another connection: "close" is about that."""
    version_11 = start[2]
    length = fields.get(b"content-length")
    chunked = b"transfer-encoding" in fields
    if chunked:
        if length is not None:
            raise WireError(400, "content-length and transfer-encoding exclude each other")
        if not version_11:
            raise WireError(400, "transfer-encoding needs HTTP/1.1")
    connection = fields.get(b"connection")
    keep_alive = version_11
    if connection is not None:
        if outermost:
            _check_nominated(connection, fields)
        keep_alive = _keeps_alive(connection, version_11, not marks.isdisjoint(fields))
    if length is None and not chunked and outermost and start[0] in _METHODS_OF_BODIES:
        _check_has_no_body(fields, version_11, keep_alive)
    websocket = b"upgrade" in fields and outermost and b"websocket" in _options(fields[b"upgrade"])
    return Head(
        start,
        fields,
        0 if length is None else int(length),  # 1 to 19 digits, checked with the line
        chunked,
        # Of a contained message the connection is none of its business. After a handshake no
        # other request is read, whether it is taken or refused.
        not outermost or (keep_alive and not websocket),
        version_11 and b"expect" in fields,
        not outermost,
        websocket,
    )


def _check_has_no_body(fields: dict[bytes, bytes], version_11: bool, keep_alive: bool) -> None:
    """Without a length there is no body in HTTP/1.1. What announces one has forgotten the length,
    and the next bytes may be the body: nothing may be done, as if it were empty. In HTTP/1.0 the
    end of the connection may be the end of a body that nothing announces, see `Head.open_ended`;
    where the connection goes on, it cannot be."""
    if not _OF_BODIES.isdisjoint(fields) or (keep_alive and not version_11):
        raise WireError(411, NO_LENGTH)


def _options(value: bytes) -> list[bytes]:
    return [option.strip(b" \t") for option in value.lower().split(b",")]


_MAY_BE_NAMED = OF_CONNECTION - {b"content-length", b"expect"}
"""Fields about one connection: those that `connection` may name."""


def _check_nominated(connection: bytes, fields: dict[bytes, bytes]) -> None:
    """A proxy removes what `connection` names, so with one or without one, such a request would
    mean two things (RFC 9110, section 7.6.1)."""
    for option in _options(connection):
        if option in fields and option not in _MAY_BE_NAMED:
            raise WireError(
                400,
                f"the header connection names {quoted(option)}, which a proxy would remove; leave"
                " it out of connection",
            )


def _keeps_alive(connection: bytes, version_11: bool, marked: bool) -> bool:
    options = _options(connection)
    return (marked or b"close" not in options) and (version_11 or b"keep-alive" in options)
