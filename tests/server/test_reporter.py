"""Reporting to a tracker: on connecting, on every change, every 30 s, and again after 3 s."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair, wait_all_tasks_blocked

from zbus.core.topics.changes import Changes
from zbus.server.process.reporter import RECONNECT_AFTER_S, REPORT_EVERY_S, SEND_TIMEOUT_S, Reporter
from zbus.wire.heads.heads import Heads
from zbus.wire.http import HttpReader
from zbus.wire.limits import WireLimits

Stream = trio.StapledStream[trio.testing.MemorySendStream, trio.testing.MemoryReceiveStream]


class Tracker:
    """The other end of the reporter's connections."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.streams: list[Stream] = []
        self.asked: list[tuple[str, int]] = []
        self.received = b""
        self.fails = False

    async def connect(self, host: str, port: int) -> Stream:
        self.asked.append((host, port))
        if self.fails:
            raise OSError("refused")
        ours, theirs = memory_stream_pair()
        self.streams.append(theirs)
        self._nursery.start_soon(self._read, theirs)
        return ours

    async def _read(self, stream: Stream) -> None:
        async for data in stream:
            self.received += data

    async def reports(self) -> list[tuple[dict[bytes, bytes], bytes]]:
        """What has come since the last call."""
        await wait_all_tasks_blocked()
        data, self.received = self.received, b""
        reader = HttpReader(Heads(), WireLimits())
        return [(head.fields, body) for head, _, body in reader.receive(data)]


REPORT = b'GET / HTTP/1.1\r\nhost: x\r\nx: y\r\ncontent-length: 7\r\n\r\n{"n":%d}'


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
async def tracker(changes: Changes, nursery: trio.Nursery) -> Tracker:
    other = Tracker(nursery)
    count = iter(range(1_000))
    report: Callable[[], bytes] = lambda: REPORT % next(count)  # noqa: E731
    reporter = Reporter("host:7", report, changes, other.connect)
    nursery.start_soon(reporter.run)
    await wait_all_tasks_blocked()
    return other


def change(changes: Changes, now_ms: int) -> None:
    changes.note(now_ms)
    changes.notify(now_ms)


async def test_a_report(tracker: Tracker) -> None:
    assert tracker.asked == [("host", 7)]
    [(fields, body)] = await tracker.reports()
    assert body == b'{"n":0}'
    assert fields[b"x"] == b"y"


async def test_with_every_change_and_every_so_often(
    tracker: Tracker, changes: Changes, mock_clock: MockClock
) -> None:
    await tracker.reports()
    mock_clock.jump(REPORT_EVERY_S - 1)
    assert await tracker.reports() == []
    change(changes, 1_000)
    assert [body for _, body in await tracker.reports()] == [b'{"n":1}']
    mock_clock.jump(REPORT_EVERY_S + 1)
    assert [body for _, body in await tracker.reports()] == [b'{"n":2}']


async def test_what_others_report_is_no_change(tracker: Tracker, changes: Changes) -> None:
    """Else two brokers that are each other's trackers would report for ever."""
    await tracker.reports()
    changes.wake(1_000)
    changes.notify(1_000)
    assert await tracker.reports() == []


async def test_a_slow_tracker_gets_the_last_change_only(tracker: Tracker, changes: Changes) -> None:
    for now_ms in (1_000, 2_000, 3_000):  # nobody else runs between
        change(changes, now_ms)
    reports = await tracker.reports()
    assert [body for _, body in reports] == [b'{"n":0}', b'{"n":1}']


async def test_it_connects_again(
    tracker: Tracker, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await tracker.reports()
    await tracker.streams[0].send_stream.aclose()
    await wait_all_tasks_blocked()
    tracker.fails = True
    for _ in range(3):
        mock_clock.jump(RECONNECT_AFTER_S + 1)
        await wait_all_tasks_blocked()
    assert len(tracker.asked) == 4
    tracker.fails = False
    mock_clock.jump(RECONNECT_AFTER_S + 1)
    assert [body for _, body in await tracker.reports()] == [b'{"n":1}']
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert told == ["not reporting"], "once, however often it is tried"


async def test_a_tracker_that_takes_nothing(
    changes: Changes, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    asked = []

    async def connect(host: str, port: int) -> trio.abc.HalfCloseableStream:
        ours, theirs = lockstep_stream_pair()
        asked.append(theirs)
        return ours

    nursery.start_soon(Reporter("host:7", lambda: b"{}", changes, connect).run)
    for seconds in (SEND_TIMEOUT_S + 1, RECONNECT_AFTER_S + 1):
        await wait_all_tasks_blocked()
        mock_clock.jump(seconds)
    await wait_all_tasks_blocked()
    assert len(asked) == 2


async def test_a_refusal_is_logged_once(tracker: Tracker, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        await tracker.streams[0].send_all(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        await wait_all_tasks_blocked()
    refused = [r for r in caplog.records if r.message == "a report is refused"]
    assert [record.__dict__["why"] for record in refused] == ["HTTP/1.1 403 Forbidden"]


async def test_a_document_that_cannot_be_made_is_no_end(
    changes: Changes, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    def fail() -> bytes:
        raise ValueError("a bug")

    other = Tracker(nursery)
    nursery.start_soon(Reporter("host:7", fail, changes, other.connect).run)
    await wait_all_tasks_blocked()
    mock_clock.jump(RECONNECT_AFTER_S + 1)
    await wait_all_tasks_blocked()
    assert len(other.asked) == 2
