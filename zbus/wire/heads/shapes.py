"""Heads that differ in nothing but values that steer nothing.

A client that puts messages with keys sends one head again and again, in which only the key and the
length differ. A *shape* is such a head with its free values cut out: one regular expression in
which every byte is literal but those of the *slots*. It is made of a head that the judge has
accepted and a dialect has planned, and a slot is so narrow that the careful way would accept any
value of it, too, and conclude the same of all else. What does not match goes the careful way.

A shape is learned at the second sight of its *outline*, the head without the values that may
differ, if another head had it: one that comes again as it was is known as a whole. To compile a
shape takes half a millisecond, so some heads have to come between two of them: a client that makes
up names for ever costs what it would cost without shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from zbus.wire.heads.head import Head

Outline = tuple[bytes, ...]
MayDiffer = Callable[[bytes, bool], bool]
"""Whether the value of a name may be free, in some head; the flag says that it is in a query."""

SHAPE_BYTES_MAX = 4096
"""Of a head that is taken by its shape, with its end."""

SHAPES_MAX = 1024
_SHAPE_BYTES = 8_000  # of one with its plan, about
_PER_OUTLINE_MAX = 16  # that differ in values which steer
_SIGHTINGS_MAX = 4096
_FIRSTS_MAX = 512
_MISSES_PER_SHAPE, _CREDIT_MAX = 8, 256
_USED_LAST_MAX = 4
_PARTS_MAX = 64  # lines, or parameters of a query
_LENGTH = rb"[0-9]{1,15}+"

_find_nothing = re.compile(rb"(?!)").match


class Slot(NamedTuple):
    """A value that is free."""

    name: bytes  # by which its plan knows it
    pattern: bytes  # of its values: linear, without groups, never more than one line


class Slots(NamedTuple):
    """Which values of one head are free: by lower-case names of header lines and of parameters in
    its query. `target`: the whole target is wanted as well, as a value named `:target`. `block`: if
    these header lines follow each other in the head, as they are here, they are wanted as one value
    named `:block`, and what is free in them is not."""

    lines: Mapping[bytes, Slot]
    query: Mapping[bytes, Slot]
    target: bool = False
    block: bytes = b""


TARGET, BLOCK = b":target", b":block"


class Shape(Head):
    """What a reader finds with it is a match, which stands in a request where the
    id of another stands; the plan is run with it. An id is a value like others."""

    __slots__ = ("bytes_max", "id_at", "length_at", "match", "names")

    def __init__(self, head: Head, raw: bytes, slots: Slots, bytes_max: int) -> None:
        """`raw` is what the head was read from. What matches and is longer than `bytes_max` may be
        over a limit, and is read the careful way."""
        start = head.method, head.target, head.version_11
        super().__init__(start, head.fields, head.content_length, False, True, False)
        self.contained, self.json, self.kept = head.contained, head.json, True
        pattern, names = _pattern(raw, slots)
        self.match = re.compile(pattern).match
        self.bytes_max = bytes_max
        self.names = names  # of the groups: that of group 1 comes first
        self.length_at = names.index(b"content-length") + 1 if b"content-length" in names else 0
        self.id_at = names.index(b"id") + 1 if b"id" in names else 0

    def length_of(self, found: re.Match[bytes]) -> int:
        """How long the body is."""
        return int(found[self.length_at]) if self.length_at else self.content_length

    def id_of(self, found: re.Match[bytes]) -> bytes:
        return found[self.id_at] if self.id_at else b""

    def forget(self, plan: object) -> None:
        """It is not remembered any more. A connection that still has it finds nothing with it, and
        what was found before is done by this plan."""
        self.match, self.plan, self.fields, self.names = _find_nothing, plan, {}, ()


def used_last(shape: Shape, before: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The few shapes that a reader tries before anything else, once it has used this one."""
    return shape, *before[: _USED_LAST_MAX - 1]


