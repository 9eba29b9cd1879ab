"""Compressed bodies: every coding, whole, damaged, and as a bomb."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from zbus.wire.bodies import content_coding
from zbus.wire.bodies.budget import Budget
from zbus.wire.bodies.content_coding import (
    UnknownCoding,
    accepted_codings,
    coding_of,
    decode_in_steps,
)
from zbus.wire.errors import WireError

MIB = 1 << 20
LIMIT = 16 * MIB


def bare_deflate(body: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(body) + compressor.flush()


def brotli(body: bytes) -> bytes:
    return bytes(pytest.importorskip("brotli").compress(body))


def zstd(body: bytes) -> bytes:
    return bytes(pytest.importorskip("zstandard").ZstdCompressor().compress(body))


class Format(NamedTuple):
    coding: str
    encode: Callable[[bytes], bytes]
    streams: bool  # may stand one after another


FORMATS = {
    "gzip": Format("gzip", gzip.compress, True),
    "zlib": Format("deflate", zlib.compress, False),
    "bare deflate": Format("deflate", bare_deflate, False),
    "br": Format("br", brotli, False),
    "zstd": Format("zstd", zstd, True),
}
each_format = pytest.mark.parametrize("name", FORMATS)


def decoded(
    coding: str, body: bytes, bytes_max: int = LIMIT, budget: Budget | None = None
) -> bytes:
    steps = decode_in_steps(coding, body, bytes_max, budget)
    while True:
        try:
            assert next(steps) > 0
        except StopIteration as end:
            return bytes(end.value)


BODIES = {
    "nothing": b"",
    "a byte": b"a",
    "no ratio": Random(1).randbytes(70_000),
    "a step": b"x" * (32 << 10),
    "a step and a byte": b"x" * ((32 << 10) + 1),
    "as much as is kept at once": b"ab" * (MIB // 2),
    "more than is kept at once": b"ab" * (MIB // 2) + b"c",
}


@each_format
@pytest.mark.parametrize("kind", BODIES)
def test_whole(name: str, kind: str) -> None:
    form, body = FORMATS[name], BODIES[kind]
    assert decoded(form.coding, form.encode(body)) == body


@each_format
@pytest.mark.parametrize("size", [1, 2 * MIB])
def test_the_limit_is_exact(name: str, size: int) -> None:
    form = FORMATS[name]
    data = form.encode(b"x" * size)
    assert len(decoded(form.coding, data, size)) == size
    with pytest.raises(WireError, match=rf"^413: the decoded body is over {size - 1} bytes$"):
        decoded(form.coding, data, size - 1)


@each_format
def test_every_truncation(name: str) -> None:
    form = FORMATS[name]
    data = form.encode(b"hello, hello, hello" * 20)
    for end in range(1, len(data)):
        with pytest.raises(WireError) as refused:
            decoded(form.coding, data[:end])
        assert refused.value.status == 400
        assert refused.value.text.isascii()


@each_format
@pytest.mark.parametrize("rest", [b"\0", b"\n", b"garbage behind the end"])
def test_bytes_behind_the_end(name: str, rest: bytes) -> None:
    form = FORMATS[name]
    with pytest.raises(WireError, match=r"^400: "):
        decoded(form.coding, form.encode(b"hello") + rest)


@each_format
def test_what_is_something_else(name: str) -> None:
    with pytest.raises(WireError, match=r"^400: "):
        decoded(FORMATS[name].coding, b'{"n": 1}\n' * 10)


@each_format
def test_streams_one_after_another(name: str) -> None:
    form = FORMATS[name]
    data = form.encode(b"one ") + form.encode(b"") + form.encode(b"two")
    if form.streams:
        assert decoded(form.coding, data) == b"one two"
    else:
        with pytest.raises(WireError, match=r"^400: "):
            decoded(form.coding, data)


def test_too_many_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_coding, "STREAMS_MAX", 3)
    one = gzip.compress(b"x")
    assert decoded("gzip", one * 3) == b"xxx"
    with pytest.raises(WireError, match=r"^400: the gzip body has more than 3 streams$"):
        decoded("gzip", one * 4)


@each_format
def test_a_bomb_takes_little_memory_and_work(name: str) -> None:
    """It is four times over the limit, and as much work as one of a byte over it."""
    form = FORMATS[name]
    bomb = form.encode(bytes(4 * LIMIT))
    work: list[int] = []
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=r"^413: "):
            work.extend(decode_in_steps(form.coding, bomb, LIMIT))
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()
    assert sum(work) < 80_000


@pytest.mark.parametrize("blocks", ["streams without a byte", "blocks without a byte"])
def test_a_step_is_short_though_nothing_comes_out(blocks: str) -> None:
    if blocks == "streams without a byte":
        data = gzip.compress(b"") * 9_000
    else:
        compressor = zlib.compressobj(wbits=31)
        flushed = b"".join(compressor.flush(zlib.Z_FULL_FLUSH) for _ in range(10))
        data = flushed + b"\0\0\0\xff\xff" * 50_000 + compressor.flush()
    assert sum(1 for _ in decode_in_steps("gzip", data, LIMIT)) >= len(data) >> 12
    assert decoded("gzip", data) == b""


@each_format
def test_what_is_kept_counts_and_is_given_back(name: str) -> None:
    form = FORMATS[name]
    data = form.encode(b"x" * (3 * MIB))
    budget = Budget(3 * MIB)
    assert len(decoded(form.coding, data, LIMIT, budget)) == 3 * MIB
    steps = decode_in_steps(form.coding, data, LIMIT, budget)
    assert max([budget.bytes_used for _ in steps]) == budget.bytes_max
    assert budget.bytes_used == 0
    steps = decode_in_steps(form.coding, data, LIMIT, budget)
    while not budget.bytes_used:
        next(steps)
    steps.close()  # its connection has ended
    assert budget.bytes_used == 0
    with pytest.raises(WireError, match=r"^503: "):
        decoded(form.coding, data, LIMIT, Budget(2 * MIB))


NAMES: list[tuple[bytes, str]] = [
    (b"", ""),
    (b"identity", ""),
    (b"Identity , identity", ""),
    (b"gzip", "gzip"),
    (b"x-gzip", "gzip"),
    (b" GZip\t", "gzip"),
    (b"identity, gzip", "gzip"),
    (b"gzip,", "gzip"),
    (b"deflate", "deflate"),
]


@pytest.mark.parametrize(("value", "coding"), NAMES)
def test_names(value: bytes, coding: str) -> None:
    assert coding_of(value) == coding


@pytest.mark.parametrize(
    "value",
    [b"gzip, gzip", b"gzip,deflate", b"compress", b"x-deflate", b"gzip;q=1", b"*", b"gz\xefp"],
)
def test_what_is_not_undone(value: bytes) -> None:
    with pytest.raises(UnknownCoding) as refused:
        coding_of(value)
    assert refused.value.status == 415
    assert refused.value.text.isascii()
    assert refused.value.line.startswith(b"accept-encoding: gzip, deflate")


def test_a_library_that_is_absent_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_coding, "_library", lambda _name: None)
    accepted_codings.cache_clear()
    try:
        assert accepted_codings() == ("gzip", "deflate")
        with pytest.raises(UnknownCoding):
            coding_of(b"br")
    finally:
        accepted_codings.cache_clear()
