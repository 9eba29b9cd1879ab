"""A few cycles of the kill campaign of changes (`make crash-changes` runs hundreds), and that it
would notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.limits import checked
from tests.process.change_kills import Campaign
from tests.process.change_moves import Ack, Log, Moves, Place
from tests.process.kill_ledger import Violation


def test_kills_within_changes(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "data", seed=4)
    figures = campaign.run(8)
    while figures["changes"] <= 8:  # a slow machine makes fewer before it is killed
        figures = campaign.run(4)
    print(figures)
    assert figures["acks"] > 100
    assert figures["checks"] == figures["cycles"]
    assert figures["In"] > 0
    assert figures["Raw"] > 0


@pytest.mark.parametrize("bug", checked(["forget_settlements", "half_moves"]))
def test_a_planted_bug_is_found(tmp_path: Path, bug: str) -> None:
    campaign = Campaign(tmp_path / "data", seed=1, program=("tests.process.planted", bug))
    with pytest.raises(Violation) as found:
        campaign.run(200)  # seven did, and 42 of the rarer one
    print(f"{bug}: {found.value}")


def stored(moves: Moves, topic: str, *messages: tuple[Place, tuple[int, ...]]) -> Log:
    log = moves.logs[topic]
    for place, serials in messages:
        log.serials[place] = serials
        log.times.update(serials)
    return log


def told(*, redriven: int = 0) -> Moves:
    """Serial 1 died, was redriven and waits in In, 2 waits in Dead, 3 is acknowledged; of 4 and 5
    there is a result, and 6 waits in Raw."""
    moves = Moves()
    stored(moves, "In", ((0, 0), (1,)), ((0, 1), (2,)), ((1, 0), (3,)), ((1, 1), (1,)))
    stored(moves, "Dead", ((0, 0), (1,)), ((1, 0), (2,)))
    stored(moves, "Raw", ((0, 0), (4,)), ((0, 1), (5,)), ((1, 0), (6,)))
    stored(moves, "Cooked", ((0, 0), (4, 5)))
    moves.dead = {(0, 0): (0, 0), (0, 1): (1, 0)}
    moves.acks = {(1, 0): Ack(True)}
    moves.cooked = {4, 5}
    moves.redriven = redriven
    return moves


def check(moves: Moves, left_in: set[Place], left_dead: set[Place], left_raw: set[Place]) -> None:
    moves._check_in(left_in)
    moves._check_dead(left_dead)
    moves._check_raw(left_raw)


IN, DEAD, RAW = {(1, 1)}, {(1, 0)}, {(1, 0)}
WRONG: dict[str, tuple[Callable[[Moves], object], set[Place], set[Place], set[Place], str]] = {
    "lost": (lambda _: None, set(), DEAD, RAW, r"In \(1, 1\) is in 0 places"),
    "dead, and comes again": (lambda _: None, {*IN, (0, 1)}, DEAD, RAW, "is in 2 places"),
    "an ack is forgotten": (lambda _: None, {*IN, (1, 0)}, DEAD, RAW, "confirmed=True"),
    "died, although acknowledged": (
        lambda moves: moves.acks.update({(0, 1): Ack(True)}),
        IN,
        DEAD,
        RAW,
        "confirmed=True",
    ),
    "redriven twice": (
        lambda moves: stored(moves, "In", ((2, 0), (1,))),
        {*IN, (2, 0)},
        DEAD,
        RAW,
        "serial 1 is 3 times in In and 1 times in Dead",
    ),
    "redriven, and still there": (lambda _: None, IN, {*DEAD, (0, 0)}, RAW, "1 of them to be"),
    "a dead letter is lost": (lambda _: None, IN, set(), RAW, "0 of them to be redriven"),
    "a redrive that nobody asked for": (
        lambda moves: setattr(moves, "redriving", 0),
        IN,
        DEAD,
        RAW,
        "1 were redriven, 0 confirmed and 0 asked for",
    ),
    "a result, and the source": (lambda _: None, IN, DEAD, {*RAW, (0, 0)}, "1 results, confirmed"),
    "neither": (lambda _: None, IN, DEAD, set(), "serial 6: 0 results, not confirmed"),
    "two results": (
        lambda moves: stored(moves, "Cooked", ((1, 0), (4,))),
        IN,
        DEAD,
        RAW,
        "serial 4: 2 results",
    ),
    "a confirmed result is lost": (
        lambda moves: moves.cooked.add(6),
        IN,
        DEAD,
        RAW,
        "serial 6: the result was confirmed",
    ),
}


def test_what_is_right() -> None:
    moves = told(redriven=1)
    check(moves, IN, DEAD, RAW)
    unanswered = told()
    unanswered.redriving = 5
    unanswered.acks[1, 1] = Ack(False)
    check(unanswered, IN, DEAD, RAW)
    assert (1, 1) not in unanswered.acks, "it was not done, and will not be"
    unanswered.acks[1, 1] = Ack(False)
    check(unanswered, set(), DEAD, RAW)
    assert unanswered.acks[1, 1].confirmed, "it was done, and stays so"


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong(wrong: str) -> None:
    harm, left_in, left_dead, left_raw, text = WRONG[wrong]
    moves = told()
    moves.redriving = 1
    harm(moves)
    with pytest.raises(Violation, match=text):
        check(moves, left_in, left_dead, left_raw)
