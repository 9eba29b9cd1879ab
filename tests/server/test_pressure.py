"""Watermarks: refused is what takes room, everything else goes on, and it ends by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from tests.conformance.dialogue import document, drain, http, ok, put, refused, restart
from tests.limits import WAIT_S
from zbus.config import Config
from zbus.config.server import Marks
from zbus.core.log import GROWS_TO
from zbus.server.process.serve import Server
from zbus.server.watch.pressure import Pressure
from zbus.server.watch.system_stats import OsStats, Space
from zbus.storage.format.batch import Batch, Kind
from zbus.storage.memory import MemoryJournal
from zbus.storage.port import JournalFull, Lane
from zbus.testing.world import Client, World

GOES_ON = "produces are refused, consumes and acks work"
MIB = 1 << 20


class FakeGauges:
    """Says what it is told."""

    def __init__(self) -> None:
        self.space: Space | None = Space(900 * MIB, 1000 * MIB)
        self.used: int | None = 10 * MIB
        self.total: int | None = 1000 * MIB
        self.trimmed = 0
        self.spare = 0  # given back when memory is trimmed
        self.free: int | None = 0  # in the heap

    def disk(self, path: Path) -> Space | None:
        return self.space

    def memory_used(self) -> int | None:
        return self.used

    def memory_total(self) -> int | None:
        return self.total

    def memory_free(self) -> int | None:
        return self.free

    def trim_memory(self) -> None:
        self.trimmed += 1
        if self.used is not None:
            self.used -= self.spare


class FullJournal(MemoryJournal):
    """Has no room for messages, while that is said."""

    full = False

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        if self.full and any(batch.header.kind is Kind.DATA for batch in batches):
            raise JournalFull("no room")
        super().append(lane, after, batches)


class Squeeze:
    """A world, its pressure, and three messages in T, the first of them leased."""

    def __init__(self, marks: Marks | None = None, journal: FullJournal | None = None) -> None:
        self.world = World(journal)
        self.gauges = FakeGauges()
        marks = Marks(disk_free_bytes_min=100 * MIB) if marks is None else marks
        self.pressure = Pressure(self.world.broker, self.gauges, lambda: self.gauges.space, marks)
        self.client = self.world.connect()
        ok(self.client, http("/T?cmd=declare&group_ack_timeout=60000"))
        ok(self.client, http("/M?cmd=declare&topic_mask=1"))
        put(self.client, "T", b"0", b"1", b"2")
        assert self.client.request(http("/T?cmd=consume")).body == b"0"

    @property
    def refusing(self) -> str:
        self.pressure.look()
        refusing = self.world.broker.refusing()
        return "" if refusing is None else refusing.text

    def disk(self, free_mib: int) -> str:
        self.gauges.space = Space(free_mib * MIB, 1000 * MIB)
        return self.refusing

    def memory(self, used_mib: int) -> str:
        self.gauges.used = used_mib * MIB
        return self.refusing


def all_but_puts_goes_on(client: Client, status: int) -> None:
    """Nothing is put; what is there can be read, acknowledged, emptied, removed."""
    refusals = (
        http("/T?cmd=produce", body=b"no"),
        http("/T?cmd=produce&delay=5", body=b"no"),
        http("/T", "content-type: application/x-ndjson", body=b'{"body":"no"}\n'),
        http("/New?cmd=declare"),
    )
    for request in refusals:
        reply = client.request(request)
        assert (reply.status, reply.headers["retry-after"]) == (status, "1"), reply
    assert refused(client, http("/New?cmd=query"))[0] == 404
    ok(client, http("/T?cmd=declare&group=late"))
    ok(client, http("/T?cmd=ack&offset=0"))
    assert client.request(http("/T?cmd=consume")).body == b"1"
    assert client.request(http("/T?cmd=read&count=9")).status == 200
    ok(client, http("/T?cmd=empty&group=late"))
    ok(client, http("/T?cmd=remove&group=late"))


def test_a_disk_with_too_little_left() -> None:
    squeeze = Squeeze()
    world, client = squeeze.world, squeeze.client
    assert squeeze.disk(100) == ""
    text = squeeze.disk(99)
    assert text == f"disk almost full (99.0 MiB free, 100.0 MiB needed): {GOES_ON}"
    assert document(ok(client, http("/?cmd=query")))["refusing"] == text
    all_but_puts_goes_on(client, 507)
    put(client, "M", b"needs no disk")
    ok(client, http("/M2?cmd=declare&topic_mask=1"))

    assert squeeze.disk(109), "a little more is not enough"
    assert squeeze.disk(110) == ""
    assert "refusing" not in document(ok(client, http("/?cmd=query")))
    put(client, "T", b"3")
    ok(client, http("/New?cmd=declare"))
    assert squeeze.disk(100) == "", "and it begins where it began before"

    again = restart(world).connect()
    ok(again, http("/T?cmd=ack&offset=1"))
    assert drain(again) == [b"2", b"3"], "nothing of what was refused, everything else"


@pytest.mark.parametrize("end", ["put", "room", "unknown"])
def test_a_disk_that_refuses_itself(end: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without marks: it is told as long as no message is stored and no more room is seen."""
    journal = FullJournal()
    squeeze = Squeeze(Marks(disk_free_bytes_min=0, disk_free_percent_min=0), journal)
    world, client, text = squeeze.world, squeeze.client, "no space left to store messages"
    assert squeeze.disk(3) == ""
    journal.full = True
    put(client, "M", b"needs no disk")
    assert squeeze.disk(3) == ""
    for _ in range(2):
        assert refused(client, http("/T", body=b"x", method="POST"))[0] == 507
        put(client, "M", b"needs no disk")
        ok(client, http("/T?cmd=ack&offset=0"))
        assert squeeze.disk(3) == text
        assert squeeze.disk(4) == text
    assert document(ok(client, http("/?cmd=query")))["refusing"] == text
    assert client.request(http("/_health/ready")).status == 503
    assert document(ok(client, http("/_stats")))["warnings"][0]["kind"] == "refusing"
    if end == "put":
        journal.full = False
        put(client, "T", b"3")
    elif end == "unknown":
        squeeze.gauges.space = None
    assert squeeze.refusing == "" if end != "room" else squeeze.disk(5) == ""
    assert client.request(http("/_health/ready")).status == 200
    assert [record.message for record in caplog.records] == [
        "puts are refused",
        "accepting messages again",
    ]
    world.broker.check()


