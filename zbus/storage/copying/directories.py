"""Logs in the files of a data directory, to be copied and made by a copy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from zbus.core.persistence.replay import recover
from zbus.storage.copying.lanes import Position
from zbus.storage.format.batch import HEADER_BYTES, Batch, Kind
from zbus.storage.format.checkpoint import topic_name
from zbus.storage.local import naming
from zbus.storage.local.directory import (
    make_identity,
    refuse_backup,
    remove_tree,
    take_directory,
)
from zbus.storage.local.engine import LocalJournal
from zbus.storage.local.files import Files
from zbus.storage.local.segment import BadBatch, walk_file
from zbus.storage.local.shards import find_shards, identity_of
from zbus.storage.port import JournalDamage, JournalError, Lane
from zbus.storage.tools.verify import find_directories

COPYING_SUFFIX: Final = ".copying"


class DirectorySource:
    """The data directory of one process or several. Without its lock a broker may write to it."""

    _is_target = False

    def __init__(self, files: Files, data_dir: Path) -> None:
        self._files = files
        self._data_dir = data_dir
        self._directories: dict[Lane, Path] = {}
        self._ends: dict[Lane, Position] = {}
        self._locks: list[int] = []

    def lock(self) -> bool:
        """Keep brokers away from it, and cut off what a crash left unfinished, as a start does;
        False if a broker is using it. Raises JournalError for what is no data directory."""
        refuse_backup(self._files, self._data_dir)
        try:
            names = self._files.list(self._data_dir)
        except OSError as error:
            raise JournalError(f"cannot open {self._data_dir}: {error.strerror}") from error
        shards = find_shards(self._files, self._data_dir)
        if shards == [self._data_dir] and naming.LOCK not in names:
            raise JournalError(f"{self._data_dir} is not a data directory of zbus")
        is_known = bool(self.identity())
        try:
            for each in dict.fromkeys([self._data_dir, *shards]):
                path = each / naming.LOCK
                if each in shards:
                    self._files.close(self._files.open(path, "lock"))
                    self._start(each)
                self._locks.append(self._files.open(path, "lock"))
        except BlockingIOError:
            self.close()
            if not is_known:
                raise JournalError(
                    f"{self._data_dir} is used by a broker of an early version: stop it first"
                ) from None
            return False
        return True

    def _start(self, directory: Path) -> None:
        failures: list[str] = []
        journal = LocalJournal(directory, lambda call: call(), failures.append, self._files)
        try:
            make_identity(self._files, directory)
            recover(journal)
        finally:
            journal.close()
        if failures:
            raise JournalError(failures[0])

    def close(self) -> None:
        while self._locks:
            self._files.close(self._locks.pop())

    def identity(self) -> str:
        """The random id of the data."""
        return identity_of(self._files, self._data_dir)

    def lanes(self) -> Mapping[Lane, Position]:
        self._ends = {}
        for directory, number in find_directories(self._files, self._data_dir)[0]:
            for base in reversed(self._bases(directory)):  # the newest may be just being made
                path = directory / naming.segment_name(base)
                topic, end = self._look(path)
                if end.size:
                    lane = topic, number
                    self._directories[lane] = directory
                    self._ends[lane] = end
                    break
        return self._ends

    def batches(self, lane: Lane, base: int) -> Iterator[Batch]:
        try:
            yield from self._walk(lane, base)
        except (BadBatch, FileNotFoundError) as error:
            if self._locks:
                raise
            text = f"{self._directories[lane]} changed while it was copied: run the command again"
            raise JournalError(f"{text} ({error})") from None

    def _walk(self, lane: Lane, base: int) -> Iterator[Batch]:
        directory, end = self._directories[lane], self._ends[lane]
        bases = [one for one in self._bases(directory) if one <= end.base]
        if not bases:
            raise FileNotFoundError("its segments are gone")
        first = max([one for one in bases if one <= base], default=bases[0])
        for one in bases:
            if one >= first:
                limit = end.size if one == end.base else None
                path = directory / naming.segment_name(one)
                for _, header, raw in walk_file(self._files, path, 0, limit):
                    yield Batch(header, raw)

    def _bases(self, directory: Path) -> list[int]:
        names = self._files.list(directory)
        return sorted(base for name in names if (base := naming.segment_base(name)) is not None)

    def _look(self, path: Path) -> tuple[str, Position]:
        """The topic of the newest segment, and where its last whole batch ends: what follows is not
        finished."""
        topic, end = "", Position()
        try:
            for _, header, raw in walk_file(self._files, path):
                if end.size == 0:
                    name = topic_name(memoryview(raw)[HEADER_BYTES:])
                    topic = name or naming.topic_of(path.parent.parent.name) or ""
                end = end.behind(header)
        except BadBatch:
            if self._locks and not self._is_target:
                raise  # a start has cut off what was not finished
        return topic, end


class DirectoryTarget(DirectorySource):
    """A data directory that is made. It takes its name when it is complete."""

    _is_target = True

    def __init__(self, files: Files, data_dir: Path) -> None:
        """Raises JournalError if the directory is not empty, or another copy to it is under way."""
        data_dir = data_dir.resolve()
        with suppress(FileNotFoundError):
            if files.list(data_dir):
                raise JournalError(f"{data_dir} is not empty; a copy makes a new directory")
            if data_dir.is_mount():
                raise JournalError(f"{data_dir} is a mount point: name a directory in it")
        super().__init__(files, data_dir.with_name(data_dir.name + COPYING_SUFFIX))
        self._named = data_dir
        self._locks = [take_directory(files, self._data_dir)]
        make_identity(files, self._data_dir)
        self._segment: Path | None = None  # which is written
        self._file = -1

    def lanes(self) -> Mapping[Lane, Position]:
        self.flush()
        return super().lanes()

    def batches(self, lane: Lane, base: int) -> Iterator[Batch]:
        try:
            yield from super().batches(lane, base)
        except BadBatch as bad:
            advice = f"remove {self._data_dir}, and run the command again"
            raise JournalDamage(f"the copy is damaged: {bad}; {advice}") from None

    def remove(self, lanes: Collection[Lane]) -> None:
        self.flush()
        for lane in lanes:
            remove_tree(self._files, self._directories.pop(lane))
            del self._ends[lane]

    def append(self, lane: Lane, batches: Sequence[Batch]) -> None:
        files, header = self._files, batches[0].header
        end = self._ends.get(lane, Position())
        if header.kind is Kind.CHECKPOINT:
            self.flush()
            self._begin(lane, header.base_offset)
            end = Position()
        elif self._segment != self._path(lane, end.base):
            self.flush()
            self._open(self._path(lane, end.base))
            files.truncate(self._file, end.size)
        files.write(self._file, b"".join([batch.raw for batch in batches]), end.size)
        for batch in batches:
            end = end.behind(batch.header)
        self._ends[lane] = end

    def _path(self, lane: Lane, base: int) -> Path:
        return self._directories[lane] / naming.segment_name(base)

    def _begin(self, lane: Lane, base: int) -> None:
        files, topic = self._files, self._data_dir / naming.topic_directory(lane[0])
        directory = self._directories.setdefault(lane, topic / str(lane[1]))
        for made in (topic, directory):
            if files.make_directory(made):
                files.sync_directory(made.parent)
        path = self._path(lane, base)
        with suppress(FileNotFoundError):
            files.remove(path)
        self._segment, self._file = path, files.open(path, "create")
        files.sync_directory(directory)

    def _open(self, path: Path) -> None:
        self._segment, self._file = path, self._files.open(path, "write")

    def flush(self) -> None:
        if self._segment is not None:
            self._segment = None
            self._files.sync(self._file)
            self._files.close(self._file)

    def finish(self) -> None:
        """Take the name: the copy is complete."""
        self.flush()
        self.close()
        with suppress(FileNotFoundError):
            self._files.remove(self._named)  # it is empty
        self._files.rename(self._data_dir, self._named)
        self._files.sync_directory(self._named.parent)
