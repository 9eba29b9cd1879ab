"""Some cases of the edge's grammar over a real broker; and that what goes wrong is found."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.process import edge_fuzz
from tests.process.edge_fuzz import Campaign, run
from tests.process.edge_grammar import EdgeGrammar


def test_cases(tmp_path: Path) -> None:
    counts = run(tmp_path, seconds=60, seed=7, cases=250)
    assert not counts.failures, counts.summary()
    assert {"zbus", "zbus+tls", "mq", "semq", "adf", "camellia", "websocket"} <= set(
        counts.dialects
    )
    assert {101, 200, 400, 403} <= set(counts.statuses)
    assert counts.acknowledged > 10


def test_the_grammar_makes_the_same_of_a_seed() -> None:
    first, second = EdgeGrammar(Random(5)), EdgeGrammar(Random(5))
    assert [first.case() for _ in range(200)] == [second.case() for _ in range(200)]


def test_a_message_that_is_lost_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = Campaign.finish

    def planted(campaign: Campaign) -> None:
        campaign.counts.acknowledged += 1 + campaign.counts.unknown
        finish(campaign)

    monkeypatch.setattr(Campaign, "finish", planted)
    assert "acknowledged, seed 1" in run(tmp_path, 60, seed=1, cases=20).summary()


def test_a_name_of_a_producer_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_fuzz, "PLAIN_REPLY_NAMES", frozenset())
    assert "a plain reply has" in run(tmp_path, 60, seed=1, cases=20).summary()
