"""What can go wrong, as a client sees it. Everything is a `ZbusError`.

    ZbusError
    ├── Refused             the broker said no, with a status and a sentence
    │   ├── BadRequest      400, 422  as it stands it will never be done
    │   ├── Forbidden       401, 403  not with this token; or another reads the exclusive group
    │   ├── NotFound        404       topic, group, partition or offset
    │   ├── Conflict        409       the log does not end at `expected_offset`; or not delayed
    │   ├── TooLarge        413
    │   ├── TooMany         429       a limit on how many there may be, or how much a second
    │   ├── Overloaded      503       out of memory, stopping, or a partition is read again
    │   ├── Unanswered      502, 504  a call that no service answered
    │   └── Full            507       no space left; nothing was done
    ├── RpcError            the service answered with an error of its own
    ├── ConnectionLost      no broker there, or it went away before it answered
    ├── Timeout             no answer in time
    └── ProtocolError       what came back is not what a broker says

After a `Refused` nothing was done. After `ConnectionLost` and `Timeout` see `unknown`: if it is
true, the request may have been done nevertheless.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from zbus.wire.retry_after import parse_http_date, parse_retry_after

__all__ = [
    "BadRequest",
    "Conflict",
    "ConnectionLost",
    "Forbidden",
    "Full",
    "NotFound",
    "Overloaded",
    "ProtocolError",
    "Refused",
    "RpcError",
    "Timeout",
    "TooLarge",
    "TooMany",
    "Unanswered",
    "ZbusError",
]


class ZbusError(Exception):
    """The base of all errors of this client."""


class Refused(ZbusError):
    """The broker did not do it. `status` is the reply's, `text` its sentence."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text or f"refused with status {status}")
        self.status = status
        self.text = text
        self.headers = dict(headers or {})


class BadRequest(Refused):
    """400 and 422: no repetition makes it right."""


class Forbidden(Refused):
    """401 and 403: the token does not allow it, or another session reads the exclusive group."""


class NotFound(Refused):
    """404: there is no such topic, group, partition or offset."""


class NotLeased(NotFound):
    """404: the lease has ended, or the message is settled. Another client may be at work on it."""


class Conflict(Refused):
    """409: the log ends elsewhere than `expected_offset` says: at `next_offset`. Or a message that
    was to be cancelled, fired or rescheduled is not delayed (any more): then that is its offset."""

    @property
    def next_offset(self) -> int:
        value = self.headers.get("offset", "")
        return int(value) if value.isascii() and value.isdigit() and len(value) <= 19 else -1


class TooLarge(Refused):
    """413: over one of the broker's limits on sizes."""


class _Later(Refused):
    @property
    def retry_after_s(self) -> float:
        """How long the broker, or what is before it, asks to wait; 1 if it does not say."""
        sent_s = parse_http_date(self.headers.get("date", "").encode())
        now_s = time.time() if sent_s is None else sent_s
        wait_s = parse_retry_after(self.headers.get("retry-after", "").encode(), now_s)
        return 1.0 if wait_s is None else wait_s


class TooMany(_Later):
    """429: over one of the broker's limits on numbers, or on how much it takes a second."""

    @property
    def throttled(self) -> bool:
        """It is too much a second: try again after `retry_after_s`."""
        return "retry-after" in self.headers


class Overloaded(_Later):
    """503: the broker is short of memory, is stopping, or reads a partition again; then a message
    may have been stored all the same. Try again after `retry_after_s`."""


class Full(_Later):
    """507: no space left to store it. Try again after `retry_after_s`."""


class Unanswered(Refused):
    """504: no service answered a call in time. 502: the service that took it has gone. It may have
    been done, or may be done yet."""


class RpcError(ZbusError):
    """The service answered a call with an error: `status` (600 by custom), `text`, `body`."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body
        self.text = body.decode("utf-8", "replace")
        super().__init__(self.text or f"the service answered with status {status}")


class ConnectionLost(ZbusError, ConnectionError):
    """There is no broker, or it went away. `unknown`: the request may have been done."""

    def __init__(self, text: str, unknown: bool = False) -> None:
        super().__init__(text + (": whether the request was done is not known" if unknown else ""))
        self.unknown = unknown


class Timeout(ZbusError, TimeoutError):
    """No answer in time. `unknown`: the request may have been done."""

    def __init__(self, text: str, unknown: bool = True) -> None:
        super().__init__(text + (": whether the request was done is not known" if unknown else ""))
        self.unknown = unknown


class ProtocolError(ZbusError):
    """What came back is not what a broker says: another server, or a broken one."""


STATUSES: dict[int, type[Refused]] = {
    400: BadRequest,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: BadRequest,
    429: TooMany,
    502: Unanswered,
    503: Overloaded,
    504: Unanswered,
    507: Full,
}


def refusal(status: int, text: str, headers: Mapping[str, str] | None = None) -> Refused:
    """The error of a status from 400 on."""
    if status == 404 and headers is not None and headers.get("reason") == "not-leased":
        return NotLeased(status, text, headers)
    return STATUSES.get(status, Refused)(status, text, headers)
