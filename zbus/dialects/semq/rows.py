"""A row of a mailbox as the platform reads it, and as its node is sent it."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import unquote

from zbus.core.api import Chunk, Message
from zbus.dialects.semq.frames import lines_of
from zbus.dialects.semq.mailboxes import MARK, VOID, Mailbox, locator
from zbus.semq.protocol.fields import RESERVED
from zbus.semq.protocol.words import (
    PLATFORM,
    Locator,
    Malformed,
    Mid,
    Store,
    Stream,
    read_envelope,
)
from zbus.wire.numbers import parse_number

_LK0: Final = b"\r\nlk0: "

_VISIBLE: Final = b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
_OTHERS_BYTES_MAX: Final = 96 << 10
_OTHERS_MAX: Final = 200
"""With more lines, or longer ones, a message of another dialect comes with none of them."""


class Row(NamedTuple):
    """What has to be known of it without its body."""

    offset: int
    mid: Mid
    record: int  # of LK0
    fields: dict[str, str]
    body_bytes: int
    produced_ms: int

    @property
    def contiguous(self) -> bool:
        """Its number must not be missing in its stream."""
        return self.mid.stream == Stream.CONTIGUOUS


def read_row(mailbox: Mailbox, chunk: Chunk, at: int) -> Row:
    """A message of a mailbox."""
    offset, lines = chunk.first + at, chunk.headers[at]
    rest = len(chunk.bodies[at]), chunk.time_of(at)
    if lines.startswith(MARK):
        fields = split_lines(lines[len(MARK) :])
        try:
            envelope = read_envelope(fields)
        except Malformed:
            envelope = None
        if envelope is not None and envelope.mid is not None and envelope.lk0 is not None:
            return Row(offset, envelope.mid, envelope.lk0.record, fields, *rest)
    return Row(offset, mailbox.own_mid(offset), offset + 1, {"src": PLATFORM}, *rest)


def mid_of(mailbox: Mailbox, chunk: Chunk, at: int) -> Mid:
    """The MID alone: that of SEMQ's own rows is their id, or begins it."""
    if chunk.headers[at].startswith(MARK):
        id = read_id(chunk, at).removesuffix(VOID)
        parts = id.rsplit("/", 5)
        if len(parts) == 6 and all(part.isdecimal() for part in (*parts[1:3], *parts[4:])):
            node, semq, db, epoch, stream, seq = parts
            return Mid(Store(node, int(semq), int(db)), epoch, int(stream), int(seq))
    return mailbox.own_mid(chunk.first + at)


def read_id(chunk: Chunk, at: int) -> str:
    """The id of one of SEMQ's own rows, as it was before it was encoded."""
    return unquote(chunk.ids[at].decode("utf-8", "replace"))


def lk0_of(chunk: Chunk, at: int) -> str:
    """LK0, as its sender wrote it."""
    lines = chunk.headers[at]
    begin = lines.find(_LK0) if lines.startswith(MARK) else -1
    if begin < 0:
        return str(Locator(Store(PLATFORM), chunk.first + at + 1))
    begin += len(_LK0)
    return lines[begin : lines.find(b"\r\n", begin)].decode("utf-8", "replace")


def split_lines(lines: bytes) -> dict[str, str]:
    """Canonical header lines as a dictionary."""
    pairs = [line.partition(": ") for line in lines.decode("utf-8", "replace").split("\r\n")]
    return {name: value for name, _, value in pairs if name}


def delivery_lines(mailbox: Mailbox, chunk: Chunk, at: int) -> bytes:
    """The header lines of its `semq_deliver`."""
    offset, lines = chunk.first + at, chunk.headers[at]
    lk1 = b"lk1: %b\r\n" % str(locator(offset)).encode()
    if lines.startswith(MARK):
        return lines[len(MARK) :] + lk1
    mid = mailbox.own_mid(offset)
    fields = {
        "src": PLATFORM,
        "dst": mailbox.node,
        "lk0": str(Locator(mid.store, offset + 1)),
        "epoch": mid.epoch,
        "stream": str(int(mid.stream)),
        "seq": str(mid.seq),
        "attempt": "1",
        "savefwd": "2",
    }
    return lines_of(fields) + _others(chunk.message(at)) + lk1


def _others(message: Message) -> bytes:
    """What its producer has said, as far as it is text: fields of SEMQ are UTF-8, and an endpoint
    takes a head of 128 KiB."""
    lines = [
        _text(line) + b"\r\n"
        for line in message.headers.split(b"\r\n")
        if line and line.partition(b":")[0].decode("latin-1").lower() not in RESERVED
    ]
    for name, value in ((b"origin_id", message.id), (b"tag", message.tag), (b"key", message.key)):
        if value and value.isascii() and value.decode().isprintable():
            lines.append(b"%b: %b\r\n" % (name, value))
    lines = [line for line in lines if not line[:-2].translate(None, _VISIBLE)]
    if sum(map(len, lines)) > _OTHERS_BYTES_MAX or len(lines) > _OTHERS_MAX:
        return b""
    return b"".join(lines)


def _text(line: bytes) -> bytes:
    """A line as UTF-8: what is not is taken as Latin-1, the character set of old HTTP."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1").encode()
    return line


def instance_of(lines: bytes) -> int:
    """The only instance that a row with these lines is for; 0 = any."""
    if not lines.startswith(MARK) or b"\r\nfixed: 1\r\n" not in lines:
        return 0
    return number_of(lines, b"semq_id") or 1


def number_of(lines: bytes, name: bytes) -> int:
    """A number in header lines; 0 = it is not there, or none."""
    begin = lines.find(b"\r\n%b: " % name)
    if begin < 0:
        return 0
    begin += len(name) + 4
    return parse_number(lines[begin : lines.find(b"\r\n", begin)]) or 0
