"""The order in which messages come back to the front of a backlog.

A group with `on_loss=front` is a double-ended queue: what its holders lose goes back to the left.
Leases end in different turns, and connections too. So a message that comes back is put in front of
all that is ready, but behind what came back before it and had stood before it in the queue.

For that each message that is delivered has a *label*, and labels are in the order of the queue:

* what is delivered has been the first of all that is ready, so its label is higher than those of
  all that was delivered before it;
* what came back keeps its label, also when it is delivered again;
* what was put in front of something that came back has a label just below that one. There may be no
  number left between two labels: then all get new ones, with room between them.

A journal keeps labels, in the rank of what is leased and in the time of what is ready again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Mapping
from typing import Final

from sortedcontainers import SortedDict

from zbus.core.cursor.due_queue import Place

_STEP: Final = 1 << 40
"""Between the labels of what is delivered one after another."""

_LABEL_MAX: Final = 1 << 62


class ReturnOrder:
    """The order of return in one backlog."""

    __slots__ = ("_all", "_back", "_labels", "renumbered")

    def __init__(self) -> None:
        self._labels: dict[int, int] = {}  # of what is delivered, or is ready again
        self._all: SortedDict[int, int] = SortedDict()  # the same the other way round
        self._back: SortedDict[int, int] = SortedDict()  # those of what is ready again
        self.renumbered = False  # the owner has to write all of them down

    def label_of(self, offset: int) -> int:
        """0 if it has none."""
        return self._labels.get(offset, 0)

    def offsets(self) -> list[int]:
        """All that have labels, in their order."""
        return list(self._all.values())

    def hand_out(self, offset: int, place: Place | None, places: Mapping[int, Place]) -> None:
        """A message without a label is delivered. `place`: where it was, if it was put there;
        else the cursor came to it, and all that is ready again is before it."""
        back, following = self._back, 0
        if back and place is not None:
            at = bisect_right(back.values(), place, key=places.__getitem__)
            following = back.values()[at] if at < len(back) else -1
        if not back or place is None or following < 0:
            last = self._all.peekitem()[0] if self._all else 0
            if last > _LABEL_MAX - _STEP:
                self._renumber()
                last = self._all.peekitem()[0]
            self.set(offset, last + _STEP)
            return
        below, above = self._around(following)
        if above - below < 2:
            self._renumber()
            below, above = self._around(following)
        self.set(offset, below + max(1, (above - below) // 8))

    def _around(self, following: int) -> tuple[int, int]:
        """The labels between which something is that stands just before this one."""
        above = self._labels[following]
        at = self._all.bisect_left(above)
        return (self._all.peekitem(at - 1)[0] if at else 0), above

    def _renumber(self) -> None:
        offsets, ready = self.offsets(), list(self._back.values())
        step = min(_STEP, _LABEL_MAX // (2 * len(offsets)))
        self._all.clear()
        self._back.clear()
        for number, offset in enumerate(offsets, 1):
            self.set(offset, number * step)
        for offset in ready:
            self.come_back(offset)
        self.renumbered = True

    def set(self, offset: int, label: int) -> None:
        """It is delivered, or was before it came back; it has no label yet."""
        self._labels[offset] = label
        self._all[label] = offset

    def come_back(self, offset: int) -> None:
        """It is ready again."""
        self._back[self._labels[offset]] = offset

    def is_first(self, label: int) -> bool:
        """Nothing that is ready again stood before it."""
        return not self._back or label < self._back.peekitem(0)[0]

    def behind(self, label: int) -> tuple[int, int] | None:
        """What is ready again and stood before it, the nearest, and how far that is; None if there
        is nothing. All between the two may come back yet."""
        at = self._back.bisect_left(label)
        if not at:
            return None
        other, offset = self._back.peekitem(at - 1)
        return offset, self._all.bisect_left(label) - self._all.bisect_left(other)

    def room(self, label: int) -> int:
        """How many others may come back behind it."""
        return len(self._all) - self._all.bisect_left(label)

    def forget(self, offset: int) -> None:
        """It is finished, or was put somewhere else."""
        label = self._labels.pop(offset, 0)
        for labels in (self._all, self._back):
            if label and labels.get(label) == offset:  # or another has it, of a later journal
                del labels[label]

    def forget_ready(self) -> None:
        """All that is ready is finished."""
        for offset in list(self._back.values()):
            self.forget(offset)

    def check(self, leased: Container[int], places: Mapping[int, Place]) -> None:
        """Assert the invariants: the labels of what is ready again are in the order of places."""
        assert {offset: label for label, offset in self._all.items()} == self._labels
        ready = list(self._back.values())
        assert sorted(ready, key=places.__getitem__) == ready
        others = self._labels.keys() - set(ready)
        assert all(offset in leased for offset in others), "a label of what is nowhere"
