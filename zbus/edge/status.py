"""Statuses of HTTP for the reasons why something is refused; the same in every dialect of HTTP."""

from __future__ import annotations

from zbus.core.model.errors import BrokerError, Refusal

STATUS: dict[Refusal, int] = {
    Refusal.ILLEGAL: 400,
    Refusal.TOPIC_UNKNOWN: 404,
    Refusal.GROUP_UNKNOWN: 404,
    Refusal.OFFSET_UNKNOWN: 404,
    Refusal.NOT_LEASED: 404,
    Refusal.SESSION_UNKNOWN: 404,
    Refusal.FORBIDDEN: 403,
    Refusal.EXCLUSIVE: 401,
    Refusal.CONFLICT: 409,
    Refusal.REUSED: 422,
    Refusal.UNFIT: 422,
    Refusal.TOO_MANY: 429,
    Refusal.THROTTLED: 429,
    Refusal.TOO_LARGE: 413,
    Refusal.FULL: 507,
    Refusal.OVERLOADED: 503,
    Refusal.UNANSWERED: 504,
    Refusal.SERVICE_GONE: 502,
    Refusal.STOPPING: 503,
    Refusal.FENCED: 503,
    Refusal.DAMAGED: 500,
}

_LATER = (
    Refusal.FULL,
    Refusal.OVERLOADED,
    Refusal.STOPPING,
    Refusal.FENCED,
    Refusal.THROTTLED,
)
"""What may be granted in a while."""


def retry_line(error: BrokerError) -> bytes:
    """The header line that says when to come again, if that may help."""
    return retry_after(error.retry_s) if error.refusal in _LATER else b""


def retry_after(seconds: int) -> bytes:
    return b"retry-after: %d\r\n" % seconds
