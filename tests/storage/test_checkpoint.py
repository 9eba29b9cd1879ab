"""The codec of state: round trips, the short way, and what an older or hostile writer sends."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.core.cursor.state import (
    Entries,
    Entry,
    EntryState,
    GroupChange,
    GroupOptions,
    StateChange,
    TopicOptions,
)
from zbus.core.dedup.entries import IdColumns, Original
from zbus.core.model.dispositions import FORGOTTEN, Disposition, Endings
from zbus.core.timing.delays import Columns, Delays
from zbus.storage.format import checkpoint as codec
from zbus.storage.format.checkpoint import decode_change, encode_change, topic_name
from zbus.storage.port import JournalDamage


def columns(due_of: dict[int, int]) -> Columns:
    """What is stored of delayed messages: due times by offset."""
    delays = Delays()
    for offset, due_ms in due_of.items():
        delays.set(offset, due_ms)
    return delays.columns()


def endings(rows: list[tuple[int, int, int, int]]) -> Endings:
    """What is stored of messages that are finished: offset, time, attempts and fate of each."""
    told = Endings()
    for row in rows:
        told.add(*row)
    return told


NAMES = st.text(max_size=10)
NATURAL = st.integers(0, 2**63 - 1)
ENTRIES = st.builds(
    Entry,
    offset=NATURAL,
    state=st.sampled_from(EntryState),
    time_ms=NATURAL,
    attempts=st.integers(0, 2**32 - 1),
    rank=st.integers(-(2**63), 2**63 - 1),
)
GROUPS = st.builds(
    GroupChange,
    name=NAMES,
    cursor=NATURAL,
    options=st.none() | st.builds(GroupOptions, filter=NAMES, lease_ms=NATURAL),
    removed=st.booleans(),
    reset=st.booleans(),
    entries=st.lists(ENTRIES, max_size=5).map(lambda entries: Entries.of(*entries)),
    delayed=st.dictionaries(st.integers(0, 2**64 - 1) | st.integers(0, 600), NATURAL).map(columns),
    fates=st.lists(
        st.tuples(
            NATURAL, NATURAL, st.integers(0, 2**32 - 1), st.sampled_from([*Disposition, FORGOTTEN])
        ),
        max_size=5,
    ).map(endings),
    skipped=st.just(0) | NATURAL,
    dead=st.just(0) | NATURAL,
)
OPAQUE = st.just(b"") | (st.integers(-(2**63), 2**64 - 1) | st.lists(st.booleans() | NAMES)).map(
    msgspec.json.encode
)
ORIGINALS = st.lists(
    st.builds(
        Original,
        name=st.binary(min_size=16, max_size=16),
        offset=NATURAL,
        records=st.integers(0, 2**32 - 1),
        time_ms=NATURAL,
        digest=st.integers(0, 2**64 - 1),
    ),
    max_size=5,
).map(tuple)
IDS = st.dictionaries(st.binary(min_size=16, max_size=16), NATURAL, max_size=5).map(
    lambda known: IdColumns(b"".join(known), array("Q", known.values()))
)
CHANGES = st.builds(
    StateChange,
    topic=st.none()
    | st.builds(TopicOptions, name=NAMES, calls=st.booleans(), opaque=OPAQUE, partitions=NATURAL),
    groups=st.lists(GROUPS, max_size=4).map(tuple),
    originals=ORIGINALS,
    ids=IDS,
    expiries=st.dictionaries(st.integers(0, 2**64 - 1) | st.integers(0, 600), NATURAL).map(columns),
)


@given(CHANGES)
def test_round_trip(change: StateChange) -> None:
    payload = encode_change(change)
    assert len(payload) % 8 == 0
    assert decode_change(payload) == change
    assert topic_name(payload) == (None if change.topic is None else change.topic.name)


@given(CHANGES)
def test_the_short_way_makes_the_same_bytes(change: StateChange) -> None:
    assert encode_change(change) == codec._encode_any(change)


@pytest.mark.parametrize("kind", [TopicOptions, GroupOptions, GroupChange])
def test_no_field_is_forgotten(kind: type) -> None:
    """Each field of the state, as soon as there is one, is stored."""
    others: dict[str, Any] = {
        "str": "x",
        "int": 3,
        "bool": True,
        "bool | None": True,
        "bytes": b"1",
    }
    special: dict[str, Any] = {
        "durability": "os",
        "options": GroupOptions(opaque=b"1"),
        "entries": Entries.of(Entry(1, EntryState.READY, 2, 3, 4)),
        "delayed": columns({1: 2, 300: 4}),
        "fates": endings([(1, 2, 3, 4), (0, 5, 0, 1)]),
    }
    values: dict[str, Any] = {
        field.name: special.get(field.name, others.get(str(field.type)))
        for field in attrs.fields(kind)
    }
    made = kind(**values)
    if kind is TopicOptions:
        change = StateChange(topic=made)
    elif kind is GroupOptions:
        change = StateChange(groups=(GroupChange("g", options=made),))
    else:
        change = StateChange(groups=(made,))
    assert decode_change(encode_change(change)) == change
    if kind is not GroupOptions:
        return
    for name in values:  # what differs from the default in one field only
        one = attrs.evolve(GroupOptions(), **{name: values[name]})
        change = StateChange(groups=(GroupChange("g", options=one),))
        assert decode_change(encode_change(change)) == change


@pytest.mark.parametrize("field", ["removed", "reset", "skipped", "unreported"])
def test_no_field_is_forgotten_though_it_is_alone(field: str) -> None:
    """All but a cursor goes the long way; nobody has an untold loss without a loss."""
    value: Any = 1 if field in ("skipped", "unreported") else True
    values: dict[str, Any] = {field: value}
    alone = attrs.evolve(GroupChange("g", 4), **values)
    one = attrs.evolve(alone, skipped=1) if field == "unreported" else alone
    assert decode_change(encode_change(StateChange(groups=(one,)))).groups == (one,)


def payload(text: bytes, rest: bytes = b"") -> bytes:
    return struct.pack("<I", len(text)) + text + bytes(-(len(text) + 4) & 7) + rest


def test_the_format_keeps_its_names() -> None:
    """What the program calls otherwise by now is where older programs look for it."""
    text = (
        b'{"topic":{"name":"t","mask":66,"rpc":true,"competing":true,"delete_on_exit":true,'
        b'"bare":true},"groups":[{"name":"g","options":{"mask":32,"delete_on_exit":false}}]}'
    )
    topic = TopicOptions("t", opaque=b"66", calls=True, competing=True, temporary=True)
    topic = attrs.evolve(topic, minimal_headers=True)
    group = GroupChange("g", options=GroupOptions(opaque=b"32", temporary=False))
    change = StateChange(topic, (group,))
    assert encode_change(change) == payload(text)
    assert decode_change(payload(text)) == change


def test_names_of_the_program_are_none_of_the_format() -> None:
    text = b'{"topic":{"name":"t","opaque":"eA==","calls":true,"temporary":true}}'
    assert decode_change(payload(text)) == StateChange(TopicOptions("t"))


@pytest.mark.parametrize(
    "options",
    [b'{"name":1}', b'{"mask":1}', b'{"name":"t","rpc":3}', b'{"name":"t","window":[]'],
)
def test_options_that_are_none(options: bytes) -> None:
    with pytest.raises(JournalDamage):
        decode_change(payload(b'{"topic":%b}' % options))


def test_unknown_keys_are_ignored() -> None:
    text = b'{"topic":{"name":"t","new":1},"more":{},"groups":[{"name":"g","new":[],"cursor":4}]}'
    change = decode_change(payload(text))
    assert change == StateChange(TopicOptions("t"), (GroupChange("g", 4),))


@given(st.lists(ENTRIES, min_size=1, max_size=9))
def test_entries_as_they_are_stored(entries: list[Entry]) -> None:
    """Their columns, each at a multiple of 8 bytes, as every version has written them."""
    count = len(entries)
    rest = b"".join(
        (
            struct.pack(f"<{count}Q", *[entry.offset for entry in entries]),
            struct.pack(f"<{count}Q", *[entry.time_ms for entry in entries]),
            struct.pack(f"<{count}q", *[entry.rank for entry in entries]),
            struct.pack(f"<{count}I", *[entry.attempts for entry in entries]),
            bytes(-4 * count & 7),
            bytes([entry.state for entry in entries]),
            bytes(-count & 7),
        )
    )
    text = b'{"groups":[{"name":"g","entries":%d}]}' % count
    change = StateChange(groups=(GroupChange("g", entries=Entries.of(*entries)),))
    assert encode_change(change) == payload(text, rest)
    assert list(decode_change(payload(text, rest)).groups[0].entries) == entries


def test_entries_that_end_before_some_were_written() -> None:
    ready = EntryState.READY
    entries = Entries.of(
        Entry(3, ready, 0, 1, 9), Entry(7, EntryState.LEASED, 5, 2), Entry(4, ready)
    )
    assert entries.truncated(10) is entries
    assert list(entries.truncated(7)) == [Entry(3, ready, 0, 1, 7), Entry(4, ready)]
    assert not entries.truncated(3)


def test_fates_as_they_are_stored() -> None:
    change = StateChange(
        groups=(GroupChange("g", 9, fates=endings([(7, 100, 2, 1), (8, 5, 0, 4)])),)
    )
    forgotten = StateChange(groups=(GroupChange("g", fates=endings([(7, 1, 0, FORGOTTEN)])),))
    vectors = struct.pack("<2QI4xB7x", 7, 1, 0, 255)
    assert encode_change(forgotten) == payload(b'{"groups":[{"name":"g","fates":1}]}', vectors)
    assert decode_change(encode_change(forgotten)) == forgotten
    text = b'{"groups":[{"name":"g","cursor":9,"fates":2}]}'
    vectors = struct.pack("<4Q2I2B6x", 7, 8, 100, 5, 2, 0, 1, 4)
    assert encode_change(change) == payload(text, vectors)
    assert decode_change(payload(text, vectors)) == change


def test_ids_as_they_are_stored() -> None:
    change = StateChange(ids=IdColumns(bytes(range(32)), array("Q", [7, 1 << 40])))
    vectors = bytes(range(32)) + struct.pack("<2Q", 7, 1 << 40)
    assert encode_change(change) == payload(b'{"ids":2}', vectors)
    assert decode_change(payload(b'{"ids":2}', vectors)) == change


def test_what_expires_as_it_is_stored() -> None:
    """As what is delayed, behind all else."""
    names = IdColumns(bytes(16), array("Q", [3]))
    change = StateChange(ids=names, expiries=columns({1: 9, 2: 7, 515: 8}))
    text = b'{"ids":1,"expiries":3,"expiry_pages":2}'
    keys = (7 * 256 + 2, 9 * 256 + 1, 8 * 256 + 3)
    vectors = bytes(16) + struct.pack("<8Q", 3, 0, 2, 2, 1, *keys)
    assert encode_change(change) == payload(text, vectors)
    assert decode_change(payload(text, vectors)) == change


def test_delayed_messages_as_they_are_stored() -> None:
    change = StateChange(groups=(GroupChange("g", 600, delayed=columns({1: 9, 2: 7, 515: 8})),))
    text = b'{"groups":[{"name":"g","cursor":600,"delayed":3,"pages":2}]}'
    keys = (7 * 256 + 2, 9 * 256 + 1, 8 * 256 + 3)
    assert encode_change(change) == payload(text, struct.pack("<7Q", 0, 2, 2, 1, *keys))


HOSTILE = {
    "nothing": b"",
    "JSON past the end": struct.pack("<II", 9, 0),
    "no JSON": payload(b"{"),
    "bad UTF-8": payload(b'{"topic":{"name":"\xff"}}'),
    "no name": payload(b'{"groups":[{"cursor":1}]}'),
    "negative cursor": payload(b'{"groups":[{"name":"g","cursor":-1}]}'),
    "negative count": payload(b'{"groups":[{"name":"g","entries":-1}]}'),
    "count past the end": payload(b'{"groups":[{"name":"g","entries":1}]}', bytes(32)),
    "enormous count": payload(b'{"groups":[{"name":"g","entries":99999999999999}]}', bytes(40)),
    "negative originals": payload(b'{"originals":-1}'),
    "originals past the end": payload(b'{"originals":2}', bytes(79)),
    "enormous originals": payload(b'{"originals":99999999999999}', bytes(40)),
    "negative ids": payload(b'{"ids":-1}'),
    "ids past the end": payload(b'{"ids":2}', bytes(40)),
    "fewer ids than there are": payload(b'{"ids":1}', bytes(48)),
    "enormous ids": payload(b'{"ids":99999999999999}', bytes(48)),
    "negative expiries": payload(b'{"expiries":-1,"expiry_pages":1}'),
    "expiries past the end": payload(b'{"expiries":1,"expiry_pages":1}', bytes(16)),
    "expiries without pages": payload(b'{"expiries":1}', bytes(8)),
    "enormous expiries": payload(b'{"expiry_pages":99999999999999}', bytes(40)),
    "unknown state": payload(b'{"groups":[{"name":"g","entries":1}]}', bytes(32) + b"\x09" * 8),
    "first unknown state": payload(
        b'{"groups":[{"name":"g","entries":1}]}',
        bytes(32) + bytes((len(EntryState),)) + bytes(7),
    ),
    "negative delayed": payload(b'{"groups":[{"name":"g","delayed":-1,"pages":1}]}'),
    "delayed past the end": payload(b'{"groups":[{"name":"g","delayed":1,"pages":1}]}', bytes(16)),
    "enormous delayed": payload(b'{"groups":[{"name":"g","delayed":99999999999999}]}', bytes(40)),
    "enormous pages": payload(b'{"groups":[{"name":"g","pages":99999999999999}]}', bytes(40)),
    "delayed without pages": payload(b'{"groups":[{"name":"g","delayed":1}]}', bytes(8)),
    "pages without delayed": payload(b'{"groups":[{"name":"g","pages":1}]}', bytes(16)),
    "delayed in disorder": payload(
        b'{"groups":[{"name":"g","delayed":2,"pages":1}]}', struct.pack("<4Q", 0, 2, 513, 256)
    ),
    "negative fates": payload(b'{"groups":[{"name":"g","fates":-1}]}'),
    "fates past the end": payload(b'{"groups":[{"name":"g","fates":1}]}', bytes(24)),
    "enormous fates": payload(b'{"groups":[{"name":"g","fates":99999999999999}]}', bytes(40)),
    "a fate that there is not": payload(b'{"groups":[{"name":"g","fates":1}]}', bytes(32)),
    "another": payload(b'{"groups":[{"name":"g","fates":1}]}', bytes(24) + b"\x06" + bytes(7)),
    "one more": payload(b'{"groups":[{"name":"g","fates":2}]}', bytes(40) + b"\xff\xfe" + bytes(6)),
    "bytes left over": payload(b"{}", bytes(8)),
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_payloads_are_refused(raw: bytes) -> None:
    with pytest.raises(JournalDamage):
        decode_change(raw)


@given(st.binary(max_size=100))
def test_any_bytes_are_decoded_or_refused(raw: bytes) -> None:
    try:
        decode_change(raw)
    except JournalDamage:
        pass
