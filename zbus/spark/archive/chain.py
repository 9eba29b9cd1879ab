"""The chain of commits of each lane, and its snapshots (see `records`).

A record takes its name by a link, so there is one of each name, whole. A commit counts if the
newest snapshot has not passed it. What a snapshot has passed may be removed one day
(`vacuum`), so who comes late may get a name that was free again. He looks at the newest snapshot
afterwards, sees that it has passed him, and takes his record back. Who reads looks twice, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import msgspec

from zbus import __version__
from zbus.spark.archive import layout as names
from zbus.spark.archive.files import ArchiveFiles, names_in, put_once, read_whole
from zbus.spark.archive.layout import Attempt
from zbus.spark.archive.records import (
    FORMAT,
    Commit,
    Lane,
    Snapshot,
    decode,
    encode,
    sealed,
)
from zbus.spark.errors import LostRace, Unverified, Usage

SNAPSHOT_COMMITS: Final = 100
"""After that many commits there is a snapshot; later if there are many files, which it all
names."""

FILES_PER_COMMIT: Final = 10
TRIES: Final = 10


@attrs.define
class Chains:
    """Those of one archive. `run` is who writes."""

    files: ArchiveFiles
    root: Path
    run: str = ""

    # -- the archive --------------------------------------------------------------------------

    def require(self) -> None:
        """Raises Usage if this is no archive, or one of a later version."""
        path = self.root / names.IDENTITY
        try:
            identity = msgspec.json.decode(read_whole(self.files, path), type=dict[str, object])
        except (FileNotFoundError, NotADirectoryError):
            raise Usage(f"{self.root} is not an archive of zbus: it has no {path.name}") from None
        except msgspec.MsgspecError as error:
            raise Unverified(f"{path} cannot be read: {error}") from None
        if identity.get("format") != FORMAT:
            raise Usage(
                f"{self.root} has format {identity.get('format')}, which this version of zbus does"
                " not know: use a newer one"
            )

    def make(self, time_ms: int) -> None:
        """Make it an archive if it is none. Raises Usage as above."""
        path = self.root / names.IDENTITY
        if path.name not in names_in(self.files, path.parent):
            text = msgspec.json.encode(
                {"format": FORMAT, "made_ms": time_ms, "version": __version__}
            )
            with suppress(FileExistsError):
                put_once(self.files, path, self._unfinished(time_ms), text + b"\n")
        self.require()

    def lanes(self) -> Iterator[tuple[str, int]]:
        """Topic and partition of all lanes, in order."""
        found = set()
        for kind in (names.COMMITS, names.SNAPSHOTS):
            for name in names_in(self.files, self.root / kind):
                for number in names_in(self.files, self.root / kind / name):
                    path = self.root / kind / name / number
                    if number.isdecimal() and names_in(self.files, path):
                        found.add((self._topic(name, path, kind), int(number)))
        yield from sorted(found)

    def _topic(self, name: str, path: Path, kind: str) -> str:
        topic = names.topic_of(name)
        if topic is not None:
            return topic
        for each in names_in(self.files, path):
            if names.record_number(each) is not None:
                data = read_whole(self.files, path / each)
                if kind == names.COMMITS:
                    return decode(data, Commit, path / each).topic
                return decode(data, Snapshot, path / each).lane.topic
        raise Unverified(f"{path} has no records, and its name does not tell the topic")

    # -- reading ------------------------------------------------------------------------------

    def directory(self, kind: str, topic: str, partition: int) -> Path:
        return self.root / names.lane_directory(kind, topic, partition)

    def numbers(self, kind: str, topic: str, partition: int) -> list[int]:
        """Of the records that are there."""
        found = names_in(self.files, self.directory(kind, topic, partition))
        numbers = (names.record_number(name) for name in found)
        return sorted(number for number in numbers if number is not None)

    def snapshot(self, topic: str, partition: int, number: int) -> Snapshot:
        """Raises FileNotFoundError, Unverified."""
        path = self.directory(names.SNAPSHOTS, topic, partition) / names.record_name(number)
        snapshot = decode(read_whole(self.files, path), Snapshot, path)
        if (snapshot.lane.topic, snapshot.lane.partition) != (topic, partition):
            raise Unverified(f"{path} is of {snapshot.lane.place}")
        if snapshot.number != number:
            raise Unverified(f"{path} is snapshot {snapshot.number}")
        return snapshot

    def commit(self, topic: str, partition: int, position: int) -> Commit:
        """Raises FileNotFoundError, Unverified."""
        path = self.directory(names.COMMITS, topic, partition) / names.record_name(position)
        return decode(read_whole(self.files, path), Commit, path)

    def newest(self, topic: str, partition: int) -> Snapshot | None:
        while True:
            numbers = self.numbers(names.SNAPSHOTS, topic, partition)
            if not numbers:
                return None
            try:
                return self.snapshot(topic, partition, numbers[-1])
            except FileNotFoundError:
                continue  # there is a newer one, so it was removed

    def read(self, topic: str, partition: int) -> tuple[Lane, list[Commit], Snapshot | None]:
        """A lane, the commits since its newest snapshot, and that one. Raises Unverified."""
        while True:
            snapshot = self.newest(topic, partition)
            lane = Lane(topic, partition) if snapshot is None else snapshot.lane
            commits: list[Commit] = []
            with suppress(FileNotFoundError):
                while True:
                    commit = self.commit(topic, partition, lane.position)
                    lane = lane.then(commit)
                    commits.append(commit)
            numbers = self.numbers(names.COMMITS, topic, partition)
            # Otherwise commits may have been removed, below what was read.
            if self._is_newest(topic, partition, snapshot):
                if numbers and numbers[-1] > lane.position and lane.position not in numbers:
                    raise Unverified(
                        f"{lane.place}: the commit at {lane.position} is missing, and there is one"
                        f" at {numbers[-1]}"
                    )
                return lane, commits, snapshot

    def lane(self, topic: str, partition: int) -> Lane:
        return self.read(topic, partition)[0]

    def _is_newest(self, topic: str, partition: int, snapshot: Snapshot | None) -> bool:
        numbers = self.numbers(names.SNAPSHOTS, topic, partition)
        return numbers[-1:] == ([] if snapshot is None else [snapshot.number])

    # -- writing ------------------------------------------------------------------------------

    def append(self, commit: Commit) -> Commit:
        """Make a commit the next one, durably. Raises LostRace."""
        commit = sealed(msgspec.structs.replace(commit, run=self.run, version=__version__))
        directory = self.directory(names.COMMITS, commit.topic, commit.partition)
        path = directory / names.record_name(commit.position)
        lost = (
            f"{commit.topic}, partition {commit.partition}: another run has archived from offset"
            f" {commit.start} on; one archiver at a time is enough"
        )
        try:
            put_once(self.files, path, self._unfinished(commit.time_ms), encode(commit))
        except FileExistsError:
            raise LostRace(lost) from None
        if self._is_passed(commit):
            with suppress(FileNotFoundError):
                self.files.remove(path)
            raise LostRace(lost)
        return commit

    def _is_passed(self, commit: Commit) -> bool:
        """A snapshot has passed that position, and it does not have this commit."""
        newest = self.newest(commit.topic, commit.partition)
        if newest is None or newest.lane.position <= commit.position:
            return False
        if newest.lane.tip == commit.checksum:
            return False
        end = commit.position + commit.end - commit.start
        with suppress(FileNotFoundError):
            behind = self.commit(commit.topic, commit.partition, end)
            return behind.previous != commit.checksum
        return True

    def rewrite(
        self,
        topic: str,
        partition: int,
        why: str,
        time_ms: int,
        change: Callable[[Lane], Lane | None] = lambda lane: lane,
    ) -> Snapshot | None:
        """Make a snapshot of a lane, with what `change` makes of it, durably. None: it wanted none.
        Raises LostRace if others do that all the time."""
        for _ in range(TRIES):
            before, _, last = self.read(topic, partition)
            lane = change(before)
            if lane is None:
                return None
            assert (lane.position, lane.tip) == (before.position, before.tip)
            snapshot = Snapshot(
                number=0 if last is None else last.number + 1,
                lane=lane,
                why=why,
                time_ms=time_ms,
                run=self.run,
                previous="" if last is None else last.checksum,
                version=__version__,
            )
            if self._put(snapshot := sealed(snapshot)):
                return snapshot
        raise LostRace(f"{topic}, partition {partition}: others change its snapshots all the time")

    def _put(self, snapshot: Snapshot) -> bool:
        topic, partition = snapshot.lane.topic, snapshot.lane.partition
        path = self.directory(names.SNAPSHOTS, topic, partition)
        path /= names.record_name(snapshot.number)
        try:
            put_once(self.files, path, self._unfinished(snapshot.time_ms), encode(snapshot))
        except FileExistsError:
            return False
        if self._is_newest(topic, partition, snapshot):
            return True
        newest = self.newest(topic, partition)
        if newest is not None and newest.previous == snapshot.checksum:
            return True
        with suppress(FileNotFoundError):  # its name was free again: it is long passed
            self.files.remove(path)
        return False

    def due(self, lane: Lane, commits: int) -> bool:
        """After that many commits since the last snapshot there should be one."""
        return commits >= max(SNAPSHOT_COMMITS, len(lane.files) // FILES_PER_COMMIT)

    def _unfinished(self, time_ms: int) -> Path:
        return self.root / names.UNFINISHED / names.record_of(Attempt.begun(time_ms))
