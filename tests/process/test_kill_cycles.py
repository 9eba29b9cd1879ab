"""Ten cycles of the kill campaign (`make crash` runs a thousand), and that it would notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.kill_cycles import Campaign
from tests.process.kill_ledger import (
    ACK_CONFIRMED,
    GroupLedger,
    Partition,
    Sent,
    Violation,
    make_body,
    parse_body,
)
from tests.process.planted import BUGS


def test_six_kills(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "data", seed=10)
    figures = campaign.run(6)
    print(figures)
    assert figures["stored"] >= figures["acknowledged"] > 1_000
    assert figures["acks_confirmed"] > 1_000


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(tmp_path: Path, bug: str) -> None:
    campaign = Campaign(tmp_path / "data", seed=1, program=("tests.process.planted", bug))
    with pytest.raises(Violation) as found:
        campaign.run(20)  # two do, on a machine that is not busy
    print(f"{bug}, cycle {campaign.counts['cycles']}: {found.value}")


def test_bodies_are_checked_whole() -> None:
    for serial in range(100):
        sent = Sent(serial, 1, 50)
        body = make_body(sent)
        assert parse_body(body) == sent
        for wrong in (body[:-1], body + b"x", bytes([body[0] ^ 1]) + body[1:], body[:-1] + b"\0"):
            with pytest.raises(Violation, match="not what was sent"):
                parse_body(wrong)


def deliver(
    group: GroupLedger,
    offset: int,
    serial: int = 3,
    delay_ms: int = 0,
    sent_us: int = 0,
    retry: bool = False,
    asked_s: float = 0.0,
) -> None:
    body = make_body(Sent(serial, 1, delay_ms, sent_us))
    group.deliver(0, offset, body, 0, retry, asked_s)


def test_deliveries_are_checked() -> None:
    group = GroupLedger([Partition("T", 0, 1)], "g", 1_000, "a.*")
    deliver(group, 10, serial=30)
    with pytest.raises(Violation, match="does not say so"):
        deliver(group, 10, serial=30)
    deliver(group, 10, serial=30, retry=True, asked_s=float("inf"))
    with pytest.raises(Violation, match="within one lease"):
        deliver(group, 10, serial=30, retry=True)
    with pytest.raises(Violation, match="came behind 10"):
        deliver(group, 9, serial=27)
    with pytest.raises(Violation, match="filter"):
        deliver(group, 11, serial=31)
    with pytest.raises(Violation, match="early"):
        deliver(group, 12, serial=33, delay_ms=50, sent_us=1 << 60)
    with pytest.raises(Violation, match="offset 10 is 30 and 33"):
        deliver(group, 10, serial=33)
    group.readings[0].set(13, ACK_CONFIRMED)
    with pytest.raises(Violation, match="ack was confirmed"):
        deliver(group, 13, serial=36)
    group.new_life()
    deliver(group, 9, serial=27)
    assert (group.delivered, group.redelivered) == (3, 1)


def test_a_group_that_acknowledges_on_delivery_gets_nothing_twice_in_a_life() -> None:
    group = GroupLedger([Partition("T", 0, 1)], "g", 0, "")
    deliver(group, 1)
    with pytest.raises(Violation, match="without leases"):
        deliver(group, 1)
    group.new_life()
    deliver(group, 1)
