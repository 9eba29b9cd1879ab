"""What a broker with `log_level=debug` tells of its loop."""

from __future__ import annotations

import logging

import pytest

from zbus.server.loop.loop import Loop
from zbus.server.watch import debug_loop as telling
from zbus.server.watch.debug_loop import DebugLoop


def test_a_slow_turn(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(Loop, "turn", lambda _self, _events: None)
    loop = object.__new__(DebugLoop)
    with caplog.at_level(logging.DEBUG, "zbus"):
        loop.turn([])
        assert caplog.messages == []
        monkeypatch.setattr(telling, "SLOW_TURN_S", 0.0)
        loop.turn([])
    assert caplog.messages == ["slow turn"]
