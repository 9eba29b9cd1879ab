"""Streams of frames, good ones and broken ones, split anywhere: wsproto judges all of them.

A stream is messages in fragments with control frames between them, some of them wrong, and then
perhaps bytes of it changed. After every piece that is read the events must be those of wsproto, and
so must the code be when it refuses the stream. `make fuzz` reads as many streams as one likes:
`python -m tests.wire.frame_fuzz --streams N --seed S`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from random import Random

from tests.wire.websocket_frames import frame
from tests.wire.websocket_judge import Judge
from zbus.wire.websocket import (
    BINARY,
    CLOSE,
    FRAMES_PER_STEP,
    PING,
    PONG,
    TEXT,
    TOO_BIG,
    Event,
    WebSocketReader,
)

BYTES_MAX = (1 << 63) - 1
TRAILER = frame(PONG, bytes(8)) * 2
"""So that most streams do not end within a frame."""

WORDS = [
    b"", b"a", b"hello", b"x" * 125, b"x" * 126, b"y" * 127, b"z" * 600, "ä".encode(), "€".encode(),
    "\N{GRINNING FACE}".encode(), "aä€".encode() * 50, b"\xf4\x8f\xbf\xbf", b"\x00", b"\r\n\r\n",
    b"{}",
]  # fmt: skip
BAD_WORDS = [
    b"\xff", b"\x80", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xc3(",
    b"a\xf0\x9f", b"\xf8\x88\x80\x80\x80", b"ok\xfe",
]  # fmt: skip
LARGE = [b"l" * 65_535, b"L" * 65_536, "€".encode() * 22_000]
CODES = [
    1000,
    1000,
    1001,
    1002,
    1003,
    1007,
    1008,
    1011,
    1013,
    3000,
    3999,
    4000,
    4999,
    0,
    1,
    999,
    1004,
    1005,
    1006,
    1012,
    1014,
    1015,
    1016,
    1100,
    2000,
    2999,
    5000,
    65_535,
]


class Streams:
    """A maker of streams."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def make(self) -> bytes:
        random = self.random
        out: list[bytes] = []
        for _ in range(random.choice((1, 1, 2, 3, 5))):
            if random.random() < 0.02:
                out.append(self.many())
            else:
                out += self.message()
            if random.random() < 0.1:
                out.append(self.wrong())
            if random.random() < 0.05:
                out.append(self.closing())
        if random.random() < 0.05:
            out.insert(random.randrange(len(out) + 1), self.wrong())
        if len(out) > 1 and random.random() < 0.05:
            out.pop(random.randrange(len(out)))
        data = b"".join(out)
        return self.spoil(data) if random.random() < 0.15 else data

    def key(self) -> bytes:
        return self.random.choice((b"\x11\x80\xfe\x33", bytes(4), self.random.randbytes(4)))

    def payload(self) -> bytes:
        random = self.random
        if random.random() < 0.01:
            return random.choice(LARGE)
        words = [random.choice(WORDS) for _ in range(random.choice((1, 1, 2, 3)))]
        if random.random() < 0.07:
            words.insert(random.randrange(len(words) + 1), random.choice(BAD_WORDS))
        return b"".join(words)

    def message(self) -> list[bytes]:
        """Its frames, with others between them."""
        random = self.random
        payload, kind = self.payload(), random.choice((TEXT, TEXT, BINARY))
        count = random.choice((0, 0, 1, 2, 4))
        cuts = sorted(random.randint(0, len(payload)) for _ in range(count))
        frames = []
        for number, (begin, end) in enumerate(zip((0, *cuts), (*cuts, len(payload)), strict=True)):
            opcode = 0 if number else kind
            piece = payload[begin:end]
            frames.append(frame(opcode, piece, fin=number == len(cuts), key=self.key()))
            if random.random() < 0.15:
                frames.append(frame(random.choice((PING, PONG)), self.small(), key=self.key()))
        return frames

    def small(self) -> bytes:
        return self.random.choice(WORDS)[:125]

    def many(self) -> bytes:
        """More frames than one call reads, of the smallest."""
        random = self.random
        count = FRAMES_PER_STEP * random.choice((1, 2)) + random.randint(-2, 2)
        if random.random() < 0.5:
            return frame(random.choice((TEXT, PING, PONG)), b"m", key=self.key()) * count
        letters = b"".join(random.choice(WORDS[1:10]) for _ in range(40))[:count]
        pieces = [frame(0, letters[at : at + 1], fin=False) for at in range(count)]
        if random.random() < 0.3:
            pieces.insert(random.randrange(count), frame(0, random.choice(BAD_WORDS), fin=False))
        if random.random() < 0.3:
            pieces.insert(random.randrange(count), frame(PING, b"between"))
        return b"".join((frame(TEXT, fin=False), *pieces, frame(0)))

    def closing(self) -> bytes:
        random = self.random
        reason = random.choice(WORDS if random.random() < 0.8 else BAD_WORDS)[:123]
        code = random.choice(CODES).to_bytes(2)
        return frame(CLOSE, random.choice((code + reason, code, b"", b"\x03")), key=self.key())

    def wrong(self) -> bytes:
        """A frame with something that is not allowed, at least in most places."""
        random = self.random
        payload, key = self.small(), self.key()
        control = random.choice((CLOSE, PING, PONG))
        return random.choice((
            frame(random.choice((TEXT, PING, 0)), payload, rsv=random.randint(1, 7), key=key),
            frame(random.choice((3, 4, 5, 6, 7, 11, 12, 13, 14, 15)), payload, key=key),
            frame(random.choice((TEXT, BINARY, PING, CLOSE)), payload, key=b""),
            frame(0, payload, key=key, fin=random.random() < 0.5),
            frame(random.choice((TEXT, BINARY)), payload, key=key, fin=False),
            frame(control, payload, key=key, fin=False),
            frame(control, payload + b"x" * 126, key=key),
            frame(control, payload, key=key, length_bytes=random.choice((2, 8))),
            frame(BINARY, payload, key=key, length_bytes=random.choice((2, 8))),
            frame(BINARY, payload, key=key, length_bytes=8, length=1 << random.randint(16, 63)),
            frame(TEXT, payload, key=key, length=random.choice((len(payload) + 3, 200, 70_000))),
            random.randbytes(random.randint(1, 20)),
        ))  # fmt: skip

    def spoil(self, data: bytes) -> bytes:
        """Change a byte or a bit, drop some, add some, or end early."""
        random = self.random
        at = random.randrange(len(data))
        how = random.randrange(5)
        if how == 0:
            return data[:at] + random.randbytes(1) + data[at + 1 :]
        if how == 1:
            return data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1 :]
        if how == 2:
            return data[:at] + data[at + random.randint(1, 4) :]
        if how == 3:
            return data[:at] + random.randbytes(random.randint(1, 4)) + data[at:]
        return data[:at]

    def split(self, data: bytes) -> Iterator[bytes]:
        random = self.random
        most = random.choice((1, 3, 20, 300, 5_000, len(data)))
        if len(data) > 2_000:
            most = max(most, 300)
        at = 0
        while at < len(data):
            size = random.randint(1, most)
            yield data[at : at + size]
            at += size


