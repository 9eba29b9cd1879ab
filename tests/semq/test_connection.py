"""What becomes of a connection whose other end is slow, with a clock of the test's own."""

from __future__ import annotations

import anyio
import pytest
import trio
from trio.testing import MockClock

from zbus.semq.endpoint.events import Frame
from zbus.semq.program.connection import HEARD_S, OUT_BYTES_MAX, STALL_S, Connection
from zbus.semq.program.frames import ResponseFrames, encode_request, encode_response, limits

ALIVE = Frame({"cmd": "heartbeat"})


class Slow(anyio.abc.ByteStream):
    """Brings these bytes, so many at a time and seconds apart; takes none if it is stuck."""

    def __init__(
        self, data: bytes = b"", piece: int = 1, every_s: float = 1, stuck: bool = False
    ) -> None:
        self._data = data
        self._piece = piece
        self._every_s = every_s
        self._stuck = stuck

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        with trio.move_on_after(self._every_s):
            await trio.sleep_forever()
        if not self._data:
            raise anyio.EndOfStream
        piece, self._data = self._data[: self._piece], self._data[self._piece :]
        return piece

    async def send(self, item: bytes) -> None:
        if self._stuck:
            await trio.sleep_forever()

    async def send_eof(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def connection(stream: Slow) -> Connection:
    return Connection(stream, ResponseFrames(limits()), encode_request, "somebody")


@pytest.mark.parametrize("seconds", [5, 65])
async def test_a_large_frame_is_a_sign_of_life(autojump_clock: MockClock, seconds: int) -> None:
    """Before it is complete: else a slow line would never bring one."""
    large = Frame({"cmd": "semq_deliver"}, bytes(seconds * 1_000), 200)
    data = encode_response(large)
    found: list[Frame] = []

    async def handle(frame: Frame) -> None:
        found.append(frame)

    await connection(Slow(data, len(data) // seconds + 1)).run(handle, ALIVE)
    assert found == [ALIVE] * int((seconds - 1) // HEARD_S) + [large]


async def test_nobody_is_alive_who_says_nothing(autojump_clock: MockClock) -> None:
    found: list[Frame] = []

    async def handle(frame: Frame) -> None:
        found.append(frame)

    await connection(Slow(every_s=1_000)).run(handle, ALIVE)
    assert not found


async def test_who_takes_nothing_is_let_go(autojump_clock: MockClock) -> None:
    """When much waits there, and not before."""
    small, large = Frame({"cmd": "a"}, b"x"), Frame({"cmd": "b"}, bytes(OUT_BYTES_MAX // 2))
    one = connection(Slow(every_s=1_000_000, stuck=True))

    async def nothing(_frame: Frame) -> None:
        pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run, nothing)
        for _ in range(10):
            one.send(small)
            await trio.testing.wait_all_tasks_blocked()
            autojump_clock.jump(STALL_S)
        for _ in range(2):
            assert not one.closing
            one.send(large)
        assert one.closing
    assert one.why == "it takes nothing"


async def test_who_takes_slowly_is_not() -> None:
    one = connection(Slow(every_s=1_000_000, stuck=True))
    for _ in range(5):
        one.send(Frame({"cmd": "b"}, bytes(OUT_BYTES_MAX // 2)))
    assert not one.closing
