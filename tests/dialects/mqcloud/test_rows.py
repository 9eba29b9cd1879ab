"""The dialogues of `rows` under virtual time: as they are, with restarts in the middle, on storage
that keeps nothing at hand, and on storage whose every answer comes late."""

from __future__ import annotations

import pytest

from tests.conformance.test_fenced import LateWorld
from tests.dialects.mqcloud.rows import ROWS, Row
from tests.dialects.mqcloud.words import WorldTalk
from zbus.core.model.limits import Limits
from zbus.testing.world import World

every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)


@every_row
def test_a_row(row: Row) -> None:
    talk = WorldTalk()
    row(talk)
    talk.world.broker.check()


@every_row
def test_a_row_with_restarts(row: Row) -> None:
    row(WorldTalk(restarts=True))


@every_row
def test_a_row_on_cold_storage(row: Row) -> None:
    """All that is looked at is read back."""
    row(WorldTalk(World(limits=Limits(cache_bytes_max=0), segment_bytes_max=4_000)))


@every_row
def test_a_row_on_late_storage(row: Row) -> None:
    row(WorldTalk(LateWorld()))
