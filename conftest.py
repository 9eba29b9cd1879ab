"""What holds for every test: it comes to an end, Ctrl-C works, and it may ask for the simulation,
as users have it (docs/howto/simulate.md)."""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import os
import re
import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests import forked
from tests.limits import SHORT_JVM, TEST_S, WATCH, examples, time_limit

pytest_plugins = ["zbus.testing.fixtures", "tests.rows"]

WAITING = {"process", "browser", "examples", "docs"}  # folders of tests

JVM_OPTIONS = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS")

SESSION = re.compile(r"\bspark: (?:Any|SparkSession)\b")

STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts what it runs in the background with SIGINT ignored, and so does everything
    that is started from there: what a test ends by it would go on for ever."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # No limit for an example, see TEST_S, and the usual number of them.
    hypothesis.settings.register_profile("any machine", examples(100, deadline=None))
    hypothesis.settings.load_profile("any machine")
    config.stash[STDERR] = os.dup(2)  # now, before the output of tests is captured
    # Hundreds of programs are started, and each would compile all of zbus for itself.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    forked.Popen.forks = sys.platform == "linux" and config.option.markexpr != "bench"
    for name in JVM_OPTIONS:
        os.environ.setdefault(name, SHORT_JVM)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first, and then what waits for programs: at the end one process
    would work, or wait, alone."""
    items.sort(key=lambda item: (not wants_spark(item.path), WAITING.isdisjoint(item.path.parts)))


@cache
def wants_spark(path: Path) -> bool:
    """Whether tests of this file ask for the session of Spark, of which a process has one."""
    return "spark" in path.parts and SESSION.search(path.read_text("utf-8")) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """With `--dist loadfile`. A session of Spark is a JVM that takes ten seconds to start and half
    a gigabyte, so one process does all that wants it."""

    class OneSession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "spark" if wants_spark(config.rootpath / file) else file

    config.option.loadscopereorder = False  # they are in order
    return OneSession(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Of several processes one comes first: what it compiles, the others find."""
    gc.disable()  # all that is made here stays
    with Path(__file__).open() as file:
        if hasattr(session.config, "workerinput"):
            fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish() -> None:
    """Nine thousand tests are a million objects that stay: no collection goes through them."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)  # as often as Python does it takes a tenth of the time


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    long = item.get_closest_marker("bench") or item.get_closest_marker("check")
    with time_limit(TEST_S * 20 if long else TEST_S, item.config.stash[STDERR]):
        return (yield)


pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup


@pytest.fixture(scope="module", autouse=True)
def _leaves_nothing() -> Iterator[None]:
    """What a file of tests has left open is an error of its last test, and not of a test elsewhere
    in which the collector happens to find it. After each test this would take a minute."""
    yield
    WATCH.stop()  # until the next file there may be a long wait
    gc.collect()
    gc.freeze()  # what is still there, modules and caches, has been looked at


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that failed is still in its traceback, with all that it left open: it goes here, or
    the test in which the collector finds it would fail as well."""
    failed = item.session.testsfailed
    result = yield
    if item.session.testsfailed > failed:
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        with warnings.catch_warnings(action="ignore"):
            gc.collect()
    return result


def pytest_enter_pdb() -> None:
    """Who looks around takes their time."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    WATCH.stop()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Threads that tests left behind do not keep the process."""
    faulthandler.dump_traceback_later(TEST_S, exit=True, file=config.stash[STDERR])
