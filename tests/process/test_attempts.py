"""A broker that is killed right after a delivery arrived knows that there was one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.limits import checked
from tests.process.broker import BrokerProcess

ATTEMPTS = 3


@pytest.mark.parametrize("durability", ["disk", *checked(["os"])])
def test_what_kills_the_broker_is_not_tried_more_often_than_the_limit(
    tmp_path: Path, durability: str
) -> None:
    """Leases end at once, so only the limit ends this."""
    seen = []
    for run in range(ATTEMPTS + 1):
        with BrokerProcess(tmp_path / "data") as broker:
            wire = broker.connect()
            if not run:
                wire.get(f"/T?cmd=declare&durability={durability}")
                declare = "/T/g?cmd=declare&group_mask=64&group_ack_timeout=1"
                assert wire.get(f"{declare}&group_max_attempts={ATTEMPTS}").status == 200
                wire.get("/T?cmd=produce", body=b"poison")
            reply = wire.get("/T/g?cmd=consume&timeout=1000")
            broker.kill()
        seen.append((reply.status, reply.headers.get("retry", "0")))
    assert seen == [(200, "0"), (200, "1"), (200, "2"), (204, "0")]
