"""Subscribers of a topic, as the topic knows them (`zbus.core.fanout.subscribers`).

Tests: `tests/core/fanout/test_follow.py`.
"""

from __future__ import annotations

from typing import Protocol


class Subscribers(Protocol):
    """The subscribers of one topic (`zbus.core.fanout.subscribers`)."""

    def places(self, index: int) -> list[int]:
        """Where a partition is being read."""

    def check(self) -> None:
        """Assert the invariants."""
