"""What unfinished bodies may take, all connections together."""

from __future__ import annotations

import pytest

from zbus.wire.bodies.body import BLOCK_BYTES
from zbus.wire.bodies.budget import Budget
from zbus.wire.heads.heads import Heads
from zbus.wire.http import HttpReader
from zbus.wire.limits import WireLimits

LIMITS = WireLimits(body_bytes_max=1_000)
LENGTH = b"POST /T HTTP/1.1\r\nhost: x\r\ncontent-length: 800\r\n\r\n"
CHUNKED = b"POST /T HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n320\r\n"
ENDS = {LENGTH: b"", CHUNKED: b"\r\n0\r\n\r\n"}

framings = pytest.mark.parametrize("head", [LENGTH, CHUNKED], ids=["length", "chunked"])


def reader(budget: Budget) -> HttpReader:
    return HttpReader(Heads(LIMITS), LIMITS, budget)


@framings
def test_a_body_counts_while_it_is_on_its_way(head: bytes) -> None:
    budget = Budget(1_000)
    one = reader(budget)
    assert one.receive(head) == []
    assert budget.bytes_used == 0, "what was announced takes nothing"
    assert one.receive(b"x" * 300) == []
    assert budget.bytes_used == 300
    assert one.receive(b"x" * 400) == []
    assert budget.bytes_used == 700
    ((_, _, body),) = one.receive(b"x" * 100 + ENDS[head] + LENGTH + b"y" * 50)
    assert body == b"x" * 800
    assert budget.bytes_used == 50, "the next one"
    one.close()
    assert budget.bytes_used == 0


@framings
def test_who_grows_past_it_is_refused_and_gives_way_to_the_others(head: bytes) -> None:
    budget = Budget(1_000)
    one, two = reader(budget), reader(budget)
    one.receive(head + b"x" * 600)
    two.receive(head + b"x" * 400)
    assert budget.bytes_used == 1_000
    two.receive(b"x")
    assert two.error is not None
    assert two.error.status == 503
    assert budget.bytes_used == 600
    two.receive(b"x" * 300)
    two.close()
    assert budget.bytes_used == 600, "given back once"
    ((_, _, body),) = one.receive(b"x" * 200 + ENDS[head])
    assert body == b"x" * 800
    assert budget.bytes_used == 0


def test_a_body_that_breaks_gives_back_what_it_took() -> None:
    budget = Budget(1_000)
    one = reader(budget)
    one.receive(CHUNKED + b"x" * 300)
    one.receive(b"x" * 500 + b"not CR LF")
    assert one.error is not None
    assert one.error.status == 400
    assert budget.bytes_used == 0


def test_a_whole_request_needs_no_budget() -> None:
    one = reader(Budget(0))
    assert len(one.receive(LENGTH + b"x" * 800)) == 1
    assert len(one.receive((LENGTH + b"x" * 800) * 3)) == 3


@framings
def test_a_large_body_counts_with_the_blocks_that_it_takes(head: bytes) -> None:
    limits = WireLimits(body_bytes_max=1 << 20)
    size = b"%d" % 200_000 if head is LENGTH else b"%x" % 200_000
    budget = Budget(1 << 20)
    one = HttpReader(Heads(limits), limits, budget)
    one.receive(head.replace(b"800", size).replace(b"320", size))
    one.receive(b"x" * BLOCK_BYTES)
    assert budget.bytes_used == BLOCK_BYTES
    one.receive(b"x")
    assert budget.bytes_used == 2 * BLOCK_BYTES
    one.receive(b"x" * (BLOCK_BYTES - 1))
    assert budget.bytes_used == 2 * BLOCK_BYTES
    one.close()
    assert budget.bytes_used == 0
