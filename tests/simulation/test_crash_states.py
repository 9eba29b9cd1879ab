"""Whatever a power cut leaves, a broker starts on it with everything that it had promised."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.limits import checked, fewer
from tests.simulation.crash_states import World, campaign
from tests.simulation.torn_tails import LANE, Opened
from zbus.core.cursor.state import GroupChange, StateChange, TopicOptions
from zbus.core.persistence.replay import recover
from zbus.storage.format.batch import SNAPSHOT, Kind, decode_chunk, iterate
from zbus.storage.format.checkpoint import encode_change
from zbus.storage.port import JournalError, JournalFull, Verdicts
from zbus.testing.disk import Disk, Operation, ShortWrite
from zbus.testing.engines import Writer, recovered, split, stored_lanes

STATES = [400, *checked([10_000])]
BODY = bytes(range(256)) * 3  # more than a sector


def test_a_world_is_its_seed() -> None:
    """The same seed is the same work, the same crashes and the same figures."""

    def traced() -> list[Operation]:
        operations: list[Operation] = []
        world = World(8)
        world.looks = operations.append
        world.run()
        return operations

    assert traced() == traced()


class Lane:
    """A lane on a simulated disk, written batch by batch."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.writer = Writer(LANE)
        self.opened = Opened(disk)
        self.durable = 0  # the end of what was committed
        self.trimmed = 0  # what is before is not wanted any more

    def write(self, make: Callable[[], bytes]) -> None:
        self.writer.append(self.opened.journal, make)

    def put(self) -> None:
        self.write(lambda: self.writer.data(b"%d" % self.writer.end + BODY))

    def commit(self) -> None:
        done: list[bool] = []
        self.opened.journal.commit([LANE], True, lambda _: done.append(True))
        self.opened.run()
        assert done
        self.durable = self.writer.end

    def restart(self) -> None:
        self.disk = self.disk.kill()
        self.opened = Opened(self.disk)
        stored_lanes(self.opened.journal)

    def check_crashes(self, least: int = 2) -> None:
        """Whatever is left: no hole, and all that was committed."""
        count = 0
        for left in self.disk.crash_states(limit=3000):
            count += 1
            check_left(left, self.durable, self.trimmed)
        random = Random(1)
        for _ in range(fewer(300)):
            check_left(self.disk.crash(random), self.durable, self.trimmed)
            assert count >= least


def check_left(left: Disk, durable: int, trimmed: int = 0) -> None:
    opened = Opened(left)
    stored = stored_lanes(opened.journal)
    if not stored:
        assert not durable
        return
    (lane,) = stored
    ends = [batch.header.end_offset for raw in lane.batches for batch in iterate(raw)]
    end = max(ends)
    assert end >= durable
    offset = max(lane.first_offset, trimmed)
    while offset < end:
        answers: list[bytes | JournalError] = []
        opened.journal.read(LANE, offset, 1 << 20, answers.append)
        opened.run()
        (answer,) = answers
        assert isinstance(answer, bytes), answer
        assert answer, f"a hole at {offset}"
        for batch in iterate(answer):
            for body in decode_chunk(batch).bodies:
                assert body == b"%d" % offset + BODY
                offset += 1
    assert offset >= durable


@pytest.fixture
def lane() -> Lane:
    lane = Lane(Disk())
    lane.write(lane.writer.checkpoint)
    lane.put()
    lane.commit()
    return lane


def test_nothing_open(lane: Lane) -> None:
    for left in lane.disk.crash_states():
        check_left(left, 1)


def test_one_batch_under_way(lane: Lane) -> None:
    lane.put()
    lane.check_crashes()


def test_a_later_batch_is_there_and_an_earlier_one_is_not(lane: Lane) -> None:
    lane.put()
    lane.put()
    lane.check_crashes()


def test_a_roll_under_way(lane: Lane) -> None:
    lane.put()
    lane.write(lane.writer.checkpoint)
    lane.check_crashes()


def test_a_roll_after_a_restart(lane: Lane) -> None:
    lane.restart()
    lane.put()
    lane.write(lane.writer.checkpoint)
    lane.check_crashes()


def test_a_roll_before_the_first_sync() -> None:
    lane = Lane(Disk())
    lane.write(lane.writer.checkpoint)
    lane.put()
    lane.write(lane.writer.checkpoint)
    lane.check_crashes()
    lane.commit()
    lane.check_crashes(least=1)


