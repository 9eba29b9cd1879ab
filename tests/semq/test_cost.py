"""What a step costs does not grow with what is stored: counted in instructions of SQLite."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.semq.desk import Desk
from zbus.semq.endpoint.events import Submit, Take
from zbus.semq.protocol.words import Address

FEW, MANY = 100, 3_000
TOLERATED = 3.0
"""B-trees are a little deeper, and what is under way fills the window."""


def submit(desk: Desk, number: int) -> None:
    desk.step(*(Submit(ask, Address("1:99"), b"x") for ask in range(number)))


def receive(desk: Desk, number: int) -> None:
    begin = desk.asks + 1
    desk.asks += number
    for seq in range(begin, begin + number):
        desk.deliver(desk.links, seq, lk1=f"1/1/{seq}", ack2=1)


def answers(desk: Desk, number: int) -> None:
    """To all that is under way, while more waits."""
    under_way = "SELECT object_id FROM tb_0031 WHERE ss_status = 'SS_SENT' LIMIT ?"
    for (record,) in desk.database.execute(under_way, (number,)).fetchall():
        desk.came(desk.links, status=200, id=f"m{record}.1", ack_flag=1, flag=2)


def nothing(desk: Desk, number: int) -> None:
    desk.step()


def take(desk: Desk, number: int) -> None:
    desk.step(*(Take(ask) for ask in range(number)))


@pytest.mark.parametrize(
    ("stored", "asked", "online"),
    [
        (submit, submit, True),
        (submit, submit, False),
        (submit, nothing, True),
        (submit, answers, True),
        (submit, nothing, False),
        (receive, receive, True),
        (receive, nothing, True),
        (receive, take, True),
    ],
)
def test_a_step_costs_no_more_when_much_is_stored(
    stored: Callable[[Desk, int], None], asked: Callable[[Desk, int], None], online: bool
) -> None:
    costs = []
    for count in (FEW, MANY):
        desk = Desk()
        if online:
            desk.platform()
        stored(desk, count)
        desk.step()
        costs.append(instructions(desk, asked))
    few, many = costs
    assert many <= TOLERATED * max(few, 1_000), costs


def instructions(desk: Desk, act: Callable[[Desk, int], None]) -> int:
    """Of SQLite's virtual machine, by tens."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 10
        return 0

    desk.database.set_progress_handler(tick, 10)
    act(desk, 10)
    desk.database.set_progress_handler(None, 0)
    return count
