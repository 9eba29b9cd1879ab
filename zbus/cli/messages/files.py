"""Whole files of messages: in, in batches that are under way together; out, safe on the disk before
anything is acknowledged."""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from select import select
from typing import IO, Any

import attrs
import click
import msgspec

from zbus import client
from zbus.cli.words import Failed, counted
from zbus.client import Delivery, Message
from zbus.client.messages import FRAMING
from zbus.documents import NOT_JSON
from zbus.wire.responses import Response, ResponseReader

STDIN = "-"
BATCH_MESSAGES = 500
BATCH_BYTES = 256 << 10
BATCHES_UNDER_WAY = 8
READ_BYTES = 256 << 10
PAUSE_S = 0.1
"""What has come of a pipe is sent when nothing more comes for so long."""

BROKERS_OWN = FRAMING | frozenset(
    (
        b"consume_group count durability host id key offset origin_id"
        b" origin_method origin_url partition remote-addr retry sender skipped tag timestamp topic"
        b" idempotency-key"
    ).split()
)
"""Headers of a delivery that the broker makes, or that are labels; the rest is the producer's."""


class BadFile(Failed):
    """What is to be sent is not what was said of it."""

    exit_code = 1


def read_body(given: str | None) -> bytes:
    """The body of one message: what was given, or standard input. That nothing came from there is
    no empty message unless someone asked for standard input: a command before it may have failed.
    """
    if given is not None and given != STDIN:
        return given.encode()
    if given is None and sys.stdin.isatty():
        raise click.UsageError(f"missing BODY: give a text, a pipe or -{_EMPTY}")
    content = sys.stdin.buffer.read()
    if given is None and not content:
        raise click.UsageError(f"missing BODY: standard input is empty{_EMPTY}")
    return content


_EMPTY = "; for an empty message give ''"

Unit = tuple[Message, int] | None
"""A message, and how many bytes of the file it takes; None: nothing more came for a while."""


