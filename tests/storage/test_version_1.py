"""A data directory of version 1 is read, verified, backed up, repaired, and written on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from tests.simulation import torn_tails
from tests.storage import damage, version_1
from tests.storage.damage import VERSION_1
from tests.storage.support import Loop
from zbus.cli import main
from zbus.core.cursor.state import TOMBSTONE_MS, StateChange
from zbus.core.dedup.window import DedupWindow, key_name
from zbus.core.model.chunk import Chunk
from zbus.core.model.message import Message
from zbus.core.persistence.replay import recover
from zbus.core.topics.delta import snapshot
from zbus.dialects.zbus.request.batch_formats import headers_of
from zbus.storage.format.batch import Kind, decode_chunk, iterate
from zbus.storage.local.files import OsFiles
from zbus.storage.port import Journal, JournalError, Lane
from zbus.storage.tools.checkup import check_up
from zbus.storage.tools.placeholders import LOST_LINE
from zbus.testing import disk as simulated
from zbus.testing.engines import Writer, stored_lanes
from zbus.wire.target import encode_header_value

EXPECTED = json.loads((VERSION_1 / "expected.json").read_text(encoding="utf-8"))
NOW_MS: int = EXPECTED["now_ms"]
LANES: dict[Lane, dict[str, Any]] = {
    (lane["topic"], lane["partition"]): lane for lane in EXPECTED["lanes"]
}

Found = dict[tuple[str, int, int], list[Any]]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    shutil.copytree(VERSION_1 / "log", tmp_path / "data")
    return tmp_path / "data"


def as_text(value: Any) -> Any:
    """As JSON has it; each byte is the character of its number."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {name: as_text(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_text(one) for one in value]
    return value


def row(offset: int, m: Message) -> list[Any]:
    columns = (m.id, m.tag, m.key, m.headers, m.body, m.produced_ms, m.due_ms, m.expires_ms, m.once)
    return as_text([offset, *columns])


def expected() -> Found:
    return {(*lane, one[0]): one for lane, known in LANES.items() for one in known["messages"]}


def messages(data_dir: Path) -> Found:
    """All that the segments hold, whatever the version."""
    return {
        (topic, int(partition), offset): row(offset, message)
        for (topic, partition, offset), message in damage.intact(data_dir).items()
    }


LATER = {
    "attempts_max",
    "backoff_ms",
    "backoff_max_ms",
    "dead_letter",
    "on_loss",
    "order",
    "one_batch",
    "rate_per_s",
    "settled_ms",
    "minimal_headers",
    "notes",
    "unclaimed",
    "compact",
    "dedupe_live",
    "attempts_kept",
    "retain",
    "push",
    "schema",
    "grown",
    "compact_tombstone_ms",
}
"""Options that there were not yet."""


def options(known: dict[str, Any]) -> dict[str, Any]:
    """With the names that they had then, and without later ones."""
    names = {
        "opaque": "mask",
        "calls": "rpc",
        "temporary": "delete_on_exit",
    }
    assert all(known.get(name) in (None, 0, "", "keep", (), TOMBSTONE_MS) for name in LATER)
    plain = {names.get(name, name): known[name] for name in known if name not in LATER}
    return {**plain, "mask": json.loads(plain["mask"] or b"0")}


