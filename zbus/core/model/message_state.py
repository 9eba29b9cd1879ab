"""The life of a message within one group.

Tests: `tests/core/cursor/test_backlog.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeVar


class MessageState(enum.Enum):
    """The life of a message within one group."""

    DELAYED = "delayed"
    READY = "ready"
    LEASED = "leased"
    DONE = "done"  # settled, or handed to a group that acknowledges on delivery
    DEAD = "dead"  # given up after too many attempts
    DELETED = "deleted"  # purged, expired, or skipped by the filter


TRANSITIONS: dict[tuple[MessageState, str], MessageState] = {
    (MessageState.READY, "delay"): MessageState.DELAYED,
    (MessageState.READY, "lease"): MessageState.LEASED,
    (MessageState.READY, "finish"): MessageState.DONE,
    (MessageState.READY, "delete"): MessageState.DELETED,
    (MessageState.READY, "give up"): MessageState.DEAD,
    (MessageState.DELAYED, "due"): MessageState.READY,
    (MessageState.DELAYED, "delete"): MessageState.DELETED,
    (MessageState.LEASED, "finish"): MessageState.DONE,
    (MessageState.LEASED, "give back in front"): MessageState.READY,
    (MessageState.LEASED, "give back at the end"): MessageState.READY,
    (MessageState.LEASED, "give back later"): MessageState.DELAYED,
    (MessageState.LEASED, "expire"): MessageState.READY,
    (MessageState.LEASED, "back off"): MessageState.DELAYED,
    (MessageState.LEASED, "give up"): MessageState.DEAD,
    (MessageState.LEASED, "delete"): MessageState.DELETED,
    (MessageState.DELAYED, "again"): MessageState.READY,
    (MessageState.DONE, "again"): MessageState.READY,
    (MessageState.DEAD, "again"): MessageState.READY,
    (MessageState.DELETED, "again"): MessageState.READY,
}
"""Every step there is. The documentation's diagram and the model of the tests are made from it, and
the code that moves messages says by which rows it does (`moves`)."""

_Method = TypeVar("_Method", bound=Callable[..., object])


def moves(*steps: str) -> Callable[[_Method], _Method]:
    """Of a method that moves messages by these steps, and by no others. The tests and all simulated
    worlds hold each call against the table."""
    assert {step for _, step in TRANSITIONS}.issuperset(steps)

    def mark(method: _Method) -> _Method:
        vars(method)["steps"] = steps
        return method

    return mark
