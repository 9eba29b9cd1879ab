"""The dialogues of camellia and MQCloud under virtual time: as they are, with restarts in the
middle, on storage that keeps nothing at hand, and on storage whose every answer comes late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.test_fenced import LateWorld
from tests.dialects.camellia import rows as camellia
from tests.dialects.camellia.words import WorldTalk as CamelliaTalk
from tests.dialects.mqcloud import rows as mqcloud
from tests.dialects.mqcloud.words import WorldTalk as MqcloudTalk
from tests.dialects.talks import InAWorld
from zbus.core.model.limits import Limits
from zbus.testing.world import World

Row = Callable[[Any], None]
Talks = Callable[..., InAWorld]

ROWS: list[tuple[Row, Talks]] = [
    *((row, CamelliaTalk) for row in camellia.ROWS),
    *((row, MqcloudTalk) for row in mqcloud.ROWS),
]

every_row = pytest.mark.parametrize(("row", "talks"), ROWS, ids=lambda one: one.__name__)


@every_row
def test_a_row(row: Row, talks: Talks) -> None:
    talk = talks()
    row(talk)
    talk.world.broker.check()


@every_row
def test_a_row_with_restarts(row: Row, talks: Talks) -> None:
    row(talks(restarts=True))


@every_row
def test_a_row_on_cold_storage(row: Row, talks: Talks) -> None:
    """All that is looked at is read back."""
    row(talks(World(limits=Limits(cache_bytes_max=0), segment_bytes_max=4_000)))


@every_row
def test_a_row_on_late_storage(row: Row, talks: Talks) -> None:
    row(talks(LateWorld()))
