"""Bloom filters as pyarrow writes them: what is in a row group is never passed over."""

from __future__ import annotations

import io
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zbus.spark.search.bloom import hash64, may_have


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"as", 0x1C330FB2D66BE179),
        (b"asd", 0x631C37CE72A97393),
        (b"asdf", 0x415872F599CEA71E),
        (
            b"Call me Ishmael. Some years ago--never mind how long precisely-",
            0x02A2E85470D6FD96,
        ),
    ],
)
def test_known_hashes(data: bytes, hashed: int) -> None:
    assert hash64(data) == hashed


def written(values: list[str], ndv: int) -> tuple[io.BytesIO, int]:
    """A file, and where its filter is."""
    file = io.BytesIO()
    options = {"v": {"ndv": ndv, "fpp": 0.01}}
    pq.write_table(pa.table({"v": values}), file, bloom_filter_options=options)
    offset = pq.read_metadata(file).row_group(0).column(0).bloom_filter_offset
    return file, offset


@pytest.mark.parametrize("count", [1, 30, 5_000])
def test_what_is_there_is_found_and_little_else(count: int) -> None:
    random = Random(count)
    values = [random.randbytes(random.randrange(60)).hex() for _ in range(count)]
    file, offset = written(values, count)
    assert all(may_have(file, offset, value.encode()) for value in values)
    known = set(values)
    others = [f"other-{number}" for number in range(2_000)]
    wrong = sum(may_have(file, offset, each.encode()) for each in others if each not in known)
    assert wrong < 0.03 * len(others)


@pytest.mark.parametrize("offset", [None, 0])
def test_without_a_filter_anything_may_be_there(offset: int | None) -> None:
    assert may_have(io.BytesIO(b""), offset, b"x")


def test_what_is_not_understood_may_have_anything() -> None:
    file, offset = written(["a"], 1)
    whole = file.getvalue()
    random = Random(7)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[offset + random.randrange(16)] ^= 1 << random.randrange(8)
        may_have(io.BytesIO(damaged[: random.randrange(offset, len(whole))]), offset, b"b")
    for size in range(offset, offset + 16):
        assert may_have(io.BytesIO(whole[:size]), offset, b"b")
