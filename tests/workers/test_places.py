"""Which shard a topic is in: everybody computes the same, for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.protocol.places import place_name, shard_of


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "orders"),
        ("Orders", "orders"),
        ("ÄÖ", "äö"),
        ("cron.orders", "orders"),
        ("CRON.Orders", "orders"),
        ("cron.", ""),
        ("txn.app", "txn.app"),
        ("txn.app.rows", "txn.app"),
        ("semq", "semq"),
        ("semq.7:1", "semq"),
        ("semqueue", "semqueue"),
        ("orders{eu}", "eu"),
        ("{eu}.dead", "eu"),
        ("cron.orders{eu}", "eu"),
        ("a{x}{y}", "x"),
        ("a{}b", "a{}b"),
        ("a{b", "a{b"),
        ("a}b{", "a}b{"),
        ("a{}}b", "}"),
    ],
)
def test_place_names(topic: str, name: str) -> None:
    assert place_name(topic) == name


def test_shards_stay_what_they_are() -> None:
    """Data is in directories by these numbers."""
    topics = ("orders", "MyTopic", "a{eu}", "ÄÖ", "txn.app.rows")
    assert [shard_of(topic, 8) for topic in topics] == [6, 4, 6, 4, 6]
    assert {shard_of(f"t{number}", 8) for number in range(100)} == set(range(8))


@given(st.text(max_size=30), st.integers(1, 256))
def test_what_belongs_together_is_together(topic: str, shards: int) -> None:
    shard = shard_of(topic, shards)
    assert 0 <= shard < shards
    assert shard_of(topic.lower(), shards) == shard
    assert shard_of(f"cron.{topic}", shards) == shard or topic.lower().startswith("cron.")
