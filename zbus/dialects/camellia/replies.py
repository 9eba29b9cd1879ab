"""Replies: JSON, with the code of the application in it, and the tickets that end in them.

What the original's framework refuses has an HTTP status, what its application refuses has HTTP 200
and a code. What only a broker with limits refuses (full, stopping, too many) has the HTTP status
that it has in every dialect, and the same number as code.
"""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec

from zbus.core.api import BrokerError, Refusal
from zbus.edge.connection import Connection
from zbus.edge.http_reply import PlainAnswering, PlainHead, PlainReply
from zbus.edge.status import STATUS, retry_line

JSON: Final = b"content-type: application/json;charset=UTF-8\r\n"
TEXT: Final = b"content-type: text/plain;charset=UTF-8\r\n"

OK, BAD, MISSING = 200, 400, 404
SUCCESS: Final = "success"

_OF_APPLICATION = {
    Refusal.ILLEGAL: BAD,
    Refusal.UNFIT: BAD,
    Refusal.TOPIC_UNKNOWN: MISSING,
    Refusal.GROUP_UNKNOWN: MISSING,
    Refusal.OFFSET_UNKNOWN: MISSING,
}
"""Codes of what is the application's to refuse."""

_encode = msgspec.json.encode


class CamelliaAnswering(PlainAnswering):
    __slots__ = ()

    empty: str  # the key that is null in a refusal; "" = there is none

    def respond_code(self, code: int, text: str, lines: bytes = b"", status: int = 200) -> None:
        """What was not done, and why."""
        document: dict[str, Any] = {"code": code, "msg": text}
        if self.empty:
            document[self.empty] = None
        self.respond(status, JSON + lines, _encode(document))

    def respond_success(self, **more: object) -> None:
        self.respond(200, JSON, _encode({"code": OK, "msg": SUCCESS, **more}))

    def respond_refusal(self, error: BrokerError) -> None:
        code = _OF_APPLICATION.get(error.refusal)
        if code is not None:
            self.respond_code(code, error.text)
        else:
            code = STATUS[error.refusal]
            self.respond_code(code, error.text, retry_line(error), code)


class CamelliaReply(CamelliaAnswering, PlainReply):
    """Of any request but one that waits for messages."""

    __slots__ = ("empty",)

    def __init__(self, asked: PlainHead, peer: Connection, empty: str = "") -> None:
        super().__init__(asked, peer)
        self.empty = empty


def framework_error(status: int, text: str, path: bytes, now_ms: int) -> bytes:
    """What the original's framework says of a request that reaches no application."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    document = {
        "timestamp": moment,
        "status": status,
        "error": HTTPStatus(status).phrase,
        "message": text,
        "path": path.decode("latin-1"),
    }
    return _encode(document)