def test_the_larger_of_the_two_marks_counts() -> None:
    squeeze = Squeeze(Marks(disk_free_bytes_min=10 * MIB, disk_free_percent_min=5))
    assert squeeze.disk(50) == ""
    assert squeeze.disk(49)
    squeeze = Squeeze(Marks(disk_free_bytes_min=1 << 40, disk_free_percent_min=0))
    assert squeeze.disk(250) == "", "on a small file system a quarter is enough"
    assert squeeze.disk(249)
    squeeze = Squeeze(Marks(disk_free_bytes_min=0, disk_free_percent_min=0))
    assert squeeze.disk(0) == "", "no marks"
    squeeze.gauges.space = None
    assert squeeze.refusing == "", "the system does not tell"


def test_too_much_memory() -> None:
    squeeze = Squeeze()
    assert squeeze.memory(400) == "", "40 % of what there is"
    text = squeeze.memory(401)
    assert text == f"memory limit reached (401.0 MiB of 400.0 MiB): {GOES_ON}"
    all_but_puts_goes_on(squeeze.client, 503)
    reply = squeeze.client.request(http("/M?cmd=produce", body=b"needs memory"))
    assert reply.status == 503
    assert squeeze.memory(381), "a little less is not enough"
    assert squeeze.memory(380) == ""
    put(squeeze.client, "T", b"3")


def test_the_limit_of_memory_is_an_option() -> None:
    squeeze = Squeeze(Marks(memory_limit_bytes=50 * MIB))
    assert squeeze.memory(50) == ""
    assert squeeze.memory(51)
    squeeze.gauges.used = None
    assert squeeze.refusing == "", "the system does not tell"
    squeeze = Squeeze()
    squeeze.gauges.total = None
    nothing_known = Pressure(
        squeeze.world.broker, squeeze.gauges, lambda: squeeze.gauges.space, Marks()
    )
    assert nothing_known.memory_max == 0