def read(reader: WebSocketReader, data: bytes) -> list[Event]:
    """In as many steps as it takes."""
    events = reader.receive(data)
    while reader.more:
        events += reader.receive(b"")
    return events


def difference(pieces: list[bytes]) -> str:
    """What the two say differently of a stream, or ""."""
    reader, judge = WebSocketReader(BYTES_MAX), Judge()
    for number, piece in enumerate(pieces):
        found, expected = read(reader, piece), judge.receive(piece)
        if found != expected:
            return f"piece {number}: {found}, but wsproto {expected}"
        code = 0 if reader.error is None else reader.error.status
        if judge.code and not code:
            return f"piece {number}: wsproto says {judge.code}"
        if judge.code and code not in (judge.code, TOO_BIG):
            return f"piece {number}: {code}, but wsproto {judge.code}"
    if reader.error and not judge.code:
        judge.receive(b"x" * 14)  # it wants to see a byte of a fragment that is out of place
    if bool(reader.error) != bool(judge.code):
        return f"at the end: {reader.error}, but wsproto {judge.code}"
    return ""


def unlike(data: bytes, pieces: list[bytes]) -> str:
    """What a limit, of which wsproto knows nothing, makes of the same bytes in one piece and in
    several, or ""."""
    whole, split = WebSocketReader(300), WebSocketReader(300)
    expected = (read(whole, data), str(whole.error))
    found = ([event for piece in pieces for event in read(split, piece)], str(split.error))
    return "" if found == expected else f"with a limit {found}, but in one piece {expected}"


class Counts:
    """Of a run."""

    def __init__(self) -> None:
        self.bytes = 0
        self.refused = 0
        self.different = 0


def run(streams: int, seed: int) -> Counts:
    random = Random(seed)
    maker = Streams(random)
    counts = Counts()
    for number in range(streams):
        data = maker.make() + TRAILER
        pieces = list(maker.split(data))
        counts.bytes += len(data)
        judge = Judge()
        judge.receive(data)
        counts.refused += bool(judge.code)
        for split in ([data], pieces):
            said = difference(split) or unlike(data, split)
            if said:
                counts.different += 1
                print(f"stream {number} in {len(split)} pieces, {data[:300]!r}: {said}", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--streams", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begun = time.monotonic()
    counts = run(options.streams, options.seed)
    print(
        f"{options.streams:,} streams of frames, {counts.bytes:,} bytes, {counts.refused:,} of them"
        f" refused, {counts.different:,} judged in two ways, {time.monotonic() - begun:.1f} s"
    )
    return 1 if counts.different else 0


if __name__ == "__main__":
    sys.exit(main())
