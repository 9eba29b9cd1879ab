"""A few cycles of the kill campaign of changes (`make crash-changes` runs hundreds)."""

from __future__ import annotations

from pathlib import Path

from tests.process.change_kills import Campaign


def test_kills_within_changes(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "data", seed=4)
    figures = campaign.run(8)
    while figures["changes"] <= 8:  # a slow machine makes fewer before it is killed
        figures = campaign.run(4)
    print(figures)
    assert figures["acks"] > 100
