"""A few cycles of the kill campaign of changes (`make crash-changes` runs hundreds)."""

from __future__ import annotations

from pathlib import Path

from tests.process.change_kills import Campaign


def test_kills_within_changes(tmp_path: Path) -> None:
    figures = Campaign(tmp_path / "data", seed=4).run(8)
    print(figures)
    assert figures["changes"] > 8
    assert figures["acks"] > 100
