"""The tests of what clients see, with owners that end in the middle of each dialogue.

    python -m pytest -p tests.workers.failovers tests/dialects tests/conformance

Three owners and two edges (`tests.workers.edges`): clients reach the edges, which own nothing. At a
random request of each dialogue all owners end like processes that are killed, either before the
request reaches its owner or when it was passed on and nothing was done. Then others recover their
data. What waits at an edge is done by them. What was passed on gets 503, or its client is
disconnected: then it connects again, says what it said first (the hello of SEMQ, the handshake of a
WebSocket), and asks again.

A dialogue goes on as if nothing had been, unless a client was told of more than that request: by a
503, the end of a stream, or that of a connection with which it had something open or in its hands.
Otherwise it fails, or owners had something that ends with them (`FORGOTTEN`), or it is in the
table, with its reason. With `EDGES_STRICT=1` it fails in any case, and says what would excuse it.
Owners end elsewhere with `EDGES_SEED=7`, and none ends with `EDGES_SEED=0`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, cast

import pytest

import zbus.testing.world as one
from tests.workers import random_edges
from tests.workers.edges import WORKERS, AtEdges, Edges, Wire, Worker
from zbus.dialects.mqcloud.context import MqcloudContext
from zbus.dialects.mqcloud.dialect import MqcloudDialect
from zbus.dialects.mqcloud.ids import Ids
from zbus.edge.connection import Connection
from zbus.testing.world import Reply, take_reply
from zbus.wire.http import HttpReader
from zbus.workers.seats import NO_SHARD
from zbus.workers.upstream import Upstream
from zbus.workers.visits import Visit

FAILS: Final = os.environ.get("EDGES_SEED") != "0"
STRICT: Final = bool(os.environ.get("EDGES_STRICT"))
EDGES: Final = 2
HOLD_MS: Final = 5_000
FAREWELL: Final = b"\x03\xf5a worker has ended"
MARKS: Final = (b"HTTP/1.1 503 ", b'"status":503', FAREWELL)
"""What a client gets that had something open: HTTP, frames of JSON, and the end of a WebSocket."""

TOLD: Final = "a client was told"
COUNTED: Final = "what was counted is in memory, and begins anew"
LOCKED: Final = "who has a batch, and what of it came again, is in memory"
TURN: Final = "whose turn it is among queues is in memory"
LEASED: Final = "leases of Adf end with their owner"
OPENED: Final = "which pages were opened a moment ago is in memory"
STORED: Final = "it looks for messages in memory, where a new owner has none"
NUMBERS: Final = "numbers of replies and sessions are compared, and those of a new owner are others"
INSTANT: Final = "owners are there again within the millisecond that is in versions"
CACHED: Final = "a new owner has no document that was made before"
READERS: Final = "a connection is a reader of a group until its owner ends, or it reads anew"
EDGE: Final = "it routes to the session at an edge, which services are not told"

SKIPPED: Final[dict[str, str]] = {
    **random_edges.SKIPPED,
    "dialects/camellia/test_reports.py": COUNTED,
    "dialects/camellia/test_seed.py::test_monitor_data": COUNTED,
    "dialects/mqcloud/test_holders.py::test_a_queue_that_was_locked_while_another": LOCKED,
    "dialects/adf/test_order.py": LEASED,
    "dialects/test_rows.py*[backlog_is_skipped-WorldTalk]": TURN,
    "dialects/test_rows.py*[in_turn-WorldTalk]": TURN,
    "dialects/test_every_dialect.py::test_a_token_lets_its_bearer_in*adf]": LEASED,
    "conformance/test_access.py::test_a_bearer_is_a_token": STORED,
    "conformance/test_browsers.py::test_credentials_are_not_routed": EDGE,
    "conformance/test_groups_and_filters.py::TestStart::test_failures_change_nothing": READERS,
    "conformance/test_ordering.py::test_no_split_changes_the_replies": NUMBERS,
    "conformance/test_json_frames.py::test_what_nobody_asked_for_is_told_in_the": EDGE,
    "conformance/test_partitions.py::test_partitions_are_read_in_turn": TURN,
    "conformance/test_quotas.py": COUNTED,
    "conformance/test_seek.py::test_what_is_asked_for": READERS,
    "conformance/test_trackers.py::test_a_first_follower_is_told_what_its": CACHED,
    "conformance/test_trackers.py::test_versions_grow_with_every_document": INSTANT,
    "conformance/test_websocket.py::test_a_routed_message_that_nobody_asked": EDGE,
    "conformance/test_websocket.py::test_nothing_is_pushed_before_the_handshake_is": EDGE,
}

MEMORY: Final = "topics in memory are gone, with their messages"
REPORTS: Final = "reports of other servers are in memory until these report again"

FORGOTTEN: Final[dict[str, Callable[[Worker], bool]]] = {
    MEMORY: lambda owner: any(
        topic.options.durability == "memory" for topic in owner.broker.topics.values()
    ),
    REPORTS: lambda owner: len(owner.dialect.tracking.servers) > 0,
    LOCKED: lambda owner: any(
        queue.locks() for queues in _mqcloud(owner).locks._groups.values() for queue in queues
    ),
    READERS: lambda owner: any(
        group.exclusive or group.temporary
        for topic in owner.broker.topics.values()
        for group in topic.groups.values()
    ),
    OPENED: lambda owner: bool(owner.dialect.reloads._opened),
}
"""What an owner has that ends with it as at a restart, though no client is told; and whether it
has it. A dialogue may differ then."""


def _mqcloud(owner: Worker) -> MqcloudContext:
    dialect = owner.front.dialects["mqcloud"]
    assert isinstance(dialect, MqcloudDialect)
    return dialect._context


_worlds: list[Failing] = []  # of the test that runs
_counts: Counter[str] = Counter()


class Failing(Edges):
    """See above."""

    def __init__(self, journal: Any = None, **options: Any) -> None:
        self.failed = False  # its owners have ended
        self.forgot = ""  # and what is gone with them
        self._lent_ms = 0
        self._asked = 0
        self._everyone: list[Retrying] = []  # those that have left, too
        super().__init__(journal, **options)
        _worlds.append(self)

    def begin(self) -> None:
        super().begin()
        for _ in range(EDGES):
            self.workers.append(self.make_worker(NO_SHARD))
        for worker in self.workers:
            worker.wires.hold_ms = HOLD_MS
        self.doors = range(WORKERS, WORKERS + EDGES)

    @property
    def excuse(self) -> str:
        """Why the dialogue may go on in another way; "" = it may not."""
        return TOLD if any(client.told for client in self._everyone) else self.forgot

    def connect(self) -> AtEdges:
        client = Retrying(self)
        self.clients.append(client)
        self._everyone.append(client)
        return client

    def lend_a_moment(self) -> None:
        """What comes next is as late as it would have been."""
        super().advance(1)
        self._lent_ms += 1

    def advance(self, ms: int) -> None:
        lent_ms = min(self._lent_ms, ms)
        self._lent_ms -= lent_ms
        super().advance(ms - lent_ms)

    def fails_now(self) -> bool:
        """Whether its owners end with what is sent now."""
        self._asked += 1
        if self.failed or self._asked < 2 or self.random.randrange(4) or not FAILS:
            return False
        self.failed = True
        return True

    def waiting(self) -> set[Connection]:
        """Connections on which something was asked, and is not answered."""
        found = {client.peer for edge in self.workers[WORKERS:] for client, _ in edge.inbox}
        found |= {peer for each in self.clients for peer in each._peers.values() if _waits(peer)}
        return found | {_client_of(each) for each in self._upstreams() if _waits_there(each)}

    def holding(self) -> set[Connection]:
        """Connections with which something ends."""
        return {_client_of(each) for each in self._upstreams() if _holds_there(each)}

    def _upstreams(self) -> list[Upstream]:
        return [each for edge in self.workers[WORKERS:] for each in edge.lines.upstreams]

    def fail(self, busy: set[Connection]) -> None:
        """All owners end, and there are others when what is asked now is held. Cursors are stored,
        as they are some milliseconds after a delivery. A client that is disconnected connects
        again before it asks for anything."""
        owners = self.workers[:WORKERS]
        for owner in owners:
            owner.broker.commit()
        self.forgot = next((why for why, has in FORGOTTEN.items() if any(map(has, owners))), "")
        known = [(each, peer) for each in self._everyone for peer in each._peers.values()]
        open_ = [
            (client, peer, client.told)
            for client, peer in known
            if not (peer.closing or peer.closed)
        ]
        self.end_owners()
        for _ in range(3):
            for edge in self.workers[WORKERS:]:
                edge.turn()
        self.begin_owners()
        for owner in self.workers[:WORKERS]:  # ids say which process made them
            context = _mqcloud(owner)
            context.ids = Ids(context.settings.address, b"another")
        for client, peer, told in open_:
            if peer.closing:
                client.disconnected(peer, told or peer in busy)

    def greet(self) -> None:
        """Clients that have connected again say what they said first."""
        greeting = {each: each.received for each in self._everyone if each.greets()}
        if greeting:
            self.settle()
        for client, had in greeting.items():
            client.greeted(had)


def _waits(peer: Connection) -> bool:
    """For an answer, or has sent a part of a request."""
    reader = peer.reader
    begun = isinstance(reader, HttpReader) and reader.waiting_for() != "nothing"
    return bool(begun or peer.open_tickets)


def _session_there(upstream: Upstream) -> Connection | None:
    """Of its client, in an owner."""
    visitor = cast("Wire", upstream.sock).visitor
    return None if visitor is None else visitor.peer


def _waits_there(upstream: Upstream) -> bool:
    session = _session_there(upstream)
    return session is not None and _waits(session)


def _holds_there(upstream: Upstream) -> bool:
    """Its client is registered there, has something in its hands, or follows trackers."""
    session = _session_there(upstream)
    reads = session is not None and (session.groups or session.held or session.taken)
    return bool(reads or not isinstance(upstream._answers, Visit))


def _client_of(upstream: Upstream) -> Connection:
    """The one for whom it is."""
    answers: Any = upstream._answers
    if not isinstance(answers, Visit):
        taker = answers._answers
        answers = taker if hasattr(taker, "_peer") else taker._reply
    return cast("Connection", getattr(answers, "peer", None) or answers._peer)


_UPGRADE: Final = b"\r\nupgrade: websocket\r\n"


class Retrying(AtEdges):
    """A client that sends again what got 503, and connects again if it is disconnected."""

    edges: Failing
    told = False  # that something which it waits for, or has, is gone
    _received = b""
    _greeting = b""  # what it says first
    _greets = False  # and has to say again
    _was_waiting = False  # when owners ended
    _waits_not = False  # its last request has no time to wait

    def disconnected(self, former: Connection, misses: bool) -> None:
        """It connects to the same edge, and is told nothing if it misses nothing."""
        self.told = misses
        if former.framing is not None:
            end = self._received.find(FAREWELL)
            if misses or not self._greeting or end < 0:
                self.told = True
                return
            self._received = self._received[: end - 2]
        self._connect_again(former)
        self._greets = bool(self._greeting)

    def _connect_again(self, former: Connection) -> None:
        (number,) = [number for number, peer in self._peers.items() if peer is former]
        worker = self.edges.workers[number]
        former.closed = True
        worker.broker.leave(former)
        worker.clients.remove(self)
        self._peers[number] = worker.welcome(self)

    def greets(self) -> bool:
        """Say what it said first, if it has just connected again."""
        greets, self._greets = self._greets, False
        if greets:
            self.edges.workers[self._number].inbox.append((self, self._greeting))
        return greets

    def greeted(self, had: bytes) -> None:
        """The answer is not the test's."""
        end = len(had)
        if self._received.startswith(b"HTTP/1.1 101 ", end):
            self._received = had + self._received[end:].partition(b"\r\n\r\n")[2]
            return
        while end < len(self._received):
            reply, next_end = take_reply(self._received, end)
            if reply is None or "cmd" not in reply.headers:
                self._received = self._received[:end] + self._received[next_end:]
                return
            end = next_end

    def send(self, data: bytes) -> None:
        self._send(data)
        if b"cmd: semq_hello\r\n" in data or (data.startswith(b"GET ") and _UPGRADE in data):
            self._greeting = data

    def _send(self, data: bytes) -> None:
        edges = self.edges
        self._waits_not = b"timeout=0" in data or b"timeout: 0" in data
        if not edges.fails_now():
            super().send(data)
            return
        waiting = edges.waiting()
        busy = waiting | edges.holding()
        if edges.random.randrange(2):
            edges.fail(busy)
            edges.greet()
            super().send(data)
            return
        super().send(data)
        told, had, peer = self.told, self._received, self.peer
        self._was_waiting, number = peer in waiting, self._number
        edges.workers[number].turn()
        edges.fail(busy)
        answers = self._received[len(had) :]
        edges.greet()
        is_refused = not self._was_waiting and _is_refused(answers)
        if is_refused:  # nothing of it was done
            self.told = told
            self._received = had + self._received[len(had) + len(answers) :]
            if self.peer.closing:  # it was asked to, as by HTTP/1.0
                self._connect_again(self.peer)
        if is_refused or (self.peer is not peer and not answers):
            edges.workers[number].inbox.append((self, data))

    def exchange(self, data: bytes) -> list[Reply]:
        failed, told = self.edges.failed, self.told
        found = super().exchange(data)
        was_refused = found and {each.status for each in found} == {503}
        if was_refused and not (failed or self._was_waiting):  # it was looked for at several
            self.told = told
            return super().exchange(data)
        return found

    def replies(self) -> list[Reply]:
        """A new owner reads what it delivers, which takes a moment."""
        found = super().replies()
        if not found and self._waits_not and self.edges.failed:
            self.edges.lend_a_moment()
            found = super().replies()
        return found

    @property
    def received(self) -> bytes:
        return self._received

    @received.setter
    def received(self, received: bytes) -> None:
        self._received = received
        self.told = self.told or (self.edges.failed and any(mark in received for mark in MARKS))

    @property
    def closed(self) -> bool:
        found = super().closed
        self.told = self.told or (self.edges.failed and found)
        return found


def _is_refused(answers: bytes) -> bool:
    """They are 503, all of them."""
    end = 0
    while answers.startswith(b"HTTP/1.1 503 ", end):
        reply, end = take_reply(answers, end)
        if reply is None:
            return False
    return 0 < end == len(answers)


vars(one)["World"] = Failing  # before a test has imported it


def pytest_configure(config: pytest.Config) -> None:
    random_edges.pytest_configure(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    random_edges.skip(items, SKIPPED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if call.when in ("setup", "call"):
        failed = any(world.failed for world in _worlds)
        excuse = next((world.excuse for world in _worlds if world.excuse), "")
        if report.failed and excuse and STRICT:
            report.sections.append(("Failover", excuse))
        elif report.failed and excuse:
            report.outcome = "skipped"
            report.wasxfail = excuse
        kind = excuse or ("an owner ended" if failed else "no owner ended")
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
