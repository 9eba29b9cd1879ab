"""Numbers for which no message comes: the next one to that node tells of them."""

from __future__ import annotations

import pytest

from tests.semq.desk import B, C, Desk
from zbus.semq.endpoint.schema import StoreError
from zbus.semq.protocol.words import SKIPS_BYTES_MAX, read_intervals


def refused(desk: Desk, record: int, status: int = 404, attempt: int = 1) -> None:
    desk.came(desk.links, b"", status, id=f"m{record}.{attempt}", reason="unknown")


def sent(desk: Desk) -> list[tuple[str, str, str]]:
    found = [frame.fields for frame in desk.said("semq_send")]
    return [(f["dst"], f["seq"], f.get("skips", "")) for f in found]


def test_a_number_of_a_node_that_nobody_knows_is_told_with_the_next_message() -> None:
    desk = Desk(direct=False)
    desk.platform()
    for node in (B, B, C):
        desk.submit(node)
    refused(desk, 1)
    refused(desk, 2)
    desk.said()
    for node, level in ((C, 3), (B, 2), (B, 3), (B, 3)):
        desk.submit(node, level=level)
    assert sent(desk) == [(C, "2", ""), (B, "1", ""), (B, "3", "1-2"), (B, "4", "")]


def test_numbers_come_back_if_that_dies_too() -> None:
    desk = Desk(direct=False)
    desk.platform()
    for record in (1, 2, 3):
        desk.submit()
        refused(desk, record)
    desk.said()
    desk.start()
    desk.links = 0
    desk.submit()
    desk.platform()
    assert sent(desk) == [(B, "4", "1-3")]


def test_a_void_message_that_is_refused_leaves_its_number() -> None:
    desk = Desk(direct=False)
    desk.platform()
    desk.submit()
    refused(desk, 1, 403)
    refused(desk, 1, 403, 2)
    desk.said()
    desk.submit()
    assert sent(desk) == [(B, "2", "1")]


def test_a_void_message_keeps_what_its_message_took_along() -> None:
    desk = Desk(direct=False)
    desk.platform()
    desk.submit()
    refused(desk, 1)
    desk.submit()
    refused(desk, 2, 413)
    assert sent(desk) == [(B, "1", ""), (B, "2", "1"), (B, "2", "1")]


def test_a_number_of_a_former_life_is_not_one_of_this() -> None:
    desk = Desk(direct=False)
    desk.submit()
    desk.start(renewed=True)
    desk.platform()
    refused(desk, 1)
    desk.said()
    desk.submit()
    assert sent(desk) == [(B, "1", "")]


def test_the_number_of_a_step_that_failed_is_that_of_the_next_message() -> None:
    desk = Desk(direct=False)
    desk.submit()
    desk.database.fail(1)
    with pytest.raises(StoreError):
        desk.submit()
    desk.submit()
    desk.platform()
    assert [seq for _, seq, _ in sent(desk)] == ["1", "2"]


def test_more_than_a_field_has_room_for_goes_with_several() -> None:
    desk = Desk(direct=False)
    desk.submit()
    dead = ",".join(str(seq) for seq in range(1_000_001, 1_003_000, 2))
    desk.database.execute("UPDATE semq_counter SET dead = ?", (dead,))
    desk.start()
    for _ in range(4):
        desk.submit()
    desk.platform()
    told = [skips for _, _, skips in sent(desk)]
    assert max(map(len, told)) <= SKIPS_BYTES_MAX
    assert [seq for text in told for each in read_intervals(text) for seq in each] == [
        *range(1_000_001, 1_003_000, 2)
    ]
