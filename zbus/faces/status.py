"""Statuses of HTTP for the reasons why something is refused; the same in every dialect of HTTP."""

from __future__ import annotations

from zbus.core.errors import Refusal

STATUS: dict[Refusal, int] = {
    Refusal.ILLEGAL: 400,
    Refusal.TOPIC_UNKNOWN: 404,
    Refusal.GROUP_UNKNOWN: 404,
    Refusal.OFFSET_UNKNOWN: 404,
    Refusal.SESSION_UNKNOWN: 404,
    Refusal.FORBIDDEN: 403,
    Refusal.EXCLUSIVE: 401,
    Refusal.CONFLICT: 409,
    Refusal.REUSED: 422,
    Refusal.TOO_MANY: 429,
    Refusal.TOO_LARGE: 413,
    Refusal.FULL: 507,
    Refusal.OVERLOADED: 503,
    Refusal.UNANSWERED: 504,
    Refusal.STOPPING: 503,
    Refusal.FENCED: 503,
    Refusal.DAMAGED: 500,
}

_LATER = (Refusal.FULL, Refusal.OVERLOADED, Refusal.STOPPING, Refusal.FENCED)
"""What a second later may be granted."""


def retry_line(refusal: Refusal) -> bytes:
    """The header line that says when to come again, if that may help."""
    return b"retry-after: 1\r\n" if refusal in _LATER else b""
