"""Lines of the log are lines."""

from __future__ import annotations

import logging

import pytest

from zbus.server.process.logs import TextFormatter


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain words", "plain words"),
        ("größer", "größer"),
        ("HTTP/1.1 200\n2026-01-31T12:00:00.000Z INFO stopped", r"HTTP/1.1 200\n2026-01-31T12"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\u2028b", r"a\u2028b"),
    ],
)
def test_what_others_sent_begins_no_line(value: str, shown: str) -> None:
    """A tracker's refusal, for one, is logged."""
    record = logging.makeLogRecord({"msg": "a tracker refuses", "why": value})
    text = TextFormatter().format(record)
    assert f" a tracker refuses why={shown}" in text
    assert text.isprintable()
