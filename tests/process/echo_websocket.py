"""A server that echoes, on the broker's own `zbus.wire.websocket`, for Autobahn to judge.

python -m tests.process.echo_websocket [port]      says where it listens, then echoes
make autobahn                                      Autobahn against it
"""

from __future__ import annotations

import sys

import trio

from zbus.wire.heads.heads import Heads
from zbus.wire.http import HttpReader, Request
from zbus.wire.limits import WireLimits
from zbus.wire.websocket import (
    CLOSE,
    PING,
    PONG,
    WebSocketReader,
    accept_handshake,
    encode_close,
    encode_frame,
)

LIMITS = WireLimits(body_bytes_max=16 << 20)
HEADS = Heads(LIMITS)


async def echo(stream: trio.SocketStream) -> None:
    """One connection."""
    http = HttpReader(HEADS, LIMITS)
    requests: list[Request] = []
    while not requests:
        requests = http.receive(await stream.receive_some(65_536) or b"\0")
        if http.error is not None:
            return
    await stream.send_all(accept_handshake(requests[0][0]))
    reader = WebSocketReader(LIMITS.body_bytes_max)
    data: bytes | bytearray = http.behind or b""
    while True:
        out = []
        events = reader.receive(bytes(data))
        while reader.more:
            events += reader.receive(b"")
        for kind, payload in events:
            out.append(encode_frame(PONG if kind == PING else kind, payload[: _limit(kind)]))
        if reader.error is not None:
            out.append(encode_close(reader.error.status, reader.error.text))
        await stream.send_all(b"".join(out))
        if reader.closed:
            await stream.send_eof()
        data = await stream.receive_some(65_536)
        if not data:
            return


def _limit(kind: int) -> int | None:
    """A close frame is answered with its code alone."""
    return 2 if kind == CLOSE else None


async def serve_one(stream: trio.SocketStream) -> None:
    try:
        await echo(stream)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def main(port: int) -> None:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve_one, port)
        print(f"echoing on port {listeners[0].socket.getsockname()[1]}", flush=True)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 0)
