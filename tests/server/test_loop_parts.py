"""The loop's small parts: the clock, and calls from other threads."""

from __future__ import annotations

import time
from random import Random

import pytest

from zbus.server.loop.clock import Clock
from zbus.server.loop.mailbox import Mailbox
from zbus.server.loop.readiness import READ, Events
from zbus.testing.disk import Disk
from zbus.testing.simulation.machine import EPOCH_MS, Options, Process, VirtualClock

HOUR_MS = 3_600_000


class Times:
    """What the system's clocks say, in milliseconds."""

    def __init__(self, wall: int = 1_800_000_000_000, elapsed: int = 5_000) -> None:
        self.wall = wall
        self.elapsed = elapsed

    def clock(self, not_before_ms: int = 0) -> Clock:
        return Clock(not_before_ms, lambda: self.wall * 1_000_000, lambda: self.elapsed * 1_000_000)

    def pass_by(self, ms: int) -> None:
        self.wall += ms
        self.elapsed += ms


def test_the_clock_is_set_by_the_system() -> None:
    wall_ms = time.time_ns() // 1_000_000
    assert abs(Clock().now_ms() - wall_ms) < 1_000


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 30 * 24 * HOUR_MS, 1_000, -1])
def test_a_step_of_the_system_clock_changes_no_duration(step_ms: int) -> None:
    times = Times()
    clock = times.clock()
    began_ms = clock.now_ms()
    times.pass_by(100)
    times.wall += step_ms
    assert clock.now_ms() == began_ms + 100
    assert clock.ahead_ms() == -step_ms
    times.pass_by(100)
    assert clock.now_ms() == began_ms + 200
    assert clock.ahead_ms() == -step_ms


def test_a_suspended_machine_has_been_there_all_the_time() -> None:
    times = Times()
    clock = times.clock()
    began_ms = clock.now_ms()
    times.pass_by(600_000)  # wall and boot time both count it
    assert clock.now_ms() == began_ms + 600_000
    assert clock.ahead_ms() == 0


def test_the_clock_goes_on_when_the_log_is_ahead_of_the_wall() -> None:
    """A log written under a clock an hour ahead must not freeze every timer for an hour."""
    times = Times()
    clock = times.clock(times.wall + HOUR_MS)
    first_ms = clock.now_ms()
    assert first_ms == times.wall + HOUR_MS
    times.pass_by(5)
    assert clock.now_ms() == first_ms + 5
    assert clock.ahead_ms() == HOUR_MS


@pytest.mark.parametrize("passed_ns", [0, 1, 400_000, 999_999])
@pytest.mark.parametrize("slewed_ns", [-700_000, -1, 0, 1, 300_000])
def test_what_others_count_from_the_clock_never_ends_early(passed_ns: int, slewed_ns: int) -> None:
    """Within a millisecond, too."""
    start_ns = 1_800_000_000_000 * 1_000_000
    now = [start_ns, 0]
    clock = Clock(0, lambda: now[0], lambda: now[1])
    now[:] = [start_ns + passed_ns + slewed_ns, passed_ns]
    assert 0 <= clock.received_ms() * 1_000_000 - (start_ns + passed_ns) < 1_000_000
    due_ms = 1_800_000_000_100  # of a clock outside
    elapsed_ns = (due_ms + clock.ahead_ms()) * 1_000_000 - start_ns  # when it is due here
    assert start_ns + slewed_ns + elapsed_ns >= due_ms * 1_000_000


def test_a_time_that_the_clock_told_is_found_again() -> None:
    """Who seeks to the time of a message gets that message: to read two clocks takes a moment."""
    start_ns = 1_800_000_000_000 * 1_000_000
    now = [start_ns, 0]
    clock = Clock(0, lambda: now[0], lambda: now[1])
    for between_ns in (0, 1, 300, 90_000, 400_000):
        now[:] = [start_ns + 5_000_000, 5_000_000 + between_ns]
        assert clock.drift_ms() == 0
    now[:] = [start_ns - HOUR_MS * 1_000_000, 300]
    assert clock.drift_ms() == HOUR_MS


def test_what_a_posted_call_posts_is_for_the_next_turn() -> None:
    mailbox = Mailbox()
    ran = []
    mailbox.post(lambda: mailbox.post(lambda: ran.append(1)))
    mailbox.run()
    assert not ran
    assert mailbox.signalled
    mailbox.run()
    assert ran == [1]
    mailbox.close()


def test_a_bell_that_rings_during_a_turn_is_answered_in_the_next() -> None:
    mailbox = Mailbox()
    mailbox._sender.send(b"\0")  # for a call that was run
    mailbox.rang = True
    assert mailbox.signalled
    mailbox.run()
    assert not mailbox.signalled
    with pytest.raises(BlockingIOError):
        mailbox.receiver.recv(1)
    mailbox.close()


def test_a_client_that_sends_on_is_answered_before_it_is_read_again() -> None:
    """Others that send meanwhile are part of the turn."""
    process = Process(Disk(), VirtualClock(EPOCH_MS), Options(durability="os"), "p", Random(1))
    eager, other = process.accept(100, 1 << 20), process.accept(101, 1 << 20)
    process.accept(102, 1 << 20).send(get("/T?cmd=declare"))
    eager.send(get("/?cmd=ping"))  # it is known to ask for little
    process.turn()
    assert len(eager.replies()) == 1
    looks = 0

    def look(_: Events) -> None:
        """While the loop looks for more, the one sends on, and the other begins."""
        nonlocal looks
        looks += 1
        eager.send(get("/T?cmd=produce"))
        if looks == 1:
            other.send(get("/T?cmd=produce"))

    process.ready.shuffle = look
    eager.send(get("/T?cmd=produce"))
    process.turn()
    assert looks == 3
    assert [len(client.replies()) for client in (eager, other)] == [2, 1]
    process.turn()
    assert len(eager.replies()) == 3
    process.close()


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


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


def test_an_acceptor_that_was_closed_in_this_turn_is_not_asked() -> None:
    """Its socket is closed, and the next one with its number may be another's."""
    loop = Process(Disk(), VirtualClock(EPOCH_MS), Options(), "p", Random(1)).loop

    class Acceptor:
        accepted = 0

        def accept(self) -> None:
            self.accepted += 1
            loop.stop()

        def close(self) -> None: ...

    acceptors = [Acceptor(), Acceptor()]
    loop._acceptors.extend(acceptors)
    loop._gather([(acceptor, READ) for acceptor in acceptors])
    assert [acceptor.accepted for acceptor in acceptors] == [1, 0]