def _portions(file: IO[bytes]) -> Iterator[bytes]:
    """What a file has, as it comes; b"" if that takes a while."""
    try:
        waited = [file.fileno()]
    except OSError:  # it is in memory
        waited = []
    read = getattr(file, "read1", file.read)
    while True:
        if waited and not select(waited, [], [], PAUSE_S)[0]:
            yield b""
            select(waited, [], [])
        data = read(READ_BYTES)
        if not data:
            return
        yield data


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines with their ends; b"" as of portions."""
    parts: list[bytes] = []
    for data in _portions(file):
        *lines, rest = data.split(b"\n")
        for line in lines:
            yield b"".join((*parts, line, b"\n"))
            parts.clear()
        parts.append(rest)
        if not data:
            yield b""
    if last := b"".join(parts):
        yield last


def read_units(file: IO[bytes], form: str) -> Iterator[Unit]:
    """The messages of a file."""
    if form == "whole":
        body = file.read()
        yield Message(body), len(body)
    elif form == "messages":
        yield from _contained(file)
    else:
        headers = {"content-type": "application/json"} if form == "ndjson" else None
        number = 0
        for line in _lines(file):
            if not line:
                yield None
                continue
            number += 1
            body = line.removesuffix(b"\n").removesuffix(b"\r")
            if form == "ndjson":
                if not body.strip():
                    continue
                try:
                    msgspec.json.decode(body, type=msgspec.Raw)
                except NOT_JSON as error:
                    raise BadFile(f"line {number} is not JSON: {error}") from None
            yield Message(body, headers=headers), len(line)


def _contained(file: IO[bytes]) -> Iterator[Unit]:
    """What `zbus consume --messages` wrote."""
    reader = ResponseReader()
    for data in _portions(file):
        if not data:
            yield None
            continue
        found = reader.receive(data)
        if reader.error is not None:
            raise BadFile(f"the file was not written by consume --messages: {reader.error.text}")
        for response in found:
            yield _message(response), len(response.body)
    if not reader.between:
        raise BadFile("the last message of the file is cut short")


def _message(response: Response) -> Message:
    delivery = Delivery(response)
    headers = {
        name.decode("latin-1"): value.decode("utf-8", "replace")
        for name, value in response.fields.items()
        if name not in BROKERS_OWN
    }
    return Message(response.body, delivery.tag or None, delivery.key or None, headers=headers)


@attrs.define
class Sent:
    """What became of a file."""

    count: int = 0
    duplicates: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Sender:
    """Sends messages in batches; a batch goes to one partition, so keys are sorted by theirs."""

    def __init__(
        self, bus: client.BlockingClient, topic: str, labels: dict[str, Any], once: str | None
    ) -> None:
        """`once` makes the idempotency keys of the batches: the same file, sent again, is stored
        once. Without it each batch is stored once, however often this run has to send it."""
        self._topic = topic
        self._labels = labels
        self._once = once
        self._batches = 0
        self._partitions = bus.query(topic).partitions
        self._pipeline = bus.pipeline(BATCHES_UNDER_WAY)
        self._open: deque[Any] = deque()
        self._gathered: dict[int, tuple[list[Message], int]] = {}
        self.sent = Sent()

    def put(self, message: Message) -> None:
        """Take a message; it is sent when there are enough."""
        key = (message.key or self._labels.get("key") or "").encode()
        place = zlib.crc32(key) % self._partitions if key else -1
        messages, size = self._gathered.get(place, ([], 0))
        messages.append(message)
        size += len(message.body)
        self._gathered[place] = messages, size
        self.sent.bytes += len(message.body)
        if len(messages) >= BATCH_MESSAGES or size >= BATCH_BYTES:
            self._send(place)

    def _send(self, place: int) -> None:
        messages, _ = self._gathered[place]
        labels = dict(self._labels)
        if self._once is not None:
            labels["idempotency_key"] = f"{self._once}-{self._batches}"
        self._batches += 1
        self._open.append(self._pipeline.produce_many(self._topic, messages, **labels))
        del self._gathered[place]
        self._pipeline.flush()
        while self._open and self._open[0].done:
            self._take()

    def _take(self) -> None:
        stored = self._open[0].result()  # if this is interrupted, `finish` waits for it again
        self._open.popleft()
        self.sent.count += stored.count
        self.sent.duplicates += stored.duplicates

    def finish(self) -> None:
        """Send the rest; wait until all is stored."""
        for place in list(self._gathered):
            self._send(place)
        while self._open:
            self._take()


def send(
    bus: client.BlockingClient,
    topic: str,
    units: Iterator[Unit],
    labels: dict[str, Any],
    once: str | None,
    advance: Callable[[int], None],
) -> Sent:
    """Send all of it. What was stored when it fails stays stored."""
    began_s = time.monotonic()
    sender = Sender(bus, topic, labels, once)
    try:
        for unit in units:
            if unit is not None:
                sender.put(unit[0])
                advance(unit[1])
            elif once is None:  # else what is a batch must not depend on when it comes
                sender.finish()
        sender.finish()
    except KeyboardInterrupt:
        sender.finish()
        click.echo(f"zbus: {counted(sender.sent.count, 'message')} stored", err=True)
        raise
    except (client.ZbusError, BadFile):
        click.echo(f"zbus: at least {counted(sender.sent.count, 'message')} stored", err=True)
        raise
    sender.sent.seconds = round(time.monotonic() - began_s, 3)
    return sender.sent


@contextmanager
def progress_bar(file: IO[bytes], wanted: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr: how much of the file, how fast, how long yet."""
    if not wanted:
        yield lambda _size: None
        return
    from rich import progress
    from rich.console import Console

    size = os.fstat(file.fileno()).st_size if file.seekable() else None
    with progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("sent", total=size)
        yield lambda count: bar.advance(task, count)


class Out:
    """Where messages are written to: a file, at its end, or standard output."""

    def __init__(self, path: str | None, form: Callable[[Delivery], bytes]) -> None:
        self._form = form
        self._file: IO[bytes] = sys.stdout.buffer
        self._is_file = path not in (None, "-")
        if path is not None and self._is_file:
            try:
                self._file = open(path, "ab")  # noqa: SIM115 - `close` closes it
                folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
            except OSError as error:
                raise click.UsageError(f"cannot write {path}: {error.strerror}") from None
            try:
                os.fsync(folder)  # its name, too, must be there after a power cut
            finally:
                os.close(folder)

    def write(self, messages: list[Delivery]) -> None:
        """Write them; a file is safe on the disk when this returns."""
        self._file.write(b"".join(self._form(message) for message in messages))
        self._file.flush()
        if self._is_file:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._is_file:
            self._file.close()
