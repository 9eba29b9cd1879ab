"""Heads of plausible and of nasty parts, the same with something wrong in them, and who judges.

The parts are few, so that whoever reads many such heads knows nearly every line of the next one.
What is read with warm memos must be what the careful judge says to it. `make fuzz` compares them
for as many heads as one likes: `python -m tests.wire.head_fuzz --heads N --seed S`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable
from itertools import product
from random import Random

from zbus.wire.errors import WireError
from zbus.wire.heads.heads import Head, Heads
from zbus.wire.heads.judge import judge
from zbus.wire.limits import DEFAULT_LIMITS, WireLimits

TIGHT_LIMITS = WireLimits(line_bytes_max=48, head_bytes_max=160, fields_max=5)
ALL_LIMITS = (DEFAULT_LIMITS, TIGHT_LIMITS)
MARKS = frozenset((b"cmd",))

STARTS = [
    b"GET / HTTP/1.1", b"GET /a?b=c HTTP/1.1", b"POST / HTTP/1.0", b"GET / HTTP/1.0",
    b"FOO * HTTP/1.1", b"GET http://a/ HTTP/1.1", b"GET / HTTP/1.2", b"GET /  HTTP/1.1",
    b"GET /\xe4 HTTP/1.1", b"get / http/1.1", b"HTTP/1.1 200 OK", b"G@T / HTTP/1.1",
    b"HTTP/1.1 200 HTTP/1.1", b"GET / HTTP/1.1 ", b"GET /" + b"a" * 60 + b" HTTP/1.1", b"",
]  # fmt: skip
NAMES = [
    b"cmd", b"Cmd", b"topic", b"id", b"ID", b"Id", b"a", b"A", b"x-id", b"content-length",
    b"Content-Length", b"Transfer-Encoding", b"transfer-encoding", b"Connection", b"connection",
    b"Host", b"host", b"Expect", b"Upgrade", b"TE", b"Keep-Alive", b"bad name", b"a ", b"",
]  # fmt: skip
VALUES = [
    b"", b"1", b"2", b"5, 5", b"+5", b"5 ", b"1_0", b"05", b"9" * 15, b"9" * 16, b"9" * 20,
    b"chunked", b"CHUNKED", b"gzip", b"close", b"keep-alive", b"Keep-Alive, TE", b"websocket",
    b"localhost:15555", b"a b", b"100-continue", b"\xe4\xb8\xad", b"a\tb", b"a\x00", b"a\rb",
    b"a\nb", b"\x7f", b"a:b", b"[::1]", b"v" * 40, b"produce",
]  # fmt: skip
SEPARATORS = [b": ", b": ", b": ", b":", b":  ", b" : ", b":\t"]
PLAIN_LINES = [
    b"Host: localhost", b"host: a", b"cmd: x", b"cmd:", b"id: 1", b"id: 2", b"ID: 3", b"id:",
    b"a: b", b"a:", b"A: c", b"topic:", b"content-length: 0", b"content-length: 12", b" folded",
]  # fmt: skip
BYTES = [b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b"\xff", b"\x7f", b",", b"+", b"0"]
LINE_ENDS = [b"\n", b"\r", b"\r\r\n", b"\n\r", b"\r\n\r\n", b"\r\n ", b"\r\n\t", b""]
IDS = [b"\r\nid: 1", b"\r\nid: 2", b"\r\nid:", b"\r\nID: 1", b"\r\nid:  1", b"\r\nid", b"\r\nid: "]


def make(random: Random) -> bytes:
    """A head as it may be meant, without its empty line."""
    pick = random.choice
    lines = [pick(STARTS[:4] if random.random() < 0.7 else STARTS)]
    lines += pick(([], [b"Host: a"], [b"cmd: x"], [b"Host: a", b"cmd: x"]))
    for _ in range(pick((0, 1, 1, 2, 2, 3, 5))):
        if random.random() < 0.75:
            lines.append(pick(PLAIN_LINES))
        else:
            lines.append(pick(NAMES) + pick(SEPARATORS) + pick(VALUES))
    return b"\r\n".join(lines)


# -- what may be wrong with it ------------------------------------------------------------------


def drop_byte(random: Random, raw: bytes, limits: WireLimits) -> bytes:
    at = random.randrange(len(raw))
    return raw[:at] + raw[at + 1 :]


def insert(random: Random, raw: bytes, limits: WireLimits) -> bytes:
    at = random.randint(0, len(raw))
    return raw[:at] + random.choice(BYTES) + raw[at:]


def swap_case(random: Random, raw: bytes, limits: WireLimits) -> bytes:
    at = random.randrange(len(raw))
    return raw[:at] + raw[at : at + 1].swapcase() + raw[at + 1 :]


def add_id(random: Random, raw: bytes, limits: WireLimits) -> bytes:
    lines = raw.split(b"\r\n")
    at = random.randint(0, len(lines))
    return b"\r\n".join(lines[:at]) + random.choice(IDS) + b"".join(b"\r\n" + x for x in lines[at:])


def change_lines(random: Random, raw: bytes, limits: WireLimits) -> bytes:
    """Cut one off at its colon, drop it, repeat it, or change its place."""
    lines = raw.split(b"\r\n")
    line = lines.pop(random.randrange(len(lines)))
    how = random.randrange(5)
    for piece in ([line.partition(b":")[0]], [line.replace(b":", b"", 1)], [], [line], [line] * 2)[
        how
    ]:
        lines.insert(random.randint(0, len(lines)), piece)
    return b"\r\n".join(lines)


def change_line_end(random: Random, raw: bytes, limits: WireLimits) -> bytes:
    pieces = raw.split(b"\r\n")
    at = random.randint(0, len(pieces))
    before, after = b"\r\n".join(pieces[:at]), b"\r\n".join(pieces[at:])
    return before + random.choice(LINE_ENDS) + after


def fill_line(random: Random, raw: bytes, limits: WireLimits) -> bytes:
    """Make a line as long as it may be, or as what is remembered may be, or hardly longer."""
    lines = raw.split(b"\r\n")
    at = random.randrange(len(lines))
    size = random.choice((limits.line_bytes_max, 512, 1024 + 4)) + random.randint(-1, 1)
    lines[at] += b"v" * (size - len(lines[at]))
    return b"\r\n".join(lines)


def fill_id(random: Random, raw: bytes, limits: WireLimits) -> bytes:
    """Give an id that makes its line, or the head, as long as it may be, or hardly longer."""
    rooms = (limits.line_bytes_max - 4, 1024, limits.head_bytes_max - len(raw) - 6)
    size = max(0, random.choice(rooms) + random.randint(-1, 1))
    start, *lines = raw.split(b"\r\n")
    return b"\r\n".join((start, b"id: " + b"v" * size, *lines))


def fill_head(random: Random, raw: bytes, limits: WireLimits) -> bytes:
    """Make a head as large as it may be, or as what is remembered may be, or hardly larger."""
    size = random.choice((limits.head_bytes_max, 2048)) + random.randint(-1, 1)
    at = raw.find(b"\r\n")
    while at >= 0 and len(raw) < size:
        line = b"\r\nx%d: " % len(raw)
        line += b"v" * (min(size - len(raw), limits.line_bytes_max - 2) - len(line))
        raw = raw[:at] + line + raw[at:]
    return raw


def fill_fields(random: Random, raw: bytes, limits: WireLimits) -> bytes:
    """Add lines until there are as many as there may be, or one more or less."""
    missing = limits.fields_max - raw.count(b"\r\n") + random.randint(-1, 1)
    return raw + b"".join(b"\r\nf%d:" % number for number in range(missing))


SMALL = (
    drop_byte,
    insert,
    insert,
    swap_case,
    add_id,
    change_lines,
    change_lines,
    change_lines,
    change_line_end,
)
LARGE = (fill_line, fill_id, fill_head, fill_fields)


def spoil(random: Random, raw: bytes, limits: WireLimits) -> bytes:
    """The same head with something wrong in it, or two things; or it was harmless."""
    for _ in range(random.choice((1, 1, 2))):
        ways: tuple[Callable[[Random, bytes, WireLimits], bytes], ...] = SMALL
        if random.random() < (0.05 if limits is DEFAULT_LIMITS else 0.3):
            ways = LARGE
        if raw:
            raw = random.choice(ways)(random, raw, limits)
    return raw


# -- what is said to it -------------------------------------------------------------------------


NOTES = ("kept", "plan", "seen")
WORDS = [name for name in dir(Head) if name[0] != "_" and name not in NOTES]


def said(head: Head, id_: bytes) -> tuple[object, ...]:
    """Everything but what the reader and the dialects note on a head for themselves."""
    return (id_, *(getattr(head, name) for name in WORDS))


def quickly(heads: Heads, raw: bytes) -> tuple[object, ...]:
    try:
        return said(*heads.read(raw))
    except WireError as error:
        return (error.status, error.text)


def carefully(raw: bytes, limits: WireLimits, contained: bool) -> tuple[object, ...]:
    try:
        verdict = judge(raw, limits, contained=contained, marks=MARKS)
    except WireError as error:
        return (error.status, error.text)
    return said(verdict.head, verdict.id)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--heads", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random = Random(options.seed)
    readers = [
        (
            Heads(limits, contained=contained, marks=MARKS),
            limits,
            contained,
            deque([make(random)], maxlen=50),
        )
        for limits, contained in product(ALL_LIMITS, (False, True))
    ]
    begun = time.monotonic()
    accepted = different = 0
    for _ in range(options.heads):
        heads, limits, contained, recent = random.choice(readers)
        raw = make(random)
        if random.random() < 0.7:
            raw = spoil(random, random.choice(recent), limits)
        expected = carefully(raw, limits, contained)
        if len(expected) > 2:
            accepted += 1
            recent.append(raw)
        for found in (quickly(heads, raw), quickly(heads, raw)):
            if found != expected:
                different += 1
                print(f"{raw!r}: {found}, but cold {expected}", flush=True)
    seconds = time.monotonic() - begun
    print(
        f"{options.heads:,} heads, {accepted:,} of them accepted, {different:,} judged in two ways,"
        f" {seconds:.1f} s"
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