def test_two_rolls_before_a_sync_of_the_directory(lane: Lane) -> None:
    for _ in range(2):
        lane.put()
        lane.write(lane.writer.checkpoint)
    lane.check_crashes()


def test_a_kill_between_a_roll_and_its_sync(lane: Lane) -> None:
    lane.put()
    lane.write(lane.writer.checkpoint)
    lane.restart()
    lane.put()
    lane.commit()
    lane.check_crashes(least=1)


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_kill_left_is_synced_when_it_is_found(rolled: bool, at_once: bool) -> None:
    """From then on it is handed out: a power cut must not take it back."""
    lane = Lane(Disk())
    lane.write(lane.writer.checkpoint)
    lane.put()
    if rolled:
        lane.write(lane.writer.checkpoint)
        lane.put()
    lane.disk = lane.disk.kill()
    if not at_once:
        lane.disk.sync_all = lambda file: False  # type: ignore[method-assign]
    lane.opened = Opened(lane.disk)
    stored_lanes(lane.opened.journal)
    lane.durable = lane.writer.end
    lane.check_crashes(least=1)


@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_failed_sync_left_is_written_once_more(lane: Lane, at_once: bool) -> None:
    """The system takes it for clean, and another sync would do nothing for it. The next broker
    hands it out, so no power cut may take it back."""
    lane.put()

    def fail(operation: Operation) -> None:
        if operation.name in ("sync", "sync_all"):
            raise OSError(errno.EIO, "the disk is broken")

    lane.disk.faults = fail
    lane.opened.journal.commit([LANE], True, lambda _: None)
    lane.opened.worker.stop()
    lane.disk.faults = None
    lane.disk = lane.disk.kill()
    if not at_once:
        lane.disk.sync_all = lambda file: False  # type: ignore[method-assign]
    lane.opened = Opened(lane.disk)
    lane.durable = len(stored_lanes(lane.opened.journal)) and lane.writer.end
    assert lane.durable == 2
    lane.check_crashes(least=1)


def test_old_segments_go_in_any_order(lane: Lane) -> None:
    """Of two that are removed, the younger may be gone and the older still there."""
    for _ in range(3):
        lane.write(lane.writer.checkpoint)
        lane.put()
        lane.commit()
    lane.opened.journal.trim(LANE, 3)
    lane.opened.run()
    lane.trimmed = 3
    assert len([path for path in lane.disk.list_all() if path.suffix == ".log"]) == 1
    lane.check_crashes()


def test_old_segments_wait_for_the_newest(lane: Lane) -> None:
    """Nothing of them goes before what takes their place is synced."""
    lane.put()
    lane.write(lane.writer.checkpoint)
    lane.opened.journal.trim(LANE, 2)
    lane.check_crashes()
    lane.opened.run()
    lane.durable = lane.trimmed = 2
    lane.check_crashes(least=1)


def test_a_trim_while_another_is_under_way(lane: Lane) -> None:
    """Segments of the second must not go before those of the first: that would leave a gap, and
    what is behind it would be taken for writes that nobody was told of."""
    for _ in range(5):
        lane.write(lane.writer.checkpoint)
        lane.put()
        lane.commit()

    def look(operation: Operation) -> None:
        lane.disk.faults = None
        lane.check_crashes(least=0)
        lane.disk.faults = look

    lane.disk.faults = look
    lane.trimmed = 5
    lane.opened.journal.trim(LANE, 4)
    lane.opened.journal.trim(LANE, 5)
    lane.opened.run()
    lane.disk.faults = None
    assert len([path for path in lane.disk.list_all() if path.suffix == ".log"]) == 1


def test_half_a_write_that_was_cut_off_again(lane: Lane) -> None:
    """The disk was full in the middle of a batch; then there was space, and the segment ended."""

    def fail(operation: Operation) -> None:
        if operation.name == "write":
            raise ShortWrite(100, JournalFull("no space"))

    lane.disk.faults = fail
    batches = split(Writer(LANE, lane.writer.last, 1).data(BODY))
    with pytest.raises(JournalFull):
        lane.opened.journal.append(LANE, lane.writer.last, batches)
    lane.disk.faults = None
    lane.write(lane.writer.checkpoint)
    lane.put()
    lane.commit()
    lane.check_crashes(least=1)


