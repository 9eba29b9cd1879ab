"""Direct links between two endpoints (specification, section 12): who is believed, and what
becomes of links that cross."""

from __future__ import annotations

import hmac
from typing import Any

import pytest

from tests.semq.desk import A, B, C, Desk
from zbus.semq.endpoint.events import Came, Close, Closed, Frame, Opened, Transmit

KEY = "ab" * 32  # of B's tickets, as the platform of a desk has told it
WIRES = 100


def sign(text: str, key: str = KEY) -> str:
    return hmac.new(key.encode(), text.encode(), "sha256").hexdigest()


def ticket_of(desk: Desk, asker: str = A, target: str = B, late_ms: int = 60_000) -> str:
    said = f"{asker}|{target}|{desk.now_ms + late_ms}"
    return f"{said}|{sign(said)}"


class Pair:
    """A and B, and wires between them: frames wait in `wires` until they are carried."""

    def __init__(self) -> None:
        self.desks = {A: Desk(A), B: Desk(B)}
        for desk in self.desks.values():
            desk.platform()
        self.wires: dict[tuple[str, int], list[Frame | None]] = {}  # None: its end is closed
        self.numbers = WIRES

    def dial(self, caller: str, ticket: str = "", key: str = "") -> int:
        """A connection, and what its caller says first."""
        called = A if caller == B else B
        self.numbers += 1
        number = self.numbers
        ticket = ticket or ticket_of(self.desks[called], caller, called)
        key = key or sign(f"key{ticket}")
        self.wires |= {(A, number): [], (B, number): []}
        self.desks[called].step(Opened(number, "", True))
        self.desks[caller].step(Opened(number, called, True, ticket, key))
        self.collect()
        return number

    def collect(self) -> None:
        """What was said is on its way."""
        for name, desk in self.desks.items():
            other = A if name == B else B
            for effect in desk.effects:
                if isinstance(effect, Transmit) and effect.link > WIRES:
                    self.wires[other, effect.link].append(effect.frame)
                elif isinstance(effect, Close) and effect.link > WIRES:
                    self.wires[other, effect.link].append(None)
            desk.effects.clear()

    def carry(self, to: str, number: int) -> list[str]:
        """All that is on its way there, over that wire. Gives the commands."""
        frames, self.wires[to, number] = self.wires[to, number], []
        for frame in frames:
            self.desks[to].step(Closed(number) if frame is None else Came(number, frame))
        self.collect()
        return ["closed" if frame is None else frame.command for frame in frames]

    def carry_all(self) -> None:
        while any(self.wires.values()):
            for to, number in list(self.wires):
                self.carry(to, number)

    def peers(self) -> list[list[str]]:
        return [desk.manage("stat")["peers"] for desk in self.desks.values()]


def test_both_show_that_they_know_the_key_and_messages_go_straight() -> None:
    pair = Pair()
    pair.dial(A)
    pair.carry_all()
    assert pair.peers() == [[B], [A]]
    pair.desks[A].submit(body=b"straight")
    pair.collect()
    pair.carry_all()
    assert pair.desks[B].bodies() == [b"straight"]
    assert pair.desks[A].states() == []


FORGED: dict[str, dict[str, Any]] = {
    "signed by nobody": {"ticket": f"{A}|{B}|99999999999999|{'0' * 64}"},
    "of somebody else": {"asker": C},
    "for somebody else": {"target": C},
    "too late": {"late_ms": -1},
    "no ticket": {"ticket": "x"},
    "its key is unknown": {"key": "00" * 32},
}


@pytest.mark.parametrize("case", FORGED)
def test_whoever_cannot_show_a_ticket_is_let_go(case: str) -> None:
    pair, forged = Pair(), dict(FORGED[case])
    key = forged.pop("key", "")
    ticket = forged.pop("ticket", "") or ticket_of(pair.desks[B], **forged)
    number = pair.dial(A, ticket, key)
    pair.carry(B, number)
    assert "closed" in pair.carry(A, number) + pair.carry(B, number)
    assert pair.peers() == [[], []]


def test_links_that_cross_do_not_end_each_other() -> None:
    """Each end takes another one of them for the newest."""
    pair = Pair()
    one, two = pair.dial(A), pair.dial(A)
    for number in (one, two):
        pair.carry(B, number)
    for number in (two, one):  # to A `one` is the newest
        pair.carry(A, number)
    for number in (one, two):  # to B it is `two`
        pair.carry(B, number)
    pair.carry_all()
    assert pair.peers() == [[B], [A]]
    pair.desks[A].submit(body=b"straight")
    pair.collect()
    pair.carry_all()
    assert pair.desks[B].bodies() == [b"straight"]


def test_the_link_before_takes_over_and_more_than_two_are_not_kept() -> None:
    pair = Pair()
    numbers = []
    for _ in range(4):
        numbers.append(pair.dial(A))
        pair.carry_all()
    for desk in pair.desks.values():
        desk.step(Closed(numbers[-1]))
    pair.collect()
    assert pair.peers() == [[B], [A]]
    for desk in pair.desks.values():
        desk.step(Closed(numbers[-2]))
    pair.collect()
    assert pair.peers() == [[], []]
