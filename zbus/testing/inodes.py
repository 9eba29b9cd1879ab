"""What a simulated disk is made of: files and directories that know what of them is durable.

A file is the bytes that everybody sees and the changes since its last sync, with what they
replaced. A power cut leaves, of each piece (a sector, or a page of the cache), the durable bytes
or those after any of the changes to that piece, whatever the other pieces got; and any of the
sizes since the sync. A piece inside the size that was never written reads as zeros.

After a sync that failed, the pages that it was to write are lost, or not, whatever is synced later:
the system takes them for clean. Only writing them again makes them durable.

A directory is the names that everybody sees and those that are durable. A change of names is a
`NameChange`; one that touches a name comes after all earlier ones that touch it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

Choose = Callable[[list[int]], int]
"""Given the moments (numbers of changes, 0 = durable) that may be there: the index of one."""

PAGE_BYTES = 4096
"""What a failed sync loses, it loses by pages."""


class Change(NamedTuple):
    """A write (`new` at `position`) or a truncate (`new` is empty; all from `position` on)."""

    position: int
    new: bytes
    old: bytes  # what was there
    size_before: int
    size_after: int

    @property
    def end(self) -> int:
        """The first byte that this change did not touch."""
        return self.position + max(len(self.new), len(self.old))


class File:
    """Bytes from `len(data)` to `size` are zeros that take no memory here."""

    __slots__ = ("changes", "data", "links", "locked", "lost", "number", "opens", "size")

    def __init__(self, number: int) -> None:
        self.number = number
        self.data = bytearray()
        self.size = 0
        self.changes: list[Change] = []  # since the last sync
        self.links = 0  # 1 = it has a name
        self.opens = 0
        self.locked = False
        self.lost: dict[int, bytes] = {}  # pages that a failed sync did not write: what is on disk

    def read(self, count: int, position: int) -> bytes:
        count = max(min(count, self.size - position), 0)
        found = bytes(self.data[position : position + count])
        return found if len(found) == count else found.ljust(count, b"\0")

    def write(self, data: bytes, position: int) -> None:
        if not data:
            return
        end = position + len(data)
        for page in range(position // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1):
            self.lost.pop(page, None)
        old = bytes(self.data[position:end])
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        self.data[position:end] = data
        self._changed(position, bytes(data), old, max(self.size, end))

    def resize(self, size: int) -> None:
        """Cut off, or extend with zeros."""
        if size != self.size:
            old = bytes(self.data[size:])
            del self.data[size:]
            self._changed(size, b"", old, size)

    def sync(self) -> None:
        self.changes.clear()

    def fail_sync(self) -> None:
        durable = self._durable()
        for page in self._moments(PAGE_BYTES):
            begin = page * PAGE_BYTES
            self.lost.setdefault(page, bytes(durable[begin : begin + PAGE_BYTES]))
        self.changes.clear()

    def copy(self) -> File:
        """The same, as a dead process leaves it: closed, and what was not synced still is not."""
        other = File(self.number)
        other.data = bytearray(self.data)
        other.size = self.size
        other.changes = list(self.changes)
        other.lost = dict(self.lost)
        return other

    def crashed(self, choose: Choose, piece_bytes: int) -> File:
        """One of the files that a power cut may leave."""
        other = File(self.number)
        if not self.changes:
            other.data = bytearray(self.data)
            other.size = self.size
            self._lose(other, choose)
            return other
        other.data = self._durable()
        kept = {
            piece: moments[choose(moments)] for piece, moments in self._moments(piece_bytes).items()
        }
        for moment, change in enumerate(self.changes, 1):
            _apply(other.data, change, moment, kept, piece_bytes)
        sizes = self._sizes(piece_bytes)
        other.size = sizes[choose([moment for _, moment in sizes])][0]
        del other.data[other.size :]
        self._lose(other, choose)
        return other

    def _lose(self, other: File, choose: Choose) -> None:
        for page, durable in self.lost.items():
            begin = page * PAGE_BYTES
            length = len(other.data[begin : begin + PAGE_BYTES])
            if choose([0, 1]) == 0:
                other.data[begin : begin + length] = durable[:length].ljust(length, b"\0")

    def _changed(self, position: int, new: bytes, old: bytes, size: int) -> None:
        self.changes.append(Change(position, new, old, self.size, size))
        self.size = size

    def _durable(self) -> bytearray:
        data = bytearray(self.data)
        for change in reversed(self.changes):
            end = change.position + len(change.new) if change.new else len(data)
            data[change.position : end] = change.old
        return data

    def _moments(self, piece_bytes: int) -> dict[int, list[int]]:
        """For each piece that was changed: 0, and the numbers of the changes that touch it."""
        moments: dict[int, list[int]] = {}
        for moment, change in enumerate(self.changes, 1):
            if change.end > change.position:
                first, last = change.position // piece_bytes, (change.end - 1) // piece_bytes
                for piece in range(first, last + 1):
                    moments.setdefault(piece, [0]).append(moment)
        return moments

    def _sizes(self, piece_bytes: int) -> list[tuple[int, int]]:
        """Every size since the sync, a write that extends the file piece by piece; with moments."""
        sizes = [(self.changes[0].size_before, 0)]
        for moment, change in enumerate(self.changes, 1):
            if change.new:
                begin = (change.size_before // piece_bytes + 1) * piece_bytes
                inner = range(begin, change.size_after, piece_bytes)
                sizes.extend((size, moment - 1) for size in inner)
            if change.size_after != change.size_before:
                sizes.append((change.size_after, moment))
        return sizes


def _apply(
    data: bytearray, change: Change, moment: int, kept: dict[int, int], piece_bytes: int
) -> None:
    """Make a change where its piece was kept as of that moment or later."""
    position = change.position
    while position < change.end:
        piece = position // piece_bytes
        end = min((piece + 1) * piece_bytes, change.end)
        if kept[piece] >= moment:
            new = change.new[position - change.position : end - change.position]
            if len(data) < end:
                data.extend(bytes(end - len(data)))
            data[position:end] = new.ljust(end - position, b"\0")
        position = end


class Directory:
    __slots__ = ("durable", "names", "number", "syncable")

    def __init__(self, number: int) -> None:
        self.number = number
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.syncable = True


Node = File | Directory


class NameChange(NamedTuple):
    """Names that change together, or not at all: made, removed (None), or both (a rename)."""

    entries: tuple[tuple[Directory, str, Node | None], ...]

    @property
    def keys(self) -> set[tuple[int, str]]:
        return {(directory.number, name) for directory, name, _ in self.entries}


def settled_names(
    changes: list[NameChange], directory: Directory
) -> tuple[list[NameChange], list[NameChange]]:
    """Split into what a sync of the directory makes durable, and the rest. Both in order."""
    settled: list[NameChange] = []
    rest: list[NameChange] = []
    keys: set[tuple[int, str]] = set()
    for change in reversed(changes):
        here = any(owner is directory for owner, _, _ in change.entries)
        if here or not keys.isdisjoint(change.keys):
            keys |= change.keys
            settled.append(change)
        else:
            rest.append(change)
    return settled[::-1], rest[::-1]


def crashed_names(changes: list[NameChange], choose: Choose) -> list[NameChange]:
    """What a power cut may leave of these: none without the earlier ones of the same names."""
    kept: list[NameChange] = []
    lost: set[tuple[int, str]] = set()
    for moment, change in enumerate(changes, 1):
        if lost.isdisjoint(change.keys) and choose([0, moment]):
            kept.append(change)
        else:
            lost |= change.keys
    return kept


def random_choices(random: Random, changes: int) -> Choose:
    """How one file, or the names, come out of a crash."""
    kind = random.randrange(4) if changes else 0
    if kind == 0:
        return lambda moments: len(moments) - 1
    if kind == 1:
        return lambda moments: 0
    if kind == 2:
        return lambda moments: random.randrange(len(moments))
    last = random.randint(0, changes)
    return lambda moments: max(
        (index for index, moment in enumerate(moments) if moment <= last),
        key=lambda index: moments[index],
    )
