"""Replies as bytes: a status line, the lines that frame it, the caller's lines, the body.

Header names are lower-case with one space behind the colon, and no whole reply is chunked: stock
zbus clients read nothing else. The spelling `Keep-Alive` matters, `ab -k` looks for it.

No reply may be kept by a cache: a consume is a GET of an address that gives another message the
next time, and a document is out of date at once. So `cache-control: no-store` belongs to what
frames a reply, as its length does. Files, which have an etag, are the exception.
"""

from __future__ import annotations

REASONS: dict[int, bytes] = {
    100: b"Continue",
    101: b"Switching Protocols",
    200: b"OK",
    201: b"Created",
    202: b"Accepted",
    204: b"No Content",
    206: b"Partial Content",
    301: b"Moved Permanently",
    302: b"Found",
    303: b"See Other",
    304: b"Not Modified",
    307: b"Temporary Redirect",
    308: b"Permanent Redirect",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    408: b"Request Timeout",
    409: b"Conflict",
    410: b"Gone",
    411: b"Length Required",
    412: b"Precondition Failed",
    413: b"Content Too Large",
    414: b"URI Too Long",
    415: b"Unsupported Media Type",
    416: b"Range Not Satisfiable",
    417: b"Expectation Failed",
    421: b"Misdirected Request",
    422: b"Unprocessable Content",
    423: b"Locked",
    425: b"Too Early",
    426: b"Upgrade Required",
    428: b"Precondition Required",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
    507: b"Insufficient Storage",
}

_STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, reason) for status, reason in REASONS.items()
}
_FRAMED = {status: line + b"content-length: " for status, line in _STATUS_LINES.items()}
NO_STORE = b"cache-control: no-store\r\n"
_UNBUFFERED = b"x-accel-buffering: no\r\n"
"""nginx passes such a reply on as it comes; otherwise it gathers some kilobytes first."""

KEEP_ALIVE = b"connection: Keep-Alive\r\n" + NO_STORE
_CLOSE = b"connection: close\r\n" + NO_STORE


def encode_reply(
    status: int,
    lines: bytes = b"",
    body: bytes = b"",
    *,
    close: bool = False,
    head_only: bool = False,
    cached: bool = False,
) -> bytes:
    """One reply. `lines` are whole header lines, each with its CRLF; nothing in them is checked.

    `head_only` answers a HEAD request: the length of the body without the body. Statuses that have
    no body by definition get none. An interim reply (1xx) gets no `connection` line either: the
    one of a 101 belongs to the caller. `cached`: the lines say how long a cache may keep it.
    """
    connection = _CLOSE if close else KEEP_ALIVE
    if cached:
        connection = connection.removesuffix(NO_STORE)
    if status >= 200 and status != 204 and status != 304:
        framed = _FRAMED.get(status) or _status_line(status) + b"content-length: "
        sent = b"" if head_only else body
        return b"%b%d\r\n%b%b\r\n%b" % (framed, len(body), connection, lines, sent)
    if status < 200:
        connection = b""
    return b"%b%b%b\r\n" % (_status_line(status), connection, lines)


def encode_stream_head(lines: bytes) -> bytes:
    """The head of a 200 whose body ends with the connection."""
    return b"%b%b%b%b\r\n" % (_STATUS_LINES[200], _CLOSE, _UNBUFFERED, lines)


def encode_late_head(lines: bytes, *, close: bool) -> bytes:
    """The head of a 200 whose body is one chunk, and comes later (`encode_late_body`)."""
    ending = (_CLOSE if close else KEEP_ALIVE) + _UNBUFFERED
    return b"%btransfer-encoding: chunked\r\n%b%b\r\n" % (_STATUS_LINES[200], ending, lines)


def encode_late_body(body: bytes) -> bytes:
    """The one chunk, which is not empty, and the end."""
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def _status_line(status: int) -> bytes:
    known = _STATUS_LINES.get(status)
    return known or b"HTTP/1.1 %d Unknown Status (%d)\r\n" % (status, status)
