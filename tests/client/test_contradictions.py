"""What contradicts itself is refused with a sentence, before anything is sent."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import pytest

import zbus.client
from zbus.client import commands
from zbus.client.options import Options

ROWS: list[tuple[Callable[[], object], str]] = [
    (lambda: commands.produce("T", "x", json=1), "body and json"),
    (lambda: commands.produce("T", b"x", json=None), "body and json"),
    (lambda: commands.produce("T", "", json={}), "body and json"),
    (lambda: commands.produce("T", delay_ms=1, deliver_at_ms=1), "delay_ms and deliver_at_ms"),
    (
        lambda: commands.produce_many("T", ["x"], delay_ms=0, deliver_at_ms=1),
        "delay_ms and deliver_at_ms",
    ),
    (lambda: commands.nack("T", "g", 1, delay_ms=5, front=False), "delay_ms and front=False"),
    (lambda: commands.query(group="g"), "the group 'g' is of a topic"),
    (lambda: commands.declare("T", start=0, start_copy="g"), "start and start_copy"),
    (lambda: commands.declare("T", start="latest", start_copy="g"), "start and start_copy"),
    (lambda: commands.declare("T", attempts=5), "no option attempts"),  # type: ignore[call-overload]
    (
        lambda: client(ssl_context=ssl.create_default_context(), ca="ca.pem"),
        "ssl_context contradicts ca and cert",
    ),
]


def client(**options: Any) -> zbus.client.BlockingClient:
    return zbus.client.BlockingClient("http://127.0.0.1:1", Options(**options))


@pytest.mark.parametrize(("make", "text"), ROWS)
def test_what_contradicts_itself(make: Callable[[], object], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make()


def test_what_does_not() -> None:
    assert commands.produce("T", b"", json=None).body == b"null"
    assert commands.produce("T", json=0, delay_ms=0).body == b"0"
    commands.nack("T", "g", 1, delay_ms=0, front=False)
    assert b"durability: disk" in commands.declare("T", rpc=True, durability="disk").lines