def test_messages_that_found_room_before_what_came_with_them_did_not(lane: Lane) -> None:
    """They are refused, and no power cut brings them back."""
    batches = split(Writer(LANE, lane.writer.last, 1).data(BODY))
    state = Writer(LANE, batches[0].header.crc, 2).state()

    def fail(operation: Operation) -> None:
        if operation.name == "write":
            raise ShortWrite(len(batches[0].raw) + 5, JournalFull("no space"))

    lane.disk.faults = fail
    with pytest.raises(JournalFull):
        lane.opened.journal.append(LANE, lane.writer.last, [*batches, *split(state)])
    lane.disk.faults = None
    for seed in range(300):
        stored = recovered(Opened(lane.disk.crash(Random(seed))).journal)
        assert batches[0].raw not in stored.get(LANE, [])


def test_a_segment_that_takes_the_place_of_another(lane: Lane) -> None:
    for _ in range(3):
        lane.write(lane.writer.checkpoint)
        lane.write(lane.writer.state)
    lane.put()
    lane.check_crashes()
    lane.commit()
    lane.put()
    lane.check_crashes()
    lane.commit()
    lane.opened.upkeep()
    lane.put()
    lane.check_crashes()


def test_a_roll_whose_sync_fails_does_not_try_again(lane: Lane) -> None:
    """After a failed sync the page cache cannot be trusted: the next one would lie."""
    syncs: list[Path] = []

    def fail(operation: Operation) -> None:
        if operation.name == "sync":
            syncs.append(operation.path)
            raise OSError(errno.EIO, "broken")

    lane.put()
    lane.disk.faults = fail
    with suppress(JournalError):
        lane.write(lane.writer.checkpoint)
    lane.opened.journal.close()
    assert len(lane.opened.failures) == 1
    assert len(syncs) == 1


def test_a_removal_whose_sync_fails_does_not_try_again(lane: Lane) -> None:
    syncs: list[Path] = []

    def fail(operation: Operation) -> None:
        if operation.name == "sync_directory":
            syncs.append(operation.path)
            raise OSError(errno.EIO, "broken")

    lane.disk.faults = fail
    lane.opened.journal.remove([LANE], lambda: None)
    lane.opened.journal.close()
    assert len(lane.opened.failures) == 1
    assert len(syncs) == 1


def test_a_removal_that_a_kill_cut_short(lane: Lane) -> None:
    """The next broker goes on with it. Whatever a power cut leaves of that, it is no half lane."""

    class Killed(BaseException):
        pass

    def kill(operation: Operation) -> None:
        if operation.name == "sync_directory":
            raise Killed

    for _ in range(2):
        lane.write(lane.writer.checkpoint)
        lane.put()
        lane.commit()
    lane.disk.faults = kill
    lane.opened.journal.remove([LANE], lambda: None)
    with pytest.raises(Killed):
        lane.opened.run()
    lane.disk.faults = None
    disk = lane.disk.kill()
    assert stored_lanes(Opened(disk).journal) == []
    random = Random(1)
    for left in (*disk.crash_states(limit=300), *(disk.crash(random) for _ in range(300))):
        if stored_lanes(Opened(left.kill()).journal):
            check_left(left, lane.durable)


def test_a_topic_that_is_removed_again_before_it_is_gone(lane: Lane) -> None:
    """One of its name was declared and removed at once. When that is told, neither comes back."""
    lane.commit()
    told: list[str] = []
    lane.opened.journal.remove([LANE], lambda: told.append("first"))
    lane.opened.journal.remove([LANE], lambda: told.append("second"))
    assert told == []
    lane.opened.run()
    assert told == ["first", "second"]
    for seed in range(100):
        assert stored_lanes(Opened(lane.disk.crash(Random(seed))).journal) == []
    lane.opened.journal.remove([LANE], lambda: told.append("third"))
    assert told[2:] == ["third"], "nothing is on its way"


def test_a_lane_that_knows_a_group_by_name_only() -> None:
    """The power went while the group was declared: its options reached only the other partition;
    that one is gone now, because the power went again while the topic was removed."""
    opened = Opened(Disk())
    writer = Writer(("orders", 1))
    payload = encode_change(StateChange(TopicOptions("orders", partitions=2)))
    writer.append(opened.journal, lambda: writer.seal(Kind.CHECKPOINT, payload))
    writer.append(opened.journal, writer.state)
    (topic,), _ = recover(opened.journal)
    assert topic.groups == {}


def test_a_full_disk_does_not_keep_a_broker_from_starting(lane: Lane) -> None:
    """Of three writes the middle one was lost; there is no room to keep what is cut."""
    lane.put()
    lane.commit()
    lane.opened.upkeep()
    lane.opened.run()
    for _ in range(3):
        lane.put()
    random = Random(1)
    for _ in range(100):
        disk = lane.disk.crash(random)
        disk.capacity_bytes = disk.used_bytes
        check_left(disk, lane.durable)


