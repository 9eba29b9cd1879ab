"""The actions of clients, and the refusals of each."""

from __future__ import annotations

import enum
from typing import Final

from zbus.core.api import BrokerError, Refusal


class Action(enum.IntEnum):
    """The codes of the binary form; the other forms have the names in lower case."""

    LPUSH = 1
    RPUSH = 2
    DELETE = 3
    PULL = 4
    CLEAR = 5
    COUNT = 6
    LCANCEL = 7
    RCANCEL = 8
    CREATEQUEUE = 9
    DELETEQUEUE = 10


PUSHES: Final = frozenset((Action.LPUSH, Action.RPUSH))
BY_WORD: Final = {action.name.lower().encode(): action for action in Action}
BY_CODE: Final = {int(action): action for action in Action}

ACTION_UNKNOWN: Final = "action unknown."
BODY_EMPTY: Final = "body empty."
BODY_INVALID: Final = "body invalid."
BODY_LENGTH_INVALID: Final = "body length invalid."
BODY_TOO_LONG: Final = "body too long."
FORBIDDEN: Final = "forbidden."
LEASE_INVALID: Final = "lease invalid."
NO_NAME: Final = "no set queue name."
NOT_PULLED: Final = "message was not pulled."
QUEUE_EMPTY: Final = "queue empty."
QUEUE_EXISTS: Final = "queue exists."
QUEUE_INVALID: Final = "queue invalid."
QUEUE_UNKNOWN: Final = "queue not exists."
REQUESTID_EXISTS: Final = "requestid exists."
REQUESTID_INVALID: Final = "requestid invalid."
SERVER_BUSY: Final = "server busy."
SERVER_ERROR: Final = "server error."
TIMEOUT: Final = "pull timeout."
TIMEOUT_INVALID: Final = "timeout invalid."
WITHOUT_TRANSACTIONS: Final = "queue without transactions."
"""Failures. Some are the original's, letter by letter: clients and logs know them."""

_TEXTS: Final = {
    Refusal.TOPIC_UNKNOWN: QUEUE_UNKNOWN,
    Refusal.GROUP_UNKNOWN: QUEUE_UNKNOWN,
    Refusal.OFFSET_UNKNOWN: NOT_PULLED,
    Refusal.FORBIDDEN: FORBIDDEN,
    Refusal.TOO_LARGE: BODY_TOO_LONG,
    Refusal.TOO_MANY: SERVER_BUSY,
    Refusal.THROTTLED: SERVER_BUSY,
    Refusal.FULL: SERVER_BUSY,
    Refusal.OVERLOADED: SERVER_BUSY,
    Refusal.STOPPING: SERVER_BUSY,
    Refusal.FENCED: SERVER_BUSY,
    Refusal.DAMAGED: SERVER_ERROR,
}


def text_of(error: BrokerError) -> str:
    """A refusal in the words of this dialect; where it has none, as a sentence in ASCII."""
    known = _TEXTS.get(error.refusal)
    return known or error.text.encode("ascii", "replace").decode() + "."
