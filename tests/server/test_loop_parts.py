"""The loop's small parts: the clock, and calls from other threads."""

from __future__ import annotations

import time

from zbus.server.clock import Clock
from zbus.server.loop import Mailbox


def test_the_clock_follows_the_wall() -> None:
    clock = Clock()
    wall_ms = time.time_ns() // 1_000_000
    assert abs(clock.now_ms() - wall_ms) < 1_000
    assert clock.now_ms() >= wall_ms


def test_the_clock_goes_on_when_the_log_is_ahead_of_the_wall() -> None:
    """A log written under a clock an hour ahead must not freeze every timer for an hour."""
    ahead_ms = time.time_ns() // 1_000_000 + 3_600_000
    clock = Clock(ahead_ms)
    first = clock.now_ms()
    assert first >= ahead_ms
    started = time.monotonic_ns()
    while time.monotonic_ns() - started < 5_000_000:
        pass
    assert 4 <= clock.now_ms() - first < 1_000


def test_a_signal_that_comes_after_its_call_was_run() -> None:
    """The posting thread may be overtaken between putting the call down and ringing the bell."""
    mailbox = Mailbox()
    ran = []
    mailbox._posted.append(lambda: ran.append(1))
    mailbox._signalled = True  # and the byte is not sent yet
    mailbox.run()
    assert ran == [1]
    mailbox._sender.send(b"\0")
    mailbox.run()  # the bell alone
    mailbox.post(lambda: ran.append(2))
    assert mailbox.signalled
    mailbox.run()
    assert ran == [1, 2]
    assert not mailbox.signalled
    mailbox.close()
