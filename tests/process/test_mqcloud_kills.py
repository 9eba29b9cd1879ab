"""The manual's sample under a few kills (`make crash-mqcloud` goes on for a minute), and that it
would notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.kill_ledger import Violation
from tests.process.mqcloud_kills import Campaign


def test_nothing_is_lost(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "data", seed=1)
    figures = campaign.run(0, (0.5, 1.0), kills=2)
    print(figures)
    assert figures["kills"] >= 2
    assert figures["consumed"] >= figures["answered"] > 10
    assert figures["acknowledged"] > 0


@pytest.mark.check
def test_a_planted_bug_is_found(tmp_path: Path) -> None:
    program = ("tests.process.planted", "write_behind")
    campaign = Campaign(tmp_path / "data", seed=1, program=program, patience_s=15)
    with pytest.raises(Violation, match="not consumed"):
        campaign.run(0, (0.5, 1.0), kills=4)
