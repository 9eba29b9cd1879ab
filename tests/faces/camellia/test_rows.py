"""The dialogues of `rows` under virtual time, without and with restarts in the middle."""

from __future__ import annotations

import pytest

from tests.faces.camellia.rows import ROWS, Row
from tests.faces.camellia.words import WorldTalk

every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)


@every_row
def test_a_row(row: Row) -> None:
    talk = WorldTalk()
    row(talk)
    talk.world.broker.check()


@every_row
def test_a_row_with_restarts(row: Row) -> None:
    row(WorldTalk(restarts=True))
