"""The reader of server-sent events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbus.wire.errors import WireError
from zbus.wire.events import Event, EventReader


def read(data: bytes) -> list[Event]:
    return EventReader().receive(data)


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\n", [Event(b"", b"", b"a")]),
        (b"data:a\ndata:  b\n\n", [Event(b"", b"", b"a\n b")]),
        (b"data\n\n", [Event(b"", b"", b"")]),
        (b"\xef\xbb\xbfdata: a\r\n\r\n", [Event(b"", b"", b"a")]),
        (b"\xef\xbb\xbfdata: a\n\xef\xbb\xbfdata: b\n\n", [Event(b"", b"", b"a")]),
        (b": comment\n\n:\n\nid: 1\n\n", []),
        (b"id: 1\ndata: a\n\ndata: b\n\n", [Event(b"", b"1", b"a"), Event(b"", b"1", b"b")]),
        (b"id: 1\ndata: a\nid: 2\x00\n\n", [Event(b"", b"1", b"a")]),
        (b"event: end\nid: 7\n\ndata: a\n\n", [Event(b"", b"7", b"a")]),
        (b"event: end\ndata: x\rdata: y\r\r", [Event(b"end", b"", b"x\ny")]),
        (b"retry: 1000\nnobody: knows\ndata: a:b\n\ndata: cut off", [Event(b"", b"", b"a:b")]),
    ],
)
def test_what_is_an_event(data: bytes, events: list[Event]) -> None:
    assert read(data) == events


PIECES = st.sampled_from(
    [
        b"data: a",
        b"data",
        b"id: 3",
        b"id:",
        b"event: end",
        b":",
        b"retry: 1",
        b"\xef\xbb\xbf",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\r\n\r\n",
        b" ",
        b"x",
        b"\0",
    ]
)


@given(st.lists(PIECES, max_size=30), st.lists(st.integers(1, 6)))
def test_any_split_gives_the_same_events(pieces: list[bytes], sizes: list[int]) -> None:
    data = b"".join(pieces)
    whole, split = EventReader(), EventReader()
    found, at = [], 0
    for size in sizes:
        found += split.receive(data[at : at + size])
        at += size
    found += split.receive(data[at:])
    assert found == whole.receive(data)
    assert split.last_id == whole.last_id


@given(st.lists(st.tuples(st.sampled_from([b"", b"end"]), st.binary(max_size=9)), max_size=5))
def test_what_a_broker_writes_is_read(told: list[tuple[bytes, bytes]]) -> None:
    from zbus.dialects.zbus.request.event_stream import encode_event

    data = b"".join(encode_event(b"%d" % n, body, type) for n, (type, body) in enumerate(told))
    assert read(data) == [
        Event(type, b"%d" % n, body.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        for n, (type, body) in enumerate(told)
    ]


@pytest.mark.parametrize("data", [b"x" * 101, b"data: " + b"x" * 101, b"data: 12345678\n" * 12])
def test_an_event_has_an_end(data: bytes) -> None:
    reader = EventReader(event_bytes_max=100)

    def receive() -> None:
        for byte in data:
            reader.receive(bytes([byte]))

    with pytest.raises(WireError, match="over 100 bytes"):
        receive()
