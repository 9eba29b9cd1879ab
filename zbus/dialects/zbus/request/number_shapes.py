"""`ack`, `nack` and `consume` by shape: numbers of a head take the place of the plan's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zbus.dialects.zbus.request.header_lines import KINDS, Kind
from zbus.dialects.zbus.request.params import Params
from zbus.dialects.zbus.request.slots import bounds_of, own_slots, slots_of
from zbus.edge.connection import Connection
from zbus.edge.shape_plans import Filled, Found, OfShape
from zbus.wire.heads.header_names import nominated
from zbus.wire.heads.shapes import Slots

Call = Callable[..., object]
"""With the peer, the id and the numbers."""


def slots_of_numbers(params: Params, names: Sequence[bytes]) -> Slots:
    """What may differ in a head that names no message: the id, these numbers, and lines of the
    application's own, which nothing reads."""
    found, fields = slots_of(params, (b"id", *names)), params.head.fields
    hop = nominated(fields)
    own = [name for name in fields if KINDS[name] <= Kind.STANDARD and name not in hop]
    return Slots({**own_slots(params, own), **found.lines}, found.query)


class NumberShape(OfShape):
    """The plan of a shape."""

    __slots__ = ("_call", "_constants", "_given", "_id_at", "_unshaped")

    def __init__(
        self,
        plan: object,
        params: Params,
        call: Call,
        constants: Mapping[bytes, int],
        names: Sequence[bytes],
        unshaped: Filled,
    ) -> None:
        """`call` takes the numbers in the order of `constants`, which are those of the plan."""
        self.plan = plan
        self._call = call
        self._unshaped = unshaped
        self._constants = [*constants.values()]
        self._id_at = names.index(b"id") + 1 if b"id" in names else 0
        self._given = [
            (names.index(name), at, *bounds_of(params, name))
            for at, name in enumerate(constants)
            if name in names
        ]

    def run(self, peer: Connection, found: Found, body: bytes) -> None:
        values, numbers = found.groups(), self._constants.copy()
        for place, at, least, most in self._given:
            number = int(values[place])  # 1 to 15 digits
            if not least <= number <= most:
                self._unshaped.run(peer, found, body)
                return
            numbers[at] = number
        self._call(peer, values[self._id_at - 1] if self._id_at else b"", *numbers)