def test_a_segment_that_is_replaced_while_its_file_is_closed() -> None:
    """Its sync goes by the path, which leads to another file by then."""
    disk = Disk()
    opened = Opened(disk, open_segments_max=1)
    stored_lanes(opened.journal)
    writer, other = Writer(LANE), Writer(("other", 0))
    for one in (writer, other):
        one.append(opened.journal, one.checkpoint)
    opened.journal.commit([LANE, other.lane], True, lambda _: None)
    opened.run()
    opened.upkeep()
    writer.append(opened.journal, partial(writer.state, 1))
    other.append(opened.journal, partial(other.state, 1))  # closes the one before
    confirmed: list[Verdicts] = []
    opened.journal.commit([LANE], True, confirmed.append)
    writer.append(opened.journal, partial(writer.state, 2, Kind.CHECKPOINT))
    opened.run()
    assert confirmed
    for seed in range(100):
        stored = recovered(Opened(disk.crash(Random(seed))).journal)[LANE]
        assert len(stored) == 2 or b'"cursor":2' in stored[0], "what was confirmed is gone"


def test_lanes_of_one_name_one_after_another() -> None:
    """The second is removed while the landmarks that tell of it are being written: for the third,
    they are as wrong as those of the first."""
    disk = Disk()
    opened = Opened(disk)
    journal = opened.journal
    stored_lanes(journal)

    def live(count: int) -> None:
        writer = Writer(LANE)
        writer.append(journal, partial(writer.state, count, Kind.CHECKPOINT))
        for _ in range(count):
            writer.append(journal, lambda: writer.data(b"%d" % count + BODY))

    for count in (1, 2):
        live(count)
        journal.commit([LANE], True, lambda _: None)
        opened.run()
        journal.upkeep(count)
        if count == 1:
            opened.run()
        journal.remove([LANE], lambda: None)
    opened.run()
    live(6)
    for seed in range(fewer(500)):
        stored_lanes(Opened(disk.crash(Random(seed))).journal)


def test_a_lane_rolls_where_the_former_of_its_name_did() -> None:
    """The landmarks on disk tell how much of a segment of that very name was synced."""
    lane = Lane(Disk())
    stored_lanes(lane.opened.journal)
    for former in (True, False):
        lane.writer = Writer(LANE)
        begin = partial(lane.writer.state, 1 + former, Kind.CHECKPOINT)
        lane.write(begin)
        lane.put()
        lane.put()
        lane.write(begin)
        lane.put()
        if former:
            lane.commit()
            lane.opened.upkeep()
            lane.opened.journal.remove([LANE], lambda: None)
    lane.durable = 0
    lane.check_crashes()


def test_a_read_that_waits_while_its_segment_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """It was asked for with the old file's size in mind; the new one is another file."""
    disk = Disk()
    opened = Opened(disk)
    stored_lanes(opened.journal)
    writer = Writer(LANE)

    def whole(kind: Kind, flags: int, groups: int) -> bytes:
        changes = tuple(GroupChange(f"g{number}", 1) for number in range(groups))
        payload = encode_change(StateChange(TopicOptions(LANE[0]), changes))
        return writer.seal(kind, payload, flags)

    writer.append(opened.journal, writer.checkpoint)
    writer.append(opened.journal, lambda: writer.data(b"x" * 2_000))
    writer.append(opened.journal, writer.checkpoint)
    writer.append(opened.journal, lambda: whole(Kind.STATE, SNAPSHOT, 1))
    opened.journal.commit([LANE], True, lambda _: None)
    opened.run()
    opened.upkeep()
    opened.run()
    opened = Opened(disk.kill())
    stored_lanes(opened.journal)
    answers: list[bytes | JournalError] = []
    opened.journal.read(LANE, 0, 1 << 20, answers.append)
    writer.append(opened.journal, lambda: whole(Kind.CHECKPOINT, 0, 40))
    opened.run()
    (answer,) = answers
    assert isinstance(answer, bytes)
    (batch,) = iterate(answer)
    assert decode_chunk(batch).bodies == [b"x" * 2_000]
    assert "cannot be read" not in caplog.text


@pytest.mark.parametrize("states", STATES)
def test_a_campaign(states: int) -> None:
    figures = campaign(states, seed=1)
    assert figures.states >= states
    assert figures.again > states // 20
    assert figures.kills > states // 50
