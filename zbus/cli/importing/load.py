"""Rows into a topic, each once: the broker's transactions, numbered by places of the source.

Rows are staged in batches that are under way together, and committed in groups. The number of a
commit is the place of its last row, which the broker keeps in the same write: so a run that was
killed, or whose broker was, goes on behind the last row that is stored, whatever was under way.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Final

import attrs
import click
import msgspec

from zbus import client
from zbus.cli.importing.rows import Row
from zbus.cli.messages.files import BATCH_BYTES, BATCH_MESSAGES, BATCHES_UNDER_WAY, BadFile
from zbus.cli.words import Cannot, counted
from zbus.client.blocking import BlockingClient, Pending, Pipeline
from zbus.client.commands import CONTAINER, encode_offsets, encode_part
from zbus.client.messages import StoredBatch
from zbus.client.requests import Request, optional, parse_count, parse_stored_batch, start
from zbus.wire.responses import Response

COMMIT_ROWS = 5_000
COMMIT_BYTES = 8 << 20
COMMIT_TIMEOUT_S: Final = 600.0
"""A group is stored in portions; the answer comes when all is durable."""
_OF_ROWS = (400, 413, 431)
"""Refusals that are about a message, and not about the broker or the topic."""
_PROGRESS_S = 1.0


Part = tuple[Row, bytes]
"""A row, and its message as a part of a batch."""


@attrs.define
class Loaded:
    """What became of the rows of a run."""

    stored: int = 0
    known: int = 0  # stored by an earlier run, or twice in the source
    refused: int = 0
    seconds: float = 0.0
    name: str = ""

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.stored / self.seconds if self.seconds else 0.0


class RowRefused(BadFile):
    """A row cannot be a message, and the import is to stop there."""


@attrs.define
class Importer:
    """One run of an import into a topic. `keep_going`: rows that are refused are reported and left
    out; else the first one ends it, and those before it are stored. `rate`: the most rows a
    second; 0 = no limit."""

    bus: BlockingClient
    topic: str
    keep_going: bool
    rate: int
    progress: bool
    loaded: Loaded = attrs.field(factory=Loaded)
    _gathered: list[Part] = attrs.field(factory=list)
    _gathered_bytes: int = 0
    _open: list[tuple[list[Part], Pending[StoredBatch]]] = attrs.field(factory=list)
    _open_rows: int = 0
    _open_bytes: int = 0
    _began_s: float = attrs.field(factory=time.monotonic)
    _shown_s: float = 0.0
    _pipeline: Pipeline = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pipeline = self.bus.pipeline(BATCHES_UNDER_WAY)

    def begin(self, identity: str, name: str | None) -> int | None:
        """Name the run; the place of the last row that runs of this name have stored, None if there
        was none. `identity` says what is imported, and makes a name if none is given."""
        digest = hashlib.sha256(f"{self.topic.lower()} {identity}".encode()).hexdigest()
        self.loaded.name = name or f"import-{digest[:16]}"
        lines = b"GET / HTTP/1.1\r\ncmd: txn_query\r\n" + optional(txn=self.loaded.name)
        try:
            return self.bus.run(Request(lines, _last_batch))
        except client.NotFound:
            return None

    def load(self, rows: Iterator[Row], last: int | None, is_sequence: bool) -> Loaded:
        """Store the rows behind the place `last`. Raises RowRefused; Cannot if the sequence is not
        the one whose rows were stored before."""
        seen = last is None or not is_sequence
        for row in rows:
            if last is not None and row.place <= last:
                seen = seen or row.place == last
                self.loaded.known += 1
                continue
            self._check(seen)
            part, problem = b"", row.problem
            if row.message is not None:
                try:
                    part = encode_part(row.message)
                except ValueError as error:
                    problem = str(error)
            if part:
                self._put(row, part)
            elif problem:
                if not self.keep_going:
                    self._commit()
                self._refuse(row, problem)
            else:
                self.loaded.known += 1
        self._check(seen)
        self._commit()
        self.loaded.seconds = round(time.monotonic() - self._began_s, 3)
        return self.loaded

    def _check(self, seen: bool) -> None:
        if not seen:
            text = "the source does not begin with the rows that were stored as"
            text = f"{text} {self.loaded.name}: it has changed, or is another one"
            raise Cannot(f"{text}; --name NAME stores all of its rows")

    def _put(self, row: Row, part: bytes) -> None:
        self._gathered.append((row._replace(message=None), part))
        self._gathered_bytes += len(part)
        self._open_rows += 1
        self._open_bytes += len(part)
        if len(self._gathered) >= BATCH_MESSAGES or self._gathered_bytes >= BATCH_BYTES:
            self._send()
        most = min(COMMIT_ROWS, self.rate or COMMIT_ROWS)
        if self._open_rows >= most or self._open_bytes >= COMMIT_BYTES:
            self._commit()

    def _send(self) -> None:
        if self._gathered:
            self._open.append((self._gathered, self._stage(self._gathered)))
        self._gathered, self._gathered_bytes = [], 0

    def _stage(self, parts: list[Part]) -> Pending[StoredBatch]:
        body = b"".join([part for _, part in parts])
        lines = start(b"txn_stage", self.topic) + optional(txn=self.loaded.name)
        lines += b"content-type: %b\r\n" % CONTAINER
        # A key is added by the client, so that a request whose answer was lost is sent again.
        request = Request(lines, parse_stored_batch, body, safe=False, keyed=True)
        pending = self._pipeline.begin(request)
        self._pipeline.flush()
        return pending

    def _commit(self) -> None:
        """Store what is gathered and staged."""
        self._send()
        offsets: list[int] = []
        place, refused = 0, None
        try:
            for parts, pending in self._open:
                for row, offset in self._settled(parts, pending):
                    offsets.append(offset)
                    place = row.place
        except RowRefused as error:
            refused = error  # those before it are stored all the same
        self._open, self._open_rows, self._open_bytes = [], 0, 0
        if offsets:
            self._store(offsets, place)
        if refused is not None:
            raise refused

    def _settled(
        self, parts: list[Part], pending: Pending[StoredBatch]
    ) -> Iterator[tuple[Row, int]]:
        """Rows that are staged, and where. A batch with one that is refused is staged by halves."""
        try:
            first = pending.result().offset
        except client.Refused as error:
            if error.status not in _OF_ROWS:
                raise
            if len(parts) == 1:
                self._refuse(parts[0][0], error.text)
                return
            middle = len(parts) // 2
            for half in (parts[:middle], parts[middle:]):
                yield from self._settled(half, self._stage(half))
            return
        for offset, (row, _) in enumerate(parts, first):
            yield row, offset

    def _store(self, offsets: list[int], place: int) -> None:
        lines = b"GET / HTTP/1.1\r\ncmd: txn_commit\r\n"
        lines += optional(txn=self.loaded.name, batch=place)
        stages = [{"topic": self.topic, "offsets": encode_offsets(offsets)}]
        body = msgspec.json.encode({"stages": stages})
        self.bus.run(Request(lines, parse_count, body, timeout_s=COMMIT_TIMEOUT_S))
        self.loaded.stored += len(offsets)
        now_s = time.monotonic()
        seconds = self.loaded.seconds = now_s - self._began_s
        if self.progress and now_s - self._shown_s >= _PROGRESS_S:
            self._shown_s = now_s
            text = f"{counted(self.loaded.stored, 'message')}, {self.loaded.rate:,.0f}/s"
            click.echo(f"zbus: {text}", err=True)
        if self.rate and (pause_s := self.loaded.stored / self.rate - seconds) > 0:
            time.sleep(pause_s)

    def _refuse(self, row: Row, why: str) -> None:
        text = f"{row.at}: {why.removeprefix('400: Bad Format, ').removeprefix('message 0: ')}"
        if not self.keep_going:
            raise RowRefused(f"{text}; mend it or pass --on-error skip, and run the import again")
        self.loaded.refused += 1
        click.echo(f"zbus: {text}", err=True)


class _Standing(msgspec.Struct):
    batch: int | None


def _last_batch(response: Response) -> int | None:
    return msgspec.json.decode(response.body, type=_Standing).batch
