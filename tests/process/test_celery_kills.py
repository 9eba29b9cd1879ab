"""Celery's workers under a few kills (`make crash-celery` goes on for 10,000 tasks)."""

from __future__ import annotations

from pathlib import Path

from tests.process.celery_kills import Campaign


def test_no_task_is_forgotten(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, seed=1, tasks=200, workers=2)
    figures = campaign.run(kills=3, every_s=(0.3, 1.0))
    print(figures)
    assert figures["done"] == figures["tasks"] == 200
