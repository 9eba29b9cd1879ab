"""`zbus spark archive` as people call it: what it says, and its exit codes. Without Java."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from tests.docs.pages import DOCS
from tests.limits import WAIT_S
from tests.process.broker import BrokerProcess
from tests.process.endpoint import wait_for
from zbus.client import connect, errors
from zbus.spark import progress
from zbus.spark.archive import Archive
from zbus.spark.archive.command import archive
from zbus.spark.commands import Common, spark, takes

COUNT = 300
FEW = ("--set", "segment_bytes=65536")


class Place:
    """A data directory, and a place for archives of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.archive = folder / "archive"

    def run(self, *words: str) -> tuple[int, str]:
        """Exit code, and what was said on both outputs; `@` stands for the folder."""
        given = [word.replace("@", str(self.folder)) for word in words]
        found = CliRunner().invoke(spark, ["archive", *given])
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return found.exit_code, found.output

    def archived(self, *words: str) -> tuple[int, str]:
        """Archive all that there is."""
        here = ("--data-dir", "@/data", "--to", "@/archive", "--engine", "local")
        topics = () if {"--topics", "--pattern"} & set(words) else ("--pattern", ".*")
        return self.run(*here, *topics, *words)

    def document(self, *words: str) -> Any:
        code, said = self.run(*words, "--json")
        assert code == 0, said
        return json.loads(said)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a broker that has ended: `orders` with messages, `empty` without."""
    folder = tmp_path_factory.mktemp("command")
    with BrokerProcess(folder / "data") as broker:
        with connect(f"127.0.0.1:{broker.port}") as bus:
            bus.declare("orders")
            bus.declare("empty")
            for begin in range(0, COUNT, 50):
                bus.produce_many("orders", [b"%d" % n * 100 for n in range(begin, begin + 50)])
        broker.stop()
    return folder / "data"


@pytest.fixture
def place(data: Path, tmp_path: Path) -> Place:
    shutil.copytree(data, tmp_path / "data")
    return Place(tmp_path)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Place, BrokerProcess]]:
    """A broker that runs, with a place for archives of its directory."""
    with BrokerProcess(tmp_path / "data", *FEW) as broker:
        yield Place(tmp_path), broker


def put(broker: BrokerProcess, count: int, topic: str = "orders", **options: Any) -> None:
    with connect(f"127.0.0.1:{broker.port}") as bus:
        bus.declare(topic, **options)
        for begin in range(0, count, 50):
            bus.produce_many(topic, [b"%d" % n * 500 for n in range(begin, begin + 50)])


LOCAL = ("--data-dir", "@/data", "--to", "@/archive", "--engine", "local")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--topics", "orders"], 2, "--to DIR"),
        ([*LOCAL], 2, "say either --topics"),
        ([*LOCAL, "--topics", "orders", "--pattern", ".*"], 2, "say either --topics"),
        ([*LOCAL, "--pattern", "("], 2, "not a regular expression"),
        ([*LOCAL, "--topics", "nobody"], 2, "no topic nobody"),
        ([*LOCAL, "--topics", "orders", "--once", "--interval", "1s"], 2, "two things"),
        ([*LOCAL, "--topics", "orders", "--interval", "soon"], 2, "like 30s, 5m"),
        ([*LOCAL, "--topics", "orders", "--until", "yesterday"], 2, "it is like 24h (ago)"),
        ([*LOCAL, "--topics", "orders", "--file-bytes", "many"], 2, "256MiB"),
        ([*LOCAL, "--topics", "orders", "--file-bytes", "0"], 2, "more than 0"),
        ([*LOCAL, "--topics", "orders", "--rate", "fast"], 2, "20MiB/s"),
        ([*LOCAL, "--topics", "orders", "--bloom", "body"], 2, "only id and key"),
        ([*LOCAL, "--topics", "orders", "--engine", "x"], 2, "'x'"),
        ([*LOCAL, "--topics", "orders", "--threads", "0"], 2, "threads"),
        ([*LOCAL, "--nonsense"], 2, "nonsense"),
        ([*LOCAL[:2], "--engine", "local", "--to", "s3://b/c", "--topics", "orders"], 2, "object"),
        (["--data-dir", "@", *LOCAL[2:], "--topics", "orders"], 2, "neither a data directory"),
        (["--data-dir", "@/data", "--engine", "local", "--to", "@/file", "--topics", "orders"],
            1, "@/file: "),
        (["--broker", "here:x", *LOCAL[2:], "--topics", "orders"], 2, "broker"),
        (["--token-file", "@/none", *LOCAL[2:], "--topics", "orders"], 2, "@/none"),
        (["nonsense"], 2, "nonsense"),
        (["--dry-run", "expire", "@/data", "--before", "2030-01-01"], 2, "--dry-run stands before"),
        (["--dry-run", "vacuum", "@/data", "--older-than", "1h"], 2, "before vacuum"),
        (["--dry-run", "compact", "@/data"], 2, "before compact"),
        (["--broker", "127.0.0.1:1", "verify", "@/data", "--live"], 2, "--broker stands before"),
        (["--to", "@/archive", "info", "@/data"], 2, "--to stands before info"),
        (["--json", "verify", "@/data"], 2, "--json stands before"),
        (["verify", "@/data"], 2, "not an archive"),
        (["verify"], 2, "DIRECTORY"),
        (["compact", "@/nothing"], 2, "not an archive"),
        (["info", "s3://b/c"], 2, "object stores"),
        (["vacuum", "@/data", "--older-than", "1m"], 2, "--force"),
        (["vacuum", "@/data"], 2, "not an archive"),
        (["expire", "@/data"], 2, "--before"),
        (["expire", "@/data", "--before", "monday"], 2, "YYYY-MM-DD"),
    ],
)  # fmt: skip
def test_what_cannot_be(place: Place, words: list[str], code: int, said: str) -> None:
    (place.folder / "file").write_text("x")
    found = place.run(*words)
    assert found[0] == code, found
    assert said.replace("@", str(place.folder)) in found[1]
    assert not place.archive.exists()


def test_the_page_names_every_option() -> None:
    page = (DOCS / "reference/spark-archive.md").read_text("utf-8")
    shared = {param.name for param in _shared.params}
    for command in (archive, *archive.commands.values()):
        for param in command.params:
            if isinstance(param, click.Option) and param.name not in shared:
                assert param.opts[0] in page, (command.name, param.opts)


@click.command()
@takes()
def _shared(common: Common) -> None: ...


def test_a_life(place: Place) -> None:
    assert place.archived("--dry-run") == (
        0,
        f"orders, partition 0: offsets 0 to {COUNT}, {COUNT} messages would be archived\n",
    )
    assert not place.archive.exists()
    code, said = place.archived()
    assert (code, said.startswith(f"orders, partition 0: offsets 0 to {COUNT}")) == (0, True)
    assert place.archived() == (0, "there is nothing new\n")
    assert place.archived("--topics", "empty") == (0, "there is nothing new\n")
    files = Archive(place.archive).files()
    assert sum(file.rows for file in files) == COUNT
    assert place.run("info", "@/archive", "--files")[1].splitlines() == [
        each.path for each in files
    ]
    assert place.document("info", "@/archive", "--files", "--topics", "orders")[0]["rows"] == COUNT
    assert place.run("info", "@/archive", "--files", "--topics", "nobody")[0] == 2
    plain = ds.dataset([each.path for each in files]).to_table()
    assert (plain["offset"].to_pylist(), plain["topic"][0].as_py()) == ([*range(COUNT)], "orders")
    (lane,) = place.document("info", "@/archive", "--lag", "--data-dir", "@/data")
    assert (lane["messages"], lane["lag"], lane["gaps"]) == (COUNT, 0, [])
    checked = place.document("verify", "@/archive", "--live", "--data-dir", "@/data")
    assert (checked["compared"], checked["wrong"]) == (COUNT, [])
    assert place.document("compact", "@/archive") == []  # it is one file
    assert place.document("vacuum", "@/archive")["data"] == []
    (gone,) = place.document("expire", "@/archive", "--before", "2999-01-01")
    assert gone["messages"] == COUNT
    assert place.run("info", "@/archive") == (0, "")
    assert place.archived() == (0, "there is nothing new\n")
    removed = place.document("vacuum", "@/archive", "--older-than", "0s", "--force")
    assert len(removed["data"]) == 1
    assert place.document("verify", "@/archive")["messages"] == 0


def test_json_of_a_run(place: Place) -> None:
    code, said = place.archived("--json")
    found = json.loads(said)
    assert (code, found["planned"], found["messages"]) == (0, False, COUNT)
    assert [lane["topic"] for lane in found["lanes"]] == ["orders"]


def test_damage_ends_with_5(place: Place) -> None:
    place.archived()
    (file,) = Archive(place.archive).files()
    raw = bytearray(Path(file.path).read_bytes())
    raw[len(raw) // 2] ^= 1
    Path(file.path).write_bytes(raw)
    code, said = place.run("verify", "@/archive")
    assert (code, "1 things are wrong" in said) == (5, True)
    assert place.run("verify", "@/archive", "--quick")[0] == 0


def test_of_two_archivers_one_ends_with_4(place: Place) -> None:
    """The slow one has planned and not committed yet when the quick one begins."""
    words = [word.replace("@", str(place.folder)) for word in LOCAL]
    command = [sys.executable, "-m", "zbus.spark", "archive", *words, "--topics", "orders"]
    command += ["--rate", "40KiB/s"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as slow:
        try:
            assert wait_for(lambda: any(place.archive.glob("_delta_log/*.json")))
            assert place.archived()[0] == 0
            _, said = slow.communicate(timeout=WAIT_S)
        finally:
            slow.kill()
    assert (slow.returncode, b"another run" in said) == (4, True), said
    assert [file.rows for file in Archive(place.archive).files()] == [COUNT]
    removed = place.document("vacuum", "@/archive", "--older-than", "0s", "--force")
    assert len(removed["data"]) == 1  # of the slow one
    assert place.document("verify", "@/archive")["messages"] == COUNT


def test_a_topic_that_was_made_again_ends_with_3(live: tuple[Place, BrokerProcess]) -> None:
    place, broker = live
    here = ("--broker", f"127.0.0.1:{broker.port}", "--topics", "orders", *LOCAL[2:])
    put(broker, 100)
    assert place.run(*here)[0] == 0
    with connect(f"127.0.0.1:{broker.port}") as bus:
        bus.remove("orders")
    assert place.run(*here)[0] == 2  # it is not there
    put(broker, 50)
    code, said = place.run(*here)
    assert (code, "made again" in said) == (3, True), said
    code, said = place.run(*here, "--allow-loss")
    assert (code, "offsets 0 to 50" in said) == (0, True), said
    assert [file.rows for file in Archive(place.archive).files()] == [100, 50]
    assert place.document("verify", "@/archive")["messages"] == 150


def test_retention_that_was_faster_ends_with_3(live: tuple[Place, BrokerProcess]) -> None:
    place, broker = live
    here = ("--broker", f"127.0.0.1:{broker.port}", "--topics", "orders", *LOCAL[2:])
    put(broker, 50, retention_count=100)
    assert place.run(*here)[0] == 0
    assert wait_for(lambda: _first(place, broker) > 50)
    assert wait_for(lambda: _kept(broker) == 100), "retention goes on"
    code, said = place.run(*here)
    assert (code, "before they were archived" in said) == (3, True), said
    assert [file.end for file in Archive(place.archive).files()] == [50]
    code, said = place.run(*here, "--allow-loss")
    assert (code, "offsets 50 to" in said) == (0, True), said
    first, second = Archive(place.archive).files()
    ((gap,),) = (lane.gaps for lane in Archive(place.archive).lanes())
    assert (first.end, gap.start, gap.end) == (50, 50, second.start)
    assert place.document("verify", "@/archive")["wrong"] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_goes_on_for_ever_is_stopped_in_order(place: Place, number: signal.Signals) -> None:
    words = [word.replace("@", str(place.folder)) for word in LOCAL]
    command = [sys.executable, "-m", "zbus.spark", "archive", *words, "--topics", "orders"]
    with subprocess.Popen([*command, "--interval", "1h"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"orders, partition 0: offsets 0 to 300" in process.stdout.readline()
        process.send_signal(number)
        assert process.wait(WAIT_S) == 0
    assert place.document("verify", "@/archive")["messages"] == COUNT


def _kept(broker: BrokerProcess) -> int:
    """How many messages there are."""
    from zbus.spark.source.location import Where

    with Where(broker=f"127.0.0.1:{broker.port}").open() as log:
        (span,) = log.spans("orders")
        return span.end - span.first


def _first(place: Place, broker: BrokerProcess) -> int:
    """After more has come, the oldest offset that there is."""
    from zbus.spark.source.location import Where

    put(broker, 500, retention_count=100)
    with Where(broker=f"127.0.0.1:{broker.port}").open() as log:
        return log.spans("orders")[0].first


def test_a_lock_needs_a_broker(place: Place) -> None:
    code, said = place.archived("--retention-lock")
    assert (code, "needs a broker" in said) == (2, True), said


def test_retention_waits_for_the_archive(live: tuple[Place, BrokerProcess]) -> None:
    """Nothing that is not archived goes, though ten times of what may stay is stored; what is
    archived does go."""
    place, broker = live
    put(broker, 50, retention_count=10)
    url = f"127.0.0.1:{broker.port}"
    words = ["--broker", url, "--to", "@/archive", "--engine", "local", "--topics", "orders"]
    words.append("--retention-lock")
    assert place.run(*words, "--dry-run")[0] == 0
    with connect(url) as bus:

        def forgotten(topic: str) -> bool:
            try:
                bus.read(topic, offset=50, count=1)
            except errors.NotFound:
                return True
            return False

        assert [group.name for group in bus.query("orders").groups] == ["orders"]
        assert place.run(*words)[0] == 0
        [lock] = [group for group in bus.query("orders").groups if group.retain]
        assert lock.name.startswith("archive-")
        assert lock.message_count == 0
        for topic in ("orders", "control"):
            put(broker, 1_000, topic, retention_count=10)
        assert wait_for(lambda: forgotten("control")), "retention goes on"
        assert bus.read("orders", offset=50, count=1)[0].offset == 50
        assert bus.query("orders", lock.name).skipped_count == 0
        code, said = place.run(*words)
        assert (code, "offsets 50 to 1050, 1000 messages" in said) == (0, True), said
        put(broker, 50)
        assert wait_for(lambda: forgotten("orders")), "what is archived may go"
    assert place.run("verify", "@/archive")[0] == 0


def test_a_bar_if_somebody_looks(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr, of what reads much; gone when that is done."""
    assert place.archived("--file-bytes", "5KiB")[0] == 0
    seen: list[tuple[str, int]] = []

    class Bar:
        def __init__(self, _: object, what: str) -> None:
            self.what = what

        def begin(self, total: int) -> None:
            seen.append((f"{self.what}, of", total))

        def advance(self, done: int) -> None:
            seen.append((self.what, done))

    monkeypatch.setattr(progress, "_Bar", Bar)
    monkeypatch.setattr(progress, "_somebody_looks", lambda _: True)
    for command in ("verify", "compact"):
        assert place.run(command, "@/archive")[0] == 0
    files = sum(1 for _ in place.archive.rglob("*.parquet")) - 1
    verified = [("verified, of", files), *[("verified", 1)] * files]
    assert seen == [*verified, ("compacted, of", 1), ("compacted", 1)]
