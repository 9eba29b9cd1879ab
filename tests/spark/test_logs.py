"""Where messages are read from: a broker, its data directory, a backup. All say the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.forked import run_zbus
from tests.process.broker import BrokerProcess
from tests.process.endpoint import wait_for
from tests.spark.stored import MemoryLog
from zbus.client import connect
from zbus.spark.errors import DataLoss, UnknownTopic, Unreachable, Usage
from zbus.spark.logs import Log, Span
from zbus.spark.options import Wish
from zbus.spark.source import reading
from zbus.spark.source.arrows import read
from zbus.spark.source.files import FileLog
from zbus.spark.source.location import Where
from zbus.spark.source.planning import Part
from zbus.storage.local import naming

COUNT = 500
BOOKS = ("txn.q.rows", "Txn.q", "spark.start.q", "cron.orders")


def filled(folder: Path, *options: str) -> Iterator[list[Where]]:
    """A broker with topics `orders` (three segments), `keyed` (two partitions), `empty`; its data,
    and a backup of that."""
    data, backup = folder / "data", folder / "backup"
    with BrokerProcess(data, "--set", "segment_bytes=100000", *options) as broker:
        url = f"127.0.0.1:{broker.port}"
        with connect(url) as bus:
            bus.declare("orders")
            bus.declare("keyed", partitions=2)
            bus.declare("empty")
            for name in BOOKS:
                bus.declare(name)
            for begin in range(0, COUNT, 50):
                bus.produce_many("orders", [b"%d" % n * 100 for n in range(begin, begin + 50)])
            for number in range(20):
                bus.produce("keyed", b"%d" % number, key=f"k{number}")
        assert run_zbus("backup", backup, "--data-dir", data).returncode == 0
        broker.stop()
        port = broker.port
    with BrokerProcess(data, "--set", "segment_bytes=100000", *options, port=port):
        yield [Where(broker=url), Where(path=str(data)), Where(path=str(backup))]


PLACES = ("broker", "data", "backup")
OF_WORKERS = tuple(f"{name} of three workers" for name in PLACES)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Where]]:
    """Of one process, and of several."""
    one = filled(tmp_path_factory.mktemp("logs"))
    several = filled(tmp_path_factory.mktemp("shards"), "--workers", "3")
    for found, more in zip(one, several, strict=True):
        yield dict(zip(PLACES + OF_WORKERS, found + more, strict=True))


@pytest.fixture
def log(places: dict[str, Where], request: pytest.FixtureRequest) -> Iterator[Log]:
    with places[request.param].open() as found:
        yield found


everywhere = pytest.mark.parametrize("log", PLACES + OF_WORKERS, indirect=True)


@everywhere
def test_what_there_is(log: Log) -> None:
    assert log.topics() == ["empty", "keyed", "orders"]
    assert [span.topic for name in BOOKS for span in log.spans(name)] == list(BOOKS)
    (span,) = log.spans("orders")
    assert (span.topic, span.partition, span.first, span.end) == ("orders", 0, 0, COUNT)
    assert 100_000 < span.bytes < 300_000
    assert [each.partition for each in log.spans("keyed")] == [0, 1]
    assert sum(each.end - each.first for each in log.spans("keyed")) == 20
    assert [(each.first, each.end) for each in log.spans("empty")] == [(0, 0)]


@pytest.mark.parametrize("names", [PLACES, OF_WORKERS])
def test_everywhere_it_is_the_same_incarnation(
    places: dict[str, Where], names: tuple[str, ...]
) -> None:
    found = set()
    for name in names:
        with places[name].open() as log:
            found.add(log.spans("orders")[0].incarnation)
    assert len(found) == 1


@everywhere
@pytest.mark.parametrize(("start", "stop"), [(0, COUNT), (7, 8), (149, 351), (COUNT, COUNT)])
def test_a_range(log: Log, start: int, stop: int) -> None:
    (span,) = log.spans("orders")
    found = [body for each in read(log, span, start, stop) for body in each["body"].to_pylist()]
    assert found == [b"%d" % number * 100 for number in range(start, stop)]


@everywhere
def test_where_a_time_is(log: Log) -> None:
    (span,) = log.spans("orders")
    times = {
        offset: moment
        for each in read(log, span, 0, COUNT, ("offset", "timestamp"))
        for offset, moment in zip(
            each["offset"].to_pylist(), each["timestamp"].to_pylist(), strict=True
        )
    }
    for time_ms in {int(moment.timestamp() * 1_000) for moment in times.values()}:
        first = min(o for o, moment in times.items() if moment.timestamp() * 1_000 >= time_ms)
        assert log.offset_at(span, time_ms) == first
    assert log.offset_at(span, 0) == 0
    assert log.offset_at(span, 1 << 50) == COUNT
    (empty,) = log.spans("empty")
    assert log.offset_at(empty, 0) == 0


@everywhere
def test_what_is_not_there(log: Log) -> None:
    with pytest.raises(UnknownTopic, match="nobody"):
        log.spans("nobody")
    (span,) = log.spans("orders")
    with pytest.raises(DataLoss, match="not there"):
        list(read(log, span, COUNT - 1, COUNT + 1))
    with pytest.raises(DataLoss, match="orders was removed"):
        list(read(log, span._replace(incarnation="1"), 0, 1))


def test_retention_is_told(tmp_path: Path) -> None:
    limits = "--set", "segment_bytes=65536"
    with BrokerProcess(tmp_path / "data", *limits) as broker:
        where = Where(broker=f"127.0.0.1:{broker.port}"), Where(path=str(tmp_path / "data"))
        with connect(f"127.0.0.1:{broker.port}") as bus:
            bus.declare("orders", retention_count=100)
            for _ in range(20):
                bus.produce_many("orders", [b"x" * 2_000] * 50)
        for each in where:
            with each.open() as log:
                assert wait_for(lambda log=log: log.spans("orders")[0].first == 900)
                (span,) = log.spans("orders")
                assert span.first < span.end
                with pytest.raises(DataLoss, match="offset"):
                    list(read(log, span, 0, span.end))
                assert sum(b.num_rows for b in read(log, span, span.first, span.end)) > 99


# -- a broker is at work there meanwhile ----------------------------------------------------------


@pytest.fixture
def data(places: dict[str, Where], tmp_path: Path) -> Path:
    """A copy of the data directory."""
    assert places["data"].path is not None
    shutil.copytree(places["data"].path, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_segment_that_has_nothing_yet(data: Path) -> None:
    """It was begun a moment ago: its checkpoint is not written."""
    lane = data / "orders" / "0"
    (lane / f"{COUNT:020d}.log").write_bytes(b"")
    (data / "new" / "0").mkdir(parents=True)
    (data / "new" / "0" / f"{0:020d}.log").write_bytes(b"")
    with Where(path=str(data)).open() as log:
        (span,) = log.spans("orders")
        assert sum(each.num_rows for each in read(log, span, 0, COUNT)) == COUNT
        with pytest.raises(UnknownTopic):
            log.spans("new")


class Removing(FileLog):
    """Whenever it has looked what there is, some of that is removed."""

    def __init__(self, path: Path, *names: str) -> None:
        super().__init__(str(path))
        self._names = list(names)

    def _directories(self) -> Iterator[tuple[Path, dict[int, list[Any]]]]:
        found = list(super()._directories())
        if self._names:
            gone = self._root / self._names.pop(0)
            shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
        yield from found


def test_what_goes_while_it_is_looked_at(data: Path) -> None:
    again = Path(shutil.copytree(data, data.with_name("again")))
    first, *_, last = sorted((data / "orders" / "0").iterdir())
    (span,) = FileLog(str(data)).spans("orders")
    with Removing(data, f"orders/0/{last.name}") as log:
        assert log.spans("orders")[0].first == 0
    with Removing(again, f"orders/0/{first.name}") as log:
        assert log.offset_at(span, 0) > 0
        assert log.time_at(span, 0) is None
    with Removing(data, "orders") as log, pytest.raises(UnknownTopic):
        log.spans("orders")
    with pytest.raises(DataLoss, match="orders was removed"):
        list(read(FileLog(str(data)), span, 0, 1))


def lose_a_shard(data: Path) -> None:
    shutil.rmtree(data / "shard=1")


def move(data: Path) -> None:
    (data / naming.SHARDS_MOVING).write_text("2")


@pytest.mark.parametrize(
    ("ruin", "text"), [(lose_a_shard, "shard=1 is missing"), (move, "on their way to 2 shards")]
)
def test_a_directory_of_another_shape(
    places: dict[str, Where], tmp_path: Path, ruin: Callable[[Path], None], text: str
) -> None:
    path = places[OF_WORKERS[1]].path
    assert path is not None
    copied = shutil.copytree(path, tmp_path / "copy")
    ruin(copied)
    with pytest.raises(Usage, match=text):
        Where(path=str(copied)).open()


@pytest.mark.parametrize(
    ("where", "problem", "text"),
    [
        (Where(), Usage, "either broker"),
        (Where(broker="a:1", path="b"), Usage, "either broker"),
        (Where(path="/nowhere/at/all"), Usage, "neither a data directory"),
        (Where(broker="ftp://x"), Usage, "is not of the form"),
        (Where(broker="127.0.0.1:1", token_file="/nowhere/t"), Usage, "cannot be read"),
    ],
)
def test_a_place_that_cannot_be(where: Where, problem: type[Exception], text: str) -> None:
    with pytest.raises(problem, match=text):
        where.open()


def test_a_broker_that_is_not_there() -> None:
    with pytest.raises(Unreachable, match=r"cannot be reached: .*Connection refused"):
        Where(broker="127.0.0.1:1", patience_s=0.2).open().topics()
    assert Where(broker="127.0.0.1:1").impatient().patience_s == 10
    assert Where(broker="127.0.0.1:1", patience_s=300).impatient().patience_s == 300


class Shrinking(MemoryLog):
    """Retention moves on when a piece was read."""

    def raw(self, span: Span, start: int, stop: int) -> Iterator[bytes]:
        for number, piece in enumerate(super().raw(span, start, stop)):
            if number == 1 and not self.first:
                self.first["orders", 0] = 40
                raise DataLoss("offset 5 is not there any more")
            yield piece


@pytest.mark.parametrize("fail", [True, False])
def test_retention_that_overtakes_a_read(fail: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Shrinking()
    for _ in range(10):
        log.put("orders", [b"x"] * 5)
    where = Where(broker="a:1")
    monkeypatch.setitem(reading._logs, (os.getpid(), where), log)
    wish = Wish(where=where, topics=("orders",), fail_on_data_loss=fail)
    found: list[int] = []
    rows = reading.read_part(wish, Part(log.spans("orders")[0], 0, 50), ["offset"], [])
    if fail:
        with pytest.raises(DataLoss):
            list(rows)
        return
    for each in rows:
        found += each["offset"].to_pylist()
    assert found[-10:] == list(range(40, 50))
    assert set(found[:-10]) <= set(range(5))
