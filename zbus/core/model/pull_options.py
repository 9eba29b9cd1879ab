"""What a pull asks for, and why it may end with nothing.

Tests: `tests/core/delivery/test_dispatch.py`.
"""

from __future__ import annotations

import enum

ENDLESS = 1 << 62
"""Credit that no client uses up."""


class PullOptions:
    """What all pulls of one kind ask for; made once, and shared."""

    __slots__ = (
        "bytes_max",
        "count_max",
        "credit",
        "lease_ms",
        "many",
        "on_loss",
        "partition",
        "replaces",
        "shares",
        "standby",
        "window",
    )

    def __init__(
        self,
        count_max: int = 1,
        partition: int | None = None,
        credit: int = 1,
        replaces: bool = False,
        bytes_max: int = 128 << 10,
        window: int = 0,
        lease_ms: int = 0,
        standby: bool = False,
        on_loss: str = "",
        shares: bool = False,
    ) -> None:
        self.count_max = count_max  # messages in one answer; waits for the first only
        # Of bodies and headers in one answer; the first message always fits. A long answer is a
        # long turn, which all others wait for.
        self.bytes_max = bytes_max
        self.partition = partition  # None = all in turn
        self.credit = credit  # answers that may be sent before another pull is needed
        self.replaces = replaces  # takes the place of the session's waiting pull in this group
        self.window = window  # messages that it may have leased at once; 0 = as the group may
        self.lease_ms = lease_ms  # of what it is handed; 0 = as the group says
        self.standby = standby  # of an exclusive group that another reads: wait until it is free
        # What becomes of its leases when its session is gone (`zbus.core.delivery.retries`); "" =
        # what the group says. The pulls of one session in one group all ask for the same.
        self.on_loss = on_loss
        self.shares = shares  # a partition of a group that delivers one batch at a time
        self.many = count_max > 1 or credit > 1


ONE = PullOptions()


class EmptyReason(enum.Enum):
    """Why a pull ended with nothing."""

    DRAINED = "drained"  # nothing is there
    FILTERED = "filtered"  # messages came while it waited, none passed the filter
    LEASED = "leased"  # the group's window of unsettled messages is full
    DELAYED = "delayed"  # all that is left is not due yet
    PAUSED = "paused"
    THROTTLED = "throttled"  # the group has had as many messages as it gets in a second
    TAKEN = "taken"  # another session reads the exclusive group, and this one stood by
    REPLACED = "replaced"  # a later pull of the same session took its place
    LEFT = "left"  # the session reads the group no more
    STOPPING = "stopping"
