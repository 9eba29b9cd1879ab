"""What a receive brought is remembered: the same bytes bring it again, and nothing else does."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.limits import examples
from tests.wire.head_fuzz import make, said, spoil
from tests.wire.test_http_reader import BAD, CHUNKED, EXPECT, GET, GOOD, HOST, LAST, LIMITS, NEXT
from zbus.wire.heads import heads as heads_module
from zbus.wire.heads.heads import Heads
from zbus.wire.http import HttpReader, Request

OTHER = b"GET /other" + HOST + b"\r\n"
POST = b"POST /x" + HOST + b"content-length: 2\r\n\r\nab"


def a_reader(heads: Heads) -> HttpReader:
    return HttpReader(heads, LIMITS)


def warm(*receives: bytes) -> Heads:
    """Each on a connection of its own, until all that will be remembered is."""
    heads = Heads(LIMITS)
    for data in receives * 3:
        a_reader(heads).receive(data)
    return heads


@pytest.mark.parametrize("data", [GET, GET * 2, GET + OTHER, b"\r\n" + GET, GET + b"\r\n" + OTHER])
def test_the_same_bytes_bring_the_same_list_to_whoever_is_idle(data: bytes) -> None:
    heads = warm(data)
    reader = a_reader(heads)
    found = reader.receive(data)
    assert found is heads.receives[data]
    assert found is reader.receive(bytes(bytearray(data))) is a_reader(heads).receive(data)
    assert [head.target for head, _, _ in found] == [
        target for target in data.split() if target.startswith(b"/")
    ]


@pytest.mark.parametrize(
    "data",
    [
        NEXT,
        GET + NEXT,
        POST,
        POST + GET,
        GET + POST,
        CHUNKED + b"0\r\n\r\n",
        GET[:-1],
        GET + b"\r\n",
        GET + GET[:9],
        b"",
        b"\r\n",
        *(row[1] for row in LAST + BAD),
    ],
)
def test_what_is_not_remembered(data: bytes) -> None:
    receives = warm(data).receives
    assert not any(receives.values())


def test_what_is_too_long_is_not_remembered() -> None:
    count = heads_module._RECEIVE_BYTES_MAX // len(GET)
    assert warm(GET * count).receives
    assert not warm(GET * (count + 1)).receives


def test_what_hardly_comes_again_is_not_remembered() -> None:
    heads = warm(GET)
    reader = a_reader(heads)
    for number in range(100):
        reader.receive(b"GET /x%d" % number + HOST + b"\r\n")
    assert list(heads.receives) == [GET]


@pytest.mark.parametrize(
    ("before", "targets"),
    [
        (POST[:-1], [b"/x", b"/get"]),  # by a method of ET
        (b"POST /x" + HOST + b"content-length: %d\r\n\r\n" % len(GET), [b"/x"]),
        (CHUNKED + b"%x\r\n" % len(GET), []),
        (GET[:-2] + b"Connection: close\r\n\r\n", []),
        (b"\x16", []),
        (b"\r", []),
    ],
)
def test_amid_a_request_the_same_bytes_are_something_else(
    before: bytes, targets: list[bytes]
) -> None:
    reader = a_reader(warm(GET))
    reader.receive(before)
    assert [head.target for head, _, _ in reader.receive(GET)] == targets


def test_the_memo_is_bounded() -> None:
    heads = Heads(LIMITS)
    reader = a_reader(heads)
    for number in range(1000):
        data = b"G%d / HTTP/1.1\r\ncmd: x\r\n\r\n" % number
        for _ in range(4):
            reader.receive(data)
        assert heads.receives[data]
        assert all(len(data) in heads.sizes for data in heads.receives)
        assert len(heads.receives) <= heads_module._RECEIVES_MAX


def test_the_memo_goes_with_the_templates() -> None:
    heads = warm(GET)
    for number in range(heads_module._TEMPLATES_MAX):
        heads.read(b"G%d / HTTP/1.1\r\ncmd: x" % number)
    assert not heads.receives


def outcome(reader: HttpReader, requests: list[Request]) -> tuple[object, ...]:
    """Everything a reader tells after a receive."""
    error = reader.error
    interim, reader.interim = reader.interim, b""
    return (
        [(said(head, id_), body) for head, id_, body in requests],
        error and (error.status, error.text),
        (interim, reader.done, reader.behind, reader.waiting_for()),
    )


PIECES = [row[1] for row in GOOD + LAST + BAD] + [GET, OTHER, NEXT, EXPECT, POST, b"\r\n"]
pieces = st.one_of(
    st.sampled_from([GET, OTHER, NEXT, POST]),
    st.sampled_from(PIECES),
    st.integers(0, 1 << 40).map(lambda seed: make(Random(seed)) + b"\r\n\r\n"),
    st.integers(0, 1 << 40).map(lambda seed: spoil(Random(seed), GET + OTHER, LIMITS)),
)


@st.composite
def connections(draw: st.DrawFn) -> list[bytes]:
    """What one connection receives: some of them in two halves."""
    found: list[bytes] = []
    for data in draw(st.lists(st.lists(pieces, min_size=1, max_size=3).map(b"".join), max_size=4)):
        cut = draw(st.one_of(st.none(), st.none(), st.integers(0, len(data))))
        found += [data] if cut is None else [data[:cut], data[cut:]]
    return found


@given(st.lists(connections(), min_size=1, max_size=4), st.randoms(use_true_random=False))
@examples(300)
def test_what_others_sent_before_changes_nothing(
    received: list[list[bytes]], random: Random
) -> None:
    heads = Heads(LIMITS)
    promised: list[tuple[list[Request], list[Request]]] = []
    for _ in range(4):
        readers = [(a_reader(heads), a_reader(heads)) for _ in received]
        turns = [number for number, receives in enumerate(received) for _ in receives]
        random.shuffle(turns)
        left = [iter(receives) for receives in received]
        for number in turns:
            data = next(left[number])
            quick, careful = readers[number]
            careful._heads = Heads(LIMITS)  # that knows nothing
            requests = quick.receive(data)
            promised.append((requests, requests.copy()))
            assert outcome(quick, requests) == outcome(careful, careful.receive(data))
    assert all(requests == copy for requests, copy in promised)
