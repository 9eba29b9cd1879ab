"""No test hangs: each has an end, and Ctrl-C is heard even where the shell has it ignored."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.limits import TEST_S, WAIT_S

LOOP = """
import signal
from tests.limits import time_limit
{0}
with time_limit(0.1):
    while True:
        pass
"""
DEAF = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])"


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("", "tests.limits.TooLong: this took longer than 0.1 s"),
        (DEAF, "Timeout (0:00:00.3000"),
    ],
    ids=["interrupted", "deaf"],
)
def test_what_takes_too_long_ends(before: str, said: str) -> None:
    command = [sys.executable, "-c", LOOP.format(before)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert run.returncode == 1
    assert said in run.stderr


def seconds_left() -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


@pytest.fixture
def around() -> Iterator[None]:
    assert 0 < seconds_left() <= TEST_S
    yield
    assert 0 < seconds_left() <= TEST_S


@pytest.mark.usefixtures("around")
def test_each_step_of_a_test_has_an_end() -> None:
    assert 0 < seconds_left() <= TEST_S


def test_ctrl_c_is_heard() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_heard_in_the_background_of_a_script() -> None:
    test = f"{__file__}::{test_ctrl_c_is_heard.__name__}"
    script = f"trap '' INT; exec {sys.executable} -m pytest -q -p no:cacheprovider {test}"
    run = subprocess.run(["sh", "-c", script], capture_output=True, timeout=WAIT_S, check=False)
    assert run.returncode == 0, run.stdout
