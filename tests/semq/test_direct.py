"""A direct link beside the platform's: what goes that way, and how much at once."""

from __future__ import annotations

import pytest

from tests.semq.desk import B, Desk
from zbus.semq.endpoint.events import Refused, Submit, Transmit
from zbus.semq.protocol.words import read_address


def joined(**more: str) -> tuple[Desk, int, int]:
    """With links to the platform and to B."""
    desk = Desk(window=5)
    platform = desk.platform()
    direct = desk.direct(B, **more)
    desk.said()
    return desk, platform, direct


def test_what_nobody_answers_to_goes_a_window_at_a_time() -> None:
    desk, platform, _ = joined()
    desk.close(platform)
    desk.step(*(Submit(ask, read_address(B), b"x", level=2) for ask in range(12)))
    found = [len(desk.said("semq_send"))]
    while desk.endpoint.next_due() == desk.now_ms:
        desk.step()
        found.append(len(desk.said("semq_send")))
    assert (found, desk.states()) == ([5, 5, 2, 0], [])


def test_a_window_bounds_bytes_of_what_nobody_answers_to() -> None:
    desk, platform, _ = joined()
    desk.close(platform)
    body = bytes(20 << 20)
    desk.step(*(Submit(ask, read_address(B), body, level=2) for ask in range(2)))
    assert (len(desk.said("semq_send")), len(desk.states())) == (1, 1)
    desk.step()
    assert desk.states() == []


def test_its_destination_is_asked_when_the_platform_is_gone() -> None:
    desk, platform, _ = joined()
    desk.submit(route="platform")
    desk.said()
    desk.close(platform)
    desk.wait(2)
    assert desk.words() == [f"inquiry send {B} 1"]


@pytest.mark.parametrize("route", ["auto", "direct"])
@pytest.mark.parametrize("level", [1, 2, 3])
def test_what_is_too_large_for_it_goes_by_the_platform(route: str, level: int) -> None:
    desk, platform, direct = joined(max_size="1000")
    desk.effects.clear()
    links = []
    for size in (1_000, 1_001):
        desk.submit(body=bytes(size), route=route, level=level)
        links += [e.link for e in desk.effects if isinstance(e, Transmit) and e.frame.body]
        desk.effects.clear()
    assert links == ([direct] if level == 1 and route == "direct" else [direct, platform])


def test_each_says_how_large_a_body_it_takes() -> None:
    desk = Desk(body_bytes_max=77)
    desk.platform()
    desk.effects.clear()
    desk.direct()
    hellos = [e.frame for e in desk.effects if isinstance(e, Transmit)]
    assert [f.fields["max_size"] for f in hellos if f.command == "semq_hello"] == ["77"]


def test_whoever_may_call_nobody_sends_nothing_directly() -> None:
    answer = Desk(direct=False).try_submit(route="direct")
    assert isinstance(answer, Refused)
    assert answer.status == 400
