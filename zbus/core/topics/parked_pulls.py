"""Pulls that wait and need not be looked at whenever something comes: hundreds of thousands of them
would cost every put a second.

The dispatcher begins with the pull that came first. One for which there is nothing,
though there may be for those behind it, is set aside, to where it is found when there is:

* in the line of its *partition*, if it wants that one only. The line is looked at when there is
  something in the partition, and goes before those who were not looked at yet: they came later;
* *stalled*, until its session takes messages again;
* *full*, if it holds as many messages as it may; until anything happens in its group. Each of them
  has a message that is leased, so they are as few as the group's window allows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar


class Waiting(Protocol):
    """A pull."""

    @property
    def key(self) -> Hashable: ...

    @property
    def session(self) -> Hashable: ...


P = TypeVar("P", bound=Waiting)

Line: TypeAlias = "OrderedDict[Any, P]"
"""First come, first served; by key."""


class ParkedPulls(Generic[P]):
    """Those of one group. No line is empty."""

    __slots__ = ("_full", "_places", "lines", "stalled")

    def __init__(self) -> None:
        self.lines: dict[int, Line[P]] = {}  # by partition
        self.stalled: dict[Hashable, Line[P]] = {}  # by session
        self._full: dict[None, Line[P]] = {}
        # By key: the pull, and which line of which of the three it is in.
        self._places: dict[Hashable, tuple[P, dict[Any, Line[P]], Any]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: Hashable) -> P | None:
        place = self._places.get(key)
        return None if place is None else place[0]

    def pulls(self) -> Iterator[P]:
        return (pull for pull, _, _ in self._places.values())

    def line_up(self, pull: P, index: int) -> None:
        """It wants one partition, and there is nothing in it."""
        self._put(pull, self.lines, index)

    def stall(self, pull: P) -> None:
        """Its session takes nothing."""
        self._put(pull, self.stalled, pull.session)

    def fill(self, pull: P) -> None:
        """It holds as many messages as it may."""
        self._put(pull, self._full, None)

    def _put(self, pull: P, table: dict[Any, Line[P]], name: Hashable) -> None:
        line = table.get(name)
        if line is None:
            line = table[name] = OrderedDict()
        line[pull.key] = pull
        self._places[pull.key] = pull, table, name

    def discard(self, pull: P) -> bool:
        """It is not here any more; whether it was."""
        if self.get(pull.key) is not pull:
            return False
        _, table, name = self._places.pop(pull.key)
        del table[name][pull.key]
        if not table[name]:
            del table[name]
        return True

    def take_stalled(self, session: Hashable) -> list[P]:
        """Those of a session, which are not here any more."""
        return self._take(self.stalled, session)

    def take_full(self) -> list[P]:
        """Those that hold as many as they may, or did; they are not here any more."""
        return self._take(self._full, None)

    def _take(self, table: dict[Any, Line[P]], name: Hashable) -> list[P]:
        pulls = list(table.pop(name, {}).values())
        for pull in pulls:
            del self._places[pull.key]
        return pulls

    def check(self) -> None:
        """Assert the invariants."""
        found = {
            key: (pull, table, name)
            for table in (self.lines, self.stalled, self._full)
            for name, line in table.items()
            for key, pull in line.items()
        }
        assert {key: place[0] for key, place in found.items()} == {
            key: place[0] for key, place in self._places.items()
        }
        for key, (pull, table, name) in found.items():
            assert pull.key is key
            assert self._places[key][1] is table
            assert self._places[key][2] == name
        assert all(line for table in (self.lines, self.stalled) for line in table.values())