class Shapes:
    """Those that one reader of heads has learned, and what it takes to learn more."""

    def __init__(self, may_differ: MayDiffer, bytes_max: int) -> None:
        """`bytes_max` is less than each limit of a head, and of a line of one."""
        self._may_differ = may_differ
        self.bytes_max = min(bytes_max, SHAPE_BYTES_MAX)
        self._lines: dict[bytes, bool] = {}  # whether values of a name may be free, as spelled
        self._shapes: dict[Outline, list[Shape]] = {}
        self._sightings: dict[int, int] = {}  # by outline, the first head with it; of both the hash
        self._firsts: dict[int, bytes] = {}  # the first head with these names; empty = it was seen
        self._credit = _CREDIT_MAX
        self._last: tuple[bytes, Outline] = b"", ()  # what was looked for last, and its outline
        self.forgotten: object = None  # the plan of those that are not remembered any more
        self.count = 0

    @property
    def bytes_used(self) -> int:
        """What all take, about."""
        return self.count * _SHAPE_BYTES

    def outline(self, raw: bytes) -> Outline:
        """The head without values that may be free; () = it has too many parts to look at."""
        if self._last[0] is not raw:
            self._last = raw, self._outline(raw)
        return self._last[1]

    def _outline(self, raw: bytes) -> Outline:
        lines = raw.split(b"\r\n", _PARTS_MAX)
        if len(lines) > _PARTS_MAX:
            return ()
        start = lines[0]
        if b"?" in start:
            path, _, rest = start.partition(b"?")
            query, _, version = rest.rpartition(b" ")
            if query.count(b"&") >= _PARTS_MAX:
                return ()
            lines[0] = path + b"?" + version
            for pair in query.split(b"&"):
                name = pair[: pair.find(b"=") + 1]
                lines.append(name if name and self._may_differ(name[:-1].lower(), True) else pair)
        known = self._lines
        for at in range(1, len(lines)):
            line = lines[at]
            name = line[: line.find(b":") + 1]
            differs = known.get(name)
            if differs is None:
                differs = self._look_up(name)
            if differs:
                lines[at] = name
        return tuple(lines)

    def _look_up(self, name: bytes) -> bool:
        """Whether the values of a line may be free that begins with this name and colon."""
        differs = len(name) > 1 and self._may_differ(name[:-1].lower(), False)
        if len(self._lines) >= SHAPES_MAX:
            self._lines.clear()
        if len(name) <= SHAPES_MAX >> 4:
            self._lines[name] = differs
        return differs

    def find(self, raw: bytes) -> tuple[Shape, re.Match[bytes]] | None:
        """The shape of a head without its end, and the match of it with its end."""
        outline = self.outline(raw)
        shapes = self._shapes.get(outline)
        if shapes is None:
            return None
        data = raw + b"\r\n\r\n"
        for shape in shapes:
            found = shape.match(data)
            if found is not None and len(data) <= shape.bytes_max:
                self._shapes[outline] = self._shapes.pop(outline)  # the oldest go first
                return shape, found
        return None

    def sees(self, head: Head, raw: bytes) -> bool:
        """This head was planned that has no shape. Whether it is time to learn one."""
        if len(raw) + 4 > self.bytes_max:
            return False
        self._credit = min(self._credit + 1, _CREDIT_MAX)
        names = hash((*head.fields, *_names_in(head.target)))
        first = self._firsts.get(names)
        if first is None:  # who makes up names for ever pays for no outline
            if len(self._firsts) >= _FIRSTS_MAX:
                self._firsts.clear()
            self._firsts[names] = raw
            return False
        if first:
            self._firsts[names] = b""
            self._is_another(self._outline(first), first)
        another = self._is_another(self.outline(raw), raw)
        return another and self._credit >= _MISSES_PER_SHAPE

    def _is_another(self, outline: Outline, raw: bytes) -> bool:
        """Another head with this outline was seen before."""
        if len(self._sightings) >= _SIGHTINGS_MAX:
            self._sightings.clear()
        sight = hash(raw)
        return self._sightings.setdefault(hash(outline), sight) != sight

    def learn(self, shape: Shape, raw: bytes) -> None:
        """Remember the shape of this head."""
        self._credit -= _MISSES_PER_SHAPE
        outline = self.outline(raw)
        shapes = self._shapes.setdefault(outline, [])
        if len(shapes) >= _PER_OUTLINE_MAX:
            self._drop(shapes.pop(0))
        elif self.count >= SHAPES_MAX:
            for other in self._shapes.pop(next(iter(self._shapes))):
                self._drop(other)
        shapes.append(shape)
        self._shapes[outline] = shapes
        self.count += 1

    def forget(self) -> None:
        """Drop all: memory is short."""
        for shapes in self._shapes.values():
            for shape in shapes:
                self._drop(shape)
        self._shapes.clear()
        self._sightings.clear()
        self._firsts.clear()
        self._lines.clear()
        self._last = b"", ()

    def _drop(self, shape: Shape) -> None:
        shape.forget(self.forgotten)
        self.count -= 1


