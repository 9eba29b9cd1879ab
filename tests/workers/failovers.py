"""The tests of what clients see, with owners that end in the middle of each dialogue.

    python -m pytest -p tests.workers.failovers tests/dialects/adf tests/dialects/camellia ...

Three owners and two edges (`tests.workers.edges`): clients reach the edges, which own nothing. At a
random request of each dialogue all owners end like processes that are killed, either before the
request reaches its owner or when it was passed on and nothing was done. Then others recover their
data. What waits at an edge is done by them; what was passed on gets 503, and is sent again here.

A dialogue goes on as if nothing had been, or else a client was told: by a 503, the end of a stream
or of a connection. One that fails without is in the table, with its reason, or fails. Owners end
elsewhere with `EDGES_SEED=7`, and none ends with `EDGES_SEED=0`.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any, Final

import pytest

import zbus.testing.world as one
from tests.workers import random_edges
from tests.workers.edges import WORKERS, AtEdges, Edges
from zbus.testing.world import Reply
from zbus.workers.seats import NO_SHARD

FAILS: Final = os.environ.get("EDGES_SEED") != "0"
EDGES: Final = 2
HOLD_MS: Final = 5_000
TOLD: Final = (b"HTTP/1.1 503 ", b'"status":503', b"\x03\xf5a worker has ended")
"""What a client gets that had something open: HTTP, frames of JSON, and the end of a WebSocket."""

COUNTED: Final = "what was counted is in memory, and begins anew"
LOCKED: Final = "a lock without messages in somebody's hands is in memory"
LEASED: Final = "leases of Adf end with their owner"

SKIPPED: Final[dict[str, str]] = {
    **random_edges.SKIPPED,
    "dialects/camellia/test_reports.py": COUNTED,
    "dialects/camellia/test_seed.py::test_monitor_data": COUNTED,
    "dialects/mqcloud/test_holders.py::test_a_queue_that_was_locked_while_another": LOCKED,
    "dialects/adf/test_order.py": LEASED,
}

_worlds: list[Failing] = []  # of the test that runs
_counts: Counter[str] = Counter()


class Failing(Edges):
    """See above."""

    def __init__(self, journal: Any = None, **options: Any) -> None:
        self.failed = False  # its owners have ended
        self.told = False  # and a client was told so
        self._asked = 0
        super().__init__(journal, **options)
        _worlds.append(self)

    def begin(self) -> None:
        super().begin()
        for _ in range(EDGES):
            self.workers.append(self.make_worker(NO_SHARD))
        for worker in self.workers:
            worker.wires.hold_ms = HOLD_MS
        self.doors = range(WORKERS, WORKERS + EDGES)

    def connect(self) -> AtEdges:
        client = Retrying(self)
        self.clients.append(client)
        return client

    def when_asked(self, client: Retrying) -> bool:
        """Something is sent now: whether its owner ends when it was passed on."""
        self._asked += 1
        if self.failed or self._asked < 2 or self.random.randrange(4) or not FAILS:
            return False
        self.failed = True
        if self.random.randrange(2):
            self.fail()
            return False
        return True

    def fail(self) -> None:
        """All owners end, and there are others when what is asked now is held."""
        self.end_owners()
        for _ in range(3):
            for edge in self.workers[WORKERS:]:
                edge.turn()
        self.begin_owners()


class Retrying(AtEdges):
    """A client that sends again what got 503."""

    edges: Failing

    def send(self, data: bytes) -> None:
        fails = self.edges.when_asked(self)
        super().send(data)
        if fails:
            self.edges.workers[self._number].turn()
            self.edges.fail()

    def exchange(self, data: bytes) -> list[Reply]:
        edges, failed, told = self.edges, self.edges.failed, self.edges.told
        found = super().exchange(data)
        if edges.failed and not failed and found and {each.status for each in found} == {503}:
            edges.told = told  # nothing of it was done
            return super().exchange(data)
        return found

    @property
    def received(self) -> bytes:
        return self._received

    @received.setter
    def received(self, received: bytes) -> None:
        self._received = received
        edges = self.edges
        edges.told = edges.told or (edges.failed and any(mark in received for mark in TOLD))

    @property
    def closed(self) -> bool:
        found = super().closed
        self.edges.told = self.edges.told or (self.edges.failed and found)
        return found


vars(one)["World"] = Failing  # before a test has imported it


def pytest_configure(config: pytest.Config) -> None:
    random_edges.pytest_configure(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    random_edges.skip(items, SKIPPED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if call.when == "call":
        failed = any(world.failed for world in _worlds)
        told = any(world.told for world in _worlds)
        if report.failed and told:
            report.outcome = "skipped"
            report.wasxfail = "a client was told"
        kind = "a client was told" if told else "an owner ended" if failed else "no owner ended"
        report.user_properties.append(("failover", kind))
    if call.when == "teardown":
        _worlds.clear()
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    kind = dict(report.user_properties).get("failover")
    if kind and report.when == "call":
        _counts[f"{'differs' if hasattr(report, 'wasxfail') else report.outcome}, {kind}"] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for kind, number in sorted(_counts.items()):
        terminalreporter.write_line(f"{number} {kind}")
