"""When a loop says nothing, and which log lines report it."""

from __future__ import annotations

import logging

import attrs
import pytest

from zbus.server.loop.silence import Silence


@attrs.define
class Owned:
    """Says what a test wants."""

    is_certain: bool = True
    is_late: bool = False


def test_one_line_when_it_begins_and_one_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zbus")
    owned = Owned()
    silence = Silence(owned)
    for now_ms, certain in enumerate([True, False, False, False, True, True, False, True], 1_000):
        owned.is_certain = certain
        if silence.needed:
            silence.begin(now_ms)
        else:
            silence.end(now_ms)
    lines = [(each.getMessage(), getattr(each, "after_ms", None)) for each in caplog.records]
    begun = ("ownership not confirmed; nothing is answered until it is", None)
    assert lines == [
        begun,
        ("ownership confirmed again", 3),
        begun,
        ("ownership confirmed again", 1),
    ]


@pytest.mark.parametrize("late", [False, True])
def test_it_gives_up_when_it_is_late(late: bool) -> None:
    silence = Silence(Owned(is_certain=False, is_late=late))
    assert silence.give_up([]) == []
    assert silence.gave_up is late
