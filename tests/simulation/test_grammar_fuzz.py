"""A few rounds of the grammar; and that what goes wrong in one is found."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from tests.simulation import grammar_fuzz
from tests.simulation.grammar import Grammar
from tests.simulation.grammar_fuzz import Counts, Fault, run
from zbus.core.broker import Broker
from zbus.dialects.zbus.request.websocket_frames import Frames
from zbus.edge.connection import Connection
from zbus.edge.websocket import WebSocket
from zbus.server.loop.socket_connection import SocketConnection
from zbus.wire.heads.head import Request


def test_rounds() -> None:
    counts = run(seconds=60, seed=8, rounds=3)
    assert counts.streams > 150
    assert {101, 200, 204, 400, 404, 408, 413} <= set(counts.statuses)


def test_a_round_can_be_repeated() -> None:
    def told(seed: int) -> tuple[int, int, dict[int, int]]:
        counts: Counts = run(seconds=60, seed=seed, rounds=1)
        return counts.bytes, counts.turns, counts.statuses

    assert told(3) == told(3) != told(4)


def test_the_grammar_makes_the_same_of_a_seed() -> None:
    first, second = Grammar(Random(5)), Grammar(Random(5))
    assert [first.stream() for _ in range(50)] == [second.stream() for _ in range(50)]


def fails(*_: object) -> None:
    raise RuntimeError("planted")


def found() -> str:
    with pytest.raises(Fault) as caught:
        run(seconds=60, seed=1, rounds=20)
    return str(caught.value)


def test_a_traceback_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Frames, "read", fails)
    assert "planted" in found()


def test_an_account_out_of_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "check", fails)
    assert "planted" in found()


def test_who_keeps_others_waiting_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count()

    def receive(link: SocketConnection, data: bytes) -> None:
        if next(numbers) % 200:
            Connection.receive(link, data)

    monkeypatch.setattr(SocketConnection, "receive", receive)
    assert "not answered" in found()


def test_what_is_left_of_a_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = WebSocket.receive

    def receive(self: WebSocket, data: bytes) -> list[Request]:
        requests = whole(self, data)
        self.more = False
        return requests

    monkeypatch.setattr(WebSocket, "receive", receive)
    assert "not answered" in found()


def test_a_turn_without_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_fuzz, "TURN_CPU_S_MAX", 0.0)
    assert "processor time" in found()


def test_work_that_is_left_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "leave", lambda *_: None)
    assert "left" in found() or "rest" in found()
