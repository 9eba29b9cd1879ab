"""What `verify` says of one damage each, and what a repair makes of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.damage import Disk, Dying, Killed, intact, places, started, write_logs
from tests.storage.support import Loop
from tests.storage.test_repair_property import content, in_quarantine, pending
from zbus.core.cursor.state import GroupChange, GroupOptions, StateChange, TopicOptions
from zbus.storage.format.batch import (
    HEADER_BYTES,
    SNAPSHOT,
    Kind,
    check,
    decode_chunk,
)
from zbus.storage.format.checkpoint import decode_change, encode_change
from zbus.storage.local import naming
from zbus.storage.local.files import OsFiles
from zbus.storage.local.high_water_marks import HighWaterMark, HighWaterMarks
from zbus.storage.port import JournalError
from zbus.storage.tools import placeholders as filler
from zbus.storage.tools.checkup import as_json, check_up, hold
from zbus.testing.engines import Writer, recovered

FILES = OsFiles()
LANE = Path("orders/0")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("logs") / "data"
    write_logs(data_dir, messages=60)
    return data_dir


@pytest.fixture
def data_dir(logs: Path, tmp_path: Path) -> Path:
    shutil.copytree(logs, tmp_path / "data")
    return tmp_path / "data"


def segments(data_dir: Path) -> list[Path]:
    return sorted((data_dir / LANE).glob("*.log"))


def spoil(path: Path, start: int, stop: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    stop = start + 1 if stop is None else stop
    data[start:stop] = bytes(byte ^ 0x55 for byte in data[start:stop])
    path.write_bytes(data)


def batches_of(data_dir: Path, path: Path, kind: Kind) -> list[tuple[int, int, int, int]]:
    return [
        (start, stop, first, end)
        for file, start, stop, found, first, end in places(data_dir)
        if (file, found) == (path, kind)
    ]


def test_in_order(data_dir: Path) -> None:
    before = content(data_dir)
    for repair in (False, True):
        result = check_up(FILES, data_dir, repair)
        assert (result.damaged, result.repaired, result.left) == (False, False, [])
    assert content(data_dir) == before
    told = as_json(result)["partitions"]
    assert [lane["messages"] for lane in told] == [
        sum(1 for t, p, _ in intact(data_dir) if (t, p) == (lane["topic"], str(lane["partition"])))
        for lane in told
    ]


def test_every_byte_is_read(data_dir: Path) -> None:
    read: list[int] = []
    check_up(FILES, data_dir, progress=read.append)
    assert sum(read) == sum(path.stat().st_size for path in data_dir.glob("*/*/*.log"))


def test_one_bit_loses_one_batch(data_dir: Path) -> None:
    original = intact(data_dir)
    path = segments(data_dir)[1]
    start, stop, first, end = batches_of(data_dir, path, Kind.DATA)[3]
    whole = path.read_bytes()
    spoil(path, stop - 9)
    result = check_up(FILES, data_dir, repair=True)
    [lane] = [lane for lane in as_json(result)["partitions"] if lane["damage"]]
    [hole] = lane["damage"]
    assert hole == {
        "file": str(path),
        "start": start,
        "stop": stop,
        "first_offset": first,
        "end_offset": end,
        "reason": "checksum is wrong",
    }
    assert result.repaired
    repaired = path.read_bytes()
    assert repaired.startswith(whole[:start])
    assert repaired.endswith(whole[stop:])
    served = intact(data_dir)
    changed = [place for place in original if served[place] != original[place]]
    assert changed == [("orders", "0", offset) for offset in range(first, end)]
    for place in changed:
        message = served[place]
        assert message.id == b"lost-%d" % place[2]
        assert (message.headers, message.body) == (filler.LOST_LINE, b"")
    again = as_json(check_up(FILES, data_dir))["partitions"]
    assert [lane["replaced"] for lane in again] == [0, end - first, 0]


def test_one_bit_of_a_large_batch(tmp_path: Path) -> None:
    """Of more than 4 KiB, by one message and by many put in one tick."""
    data_dir = tmp_path / "data"
    disk = Disk(data_dir, segment_bytes=1 << 20)
    disk.get("/orders?cmd=declare")
    disk.get("/orders?cmd=produce", body=b"x" * 9_000)
    lines = "content-type: application/x-ndjson"
    disk.get("/orders?cmd=produce", lines, body=b"\n".join([b"line %d" % n for n in range(900)]))
    disk.get("/orders?cmd=produce", body=b"the last")
    disk.close()
    (path,) = segments(data_dir)
    whole = path.read_bytes()
    large = [one for one in batches_of(data_dir, path, Kind.DATA) if one[1] - one[0] > 4_096]
    assert [end - first for _, _, first, end in large] == [1, 900]
    for start, stop, first, end in large:
        for position in (start + 1, start + HEADER_BYTES, (start + stop) // 2, stop - 9):
            path.write_bytes(whole)
            spoil(path, position)
            [lane] = as_json(check_up(FILES, data_dir))["partitions"]
            [hole] = lane["damage"]
            found = hole["start"], hole["stop"], hole["first_offset"], hole["end_offset"]
            assert found == (start, stop, first, end)


def test_a_consumer_is_told(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "data", 1 << 20)
    disk.get("/T?cmd=declare")
    for number in range(3):
        disk.get("/T?cmd=produce", f"id: m-{number}", body=b"body %d" % number)
    disk.close()
    [path] = (tmp_path / "data").glob("T/0/*.log")
    spoil(path, path.read_bytes().index(b"body 1"))
    assert check_up(FILES, tmp_path / "data", repair=True).repaired
    disk = Disk(tmp_path / "data", 1 << 20)
    got = [disk.get("/T?cmd=consume&timeout=1") for _ in range(3)]
    assert [body for _, _, body in got] == [b"body 0", b"", b"body 2"]
    assert [headers.get("content-lost") for _, headers, _ in got] == [None, "damage", None]
    status, _, _ = disk.get("/T?cmd=produce", body=b"more")
    assert status == 200
    disk.close()


def test_no_ack_that_is_lost_becomes_a_lost_message(data_dir: Path) -> None:
    """Each state batch of the newest segment in turn: what was to be done stays to be done."""
    wanted = pending(data_dir)
    path = segments(data_dir)[-1]
    whole = path.read_bytes()
    for start, stop, _, _ in batches_of(data_dir, path, Kind.STATE)[:-1]:
        spoil(path, stop - 9)
        assert check_up(FILES, data_dir, repair=True).repaired
        for place, waiting in pending(data_dir).items():
            assert wanted[place] <= waiting, start
        path.write_bytes(whole)


def test_a_lost_checkpoint_is_made_from_the_segment_before(data_dir: Path) -> None:
    wanted = pending(data_dir)
    path = segments(data_dir)[-1]
    spoil(path, 60)
    assert check_up(FILES, data_dir, repair=True).repaired
    assert pending(data_dir) == wanted


def test_the_only_checkpoint_is_made_from_other_partitions(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "data", 1 << 20)
    disk.get("/T?cmd=declare&partitions=2")
    disk.get("/T/g?cmd=declare&group_mask=64&group_filter=a.*")
    for number in range(8):
        disk.get("/T?cmd=produce", "tag: a.b", f"key: {number}", body=b"x")
        disk.get("/T/g?cmd=consume&timeout=1")
    disk.close()
    before = {topic.name: topic for topic in started(tmp_path / "data")}
    wanted = pending(tmp_path / "data")
    spoil(tmp_path / "data/T/1/00000000000000000000.log", 60)
    assert check_up(FILES, tmp_path / "data", repair=True).repaired
    [topic] = started(tmp_path / "data")
    assert topic.options == before["T"].options
    assert topic.groups["g"].options == before["T"].groups["g"].options
    for place, waiting in pending(tmp_path / "data").items():
        assert wanted[place] <= waiting


def test_a_topic_nobody_knows_any_more(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "data", 1 << 20)
    disk.get("/a%20name?cmd=declare")
    disk.get("/a%20name/g?cmd=declare&group_mask=64")
    for number in range(4):
        disk.get("/a%20name?cmd=produce", body=b"%d" % number)
    disk.get("/a%20name/g?cmd=consume&timeout=1")
    disk.close()
    [path] = (tmp_path / "data").glob("*/0/*.log")
    spoil(path, 60)
    assert check_up(FILES, tmp_path / "data", repair=True).repaired
    [topic] = started(tmp_path / "data")
    assert topic.name == naming.topic_of(path.parent.parent.name)
    assert pending(tmp_path / "data")[topic.name, "g", 0] == {0, 1, 2, 3}


def test_a_name_that_only_the_checkpoint_knew(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "data", 1 << 20)
    disk.get(f"/{'%C3%BC' * 50}?cmd=declare")
    disk.get(f"/{'%C3%BC' * 50}?cmd=produce", body=b"1")
    disk.close()
    [path] = (tmp_path / "data").glob("*/0/*.log")
    assert "~" in path.parent.parent.name
    before = path.read_bytes()
    spoil(path, 60)
    spoiled = path.read_bytes()
    result = check_up(FILES, tmp_path / "data", repair=True)
    assert not result.repaired
    assert "no file tells which topic this is" in result.left[0]
    assert path.read_bytes() == spoiled != before


@pytest.mark.parametrize("tail", [b"x", bytes(8), bytes(4096), b"zbus" * 20])
def test_an_unfinished_write_is_no_damage(data_dir: Path, tail: bytes) -> None:
    path = segments(data_dir)[-1]
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + tail)
    before = content(data_dir)
    result = check_up(FILES, data_dir, repair=True)
    assert not result.damaged
    assert content(data_dir) == before
    [told] = [lane["unfinished"] for lane in as_json(result)["partitions"] if lane["unfinished"]]
    assert told == [{"file": str(path), "start": size, "stop": size + len(tail)}]


def test_a_segment_whose_making_was_cut_short(data_dir: Path) -> None:
    path = data_dir / LANE / naming.segment_name(10_000)
    path.write_bytes(segments(data_dir)[-1].read_bytes()[:50])
    result = check_up(FILES, data_dir, repair=True)
    assert not result.damaged
    assert result.lanes[1].unfinished_files == [path]


def test_a_segment_of_nothing_alone_keeps_its_offsets(tmp_path: Path) -> None:
    path = tmp_path / LANE / naming.segment_name(500)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"zeros" * 100)
    result = check_up(FILES, tmp_path, repair=True)
    assert result.repaired
    assert in_quarantine(tmp_path, b"zeros" * 100)
    [topic] = started(tmp_path)
    assert (topic.name, topic.partitions[0].end) == ("orders", 500)


def opens(data_dir: Path) -> bool:
    journal = Loop().local(data_dir)
    try:
        return bool(recovered(journal))
    finally:
        journal.close()


def as_segment(data_dir: Path, *batches: bytes) -> Path:
    path = data_dir / LANE / naming.segment_name(0)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(batches))
    return path


def no_state(writer: Writer) -> bytes:
    return writer.seal(Kind.STATE, b"\x05\0\0\0{]}..")


def nameless(writer: Writer) -> bytes:
    return writer.seal(Kind.CHECKPOINT, encode_change(StateChange(None, ())))


def twice(writer: Writer) -> bytes:
    raw = writer.data(b"x")
    return raw + raw


def jumping(writer: Writer) -> bytes:
    writer.end += 5
    return writer.data(b"x")


def from_before(writer: Writer) -> bytes:
    writer.end -= 1
    return writer.data(b"x")


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        (no_state, "state: "),
        (twice, "does not follow the batch before"),
        (jumping, "holds offsets from 6, not from 1"),
        (from_before, "holds offsets from 0, not from 1"),
        (lambda writer: writer.checkpoint(), "has only that one"),
    ],
)
def test_whole_batches_that_make_no_sense(
    tmp_path: Path, odd: Callable[[Writer], bytes], says: str
) -> None:
    writer = Writer()
    as_segment(tmp_path, writer.checkpoint(), writer.data(b"a"), odd(writer), writer.data(b"b"))
    assert says in check_up(FILES, tmp_path).left[0]
    assert check_up(FILES, tmp_path, repair=True).repaired
    bodies = [message.body for message in intact(tmp_path).values()]
    assert bodies[0] == b"a"
    assert opens(tmp_path)


def test_a_first_batch_without_a_name(tmp_path: Path) -> None:
    writer = Writer()
    as_segment(tmp_path, nameless(writer), writer.data(b"a"))
    assert "names no topic" in check_up(FILES, tmp_path).left[0]
    assert check_up(FILES, tmp_path, repair=True).repaired
    assert [topic.name for topic in started(tmp_path)] == ["orders"]


def test_a_body_that_holds_a_log_is_not_taken_for_one(tmp_path: Path) -> None:
    """Its batch has a bad checksum; what is inside it is chained to nothing."""
    writer = Writer()
    start = [writer.checkpoint(), writer.data(b"a")]
    inner = Writer(last=writer.last, end=1)
    log = inner.data(b"evil") + inner.data(b"evil")
    outer = writer.data(log + b"end")
    path = as_segment(tmp_path, *start, outer, writer.data(b"b"))
    spoil(path, path.read_bytes().index(b"end"))
    assert check_up(FILES, tmp_path, repair=True).repaired
    assert [message.body for message in intact(tmp_path).values()] == [b"a", b"", b"b"]


def test_stale_landmarks_go_with_the_first_repair(data_dir: Path) -> None:
    landmarks = data_dir / naming.LANDMARKS
    landmarks.write_bytes(b"ends there")
    check_up(FILES, data_dir, repair=True)
    assert landmarks.exists()
    spoil(segments(data_dir)[0], 200)
    check_up(FILES, data_dir, repair=True)
    assert not landmarks.exists()
    assert in_quarantine(data_dir, b"ends there")


def test_other_files_are_told_of_and_left(data_dir: Path) -> None:
    letter, torn = data_dir / "letter.txt", data_dir / LANE / "00000000000000000000.log.torn"
    letter.write_text("dear")
    torn.write_text("half")
    told = as_json(check_up(FILES, data_dir, repair=True))
    assert told["other_files"] == [str(letter)]
    assert told["partitions"][1]["other_files"] == [str(torn)]


def test_a_repair_that_is_killed_is_finished_by_the_next(logs: Path, tmp_path: Path) -> None:
    spoiled = tmp_path / "spoiled"
    shutil.copytree(logs, spoiled)
    first, second, third = segments(spoiled)[:3]
    spoil(first, 900, 1500)
    two, three = second.read_bytes(), third.read_bytes()
    second.write_bytes(three)
    third.write_bytes(two)
    (spoiled / naming.LANDMARKS).write_bytes(b"ends there")
    bad = first.read_bytes()[900:1500]
    straight = tmp_path / "straight"
    shutil.copytree(spoiled, straight)
    check_up(FILES, straight, repair=True)
    wanted = intact(straight)
    for last in range(1, 1000):
        data_dir = tmp_path / "data"
        shutil.copytree(spoiled, data_dir)
        try:
            check_up(Dying(last), data_dir, repair=True)
            done = True
        except Killed:
            done = False
        check_up(FILES, data_dir, repair=True)
        assert not check_up(FILES, data_dir).damaged
        assert intact(data_dir) == wanted
        assert in_quarantine(data_dir, bad)
        assert not (data_dir / naming.LANDMARKS).exists()
        shutil.rmtree(data_dir)
        if done:
            break
    assert done


def test_a_data_directory_in_use_is_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.get("/T?cmd=declare")
    with pytest.raises(JournalError, match=r"in use by another process .*stop the broker"):
        check_up(FILES, tmp_path)
    disk.close()
    assert not check_up(FILES, tmp_path).damaged


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    for path, says in (
        (tmp_path, "not a data directory"),
        (tmp_path / "nowhere", "cannot open"),
        (tmp_path / "letter", "cannot open"),
    ):
        with pytest.raises(JournalError, match=says), hold(FILES, path):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


@pytest.mark.parametrize("crc", [0, 1, 0x80000000, 0xDEADBEEF, 0xFFFFFFFF])
@pytest.mark.parametrize("end", [5, 9, 10, 99, 12_345_678_901])
def test_a_mark_has_any_checksum(crc: int, end: int) -> None:
    raw = filler.mark(5, end, 1000, 77, crc)
    header = check(raw)
    assert (header.crc, header.previous_crc, header.base_offset) == (crc, 77, end)
    assert decode_change(raw[HEADER_BYTES:]) == StateChange(None)
    assert filler.is_loss(raw) == end - 5


def test_a_filling_of_many_batches() -> None:
    found = list(filler.lost_messages(3, 40_003, 1000, 77))
    ids = [id for batch in found for id in decode_chunk(batch).ids]
    assert ids == [b"lost-%d" % offset for offset in range(3, 40_003)]
    assert len(found) == 3


def test_landmarks_tell_damage_from_unfinished_writes(tmp_path: Path) -> None:
    """The same bytes in the last batches are one below what was synced, the other past it."""
    writer = Writer()
    log = [writer.checkpoint(), writer.data(b"a"), writer.data(b"b"), writer.data(b"c")]
    path = as_segment(tmp_path, *log)
    whole = path.read_bytes()
    base, first_crc, begin = 0, check(log[0]).crc, 0
    ends = [sum(map(len, log[: number + 1])) for number in range(4)]

    def synced(durable: int) -> None:
        landmarks = HighWaterMarks(FILES, tmp_path)
        landmarks.save([HighWaterMark("orders/0", base, first_crc, durable, begin, first_crc)])

    for bad, durable, damaged in (
        (3, ends[3], True),  # the last: synced, so no unfinished write
        (3, ends[2], False),
        (2, ends[3], True),
        (2, ends[1], False),  # a power cut kept a later write and lost this one
        (2, ends[2], True),
    ):
        path.write_bytes(whole)
        spoil(path, ends[bad] - 9)
        synced(durable)
        before = content(tmp_path)
        result = check_up(FILES, tmp_path)
        assert (result.damaged, content(tmp_path)) == (damaged, before), (bad, durable)
        if damaged:
            assert check_up(FILES, tmp_path, repair=True).repaired
        assert opens(tmp_path)
        kept = b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file())
        assert log[1] in kept


def test_an_end_that_was_synced_and_is_gone(tmp_path: Path) -> None:
    writer = Writer()
    log = [writer.checkpoint(), writer.data(b"a"), writer.data(b"b")]
    path = as_segment(tmp_path, *log)
    size = path.stat().st_size
    crc = check(log[0]).crc
    HighWaterMarks(FILES, tmp_path).save([HighWaterMark("orders/0", 0, crc, size, 0, crc)])
    path.write_bytes(b"".join(log[:2]))
    result = check_up(FILES, tmp_path, repair=True)
    assert result.damaged
    assert result.repaired
    assert "it was synced up to byte" in as_json(result)["partitions"][0]["damage"][0]["reason"]
    assert opens(tmp_path)


def test_a_snapshot_ends_what_is_not_known(tmp_path: Path) -> None:
    """What a group did in a hole does not matter if a whole state follows."""
    writer = Writer()
    log = [writer.checkpoint(), writer.data(b"a", b"b", b"c"), writer.state(1)]
    bad = writer.state(2)
    change = StateChange(TopicOptions("orders"), (GroupChange("readers", 2, GroupOptions()),))
    snapshot = writer.seal(Kind.STATE, encode_change(change), SNAPSHOT)
    path = as_segment(tmp_path, *log, bad, snapshot, writer.state(3))
    spoil(path, sum(map(len, log)) + 60)
    assert check_up(FILES, tmp_path, repair=True).repaired
    assert pending(tmp_path)["orders", "readers", 0] == set()
    assert path.read_bytes().endswith(snapshot + path.read_bytes()[-len(writer.state(3)) :])


def test_a_repair_settles_what_only_landmarks_call_unfinished(tmp_path: Path) -> None:
    """The landmarks go with a repair; another partition's unfinished write must not turn damage."""
    marks = []
    for partition in (0, 1):
        writer = Writer(("orders", partition))
        log = [writer.checkpoint(), writer.data(b"a"), writer.data(b"b"), writer.data(b"c")]
        path = tmp_path / "orders" / str(partition) / naming.segment_name(0)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join(log))
        spoil(path, len(log[0]) + len(log[1]) + len(log[2]) - 9)
        crc = check(log[0]).crc
        durable = path.stat().st_size if partition else len(log[0]) + len(log[1])
        marks.append(HighWaterMark(f"orders/{partition}", 0, crc, durable, 0, crc))
    HighWaterMarks(FILES, tmp_path).save(marks)
    found = check_up(FILES, tmp_path)
    assert [lane.damaged for lane in found.lanes] == [False, True]
    assert check_up(FILES, tmp_path, repair=True).repaired
    assert not check_up(FILES, tmp_path).damaged
    assert opens(tmp_path)
    served = {place: message.body for place, message in intact(tmp_path).items()}
    assert served == {
        ("orders", "0", 0): b"a",
        ("orders", "1", 0): b"a",
        ("orders", "1", 1): b"",
        ("orders", "1", 2): b"c",
    }
    assert in_quarantine(tmp_path, log[3])


@pytest.mark.parametrize(
    "ruin", [lambda raw: b"", lambda raw: bytes(len(raw)), lambda raw: raw[:9]]
)
def test_a_synced_segment_of_which_nothing_is_left(
    data_dir: Path, ruin: Callable[[bytes], bytes]
) -> None:
    """The landmarks say that it was there: it is no segment that was just being made."""
    original, path = intact(data_dir), segments(data_dir)[-1]
    path.write_bytes(ruin(path.read_bytes()))
    with pytest.raises(JournalError, match="zbus verify --repair"):
        started(data_dir)
    assert check_up(FILES, data_dir).damaged
    assert check_up(FILES, data_dir, repair=True).repaired
    started(data_dir)
    served, base = intact(data_dir), naming.segment_base(path.name) or 0
    assert served.keys() == original.keys()
    lost = {place for place in served if served[place].headers == filler.LOST_LINE}
    assert lost == {
        place for place in original if place[:2] == ("orders", "0") and place[2] >= base
    }
