"""Reads from segment files, on a worker, because a cold read may take as long as the disk likes.

A read sees the lane as it was when it was asked for: the segments of then, and of the newest one
only the bytes that had been written. What is removed meanwhile is skipped. What cannot be read is
logged once for each place. Only a read that begins there fails; one that begins before it ends
there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from zbus.storage.format.batch import BatchHeader, Kind
from zbus.storage.local.files import Files
from zbus.storage.local.segment import INDEX_BYTES, WINDOW_BYTES, BadBatch, Segment, walk_views
from zbus.storage.local.worker import Worker
from zbus.storage.port import JournalDamage, JournalError, JournalFull, Post, ReadDone

OPEN_FILES_MAX: Final = 64
FAR_BYTES: Final = 16 << 10
"""A read that has found messages stops after that many bytes without more of them: thousands of
acknowledgements may follow a few messages."""
_TOLD_MAX: Final = 1_000  # bad places that are logged, each once

log = logging.getLogger("zbus")

Answer = ReadDone


class Reader:
    """See above. Its own open files are used by the worker only."""

    def __init__(self, files: Files, worker: Worker, post: Post) -> None:
        self._files = files
        self._worker = worker
        self._post = post
        self._open: dict[Segment, int] = {}  # the longest unused first
        # Offset and position behind what was read last: where a reader in order goes on.
        self._behind: dict[Segment, tuple[int, int]] = {}
        self._reported: set[str] = set()

    def read(
        self, segments: Sequence[Segment], limit: int, offset: int, bytes_max: int, done: Answer
    ) -> None:
        """Find `offset` in `segments`, of which the last has `limit` bytes that count."""
        self._worker.submit(partial(self._serve, segments, limit, offset, bytes_max, done))

    def remove(
        self,
        segments: Sequence[Segment],
        remove: Callable[[], None],
        fail: Callable[[str], None],
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """Free the space of segments, which are known by other names by now: close them, call
        `remove` here, and post `done`, or `fail` with the reason."""
        self._worker.submit(partial(self._remove, segments, remove, fail, done))

    def _remove(
        self,
        segments: Sequence[Segment],
        remove: Callable[[], None],
        fail: Callable[[str], None],
        done: Callable[[], None],
    ) -> None:
        self._close(segments)
        try:
            with suppress(FileNotFoundError):  # the whole lane went meanwhile, with everything
                remove()
        except Exception as error:  # whatever it was, the disk is not to be trusted
            self._post(partial(fail, f"removing {segments[0].path} failed: {error}"))
        else:
            self._post(done)

    def close(self) -> None:
        """Answer what was asked, then stop."""
        self._worker.stop()
        self._close(list(self._open))

    def _close(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            file = self._open.pop(segment, None)
            self._behind.pop(segment, None)
            if file is not None:
                self._files.close(file)

    def _serve(
        self, segments: Sequence[Segment], limit: int, offset: int, bytes_max: int, done: Answer
    ) -> None:
        answer: bytes | JournalError
        try:
            answer = self._collect(segments, limit, offset, bytes_max)
        except JournalError as error:
            answer = error
        except Exception as error:  # whatever it was, the asker must get an answer
            answer = JournalError(f"reading {segments[0].path.parent} failed: {error}")
        self._post(partial(done, answer))

    def _collect(
        self, segments: Sequence[Segment], limit: int, offset: int, bytes_max: int
    ) -> bytes:
        parts: list[memoryview] = []
        try:
            self._gather(segments, limit, offset, bytes_max, parts)
        except (JournalDamage, OSError) as error:
            self._report(str(error))
            if not parts:
                raise
        return b"".join(parts)

    def _report(self, what: str) -> None:
        if what not in self._reported and len(self._reported) < _TOLD_MAX:
            self._reported.add(what)
            text = "stored messages cannot be read; `zbus verify` tells more"
            log.critical(text, extra={"where": what})

    def _gather(
        self,
        segments: Sequence[Segment],
        limit: int,
        offset: int,
        bytes_max: int,
        parts: list[memoryview],
    ) -> None:
        """Add to `parts`, in order; those that are there when it fails are good."""
        wanted = max(offset, segments[0].base)
        total = 0
        skipped = False  # segments that were removed after the call
        for segment in segments:
            if segment.noted and not segment.has_data:
                continue
            # Of one that was replaced there is a file of that name, but it is another.
            file = None if segment.removed else self._file(segment)
            if file is None:
                skipped = True
                continue
            if skipped:
                skipped, wanted = False, max(wanted, segment.base)
            size = limit if segment is segments[-1] else self._files.size(file)
            offset_behind, behind = self._behind.get(segment, (-1, 0))
            start = near = max(segment.locate(wanted), behind if offset_behind == wanted else 0)
            window = min(WINDOW_BYTES, INDEX_BYTES + bytes_max)
            for position, header, batch in walk_views(
                self._files, file, segment.path, start, size, window
            ):
                if header.kind is not Kind.DATA:
                    if parts and position > near + FAR_BYTES:
                        return
                    continue
                if not segment.noted:
                    segment.note(header.base_offset, position)
                if header.end_offset <= wanted:
                    continue
                _check_place(segment, position, header, wanted, not parts)
                if parts and total + len(batch) > bytes_max:
                    return
                parts.append(batch)
                total += len(batch)
                wanted, near = header.end_offset, position + header.length
                self._behind[segment] = wanted, near
                if total >= bytes_max:
                    return

    def _open_file(self, segment: Segment) -> int:
        try:
            return self._files.open(segment.path, "read")
        except JournalFull:  # of descriptors
            if not self._open:
                raise
            self._close(list(self._open))
            return self._files.open(segment.path, "read")

    def _file(self, segment: Segment) -> int | None:
        """Give the segment's open file; None if the segment was removed."""
        file = self._open.pop(segment, None)
        if file is None:
            try:
                file = self._open_file(segment)
            except FileNotFoundError as error:
                if segment.removed:
                    return None
                raise JournalDamage(f"{segment.path} is missing") from error
            if len(self._open) >= OPEN_FILES_MAX:
                self._close([next(iter(self._open))])
        self._open[segment] = file
        return file


def _check_place(
    segment: Segment, position: int, header: BatchHeader, wanted: int, first: bool
) -> None:
    """No offset may be missing between what was read and this batch, or be there twice."""
    base = header.base_offset
    if base > wanted or (base < wanted and not first):
        raise BadBatch(segment.path, position, f"holds offsets from {base}, not from {wanted}")
