"""The envelope: `status`, `message` and `result`, without what is null (specification, section 1).

The HTTP status is 200 for all that the application says, its refusals included. What only a broker
with limits refuses (full, too many, stopping) has the HTTP status that it has in every dialect: the
clients of this one look at it, and try again.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from zbus.core.api import BrokerError, Refusal
from zbus.edge.http_reply import PlainReply
from zbus.edge.status import STATUS, retry_line

JSON: Final = b"content-type: application/json;charset=UTF-8\r\n"

OK, NO_DATA, BAD, FAILED = 200, 201, 400, 500

_OF_APPLICATION: Final = frozenset(
    (
        Refusal.ILLEGAL,
        Refusal.TOPIC_UNKNOWN,
        Refusal.GROUP_UNKNOWN,
        Refusal.OFFSET_UNKNOWN,
        Refusal.NOT_LEASED,
        Refusal.TOO_LARGE,
        Refusal.UNFIT,
    )
)

encode = msgspec.json.encode


class MqcloudReply(PlainReply):
    """Of any request."""

    __slots__ = ()

    def respond_ok(self, result: object = None, lines: bytes = b"") -> None:
        self.respond_status(OK, result=result, lines=lines)

    def respond_status(
        self, status: int, message: str = "", result: object = None, lines: bytes = b""
    ) -> None:
        """What the application says."""
        envelope: dict[str, Any] = {"status": status}
        if message:
            envelope["message"] = message
        if result is not None:
            envelope["result"] = result
        self.respond(200, JSON + lines, encode(envelope))

    def respond_refusal(self, error: BrokerError) -> None:
        http = 200 if error.refusal in _OF_APPLICATION else STATUS[error.refusal]
        body = encode({"status": FAILED, "message": error.text})
        self.respond(http, JSON + retry_line(error), body)
