"""What a sweep holds against a client, and what it does not."""

from __future__ import annotations

from random import Random

import pytest

from tests.conformance.websocket_client import handshake
from tests.server.test_tls_loop import request
from tests.wire.websocket_frames import frame
from zbus.testing.disk import Disk
from zbus.testing.simulation.machine import EPOCH_MS, Options, Process, VirtualClock

PING = frame(1, b'{"cmd":"ping"}')


def running(output_bytes_max: int = 1 << 18) -> Process:
    options = Options(durability="os", output_bytes_max=output_bytes_max)
    return Process(Disk(), VirtualClock(EPOCH_MS), options, "p", Random(1))


def turn(process: Process, ms: int = 1) -> None:
    process.clock.time_ms += ms
    process.turn()
    for worker in process.workers:
        worker.run()


@pytest.mark.parametrize(
    ("begun", "rest"),
    [
        (request("/T", b"x" * 100)[:-1], b"x"),
        (request("/T")[:-2], b"\r\n"),
        (handshake() + PING[:-1], PING[-1:]),
    ],
)
def test_half_a_request_of_a_client_that_is_not_read(begun: bytes, rest: bytes) -> None:
    """Large replies wait for their turn behind a pull, so the rest stays in the socket."""
    process = running()
    client = process.accept(100, 1 << 20)
    client.send(request("/T?cmd=declare") + request("/T", b"x" * 60_000))
    for _ in range(5):
        turn(process)
    client.send(request("/T?cmd=consume"))
    client.send(request("/T?cmd=consume&timeout=100000"))
    client.send(request("/T?cmd=consume&offset=0") * 5 + begun)
    turn(process)
    client.send(rest)
    turn(process)
    assert client.socket.inbound
    for _ in range(110):
        turn(process, 1_000)
    assert not client.socket.inbound
    replies = client.receive()
    assert b"408" not in replies
    assert replies.count(b"HTTP/1.1 2") >= 8
    assert client.alive


def test_a_head_that_comes_by_the_byte() -> None:
    """It has ten seconds as a whole: each byte does not begin them again."""
    process = running()
    client = process.accept(100, 1 << 20)
    for byte in request("/?cmd=ping")[:14]:
        client.send(bytes((byte,)))
        turn(process, 1_000)
    assert client.replies()[0].status == 408
    assert not client.alive


def test_slow_heads_do_not_add_up() -> None:
    """Each has its own ten seconds."""
    process = running()
    client = process.accept(100, 1 << 20)
    whole = request("/?cmd=ping")
    for _ in range(3):
        client.send(whole[:10])
        for _ in range(6):
            turn(process, 1_000)
        client.send(whole[10:])
        turn(process, 1_000)
    assert [reply.status for reply in client.replies()] == [200, 200, 200]
    assert client.alive


def test_a_reader_that_only_takes_is_not_idle() -> None:
    """It says nothing for ten minutes, but takes what is sent to it."""
    process = running()
    reader, writer = process.accept(100, 1 << 20), process.accept(101, 1 << 20)
    writer.send(request("/T?cmd=declare"))
    turn(process)
    reader.send(request("/T?cmd=consume") * 6)
    for number in range(6):
        writer.send(request("/T", b"%d" % number))
        for _ in range(100):
            turn(process, 1_000)
    assert [reply.body for reply in reader.replies()] == [b"%d" % number for number in range(6)]
    assert reader.alive


def test_who_waits_for_its_turn_is_not_idle() -> None:
    """The machine sleeps for an hour when some of what was asked is not begun."""
    process = running(output_bytes_max=16_000)
    client = process.accept(100, 1 << 20)
    client.send(request("/T?cmd=declare") + request("/T", b"x" * 9_000))
    for _ in range(5):
        turn(process)
    client.send(request("/T?cmd=consume&offset=0") * 9 + request("/T?cmd=consume"))
    turn(process)
    (link,) = process.loop.links
    assert link.has_requests
    turn(process, 3_600_000)
    for _ in range(10):
        turn(process)
    assert [len(reply.body) for reply in client.replies()][2:] == [9_000] * 10
    assert client.alive


def test_who_takes_nothing_is_dropped_however_much_it_says() -> None:
    process = running()
    client = process.accept(100, room_bytes=100)
    client.send(request("/T?cmd=declare") + request("/T", b"x" * 10_000))
    client.send(request("/T?cmd=consume"))
    for _ in range(20):
        client.send(request("/?cmd=ping"))
        turn(process, 1_000)
    assert not client.alive


@pytest.mark.parametrize(("bytes_per_s", "alive"), [(600, True), (400, False), (1, False)])
def test_who_takes_a_little_now_and_then(bytes_per_s: int, alive: bool) -> None:
    """It says nothing meanwhile."""
    process = running()
    client = process.accept(100, room_bytes=bytes_per_s)
    client.send(request("/T?cmd=declare") + request("/T", b"x" * 20_000))
    client.send(request("/T?cmd=consume"))
    taken = b""
    for _ in range(40):
        turn(process, 1_000)
        taken += client.receive()
    assert client.alive is alive
    assert taken.endswith(b"x" * 20_000) is alive


BODY = request("/T", b"x" * 40_000)
CHUNKS = (
    b"POST /T HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    b"9c40\r\n" + b"x" * 40_000
)


@pytest.mark.parametrize(
    ("before", "rest", "answer"),
    [
        (b"", BODY, b"408"),
        (b"", CHUNKS, b"408"),
        (handshake(), frame(1, BODY), (1008).to_bytes(2)),
        (handshake(), frame(1, BODY[:200], fin=False) + frame(0, BODY[200:]), (1008).to_bytes(2)),
    ],
)
@pytest.mark.parametrize(("bytes_per_s", "alive"), [(600, True), (400, False), (1, False)])
def test_who_sends_a_little_now_and_then(
    before: bytes, rest: bytes, answer: bytes, bytes_per_s: int, alive: bool
) -> None:
    process = running()
    client = process.accept(100, 1 << 20)
    client.send(request("/T?cmd=declare"))
    turn(process)
    client.send(before)
    turn(process)
    client.receive()
    begun = len(rest) - 30_000
    client.send(rest[:begun])
    for second in range(45):
        at = begun + second * bytes_per_s
        client.send(rest[at : at + bytes_per_s])
        turn(process, 1_000)
    said = client.receive()
    assert (answer in said) is not alive


def test_no_message_is_handed_to_who_hung_up() -> None:
    """It may still read, but nobody knows: the next who asks gets the message."""
    process = running()
    gone, other = process.accept(100, 1 << 20), process.accept(101, 1 << 20)
    gone.send(request("/T?cmd=declare"))
    turn(process)
    gone.replies()
    gone.send(request("/T?cmd=consume&timeout=100000"))
    turn(process)
    gone.finish()
    turn(process)
    other.send(request("/T", b"a message"))
    turn(process)
    other.send(request("/T?cmd=consume"))
    turn(process)
    assert [reply.body for reply in other.replies()][1:] == [b"a message"]
    assert b"a message" not in gone.receive()


def test_who_hangs_up_after_a_long_silence_is_told_the_end_of_its_pull() -> None:
    """In the very turn in which the silence is noticed."""
    process = running()
    client = process.accept(100, 1 << 20)
    client.send(request("/T?cmd=declare") + request("/T?cmd=consume"))
    for _ in range(5):
        turn(process)
    client.finish()
    turn(process, 3_600_000)
    assert b"empty: left" in client.receive()
