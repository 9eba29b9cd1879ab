"""Plans for heads that differ in free values alone (`zbus.wire.heads.shapes`).

A head is planned as a whole. If its plan says which of its values steer nothing, it has a shape
from its second sight on; and for the shape a plan is made that is run with the values of each head.
A plan like that never refuses anything itself: what is not plainly right goes by the way of a head
without a shape, which says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from zbus.edge.connection import HEAD_WORK, Connection, Plan
from zbus.wire.heads.head import Head
from zbus.wire.heads.heads import Heads
from zbus.wire.heads.shapes import Shape, Slots

Found = re.Match[bytes]
"""A head by its shape: its values are the groups."""

_METHODS = frozenset((b"GET", b"POST"))


class Filled(Protocol):
    """The plan of a shape."""

    def run(self, peer: Connection, found: Found, body: bytes) -> None:
        """Do what a head asks for that was found to have this shape."""


@runtime_checkable
class Slotted(Protocol):
    """A plan that says which values of its head are free."""

    def slots(self) -> Slots | None:
        """They; None = the next head like this is planned anew."""

    def fill(self, names: Sequence[bytes], unshaped: Filled) -> Filled:
        """The plan for heads of which these values are given, in this order; names that are not
        those of slots are to be passed over. `unshaped` does what such a head asks for by the way
        of heads without a shape."""


class OfShape:
    """What is made of the plan of a head for its shape."""

    __slots__ = ("plan",)

    plan: object


class Unshaped:
    """Plan of a shape that does without it."""

    def __init__(self, heads: Heads, json: bool) -> None:
        self._heads = heads
        self._json = json

    def run(self, peer: Connection, found: Found, body: bytes) -> None:
        head, id = self._heads.read(found.group()[:-4])
        plan = head.plan
        if plan is None:
            head.json = self._json
            peer.work -= HEAD_WORK
            plan = peer.planner.plan(head)
            if head.kept:
                head.plan = plan
        plan.run(peer, id, body)  # type: ignore[attr-defined]  # the dialect's slot


def learn(head: Head, plan: Plan) -> None:
    """Find the shape of a head that was read and planned now, if it is time to."""
    if head.origin is None:
        return
    (heads, raw), head.origin = head.origin, None
    assert isinstance(heads, Heads)
    shapes = heads.shapes
    if shapes is None:
        return
    if not head.direct or head.expects_continue or head.method not in _METHODS:
        return
    if not shapes.sees(head, raw) or not isinstance(plan, Slotted):
        return
    slots = plan.slots()
    if slots is None or not (slots.lines or slots.query):
        return
    shape = Shape(head, raw, slots, shapes.bytes_max)
    if not shape.names or (not shape.id_at and b"\r\nid:" in raw.lower()):
        return  # an id is not in the fields of a head, so that a literal one would be lost
    unshaped = Unshaped(heads, head.json)
    if shapes.forgotten is None:
        shapes.forgotten = unshaped
    shape.plan = plan.fill(shape.names, unshaped)
    shapes.learn(shape, raw)


def merge(first: Slots, second: Slots) -> Slots:
    """The slots of both."""
    return Slots(
        {**first.lines, **second.lines},
        {**first.query, **second.query},
        first.target or second.target,
    )
