"""The default engine: segment files in a directory of the local file system.

    data/lock                                 held by the one broker that may write here
    data/reserve                              space kept free for acknowledgements
    data/landmarks                            what is synced, and where recovery may begin
    data/identity                             a random id, made once
    data/<topic>/<partition>/<base>.log       a segment: a CHECKPOINT batch, then DATA and STATE

An append is one write; a commit waits for a sync that many share (`syncer`); a read is served on
another thread (`reader`). The data directory must be one file system, for the sake of syncfs.
Once a second `upkeep` syncs what no request waits for and writes down how far each lane is durable.

What goes wrong falls into three kinds. A full disk refuses messages (`JournalFull`) and goes on.
Damage is refused with file and offset (`JournalDamage`). Any other failure of the disk is fatal:
`fail` is called once, and from then on nothing is written and nothing acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from zbus.storage.format.batch import HEADER_BYTES, Batch, Kind, inspect_header, require_link
from zbus.storage.format.checkpoint import topic_name
from zbus.storage.local import naming
from zbus.storage.local.directory import make_identity, make_way, take_directory
from zbus.storage.local.files import Files, OsFiles, opened, reason
from zbus.storage.local.high_water_marks import HighWaterMark, HighWaterMarks
from zbus.storage.local.lane import OPEN_SEGMENTS_MAX, LocalLane, OpenFiles
from zbus.storage.local.opening import Found, find_lanes
from zbus.storage.local.read_ahead import ReadAhead
from zbus.storage.local.reader import Reader
from zbus.storage.local.removal import Removal
from zbus.storage.local.reserve import RESERVE_BYTES, Reserve, SharedReserves
from zbus.storage.local.segment import WINDOW_BYTES, Segment, walk_file
from zbus.storage.local.syncer import Syncer
from zbus.storage.local.worker import ThreadWorker, Worker
from zbus.storage.port import (
    CommitDone,
    JournalError,
    JournalFull,
    Lane,
    OpenDone,
    Post,
    ReadDone,
    StoredLane,
    StoredSegment,
    Verdict,
    of_lanes,
)

_NEVER_MS = 1 << 62
_FEW_LANES = 1_000
"""With no more, the landmarks are written with each removal: then a lane that comes at once under
that name need not be made with a dozen syncs. With more, that costs more than it saves."""

_AT_HAND_BYTES = 32 << 20  # kept of what opening read, until recovery wants it


def _in_turn(first: Callable[[], None], then: Callable[[], None]) -> Callable[[], None]:
    def both() -> None:
        first()
        then()

    return both


class LocalJournal:
    """See above. Everything but its workers runs on the broker's thread."""

    late = False

    def __init__(
        self,
        data_dir: Path,
        post: Post,
        fail: Callable[[str], None],
        files: Files | None = None,
        *,
        reserve_bytes: int = RESERVE_BYTES,
        reserves: SharedReserves | None = None,
        open_segments_max: int = OPEN_SEGMENTS_MAX,
        progress: Callable[[int, int], None] = lambda done, total: None,
        warmers: int = 0,
        worker: Callable[[str], Worker] = ThreadWorker,
        observe_sync: Callable[[float], None] = lambda seconds: None,
        may_sync: Callable[[], bool] = lambda: False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`reserves` are those of all processes on this disk. `open_segments_max` is of files open
        for writing. `progress` is called, while lanes are
        looked through, with topics done and topics in all; `warmers` threads read ahead of that.
        `observe_sync` is called, maybe by a worker, with the time of each sync. `may_sync` and
        `clock_s` are for the syncer: whether a commit may wait here for a quick disk, and the time
        by which syncs are measured."""
        self._data_dir = data_dir
        self._fail = fail
        self._files = files = OsFiles() if files is None else files
        self._failed = False
        self._closed = False
        self.verdicts: dict[Lane, Verdict] = {}  # of lanes that take nothing more
        self._lanes: dict[Lane, LocalLane] | None = None  # None until they were looked for
        self._at_hand: dict[Lane, list[bytes]] = {}  # what `open` need not read again
        self._noted: frozenset[str] | None = None  # lanes that the landmarks knew; None = no marks
        self._changed: dict[Lane, LocalLane] = {}  # since the landmarks were claimed last
        self._saving = False  # landmarks are being written
        self._progress = progress
        self._warmers = [worker(f"zbus-warm-{number}") for number in range(warmers)]
        self._lock = take_directory(files, data_dir)
        self._reserve = Reserve(files, data_dir / naming.RESERVE, reserve_bytes, reserves)
        self._landmarks = HighWaterMarks(files, data_dir)
        self._handles = OpenFiles(files, open_segments_max)
        self._syncer = Syncer(
            files,
            worker("zbus-sync"),
            post,
            self._fatal,
            self._lock,
            observe_sync,
            may_sync,
            clock_s,
        )
        self._reader = Reader(files, worker("zbus-read"), post)
        self._removal = Removal(
            files,
            data_dir,
            self._reserve,
            self._syncer,
            self._reader,
            lambda lane, done: self._when_durable([lane], done),
            self._fatal,
        )

    def append(self, lane: Lane, after: int, batches: Sequence[Batch]) -> None:
        if self._failed or self._closed:
            raise JournalError("the journal has failed or is closed, and takes nothing more")
        known = self._known().get(lane)
        if after != (0 if known is None else known.last_crc):
            self.verdicts[lane] = Verdict.CONFLICT
        if lane in self.verdicts:
            return
        require_link(batches, after)
        # The reserve is for what must not be refused: not for messages, nor for new lanes.
        refusable = known is None or any([batch.header.kind is Kind.DATA for batch in batches])
        try:
            if refusable:
                self._reserve.require()
            try:
                self._write(lane, known, batches)
            except JournalFull:
                if refusable or not self._reserve.free():
                    raise
                self._write(lane, known, batches)
        except OSError as error:
            self._fatal(f"writing {lane} failed: {error}")
            raise JournalError(f"writing {lane} failed: {error}") from error

    def commit(self, lanes: Collection[Lane], synced: bool, done: CommitDone) -> None:
        if self._failed:
            return
        verdicts = of_lanes(self.verdicts, lanes)
        if not synced or not lanes:
            done(verdicts)
            return
        known = self._known()
        lanes_known = [known[lane] for lane in lanes if lane in known]
        self._when_durable(lanes_known, partial(done, verdicts))

    def read(self, lane: Lane, offset: int, bytes_max: int, done: ReadDone) -> None:
        known = self._known().get(lane)
        if known is None or self._closed:
            done(JournalError(f"there is no {lane} to read"))
            return
        self._reader.read(known.from_offset(offset), known.newest.size, offset, bytes_max, done)

    def trim(self, lane: Lane, before: int) -> None:
        known = self._known().get(lane)
        if known is not None and not self._failed:
            self._removal.trim(known, before)

    def remove(self, lanes: Collection[Lane], done: Callable[[], None]) -> None:
        if self._failed or self._closed:
            return
        known = self._known()
        found = [(lane, known[lane]) for lane in lanes if lane in known]
        for lane in lanes:
            self.verdicts.pop(lane, None)
        if not found:
            self._syncer.wait(self._removal.round, done)  # they may have gone a moment ago
            return
        for lane, one in found:
            self._let_go(lane, one)
        segments = [segment for _, one in found for segment in one.segments]
        save = None
        if not self._saving and len(known) <= _FEW_LANES:
            save, saved = self._save_landmarks()
            done = _in_turn(saved, done)
        # One name stands for all of them, and a name is taken away wholly or not at all.
        self._removal.remove_topic(found[0][1].directory.parent, segments, done, save)

    def open(
        self,
        lanes: Collection[Lane] | None,
        found: Callable[[StoredLane], None],
        done: OpenDone,
    ) -> None:
        problem: JournalError | None = None
        try:
            there = self._known()
            for lane in there | self.verdicts if lanes is None else lanes:
                self.verdicts.pop(lane, None)
                if lane in there:
                    found(self._stored(lane, there[lane]))
        except JournalError as error:
            problem = error
        except OSError as error:
            text = reason(error, self._data_dir)
            problem = JournalError(f"cannot read {self._data_dir}: {text}")
        if problem is not None or lanes is None:  # at the start `_sync_found` has done the rest
            done(problem)
            return
        self._when_durable([there[lane] for lane in lanes if lane in there], lambda: done(None))

    def _stored(self, lane: Lane, known: LocalLane) -> StoredLane:
        newest, begin = known.newest, known.mark
        batches: Iterable[bytes] | None = self._at_hand.pop(lane, None)
        if not batches:
            stored = walk_file(self._files, newest.path, begin, newest.size)
            batches = (batch for _, _, batch in stored)
        segments = [
            StoredSegment(one.base, measure=partial(self._measure, one)) for one in known.segments
        ]
        first, noted = known.segments[0].base, self._noted
        was_durable = None if noted is None else known.key in noted
        return StoredLane(lane, first, batches, begin, segments, was_durable)

    def upkeep(self, now_ms: int) -> None:
        """To be called about once a second; `now_ms` is any clock that does not go back.

        Closes files that are not written to, has synced what no request waits for, and has the
        landmarks written if anything changed.
        """
        if self._failed or self._closed or self._lanes is None:
            return
        for known in self._changed.values():
            known.used_ms = now_ms
        self._handles.close_idle(now_ms)
        self._reserve.upkeep()
        if self._saving or not (self._changed or self._landmarks.stale):
            return
        changed, self._changed = self._changed, {}
        for known in changed.values():
            self._landmarks.claim(known.landmark())
        save, saved = self._save_landmarks()
        # The claims become true with the round that writes them, or with one before.
        self._syncer.wait(self._sync(changed.values(), save), saved)

    def _save_landmarks(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """What the next round is to do, and what to call after it."""
        self._saving = True
        return self._save_later(), partial(self._saved, self._landmarks.ghosts())

    def _save_later(self) -> Callable[[], None]:
        return partial(self._landmarks.save, self._landmarks.claims())

    def _saved(self, ghosts: dict[str, int]) -> None:
        self._saving = False
        self._landmarks.saved(ghosts)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._removal.close()
        self._reader.close()
        lanes = list((self._lanes or {}).values())
        for lane in self._changed.values():
            self._landmarks.claim(lane.landmark())
        for lane in lanes:
            lane.hand_over()
        if self._changed or self._landmarks.stale:
            self._syncer.collecting.also.append(self._save_later())
        self._syncer.close()
        for lane in lanes:
            lane.release()
        self._files.close(self._lock)

    def _known(self) -> dict[Lane, LocalLane]:
        if self._lanes is None:
            try:
                self._lanes = self._open_lanes()
            except OSError as error:
                text = reason(error, self._data_dir)
                raise JournalError(f"cannot open {self._data_dir}: {text}") from error
        return self._lanes

    def _open_lanes(self) -> dict[Lane, LocalLane]:
        landmarks, lanes = self._landmarks, {}
        make_way(self._files, self._data_dir)
        make_identity(self._files, self._data_dir)
        marks = landmarks.load()
        self._noted = None if marks is None else frozenset(marks)
        wrong = marks is None  # the landmarks must be right before anything is written
        unknown = dict(marks or {})
        tails: list[tuple[Segment, int]] = []
        room = _AT_HAND_BYTES
        for found in self._find(marks):
            lane = LocalLane.found(self._files, self._handles, self._syncer, found)
            lanes[found.lane] = lane
            if (room := room - sum(map(len, found.batches))) > 0:
                self._at_hand[found.lane] = found.batches
            mark = unknown.pop(found.key, None)
            wrong = wrong or found.lost
            if mark is not None and not found.lost:
                landmarks.claim(mark)
            if lane.dirty:
                self._changed[found.lane] = lane
                tails += found.tails
        if self._changed:
            # What a killed process left may not be on disk, and from now on it is delivered.
            self._sync_found(self._changed.values(), tails)
        for key in unknown:
            landmarks.forget(key)
        if wrong and (marks is not None or not lanes):
            landmarks.save(landmarks.claims())
            landmarks.saved({})
        return lanes

    def _sync_found(self, lanes: Iterable[LocalLane], tails: list[tuple[Segment, int]]) -> None:
        """Make durable what was found. It is written once more before, because a sync that failed
        may have ended the former run: then the system takes for clean what is not on disk."""
        files = self._files
        for segment, position in tails:
            with suppress(JournalFull):
                self._write_again(segment, position)
        if files.sync_all(self._lock):
            return
        for segment, _ in tails:
            with opened(files, segment.path, "write") as file:
                files.sync(file)
        for directory in sorted({path for lane in lanes for path in lane.dirty_directories}):
            files.sync_directory(directory)

    def _write_again(self, segment: Segment, position: int) -> None:
        if position >= segment.size:
            return
        with opened(self._files, segment.path, "write") as file:
            for at in range(position, segment.size, WINDOW_BYTES):
                count = min(WINDOW_BYTES, segment.size - at)
                self._files.write(file, self._files.read(file, count, at), at)

    def _find(self, marks: Mapping[str, HighWaterMark] | None) -> Iterator[Found]:
        warming = ReadAhead(self._files, self._data_dir, marks or {}, self._warmers)
        try:
            for found in find_lanes(self._files, self._data_dir, marks, self._progress):
                yield found
                warming.opened()
        finally:
            warming.stop()

    def _measure(self, segment: Segment) -> tuple[int, int]:
        """Bytes of a segment and the time of its checkpoint. Of one that cannot be read the time is
        beyond all times: a limit by age keeps it."""
        try:
            file = self._files.open(segment.path, "read")
        except (OSError, JournalFull):
            return 0, _NEVER_MS
        try:
            header = inspect_header(self._files.read(file, HEADER_BYTES, 0), 0)
            return self._files.size(file), _NEVER_MS if isinstance(header, str) else header.time_ms
        except (OSError, JournalFull):
            return 0, _NEVER_MS
        finally:
            self._files.close(file)

    def _write(self, lane: Lane, known: LocalLane | None, batches: Sequence[Batch]) -> None:
        if self._at_hand:
            self._at_hand.clear()  # it is not all any more
        begins = batches[0].header.kind is Kind.CHECKPOINT
        if begins:
            # A lane is found again by the name in its checkpoint.
            name = topic_name(memoryview(batches[0].raw)[HEADER_BYTES:])
            if name != lane[0]:
                raise JournalError(f"the checkpoint for {lane} names the topic {name!r}")
        elif known is None:
            raise JournalError(f"{lane} is new and must begin with a checkpoint")
        if known is None:
            topic, partition = lane
            directory = self._data_dir / naming.topic_directory(topic) / str(partition)
            haunted = self._haunted(naming.lane_key(directory))
            parts = self._files, self._handles, self._syncer, directory
            known = self._known()[lane] = LocalLane.make(*parts, batches, haunted)
        else:
            haunted = begins and self._haunted(known.key)
            known.append(batches, haunted)
        if haunted:
            known.sync()
        self._changed[lane] = known

    def _haunted(self, key: str) -> bool:
        """Whether the landmarks on disk may speak of a former lane of that name. Once rid of all
        that are gone, they do not: a lane that they may speak of is made with six syncs."""
        return self._landmarks.haunts(key) and not self._landmarks.lay_ghosts()

    def _when_durable(self, lanes: Collection[LocalLane], done: Callable[[], None]) -> None:
        self._syncer.wait(self._sync(lanes), done)

    def _sync(self, lanes: Collection[LocalLane], also: Callable[[], None] | None = None) -> int:
        """Have it synced what is not; give the round after which all is durable."""
        dirty = [lane for lane in lanes if lane.dirty or lane.dirty_directories]
        for lane in dirty:
            lane.hand_over()
        if also is not None:
            self._syncer.collecting.also.append(also)
            return self._syncer.start()
        if dirty:
            self._syncer.start()
        return max([lane.round for lane in lanes], default=0)

    def _let_go(self, lane: Lane, known: LocalLane) -> None:
        known.leaving.clear()
        for segment in known.segments:
            segment.removed = True
        del self._known()[lane]
        self._changed.pop(lane, None)
        self._landmarks.forget(known.key)
        known.release()

    def _fatal(self, text: str) -> None:
        if not self._failed:
            self._failed = self._syncer.failed = True  # a sync after this would lie
            self._fail(text)
