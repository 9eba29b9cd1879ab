"""Read-only views of how far a group is in one partition, for those who only look.

A view is the cursor itself under a type that permits nothing but looking, so it costs nothing and
is never out of date. It is valid until the end of the turn. `Group.progress` gives one.

Tests: `tests/dialects/test_every_dialect.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

from zbus.core.model.dispositions import Dispositions
from zbus.core.model.lateness import Lateness
from zbus.core.model.message_state import MessageState
from zbus.core.timing.delays import Delays


class LeasedOffsets(Protocol):
    """Offsets that are leased, each until a time in milliseconds."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]: ...

    def __contains__(self, offset: object, /) -> bool: ...

    def due_of(self, offset: int) -> int: ...

    @property
    def holders(self) -> Mapping[int, bytes]:
        """The session that has each, where that is known."""

    @property
    def settling(self) -> AbstractSet[int]:
        """Those whose acknowledgement is stored along with a put that is not durable yet."""

    @property
    def places(self) -> Mapping[int, Any]:
        """The rank that each had in the queue, of groups that give back in order."""

    def held_by(self, holder: bytes, count_max: int = ...) -> list[int]: ...


class Progress(Protocol):
    """How far a group is in one partition. Offsets are those of the log."""

    @property
    def cursor(self) -> int:
        """The first offset that was never delivered."""

    @property
    def attempts(self) -> Mapping[int, int]:
        """How often each unfinished message was delivered."""

    @property
    def leased(self) -> LeasedOffsets: ...

    @property
    def delayed(self) -> Delays: ...

    @property
    def places(self) -> Collection[int]:
        """Offsets that are ready again, out of the order of the log."""

    @property
    def dead(self) -> int:
        """Messages that were given up, ever."""

    @property
    def tally(self) -> Lateness: ...

    @property
    def fates(self) -> Dispositions | None:
        """How messages ended, if the topic keeps it."""

    def life(self, offset: int) -> MessageState: ...

    def floor(self) -> int:
        """The first offset that is not finished."""

    def ready_count(self, end: int) -> int: ...
