"""The table of newest offsets, held against a dictionary."""

from __future__ import annotations

from random import Random

import pytest

from zbus.core.topics.newest import (
    FIRST_STORED,
    SHARDS,
    Mortals,
    NewestOffsets,
    first_stored_ms,
)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_a_dictionary(seed: int) -> None:
    random = Random(seed)
    table, model = NewestOffsets(b"secret", 0), dict[bytes, int]()
    first = 0
    for offset in range(30_000):
        key = b"k%d" % random.randrange(1 << random.randrange(1, 14))
        table.note(key, offset, first)
        model[key] = offset
        if random.random() < 0.001:
            first = random.randrange(first, offset + 1)
            stop = random.randrange(first, offset + 2)
            found = [o for at in range(SHARDS) for o in table.below(at, first, stop)[0]]
            assert sorted(found) == sorted(o for o in model.values() if first <= o < stop)
    for key, offset in model.items():
        expected = offset if offset >= first else None
        assert (table.find(key) if offset >= first else expected) == expected
    assert table.find(b"never") is None
    list(map(lambda at: table.below(at, first, first), range(SHARDS)))
    list(map(lambda at: table.below(at, 1 << 40, 1 << 40), range(SHARDS)))
    assert table.count == 0


def test_it_takes_32_bytes_for_a_key_at_most() -> None:
    table = NewestOffsets(b"secret", 0)
    for offset in range(100_000):
        table.note(b"key-%d" % offset, offset)
    assert table.count == 100_000
    assert 16 <= table.bytes_used() / table.count <= 32.5


def test_an_older_message_changes_nothing() -> None:
    table = NewestOffsets(b"secret", 0)
    table.note(b"k", 7)
    table.note(b"k", 5)
    assert table.find(b"k") == 7


def test_what_has_no_key_is_its_own_newest() -> None:
    table = NewestOffsets(b"secret", 0)
    for offset in range(3):
        table.note(b"", offset)
    assert table.count == 3
    assert [table.find(b"", offset) for offset in range(4)] == [0, 1, 2, None]


@pytest.mark.parametrize(
    ("headers", "stored_ms"),
    [
        (b"", 0),
        (b"a: b\r\n", 0),
        (FIRST_STORED + b"17\r\n", 17),
        (b"a: b\r\n" + FIRST_STORED + b"17\r\nc: d\r\n", 17),
        (b"a: first-stored: 3\r\n", 0),
        (FIRST_STORED + b"-1\r\n", 0),
        (FIRST_STORED + b"\xb2\r\n", 0),
        (FIRST_STORED + b"9" * 400 + b"\r\n", 0),
    ],
)
def test_the_line_of_a_copy(headers: bytes, stored_ms: int) -> None:
    assert first_stored_ms(headers) == stored_ms


def test_times_of_messages_are_few() -> None:
    """However many there are and whenever each goes: days far away, minutes today."""
    mortals = Mortals()
    for number in range(50_000):
        mortals.note(10**12 + number * 60_000, 10**12)
    assert len(mortals._minutes) < 3_000
    first_ms = mortals.next_ms
    assert 10**12 < first_ms <= 10**12 + 60_000
    mortals.look(first_ms - 1, 0, 10)
    assert mortals.count == 0
    mortals.look(first_ms, 0, 10)
    assert mortals.count == 1
    mortals.look(10**13, 9, 20)
    assert mortals.count == 50_000
    assert mortals.next_ms == 0
    mortals.look(10**13, 10, 20)
    assert mortals.count == 49_999
    mortals.look(10**13, 20, 20)
    assert mortals.count == 0
