"""A few seconds of attacks (`make soak` runs an hour), and that what goes wrong is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.pipe import Pipe
from tests.soak.campaign import Campaign, Pace
from tests.soak.crew import Stage
from tests.soak.table import HEAD, measure

QUICK = Pace(phase_s=0.5, quiet_s=0.5, rest_s=1.0)


def test_attacks_in_turn(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = ["bad-heads", "handshakes", "pings"]
    with Stage(tmp_path, 2, {}) as stage:
        campaign = Campaign(stage, names, seconds=4.0, seed=1, pace=QUICK)
        assert campaign.run() == []
        assert stage.figures(campaign.began_s, campaign.line_s).operations > 0
    assert set(campaign.beside) <= set(names), "as many as there was time for"
    assert campaign.beside
    printed = capfd.readouterr()
    assert "errors | beside" in printed.out
    assert printed.err == ""


def test_a_row_of_the_table() -> None:
    row = measure("ws-fragments", 2, seconds=0.5, rest_s=0.5, options={})
    assert row.errors == []
    assert row.beside.max >= row.beside.p99 >= row.beside.p50 > 0
    assert row.peak_bytes >= row.before_bytes > 0
    assert "2 conns" in row.did
    assert "'101': 2" in row.did
    assert row.line().count("|") == HEAD.count("|")


def test_a_foreign_message_and_a_killed_broker_are_noticed(tmp_path: Path) -> None:
    with Stage(tmp_path, 1, {}) as stage:
        campaign = Campaign(stage, ["slow-heads"], seconds=60.0, seed=1, pace=QUICK)
        with Pipe(stage.broker.port) as pipe:
            assert pipe.get("/brisk0?cmd=produce&partition=0", b"not of this client").status == 200
        stage.clients[0].wait_past(campaign.began_s)
        stage.broker.kill()
        errors, ended = campaign.run()
    assert "a message was lost: not of this client" in errors
    assert ended.startswith("the broker ended")