def test_what_can_be_read_again_gives_way_before_anybody_is_refused() -> None:
    squeeze = Squeeze()
    put(squeeze.client, "T", *[b"x" * 10_000] * 40)
    memory = squeeze.world.broker._memory
    before = memory.bytes_used
    assert squeeze.memory(360) == ""
    assert memory.bytes_used == before
    assert squeeze.memory(361) == ""
    assert before // 2 < memory.bytes_used <= before * 3 // 4
    assert squeeze.gauges.trimmed == 1
    for _ in range(40):
        assert squeeze.refusing == ""
    assert memory.bytes_used < GROWS_TO.bytes_max, "no more than the newest chunk"
    bodies = [squeeze.client.request(http("/T?cmd=consume")).body for _ in range(42)]
    assert bodies == [b"1", b"2", *[b"x" * 10_000] * 40], "and it is read again"


def test_who_gives_back_enough_refuses_nobody() -> None:
    squeeze = Squeeze()
    squeeze.gauges.spare = 20 * MIB
    assert squeeze.memory(420) == ""
    assert "401.0 MiB" in squeeze.memory(421)


def test_a_disk_that_is_full_is_told_before_memory() -> None:
    squeeze = Squeeze()
    assert "memory" in squeeze.memory(500)
    assert "disk" in squeeze.disk(1)
    assert "memory" in squeeze.disk(900)
    assert squeeze.memory(1) == ""


def test_with_both_short_a_topic_in_memory_is_refused_for_memory() -> None:
    squeeze = Squeeze()
    squeeze.gauges.used = 500 * MIB
    squeeze.disk(50)
    client = squeeze.client
    assert refused(client, http("/T", body=b"x"))[0] == 507
    assert refused(client, http("/M", body=b"x"))[0] == 503
    assert refused(client, http("/M2?cmd=declare&topic_mask=1"))[0] == 503
    squeeze.memory(10)
    assert refused(client, http("/T", body=b"x"))[0] == 507
    ok(client, http("/M", body=b"x"))


def test_a_call_is_refused_as_a_put_is() -> None:
    squeeze = Squeeze()
    ok(squeeze.client, http("/S?cmd=declare&topic_mask=4"))
    squeeze.disk(1)
    reply = squeeze.client.request(http("/S/method"))
    assert reply.status == 507
    assert len(squeeze.world.broker._calls) == 0


def trims(*free_mib: int) -> list[int]:
    """How often memory was given back after each look."""
    squeeze = Squeeze()
    trimmed = []
    for size in free_mib:
        squeeze.gauges.free = size * MIB
        squeeze.pressure.look()
        trimmed.append(squeeze.gauges.trimmed)
    return trimmed


def test_what_becomes_free_is_given_back() -> None:
    """Once: what was given back still counts as free, until it is used again."""
    assert trims(0, 60, 300, 310, 20, 80, 100, 100, 160, 170) == [0, 0, 1, 1, 1, 1, 2, 2, 2, 3]


def test_a_little_that_nobody_uses_is_given_back_later() -> None:
    assert trims(9, 30, 9, 30, 9) == [0, 0, 0, 0, 1]
    assert trims(9, 30, 3, 30, 9, 9, 30, 3, 30, 9) == [0] * 10, "it is in use at times"
    assert trims(*[9] * 5, *[12] * 5, *[14] * 5) == [0] * 4 + [1] * 10 + [2]


def test_another_c_library_says_nothing() -> None:
    squeeze = Squeeze()
    squeeze.gauges.free = None
    assert squeeze.refusing == ""
    assert not squeeze.gauges.trimmed


def test_the_heap_is_measured() -> None:
    gauges = OsStats()
    before = gauges.memory_free()
    if before is None:
        pytest.skip("the C library is not glibc")
    blocks = [bytearray(64 << 10) for _ in range(2_000)]
    kept = blocks[::2]  # what is between them does not go back by itself
    del blocks
    assert (gauges.memory_free() or 0) >= 900 * (64 << 10)
    assert len(kept) == 1_000


def cgroup(tmp_path: Path, lines: str, files: dict[str, str]) -> OsStats:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(lines)
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return OsStats(tmp_path / "proc", tmp_path / "cgroup")


