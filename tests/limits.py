"""How long things may take, in one place. Only what has gone wrong ever takes so long."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from hypothesis import settings

Value = TypeVar("Value")

SLOWNESS: Final = 5  # a machine that is so many times slower than a usual one keeps all limits
WAIT_S: Final = 12.0 * SLOWNESS  # for the next thing that a program, a thread or a peer does
TEST_S: Final = 60.0 * SLOWNESS  # for each step of a test: what it sets up, itself, and the rest

WHOLE: Final = "WHOLE_TESTS" in os.environ  # `make check`, and tests in which a bug is planted

# A JVM that compiles little and collects on one thread: 13 s of processor time for a start and a
# query, and 21 s without. Jobs of tests are over before the better code would pay.
SHORT_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def fewer(count: int) -> int:
    """How often something is tried at random: a third in `make test`."""
    return count if WHOLE else max(count // 3, 1)


def share(values: Sequence[Value], at: int) -> Sequence[Value]:
    """What of them is tried with the `at`th of something else: in `make test` another third for
    each, so that all are tried with some."""
    return values if WHOLE else values[at % 3 :: 3]


def examples(count: int, **more: Any) -> settings:
    """How many examples hypothesis tries: `count` in whole tests, a third of them in `make test`,
    for which each test has time."""
    from hypothesis import settings  # programs of tests have limits, too, and no use for it

    return settings(max_examples=max(fewer(count), 10), **more)


def checked(values: Iterable[object]) -> list[Any]:
    """Parameters of a test that `make test` leaves to `make check`."""
    return [pytest.param(value, marks=pytest.mark.check) for value in values]


class TooLong(BaseException):
    """No mere Exception: what a test expects and what hypothesis tries again are others."""


class Watch:
    """Ends the process in C, for what waits there, or puts up with everything.

    To set it is to end a thread and to start one, which each step of each test would wait for: so
    it is set for longer, and again only when there is not enough left."""

    def __init__(self) -> None:
        self._ends_s = 0.0

    def set(self, seconds: float, stderr_fd: int) -> None:
        """Not before these seconds are over, and at most half as many later."""
        now_s = time.monotonic()
        if not now_s + seconds <= self._ends_s <= now_s + 1.5 * seconds:
            self._ends_s = now_s + 1.5 * seconds
            faulthandler.dump_traceback_later(1.5 * seconds, exit=True, file=stderr_fd)

    def stop(self) -> None:
        self._ends_s = 0.0
        faulthandler.cancel_dump_traceback_later()


WATCH: Final = Watch()


@contextmanager
def time_limit(seconds: float, stderr_fd: int = 2) -> Iterator[None]:
    """Interrupt what takes longer, with TooLong; end the process if that does not help in as much
    time again. Who has no more to do for a while stops the watch."""

    def interrupt(_number: int, _frame: object) -> None:
        raise TooLong(f"this took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    WATCH.set(2 * seconds, stderr_fd)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