def state(change: StateChange) -> Any:
    """As it was written down with version 1, where what is delayed were entries like all others."""
    plain = attrs.asdict(attrs.evolve(change, originals=()), recurse=True)
    assert not change.ids
    del plain["ids"], plain["expiries"]
    for later in ("incarnation", "number", "emptied", "purges", "completions", "completed"):
        assert not plain.pop(later)
    for group, known in zip(plain["groups"], change.groups, strict=True):
        del group["delayed"]
        assert not group.pop("incarnation")
        assert not group.pop("dead")
        group["untold"] = group.pop("unreported")
        del group["fates"]
        assert not known.fates
        assert not group.pop("origin")
        entries = [attrs.asdict(entry) for entry in known.entries]
        handed_out = {entry["offset"] for entry in entries}  # and then delayed
        delayed = [
            {"offset": 256 * page + key % 256, "state": 3, "time_ms": key // 256}
            | {"attempts": 0, "rank": 0}
            for page, keys in known.delayed.each()
            for key in keys
            if 256 * page + key % 256 not in handed_out
        ]
        group["entries"] = sorted([*entries, *delayed], key=itemgetter("offset"))
        group["options"] = options(group["options"])
    plain["topic"] = options(plain["topic"])
    return as_text({**plain, "originals": list(map(list, change.originals))})


def chunks(loop: Loop, journal: Journal, lane: Lane, offset: int = 0) -> list[Chunk]:
    """What an engine gives of a lane, read in small portions."""
    found: list[Chunk] = []
    while data := loop.read(journal, lane, offset, 2_000):
        found += [decode_chunk(batch) for batch in iterate(data)]
        offset = found[-1].end
    return found


def run(*args: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(map(str, args)))
    return result.exit_code, result.stdout


def versions(data_dir: Path) -> dict[str, set[tuple[int, Kind]]]:
    """Of the batches in the newest segments."""
    return {
        "/".join(lane.relative_to(data_dir).parts): {
            (batch.header.version, batch.header.kind)
            for batch in iterate(max(lane.glob("*.log")).read_bytes())
        }
        for lane in data_dir.glob("*/*")
        if lane.name.isdigit()
    }


@pytest.mark.parametrize("landmarks", [True, False])
def test_everything_is_there(data_dir: Path, landmarks: bool) -> None:
    if not landmarks:
        (data_dir / "landmarks").unlink()
    loop = Loop()
    journal = loop.local(data_dir)
    topics, _ = recover(journal)
    lanes = {(topic.name, one.index): one for topic in topics for one in topic.partitions}
    assert lanes.keys() == LANES.keys()
    for lane, known in LANES.items():
        assert (lanes[lane].end, lanes[lane].stored.last_crc) == (
            known["end"],
            known["last_crc"],
        )
        for group in known["state"]["groups"]:
            group["entries"].sort(key=itemgetter("offset"))
        assert state(snapshot(lanes[lane], NOW_MS)) == known["state"]
        found = [
            row(offset, message)
            for chunk in chunks(loop, journal, lane)
            for offset, message in enumerate(chunk.messages(), chunk.first)
        ]
        assert found == known["messages"]
    journal.close()


def test_equal_headers_are_shared(data_dir: Path) -> None:
    loop = Loop()
    journal = loop.local(data_dir)
    (chunk,) = [one for one in chunks(loop, journal, ("orders", 1)) if len(one) == 60]
    assert len(set(map(id, chunk.headers))) == len(set(chunk.headers)) == 2
    assert chunk.once is not None
    assert sorted(filter(None, chunk.once)) == [b"p-%d" % n for n in range(0, 60, 10)]
    journal.close()


def test_it_verifies(data_dir: Path) -> None:
    assert run("verify", "--data-dir", data_dir)[0] == 0
    segments = [one for lane in check_up(OsFiles(), data_dir).lanes for one in lane.segments]
    assert sum(one.messages for one in segments) == len(expected())


def test_a_backup_of_it_is_restored(data_dir: Path, tmp_path: Path) -> None:
    backup, new = tmp_path / "backup", tmp_path / "new"
    assert run("backup", "--data-dir", data_dir, backup)[0] == 0
    assert run("verify", "--backup", backup)[0] == 0
    assert run("restore", backup, "--data-dir", new)[0] == 0
    assert messages(new) == expected()
    assert run("verify", "--data-dir", new)[0] == 0


def go_on(data_dir: Path) -> None:
    """Some more of everything, in all partitions."""
    disk = damage.Disk(data_dir, segment_bytes=1 << 20)
    disk.world.now_ms = NOW_MS
    for topic, partition in LANES:
        place = f"/{topic}?partition={partition}"
        for number in range(3):
            assert disk.get(f"{place}&cmd=produce", body=b"more %d" % number)[0] == 200
        batch = ("content-type: application/x-ndjson", "idempotency-key: again")
        assert disk.get(f"{place}&cmd=produce", *batch, body=b"a\nb\n" * 10)[0] == 200
    # What version 1 remembers is a duplicate still.
    place = "/orders?cmd=produce&partition=1"
    status, headers, _ = disk.get(place, "idempotency-key: k-2", body=b"once, quoted")
    assert (status, headers["duplicate"]) == (200, "1")
    assert disk.get(place, "idempotency-key: p-50", body=b"other")[0] == 422
    assert disk.get("/ids?cmd=produce&id=n-2", body=b"id 2")[1]["duplicate"] == "1"
    # A lease of then ends now, and what was put back and delayed by a day is due a day later.
    offset = LANES["rolled", 0]["end"]
    while (reply := disk.get("/rolled?cmd=consume&timeout=0"))[0] == 200:
        assert disk.get(f"/rolled?cmd=ack&offset={reply[1]['offset']}")[0] == 200
        offset = int(reply[1]["offset"])
    assert offset > LANES["rolled", 0]["end"]
    disk.close()


def test_it_is_written_on(data_dir: Path) -> None:
    before = versions(data_dir)
    assert {version for lane in before.values() for version, _ in lane} == {1}
    go_on(data_dir)
    for lane, found in versions(data_dir).items():
        assert (2, Kind.DATA) in found, lane
        assert (1, Kind.CHECKPOINT) in found, f"{lane} goes on in the segment of version 1"
    now = messages(data_dir)
    assert {key: now[key] for key in expected()} == expected()
    topics = {topic for topic, _ in LANES}  # a topic takes each of the batches once
    assert len(now) == len(expected()) + 3 * len(LANES) + 20 * len(topics)
    assert run("verify", "--data-dir", data_dir)[0] == 0


def test_it_is_opened_again(data_dir: Path, tmp_path: Path) -> None:
    go_on(data_dir)
    found = messages(data_dir)
    for attempt in range(2):
        loop = Loop()
        journal = loop.local(data_dir)
        topics, _ = recover(journal)
        for topic in topics:
            for one in topic.partitions:
                read = chunks(loop, journal, (topic.name, one.index))
                assert read[-1].end == one.end
                assert sum(map(len, read)) == len(
                    [1 for name, index, _ in found if (name, index) == (topic.name, one.index)]
                )
        journal.close()
        backup = tmp_path / f"backup-{attempt}"
        assert run("backup", "--data-dir", data_dir, backup)[0] == 0
        assert run("restore", backup, "--data-dir", tmp_path / f"new-{attempt}")[0] == 0
        assert messages(tmp_path / f"new-{attempt}") == found
        (data_dir / "landmarks").unlink()


def test_a_hole_in_it_is_filled(data_dir: Path) -> None:
    """The filling is of version 2, what is around it stays as it was."""
    path = data_dir / "orders/1/00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[data.index(b"once, quoted")] ^= 1
    path.write_bytes(data)
    lost = [key for key, one in expected().items() if one[5] == "once, quoted"]
    assert run("verify", "--data-dir", data_dir)[0] == 1
    assert run("verify", "--data-dir", data_dir, "--repair")[0] == 4
    assert run("verify", "--data-dir", data_dir)[0] == 0
    found = messages(data_dir)
    for key, one in expected().items():
        if key in lost:
            assert found[key][4] == as_text(LOST_LINE)
        else:
            assert found[key] == one
    assert found.keys() == expected().keys()
    disk = damage.Disk(data_dir)
    assert disk.get("/orders?cmd=produce&partition=1", body=b"more")[0] == 200
    disk.close()


def on_a_disk() -> simulated.Disk:
    disk = simulated.Disk()
    root = torn_tails.DATA
    disk.make_directory(root)
    for path in sorted((VERSION_1 / "log").rglob("*")):
        target = root / path.relative_to(VERSION_1 / "log")
        if path.is_dir():
            disk.make_directory(target)
        else:
            disk.write_file(target, path.read_bytes())
    file = disk.open(root / "landmarks", "read")
    disk.sync_all(file)
    disk.close(file)
    return disk


def bodies(opened: torn_tails.Opened, lane: Lane) -> list[bytes]:
    """Of a lane, from its first offset on."""
    offset, found = 0, list[bytes]()
    while True:
        answers: list[bytes | JournalError] = []
        opened.journal.read(lane, offset, 1 << 20, answers.append)
        opened.run()
        (answer,) = answers
        assert isinstance(answer, bytes), answer
        if not answer:
            return found
        for batch in iterate(answer):
            chunk = decode_chunk(batch)
            found += chunk.bodies
            offset = chunk.end


def check_after_a_crash(
    disk: simulated.Disk, written: dict[Lane, list[bytes]], durable: dict[Lane, int]
) -> None:
    """Each lane has what it had and a beginning of what was written, all that was synced in it."""
    opened = torn_tails.Opened(disk)
    topics, _ = recover(opened.journal)
    for topic in topics:
        for one in topic.partitions:
            lane = (topic.name, one.index)
            found = bodies(opened, lane)
            assert found == written[lane][: len(found)]
            assert len(found) >= durable[lane]
    opened.journal.close()
    opened.run()


@pytest.mark.parametrize("seed", range(6))
def test_the_power_fails_while_it_is_written_on(seed: int) -> None:
    random = Random(seed)
    disk = on_a_disk()
    opened = torn_tails.Opened(disk)
    stored_lanes(opened.journal)
    writers = {lane: Writer(lane, one["last_crc"], one["end"]) for lane, one in LANES.items()}
    written = {
        lane: [one[5].encode("latin-1") for one in known["messages"]]
        for lane, known in LANES.items()
    }
    durable = {lane: len(known) for lane, known in written.items()}
    for number in range(30):
        lane = random.choice(sorted(LANES))
        more = [b"%d " % number * random.randrange(400) for _ in range(random.randrange(1, 5))]
        written[lane] += more
        append(opened, writers[lane], more)
        if random.random() < 0.3:
            opened.journal.commit(list(LANES), True, lambda _: None)
            if random.random() < 0.7:
                opened.run()
                durable = {lane: len(known) for lane, known in written.items()}
        if random.random() < 0.1:
            opened.upkeep()
            durable = {lane: len(known) for lane, known in written.items()}
        check_after_a_crash(disk.crash(random), written, durable)


def append(opened: torn_tails.Opened, writer: Writer, more: Sequence[bytes]) -> None:
    writer.append(opened.journal, lambda: writer.data(*more) + writer.state(1))


def test_a_key_is_what_it_was() -> None:
    """Version 1 stored a header line: what is sent again is recognised, and delivered alike."""
    key = encode_header_value(b"a%41")
    lines = b"idempotency-key: %b\r\nx: y\r\n" % key
    raw = version_1.encode_messages(7, [Message(b"id", headers=lines, body=b"x")], NOW_MS, 0)
    chunk = decode_chunk(raw)
    assert chunk.once == [key] == [b"a%2541"]
    assert headers_of(chunk, 0) == b"idempotency-key: a%41\r\nx: y\r\n"
    originals = DedupWindow()
    originals.note(chunk, ids=False)
    assert originals.find(key_name(key)) is not None
