"""Endpoints of SEMQ and their platform under a few kills (`make crash-semq` makes 50 of them), and
that it would notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.limits import checked
from tests.process.kill_ledger import Violation
from tests.process.semq_kills import Campaign


@pytest.mark.parametrize("direct", [False, *checked([True])])
def test_each_message_is_handed_over_once(tmp_path: Path, direct: bool) -> None:
    figures = Campaign(tmp_path, seed=1, direct=direct).run(60, 4, (0.1, 0.4))
    print(figures)
    assert sum(figures["kills"].values()) == 4
    assert figures["answered"] == 60
    assert figures["handed over"] >= 60


@pytest.mark.check
def test_a_planted_bug_is_found(tmp_path: Path) -> None:
    program = ("tests.process.planted_semq", "answer_early")
    campaign = Campaign(tmp_path, seed=1, program=program, patience_s=15)
    with pytest.raises(Violation, match="not handed over"):
        campaign.run(200, 10, (0.2, 0.6))