@pytest.mark.parametrize(
    ("lines", "files", "limit"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "7000\n"}, 7000),
        ("0::/a/b\n", {"a/b/memory.max": "5000\n", "a/memory.max": "7000\n"}, 5000),
        ("0::/\n", {"memory.max": "6000\n"}, 6000),
        ("0::/of/the/host\n", {"memory.max": "6000\n"}, 6000),
        (
            "5:cpu:/x\n4:pids,memory:/docker/1\n0::/\n",
            {"memory/docker/1/memory.limit_in_bytes": "8000\n"},
            8000,
        ),
        ("4:memory:/docker/1\n", {"memory/memory.limit_in_bytes": "9000\n"}, 9000),
    ],
)
def test_the_limit_of_a_cgroup(
    tmp_path: Path, lines: str, files: dict[str, str], limit: int
) -> None:
    assert cgroup(tmp_path, lines, files).memory_total() == limit


def test_without_a_cgroup_the_machine_counts(tmp_path: Path) -> None:
    machine = OsStats(tmp_path, tmp_path).memory_total()
    assert machine is not None
    assert machine > 64 * MIB
    odd = cgroup(tmp_path, "0::/a\nnonsense\n", {"a/memory.max": "9" * 19})
    assert odd.memory_total() == machine, "no limit at all, as old systems write it"


def test_what_the_system_tells(tmp_path: Path) -> None:
    gauges = OsStats()
    space = gauges.disk(tmp_path)
    assert space is not None
    assert 0 < space.free <= space.total
    assert gauges.disk(tmp_path / "missing") is None
    used = gauges.memory_used()
    assert used is not None
    assert used > 5 * MIB
    gauges.trim_memory()
    assert OsStats(tmp_path).memory_used() is None


async def exchange(stream: trio.SocketStream, request: bytes) -> bytes:
    """Send, and give what comes next."""
    await stream.send_all(request)
    with trio.fail_after(WAIT_S):
        return bytes(await stream.receive_some())


async def test_a_server_measures_once_a_second_and_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gauges = FakeGauges()
    config = Config(port=0, data_dir=tmp_path / "data", disk_free_bytes_min=100 * MIB)
    server = Server(config, gauges=gauges)
    assert (tmp_path / "data/reserve").stat().st_size == 1000 * MIB // 16
    server.pressure.look()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
            assert b"200 OK" in await exchange(stream, http("/T?cmd=declare&durability=os"))
            produce = http("/T?cmd=produce", body=b"x")
            for free_mib, status in ((50, b"507 Insufficient Storage"), (500, b"200 OK")):
                gauges.space = Space(free_mib * MIB, 1000 * MIB)
                with trio.fail_after(WAIT_S):
                    while status not in (reply := await exchange(stream, produce)):
                        pass
                assert b"retry-after: 1" in reply or status == b"200 OK"
        server.mailbox.post(server.loop.stop)
    server.close()
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "puts are refused",
        "accepting messages again",
    ]


async def test_unfinished_bodies_have_a_limit(tmp_path: Path) -> None:
    config = Config(
        port=0,
        data_dir=tmp_path / "data",
        reserve_bytes=0,
        message_bytes_max=1000,
        body_bytes_max=2000,
        bodies_bytes_max=2000,
    )
    server = Server(config)
    head = b"POST /T HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        streams = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(4)]
        assert b"200 OK" in await exchange(streams[3], http("/T?cmd=declare"))
        for stream in streams[:2]:
            # The reply to a ping before shows that what is behind it has come, too.
            assert b"200 OK" in await exchange(stream, http("/?cmd=ping") + head + b"x" * 999)
        reply = await exchange(streams[2], head + b"x" * 999)
        assert b"503 Service Unavailable" in reply
        assert b"retry-after: 1" in reply
        assert b"connection: close" in reply
        await streams[0].aclose()  # gives up
        assert b"200 OK" in await exchange(streams[1], b"x")
        assert b"200 OK" in await exchange(streams[3], head + b"x" * 1000)
        for stream in streams:
            await stream.aclose()
        server.mailbox.post(server.loop.stop)
    server.close()
