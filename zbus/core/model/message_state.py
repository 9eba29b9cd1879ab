"""The life of a message within one group."""

from __future__ import annotations

import enum


class Life(enum.Enum):
    """The life of a message within one group."""

    DELAYED = "delayed"
    READY = "ready"
    LEASED = "leased"
    DONE = "done"  # settled, or handed to a group that acknowledges on delivery
    DEAD = "dead"  # given up after too many attempts
    DELETED = "deleted"  # purged, expired, or skipped by the filter


TRANSITIONS: dict[tuple[Life, str], Life] = {
    (Life.READY, "delay"): Life.DELAYED,
    (Life.READY, "lease"): Life.LEASED,
    (Life.READY, "finish"): Life.DONE,
    (Life.READY, "delete"): Life.DELETED,
    (Life.DELAYED, "due"): Life.READY,
    (Life.DELAYED, "delete"): Life.DELETED,
    (Life.LEASED, "finish"): Life.DONE,
    (Life.LEASED, "give back in front"): Life.READY,
    (Life.LEASED, "give back at the end"): Life.READY,
    (Life.LEASED, "give back later"): Life.DELAYED,
    (Life.LEASED, "expire"): Life.READY,
    (Life.LEASED, "back off"): Life.DELAYED,
    (Life.LEASED, "give up"): Life.DEAD,
    (Life.LEASED, "delete"): Life.DELETED,
    (Life.DELAYED, "again"): Life.READY,
    (Life.DONE, "again"): Life.READY,
    (Life.DEAD, "again"): Life.READY,
    (Life.DELETED, "again"): Life.READY,
}
"""Every step there is. The documentation's diagram and the model of the tests are made from it."""
