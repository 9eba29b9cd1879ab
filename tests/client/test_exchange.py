"""The core of the clients against the broker in one process: lost connections, answers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr

from tests.client.peer import NEVER, Joined, stored_bodies
from tests.limits import examples
from zbus.client import commands, errors
from zbus.client.links.request_tracker import RequestTracker
from zbus.client.messages import Message
from zbus.client.options import Options
from zbus.client.requests import Request
from zbus.testing.world import World

cuts = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 900), st.just(NEVER)),
        st.one_of(st.integers(0, 900), st.just(NEVER)),
    ),
    max_size=9,
)


def declared() -> World:
    world = World()
    Joined(world).run(commands.declare("T"))
    return world


@given(cuts, st.lists(st.binary(max_size=40), min_size=1, max_size=12))
@examples(300)
def test_no_produce_is_lost_or_stored_twice(
    breaks: list[tuple[int, int]], bodies: list[bytes]
) -> None:
    """Wherever connections break: each message is there once, in order, and its answer is right."""
    world = declared()
    joined = Joined(world, breaks)
    calls = [joined.submit(commands.produce("T", body)) for body in bodies]
    joined.settle()
    assert [call.result().offset for call in calls] == list(range(len(bodies)))
    assert stored_bodies(world) == bodies


@given(cuts, st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=5), max_size=5))
@examples(100)
def test_no_batch_is_lost_or_stored_twice(
    breaks: list[tuple[int, int]], batches: list[list[bytes]]
) -> None:
    world = declared()
    joined = Joined(world, breaks)
    calls = [joined.submit(commands.produce_many("T", batch)) for batch in batches]
    joined.settle()
    assert [call.result().count for call in calls] == [len(batch) for batch in batches]
    assert stored_bodies(world) == [body for batch in batches for body in batch]


def test_at_every_byte() -> None:
    """One produce, the connection broken at each byte of the request, then of the answer."""
    request = commands.produce("T", b"body")
    up = len(RequestTracker(Options(), random.Random(1)).submit(request, 0).data)
    for at in range(up + 250):
        world = declared()
        joined = Joined(world, [(at, NEVER) if at < up else (NEVER, at - up)])
        stored = joined.run(request)
        assert stored.offset == 0
        assert stored_bodies(world) == [b"body"]
        assert stored.duplicate == (joined.connections == 2 and at >= up)


def test_what_was_not_taken_is_sent_once() -> None:
    exchange = RequestTracker(Options(), random.Random(1))
    exchange.connected()
    call = exchange.submit(commands.produce("T", b"body"), 0)
    exchange.lost(0, "it broke")
    assert exchange.take() == b""
    exchange.connected()
    assert exchange.take() == call.data
    assert exchange.take() == b""


def test_what_was_given_up_is_not_sent() -> None:
    exchange = RequestTracker(Options(), random.Random(1))
    exchange.connected()
    given_up = exchange.submit(commands.produce("T", b"given up"), 0)
    other = exchange.submit(commands.produce("T", b"other"), 0)
    exchange.give_up(given_up, errors.Timeout("too late", unknown=False))
    assert exchange.take() == other.data


def test_a_removal_that_is_sent_again_is_no_refusal() -> None:
    request = commands.remove("T")
    up = len(RequestTracker(Options(), random.Random(1)).submit(request, 0).data)
    for at in range(up + 100):
        joined = Joined(declared(), [(at, NEVER) if at < up else (NEVER, at - up)])
        assert joined.run(request) is None
        with pytest.raises(errors.NotFound):
            joined.run(request)


class Offline:
    """An exchange without any broker."""

    def __init__(self, **options: object) -> None:
        self.exchange = RequestTracker(Options(**options), random.Random(1))  # type: ignore[arg-type]
        self.exchange.connected()

    def answer(self, id: bytes, status: int = 200, lines: bytes = b"", body: bytes = b"") -> bool:
        return self.exchange.receive(
            b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nid: %b\r\n%b\r\n%b"
            % (status, len(body), id, lines, body)
        )


def test_answers_are_known_by_their_ids() -> None:
    off = Offline()
    calls = [off.exchange.submit(commands.ping(), 0) for _ in range(3)]
    for call, body in zip(reversed(calls), (b"3", b"2", b"1"), strict=True):
        assert off.answer(call.id, body=body)
    assert [call.result() for call in calls] == [1, 2, 3]


def test_what_nobody_asked_for_is_passed_over() -> None:
    off = Offline()
    call = off.exchange.submit(commands.ping(), 0)
    assert off.answer(b"of-somebody-else", body=b"9")
    assert not call.done


@pytest.mark.parametrize("status", [200, 204, 301, 304])
def test_a_server_that_is_no_broker(status: int) -> None:
    off = Offline(retries=0)
    call = off.exchange.submit(commands.ping(), 0)
    answer = b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % status
    assert not off.exchange.receive(answer)
    off.exchange.lost(0, "")
    with pytest.raises(errors.ProtocolError, match=f"status {status} that names no request"):
        call.result()


def test_a_call_that_is_not_to_be_sent_again() -> None:
    off = Offline()
    pull, other = (off.exchange.submit(commands.pull("T"), 0) for _ in range(2))
    off.exchange.last_time(pull)
    assert not pull.done
    off.exchange.lost(0, "it broke")
    assert pull.done
    off.exchange.last_time(other)
    assert other.done
    assert len(off.exchange) == 0


UNSAFE = [
    commands.call("T", "plus", 1, 2),
    commands.produce("T", b"", id="mine"),
    commands.produce_many("T", [Message(b"", id="mine")]),
]
SAFE = [
    commands.produce("T", b""),
    commands.produce("T", b"", idempotency_key="k"),
    commands.produce_many("T", [b""]),
    commands.ping(),
    commands.query(),
    commands.declare("T"),
    commands.remove("T"),
    commands.empty("T"),
    commands.pull("T"),
    commands.ack("T", None, 1),
    commands.nack("T", None, 1),
    commands.extend("T", None, 1),
    commands.read("T"),
]


@pytest.mark.parametrize("request_", UNSAFE)
def test_what_may_not_be_done_twice_is_not_sent_twice(request_: Request) -> None:
    off = Offline()
    call = off.exchange.submit(request_, 0)
    off.exchange.take()
    off.exchange.lost(0, "gone")
    with pytest.raises(errors.ConnectionLost, match="not known") as caught:
        call.result()
    assert caught.value.unknown


@pytest.mark.parametrize("request_", [*UNSAFE, *SAFE])
def test_what_was_never_sent_is_sent_later(request_: Request) -> None:
    off = Offline()
    off.exchange.lost(0, "gone")
    call = off.exchange.submit(request_, 0)
    assert off.exchange.take() == b""
    off.exchange.lost(0, "still gone")
    assert not call.done
    off.exchange.connected()
    assert call.id in off.exchange.take()


@pytest.mark.parametrize("request_", SAFE)
def test_what_may_be_done_twice_is_sent_again(request_: Request) -> None:
    off = Offline(retries=3)
    call = off.exchange.submit(request_, 0)
    first = off.exchange.take()
    for _ in range(3):
        off.exchange.lost(0, "gone")
        assert not call.done
        off.exchange.connected()
        assert off.exchange.take() == first
    off.exchange.lost(0, "gone")
    with pytest.raises(errors.ConnectionLost, match="gone"):
        call.result()


def test_without_retries_nothing_is_sent_twice_and_messages_have_no_key() -> None:
    off = Offline(retries=0)
    calls = [
        off.exchange.submit(request, 0) for request in (commands.ping(), commands.produce("T"))
    ]
    assert b"idempotent" not in off.exchange.take()
    off.exchange.lost(0, "gone")
    for call in calls:
        with pytest.raises(errors.ConnectionLost):
            call.result()


def test_an_answer_gives_new_courage() -> None:
    """`retries` counts connections that brought nothing."""
    off = Offline(retries=2)
    for _ in range(10):
        call = off.exchange.submit(commands.ping(), 0)
        off.exchange.lost(0, "gone")
        off.exchange.connected()
        off.answer(call.id, body=b"1")
        assert call.result() == 1


def test_pauses_double_and_differ() -> None:
    off = Offline(backoff_s=0.1, backoff_max_s=1.0, retries=8)
    pauses = []
    for _ in range(8):
        off.exchange.lost(100.0, "gone")
        pauses.append(off.exchange.attempts.retry_at_s - 100.0)
    limits = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]
    assert all(limit / 2 <= pause <= limit for limit, pause in zip(limits, pauses, strict=True))
    assert len(set(pauses)) == 8


def test_a_deadline() -> None:
    off = Offline(timeout_s=5.0)
    calls = [
        off.exchange.submit(commands.ping(), 10.0),
        off.exchange.submit(commands.ping(timeout_s=1.0), 10.0),
    ]
    assert off.exchange.next_deadline_s() == 11.0
    off.exchange.expire(10.9)
    assert [call.done for call in calls] == [False, False]
    off.exchange.expire(11.0)
    with pytest.raises(errors.Timeout, match="no answer within 1 s: whether"):
        calls[1].result()
    off.answer(calls[1].id, body=b"1")  # too late
    off.answer(calls[0].id, body=b"2")
    assert calls[0].result() == 2


def test_who_waits_in_vain_for_a_connection_is_told_why() -> None:
    off = Offline(timeout_s=5.0, retries=100)
    call = off.exchange.submit(commands.ping(), 10.0)
    off.exchange.lost(11.0, "no connection to h:1: refused")
    off.exchange.expire(15.0)
    with pytest.raises(errors.Timeout, match=r"within 5 s \(no connection to h:1: refused\)"):
        call.result()


def test_an_id_of_ones_own_is_used_once_at_a_time() -> None:
    off = Offline()
    call = off.exchange.submit(commands.produce("T", id="a"), 0)
    with pytest.raises(ValueError, match="under way"):
        off.exchange.submit(commands.produce("T", id="a"), 0)
    off.answer(b"a", lines=b"offset: 3\r\n")
    assert call.result().offset == 3
    off.exchange.submit(commands.produce("T", id="a"), 0)


REFUSALS = [
    (400, errors.BadRequest),
    (401, errors.Forbidden),
    (403, errors.Forbidden),
    (404, errors.NotFound),
    (409, errors.Conflict),
    (413, errors.TooLarge),
    (418, errors.Refused),
    (422, errors.BadRequest),
    (429, errors.TooMany),
    (500, errors.Refused),
    (502, errors.Unanswered),
    (503, errors.Overloaded),
    (504, errors.Unanswered),
    (507, errors.Full),
    (600, errors.Refused),
]


@pytest.mark.parametrize(("status", "kind"), REFUSALS)
def test_refusals(status: int, kind: type[errors.Refused]) -> None:
    off = Offline()
    call = off.exchange.submit(commands.ping(), 0)
    lines = b"offset: 17\r\nretry-after: 3\r\n"
    off.answer(call.id, status, lines, b"%d: no" % status)
    with pytest.raises(kind) as caught:
        call.result()
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.text) == (status, f"{status}: no")
    if isinstance(caught.value, errors.Conflict):
        assert caught.value.next_offset == 17
    if isinstance(caught.value, errors.Overloaded | errors.Full | errors.TooMany):
        assert caught.value.retry_after_s == 3.0
    if isinstance(caught.value, errors.TooMany):
        assert caught.value.throttled


@pytest.mark.parametrize("status", [400, 404, 500, 600, 999])
def test_a_services_error(status: int) -> None:
    off = Offline()
    call = off.exchange.submit(commands.call("T", "m"), 0)
    off.answer(call.id, status, b"sender: s\r\n", b"it went wrong")
    with pytest.raises(errors.RpcError, match="it went wrong") as caught:
        call.result()
    assert (caught.value.status, caught.value.body) == (status, b"it went wrong")


def test_a_request_that_the_broker_cannot_read() -> None:
    """It is told without an id, after the answers to what came before."""
    off = Offline()
    waiting = off.exchange.submit(commands.pull("T", wait_ms=1000), 0)
    calls = [off.exchange.submit(commands.produce("T"), 0) for _ in range(3)]
    off.answer(calls[0].id, lines=b"offset: 0\r\n")
    usable = off.exchange.receive(
        b"HTTP/1.1 413 X\r\ncontent-length: 8\r\nconnection: close\r\n\r\n413: big"
    )
    assert not usable
    off.exchange.lost(0, "closed")
    with pytest.raises(errors.TooLarge):
        calls[1].result()
    assert not calls[2].done, "it will be sent again"
    assert not waiting.done


def test_a_peer_that_is_no_broker() -> None:
    off = Offline()
    call = off.exchange.submit(commands.ping(), 0)
    for _ in range(11):
        assert not off.exchange.receive(b"220 mail.example ESMTP\r\n\r\n")
        off.exchange.lost(0, "closed")
        off.exchange.connected()
    with pytest.raises(errors.ProtocolError, match="not from a zbus broker"):
        call.result()


BAD_ANSWERS = [
    (commands.query(), b"", b"not JSON"),
    (commands.query(), b"", b"[]"),
    (commands.ping(), b"", b"-1"),
    (commands.ping(), b"", b"1_0"),
    (commands.ping(), b"", b""),
    (commands.produce("T"), b"offset: +1\r\n", b""),
    (commands.produce("T"), b"offset: 99999999999999999999\r\n", b""),
    (commands.pull("T"), b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort"),
    (commands.call("T", "m"), b"sender: s\r\ncontent-type: application/json\r\n", b"{"),
]


@pytest.mark.parametrize(("request_", "lines", "body"), BAD_ANSWERS)
def test_answers_that_make_no_sense(request_: Request, lines: bytes, body: bytes) -> None:
    off = Offline()
    call = off.exchange.submit(request_, 0)
    off.answer(call.id, 200, lines, body)
    with pytest.raises(errors.ProtocolError):
        call.result()


def test_a_token_is_sent_with_everything() -> None:
    off = Offline(token="secret")
    off.exchange.submit(commands.ping(), 0)
    off.exchange.submit(commands.produce("T"), 0)
    assert off.exchange.take().count(b"\r\ntoken: secret\r\n") == 2
    assert "secret" not in repr(Options(token="secret"))
    assert "secret" not in pretty_repr(Options(token="secret"))


def test_closing_ends_everything() -> None:
    off = Offline()
    call = off.exchange.submit(commands.ping(), 0)
    off.exchange.close()
    with pytest.raises(errors.ConnectionLost, match="closed"):
        call.result()


@pytest.mark.parametrize(
    ("retry_after", "date", "wait_s"),
    [
        ("7", "", 7.0),
        ("Sat, 01 Jan 2000 00:00:30 GMT", "Sat, 01 Jan 2000 00:00:00 GMT", 30.0),
        ("Sat, 01 Jan 2000 00:00:30 GMT", "Sat, 01 Jan 2000 00:01:00 GMT", 0.0),
        ("Sat, 01 Jan 2000 00:00:30 GMT", "", 0.0),
        ("Saturday, 01-Jan-00 00:00:30 GMT", "Sat Jan  1 00:00:00 2000", 30.0),
        ("Sat, 32 Jan 2000 00:00:30 GMT", "", 1.0),
        ("-3", "", 1.0),
        ("soon", "", 1.0),
        ("9" * 400, "", 1.0),
        ("\udcff", "", 1.0),
    ],
)
def test_how_long_to_wait(retry_after: str, date: str, wait_s: float) -> None:
    """As a broker says it, and as proxies and gateways before it do."""
    off = Offline()
    call = off.exchange.submit(commands.ping(), 0)
    lines = f"retry-after: {retry_after}\r\n" + (f"date: {date}\r\n" if date else "")
    off.answer(call.id, 503, lines.encode("utf-8", "surrogateescape"))
    with pytest.raises(errors.Overloaded) as caught:
        call.result()
    assert caught.value.retry_after_s == wait_s
