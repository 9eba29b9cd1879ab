"""Direct links of two endpoints: who calls whom, and which one stays."""

from __future__ import annotations

import hmac

import pytest

from tests.semq.desk import A, B, Desk
from zbus.semq.events import Came, Close, Closed, Opened, Transmit
from zbus.semq.links import HANDSHAKE_MS

KEY = "ab" * 32


def sign(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), "sha256").hexdigest()


class Pair:
    """Two endpoints that know the platform, and the wires between them."""

    def __init__(self) -> None:
        self.desks = {A: Desk(A), B: Desk(B)}
        self.ends: dict[tuple[str, int], tuple[str, int]] = {}
        for desk in self.desks.values():
            desk.platform()

    def call(self, caller: str, called: str) -> None:
        """The connection stands, and nothing has come over it yet."""
        mine, other = self.desks[caller], self.desks[called]
        mine.links += 1
        other.links += 1
        self.ends[caller, mine.links] = called, other.links
        self.ends[called, other.links] = caller, mine.links
        said = f"{caller}|{called}|{mine.now_ms + 60_000}"
        ticket = f"{said}|{sign(KEY, said)}"
        key = sign(KEY, f"key{ticket}")
        other.step(Opened(other.links, "", direct=True))
        mine.step(Opened(mine.links, called, direct=True, ticket=ticket, key=key))

    def talk(self, *first: str) -> None:
        """All that they say arrives; those named first are heard first in each round."""
        for _ in range(10):
            for node in first:
                self._hear(node)

    def _hear(self, node: str) -> None:
        desk = self.desks[node]
        effects, desk.effects = desk.effects, []
        for effect in effects:
            if isinstance(effect, Transmit) and (end := self.ends.get((node, effect.link))):
                self.desks[end[0]].step(Came(end[1], effect.frame))
            elif isinstance(effect, Close) and (end := self.ends.pop((node, effect.link), None)):
                self.ends.pop(end, None)
                self.desks[end[0]].step(Closed(end[1]))

    def peers(self) -> list[list[str]]:
        return [desk.manage("stat")["peers"] for desk in self.desks.values()]


@pytest.mark.parametrize("first", [(A, B), (B, A)])
@pytest.mark.parametrize("calls", [[(A, B)], [(B, A)], [(A, B), (B, A)], [(B, A), (A, B)]])
def test_two_that_call_each_other_have_one_link(
    calls: list[tuple[str, str]], first: tuple[str, str]
) -> None:
    pair = Pair()
    for caller, called in calls:
        pair.call(caller, called)
    pair.talk(*first)
    assert pair.peers() == [[B], [A]]
    assert len(pair.ends) == 2, "the ends of one wire"
    pair.talk(*first)
    assert pair.peers() == [[B], [A]]


@pytest.mark.parametrize(("early", "late"), [((A, B), (B, A)), ((B, A), (A, B)), ((A, B), (A, B))])
def test_a_newer_link_takes_the_place_of_an_old_one(
    early: tuple[str, str], late: tuple[str, str]
) -> None:
    """Who calls again has lost the other one, and knows it first."""
    pair = Pair()
    pair.call(*early)
    pair.talk(A, B)
    for desk in pair.desks.values():
        desk.now_ms += HANDSHAKE_MS + 1
    old = set(pair.ends)
    pair.call(*late)
    pair.talk(A, B)
    assert pair.peers() == [[B], [A]]
    assert len(pair.ends) == 2
    assert not old & set(pair.ends)