def _names_in(target: bytes) -> list[bytes]:
    """Names of the parameters in a query."""
    query = target.partition(b"?")[2]
    return [pair.partition(b"=")[0] for pair in query.split(b"&")] if query else []


def _pattern(raw: bytes, slots: Slots) -> tuple[bytes, tuple[bytes, ...]]:
    """What matches heads like this, and the names of its groups."""
    start, *lines = raw.split(b"\r\n")
    names: list[bytes] = []
    spellings = [line.partition(b":")[0].lower() for line in lines]
    once = {name: slot for name, slot in slots.lines.items() if spellings.count(name) == 1}
    taken = {slot.name for name, slot in slots.lines.items() if name in spellings}
    query = {name: slot for name, slot in slots.query.items() if slot.name not in taken}
    found = [_start(start, slots._replace(query=query), names), b"\r\n"]
    block = _find_block(raw, slots.block)
    for at, line in enumerate(lines):
        spelled, _, value = line.partition(b": ")
        name = spelled.lower()
        if name == b"content-length":
            slot = Slot(name, _LENGTH)
        else:
            slot = once.get(name, _NO_SLOT)
        if at == block.start and block:
            names.append(BLOCK)
            found.append(b"(")
        if not _is_free(value, slot):
            found.append(re.escape(line))
        elif at in block:
            found.append(re.escape(spelled + b": ") + slot.pattern)
        else:
            names.append(slot.name)
            found.append(re.escape(spelled + b": ") + b"(%b)" % slot.pattern)
        found.append(b"\r\n)" if block and at + 1 == block.stop else b"\r\n")
    return b"".join([*found, b"\r\n"]), tuple(names)


def _find_block(raw: bytes, block: bytes) -> range:
    """Which of the lines behind the first one are these, in their order."""
    at = (raw + b"\r\n").find(b"\r\n" + block) if block else -1
    if at < 0:
        return range(0)
    first = raw.count(b"\r\n", 0, at)
    return range(first, first + block.count(b"\r\n"))


_NO_SLOT = Slot(b"", b"")


def _start(start: bytes, slots: Slots, names: list[bytes]) -> bytes:
    """The pattern of the request line."""
    method, target, version = start.split(b" ")
    path, mark, query = target.partition(b"?")
    if slots.target:
        names.append(TARGET)
    parts = []
    for pair in query.split(b"&"):
        spelled, sign, value = pair.partition(b"=")
        slot = slots.query.get(spelled.lower(), _NO_SLOT) if sign else _NO_SLOT
        if _is_free(value, slot):
            names.append(slot.name)
            parts.append(re.escape(spelled + b"=") + b"(%b)" % slot.pattern)
        else:
            parts.append(re.escape(pair))
    asked = re.escape(path + mark) + b"&".join(parts)
    asked = b"(%b)" % asked if slots.target else asked
    return re.escape(method + b" ") + asked + re.escape(b" " + version)


def _is_free(value: bytes, slot: Slot) -> bool:
    """The value is one that may differ."""
    return bool(slot.name) and re.fullmatch(slot.pattern, value) is not None
