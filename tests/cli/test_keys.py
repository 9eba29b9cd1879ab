"""What keys do in `zbus top`, without a terminal and with one."""

from __future__ import annotations

import os
import pty
import threading

import pytest

from zbus.cli.keys import HELP, View, each_key, watch_keys
from zbus.cli.top import SORTS, Row, ordered

ALL = [
    Row(name, "", n, n, 0, 9.0 - n, 0.0, 0, 0, 0, 0)
    for n, name in enumerate(("Orders", "jobs", "b"))
]


@pytest.mark.parametrize(
    ("keys", "sort", "reverse", "pattern", "done"),
    [
        ([], "in_rate", False, "", False),
        (["s"], "out_rate", False, "", False),
        (["s", "s"], "lag", False, "", False),
        (["ss"], "lag", False, "", False),
        (["S", "S"], "put", False, "", False),
        (["SSS", "S"], "consumers", False, "", False),
        (["s"] * len(SORTS), "in_rate", False, "", False),
        (["r"], "in_rate", True, "", False),
        (["r", "r"], "in_rate", False, "", False),
        (["/", "o", "r", "\r"], "in_rate", False, "or", False),
        (["/qsr\n", "s"], "out_rate", False, "qsr", False),
        (["/abc\x7f\x7f\n"], "in_rate", False, "a", False),
        (["/\x7f\x7fa\n"], "in_rate", False, "a", False),
        (["/abc", "\x1b"], "in_rate", False, "", False),
        (["/abc\n", "\x1b"], "in_rate", False, "", False),
        (["/abc\n", "/", "x"], "in_rate", False, "x", False),
        (["\x1b[A", "\x1b[24~"], "in_rate", False, "", False),
        (["x", "?", "\n", "\0", "é"], "in_rate", False, "", False),
        (["q"], "in_rate", False, "", True),
        (["/", "\x03"], "in_rate", False, "", True),
    ],
)
def test_keys(keys: list[str], sort: str, reverse: bool, pattern: str, done: bool) -> None:
    view = View(SORTS, "in_rate")
    for pressed in keys:
        view.press(pressed)
    assert (view.sort, view.reverse, view.pattern, view.done) == (sort, reverse, pattern, done)
    assert HELP in view.status_text()
    assert sort in view.status_text()


@pytest.mark.parametrize(
    ("sort", "reverse", "pattern", "names"),
    [
        ("messages", False, "", ["b", "jobs", "Orders"]),
        ("messages", True, "", ["Orders", "jobs", "b"]),
        ("in_rate", False, "o", ["Orders", "jobs"]),
        ("in_rate", False, "ORD", ["Orders"]),
        ("in_rate", False, "nothing", []),
    ],
)
def test_rows_are_chosen_and_ordered(
    sort: str, reverse: bool, pattern: str, names: list[str]
) -> None:
    assert [row.topic for row in ordered(ALL, sort, reverse, pattern)] == names


def test_a_terminal_gives_keys_as_they_are_pressed() -> None:
    ours, theirs = pty.openpty()
    view, told = View(SORTS, "in_rate"), []
    try:
        with each_key(theirs):
            os.write(ours, b"s/x\nq")
            watch_keys(view, 60, lambda: told.append(view.sort), theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (view.sort, view.pattern, view.done) == ("out_rate", "x", True)
    assert told


def test_without_keys_the_pause_ends_by_itself() -> None:
    reading, writing = os.pipe()
    view = View(SORTS, "in_rate")
    try:
        waits = threading.Thread(target=watch_keys, args=(view, 0.01, lambda: None, reading))
        waits.start()
        waits.join(30)
        assert not waits.is_alive()
        os.close(writing)
        watch_keys(view, 0.01, lambda: None, reading)  # nobody will press any
    finally:
        os.close(reading)
    assert not view.done
